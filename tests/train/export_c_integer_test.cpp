// Networks of integers as C: their codes are those of an int64 reference, on every compiler and with the DSP extension
// of Arm.
#include <dlfcn.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <type_traits>

#include "export/c_integer.h"
#include "export/targets.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/integer_c.h"
#include "support/integer_layers.h"
#include "support/integer_nets.h"
#include "support/subprocess.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

using Codes = IntegerReference::Codes;

// Two values share bytes only if one is read for the last time before the other is written, or in the same step.
void check_lifetimes(const c_integer::Plan& p) {
  std::map<inference::Value, std::pair<size_t, size_t>> life{{1, {0, 0}}};  // steps that write and last read it
  for (size_t step = 0; step < p.steps.size(); ++step) {
    for (const inference::Value v : p.steps[step].inputs)
      if (life.count(v) != 0) life[v].second = step;
    life[p.steps[step].result] = {step, step};
  }
  for (const auto& [a, a_life] : life)
    for (const auto& [b, b_life] : life) {
      const c_integer::Spot &x = p.spots[static_cast<size_t>(a)], &y = p.spots[static_cast<size_t>(b)];
      if (a == b || x.where != c_integer::Spot::Where::kArena || y.where != c_integer::Spot::Where::kArena) continue;
      if (a_life.first > b_life.first || a_life.second <= b_life.first) continue;
      INFO("values " << a << " and " << b);
      CHECK((x.offset + x.bytes <= y.offset || y.offset + y.bytes <= x.offset));
    }
}

// Inputs and outputs of a file that are floats or bytes.
struct DoorsCase {
  std::string name;
  inference::Graph graph;
  bool floats = false;
  std::vector<float> value_of_byte = {};
  bool softmax = false;
  // Codes of the outputs, and what they mean.
  Codes finished(Codes y) const {
    if (!softmax) return y;
    std::vector<int8_t> codes(y.begin(), y.end());
    const FixedSoftmax form = fixed_softmax(static_cast<double>(out().scale));
    const int64_t n = graph[graph[graph.output()].inputs[0]].form.features();
    for (size_t at = 0; at < codes.size(); at += static_cast<size_t>(n))
      softmax_codes(form, codes.data() + at, n, codes.data() + at);
    return {codes.begin(), codes.end()};
  }
  inference::CodeScale out() const { return inference::code_scale(graph[graph[graph.output()].inputs[0]]); }
  inference::CodeScale out_scale() const { return softmax ? inference::CodeScale{kSoftmaxScale, kSoftmaxZero} : out(); }
};

// The code of x by the rule of the graph's input (CodeRule::kInverse), in double behind the fp32 product.
int64_t code_of_value(float x, const inference::CodeScale& s) {
  return static_cast<int64_t>(
      std::clamp(std::nearbyint(static_cast<double>(x * (1.0f / s.scale))) + s.zero, -128.0, 127.0));
}

template <typename In, typename Out>
void check_doors(void* library, const DoorsCase& net, const std::vector<In>& x, const Codes& codes) {
  using Predict = int (*)(const In*, Out*);
  const auto predict = reinterpret_cast<Predict>(::dlsym(library, (net.name + "_predict").c_str()));
  REQUIRE(predict != nullptr);
  const Codes expected = net.finished(IntegerReference(net.graph).run(codes));
  const inference::CodeScale s = net.out_scale();
  std::vector<Out> out(expected.size());
  const int returned = predict(x.data(), out.data());
  if constexpr (std::is_same_v<In, float>) CHECK(returned == 0);
  for (size_t i = 0; i < out.size(); ++i) {
    const float value = static_cast<float>(expected[i] - s.zero) * s.scale;
    const bool same =
        std::is_same_v<Out, float> ? out[i] == static_cast<Out>(value) : out[i] == static_cast<Out>(expected[i]);
    INFO(i);
    CHECK(same);
  }
}

