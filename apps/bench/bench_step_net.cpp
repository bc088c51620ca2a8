#include "bench_step.h"

#include <sys/resource.h>

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <map>
#include <numeric>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/memory.h"
#include "bitgrad/base/rng.h"
#include "bitgrad/run/trainer.h"
#include "shared/common.h"
#include "shared/measure.h"

namespace bitgrad::bench {

namespace {

constexpr int64_t kTrainSize = 50000;  // size of the training set that the schedule assumes
constexpr int64_t kClasses = 10;       // of images
constexpr int64_t kCharacters = 65;    // of tinyshakespeare, if the configuration states no vocabulary

int64_t page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

RunConfig net_config(const NetCase& net, const Options& options, bool update) {
  std::vector<std::string> overrides = options.overrides;
  if (options.grad_given)
    for (const char* key : {"quant.backward.gx=", "quant.backward.gw="})
      overrides.push_back(key + std::string(enum_name(options.grad)));
  if (net.batch > 0) overrides.push_back("batch.global=" + std::to_string(net.batch));
  const std::string yaml = net_yaml(net.name);
  const auto read = [&] {
    return yaml.empty() ? load_config(net.name, overrides) : parse_config(yaml, net.name, overrides);
  };
  RunConfig config = read();
  if (update) return config;
  // Twice as long a window, which a step never fills.
  overrides.push_back("batch.micro=" + std::to_string(config.batch.micro));
  overrides.push_back("batch.global=" + std::to_string(2 * config.batch.global));
  overrides.push_back("quant.requantize_every=" + std::to_string(2 * config.quant.requantize_every));
  return read();
}

// Whether this is a language model: its inputs are ids, and each has a class.
bool of_tokens(const RunConfig& config) {
  return format_of(config.data.train).windows == DatasetFormat::Windows::kTokens;
}

int64_t classes_of(const RunConfig& config, const Options& options) {
  if (options.classes > 0) return options.classes;
  if (!of_tokens(config)) return kClasses;
  const int64_t stored = config.data.train.keys.integer("vocabulary");
  return stored > 0 ? stored : kCharacters;
}

// A net in a Learner. Without updates, its window is dropped at the end of each step.
class NetStep final : public TrainStep {
 public:
  NetStep(const NetCase& net, const Options& options, bool update, bool told)
      : TrainStep(options, update), config_(net_config(net, options, update)) {
    microbatches_ = config_.batch.accumulate() / (update ? 1 : 2);
    learner_ = learner(config_, options);
    const Shape& sample = learner_->input()->sample;
    std::vector<int64_t> shape{config_.batch.micro};
    shape.insert(shape.end(), sample.dims().begin(), sample.dims().end());
    x_ = Tensor::empty(Shape(shape), learner_->input()->dtype, MemoryKind::kBatch, Device::cpu());
    target_ = Tensor::empty(of_tokens(config_) ? x_.shape() : Shape{config_.batch.micro}, dtypes::int32,
                            MemoryKind::kBatch, Device::cpu());
    const int64_t classes = classes_of(config_, options);
    const RandomStream draws{1, Purpose::kUser, site_id("x"), 0};
    for (int64_t i = 0; i < x_.numel(); ++i) {
      const float u = draws.uniform(static_cast<uint64_t>(i));
      if (of_tokens(config_))
        x_.as<int32_t>()[i] = static_cast<int32_t>(u * static_cast<float>(classes));
      else
        x_.as<float>()[i] = u * 2 - 1;
    }
    for (int64_t i = 0; i < target_.numel(); ++i) target_.as<int32_t>()[i] = static_cast<int32_t>(i % classes);
    if (!current_device().is_cpu()) {
      x_ = x_.to_device(current_device(), MemoryKind::kBatch);
      target_ = target_.to_device(current_device(), MemoryKind::kBatch);
    }
    learner_->set_recorded(options.recorded);
    if (told)
      learner_->state().on_forward = [this](const std::string& path, const Tensor&, const Tensor&) { note(path); };
  }

  void step() {
    times_.emplace_back();
    const int64_t faults = page_faults();
    TrainStep::step();
    faults_.push_back(static_cast<double>(page_faults() - faults));
  }

  // Discards all measurements so far.
  void forget() {
    forget_times();
    times_.clear();
    faults_.clear();
  }
  // Mean per step, because the faults may be concentrated in few steps.
  double faults() const {
    return std::accumulate(faults_.begin(), faults_.end(), 0.0) / static_cast<double>(faults_.size());
  }
  int64_t images() const { return microbatches_ * config_.batch.micro; }
  int64_t tokens() const { return of_tokens(config_) ? microbatches_ * x_.numel() : 0; }  // 0: not a language model
  // Median nanoseconds of a step's forward pass by kind of layer. A container's own work counts under its own kind.
  std::map<std::string, double> forward_by_kind() const {
    std::map<std::string, std::vector<double>> all;
    for (const auto& step : times_)
      for (const auto& [kind, ns] : step) all[kind].push_back(ns);
    std::map<std::string, double> medians;
    for (const auto& [kind, ns] : all) medians[kind] = median(ns);
    return medians;
  }

 private:
  static std::unique_ptr<Learner> learner(const RunConfig& config, const Options& options) {
    set_bits_mode(config.run.bits == "strict" ? BitsMode::kStrict : BitsMode::kFast);
    Form input;
    input.sample = Shape(options.sample);
    if (of_tokens(config)) {
      input.sample = {config.data.train.context};
      input.dtype = dtypes::int32;
      input.ids = classes_of(config, options);
    }
    return build_learner(config, input, classes_of(config, options), kTrainSize);
  }

