#include "train/batch_feed.h"

#include <algorithm>
#include <utility>

#include "bitgrad/base/error.h"

#include "train/map/gather.h"
#include "train/train_state.h"

namespace bitgrad::detail {
namespace {

LoaderOptions for_place(LoaderOptions options, bool resident) {
  options.samples = !resident;
  if (resident) options.augment = {};  // the gather on the device augments
  return options;
}

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

BatchFeed::BatchFeed(Learner& learner, const Dataset& data, LoaderOptions options, const ResidentData* resident)
    : learner_(learner),
      data_(data),
      options_(options),
      resident_(resident),
      loader_(data, for_place(options, resident != nullptr)),
      epoch_(loader_.epoch()),
      position_(loader_.position()) {
  if (learner_.device().is_cpu()) return;
  const int64_t samples = options.shuffle ? data.epoch_order().samples : data.size();
  make_room(epoch_batches(samples, options.micro, options.last).largest, data);
  prefetch_ = make_prefetch();
  prefetch_->begin();
  outer_ = std::exchange(learner_.train_state().host_overlap, [this] { fetch(); });
}

BatchFeed::~BatchFeed() {
  if (!prefetch_) return;
  learner_.train_state().host_overlap = std::move(outer_);
  try {
    const DeviceGuard guard(learner_.device());
    prefetch_->wait();      // copies must end before their buffers are reused
  } catch (const Error&) {  // the device reports its own error elsewhere
  }
}

// Allocates once, for the largest batch: memory allocated later, while a step runs, may still be in use by that step.
void BatchFeed::make_room(int64_t rows, const Dataset& data) {
  const TargetForm target = data.target_form();
  const auto room = [&](int64_t cols, DType of) { return Tensor::empty({rows, cols}, of, MemoryKind::kBatch); };
  for (Place& place : places_) {
    place.target = room(target.shape.numel(), target.dtype());
    if (resident_) place.ids = room(1, dtypes::int64);
    place.x =
        resident_ && places_[0].x.defined() ? places_[0].x : room(data.features(), data.dtype());  // gathered in next()
  }
}

void BatchFeed::fetch() {
  if (std::exchange(fetched_, true)) return;
  Place& place = places_[1 - now_];
  try {
    more_ = loader_.next(place.batch);
    if (more_) copy(place);
  } catch (...) {
    error_ = std::current_exception();
  }
}

void BatchFeed::copy(Place& place) {
  const Batch& b = place.batch;
  const Tensor target = b.target_tensor();
  prefetch_->copy_from_host(place.target.data(), target.data(), target.bytes());
  if (resident_) {
    prefetch_->copy_from_host(place.ids.data(), b.ids, b.size * int64_t{sizeof(int64_t)});
  } else {
    const Tensor x = b.x_tensor();
    prefetch_->copy_from_host(place.x.data(), x.data(), x.bytes());
  }
  prefetch_->end();
}

bool BatchFeed::next() {
  const bool more = prefetch_ ? next_there() : next_here();
  epoch_ = loader_.epoch();  // before the next batch is fetched
  position_ = loader_.position();
  return more;
}

double BatchFeed::weight() const {
  const Batch& b = places_[now_].batch;
  return learner_.loss().weight(b.target_tensor(), b.counted);
}

bool BatchFeed::next_there() {
  fetch();
  if (error_) std::rethrow_exception(error_);
  if (!more_) return false;
  now_ = 1 - now_;
  fetched_ = false;
  prefetch_->wait();
  take();
  prefetch_->begin();  // the next batch overwrites the previous one
  return true;
}

// Sets x_ and target_ to the current batch.
void BatchFeed::take() {
  const Place& place = places_[now_];
  const Batch& b = place.batch;
  x_ = place.x.row_slice(0, b.size);
  target_ = place.target.row_slice(0, b.size).reshape(b.target_tensor().shape());
  if (!resident_) return;
  if (options_.augment.given())
    resident_->gather(place.ids, x_, data::augmented_images(data_, options_.augment, options_.seed, b.epoch));
  else
    resident_->gather(place.ids, x_);
}

bool BatchFeed::next_here() {
  Batch& batch = places_[now_].batch;
  if (!loader_.next(batch)) return false;
  x_ = batch.x_tensor();
  target_ = batch.target_tensor();
  return true;
}

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
