// bitgrad quantize RUN_OR_FILE -o FILE --recipe NAME [...]: post-training quantization. The fp32 weights of the model
// are quantized as the rules specify, or as a budget in bytes chooses. Ranges and learned step sizes of inputs are
// calibrated on samples of data.train. Nothing is trained. The statistics of batch norm are renewed on such samples;
// with --method, if norms is among them.
#include <algorithm>
#include <iostream>
#include <optional>
#include <utility>

#include "bitgrad/base/text.h"
#include "bitgrad/nn/integer_graph.h"
#include "bitgrad/tools/budget.h"
#include "changed_model.h"
#include "command.h"
#include "open_file.h"
#include "output.h"
#include "output_file.h"

namespace bitgrad::cli {
namespace {

struct QuantizeOptions {
  ModelChoice choice;
  std::string out, recipe, first, last, observer, output_rounding, budget;
  std::vector<std::string> rules;
  std::vector<int64_t> bits;                             // of budget
  int64_t samples = 1000, batches = 0, batch_norm = -1;  // batch_norm -1: the samples of the calibration
  PtqSpec methods = {};
  bool dry_run = false, force = false, json = false;
};

bool has_norms(Module& model) {
  const auto buffers = model.buffers();
  return std::any_of(buffers.begin(), buffers.end(),
                     [](const Module::Buffer& b) { return b.path.ends_with(".running_var"); });
}

int64_t rows_of(std::span<const SampleBatch> samples) {
  int64_t rows = 0;
  for (const SampleBatch& s : samples) rows += s.x.shape()[0];
  return rows;
}

QuantRuleConfig parse_rule(const std::string& text) {
  const size_t equals = text.rfind('=');
  require(equals != std::string::npos && equals > 0 && equals + 1 < text.size(), "quantize", "--rule: got '", text,
          "', expected GLOB=RECIPE, such as layers.0=int8wo");
  QuantRuleConfig rule;
  rule.layers = text.substr(0, equals);
  rule.quant.recipe = find_recipe(text.substr(equals + 1)).recipe;
  return rule;
}

// Rounds alike in all layers; a recipe of all layers becomes a rule, which alone has the key.
void set_output_rounding(const std::string& name, PrepareConfig& prepare) {
  require(!prepare.first && !prepare.last, "quantize",
          "--output-rounding is of compute: integer, which all layers have: got also --first or --last");
  const auto rounding = parse_enum<OutputRounding>(name, "quantize", "--output-rounding");
  require(rounding != OutputRounding::kRuy, "quantize",
          "--output-rounding: ruy, that of LiteRT's kernels without XNNPACK, is for tests alone. Use double, single or "
          "float");
  if (prepare.recipe) {
    QuantRuleConfig all;
    all.layers = "*";
    all.quant.recipe = *std::exchange(prepare.recipe, std::nullopt);
    prepare.rules.insert(prepare.rules.begin(), all);
  }
  for (QuantRuleConfig& rule : prepare.rules) {
    require(find_recipe(rule.quant.recipe).compute == Compute::kInteger, "quantize",
            "--output-rounding is of networks of integers: got recipe ", rule.quant.recipe,
            ", expected one such as int8");
    rule.quant.output_rounding = rounding;
  }
}

// The configuration of the result, without the run's own rules. Layers that no option names are fp32.
RunConfig target_config(const QuantizeOptions& options, const RunConfig& run) {
  RunConfig config = float_config(run);
  PrepareConfig& prepare = config.quant.prepare;
  const auto name = [](const std::string& recipe, std::optional<std::string>& field) {
    if (!recipe.empty()) field = find_recipe(recipe).recipe;
  };
  name(options.recipe, prepare.recipe);
  name(options.first, prepare.first);
  name(options.last, prepare.last);
  for (const std::string& text : options.rules) prepare.rules.push_back(parse_rule(text));
  require(!options.recipe.empty() || !options.rules.empty() || !options.budget.empty(), "quantize",
          "got no --recipe, --rule or --budget, expected --recipe NAME or --rule GLOB=NAME, or --budget SIZE");
  if (!options.output_rounding.empty()) set_output_rounding(options.output_rounding, prepare);
  return config;
}

// The share of codes that the calibrated ranges clamp, of a network of integers: a range that is too narrow costs
// accuracy and shows nowhere else.
std::vector<inference::ClampedCodes> clamped_of(Learner& learner, std::span<const SampleBatch> samples) {
  if (!inference::integer_rule(learner.model())) return {};
  const inference::IntegerNetwork network(inference::deployed(learner.model(), *learner.input()));
  const std::vector<Tensor> batches = tensors_of(samples.first(std::min<size_t>(samples.size(), 1)));
  return inference::clamped_codes(network, batches);
}

void print_clamped(std::ostream& out, const std::vector<inference::ClampedCodes>& clamped) {
  if (clamped.empty()) return;
  out << "codes that the calibrated ranges clamp, in the first batch:";
  bool any = false;
  constexpr double kPercent = 100;
  for (const auto& [layer, share] : clamped)
    if (share > 0) out << (std::exchange(any, true) ? ", " : " ") << layer << ' ' << kPercent * share << " %";
  out << (any ? "" : " none") << '\n';
}

Json fitted_json(const PtqLayer& layer) {
  Json steps = Json::array();
  for (const PtqStep& s : layer.steps) {
    Json step{{"method", s.method}};
    if (!s.refused.empty())
      step["refused"] = s.refused;
    else
      step.update({{"before", s.before}, {"after", s.after}, {"kept", s.kept}, {"seconds", s.seconds}});
    steps.push_back(step);
  }
  Json j{{"layer", layer.layer}, {"steps", steps}};
  if (layer.skipped.empty())
    j.update({{"before", layer.before}, {"after", layer.after}, {"rows", layer.rows}, {"inputs", layer.inputs}});
  else
    j["skipped"] = layer.skipped;
  return j;
}

// Whether method norms is asked for, by name or by --batch-norm.
void settle_norms(QuantizeOptions& options) {
  std::vector<std::string>& methods = options.methods.methods;
  if (methods.empty()) return;
  check_ptq(options.methods);
  const bool listed = std::count(methods.begin(), methods.end(), "norms") > 0;
  require(!listed || options.batch_norm != 0, "quantize",
          "--method norms renews statistics, --batch-norm 0 keeps them");
  if (!listed && options.batch_norm > 0) methods.push_back("norms");
  if (!listed && options.batch_norm < 0) options.batch_norm = 0;
}

// The methods that fit a layer which alone is quantized. norms is no such method, but measurements renew statistics on
// the same samples, at the same places of the order.
PtqSpec layer_methods(const QuantizeOptions& options) {
  PtqSpec methods = options.methods;
  std::erase(methods.methods, "norms");
  return methods;
}

// What --budget says, checked before anything is read.
struct WantedBudget {
  int64_t bytes = 0;
  std::vector<WeightChoice> choices = {};
};
std::optional<WantedBudget> wanted_budget(const QuantizeOptions& options) {
  if (options.budget.empty()) return std::nullopt;
  check_layer_methods(layer_methods(options));
  return WantedBudget{budget_bytes(options.budget),
                      budget_choices(options.bits.empty() ? BudgetConfig{}.bits : options.bits)};
}

// The bits of each layer, measured with the methods that the model is then quantized with.
BudgetPlan plan_bits(const QuantizeOptions& options, const WantedBudget& wanted, Learner& floats,
                     std::span<const SampleBatch> samples, std::span<const SampleBatch> norm_samples) {
  floats.calibrate(tensors_of(samples));
  return plan_budget(measure_sensitivity(floats, samples, wanted.choices, norm_samples, layer_methods(options)),
                     wanted.bytes);
}

// Quantizes the learner by the options; what methods did to each layer.
std::vector<PtqLayer> quantize(const QuantizeOptions& options, Learner& learner, Learner* reference,
                               const PrepareSpec& spec, std::span<const SampleBatch> samples,
                               std::span<const SampleBatch> norm_samples) {
  if (reference != nullptr) {
    PtqSpec methods = options.methods;
    methods.must_fit = options.budget.empty();  // its measurement has used them; the choice may need none
    return quantize_with_methods(learner, *reference, spec, methods, samples, norm_samples);
  }
  quantize_after_training(learner, spec, samples, norm_samples);
  return {};
}

// What renewed statistics of norms do; nullopt: there are none, or they stay.
struct Renewal {
  std::optional<Evaluation> stale = {};    // the result with those of the file; with methods it is not made
  std::optional<Evaluation> renewed = {};  // the float model with renewed ones
};
Renewal renewal_of(const QuantizeOptions& options, const OpenedFile& file, const RunConfig& config,
                   const Dataset& measured, std::span<const SampleBatch> samples,
                   std::span<const SampleBatch> norm_samples) {
  Renewal renewal;
  const auto float_model = load_file(file, &measured);
  const int64_t batch = config.train.eval.batch;
  renew_norms(*float_model, norm_samples);
  renewal.renewed = evaluate(*float_model, measured, batch);
  if (!options.methods.methods.empty()) return renewal;
  const auto kept = load_floats(file.path, config, measured);
  quantize_after_training(*kept, prepare_spec_of(config), samples, {});
  renewal.stale = evaluate(*kept, measured, batch);
  return renewal;
}

void print_renewal(std::ostream& out, int64_t rows, const Renewal& renewal) {
  if (!renewal.renewed) return;
  out << "batch norm: statistics renewed on " << rows << " samples of data.train";
  if (renewal.stale) out << "; with those of the file: " << numbers_of(*renewal.stale);
  out << "\nbefore, with statistics renewed likewise: " << numbers_of(*renewal.renewed) << '\n';
}

Json result_json(const QuantizeOptions& options, const Evaluation& before, const Evaluation& after,
                 const std::string& split, const Renewal& renewal, const std::optional<BudgetPlan>& plan,
                 const std::vector<PtqLayer>& fitted) {
  Json j{{"file", options.out},
         {"bytes", file_bytes(options.out)},
         {"split", split},
         {"before", evaluation_json(before)},
         {"after", evaluation_json(after)}};
  if (renewal.renewed) j["before_renewed"] = evaluation_json(*renewal.renewed);
  if (renewal.stale) j["after_stale"] = evaluation_json(*renewal.stale);
  if (plan) j["budget"] = Json::parse(budget_json(*plan));
  for (const PtqLayer& layer : fitted) j["layers"].push_back(fitted_json(layer));
  return j;
}

int run_quantize(QuantizeOptions options) {
  settle_norms(options);
  const std::optional<WantedBudget> wanted = wanted_budget(options);
  const OpenedFile file = open_to_compute(options.choice);
  if (!options.dry_run) require_writable(options.out, options.force, {file.path});
  RunConfig config = target_config(options, file.config);
  apply_run_settings(config);
  const DeviceGuard guard(device_of(config));
  const auto train = open_dataset(config, config.data.train, {}, table_of(file.header, file.path));
  const std::string split = evaluation_split(config);
  const auto test = split == "train" ? nullptr : open_evaluation_dataset(config, {}, table_of(file.header, file.path));
  const Dataset& measured = test ? *test : *train;
  const int64_t batch = config.train.eval.batch;
  const auto read = [&](int64_t n) { return first_samples(*train, n, batch, file.header.seed); };
  const int64_t of_samples = options.batches > 0 ? options.batches * batch : options.samples;
  const auto samples = read(of_samples);
  const int64_t of_norms = options.batch_norm < 0 ? of_samples : options.batch_norm;
  const auto norm_samples = of_norms == 0            ? std::vector<SampleBatch>{}
                            : of_norms == of_samples ? samples
                                                     : read(of_norms);
  std::ostream& out = text_output(options.json);
  std::optional<BudgetPlan> plan;
  if (wanted) {
    plan = plan_bits(options, *wanted, *load_floats(file.path, config, measured), samples, norm_samples);
    config.quant.prepare.rules = budget_rules(*plan);
    out << plan->table << '\n';
  }
  const auto learner = load_floats(file.path, config, measured);
  if (!options.observer.empty()) config = with_observer(config, learner->model(), options.observer);
  const PrepareSpec spec = prepare_spec_of(config);
  print_choices(out, learner->model(), spec);
  if (options.dry_run) return 0;
  const Evaluation before = evaluate(*load_file(file, &measured), measured, batch);
  const bool renews = has_norms(learner->model()) && !norm_samples.empty();
  const Renewal renewal = renews ? renewal_of(options, file, config, measured, samples, norm_samples) : Renewal();
  const bool fits = !options.methods.methods.empty();
  const auto reference = fits ? load_floats(file.path, config, measured) : nullptr;
  const std::vector<PtqLayer> fitted = quantize(options, *learner, reference.get(), spec, samples, norm_samples);
  out << '\n';
  if (fits) print_ptq(out, fitted);
  print_quantization(out, learner->model());
  const std::vector<inference::ClampedCodes> clamped = clamped_of(*learner, samples);
  print_clamped(out, clamped);
  save_converted(options.out, *learner, file.header, config);
  const Evaluation after = evaluate(*load_file(open_file(options.out), &measured), measured, batch);
  print_before_after(out, before, describe(file), after, options.out, split);
  print_renewal(out, rows_of(norm_samples), renewal);
  if (!options.json) return 0;
  Json result = result_json(options, before, after, split, renewal, plan, fitted);
  for (const auto& [layer, share] : clamped)  // a layer whose codes have two scales is listed twice
    result["clamped"][layer] = std::max(share, result["clamped"].value(layer, 0.0));
  std::cout << result.dump(2) << '\n';
  return 0;
}

}  // namespace

Run setup_quantize(Arguments& args) {
  auto o = std::make_shared<QuantizeOptions>();
  add_target(args, o->choice);
  add_choice_options(args, o->choice, "--last-checkpoint");
  args.option("overrides", o->choice.overrides, "key=value of the configuration, such as data.root=DIR");
  args.option("-o,--out", o->out, "output file");
  const Argument of_all =
      args.option("--recipe", o->recipe, "recipe of all layers, such as int8wo, 8da4w (docs/quantization.md)")
          .suggest(recipe_names);
  const Argument first = args.option("--first", o->first, "recipe of the first layer").suggest(recipe_names);
  const Argument last = args.option("--last", o->last, "recipe of the last layer").suggest(recipe_names);
  const Argument rules =
      args.option("--rule", o->rules, "GLOB=RECIPE for layers by name, such as layers.0=int8wo; repeatable");
  const Argument observer =
      args.option("--observer", o->observer,
                  "observer that calibrates input ranges; default: ranges per row, calibrated for convolutions");
  const Argument rounding =
      args.option("--output-rounding", o->output_rounding,
                  "how a network of integers (recipe int8) rounds its sums: double (default), single, float")
          .suggest([] {
            return std::vector<std::string>{"double", "single", "float"};
          });
  Argument budget =
      args.option("--budget", o->budget,
                  "size such as '60 KB': chooses the bits of each layer's weights so that all fit into it, by the loss "
                  "of the samples when only one layer is quantized, with --method as the result is");
  for (const Argument& other : {of_all, first, last, rules, observer, rounding}) budget.excludes(other);
  add_bits_option(args, o->bits, "if not given").needs(budget);
  const Argument samples = args.option("--samples", o->samples, "number of data.train samples used for calibration")
                               .range(int64_t{1}, int64_t{1000000000});
  args.option("--batches", o->batches, "number of calibration batches of train.eval.batch, instead of --samples")
      .range(int64_t{1}, int64_t{1000000})
      .excludes(samples);
  args.option("--batch-norm", o->batch_norm,
              "number of data.train samples to renew the statistics of batch norm on; 0: keep them; default: "
              "that of --samples")
      .range(int64_t{0}, int64_t{1000000000});
  const Argument method =
      args.option("--method", o->methods.methods,
                  "methods that fit the quantized layers to the samples, in this order: " + joined(ptq_method_names()) +
                      "; a step that does not lower the error of its layer is not kept")
          .delimiter(',')
          .repeatable()
          .suggest(ptq_method_names);
  args.option("--damp", o->methods.damp,
              "of --method: added to the diagonal of the products of inputs, as a part of its mean; default: 0.01")
      .needs(method);
  const Argument dry =
      args.flag("--dry-run", o->dry_run, "print the precision of each layer and the rule that sets it; write nothing");
  args.flag("--force", o->force, "overwrite an existing file");
  args.flag("--json", o->json, "one JSON object on standard output").excludes(dry);
  return [o] { return run_quantize(*o); };
}

}  // namespace bitgrad::cli
