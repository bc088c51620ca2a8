// Networks of integers as C: their codes are those of an int64 reference, on every compiler and with the DSP extension
// of Arm.
#include <dlfcn.h>

#include <fstream>
#include <map>

#include "export/c_integer.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/integer_layers.h"
#include "support/integer_nets.h"
#include "support/integer_reference.h"
#include "support/subprocess.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

using Codes = IntegerReference::Codes;
constexpr int kSamples = 6;

// arm_acle.h in C, for the host.
constexpr const char* kAcle = R"c(
#include <stdint.h>
typedef int32_t int8x4_t, int16x2_t;
static inline int16x2_t __sxtb16(int8x4_t x) {
  return (int32_t)(((uint32_t)(int16_t)(int8_t)x & 0xffffU) | ((uint32_t)(int8_t)((uint32_t)x >> 16) << 16));
}
static inline int32_t __smlad(int16x2_t a, int16x2_t b, int32_t c) {
  return c + (int16_t)a * (int16_t)b + (int16_t)((uint32_t)a >> 16) * (int16_t)((uint32_t)b >> 16);
}
)c";

std::vector<Codes> samples(const inference::Graph& graph, uint64_t seed) {
  IntegerNet draws(Shape{1}, OutputRounding::kDouble, seed);
  std::vector<Codes> out;
  for (int s = 0; s < kSamples; ++s) {
    Codes x(static_cast<size_t>(graph[1].form.sample.numel()));
    for (int64_t& each : x) each = s == 0 ? -128 : s == 1 ? 127 : draws.drawn(-128, 127);
    out.push_back(x);
  }
  return out;
}

void check_codes(void* library, const std::string& name, const inference::Graph& graph) {
  using Predict = void (*)(const int8_t*, int8_t*);
  const auto predict = reinterpret_cast<Predict>(::dlsym(library, (name + "_predict").c_str()));
  REQUIRE(predict != nullptr);
  IntegerReference reference(graph);
  int64_t clamped = 0, all = 0;
  for (int round = 0; round < 2; ++round)  // what a sample leaves in the buffers does not matter
    for (const Codes& x : samples(graph, 7)) {
      const std::vector<int8_t> in(x.begin(), x.end());
      const Codes expected = reference.run(x);
      std::vector<int8_t> out(expected.size());
      predict(in.data(), out.data());
      CHECK(Codes(out.begin(), out.end()) == expected);
      for (const int64_t y : expected) clamped += y == -128 || y == 127 ? 1 : 0;
      all += std::ssize(expected);
    }
  CHECK(clamped < all);  // codes say something
}

// Two values share bytes only if one is read for the last time before the other is written, or in the same step.
void check_lifetimes(const c_integer::Plan& p) {
  std::map<inference::Value, std::pair<size_t, size_t>> life;  // steps that write and last read it
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
      for (const std::string word : {"float", "double"}) {
        INFO(file << ": " << word);
        CHECK(run_program({"grep", "-w", word, file}).code == 1);
      }
  }
  std::ofstream(temp.file("arm_acle.h")) << kAcle;
  struct Build {
    std::string compiler;
    std::vector<std::string> flags;
  };
  for (const Build& build : {Build{"gcc", {"-O1", "-fsanitize=undefined", "-fno-sanitize-recover"}},
                             Build{"gcc", {"-O2", "-D__ARM_FEATURE_SIMD32=1"}}, Build{"clang", {"-O2"}}}) {
    if (run_program({build.compiler, "--version"}).code != 0) {
      WARN("skipped: no " + build.compiler);
      continue;
    }
    const std::string library = temp.file("nets" + build.flags.back() + ".so");
    std::vector<std::string> command{build.compiler, "-std=c99", "-Wall", "-Wextra", "-Werror",           "-pedantic",
                                     "-shared",      "-fPIC",    "-o",    library,   "-I" + temp.file("")};
    command.insert(command.end(), build.flags.begin(), build.flags.end());
    command.insert(command.end(), files.begin(), files.end());
    const ProcessResult compiled = run_program(command);
    INFO(build.compiler << ' ' << build.flags.back() << '\n' << compiled.err.substr(0, 3000));
    REQUIRE(compiled.code == 0);
    void* const handle = ::dlopen(library.c_str(), RTLD_NOW);
    INFO((handle == nullptr ? ::dlerror() : ""));
    REQUIRE(handle != nullptr);
    for (size_t i = 0; i < nets.size(); ++i) {
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
    }
}
