#include "run/run_parts.h"

#include <algorithm>
#include <cmath>

#include "bitgrad/base/json.h"
#include "bitgrad/tensor/tensor.h"
#include "data/base64.h"
#include "data/picture_files.h"

namespace bitgrad::detail {
namespace {

constexpr int64_t kMostClasses = 1000;  // the matrix takes 8 MB
constexpr int64_t kWrittenClasses = 100;
constexpr size_t kWorst = 16, kPairs = 20;
constexpr std::string_view kCrossEntropy = "softmax_cross_entropy";

// log sum exp(x) - x[label], where `top` is the largest x.
double nats(const float* x, int64_t count, int64_t label, float top) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += std::exp(static_cast<double>(x[i]) - static_cast<double>(top));
  return std::log(sum) + static_cast<double>(top) - static_cast<double>(x[label]);
}

// ---- image samples as small pictures
constexpr int64_t kMostSide = 64, kLeastSide = 4;

struct Image {
  int64_t rows = 0, columns = 0, channels = 0;
  std::vector<float> values;  // 0 .. 255
};

bool is_image(const std::vector<int64_t>& shape) {
  const bool channels = shape.size() == 2 || (shape.size() == 3 && (shape[2] == 1 || shape[2] == 3));
  return channels && shape[0] >= kLeastSide && shape[1] >= kLeastSide && shape[0] <= 4096 && shape[1] <= 4096;
}

// The stored bytes if the data set has them, otherwise the values scaled from black to white.
std::vector<float> values_of(const Dataset& data, int64_t index) {
  std::vector<float> values(static_cast<size_t>(data.features()));
  const StoredSamples stored = data.stored();
  if (stored.codes != nullptr && stored.form == StoredAs::kUint8) {
    const uint8_t* bytes = static_cast<const uint8_t*>(stored.codes) + index * stored.stride;
    std::copy(bytes, bytes + values.size(), values.begin());
    return values;
  }
  const TargetForm target = data.target_form();
  std::vector<float> ignored(static_cast<size_t>(std::max<int64_t>(target.shape.numel(), 1)));  // holds int32 or fp32
  data.example(index, values.data(), ignored.data());
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const float least = *low, range = *high - *low;
  for (float& x : values) x = range > 0 && std::isfinite(range) ? (x - least) / range * 255.0f : 0.0f;
  return values;
}

// Averages square blocks of pixels, so that no side is longer than kMostSide.
Image shrunk(const Image& in) {
  const int64_t times = (std::max(in.rows, in.columns) + kMostSide - 1) / kMostSide;
  if (times <= 1) return in;
  Image out{std::max<int64_t>(in.rows / times, 1), std::max<int64_t>(in.columns / times, 1), in.channels, {}};
  for (int64_t r = 0; r < out.rows; ++r)
    for (int64_t c = 0; c < out.columns; ++c)
      for (int64_t k = 0; k < in.channels; ++k) {
        float sum = 0;
        int64_t count = 0;
        for (int64_t y = r * times; y < std::min((r + 1) * times, in.rows); ++y)
          for (int64_t x = c * times; x < std::min((c + 1) * times, in.columns); ++x, ++count)
            sum += in.values[static_cast<size_t>((y * in.columns + x) * in.channels + k)];
        out.values.push_back(sum / static_cast<float>(std::max<int64_t>(count, 1)));
      }
  return out;
}

// Sample `index` as a data URI with a PNG of at most 64 pixels per side; empty if the sample is no image. Bytes are
// used as stored; other values are scaled from their minimum (black) to their maximum (white).
std::string picture_of(const Dataset& data, int64_t index) {
  const std::vector<int64_t> shape = data.sample_shape();
  if (!is_image(shape)) return {};
  const Image image = shrunk({shape[0], shape[1], shape.size() == 3 ? shape[2] : 1, values_of(data, index)});
  std::vector<uint8_t> pixels;
  for (const float x : image.values) pixels.push_back(static_cast<uint8_t>(std::lround(std::clamp(x, 0.0f, 255.0f))));
  return "data:image/png;base64," +
         data::base64(data::png_bytes(pixels.data(), image.rows, image.columns, image.channels));
}

// ---- classes that are confused
struct Pair {
  int64_t count, label, predicted;
};

// The largest off-diagonal counts of a [classes, classes] matrix.
std::vector<Pair> most_confused(const std::vector<int64_t>& confusion, int64_t classes) {
  std::vector<Pair> pairs;
  for (int64_t i = 0; i < std::ssize(confusion); ++i)
    if (const int64_t n = confusion[static_cast<size_t>(i)]; n > 0 && i / classes != i % classes)
      pairs.push_back({n, i / classes, i % classes});
  const size_t kept = std::min(kPairs, pairs.size());
  std::partial_sort(
      pairs.begin(), pairs.begin() + static_cast<std::ptrdiff_t>(kept), pairs.end(), [](const Pair& a, const Pair& b) {
        return a.count != b.count ? a.count > b.count
                                  : a.label * kMostClasses + a.predicted < b.label * kMostClasses + b.predicted;
      });
  pairs.resize(kept);
  return pairs;
}

Json confusion_json(const std::vector<int64_t>& confusion, int64_t classes) {
  Json rows = Json::array();
  for (int64_t i = 0; i < classes; ++i) {
    const auto row = confusion.begin() + i * classes;
    rows.push_back(std::vector<int64_t>(row, row + classes));
  }
  return rows;
}

}  // namespace

