#include "interop/decoder_files.h"

namespace bitgrad::interop {
namespace {

struct Activation {
  std::string_view kind;
  bool gated;
  std::string_view hidden_act;  // of several with the same kind, the first is written
};
constexpr Activation kActivations[] = {
    {"gelu_tanh", false, "gelu_new"}, {"gelu_tanh", false, "gelu_pytorch_tanh"},
    {"gelu", false, "gelu"},          {"relu", false, "relu"},
    {"relu2", false, "relu2"},        {"silu", false, "silu"},
    {"swiglu", true, "silu"},         {"swiglu", true, "swish"},
    {"geglu", true, "gelu"},          {"reglu", true, "relu"},
    {"relu2_glu", true, "relu2"},
};

}  // namespace

std::optional<bool> activation_is_gated(std::string_view kind) {
  for (const Activation& a : kActivations)
    if (a.kind == kind) return a.gated;
  return std::nullopt;
}

std::string activation_kind(std::string_view hidden_act, bool gated) {
  for (const Activation& a : kActivations)
    if (a.hidden_act == hidden_act && a.gated == gated) return std::string(a.kind);
  return "";
}

std::string hidden_act(std::string_view kind) {
  for (const Activation& a : kActivations)
    if (a.kind == kind) return std::string(a.hidden_act);
  return "";
}

}  // namespace bitgrad::interop
