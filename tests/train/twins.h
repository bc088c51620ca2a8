// Every two features of twins.inc in one run, and its twins: the same run in another way that must not matter. What
// each feature promises alone is tested by promises_test.cpp; most wrong results of users came from two that meet.
// twins_test.cpp of train and of plugins run them.
#pragma once

#include <cmath>
#include <ctime>
#include <filesystem>
#include <functional>
#include <set>

#include "bitgrad/interop/model_origin.h"
#include "bitgrad/quant/quantizer.h"
#include "support/paths.h"
#include "support/unsynced_file_system.h"
#include "train/promise_stops.h"

namespace bitgrad::test {

struct Feature {
  std::string name, net;
  bool plugin;  // what a plugin adds: bin/rings_plugin.so of the build
  Keys keys;
  std::string rules, phases;
};

inline const std::vector<Feature>& features() {
  static const std::vector<Feature> list = {
#define KEYS(...) \
  { __VA_ARGS__ }
#define FEATURE(name, keys, rules, phases) {name, "twin", false, keys, rules, phases},
#define FEATURE_OF_TOKENS(name, keys, rules, phases) {name, "tokens", false, keys, rules, phases},
#define FEATURE_OF_PLUGIN(name, keys, rules, phases) {name, "twin", true, keys, rules, phases},
#include "train/twins.inc"
#undef KEYS
#undef FEATURE
#undef FEATURE_OF_TOKENS
#undef FEATURE_OF_PLUGIN
  };
  return list;
}

inline const PromiseFolder& twin_data() {
  static const PromiseFolder made;
  static const bool copied = [] {
    for (const std::string& name : file_system().list(made.file("")))
      if (!file_system().is_directory(made.file(name)))
        std::filesystem::copy_file(made.file(name), made.file("copy_of_" + name));
    return true;
  }();
  static_cast<void>(copied);
  return made;
}

// What the file that a run begins with must know, too.
inline bool of_model(const std::string& key) {
  for (const char* start : {"model.layers", "plugins=", "data.train", "data.test", "data.tokenizer"})
    if (key.starts_with(start)) return true;
  return false;
}

// A model file with the values of a run and what an importer records of another program's files.
inline std::string imported(const std::string& run) {
  const std::string file = run + "/imported.safetensors", last = run + "/last.safetensors";
  if (file_system().exists(file)) return file;
  const RunConfig config = run_folder_config(run);
  const auto model = load_evaluator(config, *open_evaluation_dataset(config), last);
  CheckpointHeader header = read_checkpoint_header(last);
  header.origin = to_text(ModelOrigin{.name = "another program's", .context = 6, .end = {3}, .begin = 1});
  save_model(file, model->model(), header);
  return file;
}

// The same as an import with codes for matrices and inputs rounded so.
inline std::string imported_codes(const std::string& run, ImportInputs inputs) {
  std::string file = concat(run, "/imported_", enum_name(inputs), ".safetensors");
  if (file_system().exists(file)) return file;
  const RunConfig config = run_folder_config(run);
  const std::string last = run + "/last.safetensors";
  const auto model = load_evaluator(config, *open_evaluation_dataset(config), last);
  ImportedModel read{.family = "another", .spec = model_record(*model)->model};
  read.tokenizer = tokenizer_of(read_checkpoint_header(last), last);
  const QuantSpec codes{.dtype = dtypes::int8, .scheme = "absmax", .granularity = Granularity::channel(0)};
  for (const Parameter* p : model->model().parameters()) {
    const bool matrix = p->value().shape().rank() == 2;
    read.parameters.emplace_back(p->path(), matrix ? quantize_dynamic(codes, p->value()) : p->value());
  }
  save_imported(read, file, inputs);
  return file;
}

// A run of two features.
struct Pair {
  const Feature &a, &b;
  Keys keys;
  std::string rules, phases;  // entries

