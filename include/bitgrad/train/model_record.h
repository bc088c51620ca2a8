// What a file says of the model whose values it holds: enough to build it without a configuration. Metadata key
// bitgrad.model of checkpoints and converted files; docs/file_format.md has every member.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bitgrad/nn/adapter.h"
#include "bitgrad/nn/model_spec.h"
#include "bitgrad/train/learner.h"

namespace bitgrad {

struct ModelRecord {
  // How one slot is quantized now, whoever said so: its layer's own keys, a recipe, a rule or a phase.
  struct Slot {
    std::string layer = {};  // path, as Module::quantizables_at
    LayerQuant quant = {};
    std::optional<AdapterSpec> adapter = {};  // none: the layer has none
    bool frozen = false;                      // the weight, whoever said so
    friend bool operator==(const Slot&, const Slot&) = default;
  };
  ModelSpec model = {};  // input: shape of a sample, dtype, ids
  std::vector<Slot> slots = {};
  QuantMode mode = {};
};

// Of a learner that was planned and whose layers were all made by make_layer; none: the model is of another make.
std::optional<ModelRecord> model_record(Learner& learner);
// One line of JSON, and back. Throws Error for a text that is none, or names what this program does not know.
std::string to_text(const ModelRecord& record);
ModelRecord parse_model_record(const std::string& text);
// That of a file. none: it has none (format 2, or a model of another make). Throws Error(kData).
std::optional<ModelRecord> read_model_record(const std::string& file);

// The model of a file, with its values, ready to predict and to be evaluated with `loss`; no configuration is needed.
// eval_samples: of a batch that layouts are planned for; 0: none. Throws Error(kData) for a file without a record, and
// what load_checkpoint and load_model throw.
std::unique_ptr<Learner> load_evaluator(const std::string& file, const LossFunction& loss, int64_t eval_samples = 0);

}  // namespace bitgrad
