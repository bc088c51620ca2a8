// What a model loses by each list of methods. Lists are compared on samples of data.train that follow those of the
// calibration; data.test is beside them and chooses nothing.
#include <algorithm>
#include <iomanip>
#include <optional>

#include "bench_ptq.h"
#include "bitgrad/base/text.h"
#include "bitgrad/run/trainer.h"
#include "bitgrad/tools/ptq.h"
#include "shared/measure.h"

namespace bitgrad::bench {
namespace {

std::vector<std::string> parts_of(const std::string& list) {
  return list.empty() ? std::vector<std::string>() : split(list);
}

// Each method alone, and lists of several.
std::vector<std::string> standard_lists() {
  std::vector<std::string> lists{""};
  for (const std::string& name : ptq_method_names()) lists.push_back(name);
  for (const char* list : {"gptq,bias", "clip,gptq,bias", "equalize,gptq,bias", "smooth,gptq,bias",
                           "gptq,bias,adaround", "gptq,refit", "clip,gptq,refit", "clip,gptq,refit,bias"})
    lists.emplace_back(list);
  return lists;
}

struct Result {
  double loss = 0, accuracy = -1;  // accuracy: percent; below 0: the loss has no classes
};

// `classes`: targets are classes, which alone are right or wrong.
Result measured(Learner& learner, std::span<const SampleBatch> samples, bool classes) {
  double loss = 0, weight = 0, correct = 0, counted = 0;
  for (const SampleBatch& s : samples) {
    const StepResult r = learner.evaluate(s.x, s.target);
    loss += r.loss;
    weight += r.weight;
    correct += static_cast<double>(r.correct);
    counted += static_cast<double>(r.counted);
  }
  return {loss / weight, classes && counted > 0 ? 100 * correct / counted : -1};
}

// The samples of a model: to fit to, to compare by, and those of data.test.
struct Samples {
  std::vector<SampleBatch> fit = {}, held_out = {};
  std::unique_ptr<Dataset> test = {};
};

// Rows [begin, end) of a batch.
SampleBatch part_of(const SampleBatch& batch, int64_t begin, int64_t end) {
  if (begin == 0 && end == batch.x.shape()[0]) return batch;
  return {batch.x.row_slice(begin, end).clone(MemoryKind::kBatch),
          batch.target.row_slice(begin, end).clone(MemoryKind::kBatch)};
}

Samples samples_of(const PtqOptions& o, const RunConfig& config, const Dataset& train, uint64_t seed) {
  Samples samples;
  int64_t rows = 0;
  for (const SampleBatch& s : first_samples(train, o.calibrate + o.held_out, config.train.eval.batch, seed)) {
    const int64_t all = s.x.shape()[0], to_fit = std::clamp<int64_t>(o.calibrate - rows, 0, all);
    rows += all;
    if (to_fit > 0) samples.fit.push_back(part_of(s, 0, to_fit));
    if (to_fit < all) samples.held_out.push_back(part_of(s, to_fit, all));
  }
  require(!samples.held_out.empty(), "bench_ptq", "data.train has ", train.size(), " samples, expected more than ",
          o.calibrate, " of --calibrate");
  samples.test = open_evaluation_dataset(config);
  return samples;
}

PrepareSpec spec_of(const PtqOptions& o) {
  PrepareSpec spec;
  spec.rules = {{o.layers, find_recipe(o.recipe)}};
  return spec;
}

std::string number(double x, int digits) {
  TextWriter out;
  out << std::fixed << std::setprecision(digits) << x;
  return out.str();
}

std::vector<std::string> cells(const std::string& list, const Result& held_out, const Evaluation& test,
                               double seconds) {
  return {list.empty() ? "(none)" : list,
          number(held_out.loss, 4),
          held_out.accuracy < 0 ? "-" : number(held_out.accuracy, 2),
          number(test.loss, 4),
          test.accuracy < 0 ? "-" : number(test.accuracy, 2),
          seconds < 0 ? "" : number(seconds, 2)};
}

// Quantizes new copies of the model by the list; the reason where it does not fit.
struct Quantized {
  std::unique_ptr<Learner> learner = {};
  std::string refused = {};
  double seconds = 0;
};
Quantized quantized(const PtqOptions& o, const std::string& list, const OpenedFile& file, const RunConfig& config,
                    const Dataset& data, const Samples& samples) {
  Quantized q;
  q.learner = load_floats(file.path, config, data);
  const auto reference = load_floats(file.path, config, data);
  const double begin = now_ns(time_base(o.threads));
  try {
    if (list.empty())
      quantize_after_training(*q.learner, spec_of(o), samples.fit, {});
    else
      quantize_with_methods(*q.learner, *reference, spec_of(o), {parts_of(list)}, samples.fit, samples.fit);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUsage || std::string(error.what()).find("fits no layer") == std::string::npos)
      throw;
    q.refused = error.what();
  }
  q.seconds = (now_ns(time_base(o.threads)) - begin) / 1e9;
  return q;
}

}  // namespace

int bench_lists(const PtqOptions& o) {
  for (const std::string& list : o.lists) check_ptq({parts_of(list)});
  const OpenedFile file = open_file(o.model, o.overrides);
  const RunConfig config = float_config(file.config);
  const auto train = open_dataset(config, config.data.train);
  const Samples samples = samples_of(o, config, *train, file.header.seed);
  const int64_t batch = config.train.eval.batch;
  Json report = new_report(o.threads);
  report.update({{"model", o.model}, {"recipe", o.recipe}, {"layers", o.layers}, {"fit_batches", samples.fit.size()}});
  std::cout << machine_of(report) << ", " << o.threads << " threads; " << o.model << ", " << o.recipe << " of "
            << o.layers << ", fitted to " << o.calibrate << " samples of data.train\n";
  std::vector<std::vector<std::string>> table{
      {"methods", "held out: loss", "accuracy %", evaluation_split(config) + ": loss", "accuracy %", "seconds"}};
  const auto floats = load_floats(file.path, config, *samples.test);
  const Evaluation of_floats = evaluate(*floats, *samples.test, batch);
  const bool classes = of_floats.accuracy >= 0;
  table.push_back(cells("(floats)", measured(*floats, samples.held_out, classes), of_floats, -1));
  std::optional<double> least;
  std::string best;
  for (const std::string& list : o.lists.empty() ? standard_lists() : o.lists) {
    const Quantized q = quantized(o, list, file, config, *samples.test, samples);
    if (!q.refused.empty()) {
      table.push_back({list, q.refused});
      continue;
    }
    const Result held_out = measured(*q.learner, samples.held_out, classes);
    const Evaluation test = evaluate(*q.learner, *samples.test, batch);
    table.push_back(cells(list, held_out, test, q.seconds));
    if (!least || held_out.loss < *least) least = held_out.loss, best = list;
    report.at("rows").push_back({{"methods", list},
                                 {"loss", held_out.loss},
                                 {"accuracy", classes ? Json(held_out.accuracy) : Json(nullptr)},
                                 {"test_loss", test.loss},
                                 {"test_accuracy", classes ? Json(test.accuracy) : Json(nullptr)},
                                 {"seconds", q.seconds}});
  }
  std::cout << text_table(table)
            << "least loss of the samples held out of data.train: " << (best.empty() ? "(none)" : best) << '\n';
  write_report(o.json, report);
  return 0;
}

}  // namespace bitgrad::bench
