// Post-training quantization of trained models, and converted models on disk.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/config/config.h"
#include "bitgrad/data/dataset.h"
#include "bitgrad/nn/prepare.h"
#include "bitgrad/train/learner.h"

namespace bitgrad {

struct SampleBatch {
  Tensor x = {};       // [n, sample...] fp32, or int32 ids
  Tensor target = {};  // [n, ..], classes (int32) or values (fp32)
};
// Returns the first `samples` samples (at most all) in the order of the first epoch of a run with this seed, in batches
// of at most `batch`. The order is shuffled, so data sorted by class are mixed.
std::vector<SampleBatch> first_samples(const Dataset& data, int64_t samples, int64_t batch, uint64_t seed);
// The x of each batch.
std::vector<Tensor> tensors_of(std::span<const SampleBatch> batches);

// Prepares the learner's model according to `spec`, calibrates input ranges and learned input steps on the samples,
// renews the statistics of norms on `norm_samples` (none: they stay those of the float model), calibrates again for
// them, and converts. The learner can only evaluate afterwards. Throws what prepare, calibrate and renew_norms throw,
// and Error if there are no samples.
void quantize_after_training(Learner& learner, const PrepareSpec& spec, std::span<const SampleBatch> samples,
                             std::span<const SampleBatch> norm_samples);

// Methods that fit codes, scales and biases to samples, so that a model loses less (docs/quantization.md, "Methods").
struct PtqSpec {
  std::vector<std::string> methods = {};  // of ptq_method_names(), in the order in which they run on each layer
  double damp = 0.01;    // gptq: part of the mean of the Hessian's diagonal that is added to it, 1e-6 to 1
  int64_t rows = 32768;  // inputs of a layer that are used at most; a convolution has one per pixel
  bool must_fit = true;  // a method that fits no layer is an Error; false: its steps say why
};
// What a method did to a layer. Errors are means of |y - y_float|^2 over the samples, y the output of the layer with
// all layers before it quantized, relative to the variance of y_float.
struct PtqStep {
  std::string method = {};
  double before = 0, after = 0, seconds = 0;  // methods of several layers: their seconds in equal parts
  bool kept = false;                          // only if the error falls
  std::string refused = {};                   // why it does not fit the layer; empty: it does
};
struct PtqLayer {
  std::string layer = {};
  double before = 0, after = 0;
  int64_t rows = 0, inputs = 0;  // of the samples; of the layer. Fewer rows than inputs: fitted to chance, too
  std::string skipped = {};      // why no method fits; empty: some may
  std::vector<PtqStep> steps = {};
};
std::vector<std::string> ptq_method_names();
// Throws Error for an unknown or repeated method and numbers out of range.
void check_ptq(const PtqSpec& spec);
// quantize_after_training with methods. `reference` holds the same float model; it stays in floats and is what layers
// are fitted to. Layers are fitted in the order of evaluation. Method norms renews the statistics of batch norm of both
// on `norm_samples`, then those of the quantized model. Throws what these throw, and, if ptq.must_fit, Error for a
// method that fits no layer.
std::vector<PtqLayer> quantize_with_methods(Learner& learner, Learner& reference, const PrepareSpec& spec,
                                            const PtqSpec& ptq, std::span<const SampleBatch> samples,
                                            std::span<const SampleBatch> norm_samples);
void print_ptq(std::ostream& out, std::span<const PtqLayer> layers);

// Sets the running statistics of every batch and tensor norm to mean and unbiased variance of all rows of the samples
// that reach it in evaluation, computed in double; the norms before it are renewed first. For models whose weights have
// changed since the statistics were taken. Returns the number of norms. Throws Error for samples that give a norm fewer
// than two values, and Error(kNonFinite) as Learner::predict.
int64_t renew_norms(Learner& learner, std::span<const SampleBatch> samples);

// Returns the configuration with all quantizable layers in fp32 throughout, with fp32 products, masters and the run's
// optimizer: no quantization keys of their own, no rules, phases, budget or init_from. Other layers are unchanged.
RunConfig float_config(RunConfig config);
// Loads a checkpoint or model file into the model of float_config(config), for evaluation on `data`: masters if
// present, otherwise dequantized codes. Ranges and learned steps of `quantize` layers are not set yet; use calibrate or
// quantize_after_training.
std::unique_ptr<Learner> load_floats(const std::string& file, const RunConfig& config, const Dataset& data);
// Returns quant.recipe, first, last and rules of `config`, followed by a rule for each layer whose input scales would
// be computed from a range: the same recipe, with a per-tensor range found by `observer`. Schemes with learned or fixed
// scales are unchanged. Throws Error for an unknown observer and if no layer has such an input.
RunConfig with_observer(RunConfig config, Module& model, const std::string& observer);

// The configuration of the model that Learner::convert makes of a learner in its current phase: its layers' current
// precision, without other phases, on device.kind cpu.
RunConfig converted_config(RunConfig config, Learner& learner);
// Write the model file of a converted learner. The first overload is for learners that no run made: the model record
// says everything. The second also stores the configuration. The header has the counters of the original run.
void save_converted(const std::string& path, Learner& learner, CheckpointHeader header);
void save_converted(const std::string& path, Learner& learner, CheckpointHeader from, const RunConfig& config);

}  // namespace bitgrad
