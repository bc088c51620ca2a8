#include "progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "bitgrad/base/error.h"
#include "bitgrad/base/log.h"
#include "output.h"
#include "progress_line.h"
#include "terminal.h"

namespace bitgrad::cli {
namespace {

constexpr int kNoLimit = 1 << 20;

}  // namespace

std::string average_text(const EvalEvent& event) {
  if (!event.average) return {};
  char text[96] = "", accuracy[32] = "";
  if (event.average->accuracy >= 0)
    std::snprintf(accuracy, sizeof accuracy, "accuracy %.2f %%  ", event.average->accuracy);
  std::snprintf(text, sizeof text, "  (average: %sloss %.4f)", accuracy, event.average->loss);
  return text;
}

Progress::Progress(bool quiet)
    : quiet_(quiet), terminal_(draws_on_terminal()), last_(std::chrono::steady_clock::now()) {}
Progress::~Progress() {
  if (drawn_ > 0 && !failed_) std::fputs(erasure().c_str(), stderr);
}

void Progress::put(const std::string& text) {
  if (failed_ || std::fputs(text.c_str(), stderr) >= 0) return;
  failed_ = true;  // set before logging, because warnings of the log end up here
  log(LogLevel::kWarning, concat("standard error cannot be written (", why_no_more(STDERR_FILENO),
                                 "): further output is dropped, the run continues"));
}

// The line may cover several rows by now: if the window has become narrower, the terminal has wrapped it.
std::string Progress::erasure() const {
  const int rows = (drawn_ - 1) / std::max(terminal_columns(), 1);
  return rows > 0 ? concat("\r\033[", rows, "A\033[J") : "\r\033[J";
}

void Progress::erase() {
  if (drawn_ == 0) return;
  put(erasure());
  drawn_ = 0;
}

// A single write, so that a partly drawn line is never visible. The last column stays free for the cursor.
void Progress::draw(const TrainEvent& e) {
  const std::string line = progress_line(e, terminal_columns() - 1);
  put((drawn_ > 0 ? erasure() : std::string()) + line);
  drawn_ = static_cast<int>(line.size());
}

void Progress::tick(const TrainEvent& e) {
  if (quiet_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < (terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(10000))) return;
  last_ = now;
  if (terminal_)
    draw(e);
  else
    put(progress_line(e, kNoLimit) + '\n');
}

void Progress::evaluated(const EvalEvent& e) {
  char text[320], accuracy[32] = "", best[96] = "";
  if (e.accuracy >= 0) std::snprintf(accuracy, sizeof accuracy, "accuracy %.2f %%  ", e.accuracy);
  if (e.metric != "accuracy" && e.metric != "loss")
    std::snprintf(best, sizeof best, "  %s %.4f", e.metric.c_str(), e.value);
  const auto shown = [&](const char* name, const char* format) {
    char part[48] = "";
    const std::optional<double> value = e.metric == name ? std::nullopt : value_of(e.metrics, name);
    if (value) std::snprintf(part, sizeof part, format, *value);
    return std::string(part);
  };
  const std::string of_text = shown("perplexity", "  perplexity %.5g") + shown("bits_per_byte", "  bits/byte %.4f");
  std::snprintf(text, sizeof text, "epoch %lld  step %lld  %s %sloss %.4f%s%s%s", static_cast<long long>(e.epoch),
                static_cast<long long>(e.step), e.split.c_str(), accuracy, e.loss, of_text.c_str(), best,
                e.best ? "  (best so far)" : "");
  line(text + average_text(e));
}

void Progress::warn(const std::string& text) {
  erase();
  put("warning: " + text + '\n');
}

void Progress::line(const std::string& text) {
  if (quiet_) return;
  erase();
  put(text + '\n');
}

}  // namespace bitgrad::cli
