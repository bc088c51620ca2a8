#include "bench_step.h"

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <memory>
#include <optional>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/base/text.h"
#include "shared/common.h"
#include "shared/measure.h"

namespace bitgrad::bench {
namespace {

struct Scheme {
  const char* name;
  std::optional<QuantSpec> weights, activations;  // none: not quantized
  Compute compute = Compute::kPacked;
};

QuantSpec codes(const char* scheme, DType dtype, Granularity granularity) {
  return {.dtype = dtype, .scheme = scheme, .granularity = granularity};
}
const QuantSpec kInt8Channel = codes("symmetric", dtypes::int8, Granularity::channel(0));
const QuantSpec kInt4Channel = codes("symmetric", dtypes::int4, Granularity::channel(0));
const QuantSpec kInt4Group = codes("symmetric", dtypes::int4, Granularity::groups(32));
const QuantSpec kInt4Offset = codes("minmax_offset", dtypes::uint4, Granularity::groups(32));
const QuantSpec kSigns = codes("binary", dtypes::bint1, Granularity::tensor());
const QuantSpec kInt8Token = codes("symmetric", dtypes::int8, Granularity::token());
const QuantSpec kInt8TokenAffine = codes("affine", dtypes::int8, Granularity::token());
const QuantSpec kInt8Tensor = codes("symmetric", dtypes::int8, Granularity::tensor());
constexpr char kTwin[] = "fp32";

const Scheme kSchemes[] = {
    {kTwin, {}, {}},
    {"int8wo", kInt8Channel, {}},
    {"int4wo_symmetric", kInt4Group, {}},
    {"int4wo", kInt4Offset, {}},
    {"w8a8", kInt8Channel, kInt8Token},
    {"w8a8_tensor", kInt8Channel, kInt8Tensor},
    {"w4a8", kInt4Channel, kInt8Token},
    {"w4a8_groups", kInt4Group, kInt8Token},
    {"8da4w", kInt4Group, kInt8TokenAffine},
    {"w1a1", kSigns, kSigns},
    {"int4wo_fake", kInt4Offset, {}, Compute::kSimulated},
    {"w8a8_fake", kInt8Channel, kInt8Token, Compute::kSimulated},
};

const Scheme& find_scheme(const std::string& name) {
  for (const Scheme& s : kSchemes)
    if (name == s.name) return s;
  fail("bench_step", "unknown scheme '", name, "', known are ", joined(kSchemes, ", ", &Scheme::name));
}

// [quantize,] linear, batch norm, relu ... linear. Signs replace the relu, whose output they would make constant.
std::shared_ptr<Module> make_net(const Scheme& scheme, const std::vector<int64_t>& widths, const Options& options,
                                 Without without) {
  std::vector<LayerSpec> list;
  const auto add = [&](const char* kind) -> LayerSpec& {
    list.emplace_back().kind = kind;
    return list.back();
  };
  const bool signs = scheme.activations && scheme.activations->dtype.kind() == DTypeKind::kSign;
  for (size_t i = 1; i < widths.size(); ++i) {
    if (scheme.activations) add("quantize").activation = ActivationQuant{*scheme.activations};
    LayerSpec& linear = add("linear");
    linear.attributes["out"] = widths[i];
    linear.attributes["bias"] = false;
    linear.product.compute = scheme.compute;
    linear.weight.quant = scheme.weights;
    linear.weight.init = {"uniform", -1, 1};
    linear.weight.frozen = without == Without::kWeightGradients;
    if (scheme.activations && scheme.compute == Compute::kPacked) linear.product.gx = linear.product.gw = options.grad;
    if (i + 1 == widths.size()) break;
    add("batch_norm");
    if (!signs) add("relu");
  }
  return make_sequential(list, widths.front());
}

std::unique_ptr<TrainStep> step_of(const Scheme& scheme, const Case& what, const Options& options, Without without) {
  OptimizerSpec adam;
  adam.name = "adam";
  return std::make_unique<TrainStep>(what, options, without, make_net(scheme, what.widths, options, without),
                                     find_loss("softmax_cross_entropy"), adam);
}

// Bytes by kind at the peak of two steps, measured in a process of its own.
Json memory_of(const Scheme& scheme, const Case& what, const Options& options) {
  return run_in_child(scheme.name + std::string(" ") + what.shape(), [&] {
    reset_memory_peaks();
    const std::unique_ptr<TrainStep> net = step_of(scheme, what, options, Without::kNothing);
    for (int i = 0; i < 2; ++i) net->step();
    return bytes_json(memory_at_peak());
  });
}

Json measure_scheme(const Scheme& scheme, const Case& what, const Options& options) {
  const bool quantized = scheme.name != std::string(kTwin);
  std::vector<std::unique_ptr<TrainStep>> nets;
  std::vector<Contestant> all;
  const auto add = [&](const Scheme& of, Without without) {
    nets.push_back(step_of(of, what, options, without));
    all.push_back({"", [net = nets.back().get()] { net->step(); }, 1, false, {}});
  };
  add(find_scheme(kTwin), Without::kNothing);
  add(scheme, Without::kNothing);
  if (options.parts)
    for (const Without without : {Without::kRequantize, Without::kUpdate, Without::kWeightGradients})
      add(scheme, without);
  Case plain = what;
  plain.layer = {kTwin, dtypes::fp32, dtypes::fp32};
  const RivalSteps rivals = quantized ? RivalSteps{} : make_rivals(plain, options);
  if (rivals.fp32) all.push_back({"", [&] { rivals.fp32->step(); }, 1, false, {}});
  for (Contestant& c : all)
    for (int i = 0; i < 2; ++i) c.run();
  for (auto& net : nets) net->forget_times();
  measure(all, options.repeat, time_base(options.threads), /*rare=*/false);

  const auto ms = [](double ns) { return ns / 1e6; };
  const double twin = all[0].median(), full = all[1].median();
  // Medians of the ratios within each turn: a burst of load from another process affects both times of a turn.
  std::vector<double> ratios;
  for (size_t i = 0; i < all[0].ns.size(); ++i) ratios.push_back(all[1].ns[i] / all[0].ns[i]);
  Json row{{"scheme", scheme.name},
           {"net", what.net},
           {"shape", what.shape()},
           {"accumulate", options.accumulate},
           {"grad", enum_name(options.grad)},
           {"threads", options.threads},
           {"ms", ms(full)},
           {"float_ms", ms(twin)},
           {"cost", median(ratios)},
           {"x_float", 1 / median(ratios)}};
  if (rivals.fp32) row["onednn_f32_ms"] = ms(all.back().median());
  if (!options.parts) return row;
  const double no_requantize = all[2].median(), no_update = all[3].median(), no_gw = all[4].median();
  const double forward = median(nets[1]->forward_ns());
  row["parts"] = {{"forward", ms(forward)},
                  {"gx", ms(no_gw - forward)},
                  {"gw", ms(no_update - no_gw)},
                  {"update", ms(no_requantize - no_update)},
                  {"requantize", ms(full - no_requantize)}};
  return row;
}

void print(const Json& row) {
  std::cout << std::left << std::setw(18) << row["scheme"].get<std::string>() << std::right << std::fixed
            << std::setprecision(2) << std::setw(9) << row["ms"].get<double>() << std::setw(9)
            << row["float_ms"].get<double>() << std::setprecision(3) << std::setw(8) << row["cost"].get<double>()
            << std::setprecision(2);
  if (row.contains("parts"))
    for (const auto& [name, time] : row["parts"].members()) std::cout << std::setw(11) << time.get<double>();
  if (row.contains("onednn_f32_ms")) std::cout << "  oneDNN alone " << row["onednn_f32_ms"].get<double>();
  if (row.contains("bytes")) {
    std::cout << "  bytes";
    for (const char* kind : {"value", "derived", "total"})
      if (row["bytes"].contains(kind)) std::cout << ' ' << kind << ' ' << row["bytes"][kind];
  }
  std::cout << std::endl;
}

}  // namespace

void measure_qat(const Options& options, Json& report) {
  std::vector<std::string> names = options.schemes;
  if (names.empty())
    for (const Scheme& s : kSchemes) names.push_back(s.name);
  for (const std::string& name : names) find_scheme(name);
  for (const Case& what : options.cases) {
    require(!what.net.empty(), "bench_step", "--qat measures nets: got --shape ", what.shape(), ", expected --net");
    std::cout << what.net << ' ' << what.shape() << ", " << options.accumulate
              << " microbatches per step; ms, ms in fp32, ratio, parts\n";
    std::cout
        << "scheme                   ms    float   ratio    forward         gx         gw     update requantize\n";
    std::vector<Json> memory;
    for (const std::string& name : names)
      memory.push_back(options.memory ? memory_of(find_scheme(name), what, options) : Json());
    for (size_t i = 0; i < names.size(); ++i) {
      Json row = measure_scheme(find_scheme(names[i]), what, options);
      if (!memory[i].is_null()) row["bytes"] = memory[i];
      print(row);
      report["rows"].push_back(row);
    }
  }
}

}  // namespace bitgrad::bench
