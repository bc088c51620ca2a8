// Activations of feed-forward layers: bitgrad's kinds and the names in Hugging Face's configurations.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace bitgrad::interop {

// nullopt: this kind is no activation of a decoder.
std::optional<bool> activation_is_gated(std::string_view kind);
// The kind for a hidden_act or activation_function; empty if there is none.
std::string activation_kind(std::string_view hidden_act, bool gated);
// The inverse.
std::string hidden_act(std::string_view kind);

}  // namespace bitgrad::interop
