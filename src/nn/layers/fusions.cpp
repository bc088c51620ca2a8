#include "nn/layers/fusions.h"

#include "bitgrad/nn/layers.h"
#include "nn/activation_quantizer.h"
#include "nn/layers/norm.h"
#include "nn/layers/windows_keys.h"

namespace bitgrad {
namespace {

using Modules = std::span<const std::shared_ptr<Module>>;
using Run = std::function<Var(const Var&)>;

template <typename Layer>
Layer* as(Module& module) {
  return dynamic_cast<Layer*>(&module);
}

// The spec of a layer of this kind, else nullptr.
const LayerSpec* spec_of(const Module& module, std::string_view kind) {
  const LayerSpec* const spec = module.spec();
  return spec != nullptr && spec->kind == kind ? spec : nullptr;
}

Run norm_signs(Modules m) {
  auto* const norm = as<Norm>(*m[0]);
  auto* const quantizer = as<ActivationQuantizer>(*m[1]);
  if (norm == nullptr || quantizer == nullptr) return {};
  return [=](const Var& x) { return quantizer->signs_of(*norm, x, nullptr); };
}

Run norm_signs_pool(Modules m) {
  const LayerSpec* const pool = spec_of(*m[2], "max_pool");
  auto* const norm = as<Norm>(*m[0]);
  auto* const quantizer = as<ActivationQuantizer>(*m[1]);
  if (norm == nullptr || quantizer == nullptr || pool == nullptr) return {};
  return [=, options = detail::pool_options(pool->attributes)](const Var& x) {
    return quantizer->signs_of(*norm, x, &options);
  };
}

// The quantizer is that of the product's own input.
Run norm_product(Modules m) {
  auto* const norm = as<Norm>(*m[0]);
  const bool linear = spec_of(*m[1], "linear") != nullptr, conv = spec_of(*m[1], "conv2d") != nullptr;
  if (norm == nullptr || !(linear || conv)) return {};
  return [norm, conv, &product = *m[1], slot = m[1]->quantizables().at(0)](const Var& x) {
    ActivationQuantizer* const quantizer = slot->input_quantizer();
    if (quantizer == nullptr || slot->adapter() != nullptr || (conv && x.shape().rank() != 4)) return Var();
    const Var codes = quantizer->signs_of(*norm, x, nullptr);  // of fp32 values, whose gradient is fp32 too
    return codes.defined() ? product.forward(codes) : Var();
  };
}

Run residual_hardtanh(Modules m) {
  auto* const residual = as<Residual>(*m[0]);
  if (residual == nullptr || spec_of(*m[1], "hardtanh") == nullptr) return {};
  return [residual, &hardtanh = *m[1]](const Var& x) {
    const bool fp32 = residual->returns_fp32(x) && hardtanh.output_form()->dtype == dtypes::fp32;
    return fp32 && current_device().is_cpu() ? residual->hardtanh(x) : Var();
  };
}

// The table, the longest patterns first.
constexpr struct {
  size_t modules;
  Run (*match)(Modules);
} kPatterns[] = {
    {3, norm_signs_pool},    // a norm, a quantizer to signs, max_pool: no fp32 image is written
    {2, norm_signs},         // a norm and a quantizer to signs
    {2, norm_product},       // a norm and a linear or convolutional layer that quantizes its input to signs
    {2, residual_hardtanh},  // a residual layer and hardtanh, with a norm at the end of its body
};

}  // namespace

Fusions::Fusions(Modules modules) : at_(modules.size()) {
  for (size_t i = 0; i < modules.size(); ++i)
    for (const auto& [count, match] : kPatterns) {
      if (i + count > modules.size()) continue;
      if (Run run = match(modules.subspan(i, count))) at_[i].push_back({count, std::move(run)});
    }
}

}  // namespace bitgrad
