#include "signals.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "bitgrad/base/error.h"

namespace bitgrad::cli {
namespace {

volatile std::sig_atomic_t g_request = 0;
std::atomic<int64_t> g_saved_step{-1};
static_assert(std::atomic<int64_t>::is_always_lock_free);  // read in the handler
bool g_terminal = false;

// Composes and writes text using only what a signal handler may call (signal-safety(7)).
class SignalText {
 public:
  SignalText& operator<<(const char* text) {
    for (; *text != '\0' && size_ < sizeof bytes_; ++text) bytes_[size_++] = *text;
    return *this;
  }
  SignalText& operator<<(int64_t number) {
    char digits[24];
    size_t n = sizeof digits;
    digits[--n] = '\0';
    do digits[--n] = static_cast<char>('0' + number % 10);
    while ((number /= 10) > 0);
    return *this << digits + n;
  }
  void write() const {
    const int kept = errno;
    [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, bytes_, size_);
    errno = kept;
  }

 private:
  char bytes_[256];
  size_t size_ = 0;
};

// A second signal ends the process as if it were not caught, so that no exit code claims "saved".
void on_signal(int signal) {
  SignalText text;
  if (g_terminal) text << "\r\033[J";
  if (g_request == 0) {
    g_request = signal == SIGINT ? 1 : 2;
    (text << "stopping: the step or evaluation in progress is finished, then the run is saved. "
          << (signal == SIGINT ? "Ctrl-C again" : "A second signal") << " ends at once, without saving.\n")
        .write();
    return;
  }
  const int64_t saved = g_saved_step;
  if (saved < 0)
    text << "ended without saving: the run is lost, it had no checkpoint yet\n";
  else
    text << "ended without saving: what was trained after step " << saved << " is lost\n";
  text.write();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

volatile std::sig_atomic_t g_passed = 0;
volatile std::sig_atomic_t g_child = 0;  // the child that runs now; 0: none

// Passes the signal on: the child saves and ends, then the command does.
void pass_on(int signal) {
  g_passed = signal;
  if (g_child > 0) kill(static_cast<pid_t>(g_child), signal);
}

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

// Holds the signals back while a child starts, so that none is lost between fork and the first line of pass_on's use
// of it.
class HeldSignals {
 public:
  HeldSignals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : kSignals) sigaddset(&set, signal);
    sigprocmask(SIG_BLOCK, &set, &before_);
  }
  ~HeldSignals() { release(); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;
  void release() const { sigprocmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_ = {};
};

}  // namespace

void install_signal_handlers() {
  g_terminal = isatty(STDERR_FILENO) == 1;
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
}

StopRequest stop_request() {
  return g_request == 0 ? StopRequest::kNone : (g_request == 1 ? StopRequest::kInterrupt : StopRequest::kTerminate);
}

void set_last_saved_step(int64_t step) { g_saved_step = step; }

int exit_code(StopRequest request) {
  return request == StopRequest::kNone ? 0 : (request == StopRequest::kInterrupt ? 130 : 75);
}

void pass_signals_on() {
  struct sigaction action {
  }, before{};
  action.sa_handler = pass_on;
  for (const int signal : kSignals) {
    sigaction(signal, nullptr, &before);
    if (signal != SIGHUP || before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);  // nohup stays
  }
}

int passed_signal() { return g_passed; }

int run_child(std::vector<std::string> words, ChildOutput output) {
  words.insert(words.begin(), "bitgrad");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::cout.flush();
  const pid_t parent = getpid();
  const HeldSignals held;
  const pid_t child = fork();
  require(child >= 0, words[1], "cannot start a process");
  if (child == 0) {
    for (const int signal : kSignals) std::signal(signal, SIG_DFL);
    setpgid(0, 0);                     // Ctrl-C reaches the parent alone, which passes it on once
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // nobody would wait for it
    if (getppid() != parent) _exit(70);
    held.release();
    if (output == ChildOutput::kNone && std::freopen("/dev/null", "w", stdout) == nullptr) _exit(70);
    if (output == ChildOutput::kError && dup2(STDERR_FILENO, STDOUT_FILENO) < 0) _exit(70);
    execv("/proc/self/exe", arguments.data());
    _exit(70);
  }
  g_child = child;
  held.release();
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  g_child = 0;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace bitgrad::cli
