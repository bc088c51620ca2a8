// What adapters over frozen int4 weights learn beside what training all weights in int4 learns.
#include <fstream>
#include <random>

#include "bitgrad/io/safetensors.h"
#include "support/catch.h"
#include "support/temp_dir.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr int kLetters = 12;
using Chain = std::vector<std::array<double, kLetters>>;

// Weights of each letter after each pair of letters; `change` of the pairs get others than those of `base`.
Chain drawn_chain(uint32_t seed, double change = 1, const Chain& base = {}) {
  std::mt19937 random(seed);
  const auto number = [&] { return static_cast<double>(random()) / 4294967296.0; };
  Chain chain(kLetters * kLetters);
  for (size_t pair = 0; pair < chain.size(); ++pair) {
    for (double& w : chain[pair]) w = std::pow(number(), 4);
    if (number() >= change) chain[pair] = base[pair];
  }
  return chain;
}

void write_text(const std::string& path, const Chain& chain, uint32_t seed) {
  std::mt19937 random(seed);
  std::string text = "ab";
  while (text.size() < 60000) {
    const auto& weights = chain[static_cast<size_t>((text[text.size() - 2] - 'a') * kLetters + text.back() - 'a')];
    double left = 0;
    for (const double w : weights) left += w;
    left *= static_cast<double>(random()) / 4294967296.0;
    int letter = 0;
    while (letter + 1 < kLetters && (left -= weights[static_cast<size_t>(letter)]) > 0) ++letter;
    text += static_cast<char>('a' + letter);
  }
  std::ofstream(path) << text;
}

constexpr const char* kGpt = R"yaml(version: 1
run: {name: gpt, seed: 3}
data:
  tokenizer: chars
  train: {format: tokens, file: a.txt, context: 16, order: random}
  test: {format: tokens, file: a.txt, context: 16}
model: {preset: gpt, keys: {vocabulary: 12, dim: 32, heads: 2, layers: 2, context: 16}}
batch: {global: 32}
optim: {name: adamw, lr: 3e-3, betas: [0.9, 0.99], weight_decay: 0.1, decay: matrices, clip_norm: 1}
schedule: {name: cosine, warmup: 20 steps, final: 0.1}
train: {stop: 1500 steps, best: loss, eval: {every: 500 steps, batch: 64}}
)yaml";

}  // namespace

TEST_CASE("adapters over int4 codes that stay learn a new text as well as int4 weights that train", "[slow]") {
  const KeepModes keep;
  const TempDir temp;
  const Chain a = drawn_chain(1), b = drawn_chain(2, 0.2, a);
  write_text(temp.file("a.txt"), a, 3);
  write_text(temp.file("b.txt"), b, 4);
  const std::vector<std::string> root{"data.root=" + temp.path()};
  const auto config = [&](std::vector<std::string> more) {
    more.insert(more.begin(), root.begin(), root.end());
    return small_config(more, kGpt);
  };
  const auto run = [&](const std::string& name, const std::vector<std::string>& more) {
    const RunConfig c = config(more);
    const std::string folder = create_run_folder(c, temp.file(name));
    const TrainOutcome outcome = run_all(c, folder);
    REQUIRE(outcome.evaluation.has_value());
    return std::pair(folder, outcome.evaluation->loss);
  };
  const auto [base, loss_a] = run("base", {});
  // The drawn chains' entropy is about 1.8 nats; the first model knows nothing of the second text.
  std::vector<std::string> on_b{"data.train.file=b.txt", "data.test.file=b.txt", "model.init_from=" + base,
                                "quant.rules=[{layers: layers.3.*, weights: {dtype: int4, scheme: symmetric, "
                                "granularity: group(32)}}]",
                                "train.stop=500 steps"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), on_b.begin(), on_b.end());
    return more;
  };
  const std::string adapters = "adapters={layers: [layers.3.*], rank: 8, alpha: 16}";
  const auto [still, untrained] =
      run("still", with({adapters, "optim.lr=1e-30", "train.stop=1 steps", "schedule.warmup=0 steps"}));
  const auto [full, qat] = run("full", with({"optim.lr=1e-3"}));
  const auto [lora, adapted] = run("lora", with({adapters, "optim.lr=6e-3", "optim.weight_decay=0"}));
  INFO("text a " << loss_a << ", b untrained " << untrained << ", all weights " << qat << ", adapters " << adapted);
  CHECK(untrained > qat + 0.15);
  CHECK(adapted < qat + 0.02);
  const NamedTensors before = load_tensors(run_folder_checkpoint(still)),
                     after = load_tensors(run_folder_checkpoint(lora));
  int codes = 0;
  for (const auto& [name, t] : before) {
    if (!t.quant()) continue;
    INFO(name);
    CHECK(after.at(name).elements() == t.elements());
    CHECK(after.at(name).values() == t.values());
    ++codes;
  }
  CHECK(codes == 8);
}
