#include "open_file.h"

#include <algorithm>
#include <iostream>

#include "bitgrad/base/file.h"
#include "bitgrad/base/log.h"
#include "bitgrad/config/plugin.h"
#include "bitgrad/kernels/gemm_costs.h"
#include "bitgrad/report/report.h"
#include "zoo.h"

namespace bitgrad::cli {

void add_plugin_option(Arguments& args, std::vector<std::string>& paths) {
  args.option("--plugin", paths, "plugin required by the file; files never load one by themselves; repeatable")
      .repeatable();
}

void add_target(Arguments& args, ModelChoice& choice) {
  add_plugin_option(args, choice.plugins);
  args.option("target", choice.target, kTargetHelp).required();
}

void add_choice_options(Arguments& args, ModelChoice& choice, const std::string& last) {
  choice.last_option = last;
  const Argument best = args.flag("--best", choice.best, "use best.safetensors of the run folder");
  args.flag(last, choice.last, "use last.safetensors of the run folder, even if data.valid selected another")
      .excludes(best);
}

OpenedFile open_target(const ModelChoice& choice) {
  load_named_plugins(choice.plugins);
  const std::string target = model_path(choice.target);
  require(!(choice.best || choice.last) || file_system().is_directory(target), "run folder",
          choice.best ? "--best" : choice.last_option, " selects a checkpoint of a run folder: got '", choice.target,
          "', which is not one");
  OpenedFile file = open_file(target, all_overrides(choice),
                              choice.best   ? CheckpointChoice::kBest
                              : choice.last ? CheckpointChoice::kLast
                                            : CheckpointChoice::kChosen);
  const bool by_valid = file.header.counters.selected_on == "valid";
  if (!file.choice.empty() && by_valid)
    std::cerr << concat(
        file.choice,
        choice.best || choice.last ? "" : concat(". The options --best and ", choice.last_option, " choose"), '\n');
  return file;
}

OpenedFile open_to_compute(const ModelChoice& choice) {
  kernels::load_gemm_costs(kernels::gemm_costs_path());
  return open_target(choice);
}

void load_named_plugins(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) load_plugin(path);
}

std::vector<std::string> with_data_root(std::vector<std::string> overrides, const std::string& data) {
  if (data.empty()) return overrides;
  std::string quoted;
  for (const char c : data) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (c == '\n')
      quoted += "\\n";  // which a text may not hold, but YAML would fold into a blank
    else
      quoted += c;
  }
  overrides.push_back("data.root=\"" + quoted + '"');
  return overrides;
}

std::vector<std::string> all_overrides(const ModelChoice& choice) {
  return with_data_root(choice.overrides, choice.data);
}

std::unique_ptr<Dataset> data_of(const OpenedFile& file, const ModelChoice& choice) {
  const auto names_data = [](const std::string& o) {
    const std::string key = o.substr(0, o.find('='));
    return key.starts_with("data.test") || key.starts_with("data.valid") || key.starts_with("data.train");
  };
  const bool text = tokenizer_of(file.header, file.path) != nullptr, ids = text || file.input.ids > 0;
  require(file.of_run || std::any_of(choice.overrides.begin(), choice.overrides.end(), names_data), "data", file.path,
          " was not written by a run, so it names no data set: pass one, such as 'data.test={format: ",
          ids ? "tokens, file: mine.txt, context: 64}'" : "digits, size: 1000}'",
          text  ? " (bitgrad eval: or --text mine.txt)"
          : ids ? " with the data.tokenizer of its training"
                : "");
  // Training data are opened only if there are no others.
  auto data =
      open_evaluation_dataset(file.config, tokenizer_of(file.header, file.path), table_of(file.header, file.path));
  for (const std::string& note : data->notes()) log(LogLevel::kWarning, note);
  require_same_tokenizer(file.header, file.path, *data);
  return data;
}

std::unique_ptr<Dataset> text_of(const OpenedFile& file, const std::string& text, int64_t stride) {
  DatasetSpec spec;
  spec.of_model = tokenizer_of(file.header, file.path);
  require(spec.of_model != nullptr && file.input.ids > 0 && file.input.sample.rank() == 1, "eval",
          "--text: ", file.path, " has no tokenizer: it was not trained on a text of format tokens");
  spec.format = "tokens";
  spec.file = text;
  spec.context = file.input.sample.numel();
  spec.split = "test";
  spec.whole = true;
  spec.keys["stride"] = stride;
  return make_dataset(spec);
}

std::string best_place(const RunCounters& counters, const RunConfig& config) {
  const bool steps = config.train.stop.unit == Quantity::Unit::kSteps;
  return steps ? concat("at step ", counters.best_step) : concat("at epoch ", counters.best_epoch);
}

std::string status_of_run(const std::string& folder) {
  try {
    return read_summary(folder).at("status").text();
  } catch (const std::exception&) {
    return "";
  }
}

std::string describe(const OpenedFile& file) {
  const CheckpointHeader& h = file.header;
  std::string text = concat(enum_name(file.kind), ' ', file.path, ": ", file.config.run.name, ", seed ", h.seed,
                            ", step ", h.step, ", epoch ", h.counters.epoch);
  const size_t phases = file.config.quant.phases.size();
  if (phases > 1) text += concat(", phase ", h.phase, " of 0 .. ", phases - 1);
  if (h.counters.best_value)
    text += concat(", best ", h.counters.metric, ' ', *h.counters.best_value, ' ', best_place(h.counters, file.config));
  else if (h.counters.best_accuracy >= 0)
    text += concat(", best ", h.counters.best_accuracy, " % ", best_place(h.counters, file.config));
  return text;
}

}  // namespace bitgrad::cli
