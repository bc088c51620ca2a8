#include "train/config/choices.h"

#include <algorithm>

#include "train/config/schema.h"

namespace bitgrad::config::choices {
namespace {

template <typename Keep>
Names dtype_names(Keep keep) {
  Names names;
  for (DType dtype : all_dtypes())
    if (keep(dtype)) names.push_back(dtype.name());
  return names;
}

}  // namespace

Names weight_dtypes() {
  return dtype_names([](DType d) { return d.is_code() || d == dtypes::fp32 || d == dtypes::bf16; });
}
Names activation_dtypes() {
  return dtype_names([](DType d) { return d.is_code(); });
}
Names gradient_dtypes() { return {"fp32", "bf16"}; }
Names schemes() {
  return {"fixed", "absmax", "symmetric", "symmetric_no_clip", "affine", "minmax_offset", "step", "binary", "ternary", "ternary_threshold", "codebook"};
}
Names ste_rules() { return {"identity", "clip", "approx_sign", "none"}; }
Names roundings() { return {"nearest", "stochastic"}; }
Names alphas() { return {"none", "tensor", "channel"}; }
Names optimizers() { return {"sgd", "adam", "adamw"}; }
Names schedules() { return {"constant", "step", "cosine", "exponential"}; }
Names losses() { return {"squared_hinge", "softmax_cross_entropy"}; }
Names dataset_formats() { return {"idx", "digits"}; }
Names devices() { return {"cpu"}; }
Names layer_kinds() { return keys_of("layer"); }
Names bits_modes() { return {"fast", "strict"}; }
Names splits() { return {"train", "test"}; }

std::vector<InitKind> init_kinds() {
  return {{"uniform", 2}, {"normal", 2}, {"glorot_uniform", 0}, {"glorot_normal", 0}, {"he_uniform", 0}, {"he_normal", 0}, {"zeros", 0}};
}

// By the dtype's record, so that a dtype of a user's program is judged as the built-in ones are. symmetric and absmax give negative codes, so
// unsigned dtypes lack them.
Names schemes_for(DType dtype, bool weight) {
  const DTypeInfo& info = dtype.info();
  if (!dtype.is_code()) return {};
  if (info.kind == DTypeKind::kSign) return {"binary"};
  if (info.kind == DTypeKind::kCodebook) return {"codebook"};
  if (info.kind == DTypeKind::kUint && info.bits == 1)
    return weight ? Names{"step", "minmax_offset", "fixed"} : Names{"step", "minmax_offset", "fixed", "affine"};
  if (info.kind == DTypeKind::kUint) return {"affine", "minmax_offset", "fixed"};
  Names names{"symmetric", "symmetric_no_clip", "absmax", "affine", "minmax_offset", "fixed"};
  if (info.qmin == -1 && info.qmax == 1) names.insert(names.begin(), {"ternary", "ternary_threshold"});
  return names;
}

std::string default_ste(std::string_view scheme) { return scheme == "ternary" || scheme == "ternary_threshold" ? "identity" : "clip"; }

Names schemes_of_ste(std::string_view ste) { return ste == "approx_sign" ? Names{"binary", "step"} : Names{}; }

}  // namespace bitgrad::config::choices
