#include "train/resident_data.h"

#include "bitgrad/base/error.h"
#include "train/map/gather.h"

namespace bitgrad::detail {
namespace {

constexpr std::string_view kWhere = "resident data";
constexpr int64_t kNumbers = 256;  // per table: one for each code

StoredSamples checked(const Dataset& dataset) {
  const StoredSamples s = dataset.stored();
  require(s.codes != nullptr && s.labels != nullptr, kWhere, dataset.name(),
          ": this data set does not report how it is stored, so it cannot reside on a device.");
  const int64_t needed =
      dataset.size() > 0 ? ((dataset.size() - 1) * s.stride + dataset.features()) * element_bytes(s.form) : 0;
  require(s.stride >= 0 && s.bytes >= needed, kWhere, dataset.name(), ": stored samples: got ", s.bytes,
          " bytes and a stride of ", s.stride, ", expected at least ", needed, " bytes for ", dataset.size(),
          " samples of ", dataset.features(), '.');
  const bool values = s.numbers != nullptr || s.form == StoredAs::kFloat;
  require(values != (dataset.vocabulary() > 0), kWhere, dataset.name(), ": stored samples are ",
          values ? "values" : "ids", ", the data set returns ", dataset.dtype(), '.');
  require(s.numbers == nullptr || s.form == StoredAs::kUint8, kWhere, dataset.name(),
          ": only one-byte codes index a table of values.");
  require(s.tables >= 1 && dataset.features() % s.tables == 0, kWhere, dataset.name(), ": got ", s.tables,
          " tables of values for samples of ", dataset.features(), ", expected a divisor.");
  require((s.target_form == StoredAs::kFloat) == (dataset.target_form().classes == 0), kWhere, dataset.name(),
          ": stored targets are ", s.target_form == StoredAs::kFloat ? "values" : "classes", ", the data set returns ",
          dataset.target_form().dtype(), '.');
  return s;
}

int64_t table_bytes(const StoredSamples& s) { return s.tables * kNumbers * int64_t{sizeof(float)}; }

Storage placed(const void* from, int64_t bytes) {
  Storage there(bytes, MemoryKind::kDataset);
  if (bytes > 0) device_backend(current_device()).copy_from_host(there.data(), from, bytes);
  return there;
}

}  // namespace

int64_t ResidentData::bytes_of(const Dataset& dataset) {
  const StoredSamples s = dataset.stored();
  if (s.codes == nullptr) return 0;
  return s.bytes + (s.numbers != nullptr ? table_bytes(s) : 0);
}

ResidentData::ResidentData(const Dataset& dataset) {
  const StoredSamples s = checked(dataset);
  codes_ = placed(s.codes, s.bytes);
  if (s.numbers != nullptr) numbers_ = placed(s.numbers, table_bytes(s));
  stride_ = s.stride;
  code_bytes_ = element_bytes(s.form);
  tables_ = s.tables;
}

void ResidentData::gather(const Tensor& ids, const Tensor& x) const {
  maps::GatherSamples f{};
  f.codes = codes_.data();
  f.code_bytes = code_bytes_;
  f.ids = ids.as<int64_t>();
  f.features = x.cols();
  f.stride = stride_;
  f.tables = tables_;
  if (numbers_.defined()) f.numbers = static_cast<const float*>(numbers_.data());
  if (x.dtype() == dtypes::fp32) {
    f.x = x.as<float>();
  } else {
    f.tokens = x.as<int32_t>();
  }
  run_map(f, x.rows() * f.pieces());
}

void ResidentData::gather(const Tensor& ids, const Tensor& x, const data::AugmentedImages& images) const {
  ensure(numbers_.defined() && x.cols() == images.rows * images.columns * images.channels, kWhere,
         "images of other samples");
  const maps::GatherAugmented f{static_cast<const uint8_t*>(codes_.data()),
                                ids.as<int64_t>(),
                                static_cast<const float*>(numbers_.data()),
                                x.as<float>(),
                                stride_,
                                tables_,
                                images};
  run_map(f, x.rows() * f.pieces());
}

namespace {

constexpr int64_t kPart = 4;  // auto: use at most 1 / kPart of the free memory

// Why a data set stays on the host; "" if it goes to the device.
std::string why_not_resident(const std::string& choice, int64_t bytes, int64_t free, bool transformed) {
  if (choice == "false") return "device.resident_data is false";
  if (transformed && choice == "auto") return "its transforms run on the host";
  if (choice == "true") return {};
  if (bytes == 0) return "the data set does not report how it is stored";
  if (bytes > free / kPart)
    return concat("its ", bytes, " bytes are more than a quarter of the ", free, " that are free");
  return {};
}

}  // namespace

std::unique_ptr<ResidentData> place_data(const std::string& choice, const std::string& name, const Dataset& data,
                                         std::string& notes, bool transformed) {
  const Device device = current_device();
  if (device.is_cpu()) {
    if (choice != "auto")
      notes += concat(name, ": device.resident_data: ", choice, " is for devices other than the CPU, which reads ",
                      data.name(), " from host memory\n");
    return nullptr;
  }
  const int64_t bytes = ResidentData::bytes_of(data), free = device_backend(device).free_bytes();
  const std::string why_not = why_not_resident(choice, bytes, free, transformed);
  const std::string what = concat(name, " (", data.name(), ')');
  if (!why_not.empty()) {
    notes += concat(what, ": batches are copied to ", to_string(device), " during the step before: ", why_not, '\n');
    return nullptr;
  }
  require(!transformed, "device.resident_data", "true: the samples of ", what,
          " are changed by transforms, which run on the host. Use auto or false: batches are copied then.");
  require(bytes > 0, "device.resident_data", "true: ", what,
          " does not report how it is stored, so it cannot reside there. Use auto or false: batches are copied then.");
  if (bytes > free)
    fail_with(ErrorCode::kMemory, "device.resident_data", "true: ", what, " needs ", bytes, " bytes, ", free,
              " are free on ", to_string(device), ". Use auto or false: batches are copied then.");
  auto resident = std::make_unique<ResidentData>(data);
  notes += concat(what, ": resident on ", to_string(device), ": ", bytes, " bytes of the ", free, " that were free\n");
  return resident;
}

}  // namespace bitgrad::detail
