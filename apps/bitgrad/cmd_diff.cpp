// bitgrad diff A B: compares two checkpoints or models weight by weight and, on one batch, module by module.
#include <iostream>

#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "bitgrad/tools/compare.h"
#include "bitgrad/tools/ptq.h"
#include "command.h"
#include "open_file.h"
#include "table.h"

namespace bitgrad::cli {
namespace {

struct DiffOptions {
  std::string a, b;
  int64_t samples = 256;
  ModelChoice choice;
  bool json = false;
};

std::string largest(const std::optional<Difference>& d) { return d ? short_number(d->max_abs_difference) : "-"; }
std::string rms(const std::optional<Difference>& d) { return d ? short_number(d->rms_difference) : "-"; }
std::string same(const std::optional<Difference>& d) { return d && d->equal_bits ? "yes" : "no"; }

void print(const ModelDifference& d, const std::string& data, int64_t samples) {
  std::vector<std::vector<std::string>> weights{
      {"parameter", "A", "B", "codes that differ", "max_abs_difference", "rms", "equal bits"}};
  for (const ParameterDifference& p : d.parameters)
    weights.push_back({p.path, p.a, p.b, p.codes_differ ? concat(*p.codes_differ, " of ", p.elements) : "-",
                       largest(p.values), rms(p.values), same(p.values)});
  print_table(std::cout, weights);
  std::cout << "\noutputs for " << samples << " samples of " << data << ":\n";
  std::vector<std::vector<std::string>> outputs{{"module", "A", "B", "max_abs_difference", "rms", "equal bits"}};
  const auto add = [&](const OutputDifference& o) {
    outputs.push_back({o.path, o.a, o.b, largest(o.values), rms(o.values), same(o.values)});
  };
  for (const OutputDifference& o : d.modules) add(o);
  add(d.output);
  print_table(std::cout, outputs);
  for (const std::string& path : d.only_a) std::cout << "only in A: " << path << '\n';
  for (const std::string& path : d.only_b) std::cout << "only in B: " << path << '\n';
  std::cout << "output max_abs_difference: " << largest(d.output.values) << '\n'
            << "equal bits: " << (d.equal_bits ? "yes" : "no") << '\n';
}

Json to_json(const std::optional<Difference>& d) {
  if (!d) return {{"max_abs_difference", nullptr}, {"rms_difference", nullptr}, {"equal_bits", false}};
  return {{"max_abs_difference", d->max_abs_difference},
          {"rms_difference", d->rms_difference},
          {"equal_bits", d->equal_bits}};
}

Json to_json(const OutputDifference& o) {
  Json j{{"module", o.path}, {"a", o.a}, {"b", o.b}};
  j.update(to_json(o.values));
  return j;
}

Json to_json(const OpenedFile& file) {
  return {{"file", file.path},        {"kind", std::string(enum_name(file.kind))}, {"name", file.config.run.name},
          {"step", file.header.step}, {"epoch", file.header.counters.epoch},       {"phase", file.header.phase}};
}

Json to_json(const OpenedFile& a, const OpenedFile& b, const ModelDifference& d, const std::string& data,
             int64_t samples) {
  Json j{
      {"a", to_json(a)},         {"b", to_json(b)}, {"data", data}, {"samples", samples}, {"parameters", Json::array()},
      {"modules", Json::array()}};
  for (const ParameterDifference& p : d.parameters) {
    Json item{{"parameter", p.path},
              {"a", p.a},
              {"b", p.b},
              {"same_form", p.same_form},
              {"elements", p.elements},
              {"codes_differ", p.codes_differ ? Json(*p.codes_differ) : Json(nullptr)}};
    item.update(to_json(p.values));
    j["parameters"].push_back(item);
  }
  for (const OutputDifference& o : d.modules) j["modules"].push_back(to_json(o));
  j["output"] = to_json(d.output);
  j["only_a"] = d.only_a;
  j["only_b"] = d.only_b;
  j["equal_bits"] = d.equal_bits;
  return j;
}

// --best and --last are for those of the two that are run folders.
ModelChoice choice_of(const std::string& target, const ModelChoice& choice) {
  ModelChoice of = choice;
  of.target = target;
  if (!file_system().is_directory(target)) of.best = of.last = false;
  return of;
}

int run_diff(const DiffOptions& options) {
  const OpenedFile a = open_to_compute(choice_of(options.a, options.choice));
  const OpenedFile b = open_target(choice_of(options.b, options.choice));
  require(a.input.sample.numel() == b.input.sample.numel(), "diff", "the inputs differ: ", a.path, " has ",
          a.input.sample.numel(), " values, ", b.path, ' ', b.input.sample.numel(),
          ". Models are compared on one batch");
  apply_run_settings(a.config);
  const DeviceGuard guard(device_of(a.config));
  const auto data = data_of(a.of_run || !b.of_run ? a : b, options.choice);
  require(data->features() == a.input.sample.numel(), "diff", "the samples of ", data->name(), " have ",
          data->features(), " values, the models expect ", a.input.sample.numel());
  const auto first = load_file(a, data.get()), second = load_file(b, data.get());
  const Tensor x = first_samples(*data, options.samples, options.samples, /*seed=*/0).front().x;
  const ModelDifference d = compare_models(*first, *second, x);
  if (options.json) {
    std::cout << to_json(a, b, d, data->name(), x.rows()).dump(2) << '\n';
    return 0;
  }
  std::cout << "A: " << describe(a) << "\nB: " << describe(b) << "\n\n";
  print(d, data->name(), x.rows());
  return 0;
}

}  // namespace

Run setup_diff(Arguments& args) {
  auto options = std::make_shared<DiffOptions>();
  add_plugin_option(args, options->choice.plugins);
  args.option("a", options->a, kTargetHelp).required();
  args.option("b", options->b, "run folder, checkpoint or model file to compare with").required();
  add_choice_options(args, options->choice);
  args.option("overrides", options->choice.overrides, "key=value of both configurations, such as data.root=DIR");
  args.option("--data", options->choice.data, kDataHelp);
  args.option("--samples", options->samples,
              "number of samples of data.test (data.train if there is none), shuffled in a fixed order")
      .range(int64_t{1}, int64_t{1} << 31);
  args.flag("--json", options->json, "one JSON object on standard output");
  return [options] { return run_diff(*options); };
}

}  // namespace bitgrad::cli
