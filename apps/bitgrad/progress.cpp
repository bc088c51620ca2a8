#include "progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/log.h"

#include "output.h"

namespace bitgrad::cli {
namespace {

constexpr int kNoLimit = 1 << 20;

constexpr int kBarWidth = 24;

[[gnu::format(printf, 1, 2)]] std::string formatted(const char* format, ...) {
  char text[128];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

// Fields are listed in the order of the line. rank: the lowest is kept longest.
struct Field {
  int rank;
  std::string text;
};

std::vector<Field> fields_of(const TrainEvent& e) {
  const double part =
      static_cast<double>(e.microbatch) / static_cast<double>(std::max<int64_t>(e.microbatches_total, 1));
  std::string bar(kBarWidth, '.');
  std::fill_n(bar.begin(), std::clamp(static_cast<int>(part * kBarWidth), 0, kBarWidth), '#');
  const auto number = [](int64_t n) { return static_cast<long long>(n); };
  std::vector<Field> fields;
  fields.push_back({6, "[" + bar + "]"});
  fields.push_back({0, formatted("%3d %%", static_cast<int>(100 * part))});
  // The current epoch, counted from 1.
  const int64_t epoch = std::min(e.epoch + 1, std::max<int64_t>(e.epochs_total, 1));
  fields.push_back({1, formatted("epoch %lld/%lld", number(epoch), number(e.epochs_total))});
  fields.push_back({4, formatted("step %lld/%lld", number(e.step), number(e.steps_total))});
  fields.push_back({3, formatted("loss %.4f", e.loss)});
  if (e.accuracy >= 0) fields.push_back({5, formatted("accuracy %.2f %%", e.accuracy)});
  fields.push_back({8, formatted("lr %.3g", e.lr)});
  const bool ids = e.tokens_per_s > 0;
  fields.push_back({7, formatted("%.0f %s/s", ids ? e.tokens_per_s : e.samples_per_s, ids ? "tokens" : "samples")});
  if (e.gmacs_per_s > 0) {
    const std::string mfu = e.mfu >= 0 ? formatted(" (MFU %.1f %%)", e.mfu) : "";
    fields.push_back({9, formatted("%.3g GMAC/s", e.gmacs_per_s) + mfu});
  }
  fields.push_back({2, "ETA " + duration_text(e.eta_seconds)});
  return fields;
}

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

void Progress::tick(const TrainEvent& e) {
  show([&](int columns) { return progress_line(e, columns); });
}

void Progress::show(const std::function<std::string(int columns)>& line) {
  if (quiet_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < (terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(10000))) return;
  last_ = now;
  if (!terminal_) return put(line(kNoLimit) + '\n');
  // A single write, so that a partly drawn line is never visible. The last column stays free for the cursor.
  const std::string shown = line(terminal_columns() - 1);
  put((drawn_ > 0 ? erasure() : std::string()) + shown);
  drawn_ = static_cast<int>(shown.size());
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

std::string duration_text(double seconds) {
  const auto s = static_cast<long long>(std::clamp(seconds, 0.0, 1e15) + 0.5);
  if (s >= 86400) return formatted("%lldd%02lldh", s / 86400, s % 86400 / 3600);
  if (s >= 3600) return formatted("%lldh%02lldm", s / 3600, s % 3600 / 60);
  if (s >= 60) return formatted("%lldm%02llds", s / 60, s % 60);
  return formatted("%llds", s);
}

std::string progress_line(const TrainEvent& event, int columns) {
  constexpr size_t kGap = 2;
  const std::vector<Field> fields = fields_of(event);
  const auto room = static_cast<size_t>(std::max(columns, 0));
  // As many fields as fit, by rank: a field is shown only if all fields of lower rank are.
  std::vector<const Field*> by_rank;
  for (const Field& f : fields) by_rank.push_back(&f);
  std::sort(by_rank.begin(), by_rank.end(), [](const Field* a, const Field* b) { return a->rank < b->rank; });
  size_t used = 0;
  int last = -1;
  for (const Field* f : by_rank) {
    used += f->text.size() + (last < 0 ? 0 : kGap);
    if (used > room) break;
    last = f->rank;
  }
  std::string line;
  for (const Field& f : fields)
    if (f.rank <= last) line += (line.empty() ? "" : "  ") + f.text;
  return line;
}

}  // namespace bitgrad::cli
