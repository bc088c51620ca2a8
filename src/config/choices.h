// Allowed values that are made of lists elsewhere, one function each.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/data/loader.h"
#include "bitgrad/dtype/dtype.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/optim/window_sum.h"
#include "config/fields.h"

namespace bitgrad::config::choices {

using Names = std::vector<std::string>;

Names weight_dtypes();      // precision of weights: all packed dtypes, fp32
Names activation_dtypes();  // precision of activations: all packed dtypes
Names schemes();
Names parameter_optimizers();
Names observers();
Names optimizers();
Names aux_optimizers();
// Whether a known update rule leaves parameters to optim.aux.
bool updates_hidden_only(const std::string& optimizer);

// A kind of initializer and its number of arguments: uniform(a,b) has 2.
struct InitKind {
  std::string_view name;
  int numbers;
};
std::vector<InitKind> init_kinds();

// Whether the layer has weights of its own to quantize.
bool has_weights(const LayerSpec& layer);
// Whether a format reads ids on request: it has the key vocabulary.
bool may_read_ids(std::string_view format);
// Whether the samples of data.train are ids: the format has no others, or has them on request and the model begins with
// an embedding.
bool reads_ids(const RunConfig& config);

// Returns "weights", "activations" or "gradients".
std::string_view purpose_of(Role role);
// The default granularity of a scheme: tensor if it supports that, otherwise another one; nullopt if it does not
// support the dtype.
std::optional<Granularity> default_granularity(DType dtype, std::string_view scheme, Role role);
// Schemes that support this dtype, the default first; empty for a float dtype.
Names schemes_for(DType dtype, Role role);
// Schemes that support some dtype in this role, in the order of the quantizers' list.
Names schemes_of(Role role);
// Schemes with learned parts; schemes computed from a range alone.
Names learned_schemes();
Names range_schemes();
bool has_learned_parts(const std::optional<QuantSpec>& spec);
// Whether a key of weights applies to a float dtype.
bool for_float(std::string_view key);
// Whether a key of weights concerns how codes are computed and trained (LayerQuant); all others belong to the layer.
bool for_rule(std::string_view key);
// Schemes to which this straight-through rule applies; empty: all.
Names schemes_of_ste(SteRule ste);

}  // namespace bitgrad::config::choices