  Pair(const Feature& first, const Feature& second) : a(first), b(second) {
    keys = {"run.bits=strict", "device.threads=1", "checkpoint.every=2 steps",
            "log={every: 3 steps, quantization: 1 steps, report: false}"};
    rules = a.net == "twin" ? "{layers: layers.0, weights: {dtype: int4, scheme: absmax, granularity: channel}}" : "";
    if (a.plugin || b.plugin) keys.push_back(concat("plugins=[", build_path("bin/rings_plugin.so"), ']'));
    for (const Feature* f : {&a, &b}) {
      keys.insert(keys.end(), f->keys.begin(), f->keys.end());
      if (!f->rules.empty()) rules += (rules.empty() ? "" : ", ") + f->rules;
      if (!f->phases.empty()) phases = f->phases;
    }
  }
  std::string name() const { return concat('"', a.name, "\" and \"", b.name, "\" (", a.net, ')'); }
  bool uses(const std::string& text) const {
    const auto in = [&](const Feature& f) {
      if (contains(f.rules, text) || contains(f.phases, text)) return true;
      for (const std::string& key : f.keys)
        if (contains(key, text)) return true;
      return false;
    };
    return in(a) || in(b);
  }
  // Two values of one key are no pair.
  bool clash() const {
    for (const std::string& x : a.keys)
      for (const std::string& y : b.keys)
        if (x != y && x.substr(0, x.find('=')) == y.substr(0, y.find('='))) return true;
    const auto of_all = [](const Feature& f) { return contains(f.rules, "\"*\""); };
    if (!a.rules.empty() && !b.rules.empty() && (of_all(a) || of_all(b))) return true;
    return !a.phases.empty() && !b.phases.empty();
  }

