// bitgrad inspect RUN_DIR_OR_FILE: precision and code usage per layer. Reads no data set.
#include <algorithm>
#include <iostream>

#include "bitgrad/base/json.h"
#include "bitgrad/nn/layer_table.h"
#include "bitgrad/nn/prepare.h"
#include "bitgrad/run/quant_monitor.h"
#include "command.h"
#include "open_file.h"
#include "table.h"

namespace bitgrad::cli {
namespace {

constexpr const char* kAll = "*";

struct InspectOptions {
  ModelChoice choice;
  std::string layers = kAll;
  bool json = false, table = false;
};

// A quantizable layer of the model: its row in the table, and the statistics of its weight.
struct Inspected {
  LayerSummary summary;
  std::optional<QuantStatistics> statistics;  // none: fp32
};

QuantStatistics statistics_of(const Parameter& p) {
  QuantStatistics s = quant_statistics(p);
  // The sharpness of tanh follows the progress of the run, which a file does not record.
  if (ste_rule(*p.spec().quant) == SteRule::kTanh) s.pass.reset();
  return s;
}

std::vector<LayerChoice> named_layers(Module& model, const PrepareSpec& named) {
  try {
    return choose_layers(model, named);
  } catch (const Error& e) {
    throw Error(concat("--layers: ", e.what()), e.code());
  }
}

std::vector<Inspected> inspect(Module& model, const std::string& glob) {
  PrepareSpec named;  // only its globs matter
  named.rules.push_back({glob, {}});
  std::vector<Inspected> out;
  const std::vector<LayerSummary> rows = summarize(model);
  for (const LayerChoice& layer : named_layers(model, named)) {
    if (!layer.quant) continue;
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const auto& r) { return r.layer == layer.layer; });
    ensure(row != rows.end(), "inspect", "the summary has no layer ", layer.layer);
    const Parameter& weight = layer.slot->weight();
    out.push_back({*row, weight.low_bit() ? std::optional(statistics_of(weight)) : std::nullopt});
  }
  return out;
}

std::string text(const std::optional<double>& x) { return x ? short_number(*x) : "-"; }

void print_layers(const std::vector<Inspected>& layers) {
  std::vector<std::vector<std::string>> table{
      {"layer", "kind", "shape", "recipe", "weight", "input", "compute", "codes x scales", "bytes"}};
  int64_t bytes = 0;
  for (const auto& [s, statistics] : layers) {
    table.push_back(
        {s.layer, s.kind, concat(s.shape), s.recipe, s.weight, s.input, s.compute, s.range, concat(s.bytes)});
    bytes += s.bytes;
  }
  print_table(std::cout, table);
  std::cout << "weights: " << bytes << " bytes\n";
}

void print_statistics(const std::vector<Inspected>& layers) {
  std::vector<std::vector<std::string>> table{
      {"layer", "codes used", "entropy", "at ends", "saturated", "pass", "sqnr dB", "scale min", "mean", "max"}};
  for (const auto& [summary, s] : layers) {
    if (!s) continue;
    const auto scale = [&](double QuantStatistics::Scale::*part) {
      return s->scale ? short_number((*s->scale).*part) : std::string("-");
    };
    const int64_t codes = static_cast<int64_t>(s->histogram.size());
    table.push_back({summary.layer, concat(codes - s->dead_codes, " of ", codes),
                     concat(short_number(s->entropy), " of ", short_number(s->entropy_limit)), text(s->at_ends),
                     text(s->saturated), text(s->pass), text(s->sqnr_db), scale(&QuantStatistics::Scale::least),
                     scale(&QuantStatistics::Scale::mean), scale(&QuantStatistics::Scale::largest)});
  }
  if (table.size() == 1) return;
  std::cout << '\n';
  print_table(std::cout, table);
}

void print_histograms(const std::vector<Inspected>& layers) {
  constexpr size_t kMost = 16;
  for (const auto& [summary, s] : layers) {
    if (!s || s->histogram.size() > kMost) continue;
    std::cout << "\ncodes of " << summary.layer << ", smallest first:";
    for (const int64_t count : s->histogram) std::cout << ' ' << count;
    std::cout << '\n';
  }
}

Json to_json(const Inspected& layer) {
  const LayerSummary& s = layer.summary;
  Json j{{"layer", s.layer},   {"kind", s.kind},   {"recipe", s.recipe},   {"shape", s.shape.dims()},
         {"weight", s.weight}, {"input", s.input}, {"compute", s.compute}, {"codes_and_scales", s.range},
         {"bytes", s.bytes}};
  j["statistics"] = layer.statistics ? Json::parse(bitgrad::to_json(*layer.statistics)) : Json(nullptr);
  return j;
}

Json to_json(const OpenedFile& file, const std::vector<Inspected>& layers, const LayerTable& table) {
  const CheckpointHeader& h = file.header;
  const bool evaluated = h.counters.best_accuracy >= 0, known = evaluated || h.counters.best_value;
  Json j{{"file", file.path},
         {"kind", std::string(enum_name(file.kind))},
         {"name", file.config.run.name},
         {"seed", h.seed},
         {"step", h.step},
         {"epoch", h.counters.epoch},
         {"phase", h.phase},
         {"best_accuracy", evaluated ? Json(h.counters.best_accuracy) : Json(nullptr)},
         {"best_epoch", known ? Json(h.counters.best_epoch) : Json(nullptr)},
         {"best_step", h.counters.best_step > 0 ? Json(h.counters.best_step) : Json(nullptr)},
         {"layers", Json::array()},
         {"table", Json::parse(bitgrad::to_json(table))}};
  for (const Inspected& layer : layers) j["layers"].push_back(to_json(layer));
  return j;
}

int run_inspect(const InspectOptions& options) {
  const OpenedFile file = open_target(options.choice);
  // Statistics of a checkpoint compare codes with masters.
  const bool masters = file.kind == SavedKind::kCheckpoint;
  const auto learner = load_file(file, nullptr, masters ? LearnerUse::kTrain : LearnerUse::kPredict);
  const std::vector<Inspected> layers = inspect(learner->model(), options.layers);
  if (options.json) {
    std::cout << to_json(file, layers, layer_table(learner->model())).dump() << '\n';
    return 0;
  }
  std::cout << describe(file) << "\n\n";
  if (options.table) {
    print_layer_table(std::cout, learner->model());
    return 0;
  }
  if (options.layers == kAll)
    print_quantization(std::cout, learner->model());
  else
    print_layers(layers);
  print_statistics(layers);
  print_histograms(layers);
  return 0;
}

}  // namespace

Run setup_inspect(Arguments& args) {
  auto options = std::make_shared<InspectOptions>();
  add_target(args, options->choice);
  add_choice_options(args, options->choice);
  args.option("--layers", options->layers, "glob on the paths of layers to show, such as layers.[0-4]");
  args.flag("--table", options->table, "print the table of all layers instead: output, parameters, bytes, MACs");
  args.flag("--json", options->json, "one JSON object on standard output");
  return [options] { return run_inspect(*options); };
}

}  // namespace bitgrad::cli
