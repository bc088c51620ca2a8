// Generation on a device: from a cache or without, scores and tokens are those of the CPU.
#include "bitgrad/infer/generator.h"

#include "cuda/same_as_cpu.h"
#include "train/small_gpt.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

// Scores of two prompts in pieces, across a window, and tokens after them.
Results written(const Strings& overrides, const GeneratorSpec& spec) {
  const auto learner = gpt_learner(overrides, 1);
  Generator generator(*learner, spec);
  Results out;
  std::vector<int32_t> ids = some_ids(43);
  const auto feed = [&](int64_t begin, int64_t end) {
    const std::span<const float> scores = generator.feed({ids.data() + begin, static_cast<size_t>(end - begin)});
    out.push_back(here(Tensor::from(scores, {kGptIds})));
    return std::vector<float>(scores.begin(), scores.end());
  };
  feed(0, 7);
  feed(7, 8);
  const std::vector<float> scores = feed(8, 43);
  const Generated made = generate(generator, scores, nullptr, {.tokens = 4, .sampling = {.top_k = 5, .seed = 3}});
  std::vector<double> numbers(made.ids.begin(), made.ids.end());
  out.push_back(Tensor::from_elements({std::ssize(made.ids)}, dtypes::int32, numbers));
  return out;
}

}  // namespace

TEST_CASE("A device generates the tokens of the CPU, by every kind of cache", "[bits]") {
  const KeepModes keep;
  for (const Strings& overrides :
       {Strings{kRope}, {"quant.recipe=ternary_int8"}, {"model.values=bf16", "quant.recipe=8da4w"}})
    for (const GeneratorSpec& spec :
         std::vector<GeneratorSpec>{{}, {.cache = false}, {.kv = KvKind::kBf16}, {.kv = KvKind::kInt8}}) {
      INFO(overrides.back() << ", cache " << spec.cache << ", " << kv_kind_name(spec.kv));
      CHECK(device_difference([&] { return written(overrides, spec); }) == "");
    }
}

TEST_CASE("A row on a device is the same alone and among others, in mode fast too") {
  const KeepModes keep;
  const DeviceGuard guard(gpu());
  for (const char* recipe : {"none", "ternary_int8", "int4wo"}) {
    INFO(recipe);
    const auto learner = gpt_learner({std::string("quant.recipe=") + recipe}, 0);
    const std::vector<int32_t> ids = some_ids(12);
    const std::vector<double> all = learner->predict(here(ids_tensor(ids))).elements();
    Generator generator(*learner);
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::span<const float> scores = generator.feed({&ids[i], 1});
      for (size_t c = 0; c < kGptIds; ++c) REQUIRE(static_cast<double>(scores[c]) == all[i * kGptIds + c]);
    }
  }
}
