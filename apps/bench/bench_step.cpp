// bench_step: one optimizer step of quantized training, whole and in parts, compared with the same step as a float
// simulation by oneDNN in fp32 and bf16 (bench_step_rival.cpp), alternating within one run, with the memory account. A
// case is one linear layer whose input requires a gradient and whose output gradient is given, or a net (tfc, sfc, lfc
// of FINN, mlp4096), driven by a Learner as in training.
//
//   bench_step [--layer binary,w1a8,w2a2,w4a8,w8a8] [--shape BATCH,IN,OUT ...] [--net tfc,sfc,lfc,mlp4096]
//              [--batch 100,1000] [--grad fp32|bf16|int8] [--rounding nearest|stochastic]
//              [--moments fp32|bf16|int8|int4] [--master fp32|bf16|none] [--accumulate A] [--norm-clip] [--threads T]
//              [--device cpu|cuda] [--recorded] [--repeat R] [--no-parts] [--no-rivals] [--no-memory] [--json FILE]
//              [--compare OLD] [--slack S]
//   bench_step --net cnv,resnet20,gpt,gpt384-ternary,FILE.yaml [--sample 32,32,3] [--classes 10]
//              [--set KEY=VALUE ...] [...]                         (bench_step_net.cpp)
//   bench_step --qat [--net lfc] [--scheme int8wo,int4wo ...] [...]     (bench_step_qat.cpp)
//
// Times are medians in ms of one optimizer step (A microbatches): CPU time of the thread for one thread, wall time for
// more. The time of a part is the difference between the whole step and a step without the part, measured alternately,
// so it carries the noise of both; the forward pass is timed within the step. If the update runs inside the backward
// pass (fused), gW and the update are one part. On a CUDA device times are wall times of a step that is synchronized at
// its end (and at the end of its forward pass). If the machine cannot run a rival (oneDNN's bf16 without AVX-512),
// x_<rival> is null and its times are left out. bytes: the account by kind at its peak; rss_growth: growth of the
// resident memory of a process that builds the model and runs two steps.
#include "bench_step.h"

#include <iomanip>
#include <iostream>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "shared/measure.h"

namespace {

using namespace bitgrad;
using namespace bitgrad::bench;

double ms(double ns) { return ns / 1e6; }

const char* grad_name(const Options& options) { return enum_name(options.grad).data(); }

// {"bytes": {kind: bytes at the total peak ..., "total"}, "rss_growth", "fused"} of building the model and running two
// optimizer steps, including the input and the given gradient: in a process of its own, so that no peak hides another
// and no rival is included. Call it before any thread is started.
Json step_memory(const Case& what, const Options& options) {
  return run_in_child(what.layer.name + std::string(" ") + what.shape(), [&] {
    const int64_t before = status_bytes("VmRSS");
    reset_memory_peaks();
    const std::unique_ptr<TrainStep> ours = our_step(what, options, Without::kNothing);
    for (int i = 0; i < 2; ++i) ours->step();
    return Json{{"bytes", bytes_json(memory_at_peak())},
                {"rss_growth", status_bytes("VmHWM") - before},
                {"fused", ours->fused()}};
  });
}

// All contestants of one case, measured alternately.
class Turns {
 public:
  Turns(const Case& what, const Options& options)
      : what_(what), options_(options), rivals_(make_rivals(what, options)) {
    add_ours(Without::kNothing);
    if (options.parts) {
      add_ours(Without::kRequantize);
      add_ours(Without::kUpdate);
      if (what.net.empty()) add_ours(Without::kInputGradient);
    }
    if (rivals_.fp32) add([&] { rivals_.fp32->step(); });
    if (rivals_.bf16) add([&] { rivals_.bf16->step(); });
    for (Contestant& c : all_)
      for (int i = 0; i < 2; ++i) c.run();
    for (auto& ours : ours_) ours->forget_times();
    measure(all_, options.repeat, time_base(options), /*rare=*/false);
  }

  Json row() const {
    const double full = all_[0].median();
    Json row{{"layer", what_.layer.name}};
    if (!what_.net.empty()) row["net"] = what_.net;
    row["shape"] = what_.shape();
    row["grad"] = grad_name(options_);
    row["moments"] = enum_name(options_.moments);
    row["master"] = enum_name(options_.master);
    row["rounding"] = options_.rounding == Rounding::kNearest ? "nearest" : "stochastic";
    row["accumulate"] = options_.accumulate;
    row["norm_clip"] = options_.norm_clip;
    row["threads"] = options_.threads;
    row["device"] = to_string(options_.device);
    row["fused"] = ours_[0]->fused();
    row["recorded"] = ours_[0]->recorded();
    row["ms"] = ms(full);
    const size_t first_rival = ours_.size();
    const auto add_rival = [&](const std::string& name, const FakeQuantizedStep* rival, size_t at) {
      row["x_" + name] = rival != nullptr ? Json(all_[at].median() / full) : Json(nullptr);
      if (rival == nullptr) return;
      row[name + "_ms"] = ms(all_[at].median());
      row[name + "_parts"] = rival_parts(*rival);
    };
    add_rival("onednn_f32", rivals_.fp32.get(), first_rival);
    add_rival("onednn_bf16", rivals_.bf16.get(), first_rival + (rivals_.fp32 ? 1 : 0));
    row["parts"] = parts();
    return row;
  }

