// Ranges that a profiler is told of: the stages of a step, with the ops in them.
#include "bitgrad/base/profile.h"

#include "support/catch.h"
#include "support/numbers.h"
#include "train/small_learner.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

std::vector<std::string> g_ranges;  // "forward", " linear": as deep as they are nested
size_t g_depth = 0;

constexpr Profiler kNotes{[](std::string_view name) { g_ranges.push_back(std::string(g_depth++, ' ') += name); },
                          [] { --g_depth; }};

}  // namespace

TEST_CASE("ranges for a profiler are the stages of a step, and in them its ops forward and backward") {
  LayerSpec first = plain_spec("linear"), last = plain_spec("linear");
  first.attributes["out"] = 4;
  last.attributes["out"] = 3;
  const auto model = make_sequential({first, plain_spec("relu"), last}, 5);
  Learner learner(
      model, find_loss("softmax_cross_entropy"), OptimizerSpec{.name = "sgd"}, RequantPolicy{1, 1},
      [](int64_t) { return 0.1f; }, 3);
  const std::vector<int32_t> labels{0, 1};
  const Tensor x = random_tensor({2, 5}, dtypes::fp32, 1);
  learner.microbatch(x, labels);
  CHECK(g_ranges.empty());
  set_profiler(&kNotes);
  learner.microbatch(x, labels);
  set_profiler(nullptr);
  CHECK(g_depth == 0);
  CHECK(g_ranges == std::vector<std::string>{"forward", " linear", " unary", " linear", " softmax_cross_entropy",
                                             "backward", " softmax_cross_entropy", " linear", " unary", " linear",
                                             "sum", "reduce", "check_forward", "check_gradients", "update",
                                             "requantize"});
}
