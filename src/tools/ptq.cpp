#include "bitgrad/tools/ptq.h"

#include <algorithm>

#include "bitgrad/data/loader.h"
#include "nn/activation_quantizer.h"
#include "tools/norm_statistics.h"
#include "train/train_state.h"

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

int64_t renew_norms(Learner& learner, std::span<const SampleBatch> samples) {
  const DeviceGuard guard(learner.device());
  detail::NormRenewal norms(learner, samples);
  norms.renew();
  learner.train_state().integer.reset();  // its norms were folded
  return norms.count();
}

namespace {

// The quantizers of inputs whose ranges or steps come from samples.
std::vector<ActivationQuantizer*> calibrated_inputs(Module& module) {
  std::vector<ActivationQuantizer*> found;
  if (auto* q = dynamic_cast<ActivationQuantizer*>(&module))
    if (q->observer() != nullptr || !q->learned().empty()) found.push_back(q);
  for (Module* child : module.children())
    for (ActivationQuantizer* q : calibrated_inputs(*child)) found.push_back(q);
  return found;
}

// Ranges and steps were calibrated for inputs with other statistics: takes them anew, then the statistics again.
void renew_and_calibrate(Learner& learner, const detail::ModelSnapshot& uncalibrated,
                         std::span<const SampleBatch> samples, std::span<const SampleBatch> norm_samples) {
  detail::NormRenewal norms(learner, norm_samples);
  if (norms.count() == 0) return;
  norms.renew();
  const std::vector<ActivationQuantizer*> inputs = calibrated_inputs(learner.model());
  if (inputs.empty()) return;
  const std::vector<Tensor> renewed = norms.statistics();
  uncalibrated.restore(learner.model());
  norms.restore(renewed);
  for (ActivationQuantizer* q : inputs) q->values_replaced();
  learner.calibrate(tensors_of(samples));
  norms.renew();
}

}  // namespace

void quantize_after_training(Learner& learner, const PrepareSpec& spec, std::span<const SampleBatch> samples,
                             std::span<const SampleBatch> norm_samples) {
  const DeviceGuard guard(learner.device());
  require(!samples.empty(), "quantize", "input ranges and layouts need samples: got none");
  Module& model = learner.model();
  set_quant_mode(model, {});
  prepare(model, spec);
  learner.plan_again();
  const detail::ModelSnapshot uncalibrated(model);
  learner.calibrate(tensors_of(samples));
  if (!norm_samples.empty()) renew_and_calibrate(learner, uncalibrated, samples, norm_samples);
  learner.convert();
}

}  // namespace bitgrad
