#pragma once

#include <string>
#include <vector>

#include "config/bind.h"
#include "config/choices.h"

namespace bitgrad::config {

// What checks for contradictions between keys share; one derived class for each section, in a source of its own. A
// check is silent if one of its keys is already wrong, or was probably meant by an unknown key.
class Checks {
 public:
  Checks(const Node& root, const RunConfig& config, Report& report) : root_(root), config_(config), report_(report) {}

 protected:
  // Calls use(path, section) for each data set that is set.
  template <typename Use>
  void each_dataset(Use use) {
    use("data.train", config_.data.train);
    if (config_.data.valid) use("data.valid", *config_.data.valid);
    if (config_.data.test) use("data.test", *config_.data.test);
  }
  // Whether the key at this path, and every map on the way, is known to be valid, or known to be absent.
  bool sound_path(const std::string& path) const {
    const Node* node = &root_;
    for (const std::string& part : split(path, '.')) {
      if (!sound(node, part)) return false;
      node = node ? node->child(part) : nullptr;
    }
    return true;
  }
  const Node* find(const std::string& path) const { return node_at(root_, path); }
  // Reports at the value of the first path that is set, preferring the command line.
  void contradiction(const std::vector<std::string>& paths, const std::string& message) {
    const Node* blamed = nullptr;
    for (const std::string& path : paths) {
      const Node* node = find(path);
      if (node && (!blamed || nearness(node->mark) > nearness(blamed->mark))) blamed = node;
    }
    report_.error(blamed ? blamed->mark : SourceMark{0, 1, 1}, message, blamed ? blamed->length() : 1);
  }
  bool batch_is_good() const {
    return sound_path("batch.global") && sound_path("batch.micro") && config_.batch.micro > 0 &&
           config_.batch.global % config_.batch.micro == 0;
  }
  bool evaluates() const { return find("data.test") || find("data.valid"); }
  // Calls use(weights, path of the layer's own keys) for each layer with weights, if everything they derive from is
  // valid.
  template <typename Use>
  void each_weights(Use use) {
    if (!sound_path("model.layers") || !sound_path("quant.weights")) return;
    for_each_layer(config_.layers, [&](const LayerSpec& layer) {
      if (choices::has_weights(layer)) use(layer.weight, origin_of(layer).path + ".weights");
    });
  }

  const Node& root_;
  const RunConfig& config_;
  Report& report_;
};

}  // namespace bitgrad::config
