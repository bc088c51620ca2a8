#include "child_run.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <iostream>

#include "bitgrad/base/error.h"

namespace bitgrad::cli {
namespace {

volatile std::sig_atomic_t g_signal = 0;
volatile std::sig_atomic_t g_child = 0;  // the child that runs now; 0: none

// Passes the signal on: the child saves and ends, then the command does.
void on_signal(int signal) {
  g_signal = signal;
  if (g_child > 0) kill(static_cast<pid_t>(g_child), signal);
}

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

// Holds the signals back while a child starts, so that none is lost between fork and the first line of on_signal's use
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

void pass_signals_on() {
  struct sigaction action {
  }, before{};
  action.sa_handler = on_signal;
  for (const int signal : kSignals) {
    sigaction(signal, nullptr, &before);
    if (signal != SIGHUP || before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);  // nohup stays
  }
}

int passed_signal() { return g_signal; }

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
