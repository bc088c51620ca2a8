// Checks for contradictions between keys. A check is silent if one of its keys is already wrong, or was probably meant
// by an unknown key.
#include <algorithm>

#include "bitgrad/base/text.h"
#include "bitgrad/data/tokenizer.h"
#include "bitgrad/nn/layers.h"
#include "config/bind.h"
#include "config/choices.h"

namespace bitgrad::config {
namespace {

class Checks {
 public:
  Checks(const Node& root, RunConfig& config, Report& report) : root_(root), config_(config), report_(report) {}

  void run() {
    batch();
    requantize();
    pixel_values("data.affine");
    pixel_values("data.normalize");
    affine();
    augment();
    labels();
    targets();
    transforms();
    best();
    valid();
    texts("data.test", config_.data.test);
    texts("data.valid", config_.data.valid);
    each_dataset([this](const std::string& path, const DatasetConfig& c) { tokens(path, c); });
    each_dataset([this](const std::string& path, const DatasetConfig& c) { documents(path, c); });
    tokenizer();
    schedule();
    momentum();
    evaluation();
    moments();
    rules_of_weights();
    masters();
    bop();
    last_layer();
    if (report_.empty()) check_plan(root_, config_, report_);
  }

 private:
  // Calls use(path, section) for each data set that is set.
  template <typename Use>
  void each_dataset(Use use) {
    use("data.train", config_.data.train);
    if (config_.data.valid) use("data.valid", *config_.data.valid);
    if (config_.data.test) use("data.test", *config_.data.test);
  }
  // Whether the key at this path, and every map on the way, is known to be valid, or known to be absent.
  bool sound_path(const std::string& path) const {
    const Node* node = &root_;
    for (const std::string& part : split(path, '.')) {
      if (!sound(node, part)) return false;
      node = node ? node->child(part) : nullptr;
    }
    return true;
  }
  const Node* find(const std::string& path) const { return node_at(root_, path); }
  // Reports at the value of the first path that is set, preferring the command line.
  void contradiction(const std::vector<std::string>& paths, const std::string& message) {
    const Node* blamed = nullptr;
    for (const std::string& path : paths) {
      const Node* node = find(path);
      if (node && (!blamed || nearness(node->mark) > nearness(blamed->mark))) blamed = node;
    }
    report_.error(blamed ? blamed->mark : SourceMark{0, 1, 1}, message, blamed ? blamed->length() : 1);
  }

  // "300 or 400": the multiples of `unit` nearest to x.
  static std::string neighbours(int64_t x, int64_t unit) {
    const int64_t below = x / unit * unit, above = below + unit;
    return below > 0 ? concat(below, " or ", above) : concat(above);
  }

