// bitgrad check CONFIG... [key=value ...]: everything about a run that can be known before it starts.
#include <algorithm>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <memory>
#include <utility>

#include "bitgrad/base/error.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/log.h"
#include "bitgrad/base/text.h"
#include "bitgrad/run/trainer.h"
#include "bitgrad/tools/dry_run.h"
#include "command.h"
#include "open_file.h"
#include "table.h"

namespace bitgrad::cli {
namespace {

struct CheckOptions {
  std::vector<std::string> words;
  std::string data;
  bool no_memory = false, quiet = false, json = false;
  int64_t ranks = 1;
};

struct Checked {
  std::string config;
  std::optional<DryRun> run = {};  // none: an error, already printed
  std::string error = {};
};

void print_data(std::ostream& out, const char* key, const DryRun::Data& data) {
  out << "  " << key << "  " << data.name << ": " << data.samples << " samples of " << data.sample << ' ' << data.dtype
      << '\n';
  constexpr size_t kShown = 40;
  for (size_t i = 0; i < std::min(data.about.size(), kShown); ++i) out << "    " << printable(data.about[i]) << '\n';
  if (data.about.size() > kShown) out << "    ... " << data.about.size() - kShown << " more\n";
}

// What each of several ranks sends in a step, and how long that takes if nothing else does.
void print_traffic(std::ostream& out, int64_t ranks, const RankTraffic& t) {
  const int64_t bytes = t.gradients + t.values;
  out << "  ranks       " << ranks << ": each sends at most " << size_text(bytes) << " a step (gradients "
      << size_text(t.gradients) << ", codes and values " << size_text(t.values) << "): ";
  const char* between = "";
  for (const int gbit : {1, 10, 100}) {
    TextWriter ms;
    ms << std::setprecision(2) << static_cast<double>(bytes) * 8e-6 / gbit;
    out << std::exchange(between, ", ") << ms.str() << " ms at " << gbit << " Gbit/s";
  }
  out << "\n              masters and moments of a rank between steps: at most " << size_text(t.state) << '\n';
}

void print_run(std::ostream& out, const std::string& name, const RunConfig& config, const DryRun& run, int64_t ranks) {
  out << printable(name) << ": ok\n";
  print_data(out, "data.train", run.train);
  if (run.valid) print_data(out, "data.valid", *run.valid);
  if (run.test) print_data(out, "data.test ", *run.test);
  out << "  steps       " << run.steps << " optimizer steps of " << config.batch.global << " samples";
  if (config.batch.accumulate() > 1)
    out << " (A = " << config.batch.accumulate() << " microbatches of " << config.batch.micro << ')';
  out << ", " << run.steps_per_epoch << " an epoch\n";
  if (run.rule_macs > 0) {
    // Forward, and twice that in backward.
    const double layers = 3.0 * static_cast<double>(run.layers.macs) * static_cast<double>(config.batch.global);
    const auto rule = static_cast<double>(run.rule_macs);
    out << "  optim       " << config.optim.spec.name << ": " << grouped_digits(run.rule_macs)
        << " multiplications an optimizer step, " << std::llround(100 * rule / (rule + layers)) << " % of all\n";
  }
  if (run.traffic) print_traffic(out, ranks, *run.traffic);
  out << '\n' << run.table << '\n';
  for (const auto& [target, why] : run.exports)
    out << "export --format " << target << ": " << (why.empty() ? "yes" : "no: " + why) << '\n';
  if (!run.exports.empty()) out << '\n';
  if (run.peak) print_memory(out, *run.peak);
}

// Prints the error of a wrong configuration and returns its exit code.
int report(const std::string& config, const Error& error) {
  const bool own = dynamic_cast<const ConfigError*>(&error) != nullptr;  // its lines name the file themselves
  std::cerr << (own ? "" : printable(config) + ": error: ") << error.what() << '\n';
  return static_cast<int>(error.code());
}

Json json_of(const DryRun::Data& data) {
  Json sample = Json::array();
  for (int64_t i = 0; i < data.sample.rank(); ++i) sample.push_back(data.sample[i]);
  return {{"name", data.name}, {"samples", data.samples}, {"sample", sample}, {"dtype", concat(data.dtype)}};
}

Json json_of(const MemoryAccount& peak) {
  Json j{{"total", peak.total}};
  for (int i = 0; i < kMemoryKinds; ++i)
    if (const int64_t bytes = peak.bytes[static_cast<size_t>(i)]; bytes > 0)
      j[std::string(memory_kind_name(static_cast<MemoryKind>(i)))] = bytes;
  return j;
}

// The data of a run that can start, or its error.
Json json_of(const Checked& checked) {
  if (!checked.run) return {{"configuration", checked.config}, {"ok", false}, {"error", checked.error}};
  const DryRun& run = *checked.run;
  Json j{{"configuration", checked.config}, {"ok", true}, {"warnings", Json::array()}, {"train", json_of(run.train)}};
  for (const std::string& warning : run.warnings) j["warnings"].push_back(warning);
  if (run.valid) j["valid"] = json_of(*run.valid);
  if (run.test) j["test"] = json_of(*run.test);
  j["steps"] = run.steps;
  j["steps_per_epoch"] = run.steps_per_epoch;
  if (run.rule_macs > 0) j["rule_macs"] = run.rule_macs;
  if (run.traffic)
    j["rank_bytes"] = {
        {"gradients", run.traffic->gradients}, {"values", run.traffic->values}, {"state", run.traffic->state}};
  j["table"] = Json::parse(to_json(run.layers));
  j["peak_bytes"] = run.peak ? json_of(*run.peak) : Json(nullptr);
  return j;
}

void print_totals(std::ostream& out, const std::vector<Checked>& all) {
  std::vector<std::vector<std::string>> table{
      {"configuration", "parameters", "weights", "MACs/sample", "steps", "memory at the peak"}};
  for (const auto& [config, run, error] : all) {
    if (!run) {
      table.push_back({config, "error", "", "", "", ""});
      continue;
    }
    table.push_back({config, grouped_digits(run->layers.parameters), size_text(run->layers.bytes),
                     grouped_digits(run->layers.macs), grouped_digits(run->steps),
                     run->peak ? size_text(run->peak->total) : "-"});
  }
  print_table(out, table);
}

int run_check(const CheckOptions& options) {
  std::vector<std::string> configs, overrides;
  for (const std::string& word : options.words)
    (word.find('=') != std::string::npos || word.starts_with('~') ? overrides : configs).push_back(word);
  require(!configs.empty(), "check", "needs a configuration file");
  overrides = with_data_root(std::move(overrides), options.data);
  std::vector<Checked> all;
  int code = 0;
  for (const std::string& name : configs) {
    Checked& checked = all.emplace_back(Checked{name});
    try {
      const RunConfig config = split_for_ranks(load_config(name, overrides), options.ranks);
      checked.run = dry_run(config, !options.no_memory, options.ranks);
      for (const std::string& warning : checked.run->warnings) log(LogLevel::kWarning, warning);
      if (!options.quiet && !options.json) print_run(std::cout, name, config, *checked.run, options.ranks);
      if (!options.quiet && !options.json && configs.size() > 1) std::cout << '\n';
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kBug) throw;
      const int wrong = report(name, error);
      checked.error = error.what();
      code = code == 0 ? wrong : code;
    }
    std::cout.flush();
  }
  if (options.json) {
    Json rows = Json::array();
    for (const Checked& checked : all) rows.push_back(json_of(checked));
    std::cout << rows.dump(2) << '\n';
  } else if (configs.size() > 1 || options.quiet) {
    print_totals(std::cout, all);
  }
  return code;
}

}  // namespace

Run setup_check(Arguments& args) {
  auto options = std::make_shared<CheckOptions>();
  args.option("words", options->words, "configurations to check, and key=value overrides that apply to all of them")
      .required();
  args.option("--data", options->data, "data folder, same as data.root=DIR");
  args.flag("--no-memory", options->no_memory,
            "skip the two optimizer steps that measure peak memory, for models too large for them");
  args.option("--ranks", options->ranks, "ranks that would train: prints what they send in a step (docs/ranks.md)")
      .range(1, 1024);
  const Argument quiet = args.flag("-q,--quiet", options->quiet, "print one line per configuration");
  args.flag("--json", options->json, "one JSON array on standard output, an object per configuration").excludes(quiet);
  return [options] { return run_check(*options); };
}

}  // namespace bitgrad::cli