  void microbatch() override { learner_->microbatch(x_, target_); }

  // Called after a module has run: the time since the previous one is its own.
  void note(const std::string& path) {
    const double own = now_ns(base_) - start_;
    const std::string root = std::string(kModelRoot) + '.';
    const Module* const module =
        path.compare(0, root.size(), root) == 0 ? learner_->model().find(path.substr(root.size())) : nullptr;
    const std::string_view kind = module != nullptr ? module->kind() : learner_->model().kind();
    times_.back()[std::string(kind)] += own;
    forward_ += own;
    start_ = now_ns(base_);
  }

  RunConfig config_;
  Tensor target_;
  std::vector<std::map<std::string, double>> times_;
  std::vector<double> faults_;
};

Json net_memory(const NetCase& net, const Options& options) {
  return run_in_child(net.name, [&] {
    const int64_t before = status_bytes("VmRSS");
    reset_memory_peaks();
    NetStep step(net, options, /*update=*/true, /*told=*/false);
    for (int i = 0; i < 2; ++i) step.step();
    return Json{{"bytes", bytes_json(memory_at_peak())},
                {"saved_bytes", memory_peak_by_kind()[MemoryKind::kSaved]},
                {"rss_growth", status_bytes("VmHWM") - before}};
  });
}

constexpr double kMs = 1e6;

// Three kinds of steps, alternating: whole; without the update; and without the update but with a callback per module.
struct NetTurns {
  NetStep whole, no_update, told;
  std::vector<Contestant> all;

  NetTurns(const NetCase& net, const Options& options)
      : whole(net, options, /*update=*/true, /*told=*/false),
        no_update(net, options, /*update=*/false, /*told=*/false),
        told(net, options, /*update=*/false, /*told=*/true) {
    for (NetStep* step : {&whole, &no_update, &told}) {
      all.push_back({"", [step] { step->step(); }, 1, false, {}});
      if (!options.parts) break;
    }
    for (Contestant& c : all)
      for (int i = 0; i < 2; ++i) c.run();
    for (NetStep* step : {&whole, &no_update, &told}) step->forget();
    measure(all, options.repeat, time_base(options), /*rare=*/false);
  }
  double ms(size_t i) const { return all[i].median() / kMs; }
  double mean_ms() const {
    return std::accumulate(all[0].ns.begin(), all[0].ns.end(), 0.0) / kMs / static_cast<double>(all[0].ns.size());
  }
};

Json net_times(const NetCase& net, const Options& options) {
  const NetTurns turns(net, options);
  Json row{{"net", net.name},
           {"batch", turns.whole.images()},
           {"grad", options.grad_given ? Json(std::string(enum_name(options.grad))) : Json("config")},
           {"threads", options.threads},
           {"device", to_string(options.device)},
           {"recorded", turns.whole.recorded()},
           {"ms", turns.ms(0)},
           {"mean_ms", turns.mean_ms()},
           {"images_s", 1e3 * static_cast<double>(turns.whole.images()) / turns.ms(0)},
           {"page_faults", turns.whole.faults()}};
  if (turns.whole.tokens() > 0) row["tokens_s"] = 1e3 * static_cast<double>(turns.whole.tokens()) / turns.ms(0);
  if (!options.parts) return row;
  const double forward = median(turns.told.forward_ns()) / kMs;
  row["parts"] = Json{{"forward", forward}, {"backward", turns.ms(2) - forward}, {"update", turns.ms(0) - turns.ms(1)}};
  row["forward_by_kind"] = Json::object();
  for (const auto& [kind, ns] : turns.told.forward_by_kind()) row["forward_by_kind"][kind] = ns / kMs;
  return row;
}

void print_net(const Json& row) {
  const double ms = row.at("ms").get<double>();
  std::cout << '\n'
            << row.at("net").get<std::string>() << ", batch " << row.at("batch") << std::fixed << std::setprecision(2)
            << ": " << ms << " ms (mean " << row.at("mean_ms").get<double>() << "), " << std::setprecision(0)
            << row.at(row.contains("tokens_s") ? "tokens_s" : "images_s").get<double>()
            << (row.contains("tokens_s") ? " tokens/s, " : " images/s, ") << row.at("page_faults").get<double>()
            << " page faults\n"
            << std::setprecision(2);
  for (const char* parts : {"parts", "forward_by_kind"}) {
    if (!row.contains(parts)) continue;
    std::cout << "  " << parts << ':';
    for (const auto& [name, time] : row.at(parts).members())
      std::cout << "  " << name << ' ' << time.get<double>() << " (" << std::setprecision(0)
                << 100 * time.get<double>() / ms << " %)" << std::setprecision(2);
    std::cout << '\n';
  }
  if (!row.contains("rss_growth")) return;
  std::cout << "  saved for backward: " << row.at("saved_bytes") << " bytes; at the peak:";
  for (const auto& [kind, bytes] : row.at("bytes").members()) std::cout << ' ' << kind << ' ' << bytes;
  std::cout << " | resident growth " << row.at("rss_growth") << std::endl;
}

}  // namespace

void measure_nets(const Options& options, Json& report) {
  std::vector<Json> memory;
  for (const NetCase& net : options.nets) memory.push_back(options.memory ? net_memory(net, options) : Json::object());
  for (size_t i = 0; i < options.nets.size(); ++i) {
    Json row = net_times(options.nets[i], options);
    for (const auto& [key, value] : memory[i].members()) row[key] = value;
    print_net(row);
    report["rows"].push_back(row);
  }
}

}  // namespace bitgrad::bench
