// The configuration of a run: read from YAML with a closed schema, checked as a whole, and written back.
//
// Every key has one line in src/train/config/keys.inc; docs/configuration.md is the reference made from it.
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
#include "bitgrad/dtype/dtype.h"
#include "bitgrad/nn/model_spec.h"
#include "bitgrad/tensor/quant_params.h"
#include "bitgrad/train/weight_name.h"

namespace bitgrad {

// Where something was written: line and column count from 1 (columns in characters); argument 0 is the file, N the N-th
// override, -1 the file of model.preset. All marks compare equal: where a value was written is no part of what a
// configuration says.
struct SourceMark {
  int argument = 0, line = 1, col = 1;
  friend bool operator==(SourceMark, SourceMark) { return true; }
};

// One finding of the reader, without its position.
struct ConfigDiagnostic {
  SourceMark mark = {};
  std::string message = {};
};

// What a bad configuration throws (code kUsage). what() is the whole report, sorted by line, with source lines and
// carets.
class ConfigError : public Error {
 public:
  ConfigError(const std::string& report, std::vector<ConfigDiagnostic> diagnostics)
      : Error(report, ErrorCode::kUsage), diagnostics_(std::move(diagnostics)) {}
  const std::vector<ConfigDiagnostic>& diagnostics() const noexcept { return diagnostics_; }