  bool batch_is_good() const {
    return sound_path("batch.global") && sound_path("batch.micro") && config_.batch.micro > 0 &&
           config_.batch.global % config_.batch.micro == 0;
  }
  void batch() {
    if (!sound_path("batch.global") || !sound_path("batch.micro") || batch_is_good()) return;
    const int64_t global = config_.batch.global, micro = config_.batch.micro;
    contradiction({"batch.global", "batch.micro"},
                  concat("batch.global (", global, ") is not a multiple of batch.micro (", micro,
                         "); nearest: ", neighbours(global, micro)));
  }
  void requantize() {
    if (!batch_is_good() || !sound_path("quant.requantize_every")) return;
    const int64_t a = config_.batch.accumulate(), n = config_.quant.requantize_every;
    if (n % a != 0)
      contradiction({"quant.requantize_every", "batch.global"},
                    concat("quant.requantize_every (", n, ") is not a multiple of A = batch.global / batch.micro = ", a,
                           "; nearest: ", neighbours(n, a)));
  }
  void affine() {
    if (sound_path("data.affine") && config_.data.affine[0] == 0.0)
      contradiction({"data.affine"}, "data.affine: a factor of 0 makes all pixels equal");
    const Node *const affine = find("data.affine"), *const normalize = find("data.normalize");
    if (sound_path("data.affine") && sound_path("data.normalize") && affine && normalize)
      contradiction({"data.normalize"}, concat("data.normalize and data.affine (", place(affine->mark),
                                               ") both say what a pixel becomes: give one of them"));
  }
  static std::string place(const SourceMark& mark) {
    return mark.argument > 0 ? concat("command line, argument ", mark.argument) : concat(mark.line, ':', mark.col);
  }
  void pixel_values(const std::string& path) {
    if (sound_path(path) && sound_path("data.train") && find(path) && choices::reads_ids(config_))
      contradiction({path},
                    concat(path, " is for pixels, data.train of format ", config_.data.train.format, " has ids"));
  }
  void augment() {
    for (const std::string path : {"data.test.augment", "data.valid.augment"})
      if (sound_path(path) && find(path))
        contradiction({path}, path + ": augmentation applies to training samples only");
    if (sound_path("data.train.augment") && find("data.train.augment") && choices::reads_ids(config_))
      contradiction({"data.train.augment"}, concat("data.train.augment needs images, data.train of format ",
                                                   config_.data.train.format, " has ids"));
    const auto says = [this](const char* key) { return find(concat("data.train.augment.", key)) != nullptr; };
    if (sound_path("data.train.augment") && find("data.train.augment") && !says("crop_pad") && !says("flip"))
      contradiction({"data.train.augment"},
                    "data.train.augment changes no image: give crop_pad or flip, or leave the key out");
  }
  // labels of cifar100 is a word, not a file.
  void labels() {
    const auto check = [&](const std::string& path, const DatasetConfig& c) {
      if (!sound_path(path + ".labels") || c.format != "cifar100" || c.labels.empty()) return;
      if (c.labels != "fine" && c.labels != "coarse")
        contradiction({path + ".labels"}, concat(path, ".labels: got '", c.labels,
                                                 "', expected fine (100 classes) or coarse (20 classes)"));
    };
    each_dataset(check);
  }
  // targets is a file, or for texts a word. Labels and targets exclude each other.
  void targets() {
    const auto check = [&](const std::string& path, const DatasetConfig& c) {
      if (!sound_path(path + ".targets") || c.targets.empty()) return;
      const bool known = c.targets == "last" || c.targets == "each";
      if (c.format == "text" && !known)
        contradiction({path + ".targets"}, concat(path, ".targets of a text: got '", c.targets,
                                                  "', expected last (the "
                                                  "byte after the sample) or each (the next byte at every position)"));
      if (c.format != "text" && !c.labels.empty())
        contradiction({path + ".targets"},
                      concat(path, " has both labels and targets: labels are classes, targets are values. Give one"));
    };
    each_dataset(check);
  }
  void transforms() {
    for (const std::string path : {"data.test.transforms", "data.valid.transforms"})
      if (sound_path(path) && find(path)) contradiction({path}, path + ": transforms apply to training samples only");
    if (sound_path("data.train.transforms") && !config_.data.train.transforms.empty() && choices::reads_ids(config_))
      contradiction({"data.train.transforms"}, concat("data.train.transforms need values, data.train of format ",
                                                      config_.data.train.format, " has ids"));
  }
  bool evaluates() const { return find("data.test") || find("data.valid"); }
  void best() {
    if (!sound_path("data.test") || !sound_path("data.valid") || evaluates()) return;
    if (find("train.best"))
      contradiction(
          {"train.best"},
          "train.best needs data.test or data.valid, neither of which is set: the best model is selected on them");
    if (find("train.early_stop"))
      contradiction(
          {"train.early_stop"},
          "train.early_stop needs data.test or data.valid, neither of which is set: it looks at their evaluations");
  }
  // data.valid is a part of data.train, or data of its own.
  void valid() {
    for (const std::string path : {"data.train.fraction", "data.test.fraction"})
      if (sound_path(path) && find(path))
        contradiction({path}, concat(path, " is a key of data.valid: a part of data.train that is not trained on"));
    if (!sound_path("data.valid") || !config_.data.valid) return;
    const DatasetConfig& valid = *config_.data.valid;
    const Node* const map = find("data.valid");
    if (valid.fraction > 0 && map->entries.size() > 1)
      contradiction({"data.valid.fraction"},
                    "data.valid.fraction selects samples of data.train and cannot be combined with other keys");
    if (valid.fraction == 0 && sound_path("data.test") && config_.data.test && *config_.data.test == valid)
      contradiction({"data.valid"}, "data.valid and data.test are the same data: give other data, or one of the two");
  }
  // Keys that must agree: ids depend on the whole file, and the test part on both fractions.
  void texts(const std::string& path, const std::optional<DatasetConfig>& other) {
    if (!sound_path("data.train") || !sound_path(path) || !other || other->fraction > 0) return;
    const DatasetConfig &train = config_.data.train, &test = *other;
    const bool tokens = train.format == "tokens" && test.format == "tokens";
    if (!tokens && (train.format != "text" || test.format != "text")) return;
    const auto same = [&](const std::string& key, const auto& a, const auto& b, std::string_view why) {
      const std::string here = concat(path, '.', key);
      if (a == b || !sound_path("data.train." + key) || !sound_path(here)) return;
      const bool missing = !find("data.train." + key) || !find(here);
      if (missing && find_key("dataset", key)->required()) return;  // already reported
      contradiction({here, "data.train." + key},
                    concat(here, " (", b, ") must be data.train.", key, " (", a, "): ", why));
    };
    if (!tokens) same("file", train.file, test.file, "ids are assigned from the file's bytes");
    same("context", train.context, test.context, "samples are of one length");
    same("targets", train.targets, test.targets, "both have targets at the same positions");
    if (train.split != test.split && train.file == test.file)
      same("test_fraction", train.test_fraction, test.test_fraction,
           "it splits the file once, so that the parts do not overlap");
  }

