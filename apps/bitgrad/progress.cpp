#include "progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iomanip>
#include <utility>

#include "bitgrad/base/error.h"
#include "bitgrad/base/log.h"
#include "output.h"

namespace bitgrad::cli {
namespace {

constexpr int kBarWidth = 24;

std::string duration(double seconds) {
  const int64_t s = static_cast<int64_t>(seconds + 0.5);
  char text[32];
  if (s >= 3600)
    std::snprintf(text, sizeof text, "%lldh%02lldm", static_cast<long long>(s / 3600),
                  static_cast<long long>(s % 3600 / 60));
  else
    std::snprintf(text, sizeof text, "%lldm%02llds", static_cast<long long>(s / 60), static_cast<long long>(s % 60));
  return text;
}

bool is_terminal() {
  const char* ci = std::getenv("CI");
  return isatty(STDERR_FILENO) == 1 && (ci == nullptr || *ci == '\0');
}

}  // namespace

Progress::Progress(bool quiet) : quiet_(quiet), terminal_(is_terminal()), last_(std::chrono::steady_clock::now()) {}
Progress::~Progress() {
  if (drawn_ && !failed_) std::fputs("\r\033[K", stderr);
}

std::string Progress::describe(const TrainEvent& e) const {
  char text[240];
  char accuracy[32] = "";
  if (e.accuracy >= 0) std::snprintf(accuracy, sizeof accuracy, "acc %.2f %%  ", e.accuracy);
  const bool ids = e.tokens_per_s > 0;
  char rate[48] = "", mfu[24] = "";
  if (e.gmacs_per_s > 0) std::snprintf(rate, sizeof rate, "  %.3g GMAC/s", e.gmacs_per_s);
  if (e.mfu >= 0) std::snprintf(mfu, sizeof mfu, " (MFU %.1f %%)", e.mfu);
  std::snprintf(text, sizeof text, "epoch %lld  step %lld  loss %.4f  %slr %.3g  %.0f %s/s%s%s  ETA %s",
                static_cast<long long>(e.epoch), static_cast<long long>(e.step), e.loss, accuracy, e.lr,
                ids ? e.tokens_per_s : e.samples_per_s, ids ? "tokens" : "samples", rate, mfu,
                duration(e.eta_seconds).c_str());
  return text;
}

void Progress::put(const std::string& text) {
  if (failed_ || std::fputs(text.c_str(), stderr) >= 0) return;
  failed_ = true;  // before the log, whose warnings come here
  log(LogLevel::kWarning, concat("standard error cannot be written (", why_no_more(STDERR_FILENO),
                                 "): further output is dropped, the run continues"));
}

void Progress::erase() {
  if (std::exchange(drawn_, false)) put("\r\033[K");
}

void Progress::draw(const TrainEvent& e) {
  const double part =
      static_cast<double>(e.microbatch) / static_cast<double>(std::max<int64_t>(e.microbatches_total, 1));
  std::string bar(static_cast<size_t>(kBarWidth), '.');
  std::fill_n(bar.begin(), std::min(kBarWidth, static_cast<int>(part * kBarWidth)), '#');
  put(concat("\r\033[K[", bar, "] ", std::setw(3), static_cast<int>(100 * part), " %  ", describe(e)));
  drawn_ = true;
}

void Progress::tick(const TrainEvent& e) {
  if (quiet_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < (terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(10000))) return;
  last_ = now;
  if (terminal_)
    draw(e);
  else
    put(describe(e) + '\n');
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
  // Of classes of samples, such as images, nobody reads a perplexity.
  const bool text_like = e.metric == "loss" || value_of(e.metrics, "bits_per_byte").has_value();
  const std::string of_text =
      text_like ? shown("perplexity", "  perplexity %.5g") + shown("bits_per_byte", "  bits/byte %.4f") : std::string();
  std::snprintf(text, sizeof text, "epoch %lld  %s %sloss %.4f%s%s%s", static_cast<long long>(e.epoch), e.split.c_str(),
                accuracy, e.loss, of_text.c_str(), best, e.best ? "  (best so far)" : "");
  line(text);
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
