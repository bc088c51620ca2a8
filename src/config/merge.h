// Merged keys: a layer's own over those of `quant:` over the defaults. Findings blame own keys only; those within
// `quant:` alone are reported when it is resolved itself.
#pragma once

#include <string>
#include <vector>

#include "config/bind.h"

namespace bitgrad::config {

class Merged {
 public:
  // `own` and `base` are maps or nullptr; `path` is that of `own`, for messages.
  Merged(const Node* own, const Node* base, std::string path, std::string_view group, Report& report)
      : own_(own), base_(base), path_(std::move(path)), group_(group), report_(&report) {}

  const std::string& path() const { return path_; }
  const Node* own(std::string_view key) const { return own_ ? own_->child(key) : nullptr; }
  const Node* inherited(std::string_view key) const { return base_ ? base_->child(key) : nullptr; }
  bool has_base() const { return base_ != nullptr; }
  // The node that applies; nullptr if there is none or it is wrong.
  const Node* pick(std::string_view key) const {
    const Node* node = own(key) ? own(key) : inherited(key);
    return node && !node->bad ? node : nullptr;
  }
  bool known(std::string_view key) const { return sound(own_, key) && (own(key) || sound(base_, key)); }
  // The map at a key, merged in the same way.
  Merged inner(std::string_view key, std::string_view group) const {
    return Merged(own(key), inherited(key), concat(path_, '.', key), group, *report_);
  }
  template <typename T>
  void set(T&& field, std::string_view key) const {
    assign(field, value_of(group_, key, pick(key)));
  }

  void error(SourceMark mark, std::string message, const Node* node = nullptr) const {
    report_->error(mark, std::move(message), node ? node->length() : 1);
  }
  // Reports at the first of these own keys that is set, preferring the command line; silent if none is.
  void contradiction(const std::vector<std::string_view>& keys, const std::string& message) const {
    const Node* blamed = nullptr;
    for (const std::string_view key : keys) {
      const Node* node = own(key);
      if (node && (!blamed || nearness(node->mark) > nearness(blamed->mark))) blamed = node;
    }
    if (blamed) error(blamed->mark, concat(path_, ": ", message), blamed);
  }

 private:
  const Node* own_;
  const Node* base_;
  std::string path_;
  std::string_view group_;
  Report* report_;
};

// "[lsq] fact" -> "lsq: fact": the text of a library error, for use within a finding.
std::string library_text(std::string_view error);

// The keys of one quantizer are merged and checked to fit together.
// The keys of one quantizer. `own` and `base` are maps or nullptr.
struct QuantizerKeys {
  const Node* own = nullptr;
  const Node* base = nullptr;
  std::string path;     // of `own`, for messages
  SourceMark key_mark;  // of the key that holds `own`, or would
  Role role = Role::kWeights;
};

// Report contradictions that involve a key of `own`; those within `base` alone are reported when base is resolved
// itself. Silent about keys that are already wrong.
ParameterSpec resolve_weights(const QuantizerKeys& keys, Report& report);
// Of role activations or gradients; nullopt: nothing that can be used, which was reported.
std::optional<ActivationQuant> resolve_activations(const QuantizerKeys& keys, Report& report);
// Resolves how weights train: master, moments, optimizer etc. Call after the codes are resolved.
void resolve_training(const Merged& keys, ParameterSpec& spec);

}  // namespace bitgrad::config
