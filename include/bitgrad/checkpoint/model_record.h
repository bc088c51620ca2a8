// The description of a model stored with its values, sufficient to build it without a configuration. Metadata key
// bitgrad.model of checkpoints and converted files; docs/file_format.md documents every member.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bitgrad/nn/adapter.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/nn/model_spec.h"
#include "bitgrad/train/learner.h"

namespace bitgrad {

struct ModelRecord {
  // Current quantization of one slot, whether set by its layer's keys, a recipe, a rule or a phase.
  struct Slot {
    std::string layer = {};  // path, as in Module::quantizables_at
    LayerQuant quant = {};
    std::optional<AdapterSpec> adapter = {};  // nullopt: no adapter
    bool frozen = false;                      // whether the weight is frozen, for any reason
    friend bool operator==(const Slot&, const Slot&) = default;
  };
  ModelSpec model = {};  // input: sample shape, dtype, ids
  std::vector<Slot> slots = {};
  QuantMode mode = {};
};

// Describes a planned learner all of whose layers were made by make_layer. Returns nullopt for other models.
std::optional<ModelRecord> model_record(Learner& learner);
// Serialize to one line of JSON, and parse it. Parsing throws Error for text that is no record or uses unknown names.
std::string to_text(const ModelRecord& record);
ModelRecord parse_model_record(const std::string& text);
// Reads the record of a file. Returns nullopt if it has none (a model not made by make_layer). Throws
// Error(kData).
std::optional<ModelRecord> read_model_record(const std::string& file);

// Builds the model of a record: layers, precision, adapters; in evaluation mode and without values. Throws Error for a
// record that contradicts itself.
std::shared_ptr<Sequential> recorded_model(const ModelRecord& record);
// Builds the model of a file with its values, ready to predict and to be evaluated with `loss`; needs no configuration.
// eval_samples: batch size to plan layouts for; 0: none. Of a checkpoint only the model is read: codes, scales, fp32
// parameters and buffers; kTrain: masters too. Throws Error(kData) for a file without a record, and whatever
// load_checkpoint and load_model throw.
std::unique_ptr<Learner> load_evaluator(const std::string& file, const LossFunction& loss, int64_t eval_samples = 0,
                                        LearnerUse use = LearnerUse::kPredict);

}  // namespace bitgrad