  static bool reads_text(const DatasetConfig& c) {
    return c.format == "tokens" && (!c.keys.contains("stored") || c.keys.text("stored") == "text");
  }
  // Requires what the file does not say: the tokenizer of a text, or the vocabulary size of ids.
  void tokens(const std::string& path, const DatasetConfig& c) {
    if (c.format != "tokens" || !sound_path(path + ".stored") || !sound_path("data.tokenizer")) return;
    if (reads_text(c) && config_.data.tokenizer.empty())
      contradiction({path + ".format"}, concat(path,
                                               " of format tokens reads a text: set data.tokenizer (chars, bytes or "
                                               "a file) or the stored form of its ids"));
    const bool says = is_tokenizer_file(config_.data.tokenizer) || c.keys.text("stored") == "shard";
    if (!reads_text(c) && !says && sound_path(path + ".vocabulary") && !find(path + ".vocabulary"))
      contradiction({path + ".stored"}, concat(path, ".stored: ", c.keys.text("stored"),
                                               ": a file of ids does not say how many there are: set ", path,
                                               ".vocabulary, or data.tokenizer to the file of what made them"));
  }
  // Only layers that mix positions (LayerKind::causal) can separate documents.
  void documents(const std::string& path, const DatasetConfig& c) {
    const std::string key = path + ".documents";
    if (c.format != "tokens" || !sound_path(key) || !sound_path("model.layers") || config_.layers.empty()) return;
    if (!c.keys.contains("documents") || c.keys.text("documents") != "apart") return;
    bool attends = false;
    for_each_layer(config_.layers,
                   [&](const LayerSpec& layer) { attends = attends || find_layer_kind(layer.kind)->causal; });
    if (!attends)
      contradiction({key}, concat(key,
                                  ": got apart, which is what attention sees, and the model has no attention layer. "
                                  "Expected joined, or a model with attention"));
  }
  void tokenizer() {
    const std::string& name = config_.data.tokenizer;
    if (name.empty() || !sound_path("data.tokenizer") || !sound_path("data.train.format")) return;
    if (config_.data.train.format != "tokens" && !(config_.data.test && config_.data.test->format == "tokens"))
      contradiction({"data.tokenizer"}, "data.tokenizer only applies to format tokens, which is not used here");
    const std::vector<std::string> known = tokenizer_names();
    if (std::find(known.begin(), known.end(), name) != known.end() || is_tokenizer_file(name)) return;
    std::string names;
    for (const std::string& k : known) names += k + ", ";
    const std::string near = nearest_name(name, known);
    contradiction({"data.tokenizer"}, concat("data.tokenizer: got '", name, "', expected one of ", names,
                                             "or a file with .json or .model at its end",
                                             near.empty() ? "" : concat("; did you mean '", near, "'?")));
  }

