#include "data/value_warnings.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "bitgrad/base/log.h"
#include "bitgrad/base/text.h"

namespace bitgrad::data {

std::string no_class_0_text(int64_t classes) {
  return concat("no sample has class 0: classes are numbered from 0, so the model gets ", classes,
                ", of which 0 is never right. If the numbers are meant from 1, subtract 1");
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