void check_floats(void* library, const DoorsCase& net) {
  const inference::CodeScale in = inference::code_scale(net.graph[1]);
  IntegerNet draws(Shape{1}, OutputRounding::kDouble, 5);
  std::vector<float> x(static_cast<size_t>(net.graph[1].form.sample.numel()));
  Codes codes(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    // Eighths of a step, ties among them, within the range and beyond it, and numbers that have no code.
    x[i] = in.scale * (static_cast<float>(draws.drawn(-1200, 1200)) / 8.0f);
    if (i % 17 == 3) x[i] = i % 2 == 0 ? 3e38f : -1e-42f;
    codes[i] = code_of_value(x[i], in);
  }
  check_doors<float, float>(library, net, x, codes);
  const auto predict =
      reinterpret_cast<int (*)(const float*, float*)>(::dlsym(library, (net.name + "_predict").c_str()));
  const auto outputs = static_cast<size_t>(net.graph[net.graph.output()].form.sample.numel());
  for (const float wrong : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    std::vector<float> bad = x, out(outputs, 7.0f);
    bad.back() = wrong;
    CHECK(predict(bad.data(), out.data()) == 1);
    CHECK(out == std::vector<float>(outputs, 7.0f));
  }
}

void check_bytes(void* library, const DoorsCase& net) {
  const inference::CodeScale in = inference::code_scale(net.graph[1]);
  const size_t tables = net.value_of_byte.size() / 256;
  std::vector<uint8_t> x(static_cast<size_t>(net.graph[1].form.sample.numel()));
  Codes codes(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<uint8_t>(i * 37 + i / 256);
    codes[i] = code_of_value(net.value_of_byte[i % tables * 256 + x[i]], in);
  }
  if (net.floats)
    check_doors<uint8_t, float>(library, net, x, codes);
  else
    check_doors<uint8_t, int8_t>(library, net, x, codes);
}

}  // namespace

TEST_CASE("C of networks of integers gives the codes of the definitions", "[bits]") {
  const TempDir temp;
  std::vector<NamedGraph> nets;
  for (const auto rule : {OutputRounding::kDouble, OutputRounding::kSingle, OutputRounding::kFloat})
    for (auto* const listed : {integer_nets, integer_layers::shared_nets})
      for (NamedGraph& net : listed(rule)) nets.push_back(std::move(net));
  std::vector<std::string> files;
  for (size_t i = 0; i < nets.size(); ++i) {
    INFO(nets[i].name);
    const std::string path = temp.file("net" + std::to_string(i) + ".c");
    const ExportReport report = c_integer::write_c(nets[i].graph, path, {}, {});
    CHECK_FALSE(report.refused());
    files.push_back(path);
    for (const std::string& file : {path, path.substr(0, path.size() - 1) + "h"})
      CHECK(run_program({"grep", "-wE", "float|double", file}).code == 1);
  }
  std::ofstream(temp.file("arm_acle.h")) << kAcle;
  struct Build {
    std::string compiler;
    std::vector<std::string> flags;
    std::optional<size_t> turn = {};  // one rule for each kind of net, another for the next; none: all
  };
  const size_t kinds = nets.size() / 3;
  for (const Build& build : {Build{"gcc", {"-O1", "-fsanitize=undefined", "-fno-sanitize-recover"}},
                             Build{"gcc", {"-O2", "-D__ARM_FEATURE_SIMD32=1"}, 0}, Build{"clang", {"-O2"}, 1}}) {
    const auto built = [&](size_t i) { return !build.turn || (i + i / kinds) % 3 == *build.turn; };
    if (run_program({build.compiler, "--version"}).code != 0) {
      WARN("skipped: no " + build.compiler);
      continue;
    }
    const std::string library = temp.file("nets" + build.flags.back() + ".so");
    std::vector<std::string> command{build.compiler, "-std=c99", "-Wall", "-Wextra", "-Werror",           "-pedantic",
                                     "-shared",      "-fPIC",    "-o",    library,   "-I" + temp.file("")};
    command.insert(command.end(), build.flags.begin(), build.flags.end());
    for (size_t i = 0; i < nets.size(); ++i)
      if (built(i)) command.push_back(files[i]);
    const ProcessResult compiled = run_program(command);
    INFO(build.compiler << ' ' << build.flags.back() << '\n' << compiled.err.substr(0, 3000));
    REQUIRE(compiled.code == 0);
    void* const handle = ::dlopen(library.c_str(), RTLD_NOW);
    INFO((handle == nullptr ? ::dlerror() : ""));
    REQUIRE(handle != nullptr);
    for (size_t i = 0; i < nets.size(); ++i) {
      if (!built(i)) continue;
      INFO(nets[i].name);
      check_codes(handle, "net" + std::to_string(i), nets[i].graph);
    }
    ::dlclose(handle);
  }
}