  static bool at_least(const Quantity& a, const Quantity& b) { return a.unit == b.unit && a.value >= b.value; }
  void schedule() {
    schedule_at("schedule", config_.schedule);
    schedule_at("optim.decay_schedule", config_.optim.decay_schedule);
    schedule_at("optim.momentum_schedule", config_.optim.momentum_schedule);
    if (!sound_path("schedule") || !sound_path("optim")) return;
    if (config_.schedule.name == "plateau" && sound_path("data.test") && sound_path("data.valid") && !evaluates())
      contradiction({"schedule.name"},
                    "schedule plateau needs data.test or data.valid, neither of which is set: it looks at their "
                    "evaluations");
    const ScheduleConfig &decay = config_.optim.decay_schedule, &momentum = config_.optim.momentum_schedule;
    for (const auto& [path, c] : {std::pair("optim.decay_schedule", &decay), {"optim.momentum_schedule", &momentum}})
      if (c->name == "plateau")
        contradiction({concat(path, ".name")},
                      concat(path, ": plateau follows evaluations, and only schedule does. Use another one"));
    const OptimizerSpec& optim = config_.optim.spec;
    const std::vector<OptimizerSpec>& aux = optim.aux;
    const auto any_aux = [&](auto has) { return std::any_of(aux.begin(), aux.end(), has); };
    if (changes(momentum) && optim.momentum.value_or(1) == 0 && sound_path("optim.momentum") &&
        !any_aux([](const OptimizerSpec& s) { return s.momentum.value_or(0) > 0; }))
      contradiction({"optim.momentum_schedule"}, "optim.momentum_schedule has no effect: optim.momentum is 0");
    const bool grows = std::any_of(momentum.factors.begin(), momentum.factors.end(), [](double f) { return f > 1; });
    if (grows)
      contradiction({"optim.momentum_schedule.factors"},
                    "optim.momentum_schedule.factors: got a factor above 1, expected numbers in [0, 1]: optim.momentum "
                    "is the largest");
    bool decays = optim.weight_decay > 0 || any_aux([](const OptimizerSpec& s) { return s.weight_decay > 0; });
    each_weights(
        [&](const ParameterSpec& weights, const std::string&) { decays |= weights.weight_decay.value_or(0) > 0; });
    if (changes(decay) && !decays && sound_path("model.layers") && sound_path("quant.weights"))
      contradiction({"optim.decay_schedule"},
                    "optim.decay_schedule has no effect: optim.weight_decay is 0, and no weights have their own");
  }
  static bool changes(const ScheduleConfig& c) { return c.name != "constant" || c.warmup.value > 0; }
  void schedule_at(const std::string& path, const ScheduleConfig& c) {
    if (!sound_path(path)) return;
    if (c.warmup_from > 0 && c.warmup.value == 0)
      contradiction({path + ".warmup_from"}, concat(path, ".warmup_from has no effect without ", path, ".warmup"));
    if (c.name == "one_cycle" && c.warmup.value > 0)
      contradiction({path + ".warmup"}, concat(path, ".warmup: got ", c.warmup, ", one_cycle rises by itself (rise)"));
    const bool multistep = c.name == "multistep";  // elsewhere `at` and `factors` are reported as keys of another name
    if (multistep && find(path + ".factor") && find(path + ".factors"))
      contradiction({path + ".factors"}, concat(path, ": got factor and factors, expected one of them"));
    if (multistep && sound_path(path + ".at") && !c.factors.empty() && c.factors.size() != c.at.size())
      contradiction({path + ".factors"}, concat(path, ".factors: got ", c.factors.size(),
                                                " numbers, expected one for each of the ", c.at.size(), " in at"));
    if (!sound_path("train.stop") || !find("train.stop")) return;
    const Quantity& stop = config_.train.stop;
    if (c.warmup.value > 0 && at_least(c.warmup, stop))
      contradiction(
          {path + ".warmup", "train.stop"},
          concat(path, ".warmup (", c.warmup, ") is not shorter than train.stop (", stop, "): a shorter run needs ",
                 path, ".warmup of less, such as ", path, ".warmup=", Quantity{stop.value / 10, stop.unit}));
    if (c.name == "wsd" && c.cooldown.unit == stop.unit && c.cooldown.value > stop.value)
      contradiction({path + ".cooldown", "train.stop"},
                    concat(path, ".cooldown (", c.cooldown, ") is longer than train.stop (", stop, ')'));
  }
  void momentum() {
    const auto check = [&](const OptimizerSpec& rule, const std::string& path) {
      if (rule.nesterov.value_or(false) && rule.momentum.value_or(1) == 0 && sound_path(path + ".momentum"))
        contradiction({path + ".nesterov", path + ".momentum"},
                      concat(path, ".nesterov needs ", path, ".momentum above 0"));
    };
    const OptimizerSpec& optim = config_.optim.spec;
    check(optim, "optim");
    if (!optim.aux.empty()) check(optim.aux[0], "optim.aux");
  }
  void evaluation() {
    if (!find("train.eval") || find("train.eval")->entries.empty() || evaluates()) return;
    if (sound_path("data.test") && sound_path("data.valid"))
      contradiction({"train.eval"}, "train.eval needs data.test or data.valid, neither of which is set");
  }

