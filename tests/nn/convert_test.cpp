// A converted model is the model that trained: equal bits, for schemes, granularities, dtypes, input schemes and shapes
// drawn at random. BITGRAD_TEST_SHAPES sets the number of cases.
#include <functional>
#include <set>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/parallel.h"
#include "nn/convert_support.h"
#include "support/catch.h"
#include "support/everywhere.h"
#include "support/expect_error.h"
#include "support/gemm_reference.h"
#include "support/shape_count.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

class Mode {
 public:
  explicit Mode(BitsMode mode) { set_bits_mode(mode); }
  ~Mode() {
    set_bits_mode(before_);
    set_isa_cap(cap_);
    set_num_threads(threads_);
  }
  Mode(const Mode&) = delete;
  Mode& operator=(const Mode&) = delete;

 private:
  BitsMode before_ = bits_mode();
  IsaLevel cap_ = isa_cap();
  int threads_ = num_threads();
};

struct Outcome {
  std::vector<uint32_t> logits;  // of the prepared model
  bool trained = false;          // every step
  bool converted = false, loaded = false;
  bool fewer_bytes = true;  // no master and no learned weight part is left
};

Outcome run_case(const ConvertCase& c) {
  const auto model = float_model(c);
  StepState state;
  state.seed = 17;
  prepare(*model, spec_of(c));
  model->initialize("layers", state);
  plan_rows(*model, c);
  Outcome o;
  o.trained = train_steps(*model, state, c, 2);
  if (c.freeze) set_quant_mode(*model, {QuantSwitch::kFrozen, false});
  o.trained = train_steps(*model, state, c, 1) && o.trained;

  o.logits = evaluate(*model, state, c);
  convert(*model);
  o.converted = evaluate(*model, state, c) == o.logits;
  for (const Parameter* p : model->parameters())
    if (p->low_bit() && (p->has_master() || !p->learned().empty())) o.fewer_bytes = false;
  const auto loaded = load_copy(c, *model);
  o.loaded = evaluate(*loaded->model, loaded->state, c) == o.logits;
  return o;
}

struct Counts {
  int cases = 0, trained = 0, inputs = 0, observed = 0, integer = 0;
};

// `run` gives whether every step was trained.
Counts for_cases(int count, const std::function<bool(const ConvertCase&)>& run) {
  Counts counts;
  for (int i = 0; i < count; ++i) {
    // Few cases are spread over all weight specs.
    const uint64_t seed = static_cast<uint64_t>(i) * (count >= 2000 ? 1 : 37);
    ConvertCase c = random_case(seed);
    repair(c);
    INFO("case " << seed << ": " << describe(c));
    ++counts.cases;
    counts.trained += run(c);
    for (const LayerQuant* q : {&c.first, &c.last}) {
      counts.inputs += q->input.has_value();
      counts.observed += q->observer.has_value();
      counts.integer += q->compute == Compute::kIntegerOut;
    }
  }
  UNSCOPED_INFO("of " << counts.cases << " cases " << counts.trained << " trained all steps; " << counts.inputs
                      << " inputs, " << counts.observed << " observed, " << counts.integer << " integer products");
  return counts;
}

// Repairs have left most of what was drawn.
void check(const Counts& counts) {
  CHECK(counts.trained * 100 >= counts.cases * 95);
  CHECK(counts.inputs * 4 >= counts.cases * 4);
  CHECK(counts.observed * 20 >= counts.cases);
  CHECK(counts.integer * 20 >= counts.cases);
}

void check(const Outcome& o) {
  REQUIRE_FALSE(o.logits.empty());
  CHECK(o.converted);
  CHECK(o.loaded);
  CHECK(o.fewer_bytes);
}

}  // namespace

TEST_CASE("prepared, converted and loaded models give equal bits in fast mode") {
  const Mode fast(BitsMode::kFast);
  check(for_cases(shape_count(100), [](const ConvertCase& c) {
    const Outcome o = run_case(c);
    check(o);
    return o.trained;
  }));
}

TEST_CASE(
    "in strict mode a prepared model trains to the same converted bits on every instruction set and number of "
    "threads") {
  const Mode strict(BitsMode::kStrict);
  const IsaLevel most = isa_cap();
  check(for_cases(shape_count(60), [&](const ConvertCase& c) {
    bool trained = true;
    std::vector<uint32_t> first;
    for (const IsaLevel level : isa_levels({IsaLevel::kScalar, IsaLevel::kAvx2, IsaLevel::kAvx512, IsaLevel::kAmx})) {
      if (level > most) continue;
      set_isa_cap(level);
      set_num_threads(1 + static_cast<int>(level));
      const Outcome o = run_case(c);
      check(o);
      if (first.empty()) first = o.logits;
      CHECK(o.logits == first);
      trained = trained && o.trained;
    }
    return trained;
  }));
}

TEST_CASE("the cases of the product meet every weight scheme, dtype and granularity") {
  std::set<std::string> schemes;
  for (const QuantSpec& s : all_weights()) schemes.insert(s.scheme);
  CHECK(schemes.size() >= 14);
  CHECK(all_weights().size() > 1000);
  CHECK(all_inputs().size() > 300);
}

TEST_CASE("a model of compute simulated stays close when it is converted to packed products") {
  for (const int64_t k : {5, 64, 700}) {
    ConvertCase c = random_case(3);
    c.in = k;
    c.first = c.last = find_recipe("8da4w");
    c.first.compute = c.last.compute = Compute::kSimulated;
    const auto model = float_model(c);
    StepState state;
    prepare(*model, spec_of(c));
    model->initialize("layers", state);
    plan_rows(*model, c);
    train_steps(*model, state, c, 2);
    const NoGrad off;
    state.training = false;
    const Tensor x = batch_of(c, 9, 5), before = (*model)(x).value();
    convert(*model);
    CHECK(model->quantizables()[0]->quant().compute == Compute::kPacked);
    CHECK(distance((*model)(x).value(), before) < 1e-5);
  }
}
