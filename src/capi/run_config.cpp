#include "capi/run_config.h"

#include <cmath>

#include "bitgrad/base/key.h"
#include "bitgrad/data/dataset.h"
#include "bitgrad/nn/layers.h"
#include "capi/guard.h"

namespace bitgrad::capi {
namespace {

constexpr const char* kName = "configuration";

// If the text has no key `data`, the data can only be arrays.
RunConfig parsed(const std::string& text, std::vector<std::string> overrides) {
  try {
    return parse_config(text, kName, overrides);
  } catch (const ConfigError& error) {
    if (std::string_view(error.what()).find("missing required key 'data") == std::string_view::npos) throw;
  }
  overrides.insert(overrides.begin(), "data.train={format: memory}");
  return parse_config(text, kName, overrides);
}

DatasetConfig of_memory(const DatasetConfig& given) {
  DatasetConfig out;
  out.format = "memory";
  out.split.clear();
  out.classes = given.classes;
  out.transforms = given.transforms;
  out.augment = given.augment;
  out.mark = given.mark;
  // As a configuration is read: keys that it leaves out have their defaults.
  const DatasetFormat* const memory = find_dataset_format(out.format);
  out.keys = completed("data", memory->keys, given.format == out.format ? given.keys : Attributes());
  return out;
}

}  // namespace

RunConfig memory_config(const char* text, const char* const* overrides, int32_t count, bool test) {
  std::vector<std::string> words = texts(overrides, count, "overrides");
  RunConfig config = parsed(&given(text, "config"), std::move(words));
  const DatasetConfig train = of_memory(config.data.train);
  config.data.train = train;
  config.data.root.clear();
  config.data.test.reset();
  if (test) {
    config.data.test = train;
    config.data.test->transforms.clear();
    config.data.test->augment = {};
  }
  return config;
}

int64_t vocabulary_of_model(const RunConfig& config) {
  if (config.layers.empty()) return 0;
  const LayerSpec& first = config.layers.front();
  return find_layer_kind(first.kind)->ids ? first.attributes.integer("num") : 0;
}

std::function<float(int64_t)> constant_rate(double rate) {
  require(std::isfinite(static_cast<float>(rate)) && rate >= 0, "c", "learning rate: got ", rate,
          ", expected a finite number from 0");
  return [value = static_cast<float>(rate)](int64_t) { return value; };
}

SampleValues sample_values(const RunConfig& config) { return SampleValues(config.data.affine, config.data.normalize); }

std::unique_ptr<Dataset> memory_data(const RunConfig& config, const SampleView& x, const SampleView& y,
                                     std::shared_ptr<const void> owner, int64_t classes) {
  MemoryDatasetSpec spec;
  spec.samples = x;
  spec.targets = y;
  spec.owner = std::move(owner);
  const Attributes& keys = config.data.train.keys;
  spec.vocabulary = keys.contains("vocabulary") ? keys.integer("vocabulary") : 0;
  if (spec.vocabulary == 0) spec.vocabulary = vocabulary_of_model(config);
  spec.classes = y.stored == StoredAs::kFloat ? 0 : classes;
  spec.affine = config.data.affine;
  spec.normalize = config.data.normalize;
  if (spec.vocabulary > 0) spec.affine = {1.0f, 0.0f}, spec.normalize = {};
  return make_memory_dataset(spec);
}

}  // namespace bitgrad::capi