  // Calls use(weights, path of the layer's own keys) for each layer with weights, if everything they derive from is
  // valid.
  template <typename Use>
  void each_weights(Use use) {
    if (!sound_path("model.layers") || !sound_path("quant.weights")) return;
    for_each_layer(config_.layers, [&](const LayerSpec& layer) {
      if (choices::has_weights(layer)) use(layer.weight, origin_of(layer).path + ".weights");
    });
  }
  // Calls use(weights, path) for each rule that sets weights.
  template <typename Use>
  static void each_rule(const PrepareConfig& prepare, const std::string& path, Use use) {
    for (size_t i = 0; i < prepare.rules.size(); ++i)
      if (const auto& weights = prepare.rules[i].quant.weights) use(*weights, concat(path, ".rules.", i, ".weights"));
  }
  void moments() {
    const OptimizerSpec& optim = config_.optim.spec;
    if (!optim.aux.empty() && optim.aux[0].name == "sgd" && optim.aux[0].momentum.value_or(0) == 0 &&
        find("optim.aux.moments"))
      contradiction({"optim.aux.moments"}, "optim.aux.moments: optim.aux.name sgd without momentum keeps no moments");
    if (optim.name == "adafactor") {
      bool once = false;
      each_weights([&](const ParameterSpec& weights, const std::string& path) {
        if (once || weights.moments.value_or(MomentKind::kFp32) == MomentKind::kFp32 || !weights.optimizer.empty())
          return;
        contradiction({path + ".moments", "quant.weights.moments"},
                      concat(path,
                             ".moments: optim.name adafactor keeps means of rows and columns of a weight, in "
                             "fp32; optim.moments applies to vectors"));
        once = true;
      });
    }
    if (optim.name != "sgd" || optim.momentum.value_or(0) != 0 || !sound_path("optim.name") ||
        !sound_path("optim.momentum"))
      return;
    const std::string message = "optim.name sgd without momentum keeps no moments, got ";
    bool flips = false;  // Bop keeps a moment of its own
    each_weights([&](const ParameterSpec& weights, const std::string&) { flips |= weights.optimizer == "bop"; });
    if (optim.moments != MomentKind::kFp32 && !flips && sound_path("optim.moments"))
      return contradiction({"optim.moments"}, concat("optim.moments: ", message, enum_name(optim.moments)));
    bool reported = false;
    each_weights([&](const ParameterSpec& weights, const std::string& path) {
      if (reported || weights.moments.value_or(MomentKind::kFp32) == MomentKind::kFp32 || !weights.optimizer.empty())
        return;
      contradiction({path + ".moments", "quant.weights.moments"},
                    concat(path, ".moments: ", message, enum_name(*weights.moments)));
      reported = true;
    });
  }
  void rules_of_weights() {
    const OptimizerSpec& optim = config_.optim.spec;
    if (!sound_path("optim.name") || optim.name.empty()) return;
    if (optim.ns == NsDType::kBf16 && config_.run.bits == "strict" && sound_path("optim.ns"))
      contradiction({"optim.ns", "run.bits"},
                    "optim.ns bf16: its products have no order that all machines share, which run.bits strict needs");
    if (!optim.ns_triples.empty() && optim.ns_coefficients != NsCoefficients::kJordan)
      contradiction({"optim.ns_triples"},
                    "optim.ns_triples: got numbers beside optim.ns_coefficients, expected one of them");
    if (std::ssize(optim.ns_triples) > 3 * optim.ns_steps)
      contradiction({"optim.ns_triples", "optim.ns_steps"},
                    concat("optim.ns_triples: got ", optim.ns_triples.size() / 3, " triples for ", optim.ns_steps,
                           " iterations (optim.ns_steps)"));
    if (optim.ns_triples.size() % 3 != 0)
      contradiction({"optim.ns_triples"}, concat("optim.ns_triples: got ", optim.ns_triples.size(),
                                                 " numbers, expected a, b and c of each iteration"));
    const bool hidden_only = choices::updates_hidden_only(optim.name);
    bool reported = false;
    each_weights([&](const ParameterSpec& weights, const std::string& path) {
      const bool aux = weights.optimizer == "aux", idle = weights.matrices > 0 && (aux || weights.frozen);
      if (reported || (hidden_only ? !idle : !aux && weights.matrices == 0)) return;
      const char* const key = weights.matrices == 0 ? "optimizer" : "matrices";
      const std::string why = hidden_only ? std::string("of weights that ") + (aux ? "aux updates" : "are frozen")
                                          : concat("with optim.name ", optim.name,
                                                   ", which updates every parameter by itself. Use muon or normuon");
      contradiction({concat(path, '.', key), concat("quant.weights.", key)},
                    concat(path, '.', key, ": has no effect ", why));
      reported = true;
    });
  }
  void masters() {
    if (!batch_is_good() || !sound_path("quant.requantize_every")) return;
    const int64_t a = config_.batch.accumulate(), n = config_.quant.requantize_every;
    bool reported = n == a || n % a != 0;
    const auto check = [&](const ParameterSpec& weights, const std::string& path) {
      if (reported || weights.master != MasterKind::kNone) return;
      contradiction({"quant.requantize_every", path + ".master", "quant.weights.master"},
                    concat("quant.requantize_every (", n, ") must be A = batch.global / batch.micro = ", a, ": ", path,
                           " has master none, whose codes change in each optimizer step"));
      reported = true;
    };
    each_weights(check);
    if (!sound_path("quant.rules") || !sound_path("quant.phases")) return;
    each_rule(config_.quant.prepare, "quant", check);
    for (size_t i = 0; i < config_.quant.phases.size(); ++i)
      if (const auto& prepare = config_.quant.phases[i].prepare) each_rule(*prepare, concat("quant.phases.", i), check);
  }

