// Activations of a feed-forward, by the names of our kinds and of Hugging Face's configurations.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace bitgrad::interop {

// none: this kind is no activation of a decoder.
std::optional<bool> activation_is_gated(std::string_view kind);
// Our kind of hidden_act or activation_function; empty: it has none.
std::string activation_kind(std::string_view hidden_act, bool gated);
// And back.
std::string hidden_act(std::string_view kind);

}  // namespace bitgrad::interop
