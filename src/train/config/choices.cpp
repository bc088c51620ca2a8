#include "train/config/choices.h"

#include <algorithm>

#include "bitgrad/data/dataset.h"
#include "bitgrad/nn/init.h"
#include "bitgrad/optim/optimizer.h"
#include "bitgrad/optim/schedule.h"
#include "bitgrad/quant/quantizer.h"
#include "bitgrad/quant/rounding.h"
#include "bitgrad/train/learner.h"
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

Names names_of(const std::vector<std::string_view>& views) { return {views.begin(), views.end()}; }

// Whether a quantizer takes this dtype with everything else at its default.
bool takes(std::string_view scheme, DType dtype, bool weight) {
  QuantSpec spec;
  spec.dtype = dtype;
  spec.scheme = scheme;
  try {
    find_quantizer(scheme).check(spec, weight);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

Names weight_dtypes() {
  return dtype_names([](DType d) { return d.is_code() || d == dtypes::fp32; });
}
Names activation_dtypes() {
  return dtype_names([](DType d) { return d.is_code(); });
}
Names gradient_dtypes() { return {"fp32", "bf16"}; }
Names schemes() { return names_of(quantizer_names()); }
Names ste_rules() { return names_of(ste_names()); }
Names roundings() { return names_of(rounding_names()); }
Names alphas() { return {"none", "tensor", "channel"}; }
Names optimizers() { return optimizer_names(); }
Names schedules() { return schedule_names(); }
Names losses() { return loss_names(); }
Names dataset_formats() { return bitgrad::dataset_formats(); }
Names devices() { return {"cpu"}; }
Names layer_kinds() { return keys_of("layer"); }
Names bits_modes() { return {"fast", "strict"}; }
Names splits() { return {"train", "test"}; }

std::vector<InitKind> init_kinds() {
  return {{"uniform", 2},       {"normal", 2},     {"constant", 1},  {"glorot_uniform", 0},
          {"glorot_normal", 0}, {"he_uniform", 0}, {"he_normal", 0}, {"zeros", 0}};
}

// What the quantizers take, those that suit the kind best first: the first one is the default. symmetric, absmax and
// symmetric_no_clip give negative codes, so unsigned dtypes lack them; affine has no use for a weight of one bit.
Names schemes_for(DType dtype, bool weight) {
  if (!dtype.is_code()) return {};
  const DTypeInfo& info = dtype.info();
  const bool is_unsigned = info.kind == DTypeKind::kUint;
  Names names;
  for (const char* first : {"binary", "codebook", "step", "ternary", "symmetric", "affine"})
    if (!(is_unsigned && std::string_view(first) == "symmetric") && takes(first, dtype, weight)) names.push_back(first);
  for (const std::string_view other : quantizer_names()) {
    const bool negative = other == "symmetric" || other == "symmetric_no_clip" || other == "absmax";
    const bool known = std::find(names.begin(), names.end(), other) != names.end();
    if (!known && !(is_unsigned && negative) && takes(other, dtype, weight)) names.emplace_back(other);
  }
  return names;
}

std::string default_ste(std::string_view scheme) { return scheme == "ternary" ? "identity" : "clip"; }

Names schemes_of_ste(std::string_view ste) { return ste == "approx_sign" ? Names{"binary", "step"} : Names{}; }

}  // namespace bitgrad::config::choices