  void bop() {
    for (const char* path : {"optim.bop", "model.layers", "quant.weights.optimizer"})
      if (!sound_path(path)) return;
    if (config_.optim.spec.bop == BopSpec{}) return;
    bool used = config_.quant.weights.optimizer == "bop";
    each_weights([&](const ParameterSpec& weights, const std::string&) { used = used || weights.optimizer == "bop"; });
    if (!used) contradiction({"optim.bop"}, "optim.bop requires weights with optimizer bop, there are none");
  }

  // The output must come from a layer that computes scores, at most normalized and dequantized: anything else would
  // clip or distort them.
  void last_layer() {
    const Node* layers = find("model.layers");
    if (!layers || !sound_path("model.layers") || config_.layers.size() != layers->items.size()) return;
    bool any = false;
    for_each_layer(config_.layers, [&](const LayerSpec& layer) {
      any = any || (output_of(layer) == Output::kScores && layer.lists.empty());
    });
    const LayerSpec* const last = output_layer(config_.layers);
    if (last == nullptr || !any) {
      contradiction({"model.layers"}, "model.layers: missing a linear layer, which computes the scores of the classes");
      return;
    }
    if (output_of(*last) == Output::kNone)
      report_.error(origin_of(*last).mark,
                    concat("model.layers: the output must come from a linear layer, with nothing but norms or "
                           "dequantize after it; got ",
                           last->kind, " after the last one"),
                    last->kind.size());
  }
  using Output = LayerKind::Output;
  static Output output_of(const LayerSpec& layer) { return find_layer_kind(layer.kind)->output; }
  // The last layer that does not merely preserve scores; descends into containers that run their layers in order.
  static const LayerSpec* output_layer(const std::vector<LayerSpec>& layers) {
    for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
      const LayerLists::Kind form = find_layer_kind(layer->kind)->lists.kind;
      const bool in_order = form == LayerLists::Kind::kInline || form == LayerLists::Kind::kRepeated;
      if (!in_order && output_of(*layer) != Output::kKeeps) return &*layer;
      if (in_order && !layer->lists.empty())
        if (const LayerSpec* const inner = output_layer(layer->lists[0].layers)) return inner;
    }
    return nullptr;
  }

  const Node& root_;
  RunConfig& config_;
  Report& report_;
};

}  // namespace

void check_contradictions(const Node& root, RunConfig& config, Report& report) { Checks(root, config, report).run(); }

}  // namespace bitgrad::config
