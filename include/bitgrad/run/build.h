// What a configuration becomes: data sets, models, learners, rates; and a file of a model, opened.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/checkpoint/run_folder.h"
#include "bitgrad/config/config.h"
#include "bitgrad/data/dataset.h"
#include "bitgrad/data/loader.h"
#include "bitgrad/io/safetensors.h"
#include "bitgrad/train/learner.h"

namespace bitgrad {

// The quantization phases of a configuration. Without quant.phases, a single phase made from quant.recipe, first, last
// and rules, or none if there are none of these.
std::vector<QuantPhase> quant_phases(const RunConfig& config, int64_t microbatches_per_epoch);
// The learning rate of each optimizer step. plateaus: for schedule plateau, the steps at which the rate was cut so far.
std::function<float(int64_t)> learning_rates(const RunConfig& config, int64_t microbatches_per_epoch,
                                             const std::vector<int64_t>& plateaus = {});
// The factors of weight decay and momentum in each of them (optim.decay_schedule, optim.momentum_schedule).
std::function<RuleFactors(int64_t)> rule_factors(const RunConfig& config, int64_t microbatches_per_epoch);
// The form of a data set's samples, and the model of a configuration for input of a given form. If no layer looks at
// axes (LayerKind::axes), samples are flattened to vectors.
Form input_form(const Dataset& data);
ModelSpec model_spec(const RunConfig& config, const Form& input);
// Builds the learner of a configuration: model, loss, optimizer, schedule, phases, layouts. `input` is the form of a
// sample, `outputs` the size of the output's last axis (0: any), `train_size` the samples per epoch. Throws ConfigError
// at the layer that does not fit.
std::unique_ptr<Learner> build_learner(const RunConfig& config, const Form& input, int64_t outputs, int64_t train_size);
// The same for a data set, whose targets the model's outputs must fit.
std::unique_ptr<Learner> build_learner(const RunConfig& config, const Dataset& data);
// The same for evaluation on `data`, which may have fewer classes than the network has scores (e.g. data.test). `form`
// describes the file whose values will be loaded: throws Error(kData), before memory is allocated, for a layer that has
// no such matrix in the file.
std::unique_ptr<Learner> build_evaluator(const RunConfig& config, const Dataset& data, const FileForm* form = nullptr);
// The same with the values of a file: a checkpoint, in its phase, or a converted model (checkpoint/checkpoint.h). Of a
// checkpoint only the model is read, not what training keeps, and parameters have no masters; kTrain: all of it.
std::unique_ptr<Learner> load_evaluator(const RunConfig& config, const Dataset& data, const std::string& file,
                                        LearnerUse use = LearnerUse::kPredict);
// Opens the data set of a section of `config` (config.data.train, valid or test). With data.valid {fraction: f}, valid
// is that part of data.train and train is the rest. `of_model`: tokenizer of the model that will read the data; by
// default one is made from the training text. `table`: plan of the model's or of the training table; by default one is
// made from the training file.
std::unique_ptr<Dataset> open_dataset(const RunConfig& config, const DatasetConfig& section,
                                      std::shared_ptr<const Tokenizer> of_model = {},
                                      std::shared_ptr<const TablePlan> table = {});
// The data set for measuring a model, data.test, else data.valid, else data.train; and the name of that section.
std::unique_ptr<Dataset> open_evaluation_dataset(const RunConfig& config,
                                                 std::shared_ptr<const Tokenizer> of_model = {},
                                                 std::shared_ptr<const TablePlan> table = {});
std::string evaluation_split(const RunConfig& config);
// Sets the number of classes that the labels of data.train gave, for the other arrays too: npy and npz count them.
void take_counted_classes(RunConfig& config, const Dataset& train);

// The microbatches of an epoch of data.train.
LastBatch last_batch_of(const RunConfig& config);
EpochBatches epoch_batches(const RunConfig& config, int64_t samples);

// The device selected by device.kind and device.index, which may not exist. Builders, evaluate and the rest of the
// library use the current device, so programs need a DeviceGuard guard(device_of(config)). Trainer does this itself.
Device device_of(const RunConfig& config);
// Applies device.threads and run.bits to the process.
void apply_run_settings(const RunConfig& config);

// An opened checkpoint or model file: header, configuration and input form. It stays open for load_file: a run may
// replace it meanwhile.
struct OpenedFile {
  std::string path = {};
  SavedKind kind = SavedKind::kCheckpoint;
  CheckpointHeader header = {};
  RunConfig config = {};
  Form input = {};          // of the model: sample shape, ids
  std::string choice = {};  // which checkpoint of a run folder it is, and why (checkpoint_of); empty: no choice
  bool of_run = true;       // false: written by a program without a run; `config` is meaningless except for defaults
  // The file, its checksum verified; nullptr: load_file opens `path`.
  std::shared_ptr<const SafetensorsFile> tensors = {};
};
// Opens a run folder (a checkpoint as checkpoint_of chooses it) or a file. `overrides` apply to its configuration.
// Required plugins must have been loaded before (load_plugin). Throws Error(kData) or
// ConfigError.
OpenedFile open_file(const std::string& target, const std::vector<std::string>& overrides = {},
                     CheckpointChoice choice = CheckpointChoice::kChosen);
// Builds the file's model, ready to predict. `data` may be nullptr, in which case only the file is read. `use` as in
// load_evaluator.
std::unique_ptr<Learner> load_file(const OpenedFile& file, const Dataset* data, LearnerUse use = LearnerUse::kPredict);

}  // namespace bitgrad
