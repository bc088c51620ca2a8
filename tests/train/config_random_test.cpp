// Configurations with drawn recipes, rules and phases are written and read back.
#include <random>

#include "bitgrad/nn/prepare.h"
#include "train/config_support.h"

namespace bitgrad {

using namespace test;

namespace {

// Draws configurations from texts that are sound.
class Draw {
 public:
  explicit Draw(uint32_t seed) : random_(seed) {}
  int below(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  std::string one_of(const Strings& texts) { return texts[static_cast<size_t>(below(static_cast<int>(texts.size())))]; }
  // Of networks of integers not: they do not go with every rule.
  std::string recipe() {
    Strings names = recipe_names();
    std::erase_if(names, [](const std::string& name) { return find_recipe(name).compute == Compute::kInteger; });
    return one_of(names);
  }
  std::string rule() {
    std::string keys =
        "layers: " + one_of({"layers.0", "\"*\"", "\"layers.[0-2]\"", "\"layers.?\"", "\"layers.[!02]\""});
    if (below(3) == 0) return concat('{', keys, ", recipe: int4wo, group: ", 1 + below(100), '}');
    const bool named = below(2) == 0;
    if (named) keys += ", recipe: " + recipe();
    if (!named || below(3) == 0)
      keys += ", weights: " +
              one_of({"{dtype: int4}", "{dtype: int3, scheme: lsq, granularity: channel}", "{dtype: fp32}",
                      "{dtype: bint1, alpha: channel, ste: identity, latent_clamp: 1}",
                      "{dtype: ternary, grad: bf16, master: bf16}",
                      "{dtype: uint4, scheme: minmax_offset, granularity: group(8), eps: 1e-5}",
                      "{dtype: nf4, granularity: \"group(64)\"}", "{dtype: int2, scheme: absmax, pow2: true}"});
    if (below(3) == 0)
      keys += ", activations: " +
              one_of({"{dtype: int8, scheme: absmax, granularity: token}", "{dtype: uint8, scheme: affine}",
                      "{dtype: int8, scheme: absmax, observer: {name: moving_average, momentum: 0.5}}",
                      "{dtype: int8, scheme: affine, observer: {name: percentile}}"});
    if (below(3) == 0) keys += ", compute: " + one_of({"packed", "simulated"});
    return '{' + keys + '}';
  }
  // "" or "key: value" for each of recipe, first, last, rules.
  Strings prepare() {
    Strings keys;
    for (const char* key : {"recipe", "first", "last"})
      if (below(3) == 0) keys.push_back(concat(key, ": ", recipe()));
    std::string rules;
    for (int i = below(4); i > 0; --i) rules += (rules.empty() ? "" : ", ") + rule();
    if (!rules.empty()) keys.push_back("rules: [" + rules + ']');
    return keys;
  }
  // `own`: the first phase may have a spec.
  std::string phases(bool own) {
    std::string out;
    for (int i = 0, n = 1 + below(4); i < n; ++i) {
      std::string keys = concat("from: ", i, i % 2 ? " epochs" : " steps");
      if (i > 0 || own)
        for (const std::string& key : prepare()) keys += ", " + key;
      if (below(2)) keys += ", quantization: " + one_of({"on", "off", "frozen"});
      if (below(2)) keys += ", observers: " + one_of({"true", "false"});
      out += "    - {" + keys + "}\n";
    }
    return "  phases:\n" + out;
  }
  std::string quant() {
    std::string out;
    for (const std::string& key : prepare()) out += "  " + key + '\n';
    if (below(2)) out += phases(/*own=*/out.empty());
    if (out.empty()) out = "  weights: {dtype: int8}\n";
    return out;
  }

 private:
  std::mt19937 random_;
};

}  // namespace

TEST_CASE("random rules and phases read back from what is written") {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const std::string text = with_quant(Draw(seed).quant());
    INFO(text);
    const RunConfig c = parse_config(text, "f.yaml");
    const std::string written = to_yaml(c);
    const RunConfig again = parse_config(written, "r.yaml");
    CHECK((again == c));
    CHECK(to_yaml(again) == written);
  }
}

}  // namespace bitgrad