std::unique_ptr<Examination> Examination::of(const Dataset& data, const RunConfig& config) {
  const TargetForm target = data.target_form();
  if (data.vocabulary() > 0 || (target.classes > 0 && target.shape.rank() > 0)) return nullptr;
  return std::unique_ptr<Examination>(new Examination(data, config));
}

OutputHook Examination::begin() {
  seen_ = 0;
  worst_.clear();
  confusion_.clear();
  return [this](const Tensor& outputs, const Tensor& target) { add(outputs, target); };
}

void Examination::add(const Tensor& outputs, const Tensor& target) {
  const int64_t n = target.shape()[0], each = outputs.numel() / std::max<int64_t>(n, 1);
  const std::vector<float> values = outputs.to_vector();
  if (target.dtype() == dtypes::int32) {
    if (confusion_.empty() && each <= kMostClasses) confusion_.assign(static_cast<size_t>(each * each), 0);
    const auto* labels = target.as<int32_t>();
    for (int64_t i = 0; i < n; ++i, ++seen_) add_class(values.data() + i * each, each, labels[i]);
    return;
  }
  const std::vector<float> wanted = target.to_vector();
  if (wanted.size() != values.size()) return;
  for (int64_t i = 0; i < n; ++i, ++seen_) {
    double sum = 0;
    for (auto k = static_cast<size_t>(i * each); k < static_cast<size_t>((i + 1) * each); ++k)
      sum += (static_cast<double>(values[k]) - static_cast<double>(wanted[k])) *
             (static_cast<double>(values[k]) - static_cast<double>(wanted[k]));
    keep({sum / static_cast<double>(each), seen_});
  }
}

void Examination::add_class(const float* scores, int64_t count, int64_t label) {
  if (label < 0 || label >= count) return;
  const int64_t predicted = std::max_element(scores, scores + count) - scores;
  if (!confusion_.empty()) ++confusion_[static_cast<size_t>(label * count + predicted)];
  Sample sample{0, seen_, label, predicted};
  const float top = scores[predicted];
  if (config_.loss == kCrossEntropy) {
    // The cross-entropy is at most this, so most samples need no exponential.
    const double bound =
        static_cast<double>(top) - static_cast<double>(scores[label]) + std::log(static_cast<double>(count));
    if (worst_.size() == kWorst && bound <= worst_.back().value) return;
    sample.value = nats(scores, count, label, top);
  } else if (predicted != label) {
    sample.value = static_cast<double>(top) - static_cast<double>(scores[label]);
  } else {
    return;
  }
  keep(sample);
}

void Examination::keep(const Sample& sample) {
  if (worst_.size() == kWorst && sample.value <= worst_.back().value) return;
  const auto place = std::upper_bound(worst_.begin(), worst_.end(), sample,
                                      [](const Sample& a, const Sample& b) { return a.value > b.value; });
  worst_.insert(place, sample);
  if (worst_.size() > kWorst) worst_.pop_back();
}

std::string Examination::json(const EvalEvent& event) const {
  const TargetForm target = data_.target_form();
  const bool classes = target.classes > 0;
  Json j{{"split", event.split}, {"epoch", event.epoch},
         {"step", event.step},   {"samples", seen_},
         {"loss", event.loss},   {"accuracy", event.accuracy < 0 ? Json(nullptr) : Json(event.accuracy)}};
  if (!config_.data.class_names.empty()) j["class_names"] = config_.data.class_names;
  if (classes && !confusion_.empty()) {
    const auto count = static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(confusion_.size()))));
    j["classes"] = count;
    if (count <= kWrittenClasses) j["confusion"] = confusion_json(confusion_, count);
    j["confused"] = Json::array();
    for (const Pair& p : most_confused(confusion_, count))
      j["confused"].push_back({{"class", p.label}, {"predicted", p.predicted}, {"count", p.count}});
  }
  // margin: the largest score minus that of the true class, for misclassified samples.
  j["worst_by"] = !classes ? "squared_error" : config_.loss == kCrossEntropy ? "cross_entropy" : "margin";
  j["worst"] = Json::array();
  for (const Sample& s : worst_) {
    Json item{{"sample", s.index}, {"value", s.value}};
    if (classes) item.update({{"class", s.label}, {"predicted", s.predicted}});
    if (const std::string picture = picture_of(data_, s.index); !picture.empty()) item["picture"] = picture;
    j["worst"].push_back(item);
  }
  return j.dump() + '\n';
}

}  // namespace bitgrad::detail
