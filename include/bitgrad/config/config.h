// The configuration of a run: parsed from YAML with a closed schema, validated as a whole, and written back.
//
// Every key is one line of src/config/keys.inc; the reference docs/configuration.md is generated from it.
#pragma once

#include <array>
#include <cstdint>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/config/weight_name.h"
#include "bitgrad/data/dataset.h"
#include "bitgrad/data/transform.h"
#include "bitgrad/dist/wire_format.h"
#include "bitgrad/dtype/dtype.h"
#include "bitgrad/nn/model_spec.h"
#include "bitgrad/nn/state.h"
#include "bitgrad/optim/optimizer_spec.h"
#include "bitgrad/optim/schedule.h"
#include "bitgrad/optim/window_sum.h"
#include "bitgrad/tensor/quant_params.h"

namespace bitgrad {

// Source position: line and column are 1-based (columns in characters). argument: 0 is the file, N the N-th override,
// -1 the file of model.preset. All marks compare equal, since positions are not part of a configuration's meaning.
struct SourceMark {
  int argument = 0, line = 1, col = 1;
  friend bool operator==(SourceMark, SourceMark) { return true; }
};

// A message of the reader, to be shown at its mark.
struct ConfigDiagnostic {
  SourceMark mark = {};
  std::string message = {};
};

// Thrown for an invalid configuration (code kUsage). what() is the full report, sorted by line, with source lines and
// carets.
class ConfigError : public Error {
 public:
  ConfigError(const std::string& report, std::vector<ConfigDiagnostic> diagnostics)
      : Error(report, ErrorCode::kUsage), diagnostics_(std::move(diagnostics)) {}
  const std::vector<ConfigDiagnostic>& diagnostics() const noexcept { return diagnostics_; }

