#include "signals.h"

#include <csignal>

namespace bitgrad::cli {
namespace {

volatile std::sig_atomic_t g_request = 0;

// Only sets a flag (CERT SIG30-C). A second signal ends the process as if it had not been caught, so that no exit code
// says "saved".
void on_signal(int signal) {
  if (g_request != 0) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
    return;
  }
  g_request = signal == SIGINT ? 1 : 2;
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
}

StopRequest stop_request() {
  return g_request == 0 ? StopRequest::kNone : (g_request == 1 ? StopRequest::kInterrupt : StopRequest::kTerminate);
}

int exit_code(StopRequest request) {
  return request == StopRequest::kNone ? 0 : (request == StopRequest::kInterrupt ? 130 : 75);
}

}  // namespace bitgrad::cli
