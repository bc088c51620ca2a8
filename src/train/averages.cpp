#include "train/averages.h"

#include <set>

#include "bitgrad/nn/layers.h"
#include "train/map/average.h"

namespace bitgrad::detail {
namespace {

// Learned parts of inputs have no values before the first batch.
void collect_unset(Module& module, std::set<std::string>& paths) {
  if (const LayerKind* const kind = find_layer_kind(module.kind());
      kind != nullptr && kind->quantizer == LayerKind::Quantizer::kActivations)
    for (const Parameter* p : module.parameters()) paths.insert(p->path() + kAverageEnd);
  for (Module* child : module.children()) collect_unset(*child, paths);
}

// What is averaged, by path: fp32, or bf16 masters.
std::map<std::string, Tensor> sources(Module& model) {
  std::map<std::string, Tensor> out;
  for (const Parameter* p : model.parameters())
    if (p->has_master() && !p->spec().frozen) out[p->path() + kAverageEnd] = p->master();
  for (const Module::Buffer& b : model.buffers())
    if (b.path.ends_with(".running_mean") || b.path.ends_with(".running_var")) out[b.path + kAverageEnd] = b.tensor;
  return out;
}

bool wide(const Tensor& t) { return t.dtype() == dtypes::fp32; }
float* floats(const Tensor& t) { return wide(t) ? t.as<float>() : nullptr; }
uint16_t* halves(const Tensor& t) { return wide(t) ? nullptr : t.as<uint16_t>(); }

}  // namespace

// Both are rounded once from double, as for moments.
Averages::Averages(double decay) : part_(static_cast<float>(1.0 - decay)), rest_(static_cast<float>(decay)) {
  require(decay > 0 && decay < 1, "Learner", "decay of the average: got ", decay, ", expected a number in (0, 1)");
}

void Averages::follow(Module& model) {
  const std::map<std::string, Tensor> now = sources(model);
  std::erase_if(averages_, [&](const auto& a) { return !now.contains(a.first); });
  for (const auto& [path, x] : now) {
    if (averages_.contains(path)) continue;
    const Tensor& a = averages_[path] = Tensor::zeros(x.shape(), dtypes::fp32, MemoryKind::kOptimizer);
    run_map(maps::MoveAverage{floats(x), halves(x), 1.0f, 0.0f, false, a.as<float>()}, x.numel());
  }
}

void Averages::update(Module& model) {
  std::set<std::string> unset;
  collect_unset(model, unset);
  for (const auto& [path, x] : sources(model))
    if (const auto a = averages_.find(path); a != averages_.end())
      run_map(maps::MoveAverage{floats(x), halves(x), part_, rest_, unset.contains(path), a->second.as<float>()},
              x.numel());
}

void Averages::put_into(Module& model, uint64_t seed, int64_t step) const {
  for (const auto& [path, x] : sources(model))
    if (const auto a = averages_.find(path); a != averages_.end())
      run_map(maps::TakeAverage{a->second.as<float>(), floats(x), halves(x)}, x.numel());
  for (Parameter* p : model.parameters())
    if (p->low_bit() && p->has_master() && !p->spec().frozen) p->requantize(seed, step);
}

std::vector<std::string> Averages::left_out(Module& model) {
  std::vector<std::string> names;
  for (const Parameter* p : model.parameters())
    if (!p->has_master() && !p->spec().frozen) names.push_back(p->path());
  return names;
}

}  // namespace bitgrad::detail
