// Post-training quantization: a trained model is held in few bits without training. And converted models on disk.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bitgrad/data/dataset.h"
#include "bitgrad/nn/prepare.h"
#include "bitgrad/train/checkpoint.h"
#include "bitgrad/train/config.h"
#include "bitgrad/train/learner.h"

namespace bitgrad {

struct SampleBatch {
  Tensor x = {};       // [n, features] fp32, or int32 of data of ids
  Tensor target = {};  // [n, ..] classes (int32), or values (fp32)
};
// The first `samples` (at most all) of the order that a run with this seed has in its first epoch, in batches of at
// most `batch`. So samples that lie in the file by class are mixed.
std::vector<SampleBatch> first_samples(const Dataset& data, int64_t samples, int64_t batch, uint64_t seed);
// Their x.
std::vector<Tensor> tensors_of(std::span<const SampleBatch> batches);

// Prepares the learner's model as the spec says, finds observed ranges and first values of learned steps of inputs on
// the samples, and converts. Statistics of norms stay. The learner only evaluates from then on. Throws what prepare and
// calibrate throw, and Error without samples.
void quantize_after_training(Learner& learner, const PrepareSpec& spec, std::span<const SampleBatch> samples);

// A configuration whose quantizable layers are fp32 from the start to the end, with fp32 products, masters and the
// run's optimizer: nothing of their own keys for codes, no rules, phases, budget or model to start from. Other layers
// are as they were.
RunConfig float_config(RunConfig config);
// The numbers of a checkpoint or model file in the model of float_config(config), to evaluate on `data`: masters, or
// where there are none the values of codes. Ranges and learned steps of `quantize` layers are not found yet: calibrate
// does it, or quantize_after_training.
std::unique_ptr<Learner> load_floats(const std::string& file, const RunConfig& config, const Dataset& data);
// The same choice of recipes as quant.recipe, first, last and rules of `config`, one rule for each layer, where inputs
// whose scales would be found from each batch follow a range per tensor that `observer` finds. Schemes that learn or
// know their scale stay. Throws Error for an unknown observer, and when no layer has such an input.
RunConfig with_observer(RunConfig config, Module& model, const std::string& observer);

// The configuration of what Learner::convert makes of a learner of `config` in the phase that it is in: what its layers
// are held in now, and no other phases.
RunConfig converted_config(RunConfig config, Learner& learner);
// Writes the model file of a converted learner, with its configuration and the counters of the run that it came from.
// The same for a file that no run wrote: its record of the model says all.
void save_converted(const std::string& path, Learner& learner, CheckpointHeader header);
void save_converted(const std::string& path, Learner& learner, CheckpointHeader from, const RunConfig& config);

}  // namespace bitgrad
