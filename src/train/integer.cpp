#include "train/integer.h"

#include <algorithm>
#include <cstring>

#include "bitgrad/dtype/codec.h"
#include "nn/activation_quantizer.h"
#include "nn/layers/dropout.h"
#include "nn/layers/norm.h"
#include "train/phases.h"

namespace bitgrad::detail {
namespace {

template <typename Holds>
bool all_modules(Module& module, Holds&& holds) {
  if (!holds(module)) return false;
  for (Module* child : module.children())
    if (!all_modules(*child, holds)) return false;
  return true;
}

bool has_scale(Module& module) {
  const auto* const quantizer = dynamic_cast<const ActivationQuantizer*>(&module);
  return quantizer == nullptr || quantizer->has_scale();
}

// Whether a forward pass of training changes nothing that codes depend on, and draws nothing.
bool is_fixed(Module& module) {
  const auto* const quantizer = dynamic_cast<const ActivationQuantizer*>(&module);
  const auto* const norm = dynamic_cast<const Norm*>(&module);
  return (quantizer == nullptr || (!quantizer->observes() && quantizer->quant().spec.rounding == Rounding::kNearest)) &&
         (norm == nullptr || norm->holds_statistics()) && !draws_in_training(module);
}

// A checksum of 64 bits.
class Checksum {
 public:
  void add(const void* data, size_t bytes) {
    constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
    const auto* const from = static_cast<const uint8_t*>(data);
    for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, from + at, std::min(sizeof word, bytes - at));
      sum_ = (sum_ ^ word) * kOdd;
      sum_ ^= sum_ >> 32;
    }
    sum_ = (sum_ ^ bytes) * kOdd;
  }
  void add(const Tensor& t) {
    if (!t.defined()) return;
    const Tensor codes = t.on_host().canonical_rows(0, t.rows(), MemoryKind::kWorkspace);
    const auto bytes = static_cast<size_t>(row_bytes_file(t.dtype(), t.cols()));
    for (int64_t r = 0; r < t.rows(); ++r) add(static_cast<const uint8_t*>(codes.data()) + r * codes.stride(), bytes);
  }
  uint64_t value() const { return sum_; }

 private:
  uint64_t sum_ = 0;
};

constexpr uint64_t kNoIntegers = ~uint64_t{0};  // TrainState::integer_of of a converted model of other layers

// Of all that the network is made from: values, scales and statistics, and the phase.
uint64_t checksum_of(TrainState& s) {
  Checksum sum;
  for (const Parameter* p : s.model->parameters()) {
    const Tensor value = p->value();
    sum.add(value);
    if (!value.defined() || !value.quant()) continue;
    for (const auto& part : {value.quant()->scale, value.quant()->zero, value.quant()->offset})
      if (part) sum.add(*part);
  }
  for (const Module::Buffer& b : s.model->buffers()) sum.add(b.tensor);
  const int64_t phase = s.phases->now();
  sum.add(&phase, sizeof phase);
  return sum.value();
}

}  // namespace

std::shared_ptr<const inference::IntegerNetwork> evaluated_network(TrainState& s) {
  if (s.state.training || s.state.calibrating || s.state.on_forward || !s.plan) return nullptr;
  // What a converted model is does not change: its layers are not asked again for every token.
  if (s.converted && (s.integer || s.integer_of == kNoIntegers)) return s.integer;
  if (!inference::integer_rule(*s.model)) {
    if (s.converted) s.integer_of = kNoIntegers;
    return nullptr;
  }
  if (!s.converted && !all_modules(*s.model, has_scale)) return nullptr;
  const uint64_t made_from = checksum_of(s);
  if (s.integer && s.integer_of == made_from) return s.integer;
  s.integer_of = made_from;
  s.integer = std::make_shared<const inference::IntegerNetwork>(inference::deployed(*s.model, s.plan->input));
  return s.integer;
}

bool follows_network(TrainState& s) {
  return s.plan && inference::integer_rule(*s.model) && all_modules(*s.model, is_fixed);
}

void follow_network(TrainState& s, const Tensor& x) {
  s.state.exact_codes.clear();
  if (!s.state.training || !follows_network(s) || !all_modules(*s.model, has_scale)) return;
  std::map<std::string, inference::Value> quantizers;
  const inference::IntegerNetwork network(inference::integer_graph(inference::lowered(*s.model, s.plan->input),
                                                                   *inference::integer_rule(*s.model), &quantizers));
  std::vector<Tensor> values;
  network.run(x, &values);
  for (const auto& [path, value] : quantizers) s.state.exact_codes[path] = values[static_cast<size_t>(value)];
}

}  // namespace bitgrad::detail
