// Activation quantizer: numbers become codes; the straight-through rule of the scheme is its backward. Scales are found
// from each batch, follow an observed range, or are learned. int32 sums with a scale are requantized.
//
// Learned numbers are parameters "step", "offset", "clip" of shape [1] or [features]. Their first values come from the
// first batch of training; until then the step is 0, which also a checkpoint keeps, and an evaluation takes first
// values of its own batch. A clip is known from the start.
#include <algorithm>
#include <cmath>

#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "nn/integer_range.h"
#include "ops/dequantize.h"

namespace bitgrad {
namespace {

constexpr std::string_view kName = "quantize";
constexpr std::string_view kDequantize = " Put dequantize before it.";

class QuantizeLayer final : public Module {
 public:
  QuantizeLayer(const LayerSpec& layer, int64_t features)
      : spec_(*layer.activation), grad_(layer.activation_grad), quantizer_(find_quantizer(spec_.scheme)) {
    quantizer_.check(spec_, /*weight=*/false);
    require(grad_ == dtypes::fp32 || grad_ == dtypes::bf16, kName, "gradients can be fp32 or bf16, got ", grad_);
    add_learned(layer, features);
    if (!layer.observer) return;
    require(learned_.empty(), kName, "scheme ", spec_.scheme, " learns its scale: got also observer ",
            layer.observer->name, ". Leave the observer out.");
    observer_ = make_observer(*layer.observer, spec_, features);
    for (const Observer::State& s : observer_->state()) add_buffer("observer." + std::string(s.name), s.tensor);
  }

  Var forward(const Var& x) override {
    QuantSpec spec = spec_;
    if (!state().training) spec.rounding = Rounding::kNearest;  // so that accuracy depends on no draw and no batch size
    if (ste_rule(spec) == SteRule::kTanh) spec.ste_t = annealed_t(spec, state().progress);
    const RandomStream draws{state().seed, Purpose::kActivation, site_id(path()),
                             static_cast<uint32_t>(state().microbatch)};
    QuantizeOpOptions options;
    options.sr = &draws;
    options.flag = mutable_state().flags.word(path());
    Var input = x;
    if (input.tracked() && grad_ != input.grad_dtype()) input.want_grad(grad_);
    if (!learned_.empty()) return quantize_learned(input, spec, learned_now(spec, x.value(), options.flag), options);
    options.params = observed(spec, x.value(), options.flag);
    if (x.dtype() != dtypes::int32) return quantize(input, spec, options);
    return requantize(input, spec.dtype, options.params ? options.params : range_params(spec, x.value()));
  }

  TensorMeta plan(const TensorMeta& in) override {
    const bool integers = in.dtype == dtypes::int32;
    require(integers || in.dtype == dtypes::fp32, kName, "needs fp32 input, got ", in.dtype,
            ". Put dequantize before it; int32 sums of a linear layer (compute: integer) are taken too.");
    const QuantParams form = probe();
    if (integers) check_integers(form);
    TensorMeta out = in;
    out.dtype = spec_.dtype;
    out.granularity = form.scale ? std::optional(form.granularity) : std::nullopt;
    out.zero_point = form.zero != nullptr;
    out.offset = form.offset != nullptr;
    out.grad = in.grad || !learned_.empty();
    return out;
  }

 private:
  void add_learned(const LayerSpec& layer, int64_t features) {
    const std::vector<LearnedPart> parts = quantizer_.learned(spec_);
    if (parts.empty()) return;
    const Granularity& g = spec_.granularity;
    const bool per_feature = g.kind == Granularity::kChannel && g.axis != 0;
    require(per_feature || g.kind == Granularity::kTensor, kName, "scheme ", spec_.scheme,
            " learns numbers per tensor or per channel(1): got ", g, '.');
    for (const LearnedPart& part : parts) {
      const bool known = part.name == "clip";
      ParameterSpec p;
      p.moments = MomentKind::kFp32;
      p.init = {"constant", known ? static_cast<double>(spec_.first_clip) : 0.0, 0};
      p.floor = part.floor;
      p.lr_factor = layer.learned_lr_factor;
      p.weight_decay = layer.learned_weight_decay;
      learned_.push_back(&add_parameter(std::string(part.name), {per_feature ? features : 1}, p));
      if (!known && marker_ == nullptr) marker_ = learned_.back();
    }
  }

  // The first number of the step; 0: not yet set.
  bool set() const { return marker_ == nullptr || marker_->value().as<float>()[0] != 0.0f; }

  std::vector<Var> learned_now(const QuantSpec& spec, const Tensor& x, uint32_t* flag) {
    if (!set() && !set_first(spec, x, flag)) return first_;
    std::vector<Var> now;
    for (Parameter* p : learned_) now.push_back(p->read());
    return now;
  }

