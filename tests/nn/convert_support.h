// Random small models that are prepared, trained for a few steps, converted, and built once more from their bytes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bitgrad/autograd/tape.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/nn/prepare.h"
#include "bitgrad/optim/optimizer.h"
#include "nn/nn_support.h"
#include "support/label_loss.h"

namespace bitgrad::test {

// Draws of one case.
class Draws {
 public:
  explicit Draws(uint64_t seed) : stream_{seed, Purpose::kUser, site_id("convert_test"), 0} {}
  int64_t below(int64_t n) { return static_cast<int64_t>(stream_.bits32(next_++) % static_cast<uint32_t>(n)); }
  bool one_in(int64_t n) { return below(n) == 0; }
  template <typename T>
  const T& of(const std::vector<T>& list) {
    return list[static_cast<size_t>(below(static_cast<int64_t>(list.size())))];
  }

 private:
  RandomStream stream_;
  uint64_t next_ = 0;
};

// Dtypes that the library does not have.
inline DType five_levels() {
  DTypeInfo info;
  info.name = "convert_test_five";
  info.kind = DTypeKind::kCodebook;
  info.bits = 3;
  info.levels = {-1.0f, -0.3f, 0.0f, 0.45f, 0.9f};
  return register_dtype(info);
}
inline DType seven_codes() {
  DTypeInfo info;
  info.name = "convert_test_seven";
  info.kind = DTypeKind::kInt;
  info.bits = 3;
  info.qmin = -3;
  info.qmax = 3;
  return register_dtype(info);
}

// Every scheme with every dtype and granularity that it takes.
inline std::vector<QuantSpec> all_specs(bool weight, const std::vector<Granularity>& granularities) {
  five_levels();
  seven_codes();
  std::vector<QuantSpec> specs;
  for (const std::string_view scheme : quantizer_names())
    for (const DType dtype : code_dtypes())
      for (const Granularity& g : granularities) {
        QuantSpec spec = quant_spec(dtype, std::string(scheme));
        spec.granularity = g;
        try {
          find_quantizer(scheme).check(spec, weight);
          specs.push_back(spec);
        } catch (const Error&) {  // this scheme takes others
        }
      }
  return specs;
}
inline const std::vector<QuantSpec>& all_weights() {
  using G = Granularity;
  static const std::vector<QuantSpec> specs =
      all_specs(true, {G::tensor(), G::channel(0), G::channel(1), G::token(), G::groups(32), G::groups(7),
                       G::groups(1000), G::groups(5, 0), G::groups(64)});
  return specs;
}
inline const std::vector<QuantSpec>& all_inputs() {
  using G = Granularity;
  static const std::vector<QuantSpec> specs = all_specs(false, {G::tensor(), G::token(), G::channel(1)});
  return specs;
}

inline bool accepted(const QuantSpec& spec, bool weight) {
  try {
    find_quantizer(spec.scheme).check(spec, weight);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Options of a scheme, each where it takes it.
inline QuantSpec with_options(QuantSpec spec, bool weight, Draws& draws) {
  const auto maybe = [&](auto change) {
    QuantSpec other = spec;
    change(other);
    if (draws.one_in(3) && accepted(other, weight)) spec = other;
  };
  maybe([](QuantSpec& s) { s.alpha = true; });
  maybe([](QuantSpec& s) { s.alpha_grad = s.alpha; });
  maybe([](QuantSpec& s) { s.pow2 = true; });
  maybe([](QuantSpec& s) { s.div = true; });
  maybe([](QuantSpec& s) { s.scale_dtype = dtypes::fp16; });
  maybe([](QuantSpec& s) { s.reduce_range = true; });
  maybe([](QuantSpec& s) { s.rounding = Rounding::kStochastic; });
  maybe([](QuantSpec& s) { s.eps = 1e-3f; });
  if (spec.scheme == "fixed") maybe([](QuantSpec& s) { s.scale = 0.125f; });
  if (spec.scheme == "fixed") maybe([](QuantSpec& s) { s.offset = 0.25f; });
  return spec;
}

// What compute integer_out takes.
inline LayerQuant integer_quant(Draws& draws) {
  using G = Granularity;
  const auto pick = [&](const G& granularity) {
    const std::string scheme = draws.of(std::vector<std::string>{"symmetric", "absmax", "lsq", "binary"});
    QuantSpec spec = quant_spec(
        scheme == "binary"
            ? dtypes::bint1
            : draws.of(std::vector<DType>{dtypes::int2, dtypes::int3, dtypes::int4, dtypes::int8, dtypes::ternary}),
        scheme);
    spec.granularity = granularity;
    if (spec.scheme == "lsq" && granularity == G::token()) spec.scheme = "absmax";
    return spec;
  };
  LayerQuant q;
  q.recipe = "custom";
  const bool by_token = draws.one_in(2);
  q.input = pick(by_token ? G::token() : G::tensor());
  q.weight = pick(by_token || draws.one_in(2) ? G::tensor() : G::channel(0));
  q.compute = Compute::kIntegerOut;
  return q;
}

inline LayerQuant random_quant(size_t weight, Draws& draws) {
  LayerQuant q;
  q.recipe = "custom";
  q.weight = with_options(all_weights()[weight % all_weights().size()], true, draws);
  if (!draws.one_in(4)) q.input = with_options(draws.of(all_inputs()), false, draws);
  if (draws.one_in(4)) q.grad = dtypes::bf16;
  if (draws.one_in(4)) q.master = draws.one_in(2) ? MasterKind::kBf16 : MasterKind::kNone;
  if (draws.one_in(4)) q.latent_clamp = 1.0f;
  if (q.input && draws.one_in(4)) q.input_grad = dtypes::bf16;
  if (draws.one_in(6)) return integer_quant(draws);
  if (q.input && draws.one_in(2)) {
    q.observer.emplace();
    q.observer->name = draws.of(std::vector<std::string>{"min_max", "moving_average", "percentile", "mse"});
  }
  return q;
}

struct ConvertCase {
  int64_t in, hidden, out, batch, other_batch;
  bool bias;
  LayerQuant first, last;
  bool freeze;
  std::string optimizer;
};

inline ConvertCase random_case(uint64_t seed) {
  Draws draws(seed);
  const std::vector<int64_t> sizes{1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 47, 63, 64, 65, 70, 96, 127, 129, 200};
  const std::vector<int64_t> batches{1, 2, 3, 7, 8, 9, 16, 17, 31, 33, 65};
  ConvertCase c;
  c.in = draws.one_in(12) ? draws.of(std::vector<int64_t>{511, 513, 700}) : draws.of(sizes);
  c.hidden = draws.one_in(12) ? draws.of(std::vector<int64_t>{256, 257, 300}) : draws.of(sizes);
  c.out = 2 + draws.below(19);
  c.batch = draws.of(batches);
  c.other_batch = draws.of(batches);
  c.bias = draws.one_in(2);
  // Two walks through all weight specs.
  c.first = random_quant(static_cast<size_t>(seed), draws);
  c.last = random_quant(static_cast<size_t>(seed) * 7 + 3, draws);
  c.freeze = draws.one_in(4);
  c.optimizer = draws.one_in(2) ? "adam" : "sgd";
  return c;
}

inline std::string describe(const LayerQuant& q) {
  std::string text =
      concat(q.weight->scheme, ' ', q.weight->dtype, ' ', q.weight->granularity, " compute ", enum_name(q.compute));
  if (q.input)
    text += concat(", input ", q.input->scheme, ' ', q.input->dtype, ' ', q.input->granularity,
                   q.observer ? " observed by " + q.observer->name : "");
  return text;
}
inline std::string describe(const ConvertCase& c) {
  return concat("[", c.batch, " or ", c.other_batch, "] ", c.in, " -> ", c.hidden, " -> ", c.out, c.bias ? " bias" : "",
                c.freeze ? " frozen" : "", "; first: ", describe(c.first), "; last: ", describe(c.last));
}

// linear, dequantize, hardtanh, linear, dequantize: the paths of its layers are layers.0 and layers.3.
inline std::shared_ptr<Sequential> float_model(const ConvertCase& c) {
  LayerSpec linear;
  linear.kind = "linear";
  linear.attributes["out"] = c.hidden;
  linear.attributes["bias"] = c.bias;
  linear.weight.init = {"uniform", -1, 1};
  LayerSpec dequantize;
  dequantize.kind = "dequantize";
  LayerSpec hardtanh;
  hardtanh.kind = "hardtanh";
  LayerSpec last = linear;
  last.attributes["out"] = c.out;
  last.attributes["bias"] = false;
  return make_sequential({linear, dequantize, hardtanh, last, dequantize}, c.in);
}

inline PrepareSpec spec_of(const ConvertCase& c) {
  PrepareSpec spec;
  spec.rules = {{"layers.0", c.first}, {"layers.3", c.last}};
  return spec;
}

inline void plan_rows(Module& model, const ConvertCase& c) {
  for (const bool training : {true, false}) {
    Form in;
    in.samples = c.batch;
    in.sample = {c.in};
    in.training = training;
    model.plan(in);
  }
}

// Makes a case legal: what its layers cannot do is left out, one thing after another.
inline void repair(ConvertCase& c) {
  for (LayerQuant* q : {&c.first, &c.last}) {
    const auto fits = [&] {
      try {
        const auto model = float_model(c);
        PrepareSpec spec;
        spec.rules = {{q == &c.first ? "layers.0" : "layers.3", *q}};
        StepState state;
        prepare(*model, spec);
        model->initialize("layers", state);
        plan_rows(*model, c);
        Optimizer({.name = c.optimizer}).attach(model->parameters());
        return true;
      } catch (const Error& e) {
        return false;
      }
    };
    if (!fits()) q->observer.reset();
    if (!fits()) q->compute = Compute::kPacked;
    if (!fits()) q->master = MasterKind::kFp32;
    if (!fits()) q->input.reset();
  }
}

inline Tensor batch_of(const ConvertCase& c, int64_t rows, uint64_t seed) {
  return random_tensor({rows, c.in}, dtypes::fp32, seed, -1.5, 1.5);
}

// false: a gradient was not finite (a scheme's exact derivative on numbers that are all 0), and the rest was left out.
inline bool train_steps(Module& model, StepState& state, const ConvertCase& c, int steps) {
  Optimizer optimizer({.name = c.optimizer});
  optimizer.attach(model.parameters());
  optimizer.set_steps(state.step);
  for (int i = 0; i < steps; ++i) {
    std::vector<int32_t> labels;
    for (int64_t r = 0; r < c.batch; ++r) labels.push_back(static_cast<int32_t>((r + state.step) % c.out));
    try {
      Tape tape;
      const Var logits = model(batch_of(c, c.batch, static_cast<uint64_t>(900 + state.step)));
      tape.backward(label_loss(logits, labels));
      const RequantKey key{state.seed, state.step + 1};
      optimizer.step(0.02f, c.batch, &key);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kNonFinite || optimizer.partially_updated()) throw;
      for (Parameter* p : model.parameters()) p->grad_sink().clear();
      return false;
    }
    ++state.step;
    ++state.microbatch;
  }
  return true;
}

inline std::vector<uint32_t> evaluate(Module& model, StepState& state, const ConvertCase& c) {
  const NoGrad off;
  state.training = false;
  std::vector<uint32_t> bits;
  for (const int64_t rows : {c.batch, c.other_batch, int64_t{1}})
    for (const uint32_t b : bits_of(model(batch_of(c, rows, static_cast<uint64_t>(70 + rows))).value()))
      bits.push_back(b);
  state.training = true;
  return bits;
}

// The bytes of a parameter, in memory of their own.
inline Tensor copy_of(const Tensor& value) {
  Tensor copy = value.clone(MemoryKind::kValue);
  if (!value.quant()) return copy;
  QuantParams params = *value.quant();
  for (auto* part : {&params.scale, &params.zero, &params.offset, &params.statistic})
    if (*part) *part = std::make_shared<const Tensor>((*part)->clone(MemoryKind::kQuantState));
  return copy.with_quant(std::make_shared<const QuantParams>(params));
}

// A converted model of the same form, of another seed, that gets the values of `from`.
struct Loaded {
  std::shared_ptr<Sequential> model;
  StepState state;
};
inline std::unique_ptr<Loaded> load_copy(const ConvertCase& c, Module& from) {
  auto loaded = std::make_unique<Loaded>();
  loaded->model = float_model(c);
  loaded->state.seed = 991;
  prepare(*loaded->model, spec_of(c));
  loaded->model->initialize("layers", loaded->state);
  convert(*loaded->model);
  const auto to = loaded->model->parameters(), source = from.parameters();
  if (to.size() != source.size()) throw Error("another number of parameters");
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i]->path() != source[i]->path()) throw Error("another path: " + to[i]->path());
    const Tensor value = copy_of(source[i]->value());
    to[i]->restore({to[i]->low_bit() ? Tensor() : value, value});
  }
  const auto buffers = loaded->model->buffers(), old = from.buffers();
  for (size_t i = 0; i < buffers.size(); ++i) buffers[i].tensor.copy_from(old.at(i).tensor);
  plan_rows(*loaded->model, c);
  return loaded;
}

}  // namespace bitgrad::test
