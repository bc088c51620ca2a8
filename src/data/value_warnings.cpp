#include "data/value_warnings.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "bitgrad/base/log.h"
#include "bitgrad/base/text.h"

namespace bitgrad::data {

std::string absent_classes_text(const std::vector<bool>& seen) {
  constexpr int64_t kShown = 8;
  std::string list;
  int64_t absent = 0;
  for (size_t i = 0; i < seen.size(); ++i)
    if (!seen[i] && absent++ < kShown) list += concat(list.empty() ? "" : ", ", i);
  if (absent == 0) return {};
  if (!seen[0])
    return concat("no sample has class 0: classes are numbered from 0, so the model gets ", seen.size(),
                  ", of which 0 is never right. If the numbers are meant from 1, subtract 1");
  return concat("no sample has the class", absent == 1 ? " " : "es ", list, absent > kShown ? " ..." : "",
                ": classes are numbered from 0, so the model gets ", seen.size(),
                ". Number them without gaps, or set "
                "classes: ",
                seen.size(), " if they are meant");
}

void warn_of_vanishing(const NpyArray& samples) {
  constexpr int kDouble = 8;
  if (samples.header.kind != 'f' || samples.header.width != kDouble) return;
  int64_t count = 0, first = 0;
  for (int64_t i = 0; i < samples.elements(); ++i)
    if (const double x = samples.number_at(i); x != 0 && static_cast<float>(x) == 0 && count++ == 0) first = i;
  if (count > 0)
    log(LogLevel::kWarning, concat(samples.what, ": ", count, " of ", samples.elements(),
                                   " values are too small for fp32 and become 0, such as ", samples.number_at(first),
                                   ". Save them in a larger unit"));
}

std::string more_classes_text(int64_t largest) {
  return concat(". If the set has more classes, write data.train.classes: ", largest + 1,
                ", and the same in data.valid and data.test");
}

void warn_of_pixels(const NpyArray& images) {
  if (!images.whole() || images.bytes() || images.header.kind == 'b' || images.header.shape.size() < 3) return;
  constexpr int64_t kBrightest = 255, kMostOfClasses = 15;
  int64_t brightest = 0;
  for (int64_t i = 0; i < images.elements(); ++i) {
    const std::optional<int64_t> value = images.integer_at(i);
    if (!value || *value < 0 || *value > kBrightest) return;
    brightest = std::max(brightest, *value);
  }
  if (brightest > kMostOfClasses)
    log(LogLevel::kWarning, concat(images.what, ": '", images.header.descr,
                                   "' of 0 .. 255, read as values. If they are pixels, save a.astype(np.uint8): they "
                                   "are then divided by 255"));
}

void warn_of_merged(const NpyArray& samples) {
  constexpr int64_t kExact = int64_t{1} << 24;  // fp32 holds every whole number up to here
  constexpr int kNarrow = 4;
  if (samples.header.width < kNarrow || (samples.header.kind == 'f' && samples.header.width == kNarrow)) return;
  const int64_t each = samples.elements() / std::max<int64_t>(1, samples.count());
  std::set<int64_t> inexact;  // features
  for (int64_t i = 0; i < samples.elements(); ++i)
    if (const auto value = samples.integer_at(i); value && (*value > kExact || *value < -kExact))
      inexact.insert(i % each);
  for (const int64_t feature : inexact) {
    std::set<int64_t> values;
    for (int64_t i = feature; i < samples.elements(); i += each)
      if (const auto value = samples.integer_at(i)) values.insert(*value);
    int64_t merged = 0, first = 0, second = 0, last = *values.begin();
    for (const int64_t value : values) {
      if (value != last && static_cast<float>(value) == static_cast<float>(last) && merged++ == 0) {
        first = last;
        second = value;
      }
      last = value;
    }
    if (merged == 0) continue;
    log(LogLevel::kWarning,
        concat(samples.what, ": value ", feature, " of each sample: ", merged, " of ", values.size(),
               " different values are equal to their neighbor in fp32, such as ", first, " and ", second,
               ": an id or a time? Leave it out, or subtract what is common"));
    return;  // once for an array
  }
}

}  // namespace bitgrad::data