 private:
  std::vector<ConfigDiagnostic> diagnostics_;
};

// A length of training: "40 epochs", "500 steps" (optimizer steps).
struct Quantity {
  enum class Unit : uint8_t { kSteps, kEpochs };
  int64_t value = 0;
  Unit unit = Unit::kSteps;
  friend bool operator==(const Quantity&, const Quantity&) = default;
};
std::ostream& operator<<(std::ostream& out, const Quantity& quantity);

// First values of a parameter: "uniform(a,b)", "normal(mean,sd)", "constant(a)", or a kind without numbers.
struct InitConfig {
  std::string kind = "glorot_uniform";
  double a = 0.0, b = 0.0;
  friend bool operator==(const InitConfig&, const InitConfig&) = default;
};
std::ostream& operator<<(std::ostream& out, const InitConfig& init);

// How learned parts of a scheme (LSQ's step, PACT's clip) train.
struct LearnedConfig {
  double lr_factor = 1.0;                   // of the run's learning rate
  std::optional<double> weight_decay = {};  // none: that of the optimizer
  friend bool operator==(const LearnedConfig&, const LearnedConfig&) = default;
};

// What finds the range of activations over many batches.
struct ObserverConfig {
  std::string name = "none";  // none: scales are found from each batch
  double momentum = 0.99;     // moving_average
  double percentile = 99.99;  // percentile
  friend bool operator==(const ObserverConfig&, const ObserverConfig&) = default;
};

// How weights, activations or passing gradients are held. A float dtype uses dtype, init, latent_clamp, grad, moments,
// lr_factor, weight_decay and frozen only.
struct QuantConfig {
  DType dtype = dtypes::fp32;
  std::string scheme = {};       // empty for a float dtype
  std::string alpha = "none";    // scheme binary: none (s = 1), or whose mean abs x it is: tensor, channel, token
  bool alpha_grad = false;       // the gradient flows through alpha too
  Granularity granularity = {};  // with alpha: that of alpha
  std::string rounding = "nearest";
  std::string ste = {};                    // empty for a float dtype
  std::array<double, 2> ste_t{0.1, 10.0};  // rule tanh: first and last sharpness
  double scale = 1.0, offset = 0.0;        // scheme fixed
  double first_clip = 10.0;                // scheme pact
  std::optional<double> eps = {};          // floor of scales; none: the scheme's own
  bool pow2 = false, div = false, reduce_range = false;
  DType scale_dtype = dtypes::fp32;         // of scales and offsets: fp32, fp16
  LearnedConfig learned = {};               // schemes with learned parts
  ObserverConfig observer = {};             // activations
  InitConfig init = {};                     // weights
  std::optional<double> latent_clamp = {};  // weights: masters are kept in [-c, c]
  DType grad = dtypes::fp32;                // dtype of the gradient
  std::string master = "fp32";              // weights: fp32, bf16, none
  std::string moments = "fp32";             // weights: fp32, bf16, int8
  std::string optimizer = "default";        // weights: default (that of the run), bop
  double lr_factor = 1.0;                   // weights: of the run's learning rate
  std::optional<double> weight_decay = {};  // weights; none: that of the optimizer
  bool frozen = false;                      // weights
  Attributes keys = {};                     // the scheme's own keys
  friend bool operator==(const QuantConfig&, const QuantConfig&) = default;
};

// In what a linear or convolutional layer takes the products of its backward.
struct BackwardConfig {
  std::string gx = "fp32", gw = "fp32";  // fp32, bf16, int8
  std::string rounding = "stochastic";   // of gradients to int8
  bool per_group = false;                // gx int8 with weights per group: one product a group
  friend bool operator==(const BackwardConfig&, const BackwardConfig&) = default;
};

struct LayerConfig;

// As LayerList (nn/model_spec.h).
struct LayerListConfig {
  LayerListConfig() = default;
  LayerListConfig(std::string key, std::vector<LayerConfig> layers);
  std::string key;
  std::vector<LayerConfig> layers;
  friend bool operator==(const LayerListConfig& a, const LayerListConfig& b);
};

// One layer; fields that its kind does not have keep their defaults.
struct LayerConfig {
  std::string kind = {};                    // a name of layer kinds: quantize, dropout, linear, ...
  Attributes attributes = {};               // the kind's own keys
  std::vector<LayerListConfig> lists = {};  // of a container
  // Kinds with weights: those; quantize: its codes; quantize_gradient: those of the gradient. Own keys and those of
  // `quant:` are merged.
  QuantConfig quant = {};
  std::string compute = "packed";  // of kinds with a product: packed, simulated, integer_out. Merged too
  BackwardConfig backward = {};    // of kinds with a product. Merged too
  // Of the text: where the kind stands, the values of its keys, and the path of its map, such as model.layers.3.linear;
  // what is expanded from a block says which one, and where that is used.
  SourceMark mark = {};
  std::map<std::string, SourceMark> marks = {};
  std::string path = {}, block = {};
  friend bool operator==(const LayerConfig& a, const LayerConfig& b);
};
inline LayerListConfig::LayerListConfig(std::string k, std::vector<LayerConfig> l)
    : key(std::move(k)), layers(std::move(l)) {}

// Calls f(layer) for all layers, those within containers after the container.
template <typename Layers, typename F>
void for_each_layer(Layers& layers, F&& f) {
  for (auto& layer : layers) {
    f(layer);
    for (auto& list : layer.lists) for_each_layer(list.layers, f);
  }
}

// A change of samples in training: a name of transform_kinds(), and its numbers.
struct TransformConfig {
  std::string name = {};
  Attributes keys = {};
  friend bool operator==(const TransformConfig&, const TransformConfig&) = default;
};

// Crops and mirror images of data.train; Augment of loader.h.
struct AugmentConfig {
  int64_t crop_pad = 0;
  bool flip = false;
  friend bool operator==(const AugmentConfig&, const AugmentConfig&) = default;
};

// Of data.normalize; both empty: data.affine holds.
struct NormalizeConfig {
  std::vector<double> mean = {}, std = {};
  friend bool operator==(const NormalizeConfig&, const NormalizeConfig&) = default;
};

struct DatasetConfig {
  std::string format = {};               // one of dataset_formats(); empty beside fraction
  double fraction = 0;                   // of data.valid: so much of data.train, in place of a format; 0: not given
  std::string images = {}, labels = {};  // idx: paths, absolute or under data.root
  std::string targets = {};              // idx: path of values, in place of labels; text: last (also empty) or each
  int64_t limit = 0;                     // the first so many samples; 0: all
  std::vector<TransformConfig> transforms = {};  // of data.train, in order
  AugmentConfig augment = {};                    // of data.train, before transforms
  int64_t classes = 0;                           // idx: 0 is the format's default
  int64_t size = 0, seed = 1;                    // digits
  std::string file = {};                         // text, tokens: path, absolute or under data.root
  std::string path = {};                         // cifar10, cifar100: folder or file, absolute or under data.root
  int64_t context = 0;                           // text, tokens
  double test_fraction = 0.1;                    // text, tokens
  std::string split = {};                        // digits, text, cifar10, cifar100: train or test
  Attributes keys = {};                          // the format's own keys
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
  int64_t index = 0;                    // of several devices; not read for cpu
  bool graph = true;                    // not read for cpu
  std::string resident_data = "auto";   // auto | true | false; for cpu without effect
  std::optional<int64_t> threads = {};  // none: auto
  friend bool operator==(const DeviceSection&, const DeviceSection&) = default;
};

struct DataSection {
  // As resolved: the key, else $BITGRAD_DATA, else the folder of the config, always absolute; empty when no file is
  // read.
  std::string root = {};
  DatasetConfig train = {};
  std::optional<DatasetConfig> valid = {};  // selects the best model, where it is given
  std::optional<DatasetConfig> test = {};
  std::array<double, 2> affine{1.0, 0.0};     // [a, b]: a * (pixel / 255) + b
  NormalizeConfig normalize = {};             // in place of affine
  std::string tokenizer = {};                 // of texts of format tokens
  std::vector<std::string> class_names = {};  // in the order of the classes; empty: not given
  friend bool operator==(const DataSection&, const DataSection&) = default;
};

// How prepare holds a layer: a recipe by name, with what is put in place of its parts.
struct LayerQuantConfig {
  std::string recipe = "none";
  std::optional<int64_t> group = {};  // length of the recipe's groups; not beside weights
  // In place of the recipe's; dtype fp32: not quantized. init, moments, optimizer, lr_factor, weight_decay and frozen
  // are the layer's own: they keep their defaults here.
  std::optional<QuantConfig> weights = {};
  std::optional<QuantConfig> activations = {};  // of the layer's input
  std::string compute = {};                     // packed, simulated, integer_out; empty: that of the recipe
  friend bool operator==(const LayerQuantConfig&, const LayerQuantConfig&) = default;
};
struct QuantRuleConfig {
  std::string layers = {};  // glob on paths such as layers.3
  LayerQuantConfig quant = {};
  SourceMark mark = {};  // of the glob
  friend bool operator==(const QuantRuleConfig&, const QuantRuleConfig&) = default;
};
// Later ones win: recipe, first, last, rules in order (nn/prepare.h).
struct PrepareConfig {
  std::optional<std::string> recipe = {}, first = {}, last = {};  // names
  std::vector<QuantRuleConfig> rules = {};
  SourceMark mark = {};
  friend bool operator==(const PrepareConfig&, const PrepareConfig&) = default;
};
struct QuantPhaseConfig {
  Quantity from = {};
  std::optional<PrepareConfig> prepare = {};  // none: as before
  std::string quantization = "on";            // on, off, frozen
  bool observers = true;
  SourceMark mark = {};
  friend bool operator==(const QuantPhaseConfig&, const QuantPhaseConfig&) = default;
};
// Bits of each layer's weights are chosen so that all weights together take at most so many bytes.
struct BudgetConfig {
  int64_t bytes = 0;
  std::vector<int64_t> bits{8, 4, 3, 2, 1};  // to choose from
  int64_t samples = 1000;                    // of data.train that measure what a choice costs
  SourceMark mark = {};
  friend bool operator==(const BudgetConfig&, const BudgetConfig&) = default;
};

struct QuantSection {
  PrepareConfig prepare = {};                   // keys recipe, first, last, rules
  std::vector<QuantPhaseConfig> phases = {};    // over time
  std::optional<BudgetConfig> budget = {};      // resolved: rules
  QuantConfig weights = {};                     // what a linear, convolutional or embedding layer takes
  std::optional<QuantConfig> activations = {};  // what a quantize layer takes
  std::string compute = "packed";               // how linear and convolutional layers compute their product
  BackwardConfig backward = {};                 // what a linear or convolutional layer takes
  int64_t requantize_every = 1;                 // N, microbatches; a multiple of A
  friend bool operator==(const QuantSection&, const QuantSection&) = default;
};

// Low-rank adapters (nn/adapter.h).
struct AdaptersConfig {
  std::vector<std::string> layers{"*"};  // globs
  int64_t rank = 8;
  double alpha = 16.0, dropout = 0.0;
  std::vector<std::string> train = {};  // globs
  std::string init_from = {};           // folder or file; empty: none
  SourceMark mark = {};
  friend bool operator==(const AdaptersConfig&, const AdaptersConfig&) = default;
};

struct BatchSection {
  int64_t global = 0, micro = 0;
  std::string sum = "running";                           // of the gradients of microbatches: running | tree
  int64_t accumulate() const { return global / micro; }  // A
  friend bool operator==(const BatchSection&, const BatchSection&) = default;
};

struct BopConfig {
  double gamma = 1e-4, threshold = 1e-8;
  friend bool operator==(const BopConfig&, const BopConfig&) = default;
};

struct OptimConfig {
  std::string name = {};
  double lr = 0.0;
  std::array<double, 2> betas{};                          // adam, adamw
  double eps = 0.0;                                       // adam, adamw
  double weight_decay = 0.0;                              // sgd, adam: in the gradient; adamw: decoupled
  std::string decay = "all";                              // all | matrices: what weight_decay is for
  double momentum = 0.0;                                  // sgd
  bool nesterov = false;                                  // sgd
  std::string moments = "fp32";                           // of parameters that do not say their own
  std::string fused = "auto";                             // auto | off: updates inside backward
  BopConfig bop = {};                                     // of weights with optimizer bop
  std::optional<double> clip_norm = {}, clip_value = {};  // value first, then norm
  friend bool operator==(const OptimConfig&, const OptimConfig&) = default;
};

struct ScheduleConfig {
  std::string name = {};
  Quantity warmup = {};  // linear from 0; 0: none
  Quantity every = {};   // step, exponential
  double factor = 0.0;   // step: rate times this at each `every`
  double gamma = 0.0;    // exponential: rate * gamma^floor(t / every)
  double final = 0.0;    // cosine: the last rate as a part of the first
  friend bool operator==(const ScheduleConfig&, const ScheduleConfig&) = default;
};

struct EvalSection {
  Quantity every = {};
  int64_t batch = 0;
  friend bool operator==(const EvalSection&, const EvalSection&) = default;
};

// What picks the best model.
struct BestConfig {
  std::string metric = {};  // empty: accuracy for classes, loss for values
  std::string goes = {};    // up | down; empty: as the metric says
  SourceMark mark = {};
  friend bool operator==(const BestConfig&, const BestConfig&) = default;
};

// Ends a run whose evaluations no longer improve.
struct EarlyStopConfig {
  std::string metric = {};  // empty: that of train.best
  std::string goes = {};    // up | down; empty: as the metric says
  int64_t patience = 0;     // evaluations without improvement
  double min_delta = 0;     // what counts as one is larger
  SourceMark mark = {};
  friend bool operator==(const EarlyStopConfig&, const EarlyStopConfig&) = default;
};

struct TrainSection {
  Quantity stop = {};
  BestConfig best = {};
  std::optional<EarlyStopConfig> early_stop = {};
  std::map<std::string, Attributes> metrics = {};  // keys of metrics that have some
  EvalSection eval = {};
  friend bool operator==(const TrainSection&, const TrainSection&) = default;
};

// The text that a configuration was read from. All origins compare equal, as marks do.
struct ConfigOrigin {
  std::string name = {};                           // of the file, for messages
  std::string text = {};                           // of the file, as it was
  std::vector<std::string> overrides = {};         // as given
  std::string note = {};                           // old words that a user wrote, one line for the log; empty: none
  std::vector<std::string> warnings = {};          // of a user's text: keys without effect, each with its place
  std::string preset_name = {}, preset_text = {};  // of the file of model.preset; empty: there is none
  friend bool operator==(const ConfigOrigin&, const ConfigOrigin&) { return true; }
};

struct RunConfig {
  int64_t version = 1;
  std::vector<std::string> plugins = {};  // absolute paths, as they were loaded
  RunSection run = {};
  DeviceSection device = {};
  DataSection data = {};
  std::vector<LayerConfig> layers = {};
  std::string init_from = {};  // model.init_from: run folder, checkpoint or model file; empty: none
  SourceMark init_from_mark = {};
  std::vector<WeightName> rename = {};   // of a file of another program
  std::vector<std::string> ignore = {};  // globs: tensors of that file that no parameter gets
  DType values = dtypes::fp32;           // model.values: between layers, fp32 or bf16
  QuantSection quant = {};
  std::optional<AdaptersConfig> adapters = {};
  BatchSection batch = {};
  std::string loss = {};
  Attributes loss_keys = {};  // of its kind
  OptimConfig optim = {};
  ScheduleConfig schedule = {};
  TrainSection train = {};
  Quantity checkpoint_every = {};
  Quantity log_every = {};
  std::optional<Quantity> log_quantization = {};  // none: off
  bool log_report = true;                         // report.html and evaluation.json
  bool log_tensorboard = false;                   // event files
  std::optional<double> log_peak = {};            // 10^9 multiplications a second; none: not known
  ConfigOrigin origin = {};
  friend bool operator==(const RunConfig&, const RunConfig&) = default;
};

// Where a text comes from, which says what wins for data.root. An override always does; then, of a user's text, the
// key, $BITGRAD_DATA and the configuration's folder; of what a run remembers $BITGRAD_DATA, the key, `root` and the
// file's folder.
struct ConfigSource {
  bool run = false;
  std::string root = {};
  // How plugins are found: by their paths; by their file names among those that are loaded, for they may be elsewhere
  // now, else by their paths (config.yaml of a run); by their file names alone (texts within files: a file loads no
  // code).
  enum class Plugins : uint8_t { kPath, kNameOrPath, kLoaded };
  Plugins plugins = Plugins::kPath;
};

// Reads and checks a file. Overrides are "a.b=value", "a.0.b=value" for items of lists, or "~a.b" (back to the
// default); they count from 1 in messages, and the last one for a key holds. Throws ConfigError with everything that is
// wrong.
RunConfig load_config(const std::string& path, const std::vector<std::string>& overrides = {},
                      const ConfigSource& source = {});
// The same for text; `name` stands for the file in messages, and its folder is where relative paths start.
RunConfig parse_config(std::string_view text, const std::string& name, const std::vector<std::string>& overrides = {},
                       const ConfigSource& source = {});
// The resolved configuration, complete: every key that applies, with defaults. Reads back to an equal RunConfig.
std::string to_yaml(const RunConfig& config);
// The same without paths of this machine (data.root, the folders of plugins): what files of a model hold.
std::string to_portable_yaml(const RunConfig& config);
// A key that two configurations do not give the same value: its path as overrides have it, and the values as to_yaml
// writes them; none: the key is not there.
struct ConfigDifference {
  std::string key = {};
  std::optional<std::string> a = {}, b = {};
};
// In the order of the keys of `a`, then those of `b` alone. Empty: the configurations are equal.
std::vector<ConfigDifference> config_differences(const RunConfig& a, const RunConfig& b);
// A finding of a later stage (a model that does not fit the data) in the form of the reader's own, at a mark of this
// config.
ConfigError config_error_at(const RunConfig& config, SourceMark mark, const std::string& message);
// The tables of docs/configuration.md.
std::string config_reference();
// A JSON Schema (draft 7) of configurations, for editors.
std::string config_schema();
// The paths of all keys, "optim.lr"; N stands for the number of an item of a list.
std::vector<std::string> config_key_paths();
// What a key means, its values, its default and an example, as lines. `key`: a path, or the end of one ("lr",
// "linear.out"); several keys may end so. Throws Error with the nearest name for one that does not exist.
std::string explain_config_key(const std::string& key);

}  // namespace bitgrad
