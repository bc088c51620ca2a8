#include "signals.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

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

}  // namespace bitgrad::cli
