// Recipes by name. Sources: int4wo, torchao_int8wo and torchao_8da4w are torchao's (docs/numerics.md section 2), and
// torchao_w8a8 and torchao_w4a8 have weights like theirs: scale max / 127.5 (7.5), which puts the largest weight of a
// channel half a code beyond the last one, on a tie. int8wo, 8da4w, w8a8 and w4a8 divide by 127 (7) instead. nf4wo is
// QLoRA's (Dettmers et al. 2023, arXiv 2305.14314); ternary_int8 is BitNet b1.58 (Ma et al. 2024, arXiv 2402.17764);
// w1a1 is BinaryNet (Courbariaux et al. 2016, arXiv 1602.02830); binary_wo has XNOR-Net's scales (Rastegari et al.
// 2016, arXiv 1603.05279); w4a4 and w2a2 are LSQ (Esser et al. 2020, arXiv 1902.08153), which uses unsigned activations
// after a ReLU.
#include <map>
#include <mutex>

#include "bitgrad/base/text.h"
#include "bitgrad/nn/prepare.h"

namespace bitgrad {
namespace {

Granularity rows() { return Granularity::channel(0); }

LayerQuant weights(DType dtype, const std::string& scheme, const Granularity& granularity) {
  QuantSpec spec;
  spec.dtype = dtype;
  spec.scheme = scheme;
  spec.granularity = granularity;
  LayerQuant q;
  q.weight = spec;
  return q;
}

LayerQuant tinygemm(LayerQuant q) {
  q.weight->eps = 1.5e-5f;
  return q;
}

// The latent clamp keeps masters within [-1, 1], so the straight-through rule need not clip.
LayerQuant signs(bool alpha) {
  LayerQuant q = weights(dtypes::bint1, "binary", alpha ? rows() : Granularity::tensor());
  q.weight->alpha = alpha;
  q.weight->ste = SteRule::kIdentity;
  q.latent_clamp = 1.0f;
  return q;
}

LayerQuant input(LayerQuant q, DType dtype, const std::string& scheme, const Granularity& granularity) {
  q.input = weights(dtype, scheme, granularity).weight;
  return q;
}

// Scales of the input follow a range that is observed in training, so they are constants of the trained model.
LayerQuant observed(LayerQuant q) {
  q.observer = ObserverSpec{.name = "moving_average"};
  return q;
}

// Networks of integers: activations with a zero point, so that what follows a ReLU uses all 256 codes.
LayerQuant integer(LayerQuant q) {
  q = observed(input(std::move(q), dtypes::int8, "affine", Granularity::tensor()));
  q.compute = Compute::kInteger;
  return q;
}

std::map<std::string, LayerQuant>& recipe_registry() {
  static std::map<std::string, LayerQuant> recipes = [] {
    std::map<std::string, LayerQuant> list{
#define BITGRAD_RECIPE(name, layer) {name, layer},
#include "nn/recipes.inc"
#undef BITGRAD_RECIPE
    };
    for (auto& [name, quant] : list) quant.recipe = name;
    return list;
  }();
  return recipes;
}
std::mutex g_mutex;

}  // namespace

std::vector<std::string> recipe_names() {
  const std::lock_guard lock(g_mutex);
  std::vector<std::string> names;
  for (const auto& [name, quant] : recipe_registry()) names.push_back(name);
  return names;
}

LayerQuant find_recipe(const std::string& name) {
  {
    const std::lock_guard lock(g_mutex);
    const auto found = recipe_registry().find(name);
    if (found != recipe_registry().end()) return found->second;
  }
  fail("recipe", unknown_name("recipe", name, recipe_names()));
}

void register_recipe(const std::string& name, LayerQuant quant) {
  quant.recipe = name;
  const std::lock_guard lock(g_mutex);
  require(recipe_registry().emplace(name, std::move(quant)).second, "register_recipe", "a recipe '", name,
          "' exists already.");
}

}  // namespace bitgrad