 private:
  std::vector<ConfigDiagnostic> diagnostics_;
};

// A length of training: "40 epochs" or "500 steps" (optimizer steps).
struct Quantity {
  enum class Unit : uint8_t { kSteps, kEpochs };
  int64_t value = 0;
  Unit unit = Unit::kSteps;
  friend bool operator==(const Quantity&, const Quantity&) = default;
};
std::ostream& operator<<(std::ostream& out, const Quantity& quantity);

// Where a configuration describes a layer: marks of its kind and of the values of its keys, and the path of its map,
// such as model.layers.3.linear. `block` names the block that the layer was expanded from, and where that is used.
struct LayerOrigin {
  SourceMark mark = {};
  std::map<std::string, SourceMark> marks = {};
  std::string path = {}, block = {};
};
// That of a configuration's layer; of one from elsewhere without marks and path.
const LayerOrigin& origin_of(const LayerSpec& layer);

// Calls f(layer) for all layers, containers before their contents.
template <typename Layers, typename F>
void for_each_layer(Layers& layers, F&& f) {
  for (auto& layer : layers) {
    f(layer);
    for (auto& list : layer.lists) for_each_layer(list.layers, f);
  }
}

// A training-time transform of samples: a name of transform_kinds() and its arguments.
struct TransformConfig {
  std::string name = {};
  Attributes keys = {};
  friend bool operator==(const TransformConfig&, const TransformConfig&) = default;
};

struct DatasetConfig : DatasetSpec {  // the rest of it is set when the data set is opened
  double fraction = 0;                // data.valid: fraction of data.train to use instead of a format; 0: not set
  std::vector<TransformConfig> transforms = {};  // data.train only, in order
  Augment augment = {};                          // data.train only, before transforms
  SourceMark mark = {};
  friend bool operator==(const DatasetConfig&, const DatasetConfig&) = default;
};

struct RunSection {
  std::string name = {}, dir = {};
  int64_t seed = 0;
  std::string bits = {};  // fast | strict
  friend bool operator==(const RunSection&, const RunSection&) = default;
};

struct DeviceSection {
  std::string kind = {};
  int64_t index = 0;                    // among several devices; ignored for cpu
  bool graph = true;                    // ignored for cpu
  std::string resident_data = "auto";   // auto | true | false; no effect for cpu
  std::optional<int64_t> threads = {};  // nullopt: auto
  friend bool operator==(const DeviceSection&, const DeviceSection&) = default;
};

struct DataSection {
  // Resolved, always absolute: the key, else $BITGRAD_DATA, else the folder of the config. Empty if no file is read.
  std::string root = {};
  DatasetConfig train = {};
  std::optional<DatasetConfig> valid = {};  // if set, selects the best model
  std::optional<DatasetConfig> test = {};
  std::array<float, 2> affine{1.0f, 0.0f};    // [a, b]: a * (pixel / 255) + b
  Normalization normalize = {};               // replaces affine
  std::string tokenizer = {};                 // for texts of format tokens
  std::optional<ChatTable> chat = {};         // roles of conversations
  std::vector<std::string> class_names = {};  // in class order; empty: not set
  friend bool operator==(const DataSection&, const DataSection&) = default;
};

// Quantization of a layer by prepare: a recipe and replacements for parts of it.
struct LayerQuantConfig {
  std::string recipe = "none";
  std::optional<int64_t> group = {};  // replaces the recipe's group size; excludes `weights`
  // Replaces the recipe's weights; without quant: not quantized. init, moments, optimizer, lr_factor, weight_decay and
  // frozen belong to the layer and keep their defaults here.
  std::optional<ParameterSpec> weights = {};
  std::optional<ActivationQuant> activations = {};     // replaces those of the layer's input
  std::optional<Compute> compute = {};                 // nullopt: the recipe's
  std::optional<OutputRounding> output_rounding = {};  // nullopt: the recipe's
  friend bool operator==(const LayerQuantConfig&, const LayerQuantConfig&) = default;
};
struct QuantRuleConfig {
  std::string layers = {};  // glob on paths such as layers.3
  LayerQuantConfig quant = {};
  SourceMark mark = {};  // of the glob
  friend bool operator==(const QuantRuleConfig&, const QuantRuleConfig&) = default;
};
// Later entries win: recipe, first, last, then rules in order (nn/prepare.h).
struct PrepareConfig {
  std::optional<std::string> recipe = {}, first = {}, last = {};  // recipe names
  std::vector<QuantRuleConfig> rules = {};
  SourceMark mark = {};
  friend bool operator==(const PrepareConfig&, const PrepareConfig&) = default;
};
struct QuantPhaseConfig {
  Quantity from = {};
  std::optional<PrepareConfig> prepare = {};  // nullopt: unchanged
  QuantMode mode = {};
  SourceMark mark = {};
  friend bool operator==(const QuantPhaseConfig&, const QuantPhaseConfig&) = default;
};
// Chooses the bits of each layer's weights such that all weights together take at most `bytes`.
struct BudgetConfig {
  int64_t bytes = 0;
  std::vector<int64_t> bits{8, 4, 3, 2, 1};  // candidates
  int64_t samples = 1000;                    // samples of data.train used to measure the cost of a choice
  std::optional<int64_t> batch_norm = {};    // those that renew the statistics of norms; 0: none; nullopt: `samples`
  std::vector<std::string> methods = {};     // fit each choice to the samples (PtqSpec, tools/ptq.h)
  SourceMark mark = {};
  friend bool operator==(const BudgetConfig&, const BudgetConfig&) = default;
};

struct QuantSection {
  PrepareConfig prepare = {};                       // keys recipe, first, last, rules
  std::vector<QuantPhaseConfig> phases = {};        // changes over time
  std::optional<BudgetConfig> budget = {};          // cleared once resolved to rules
  ParameterSpec weights = {};                       // defaults of linear, convolutional and embedding layers
  std::optional<ActivationQuant> activations = {};  // default of quantize layers
  ProductSpec product = {};                         // default of linear and convolutional layers
  int64_t requantize_every = 1;                     // N, in microbatches; a multiple of A
  ObserverUpdate observer_update = ObserverUpdate::kAuto;
  friend bool operator==(const QuantSection&, const QuantSection&) = default;
};

// Low-rank adapters (nn/adapter.h).
struct AdaptersConfig : AdapterRule {
  AdaptersConfig() { adapter.alpha = 16; }  // as the key says; an AdapterSpec of a program begins with 8
  std::string init_from = {};               // folder or file; empty: none
  SourceMark mark = {};
  friend bool operator==(const AdaptersConfig&, const AdaptersConfig&) = default;
};

struct BatchSection {
  int64_t global = 0, micro = 0;
  LastBatch last = LastBatch::kKeep;                     // of an epoch
  WindowSum sum = WindowSum::kAuto;                      // order of summing microbatch gradients
  int64_t accumulate() const { return global / micro; }  // A
  friend bool operator==(const BatchSection&, const BatchSection&) = default;
};

// How many ranks there are belongs to the launch of a run.
struct RanksSection {
  WireFormat wire = WireFormat::kExact;
  Quantity check_every = {100, Quantity::Unit::kSteps};
  friend bool operator==(const RanksSection&, const RanksSection&) = default;
};

// Of the learning rate, the weight decay or the momentum.
struct ScheduleConfig : ScheduleShape {
  Quantity warmup = {};                // linear from warmup_from; 0: none
  Quantity every = {};                 // step, exponential
  std::vector<Quantity> at = {};       // multistep
  Quantity cooldown = {};              // wsd
  std::string metric = {}, mode = {};  // plateau; empty: that of train.best
  int64_t patience = 0;                // plateau
  double min_delta = 0.0;              // plateau
  SourceMark mark = {};
  friend bool operator==(const ScheduleConfig&, const ScheduleConfig&) = default;
};

struct OptimConfig {
  OptimizerSpec spec = {};
  ScheduleConfig decay_schedule = {}, momentum_schedule = {};  // factors of weight_decay and momentum over time
  friend bool operator==(const OptimConfig&, const OptimConfig&) = default;
};

struct EvalSection {
  Quantity every = {};
  int64_t batch = 0;
  friend bool operator==(const EvalSection&, const EvalSection&) = default;
};

// The criterion that selects the best model.
struct BestConfig {
  std::string metric = {};  // empty: accuracy for classes, loss for values
  std::string mode = {};    // max | min; empty: the metric's own direction
  SourceMark mark = {};
  friend bool operator==(const BestConfig&, const BestConfig&) = default;
};

// Ends a run whose evaluations have stopped improving.
struct EarlyStopConfig {
  std::string metric = {};  // empty: that of train.best
  std::string mode = {};    // max | min; empty: the metric's own direction
  int64_t patience = 0;     // evaluations without improvement
  double min_delta = 0;     // only changes above this count as improvement
  SourceMark mark = {};
  friend bool operator==(const EarlyStopConfig&, const EarlyStopConfig&) = default;
};

struct TrainSection {
  Quantity stop = {};
  BestConfig best = {};
  std::optional<EarlyStopConfig> early_stop = {};
  std::map<std::string, Attributes> metrics = {};  // keys of metrics that have any
  EvalSection eval = {};
  double ema = 0;                        // decay of the average of weights; 0: none
  std::vector<std::string> frozen = {};  // globs
  SourceMark frozen_mark = {};
  friend bool operator==(const TrainSection&, const TrainSection&) = default;
};

struct CheckpointSection {
  Quantity every = {};
  int64_t keep = 0;  // 0: only last and best
  friend bool operator==(const CheckpointSection&, const CheckpointSection&) = default;
};

struct LogSection {
  Quantity every = {};
  std::optional<Quantity> quantization = {};  // nullopt: off
  bool report = true;                         // report.html and evaluation.json
  bool tensorboard = false;                   // event files
  bool gradient_norm = false;                 // also without optim.clip_norm
  std::optional<double> peak = {};            // in 10^9 multiplications per second; nullopt: unknown
  friend bool operator==(const LogSection&, const LogSection&) = default;
};

// The text that a configuration was read from. All origins compare equal, like marks.
struct ConfigOrigin {
  std::string name = {};                           // file name, for messages
  std::string text = {};                           // file contents, unmodified
  std::vector<std::string> overrides = {};         // as given
  std::vector<std::string> warnings = {};          // about a user's text: keys without effect, each with its position
  std::string preset_name = {}, preset_text = {};  // the file of model.preset; empty: none
  friend bool operator==(const ConfigOrigin&, const ConfigOrigin&) { return true; }
};

struct RunConfig {
  int64_t version = 1;
  std::vector<std::string> plugins = {};  // absolute paths, in load order
  RunSection run = {};
  DeviceSection device = {};
  DataSection data = {};
  std::vector<LayerSpec> layers = {};
  std::string init_from = {};  // model.init_from: run folder, checkpoint or model file; empty: none
  SourceMark init_from_mark = {};
  std::vector<WeightName> rename = {};
  std::vector<std::string> ignore = {};  // globs on names of the file that are left out
  bool other_inputs = false;             // accepts a file whose run normalized or tokenized its inputs otherwise
  DType values = dtypes::fp32;           // model.values: dtype of values between layers, fp32 or bf16
  bool flat = true;                      // model.flat: samples become vectors unless a layer looks at axes
  QuantSection quant = {};
  std::optional<AdaptersConfig> adapters = {};
  BatchSection batch = {};
  RanksSection ranks = {};
  std::string loss = {};
  Attributes loss_keys = {};  // keys of the loss
  OptimConfig optim = {};
  ScheduleConfig schedule = {};
  TrainSection train = {};
  CheckpointSection checkpoint = {};
  LogSection log = {};
  ConfigOrigin origin = {};
  friend bool operator==(const RunConfig&, const RunConfig&) = default;
};

// Where a text comes from, which decides the precedence for data.root. An override always wins. Then, for a user's
// text: the key, $BITGRAD_DATA, the configuration's folder; for the record of a run: $BITGRAD_DATA, the key, `root`,
// the file's folder.
struct ConfigSource {
  bool run = false;
  std::string root = {};
  // How plugins are found. kPath: by path, for a configuration that the user names. kLoaded: by file name among the
  // loaded ones, for what run folders and model files hold: opening them runs no code.
  enum class Plugins : uint8_t { kPath, kLoaded };
  Plugins plugins = Plugins::kPath;
};

// Reads and validates a file. Overrides are "a.b=value", "a.0.b=value" for list items, or "~a.b" (reset to the
// default); messages number them from 1, and the last one for a key wins. Throws ConfigError with all findings.
RunConfig load_config(const std::string& path, const std::vector<std::string>& overrides = {},
                      const ConfigSource& source = {});
// The same for text. `name` stands for the file in messages, and relative paths start at its folder.
RunConfig parse_config(std::string_view text, const std::string& name, const std::vector<std::string>& overrides = {},
                       const ConfigSource& source = {});
// The complete resolved configuration: every key that applies, including defaults. Parses back to an equal RunConfig.
std::string to_yaml(const RunConfig& config);
// The same without machine-specific paths (data.root, folders of plugins), as stored in model files.
std::string to_portable_yaml(const RunConfig& config);
// A key whose value differs between two configurations: its path as in overrides, and the values as to_yaml writes
// them; nullopt: the key is absent.
struct ConfigDifference {
  std::string key = {};
  std::optional<std::string> a = {}, b = {};
};
// In the key order of `a`, followed by keys only in `b`. Empty if the configurations are equal.
std::vector<ConfigDifference> config_differences(const RunConfig& a, const RunConfig& b);
// Makes a ConfigError in the reader's format for a problem found later (e.g. a model that does not fit the data), at a
// mark of this configuration.
ConfigError config_error_at(const RunConfig& config, SourceMark mark, const std::string& message);
// The tables of docs/configuration.md.
std::string config_reference();
// A JSON Schema (draft 7) for configurations, for use in editors.
std::string config_schema();
// Paths of all keys, e.g. "optim.lr"; N stands for a list index.
std::vector<std::string> config_key_paths();
// The names that the key with this path accepts; empty for numbers, texts and paths of no key.
std::vector<std::string> config_key_values(const std::string& path);
// A JSON array with an object per key: path, value (what is accepted), default, text, values (names, if only such).
std::string config_keys_json();
// Explains a key in several lines: meaning, values, default and an example. `key` is a path or the end of one ("lr",
// "linear.out"), which may match several keys. Throws Error with the nearest name if there is no match.
std::string explain_config_key(const std::string& key);

}  // namespace bitgrad