 private:
  void add(std::function<void()> run) { all_.push_back({"", std::move(run), 1, false, {}}); }
  void add_ours(Without without) {
    ours_.push_back(our_step(what_, options_, without));
    add([ours = ours_.back().get()] { ours->step(); });
  }

  Json parts() const {
    Json parts = Json::object();
    if (!options_.parts) return parts;
    const double full = all_[0].median(), no_requantize = all_[1].median(), no_update = all_[2].median();
    const double forward = median(ours_[0]->forward_ns());
    const bool layer = what_.net.empty();
    const double gx = layer ? full - all_[3].median() : 0;
    parts["forward"] = ms(forward);
    if (layer) parts["gx"] = ms(gx);
    if (ours_[0]->fused()) {
      parts[layer ? "gw_update" : "backward_update"] = ms(no_requantize - forward - gx);
    } else {
      parts[layer ? "gw" : "backward"] = ms(no_update - forward - gx);
      parts["update"] = ms(no_requantize - no_update);
    }
    parts["requantize"] = ms(full - no_requantize);
    return parts;
  }

  static Json rival_parts(const FakeQuantizedStep& rival) {
    Json parts = Json::object();
    for (const auto& [name, ns] : rival.parts()) parts[name] = ms(median(ns));
    return parts;
  }

  const Case& what_;
  const Options& options_;
  RivalSteps rivals_;
  std::vector<std::unique_ptr<TrainStep>> ours_;
  std::vector<Contestant> all_;
};

void print(const Json& row) {
  std::cout << '\n' << row["layer"].get<std::string>();
  if (row.contains("net")) std::cout << ' ' << row["net"].get<std::string>();
  std::cout << ' ' << row["shape"].get<std::string>() << ": " << std::fixed << std::setprecision(3)
            << row["ms"].get<double>() << " ms" << (row["fused"].get<bool>() ? ", fused" : "")
            << (row["recorded"].get<bool>() ? ", recorded" : "");
  for (const char* rival : {"onednn_f32", "onednn_bf16"})
    if (!row[std::string("x_") + rival].is_null())
      std::cout << ", " << std::setprecision(2) << row[std::string("x_") + rival].get<double>() << " x " << rival
                << std::setprecision(3) << " (" << row[std::string(rival) + "_ms"].get<double>() << " ms)";
  std::cout << '\n';
  for (const char* parts : {"parts", "onednn_f32_parts", "onednn_bf16_parts"}) {
    if (!row.contains(parts) || row[parts].empty()) continue;
    std::cout << "  " << parts << ':';
    for (const auto& [name, time] : row[parts].members()) std::cout << "  " << name << ' ' << time.get<double>();
    std::cout << '\n';
  }
  if (!row.contains("rss_growth")) return;
  std::cout << "  bytes:";
  for (const auto& [kind, bytes] : row["bytes"].members()) std::cout << ' ' << kind << ' ' << bytes;
  std::cout << " | resident growth " << row["rss_growth"] << std::endl;
}

int run(const Options& options) {
  Json report = new_report(options.threads);
  std::cout << machine_of(report) << ", gradients " << grad_name(options) << ", moments " << enum_name(options.moments)
            << ", masters " << enum_name(options.master) << ", threads " << options.threads << ", medians of "
            << options.repeat << '\n';
  set_num_threads(options.threads);
  const DeviceGuard guard(options.device);
  if (!options.device.is_cpu())
    std::cout << to_string(options.device) << ": " << device_backend(options.device).describe() << '\n';
  if (options.qat) {
    measure_qat(options, report);
    return finish(report, options, {{"scheme", "net", "shape", "accumulate", "grad", "threads"}, "x_float"});
  }
  measure_nets(options, report);
  std::vector<Json> memory;
  for (const Case& what : options.cases) memory.push_back(options.memory ? step_memory(what, options) : Json::object());
  for (size_t i = 0; i < options.cases.size(); ++i) {
    Json row = Turns(options.cases[i], options).row();
    row["bytes"] = memory[i].value("bytes", Json::object());
    if (memory[i].contains("rss_growth")) row["rss_growth"] = memory[i]["rss_growth"];
    print(row);
    report["rows"].push_back(row);
  }
  return finish(
      report, options,
      {{"layer", "net", "shape", "grad", "moments", "master", "rounding", "accumulate", "norm_clip", "threads"},
       "x_onednn_f32"});
}

}  // namespace

int main(int argc, char** argv) {
  return run_main("bench_step", "Time and memory of a training step, compared with oneDNN's float simulation.",
                  [&](cli::Arguments& args) { return run(parse_options(args, argc, argv)); });
}
