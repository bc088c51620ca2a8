#include "train/resident_data.h"

#include "bitgrad/base/error.h"
#include "kernels/map/data_gather.h"

namespace bitgrad::detail {
namespace {

constexpr std::string_view kWhere = "resident data";
constexpr int64_t kNumbers = 256;  // of a code

StoredSamples checked(const Dataset& dataset) {
  const StoredSamples s = dataset.stored();
  require(s.codes != nullptr && s.labels != nullptr, kWhere, dataset.name(),
          ": this data set does not tell how it is stored, so it cannot lie on a device.");
  const int64_t needed = dataset.size() > 0 ? (dataset.size() - 1) * s.stride + dataset.features() : 0;
  require(s.stride >= 0 && s.bytes >= needed, kWhere, dataset.name(), ": stored samples: got ", s.bytes,
          " bytes and a stride of ", s.stride, ", expected at least ", needed, " bytes for ", dataset.size(),
          " samples of ", dataset.features(), '.');
  require((s.numbers == nullptr) == (dataset.vocabulary() > 0), kWhere, dataset.name(), ": stored samples are ",
          s.numbers == nullptr ? "ids" : "numbers", ", the data set gives ", dataset.dtype(), '.');
  return s;
}

constexpr int64_t kTableBytes = kNumbers * int64_t{sizeof(float)};

Storage placed(const void* from, int64_t bytes) {
  const Storage there(bytes, MemoryKind::kDataset);
  if (bytes > 0) device_backend(current_device()).copy_from_host(there.data(), from, bytes);
  return there;
}

}  // namespace

int64_t ResidentData::bytes_of(const Dataset& dataset) {
  const StoredSamples s = dataset.stored();
  if (s.codes == nullptr) return 0;
  return s.bytes + (s.numbers != nullptr ? kTableBytes : 0);
}

ResidentData::ResidentData(const Dataset& dataset) {
  const StoredSamples s = checked(dataset);
  codes_ = placed(s.codes, s.bytes);
  if (s.numbers != nullptr) numbers_ = placed(s.numbers, kTableBytes);
  stride_ = s.stride;
}

void ResidentData::gather(const Tensor& ids, const Tensor& x) const {
  maps::GatherSamples f{};
  f.codes = static_cast<const uint8_t*>(codes_.data());
  f.ids = ids.as<int64_t>();
  f.features = x.cols();
  f.stride = stride_;
  if (numbers_.defined()) {
    f.numbers = static_cast<const float*>(numbers_.data());
    f.x = x.as<float>();
  } else {
    f.tokens = x.as<int32_t>();
  }
  run_map(f, x.rows() * f.pieces());
}

}  // namespace bitgrad::detail
