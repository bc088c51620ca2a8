#include "bitgrad/data/dataset.h"

#include <algorithm>
#include <cstdio>

#include "base/registration.h"
#include "bitgrad/base/error.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/base/rng.h"
#include "bitgrad/base/text.h"
#include "data/formats.h"
#include "data/split_samples.h"

namespace bitgrad {
namespace {

std::vector<std::string> words(const std::string& text) {
  TextReader in(text);
  std::vector<std::string> result;
  for (std::string word; in >> word;) result.push_back(word);
  return result;
}

struct Registry {
  detail::KindList<DatasetFormat> formats;  // owners of the claimed keys
#define BITGRAD_DATASET_FIELD(member, ...) #member,
  detail::SharedKeys keys{{
#include "bitgrad/data/dataset_fields.inc"
      "format", "fraction", "transforms", "augment", "root", "affine"}};
#undef BITGRAD_DATASET_FIELD

  Registry() {
#define BITGRAD_DATASET(of_name, factory, needs, takes, has_ids, own_keys, text, ...) \
  add({.name = #of_name,                                                              \
       .required = words(needs),                                                      \
       .optional = words(takes),                                                      \
       .summary = text,                                                               \
       .create = data::factory,                                                       \
       .ids = has_ids,                                                                \
       .keys = data::own_keys() __VA_OPT__(, ) __VA_ARGS__});
#include "data/datasets.inc"
#undef BITGRAD_DATASET
  }
  void add(DatasetFormat format) {
    const auto shared = std::make_shared<const DatasetFormat>(std::move(format));
    keys.claim("data", concat("format '", shared->name, '\''), shared->keys, shared);
    formats.push(shared);
  }
};

Registry& registry() {
  static Registry instance;
  return instance;
}

// Whether a member is given, or has a default that is a value.
bool is_set(const DatasetSpec& spec, const std::string& key) {
  const auto set = [](const auto& member, const auto& standard) {
    const std::decay_t<decltype(member)> none{};
    return member != none || standard != none;
  };
  const DatasetSpec standard;
#define BITGRAD_DATASET_FIELD(member, ...) \
  if (key == #member && set(spec.member, standard.member)) return true;
#include "bitgrad/data/dataset_fields.inc"
#undef BITGRAD_DATASET_FIELD
  if (key == "labels") return !spec.targets.empty();  // either satisfies the requirement
  return key == "root" || key == "affine";
}

void check_keys(const DatasetSpec& spec, const DatasetFormat& format) {
  for (const std::string& key : format.required) {
    require(is_set(spec, key), "data", "format ", format.name, ": got no key '", key, "', expected ",
            joined(format.required), ".");
  }
}

}  // namespace

int64_t Dataset::features() const {
  int64_t product = 1;
  for (const int64_t extent : sample_shape()) product *= extent;
  return product;
}

void Dataset::check_index(int64_t index) const {
  require(index >= 0 && index < size(), "data", name(), ": sample index: got ", index, ", expected 0 .. ", size() - 1,
          ".");
}
void Dataset::sample(int64_t, float*, int32_t*) const {
  fail("data", name(), ": samples are ", dtype(), ": this data set has no fp32 values.");
}
void Dataset::sample_ids(int64_t, int32_t*, int32_t*) const {
  fail("data", name(), ": samples are ", dtype(), ": this data set has no ids.");
}

TargetForm Dataset::target_form() const { return {.shape = {}, .classes = classes()}; }

void Dataset::example(int64_t index, void* x, void* target) const {
  require(target_form() ==
              TargetForm{.shape = {}, .classes = classes(), .bytes_per_target = target_form().bytes_per_target},
          "data", name(), ": targets are not one class per sample: its data set must override example.");
  if (vocabulary() > 0) return sample_ids(index, static_cast<int32_t*>(x), static_cast<int32_t*>(target));
  sample(index, static_cast<float*>(x), static_cast<int32_t*>(target));
}

void register_dataset(DatasetFormat format) {
  require(!format.name.empty(), "data", "register_dataset: got an empty name.");
  require(static_cast<bool>(format.create), "data", "register_dataset: format '", format.name,
          "' has no create function.");
  const detail::Named named{"a data set", format.name};
  detail::require_new("register_dataset", named, find_dataset_format(format.name) != nullptr, "is registered already");
  const auto shared = std::make_shared<const DatasetFormat>(std::move(format));
  registry().keys.claim("register_dataset", concat("format '", shared->name, '\''), shared->keys, shared);
  detail::add_new(named, [shared] { registry().formats.push(shared); });
}

std::vector<std::string> dataset_formats() { return registry().formats.names(); }
const DatasetFormat* find_dataset_format(std::string_view name) { return registry().formats.find(name); }
const DatasetFormat& format_of(const DatasetSpec& spec) {
  static const DatasetFormat none;
  const DatasetFormat* const format = find_dataset_format(spec.format);
  return format == nullptr ? none : *format;
}

std::unique_ptr<Dataset> make_dataset(const DatasetSpec& spec) {
  const DatasetFormat* format = find_dataset_format(spec.format);
  if (format == nullptr) fail("data", unknown_name("format", spec.format, dataset_formats()));
  check_keys(spec, *format);
  DatasetSpec full = spec;
  full.keys = completed(format->name, format->keys, spec.keys);
  std::unique_ptr<Dataset> dataset = format->create(full);
  require(dataset != nullptr, "data", "format ", format->name, ": its create function returned nothing.");
  const bool ids = dataset->vocabulary() > 0, asked = full.keys.contains("vocabulary");
  require(ids == format->ids || (ids && asked), "data", "format ", format->name, ": its data set returns ",
          dataset->dtype(), ", the format says ", format->ids ? "ids." : "fp32.");
  if (spec.limit == 0) return dataset;
  return data::first_samples(std::move(dataset), spec.limit);
}

// ---- what identifies the samples of a data set

namespace {

constexpr int64_t kMostRead = int64_t{1} << 28;    // of samples that are not in memory
constexpr int64_t kReadAtOnce = int64_t{1} << 18;  // bytes that one thread takes at a time

// How far apart the samples are that are read. Windows that overlap in memory are read side by side.
int64_t step_of(const Dataset& data, int64_t sample_bytes) {
  const StoredSamples stored = data.stored();
  if (stored.codes == nullptr)
    return std::max<int64_t>(1,
                             (data.size() + kMostRead / sample_bytes) / std::max<int64_t>(1, kMostRead / sample_bytes));
  return stored.stride > 0 ? std::max<int64_t>(1, data.features() / stored.stride) : 1;
}

// The finalizer of MurmurHash3. A CRC is linear: without this, the sums of overlapping windows that share a changed id
// could cancel.
uint32_t mixed(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x85EBCA6Bu;
  x = (x ^ (x >> 13)) * 0xC2B2AE35u;
  return x ^ (x >> 16);
}

}  // namespace

SamplesRecord samples_record(const Dataset& data) {
  const int64_t features = data.features(), targets = std::max<int64_t>(1, data.target_form().shape.numel());
  const int64_t bytes = 4 * (features + targets), step = step_of(data, bytes), last = data.size() - 1;
  const int64_t count = last / step + 1 + (last % step == 0 ? 0 : 1);
  std::vector<uint32_t> sums(static_cast<size_t>(count));
  const DeviceGuard cpu(Device::cpu());
  parallel_ranges(count, std::max<int64_t>(1, kReadAtOnce / bytes), [&](int64_t begin, int64_t end) {
    std::vector<uint32_t> example(static_cast<size_t>(features + targets));  // fp32 or int32
    for (int64_t i = begin; i < end; ++i) {
      data.example(std::min(i * step, last), example.data(), example.data() + features);
      sums[static_cast<size_t>(i)] = mixed(crc32c(example.data(), static_cast<size_t>(bytes)));
    }
  });
  return {data.size(), Shape(data.sample_shape()), crc32c(sums.data(), sums.size() * sizeof(uint32_t))};
}

std::string to_string(const SamplesRecord& record) {
  char sum[16];
  std::snprintf(sum, sizeof sum, "0x%08x", record.crc32c);
  return concat(record.samples, record.samples == 1 ? " sample " : " samples ", record.shape, ", CRC32C ", sum);
}

}  // namespace bitgrad
