// C of networks of integers with rings (--stream): the codes are those of an int64 reference, and less memory is
// needed.
#include <dlfcn.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "export/c_integer.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/integer_c.h"
#include "support/integer_nets.h"
#include "support/subprocess.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

using Codes = IntegerReference::Codes;
using inference::Value;

// A chain of convolutions, pools and sums that draws its windows: of 1 to 5 pixels, strides, dilation, groups, pixels
// outside on each side, images of which the last windows read less.
inference::Graph drawn_chain(uint64_t seed) {
  constexpr OutputRounding kRules[] = {OutputRounding::kDouble, OutputRounding::kSingle, OutputRounding::kFloat};
  IntegerNet net(Shape{static_cast<int64_t>(9 + seed % 5), static_cast<int64_t>(3 + seed % 4), 4}, kRules[seed % 3],
                 seed);
  const auto padding = [&](int64_t kernel) { return net.drawn(0, kernel - 1); };
  Value x = IntegerNet::kInput;
  for (int i = 0; i < 5; ++i) {
    const Shape in = net.form(x).sample;
    Conv2dOptions c{.kernel = {2 * net.drawn(0, 2) + 1, net.drawn(1, 3)}};
    c.stride = {net.drawn(0, 4) == 0 ? 2 : 1, 1};
    c.dilation = {c.kernel[0] == 3 ? net.drawn(1, 2) : 1, 1};
    const int64_t extent = (c.kernel[0] - 1) * c.dilation[0] + 1;
    c.padding = {padding(extent), padding(c.kernel[1]), padding(extent), padding(c.kernel[1])};
    if (in[0] < extent || in[1] < c.kernel[1]) c = {.kernel = {1, 1}};
    const int64_t kind = net.drawn(0, 5);
    if (kind == 0 && i > 0 && in[0] > 3 && in[1] > 1) {
      const PoolOptions o{{net.drawn(2, 3), 2}, {net.drawn(1, 2), 1}, {net.drawn(0, 1), 0, 0, 1}};
      x = net.drawn(0, 1) == 0 ? net.max_pool(x, o) : net.avg_pool(x, o);
    } else if (kind == 1) {
      c.groups = in[2];
      x = net.conv(x, in[2], c, dtypes::int8);
    } else if (kind == 2) {
      c.groups = 2;
      x = net.conv(x, in[2], c, dtypes::int8);
    } else if (kind == 3) {  // a residual block
      const Conv2dOptions same{.kernel = {3, 3}, .padding = {1, 1, 1, 1}};
      x = net.add(x, net.conv(net.conv(x, 6, same, dtypes::int8), in[2], same, dtypes::int4));
    } else {
      x = net.conv(x, net.drawn(1, 3) * 4, c, kind == 4 ? dtypes::int4 : dtypes::int8);
    }
  }
  if (seed % 2 == 0) net.linear(net.global_avg_pool(x), 9, dtypes::int8);
  return net.finish();
}

std::vector<NamedGraph> nets() {
  std::vector<NamedGraph> out = integer_nets(OutputRounding::kDouble);
  out.erase(out.begin() + 10, out.end());  // int8 and int4
  for (const uint64_t seed : {4, 9, 16, 22, 25, 31, 38}) out.push_back({concat("drawn ", seed), drawn_chain(seed)});
  return out;
}

// What runs in turns, of steps that keep rows in rings and of those that read them.
std::string kind_of(const inference::Graph& graph, const c_integer::Step& step) {
  const auto& op = graph[step.node].operation;
  const auto* const product = std::get_if<inference::Product>(&op);
  if (product == nullptr) return std::holds_alternative<inference::MaxPool>(op) ? "max_pool" : "avg_pool";
  if (product->conv->groups > 1) return c_integer::is_depthwise(*product) ? "depthwise" : "grouped";
  return step.sum >= 0 ? "sum" : product->weight.dtype() == dtypes::int4 ? "nibbles" : "bytes";
}

}  // namespace