  // Stores first values in training; gives false and leaves constants in first_ where nothing is stored.
  bool set_first(const QuantSpec& spec, const Tensor& x, uint32_t* flag) {
    std::vector<Tensor> values;
    bool fits = x.numel() > 0;
    try {
      values =
          quantizer_.first_learned(spec, x.dtype() == dtypes::int32 ? values_of(kName, x, MemoryKind::kWorkspace) : x);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kNonFinite) throw;
      *flag |= kFlagNonFinite;  // the step is dropped: until then any legal numbers will do
      fits = false;
      for (Parameter* p : learned_) values.push_back(Tensor::full(p->shape(), dtypes::fp32, 1.0));
    }
    first_.clear();
    for (size_t i = 0; i < learned_.size(); ++i) {
      if (const auto floor = learned_[i]->spec().floor)
        for (int64_t j = 0; j < values[i].numel(); ++j)
          values[i].as<float>()[j] = std::max(values[i].as<float>()[j], *floor);
      if (fits && state().training) learned_[i]->value().copy_from(values[i]);
      first_.push_back(values[i]);
    }
    return fits && state().training;
  }

  // Scales of the observed range; null: none (yet).
  std::shared_ptr<const QuantParams> observed(const QuantSpec& spec, const Tensor& x, uint32_t* flag) {
    if (!observer_) return nullptr;
    if (state().training && x.numel() > 0) {
      try {
        observer_->observe(x.dtype() == dtypes::int32 ? range_as_batch(x) : x);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kNonFinite) throw;
        *flag |= kFlagNonFinite;
      }
    }
    if (!observer_->ready()) return nullptr;
    return std::make_shared<const QuantParams>(observer_->params(spec));
  }

  // Two numbers that have the range of x.
  static Tensor range_as_batch(const Tensor& x) {
    const detail::IntegerRange range = detail::integer_range(x, /*per_row=*/false);
    const double ends[] = {static_cast<double>(range.low[0]), static_cast<double>(range.high[0])};
    return Tensor::from_numbers({1, 2}, dtypes::fp32, ends);
  }

  std::shared_ptr<const QuantParams> range_params(const QuantSpec& spec, const Tensor& x) const {
    const detail::IntegerRange range = detail::integer_range(x, spec.granularity.kind == Granularity::kToken);
    return std::make_shared<const QuantParams>(quantizer_.fit_range(spec, range.low, range.high));
  }

  // The kinds of scales that the scheme makes: asked of tiny numbers.
  QuantParams probe() const {
    if (learned_.empty()) return quantizer_.fit(spec_, Tensor::full({1, 1}, dtypes::fp32, 0.5));
    std::vector<Tensor> ones;
    for (const Parameter* p : learned_) ones.push_back(Tensor::full(p->shape(), dtypes::fp32, 1.0));
    return quantizer_.params_of(spec_, ones);
  }

  // What requantize can do: docs/numerics.md section 4.
  void check_integers(const QuantParams& form) const {
    const Granularity& g = spec_.granularity;
    require(quantizer_.from_range() || !learned_.empty(), kName, "of int32 needs a scheme whose scale follows from a ",
            "range (symmetric, absmax, affine) or is learned: got ", spec_.scheme, '.', kDequantize);
    require(!form.offset, kName, "of int32 has no real offset: got scheme ", spec_.scheme, '.', kDequantize);
    require(g.kind == Granularity::kTensor || (g.kind == Granularity::kToken && learned_.empty() && !observer_), kName,
            "of int32 has scales per tensor, or per token found from each batch: got ", g, '.', kDequantize);
    require(spec_.rounding == Rounding::kNearest && !spec_.reduce_range, kName,
            "of int32 rounds to nearest, to all codes", " of ", spec_.dtype, ": got ",
            spec_.reduce_range ? "reduce_range" : "stochastic", '.', kDequantize);
    require(!spec_.div, kName, "of int32 multiplies by s_in / s_out and divides by no scale: got div.", kDequantize);
    require(!learned_.empty() || ste_rule(spec_) == SteRule::kClip, kName,
            "of int32 has the straight-through rule clip", ": got another.", kDequantize);
    require(!observer_ || observer_->name() == "min_max" || observer_->name() == "moving_average", kName,
            "of int32 is observed by min_max or moving_average: got ", observer_ ? observer_->name() : "", '.',
            kDequantize);
  }

  QuantSpec spec_;
  DType grad_;
  const Quantizer& quantizer_;
  std::vector<Parameter*> learned_;
  Parameter* marker_ = nullptr;  // the first learned part that is not known from the start
  std::vector<Var> first_;       // of a batch that stores nothing
  std::unique_ptr<Observer> observer_;
};

}  // namespace

std::shared_ptr<Module> make_quantize_layer(const LayerSpec& spec, int64_t in_features) {
  require(spec.activation.has_value(), kName, "needs a quantization of activations (dtype, scheme)");
  return std::make_shared<QuantizeLayer>(spec, in_features);
}

}  // namespace bitgrad
