#include "bench_step.h"

#include <algorithm>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"

namespace bitgrad::bench {

namespace {

const LayerKind kLayers[] = {{"binary", dtypes::bint1, dtypes::bint1},
                             {"w1a8", dtypes::bint1, dtypes::int8},
                             {"w2a2", dtypes::int2, dtypes::int2},
                             {"w4a8", dtypes::int4, dtypes::int8},
                             {"w8a8", dtypes::int8, dtypes::int8}};
struct NamedNet {
  const char* name;
  std::vector<int64_t> widths;
};
// The nets of FINN (Umuroglu et al. 2017, arXiv 1612.07119) and a wide MLP.
const NamedNet kNets[] = {{"tfc", {784, 64, 64, 64, 10}},
                          {"sfc", {784, 256, 256, 256, 10}},
                          {"lfc", {784, 1024, 1024, 1024, 10}},
                          {"mlp4096", {784, 4096, 4096, 4096, 10}}};

template <typename List>
auto find_named(const char* what, const List& list, const std::string& name) {
  for (const auto& item : list)
    if (name == item.name) return item;
  fail("bench_step", "unknown ", what, " '", name, "', known are ",
       joined(list, ", ", [](const auto& item) { return item.name; }));
}

Case parse_shape(const std::string& text) {
  constexpr int64_t kMaxSide = 1 << 16;
  Case out;
  out.widths = whole_numbers(text);
  for (const int64_t n : out.widths)
    require(n >= 1 && n <= kMaxSide, "bench_step", "--shape: got '", text,
            "', expected BATCH,IN,OUT, three whole numbers of 1 .. ", kMaxSide, '.');
  require(out.widths.size() == 3, "bench_step", "--shape: got '", text,
          "', expected BATCH,IN,OUT, such as 512,4096,4096.");
  out.batch = out.widths.front();
  out.widths.erase(out.widths.begin());
  return out;
}

}  // namespace

std::string Case::shape() const {
  std::string text = std::to_string(batch);
  for (const int64_t w : widths) text.append(",").append(std::to_string(w));
  return text;
}

namespace {

// Options of the layers of a case, and of their training.
void add_layer_options(cli::Arguments& args, Options& options) {
  args.choice<ProductMode>("--grad", options.grad,
                           {{"fp32", ProductMode::kFp32}, {"bf16", ProductMode::kBf16}, {"int8", ProductMode::kInt8}},
                           "mode of both backward products (fp32)");
  args.choice<Rounding>("--rounding", options.rounding,
                        {{"nearest", Rounding::kNearest}, {"stochastic", Rounding::kStochastic}},
                        "of int8 gradients (stochastic)");
  args.choice<MomentKind>("--moments", options.moments,
                          {{"fp32", MomentKind::kFp32},
                           {"bf16", MomentKind::kBf16},
                           {"int8", MomentKind::kInt8},
                           {"int4", MomentKind::kInt4}},
                          "of Adam (fp32)");
  args.choice<MasterKind>("--master", options.master,
                          {{"fp32", MasterKind::kFp32}, {"bf16", MasterKind::kBf16}, {"none", MasterKind::kNone}},
                          "(fp32)");
}

void add_net_options(cli::Arguments& args, Options& options) {
  args.option("--sample", options.sample, "of nets of a configuration: sizes of a sample (32,32,3)")
      .delimiter(',')
      .range(1, 1 << 16);
  args.option("--classes", options.classes, "of nets of a configuration (10; of language models its vocabulary, or 65)")
      .range(2, 1 << 24);
  args.option("--set", options.overrides, "of nets of a configuration: a key of it, KEY=VALUE").repeatable();
}

void add_net_names(cli::Arguments& args, std::vector<std::string>& nets, std::vector<int64_t>& batches) {
  args.option("--net", nets,
              "tfc, sfc, lfc, mlp4096 (the first three, when no shape is given); cnv, resnet20, gpt, gpt384, gpt768 "
              "(language "
              "models; gpt-int8, -int4, -ternary, -bint1: their weights) or a configuration")
      .delimiter(',');
  args.option("--batch", batches, "batches of the nets (100; of those of a configuration: its own)")
      .delimiter(',')
      .range(1, 1000000);
}

bool is_config(const std::string& net) {
  return !net_yaml(net).empty() || net.find('.') != std::string::npos || net.find('/') != std::string::npos;
}

// Moves the nets that are configurations from `nets` to options.nets, one per batch size.
void take_nets(const cli::Arguments& args, std::vector<std::string>& nets, const std::vector<int64_t>& batches,
               Options& options) {
  options.grad_given = args.count("--grad") > 0;
  for (const std::string& net : nets)
    for (const int64_t batch : batches)
      if (is_config(net)) options.nets.push_back({net, batch});
  nets.erase(std::remove_if(nets.begin(), nets.end(), is_config), nets.end());
}

}  // namespace

Options parse_options(cli::Arguments& args, int argc, char** argv) {
  Options options;
  std::vector<std::string> layers{"binary"}, nets, shapes;
  std::vector<int64_t> batches{100};
  bool no_parts = false, no_rivals = false, no_memory = false;
  args.option("--layer", layers, "binary, w1a8, w2a2, w4a8, w8a8 (binary)").delimiter(',');
  args.option("--shape", shapes, "BATCH,IN,OUT of a layer; may be given several times").repeatable();
  add_net_names(args, nets, batches);
  add_net_options(args, options);
  add_layer_options(args, options);
  const cli::Argument accumulate =
      args.option("--accumulate", options.accumulate, "microbatches of a step (1; --qat: 4)").range(1, 1024);
  args.flag("--qat", options.qat, "quantization-aware training, compared with the same net in fp32");
  args.option("--scheme", options.schemes, "of --qat (all)").delimiter(',');
  args.flag("--norm-clip", options.norm_clip, "clip the norm of all gradients, so that nothing can be fused");
  add_threads_option(args, options);
  add_device_option(args, options, "; cuda: without oneDNN and memory measurements");
  args.flag("--recorded", options.recorded, "cuda: replay the whole step as CUDA graphs");
  args.flag("--no-parts", no_parts, "the whole step only");
  args.flag("--no-rivals", no_rivals, "without oneDNN");
  args.flag("--no-memory", no_memory, "without memory measurements");
  add_report_options(args, options, "x_onednn_f32");
  parse(args, argc, argv, options);
  require(!options.recorded || !options.device.is_cpu(), "bench_step",
          "--recorded: got --device cpu, expected --device cuda: the CPU records nothing.");
  options.parts = !no_parts && !options.recorded;
  options.rivals = !no_rivals && options.device.is_cpu();
  options.memory = !no_memory && options.device.is_cpu();
  if (options.qat && accumulate.count() == 0) options.accumulate = 4;
  if (options.qat && nets.empty() && shapes.empty()) nets = {"lfc"};
  if (options.qat) layers = {"binary"};
  const bool only_nets = shapes.empty() && std::all_of(nets.begin(), nets.end(), is_config) && !nets.empty();
  take_nets(args, nets, args.count("--batch") > 0 ? batches : std::vector<int64_t>{0}, options);
  if (nets.empty() && shapes.empty() && !only_nets) nets = {"tfc", "sfc", "lfc"};
  for (const std::string& name : layers) {
    const LayerKind layer = find_named("layer", kLayers, name);
    for (const std::string& text : shapes) {
      options.cases.push_back(parse_shape(text));
      options.cases.back().layer = layer;
    }
    for (const std::string& net : nets)
      for (const int64_t batch : batches)
        options.cases.push_back({layer, net, batch, find_named("net", kNets, net).widths});
  }
  return options;
}

}  // namespace bitgrad::bench
