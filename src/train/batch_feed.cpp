#include "train/batch_feed.h"

#include <algorithm>
#include <utility>

namespace bitgrad::detail {
namespace {

LoaderOptions for_place(LoaderOptions options, bool resident) {
  options.samples = !resident;
  return options;
}

}  // namespace

BatchFeed::BatchFeed(Learner& learner, const Dataset& data, LoaderOptions options, const ResidentData* resident)
    : learner_(learner),
      resident_(resident),
      loader_(data, for_place(options, resident != nullptr)),
      epoch_(loader_.epoch()),
      position_(loader_.position()) {
  if (learner_.device().is_cpu()) return;
  make_room(std::min(options.micro, data.size()), data.features(), data.dtype());
  prefetch_ = make_prefetch();
  prefetch_->begin();
  outer_ = learner_.set_meanwhile([this] { fetch(); });
}

BatchFeed::~BatchFeed() {
  if (!prefetch_) return;
  learner_.set_meanwhile(std::move(outer_));
  try {
    const DeviceGuard guard(learner_.device());
    prefetch_->wait();      // who gets the rooms next comes after the copies
  } catch (const Error&) {  // the device's own error is on its way
  }
}

// Once, for the largest batch: memory that is handed out while a step runs may still be in use by it.
void BatchFeed::make_room(int64_t rows, int64_t features, DType dtype) {
  const auto room = [&](int64_t cols, DType of) { return Tensor::empty({rows, cols}, of, MemoryKind::kBatch); };
  for (Place& place : places_) {
    place.labels = room(1, dtypes::int32);
    if (resident_) place.ids = room(1, dtypes::int64);
    place.x = resident_ && places_[0].x.defined() ? places_[0].x : room(features, dtype);  // gathered in next()
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
  const auto rows = [&](int64_t bytes) { return b.size * bytes; };
  prefetch_->copy_from_host(place.labels.data(), b.labels, rows(sizeof(int32_t)));
  const void* const numbers = b.tokens != nullptr ? static_cast<const void*>(b.tokens) : b.x;
  if (resident_)
    prefetch_->copy_from_host(place.ids.data(), b.ids, rows(sizeof(int64_t)));
  else
    prefetch_->copy_from_host(place.x.data(), numbers, rows(place.x.cols() * b.dtype.bits() / 8));
  prefetch_->end();
}

bool BatchFeed::next() {
  if (!(prefetch_ ? next_there() : next_here())) return false;
  epoch_ = loader_.epoch();  // before the next batch is fetched
  position_ = loader_.position();
  return true;
}

bool BatchFeed::next_there() {
  fetch();
  if (error_) std::rethrow_exception(error_);
  if (!more_) return false;
  now_ = 1 - now_;
  fetched_ = false;
  prefetch_->wait();
  take();
  prefetch_->begin();  // the next batch goes where the one before lay
  return true;
}

// What of the places is the batch of now.
void BatchFeed::take() {
  const Place& place = places_[now_];
  const Batch& b = place.batch;
  x_ = place.x.row_slice(0, b.size);
  labels_ = place.labels.row_slice(0, b.size).reshape({b.size});
  if (resident_) resident_->gather(place.ids, x_);
}

bool BatchFeed::next_here() {
  if (!loader_.next(places_[now_].batch)) return false;
  copy_batch(places_[now_].batch, x_);
  return true;
}

std::span<const int32_t> BatchFeed::labels() const {
  const Batch& b = places_[now_].batch;
  return {b.labels, static_cast<size_t>(b.size)};
}

Evaluation evaluate(Learner& learner, const Dataset& data, int64_t batch, const ResidentData* resident) {
  const DeviceGuard guard(learner.device());
  LoaderOptions options;
  options.micro = batch;
  options.shuffle = false;
  options.end_epoch = 1;
  BatchFeed feed(learner, data, options, resident);
  Evaluation e;
  double loss = 0;
  int64_t correct = 0;
  while (feed.next()) {
    const StepResult r = learner.evaluate(feed.x(), feed.labels(), feed.labels_there());
    loss += r.loss;
    correct += r.correct;
    e.samples += r.samples;
  }
  e.loss = loss / static_cast<double>(e.samples);
  e.accuracy = 100.0 * static_cast<double>(correct) / static_cast<double>(e.samples);
  return e;
}

namespace {

constexpr int64_t kPart = 4;  // auto: at most one of so many parts of the free memory

// Why a data set stays on the host; "" where it goes to the device.
std::string why_not_resident(const std::string& choice, int64_t bytes, int64_t free) {
  if (choice == "false") return "device.resident_data is false";
  if (choice == "true") return {};
  if (bytes == 0) return "the data set does not tell how it is stored";
  if (bytes > free / kPart)
    return concat("its ", bytes, " bytes are more than a quarter of the ", free, " that are free");
  return {};
}

}  // namespace

std::unique_ptr<ResidentData> place_data(const std::string& choice, const std::string& name, const Dataset& data,
                                         std::string& notes) {
  const Device device = current_device();
  if (device.is_cpu()) {
    if (choice != "auto")
      notes += concat(name, ": device.resident_data: ", choice, " is for devices other than the CPU, which reads ",
                      data.name(), " where it lies\n");
    return nullptr;
  }
  const int64_t bytes = ResidentData::bytes_of(data), free = device_backend(device).free_bytes();
  const std::string why_not = why_not_resident(choice, bytes, free);
  const std::string what = concat(name, " (", data.name(), ')');
  if (!why_not.empty()) {
    notes += concat(what, ": batches are copied to ", to_string(device), " during the step before: ", why_not, '\n');
    return nullptr;
  }
  require(bytes > 0, "device.resident_data", "true: ", what,
          " does not tell how it is stored, so it cannot lie there. Take auto or false: batches are copied then.");
  if (bytes > free)
    fail_with(ErrorCode::kMemory, "device.resident_data", "true: ", what, " takes ", bytes, " bytes, ", free,
              " are free on ", to_string(device), ". Take auto or false: batches are copied then.");
  auto resident = std::make_unique<ResidentData>(data);
  notes += concat(what, ": lies on ", to_string(device), ": ", bytes, " bytes of the ", free, " that were free\n");
  return resident;
}

}  // namespace bitgrad::detail
