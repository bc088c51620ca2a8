#include "progress_line.h"

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace bitgrad::cli {
namespace {

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
