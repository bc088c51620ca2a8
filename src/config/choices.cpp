#include "config/choices.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "base/registration.h"
#include "bitgrad/data/dataset.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/nn/precision.h"
#include "bitgrad/optim/optimizer.h"
#include "bitgrad/quant/quantizer.h"

namespace bitgrad::config::choices {
namespace {

bool learns(std::string_view scheme, DType dtype) {
  QuantSpec spec;
  spec.dtype = dtype;
  spec.scheme = scheme;
  return !known_quantizer(scheme).learned(spec).empty();
}

template <typename Keep>
Names dtype_names(Keep keep) {
  Names names;
  for (DType dtype : all_dtypes())
    if (keep(dtype)) names.push_back(dtype.name());
  return names;
}

Names names_of(const std::vector<std::string_view>& views) { return {views.begin(), views.end()}; }

std::unique_ptr<UpdateRule> rule_named(const std::string& name) {
  OptimizerSpec spec;
  spec.name = name;
  return make_rule(spec);
}
template <typename Keep>
Names rules(Keep keep) {
  Names names = optimizer_names();
  std::erase_if(names, [&](const std::string& name) { return !keep(*rule_named(name)); });
  return names;
}

constexpr std::string_view kGradientScheme = "dorefa_gradient";

std::optional<Granularity> first_granularity(DType dtype, std::string_view scheme, Role role) {
  QuantSpec spec;
  spec.dtype = dtype;
  spec.scheme = scheme;
  std::vector<Granularity> order{Granularity::tensor(), Granularity::channel(0), Granularity::token()};
  // Scales of activations that no observer can hold are those of a row, so that samples do not depend on each other.
  const Quantizer& quantizer = known_quantizer(scheme);
  if (role == Role::kActivations && !quantizer.from_range() && quantizer.learned(spec).empty() &&
      !quantizer.constant_params(spec))
    order = {Granularity::token(), Granularity::tensor()};
  for (const Granularity& granularity : order) {
    if (role != Role::kWeights && granularity == Granularity::channel(0)) continue;
    spec.granularity = granularity;
    try {
      known_quantizer(scheme).check(spec, role == Role::kWeights);
      return granularity;
    } catch (const Error&) {
    }
  }
  return std::nullopt;
}

// Whether a quantizer supports this dtype in this role, at some granularity and with all else at its default.
bool takes(std::string_view scheme, DType dtype, Role role) {
  if ((scheme == kGradientScheme && role != Role::kGradients) || (scheme == "fixed" && role == Role::kGradients))
    return false;
  const std::optional<Granularity> granularity = default_granularity(dtype, scheme, role);
  return granularity && (role != Role::kGradients || !learns(scheme, dtype));
}

template <typename Keep>
Names schemes_where(Keep keep) {
  Names names;
  for (const std::string_view name : quantizer_names())
    if (keep(known_quantizer(name))) names.emplace_back(name);
  return names;
}

}  // namespace

Names weight_dtypes() {
  return dtype_names([](DType d) { return d.is_code() || d == dtypes::fp32; });
}
Names activation_dtypes() {
  return dtype_names([](DType d) { return d.is_code(); });
}
Names schemes() { return names_of(quantizer_names()); }
Names parameter_optimizers() {
  Names names = rules([](const UpdateRule& rule) { return rule.flips_signs(); });
  names.insert(names.begin(), {"default", "aux"});
  return names;
}
Names observers() {
  Names names = names_of(observer_names());
  names.insert(names.begin(), "none");
  return names;
}
// Rules that flip signs are for single parameters: they cannot train the other parameters of a model.
Names optimizers() {
  return rules([](const UpdateRule& rule) { return !rule.flips_signs(); });
}
Names aux_optimizers() {
  return rules([](const UpdateRule& rule) { return !rule.flips_signs() && !rule.hidden_only(); });
}
bool updates_hidden_only(const std::string& optimizer) { return rule_named(optimizer)->hidden_only(); }

std::vector<InitKind> init_kinds() {
  return {{"uniform", 2},       {"normal", 2},     {"constant", 1},  {"glorot_uniform", 0},
          {"glorot_normal", 0}, {"he_uniform", 0}, {"he_normal", 0}, {"zeros", 0}};
}

bool has_weights(const LayerSpec& layer) { return find_layer_kind(layer.kind)->weights; }
bool may_read_ids(std::string_view name) {
  const DatasetFormat* const format = find_dataset_format(name);
  const auto is_vocabulary = [](const Key& key) { return key.name == "vocabulary"; };
  return format != nullptr && std::any_of(format->keys.begin(), format->keys.end(), is_vocabulary);
}
bool reads_ids(const RunConfig& config) {
  const DatasetFormat& format = format_of(config.data.train);
  if (format.ids) return true;
  const LayerKind* const first = config.layers.empty() ? nullptr : find_layer_kind(config.layers.front().kind);
  return first != nullptr && first->ids && may_read_ids(format.name);
}

std::string_view purpose_of(Role role) {
  return role == Role::kWeights ? "weights" : role == Role::kActivations ? "activations" : "gradients";
}

// Asked for every scheme at every layer of a configuration, and each granularity that is refused is an exception: found
// once, as long as no name is registered.
std::optional<Granularity> default_granularity(DType dtype, std::string_view scheme, Role role) {
  static std::mutex mutex;
  static uint64_t added = 0;
  static std::map<std::tuple<std::string, uint8_t, Role>, std::optional<Granularity>> found;
  const uint64_t now = detail::added_names();
  const std::tuple key{std::string(scheme), dtype.id(), role};
  {
    const std::lock_guard lock(mutex);
    if (std::exchange(added, now) != now) found.clear();
    if (const auto at = found.find(key); at != found.end()) return at->second;
  }
  const std::optional<Granularity> first = first_granularity(dtype, scheme, role);
  const std::lock_guard lock(mutex);
  if (added == now) found[key] = first;
  return first;
}

// Schemes that support the dtype, those that suit its kind best first; the first is the default. symmetric, absmax and
// symmetric_no_clip produce negative codes, so they are excluded for unsigned dtypes. affine is of no use for 1-bit
// weights.
Names schemes_for(DType dtype, Role role) {
  if (!dtype.is_code()) return {};
  const bool is_unsigned = dtype.info().kind == DTypeKind::kUint;
  Names first{"binary", "codebook", "step", "ternary", "symmetric", "affine"};
  if (role == Role::kGradients) first = {std::string(kGradientScheme), "absmax", "binary", "ternary"};
  const Names known = names_of(quantizer_names());
  Names names;
  for (const std::string& name : first)
    if (!(is_unsigned && name == "symmetric") && std::find(known.begin(), known.end(), name) != known.end() &&
        takes(name, dtype, role))
      names.push_back(name);
  for (const std::string& other : known) {
    const bool negative = other == "symmetric" || other == "symmetric_no_clip" || other == "absmax";
    const bool listed = std::find(names.begin(), names.end(), other) != names.end();
    if (!listed && !(is_unsigned && negative) && takes(other, dtype, role)) names.push_back(other);
  }
  return names;
}

Names schemes_of(Role role) {
  return schemes_where([role](const Quantizer& q) {
    const std::vector<DType> dtypes = all_dtypes();
    return std::any_of(dtypes.begin(), dtypes.end(), [&](DType dtype) {
      const Names fitting = schemes_for(dtype, role);
      return std::find(fitting.begin(), fitting.end(), q.name()) != fitting.end();
    });
  });
}

Names learned_schemes() {
  return schemes_where([](const Quantizer& q) { return !q.learned(QuantSpec{}).empty(); });
}
Names range_schemes() {
  return schemes_where([](const Quantizer& q) { return q.from_range(); });
}
bool has_learned_parts(const std::optional<QuantSpec>& spec) { return spec && learns(spec->scheme, spec->dtype); }

bool for_float(std::string_view key) {
  constexpr std::string_view kKeys[] = {"dtype",     "init",         "latent_clamp", "grad",      "moments",
                                        "lr_factor", "weight_decay", "frozen",       "optimizer", "matrices"};
  return std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys);
}

bool for_rule(std::string_view key) {
  constexpr std::string_view kOwn[] = {"init",      "moments",      "optimizer", "matrices",
                                       "lr_factor", "weight_decay", "frozen"};
  return std::find(std::begin(kOwn), std::end(kOwn), key) == std::end(kOwn);
}

Names schemes_of_ste(SteRule ste) {
  return ste == SteRule::kApproxSign ? Names{"binary", "standardized_binary", "step"} : Names{};
}

}  // namespace bitgrad::config::choices
