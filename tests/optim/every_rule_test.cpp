// The list of update rules itself (src/optim/optimizers.inc).
#include <algorithm>
#include <cmath>

#include "bitgrad/optim/update_rule.h"
#include "optim/optim_support.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/subprocess.h"

using namespace bitgrad;
using namespace bitgrad::test;

TEST_CASE(
    "every rule moves values, and goes on from its state bit for bit, with moments of every dtype that it keeps") {
  const std::string promises = slurp(source_path("tests/train/promises.inc"));
  for (const OptimizerKeys& rule : optimizer_keys()) {
    const std::string name(rule.name);
    INFO(name);
    const bool promised = contains(promises, "name: " + name) || contains(promises, "optimizer: " + name);
    CHECK(promised);                                      // killed, resumed, saved, on every instruction set
    if (make_rule(named(name))->flips_signs()) continue;  // bop: codes without masters (bop_test)
    for (const MomentKind kind : {MomentKind::kFp32, MomentKind::kBf16, MomentKind::kInt8, MomentKind::kInt4}) {
      INFO(name << ", moments " << enum_name(kind));
      OptimizerSpec spec = named(name);
      spec.moments = kind;
      const Shape shape{5, 70};
      const auto a = float_parameter("w", shape), b = float_parameter("w", shape);
      a->set_hidden(true);
      b->set_hidden(true);
      const auto first = make_optimizer(spec), second = make_optimizer(spec);
      first->attach({a.get()});
      second->attach({b.get()});
      const auto step = [&](Optimizer& optimizer, Parameter& p, uint64_t seed) {
        accumulate(p, random_tensor(shape, dtypes::fp32, seed));
        optimizer.step(0.1f, 1);
      };
      const Floats start = floats(a->master());
      for (uint64_t seed = 0; seed < 3; ++seed) step(*first, *a, seed);
      const Floats middle = floats(a->master());
      CHECK(middle != start);
      CHECK(std::all_of(middle.begin(), middle.end(), [](float x) { return std::isfinite(x); }));
      b->master().copy_from(a->master());
      const auto state = first->state(), other = second->state();
      REQUIRE(state.size() == other.size());
      for (size_t i = 0; i < state.size(); ++i) Tensor(other[i].tensor).copy_from(state[i].tensor);
      second->set_steps(3);
      for (uint64_t seed = 3; seed < 5; ++seed) {
        step(*first, *a, seed);
        step(*second, *b, seed);
      }
      CHECK(floats(a->master()) == floats(b->master()));
    }
  }
}