TEST_CASE("Values of networks of integers share one arena") {
  const inference::Graph resnet = small_resnet(OutputRounding::kDouble, dtypes::int8, 32, 16);
  const c_integer::Plan plan = c_integer::make_plan(resnet);
  CHECK(plan.arena == 32768);  // two values of 32 x 32 x 16: sums take the place of an operand
  CHECK(plan.columns == 2 * 576);
  // No two values that are needed at once overlap.
  for (const OutputRounding rule : {OutputRounding::kDouble})
    for (const NamedGraph& net : integer_nets(rule)) {
      INFO(net.name);
      const c_integer::Plan p = c_integer::make_plan(net.graph);
      CHECK(p.arena % 4 == 0);
      for (const c_integer::Spot& s : p.spots)
        if (s.where == c_integer::Spot::Where::kArena) CHECK((s.offset % 4 == 0 && s.offset + s.bytes <= p.arena));
      check_lifetimes(p);
      check_lifetimes(c_integer::make_plan(net.graph, true, true));
    }
}

TEST_CASE("C of networks of integers reads floats and bytes, and writes floats and probabilities") {
  const TempDir temp;
  std::vector<DoorsCase> cases;
  const auto add = [&](inference::Graph graph, bool floats, size_t tables, bool softmax = false) {
    std::vector<float> values(tables * 256);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = 0.011f * static_cast<float>(i & 255) - 1.3f + 0.2f * static_cast<float>(i >> 8);
    cases.push_back({"doors" + std::to_string(cases.size()), std::move(graph), floats, values, softmax});
  };
  for (const auto rule : {OutputRounding::kDouble, OutputRounding::kFloat}) {
    add(small_resnet(rule, dtypes::int8), true, 0);
    add(odd_network(rule, dtypes::int4), true, 0);
    add(dense_network(rule, dtypes::int8), true, 0);
  }
  add(overlapping_network(OutputRounding::kDouble, dtypes::int8), true, 1);
  add(small_resnet(OutputRounding::kDouble, dtypes::int4), false, 3);
  add(dense_network(OutputRounding::kDouble, dtypes::int8), false, 1);
  add(dense_network(OutputRounding::kSingle, dtypes::int8), true, 0, true);
  add(odd_network(OutputRounding::kDouble, dtypes::int4), false, 1, true);
  std::vector<std::string> command{"gcc",
                                   "-std=c99",
                                   "-O1",
                                   "-Wall",
                                   "-Wextra",
                                   "-Werror",
                                   "-pedantic",
                                   "-shared",
                                   "-fPIC",
                                   "-fsanitize=undefined",
                                   "-fno-sanitize-recover",
                                   "-I" + temp.file(""),
                                   "-o",
                                   temp.file("doors.so")};
  for (const DoorsCase& each : cases) {
    command.push_back(temp.file(each.name + ".c"));
    CHECK_FALSE(c_integer::write_c(each.graph, command.back(), {.float_io = each.floats, .softmax = each.softmax}, {},
                                   each.value_of_byte)
                    .refused());
  }
  const ProcessResult compiled = run_program(command);
  INFO(compiled.err.substr(0, 3000));
  REQUIRE(compiled.code == 0);
  void* const handle = ::dlopen(temp.file("doors.so").c_str(), RTLD_NOW);
  REQUIRE(handle != nullptr);
  for (const DoorsCase& each : cases) {
    INFO(each.name);
    each.value_of_byte.empty() ? check_floats(handle, each) : check_bytes(handle, each);
  }
  ::dlclose(handle);
}

TEST_CASE("A softmax names the layer of outputs that it cannot make probabilities of") {
  int refused = 0;
  for (const NamedGraph& net : integer_nets(OutputRounding::kDouble)) {
    const inference::Node& last = net.graph[net.graph[net.graph.output()].inputs[0]];
    const float scale = inference::code_scale(last).scale;
    if (scale > 0x1p-26f && scale < 16) continue;
    INFO(net.name);
    ++refused;
    const std::string text = error_of([&] { (void)output_scale(net.graph, {.softmax = true}); });
    CHECK(contains(text, "--softmax: got outputs of scale "));
    CHECK(contains(text, "[" + last.layer + "]"));
  }
  CHECK(refused > 0);
}