  // A run in floats of the same network, for two steps.
  std::string floats() const {
    static std::map<std::string, std::string> made;
    Keys own{"train.stop=2 steps", "log.report=false", "run.bits=strict", "device.threads=1"};
    std::string id = a.net;
    for (const std::string& key : keys)
      if (of_model(key)) {
        own.push_back(key);
        id += key;
      }
    if (a.net == "tokens") own.push_back("~quant");
    std::string& folder = made[id];
    if (folder.empty()) {
      const RunConfig config = twin_data().config(a.net, own);
      folder = new_folder(twin_data(), config);
      run_all(config, folder);
    }
    return folder;
  }
  Keys all_keys(const Keys& more, const std::string& of_phases) const {
    Keys out = keys;
    for (std::string& key : out)
      if (const size_t at = key.find("$FLOATS"); at != std::string::npos)
        key.replace(at, 7, floats());
      else if (const size_t from = key.find("$IMPORTED"); from != std::string::npos)
        key.replace(from, 9, imported(floats()));
      else if (const size_t block = key.find("$INT8_BLOCK"); block != std::string::npos)
        key.replace(block, 11, imported_codes(floats(), ImportInputs::kInt8Block));
    if (!rules.empty() && !uses("quant.budget")) out.push_back("quant.rules=[" + rules + ']');
    if (!of_phases.empty()) out.push_back("quant.phases=[" + of_phases + ']');
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  RunConfig config(const Keys& more = {}) const { return twin_data().config(a.net, all_keys(more, phases)); }
  RunConfig config_in_phases(const std::string& entries, const Keys& more = {}) const {
    return twin_data().config(a.net, all_keys(more, entries));
  }
};

struct Run {
  const Pair& pair;
  RunConfig config;
  std::string folder;
  Trace trace;
};

// Of a trace what other keys may not change: not the configuration and what is told of it in files; with `names`, not
// these parts of the state either, nor reports of quantization, which count from the last change.
inline Trace comparable(Trace trace, const std::set<std::string>& names) {
  for (const char* file : {"config.yaml", "summary.json", "metrics.jsonl", "converted model"})
    trace.results.erase(file);
  if (names.empty()) return trace;
  trace.results.erase("state hash");
  for (auto& [step, of] : trace.steps) {
    for (const std::string& name : names) of.state.erase(name);
    std::istringstream lines(std::exchange(of.told, ""));
    for (std::string line; std::getline(lines, line);)
      if (!contains(line, "\"event\":\"quant\"")) of.told += line + '\n';
  }
  return trace;
}
inline std::string other_file(const Run& run) {
  Keys keys;
  for (const auto& [set, data] : {std::pair{"train", &run.config.data.train}, {"test", &*run.config.data.test}})
    for (const auto& [key, file] : {std::pair{"file", data->file}, {"images", data->images}, {"labels", data->labels}})
      if (!file.empty()) keys.push_back(concat("data.", set, '.', key, "=copy_of_", file));
  const RunConfig config = run.pair.config(keys);
  return first_difference(comparable(run.trace, {}), comparable(trace_of(config, new_folder(twin_data(), config)), {}));
}

// What only watches, in one run, for its time: an early stop that never comes, a phase that changes nothing, an average
// of the weights, further checkpoints.
inline std::string what_changes_nothing(const Run& run) {
  Keys keys{"checkpoint.keep=1"};
  if (!run.pair.uses("early_stop")) keys.push_back("train.early_stop={metric: loss, patience: 1000}");
  const bool averages = run.pair.uses("train.ema");
  if (!averages) keys.push_back("train.ema=0.75");
  std::string phases = run.pair.phases;
  // A budget has no phases, and a phase begins with codes of its masters.
  if (!run.pair.uses("quant.budget") && !run.pair.uses("requantize_every")) {
    if (phases.empty()) phases = "{from: 0 steps}";
    phases +=
        contains(phases, "frozen") ? ", {from: 5 steps, quantization: frozen, observers: false}" : ", {from: 5 steps}";
  }
  const RunConfig config = run.pair.config_in_phases(phases, keys);
  Trace other = trace_of(config, new_folder(twin_data(), config));
  if (!averages) {
    other.results.erase("average.safetensors");
    if (const auto best = other.results.find("best.safetensors"); best != other.results.end()) {
      std::istringstream lines(std::exchange(best->second, ""));
      for (std::string line; std::getline(lines, line);)
        if (!contains(line, ".average ")) best->second += line + '\n';
    }
    for (auto& [step, of] : other.steps) {
      std::erase_if(of.state, [](const auto& part) { return part.first.ends_with(".average"); });
      std::istringstream lines(std::exchange(of.told, ""));
      for (std::string line; std::getline(lines, line);)
        if (!line.starts_with("average: ")) of.told += line + '\n';
    }
  }
  const std::set<std::string> names{"the patience", "the phase", "the average"};
  return first_difference(comparable(run.trace, names), comparable(other, names));
}

// Statistics of norms that are renewed do not depend on how the samples are split, and nothing else changes.
inline std::string renewed_statistics(const Run& run) {
  if (!run.pair.uses("batch_norm")) return "";
  const auto test = open_evaluation_dataset(run.config);
  const std::string file = run.folder + "/last.safetensors";
  std::map<std::string, std::vector<double>> whole;
  for (const int64_t batch : {test->size(), int64_t{4}}) {
    const auto model = load_evaluator(recorded_config(file), *test, file);
    const auto before = state_of(*model);
    if (renew_norms(*model, first_samples(*test, test->size(), batch, 1)) != 1) return "it renews other norms";
    for (const auto& [name, sum] : state_of(*model))
      if (!contains(name, ".running_") && before.at(name) != sum) return "it changes " + name;
    for (const Module::Buffer& b : model->model().buffers()) {
      if (!contains(b.path, ".running_")) continue;
      const std::vector<double> now = b.tensor.elements(), then = whole.try_emplace(b.path, now).first->second;
      for (size_t i = 0; i < now.size(); ++i)
        if (!(std::fabs(now[i] - then[i]) <= 1e-5 * (1 + std::fabs(then[i]))))
          return concat(b.path, " is ", now[i], " in batches of ", batch, ", not ", then[i]);
    }
  }
  return "";
}

// A loss is the mean over samples: what else is in an evaluation batch must not matter.
inline std::string other_evaluation_batches(const Run& run) {
  const auto test = open_evaluation_dataset(run.config);
  const std::string file = run.folder + "/last.safetensors";
  const auto model = load_evaluator(recorded_config(file), *test, file);
  const Evaluation all = evaluate(*model, *test, test->size());
  for (const int64_t batch : {int64_t{1}, int64_t{4}, test->size() - 1}) {
    const Evaluation other = evaluate(*model, *test, batch);
    if (!(std::fabs(other.loss - all.loss) <= 1e-6 * std::fabs(all.loss)) || other.metrics.size() != all.metrics.size())
      return concat("in batches of ", batch, " the loss is ", exact(other.loss), ", in one batch ", exact(all.loss));
  }
  return "";
}

// A second run of the same precision, in which nothing is learned, has the codes and scales of the first.
inline std::string second_run_that_learns_nothing(const Run& run) {
  if (run.pair.uses("adapters") || run.pair.uses("quant.budget")) return "";  // layers of their own
  if (run.pair.uses("frozen")) return "";                                     // scales of older masters
  const std::map<std::string, uint64_t>& before = run.trace.steps.rbegin()->second.state;
  const Trace second = trace_of(run.pair.config_in_phases(
      "", {"model.init_from=" + run.folder + "/last.safetensors", "optim.lr=1e-30", "optim.weight_decay=0",
           "schedule={name: constant}", "quant.requantize_every=" + std::to_string(run.config.batch.accumulate()),
           "train.stop=1 steps"}));
  std::string parts;
  for (const auto& [name, sum] : second.steps.rbegin()->second.state) {
    if (!contains(name, " (")) continue;  // moments, counters, and what a batch moves
    if (const auto at = before.find(name); at == before.end() || at->second != sum) parts += "\n  " + name;
  }
  return parts.empty() ? "" : "these differ:" + parts;
}

// Windows of one and of two microbatches, where nothing depends on what else is in a microbatch.
inline std::string other_microbatches(const Run& run) {
  for (const char* of_batch : {"batch_norm", "dropout", "observer", "lsq}", "pact", "requantize_every", "fraction",
                               "budget", "batch.last", "_static", "recipe: int8"})
    if (run.pair.uses(of_batch)) return "";
  const int64_t global = run.config.batch.global, micro = run.config.batch.micro == global ? global / 2 : global;
  const Trace other = trace_of(run.pair.config({concat("batch.micro=", micro)}));
  const auto loss_of = [](const Trace& trace, int64_t step) {
    const std::string& told = trace.steps.at(step).told;
    return std::stod(told.substr(told.find("loss ") + 5));
  };
  for (const auto& [step, of] : run.trace.steps) {
    if (!other.steps.contains(step)) return concat("step ", step, " is missing");
    const double mine = loss_of(run.trace, step), theirs = loss_of(other, step);
    if (!(std::fabs(mine - theirs) <= 1e-4 * (1 + std::fabs(mine))))
      return concat("in microbatches of ", micro, " step ", step, " has loss ", exact(theirs), ", not ", exact(mine));
  }
  return "";
}

struct Twin {
  std::string name;
  std::function<std::string(const Run&)> difference;
};
inline const std::vector<Twin>& twins() {
  static const std::vector<Twin> list = {
      {"stopped at every step",
       [](const Run& run) {
         const RunConfig fast = run.pair.config();
         return stopped_difference(twin_data(), fast, run.trace);
       }},
      {"as files", [](const Run& run) { return file_difference(run.folder, run.trace); }},
      {"data of another file", other_file},
      {"an early stop that never comes, a phase that changes nothing, an average", what_changes_nothing},
      {"the best model", [](const Run& run) { return best_difference(run.folder, run.trace); }},
      {"renewed statistics of norms", renewed_statistics},
      {"other evaluation batches", other_evaluation_batches},
      {"a second run that learns nothing", second_run_that_learns_nothing},
      {"other microbatches", other_microbatches},
  };
  return list;
}

// Runs the pairs with, or those without, a feature of a plugin. Fails with the pair, the twin and the first difference.
inline void check_pairs(bool plugin) {
  const KeepModes keep;
  const UnsyncedFileSystem files;
  const std::clock_t start = std::clock();
  int pairs = 0, refused = 0, compared = 0;
  size_t at = 0;
  for (size_t i = 0; i < features().size(); ++i)
    for (size_t j = i + 1; j < features().size(); ++j) {
      const Feature &a = features()[i], &b = features()[j];
      if (a.net != b.net || (a.plugin || b.plugin) != plugin) continue;
      const Pair pair(a, b);
      if (pair.clash() || at++ % kPairStride != 0) continue;
      ++pairs;
      try {
        Run run{pair, pair.config(), "", {}};
        run.folder = new_folder(twin_data(), run.config);
        run.trace = trace_of(run.config, run.folder);
        for (const Twin& twin : twins()) {
          std::string text;
          try {
            text = twin.difference(run);
          } catch (const Error& error) {
            text = concat("error: ", error.what());
          }
          ++compared;
          if (!text.empty()) FAIL_CHECK(pair.name() << ", " << twin.name << ": " << text);
        }
      } catch (const ConfigError& error) {  // before anything has begun
        ++refused;
        WARN(pair.name() << " is refused: " << error.what());
      } catch (const Error& error) {
        FAIL_CHECK(pair.name() << ": " << error.what());
      }
    }
  std::printf("%d pairs, %d refused, %d twins, %.1f s of processor time\n", pairs, refused, compared,
              static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  CHECK(compared > 6 * (pairs - refused));
}

}  // namespace bitgrad::test
