#include "train/batch_feed.h"
#include "train/train_state.h"

#include <algorithm>
#include <utility>

namespace bitgrad::detail {
namespace {

LoaderOptions for_place(LoaderOptions options, bool resident) {
  options.samples = !resident;
  if (resident) options.augment = {};  // the gather on the device augments
  return options;
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
  if (!(prefetch_ ? next_there() : next_here())) return false;
  epoch_ = loader_.epoch();  // before the next batch is fetched
  position_ = loader_.position();
  return true;
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

}  // namespace bitgrad::detail
