// Which draws a run takes, by a loop written from docs/numerics.md alone: purposes and counters of section 7, and the
// straight-through mask of section 6 where codes are older than their master (N > A).
#include "bitgrad/dtype/bf16.h"
#include "bitgrad/ops/ops.h"
#include "bitgrad/train/learner.h"
#include "nn/nn_support.h"
#include "support/catch.h"
#include "support/label_loss.h"
#include "train/small_learner.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr int64_t kRows = 6, kWide = 40, kClasses = 4, kAccumulate = 9, kEvery = 27;
constexpr uint64_t kSeed = 5;
constexpr float kRate = 8.0f;

Tensor batch(int64_t i) { return random_tensor({kRows, kWide}, dtypes::fp32, 1000 + static_cast<uint64_t>(i), -2, 2); }
std::vector<int32_t> labels(int64_t i) {
  std::vector<int32_t> out;
  for (int64_t r = 0; r < kRows; ++r) out.push_back(static_cast<int32_t>((r * 5 + i) % kClasses));
  return out;
}

// dropout -> int8 codes, rounded stochastically -> one linear of int4 weights, whose gradient is an int8 product and is
// summed in bf16 (stochastically, as A > 8).
std::unique_ptr<Learner> learner_of(const QuantSpec& input, const QuantSpec& weights) {
  LayerSpec drop = plain_spec("dropout"), quantize = plain_spec("quantize"), linear = plain_spec("linear");
  drop.attributes["p"] = 0.25;
  quantize.activation = ActivationQuant{input};
  linear.attributes["out"] = kClasses;
  linear.attributes["bias"] = false;
  linear.weight = weight_spec(weights, dtypes::bf16);
  linear.product.gw = ProductMode::kInt8;
  return std::make_unique<Learner>(
      make_sequential({drop, quantize, linear}, kWide), find_loss("softmax_cross_entropy"), OptimizerSpec{},
      RequantPolicy{kAccumulate, kEvery}, [](int64_t) { return kRate; }, kSeed);
}

RandomStream draws(Purpose purpose, const char* path, int64_t step) {
  return {kSeed, purpose, site_id(path), static_cast<uint32_t>(step)};
}

Tensor codes_of(const QuantSpec& spec, const Tensor& x, const RandomStream& stream) {
  QuantizeOptions options;
  options.sr = &stream;
  return quantize_dynamic(spec, x, options);
}

// The gradient of the weight in fp32, of microbatch i.
Tensor gradient(const QuantSpec& input, const Tensor& codes, int64_t i) {
  DropoutOptions drop;
  drop.p = 0.25;
  drop.stream = draws(Purpose::kDropout, "layers.0", i);
  const RandomStream activation = draws(Purpose::kActivation, "layers.1", i),
                     product = draws(Purpose::kGradient, "layers.2", i);
  QuantizeOpOptions how;
  how.sr = &activation;
  ProductModes modes;
  modes.gw = ProductMode::kInt8;
  modes.sr = &product;
  AccumulateSink sink;
  Tape tape;
  const Var x = quantize(dropout(Var(batch(i)), drop), input, how);
  tape.backward(label_loss(linear(x, tape.leaf(codes, &sink, dtypes::fp32), {}, modes), labels(i)));
  return sink.grad().clone(MemoryKind::kGrad);
}

}  // namespace

TEST_CASE("a run uses the draws, and the masks of older codes, of the documented loop") {
  const QuantSpec input = quant_spec(dtypes::int8, "symmetric", Rounding::kStochastic);
  QuantSpec weights = quant_spec(dtypes::int4, "symmetric", Rounding::kStochastic);
  weights.granularity = Granularity::channel(0);
  const auto learner = learner_of(input, weights);
  const Parameter& w = *learner->model().parameters()[0];
  REQUIRE(w.path() == "layers.2.weight");
  const Tensor master = w.master().clone(MemoryKind::kMaster);
  Tensor codes = codes_of(weights, master, draws(Purpose::kRequantize, "layers.2.weight", 0));
  std::vector<uint16_t> sum(static_cast<size_t>(master.numel()));
  int64_t steps = 0, moved_masks = 0;
  float* const x = master.as<float>();
  std::vector<float> coded(x, x + master.numel());  // the master that the codes were made of
  for (int64_t i = 0; i < 2 * kEvery; ++i) {
    INFO("microbatch " << i);
    learner->microbatch(batch(i), labels(i));
    const Tensor part = gradient(input, codes, i);
    const RandomStream rounding = draws(Purpose::kGradAccumulate, "layers.2.weight", i);
    for (size_t e = 0; e < sum.size(); ++e) {
      const float before = i % kAccumulate == 0 ? 0.0f : bf16_to_float(sum[e]);
      sum[e] = bf16_from_float_stochastic(before + part.as<float>()[e], rounding.bits16(e));
    }
    if ((i + 1) % kAccumulate != 0) continue;
    const auto& scale = *codes.quant()->scale;
    for (size_t e = 0; e < sum.size(); ++e) {
      // Rule clip: the nearest code of the master as it is, by the scales of the codes in use.
      const float inverse = 1.0f / scale.as<float>()[e / kWide];
      const auto inside = [&](float v) { return std::rint(v * inverse) >= -8 && std::rint(v * inverse) <= 7; };
      moved_masks += inside(x[e]) != inside(coded[e]);
      if (inside(x[e])) x[e] = x[e] - kRate * (bf16_to_float(sum[e]) / static_cast<float>(kAccumulate * kRows));
    }
    ++steps;
    if ((i + 1) % kEvery == 0) {
      codes = codes_of(weights, master, draws(Purpose::kRequantize, "layers.2.weight", steps));
      coded.assign(x, x + master.numel());
    }
    REQUIRE(bits_of(w.master()) == bits_of(master));
    REQUIRE(w.value().elements() == codes.elements());
  }
  CHECK(steps == 6);
  CHECK(moved_masks > 0);
}

TEST_CASE("purposes have the numbers of the page") {
  // Draws of a purpose by its number alone.
  const std::pair<Purpose, int> all[] = {
      {Purpose::kInit, 1},           {Purpose::kRequantize, 2}, {Purpose::kDropout, 3},
      {Purpose::kShuffle, 4},        {Purpose::kActivation, 5}, {Purpose::kGradient, 6},
      {Purpose::kGradAccumulate, 7}, {Purpose::kDataset, 8},    {Purpose::kGradientWeight, 9},
      {Purpose::kUpdate, 10},        {Purpose::kMoment, 11},    {Purpose::kTransform, 12},
      {Purpose::kAugment, 13},       {Purpose::kSample, 14},    {Purpose::kToken, 15},
      {Purpose::kWire, 16},          {Purpose::kUser, 255}};
  for (const auto& [purpose, number] : all) {
    const RandomStream stream{3, purpose, 7, 2};
    CHECK(stream.block(1) == philox4x32_10({1, static_cast<uint32_t>(number) << 24, 7, 2}, {3, 0}));
  }
  int lines = 0;
#define BITGRAD_PURPOSE(symbol, value) ++lines;
  BITGRAD_PURPOSES(BITGRAD_PURPOSE)
#undef BITGRAD_PURPOSE
  CHECK(lines == static_cast<int>(std::size(all)));
}
