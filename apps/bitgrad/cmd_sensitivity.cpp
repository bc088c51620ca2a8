// bitgrad sensitivity RUN_OR_FILE [--bits 8,4,2] [--recipe NAME ...] [--samples N] [--json]: quantization
// sensitivity per layer: quantizes one layer at a time of the fp32 model and measures the effect on samples of
// data.train.
#include <iostream>

#include "bitgrad/base/file.h"
#include "bitgrad/base/text.h"
#include "bitgrad/tools/budget.h"
#include "changed_model.h"
#include "command.h"
#include "open_file.h"

namespace bitgrad::cli {
namespace {

struct SensitivityCommand {
  ModelChoice choice;
  bool json = false;
  std::vector<std::string> recipes;
  std::vector<int64_t> bits;
  int64_t samples = 1000, batch_norm = -1;  // batch_norm -1: samples
  PtqSpec methods = {};
};

int run_sensitivity(const SensitivityCommand& options) {
  load_named_plugins(options.choice.plugins);  // they may register recipes
  std::vector<WeightChoice> choices;
  const bool usual = options.bits.empty() && options.recipes.empty();
  for (const int64_t bits : usual ? BudgetConfig{}.bits : options.bits) choices.push_back({uniform_recipe(bits)});
  for (const std::string& name : options.recipes) choices.push_back({find_recipe(name).recipe});
  const OpenedFile file = open_to_compute(options.choice);
  apply_run_settings(file.config);
  const DeviceGuard guard(device_of(file.config));
  const auto data = open_dataset(file.config, file.config.data.train, {}, table_of(file.header, file.path));
  const auto read = [&](int64_t n) { return first_samples(*data, n, file.config.train.eval.batch, file.header.seed); };
  const auto samples = read(options.samples);
  const int64_t of_norms = options.batch_norm < 0 ? options.samples : options.batch_norm;
  const auto norm_samples = of_norms == 0 ? std::vector<SampleBatch>{} : read(of_norms);
  const auto learner = load_floats(file.path, file.config, *data);
  learner->calibrate(tensors_of(samples));
  const Sensitivity result = measure_sensitivity(*learner, samples, choices, norm_samples, options.methods);
  if (options.json) {
    std::cout << sensitivity_json(result) << '\n';
    return 0;
  }
  std::cout << describe(file) << '\n';
  print_sensitivity(std::cout, result);
  return 0;
}

}  // namespace

Run setup_sensitivity(Arguments& args) {
  auto o = std::make_shared<SensitivityCommand>();
  args.option("target", o->choice.target, kTargetHelp).required();
  add_choice_options(args, o->choice);
  args.option("overrides", o->choice.overrides, "key=value of the configuration, such as data.root=DIR");
  add_plugin_option(args, o->choice.plugins);
  add_bits_option(args, o->bits, "if neither bits nor recipes are given");
  args.option("--recipe", o->recipes, "further weight recipes to measure, such as ternary_wo; repeatable")
      .delimiter(',')
      .suggest(recipe_names);
  args.option("--samples", o->samples, "number of data.train samples, in the order of the run's first epoch")
      .range(int64_t{1}, int64_t{1000000000});
  args.option("--batch-norm", o->batch_norm,
              "number of data.train samples to renew the statistics of batch norm on for each recipe; 0: keep them; "
              "default: that of --samples")
      .range(int64_t{0}, int64_t{1000000000});
  args.option("--method", o->methods.methods,
              "methods that fit each quantized layer to the samples, as in bitgrad quantize: of " +
                  joined(ptq_method_names()) + " those that change one layer")
      .delimiter(',')
      .repeatable()
      .suggest(ptq_method_names);
  args.flag("--json", o->json, "one JSON object on standard output");
  return [o] { return run_sensitivity(*o); };
}

}  // namespace bitgrad::cli
