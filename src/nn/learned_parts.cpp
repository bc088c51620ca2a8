#include "nn/learned_parts.h"

#include <cmath>
#include <utility>

#include "kernels/elementwise.h"
#include "kernels/flag.h"
#include "nn/step_signal.h"

namespace bitgrad::detail {

LearnedParts::LearnedParts(const Parameter& owner)
    : owner_(owner), quantizer_(find_quantizer(owner.spec().quant->scheme)) {
  const Shape& shape = owner.shape();
  for (const LearnedPart& part : quantizer_.learned(quant())) {
    ParameterSpec spec;
    spec.init = {"zeros"};  // until the scheme computes initial values
    spec.moments = MomentKind::kFp32;
    spec.optimizer = owner.spec().optimizer;
    spec.floor = part.floor;
    parts_.push_back(std::make_unique<Parameter>(Shape{scale_count(quant().granularity, shape.rows(), shape.cols())},
                                                 std::move(spec)));
  }
  follow_spec();
}

void LearnedParts::follow_spec() {
  const ParameterSpec& of = owner_.spec();
  for (const auto& part : parts_)
    part->change([&](ParameterSpec& spec) {
      spec.lr_factor = of.learned.lr_factor;
      spec.weight_decay = of.learned.weight_decay;
      spec.frozen = !owner_.trains() || of.scales_frozen;
    });
}

void LearnedParts::initialize(const Tensor& x) {
  const std::vector<LearnedPart> parts = quantizer_.learned(quant());
  const std::vector<Tensor> first = quantizer_.first_learned(quant(), x);
  ensure(first.size() == parts.size() && parts.size() == parts_.size(), "Parameter", "scheme ", quant().scheme, " has ",
         parts.size(), " learned parts, and first values for ", first.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    Parameter& part = *parts_[i];
    part.initialize(concat(owner_.path(), '.', parts[i].name), owner_.seed());
    part.value().copy_from(first[i].reshape(part.shape()));
    if (const auto& floor = part.spec().floor)
      kernels::clamp(part.value().numel(), *floor, INFINITY, part.value().as<float>());
  }
}

void LearnedParts::refit(int64_t step) {
  const auto& floor = parts_[0]->spec().floor;
  if (!owner_.trains() || owner_.spec().scales_frozen || !floor) return;
  std::vector<Tensor> values;
  for (const auto& part : parts_) values.push_back(part->value());
  refit_steps(quant(), values, *floor, owner_.master(), step, {owner_.path(), "weights", told_});
}

void LearnedParts::tell(int64_t refitted) const {
  tell_refit({owner_.path(), "weights", told_}, refitted, parts_[0]->value().numel());
}

std::shared_ptr<const QuantParams> LearnedParts::params(int64_t step) const {
  std::vector<Tensor> values;
  for (const auto& part : parts_) values.push_back(part->value().clone(MemoryKind::kQuantState));
  const auto names_parameter = [path = owner_.path(), step](const std::exception& e) {
    const auto* error = dynamic_cast<const Error*>(&e);
    if (error == nullptr || error->code() != ErrorCode::kNonFinite) return;
    fail_with(ErrorCode::kNonFinite, "requantize", "learned parts of '", path, "' at optimizer step ", step, ": ",
              e.what());
  };
  const ErrorContext scope(names_parameter);
  try {
    return std::make_shared<const QuantParams>(quantizer_.params_of(quant(), values));
  } catch (const Error& e) {
    names_parameter(e);
    throw;
  }
}

}  // namespace bitgrad::detail