TEST_CASE("C of networks of integers with rings gives the codes of the definitions in less memory", "[bits]") {
  const TempDir temp;
  std::ofstream(temp.file("arm_acle.h")) << kAcle;
  std::set<std::string> makes, reads;
  std::vector<NamedGraph> with_rings;
  bool in_place = false, ahead = false;
  for (NamedGraph& net : nets()) {
    INFO(net.name);
    const std::string path = temp.file("net" + std::to_string(with_rings.size()) + ".c");
    const ExportReport streamed = c_integer::write_c(net.graph, path, {.stream = true}, {});
    std::filesystem::create_directory(temp.file("plain"));
    const std::string same_name = temp.file("plain/" + path.substr(path.find_last_of('/') + 1));
    const ExportReport whole = c_integer::write_c(net.graph, same_name, {}, {});
    const c_integer::Plan plan = c_integer::make_stream_plan(net.graph, false, false);
    CHECK(streamed.ram_bytes == plan.arena + plan.columns);
    REQUIRE(streamed.facts.back().first == "rows");
    if (!c_integer::has_rings(plan)) {
      CHECK(streamed.ram_bytes == whole.ram_bytes);
      CHECK(slurp(path) == slurp(same_name));
      CHECK(contains(streamed.facts.back().second, "nothing: "));
      continue;
    }
    CHECK(streamed.ram_bytes < whole.ram_bytes);
    for (size_t i = 0; i < plan.steps.size(); ++i) {
      const c_integer::Step& step = plan.steps[i];
      if (step.kept > 0) makes.insert(kind_of(net.graph, step));
      if (step.reads == 0) continue;
      reads.insert(kind_of(net.graph, step));
      const c_integer::Spot &from = plan.spots[static_cast<size_t>(plan.steps[i - 1].inputs[0])],
                            &to = plan.spots[static_cast<size_t>(step.result)];
      const bool here = from.where == to.where && from.offset == to.offset;
      in_place = in_place || here;
      ahead = ahead || (here && step.reads > c_integer::row_window(net.graph, step)->extent);
    }
    with_rings.push_back(std::move(net));
  }
  const std::set<std::string> products{"bytes", "nibbles", "depthwise", "grouped"};
  std::set<std::string> readers = products;
  readers.insert({"sum", "max_pool", "avg_pool"});
  CHECK(makes == products);
  CHECK(reads == readers);
  CHECK(in_place);
  CHECK(ahead);
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"-O0", "-fsanitize=undefined", "-fno-sanitize-recover"},
        {"-O1", "-D__ARM_FEATURE_SIMD32=1"}}) {
    const std::string library = temp.file("nets" + flags.back() + ".so");
    std::vector<std::string> command{"gcc",     "-std=c99", "-Wall", "-Wextra", "-Werror",           "-pedantic",
                                     "-shared", "-fPIC",    "-o",    library,   "-I" + temp.file("")};
    command.insert(command.end(), flags.begin(), flags.end());
    const size_t step = flags.size() == 2 ? 3 : 1;  // a third of them with the instructions of Arm
    for (size_t i = 0; i < with_rings.size(); i += step) command.push_back(temp.file("net" + std::to_string(i) + ".c"));
    const ProcessResult compiled = run_program(command);
    INFO(compiled.err.substr(0, 3000));
    REQUIRE(compiled.code == 0);
    void* const handle = ::dlopen(library.c_str(), RTLD_NOW);
    REQUIRE(handle != nullptr);
    for (size_t i = 0; i < with_rings.size(); i += step) {
      INFO(with_rings[i].name);
      check_codes(handle, "net" + std::to_string(i), with_rings[i].graph);
    }
    ::dlclose(handle);
  }
}

TEST_CASE("Rings of rows make ResNet-8 and DS-CNN need less memory") {
  const inference::Graph resnet = small_resnet(OutputRounding::kDouble, dtypes::int8, 32, 16);
  const c_integer::Plan plan = c_integer::make_stream_plan(resnet, false, false);
  // 32 x 32 x 16 and 16 x 16 x 32 codes, and 3 rows of 16 x 32. The sum is written over its operand, row by row.
  CHECK(plan.arena == 16384 + 8192 + 1536);
  CHECK(plan.columns == 1152);
  const inference::Graph words = ds_cnn(OutputRounding::kDouble);
  const c_integer::Plan small = c_integer::make_stream_plan(words, false, false);
  // 25 x 5 x 64 codes, and two rows: the result is a row behind what the next window of 3 x 3 pixels reads.
  CHECK(small.arena == 8000 + 640);
  CHECK(small.columns == 128);
  const ExportReport report = c_integer::write_c(words, "words.c", {.dry_run = true, .stream = true}, {});
  CHECK(report.ram_bytes == 8768);
  CHECK(contains(report.facts.back().second, " 2 of 25 rows (640 bytes of 8000) are kept for "));
  CHECK(contains(report.facts.back().second, "; values: 8640 bytes, without --stream 16000"));
}

TEST_CASE("C of integers with rings reads floats and writes floats") {
  const TempDir temp;
  const inference::Graph graph = ds_cnn(OutputRounding::kDouble, 8);
  (void)c_integer::write_c(graph, temp.file("net.c"), {.float_io = true, .stream = true}, {});
  REQUIRE(contains(slurp(temp.file("net.c")), "int32_t y, r;"));
  const ProcessResult compiled = run_program({"gcc", "-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic",
                                              "-shared", "-fPIC", "-o", temp.file("net.so"), temp.file("net.c")});
  INFO(compiled.err);
  REQUIRE(compiled.code == 0);
  void* const handle = ::dlopen(temp.file("net.so").c_str(), RTLD_NOW);
  REQUIRE(handle != nullptr);
  const auto predict = reinterpret_cast<int (*)(const float*, float*)>(::dlsym(handle, "net_predict"));
  const inference::CodeScale in = inference::code_scale(graph[1]),
                             out = inference::code_scale(graph[graph[graph.output()].inputs[0]]);
  for (const Codes& x : code_samples(graph, 3)) {
    std::vector<float> values, y(12);
    for (const int64_t code : x) values.push_back(static_cast<float>(code - in.zero) * in.scale);
    CHECK(predict(values.data(), y.data()) == 0);
    const Codes expected = IntegerReference(graph).run(x);
    for (size_t i = 0; i < y.size(); ++i) CHECK(y[i] == static_cast<float>(expected[i] - out.zero) * out.scale);
  }
  ::dlclose(handle);
}
