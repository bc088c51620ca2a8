// What parameters begin with when a program does not say: the values that a configuration gives them.
#include <cmath>

#include "bitgrad/nn/layers.h"
#include "nn/nn_support.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

Tensor master_of(const Shape& shape, ParameterSpec spec) {
  Parameter p(shape, std::move(spec));
  p.initialize("layers.0.weight", 7);
  return p.has_master() ? p.master().clone(MemoryKind::kBuffer) : dequantize_tensor(p.value());
}

}  // namespace

TEST_CASE("a parameter without initial values of its own draws glorot_uniform, in any container") {
  const Tensor plain = master_of({30, 50}, {});
  CHECK(bits_of(plain) == bits_of(master_of({30, 50}, {.init = {"glorot_uniform"}})));
  // Glorot and Bengio 2010, eq. 16: uniform in [-r, r), r = sqrt(6 / (fan_in + fan_out)), whose variance is r^2 / 3.
  const double r = std::sqrt(6.0 / 80.0);
  double squares = 0, largest = 0;
  for (const double v : plain.elements()) {
    squares += v * v;
    largest = std::max(largest, std::fabs(v));
  }
  CHECK(largest <= r * (1 + 1e-6));
  CHECK(largest > 0.99 * r);
  CHECK(std::fabs(squares / 1500 - r * r / 3) < 0.1 * r * r / 3);

  const QuantSpec int4{.dtype = dtypes::int4, .granularity = Granularity::channel(0)};
  for (const MasterKind master : {MasterKind::kFp32, MasterKind::kBf16, MasterKind::kNone})
    CHECK(bits_of(master_of({30, 50}, {.quant = int4, .master = master})) ==
          bits_of(master_of({30, 50}, {.quant = int4, .init = {"glorot_uniform"}, .master = master})));
  Parameter codes({30, 50}, {.quant = int4});
  codes.initialize("w", 1);
  for (int64_t row = 0; row < 30; ++row) {
    bool zeros = true;
    for (const double v : codes.value().row_slice(row, row + 1).elements()) zeros = zeros && v == 0;
    CHECK_FALSE(zeros);
  }
}

TEST_CASE("the table of an embedding draws normal(0,1), biases begin at 0, norms at 1 and 0") {
  const auto made = [](const LayerSpec& spec, int64_t in) {
    const auto module = make_layer(spec, in);
    StepState state;
    state.seed = 5;
    module->initialize("layers.0", state);
    std::vector<std::vector<uint32_t>> values;
    for (const Parameter* p : module->parameters()) values.push_back(bits_of(p->value()));
    return values;
  };
  const LayerSpec table{.kind = "embedding", .attributes = {{"num", 9}, {"dim", 4}}};
  LayerSpec said = table;
  said.weight.init = {"normal", 0, 1};
  CHECK(made(table, 3) == made(said, 3));
  said.weight.init = {"glorot_uniform"};
  CHECK(made(table, 3) != made(said, 3));

  const auto zeros = [](size_t n) { return std::vector<uint32_t>(n, 0u); };
  const auto linear = made({.kind = "linear", .attributes = {{"out", 6}, {"bias", true}}}, 8);
  REQUIRE(linear.size() == 2);
  CHECK(linear[0] != zeros(48));
  CHECK(linear[1] == zeros(6));
  for (const char* kind : {"batch_norm", "tensor_norm"}) {
    const auto norm = made({.kind = kind}, 3);
    REQUIRE(norm.size() == 2);
    CHECK(norm[0] == std::vector<uint32_t>(norm[0].size(), 0x3F800000u));
    CHECK(norm[1] == zeros(norm[1].size()));
  }
}

TEST_CASE("an unknown rule of initial values lists the names") {
  Parameter p({2, 2}, {.init = {"glorot_unifrom"}});
  const std::string text = error_of([&] { p.initialize("w", 1); });
  CHECK(contains(text, "glorot_unifrom"));
  CHECK(contains(text, "glorot_uniform"));
}
