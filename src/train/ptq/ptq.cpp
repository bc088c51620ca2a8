#include "bitgrad/train/ptq.h"

#include <algorithm>

#include "bitgrad/data/loader.h"

namespace bitgrad {

std::vector<SampleBatch> first_samples(const Dataset& data, int64_t samples, int64_t batch, uint64_t seed) {
  require(samples >= 1 && batch >= 1, "samples", "samples and batch must be at least 1, got ", samples, " and ", batch);
  int64_t left = std::min(samples, data.size());
  LoaderOptions options;
  options.micro = std::min(batch, left);
  options.seed = seed;
  options.end_epoch = 1;
  options.prefetch = 0;
  Loader loader(data, options);
  std::vector<SampleBatch> batches;
  for (Batch b; left > 0 && loader.next(b);) {
    const int64_t rows = std::min(b.size, left);
    SampleBatch& out = batches.emplace_back();
    b.size = rows;
    copy_batch(b, out.x);
    copy_targets(b, out.target);
    left -= rows;
  }
  return batches;
}

std::vector<Tensor> tensors_of(std::span<const SampleBatch> batches) {
  std::vector<Tensor> tensors;
  for (const SampleBatch& b : batches) tensors.push_back(b.x);
  return tensors;
}

void quantize_after_training(Learner& learner, const PrepareSpec& spec, std::span<const SampleBatch> samples) {
  const DeviceGuard guard(learner.device());
  require(!samples.empty(), "quantize", "input ranges and layouts need samples: got none");
  Module& model = learner.model();
  set_quant_mode(model, {});
  prepare(model, spec);
  learner.plan_again();
  learner.calibrate(tensors_of(samples));
  learner.convert();
}

}  // namespace bitgrad
