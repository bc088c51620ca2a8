#include "bench_kernels_cases.h"
#include "bitgrad/optim/optimizer.h"
#include "kernels/elementwise.h"
#include "kernels/pack.h"

namespace bitgrad::bench {
namespace {

constexpr const char* kFamily = "optimizer";
constexpr float kRate = 1e-4f;

// Master, gradient and two moments of a parameter.
struct Moved {
  Tensor w, g, m, v;
  explicit Moved(const Numbers& n) : w(n.copy()), g(n.copy()), m(n.copy()), v(n.copy()) {
    kernels::mul(v.numel(), v.as<float>(), v.as<float>(), v.as<float>());  // squares
  }
};

// Moments in 8 or 4 bits: means, which have signs, or squares.
struct Scaled {
  Tensor x, q, scales;
  int bits;
  bool squares;

  Scaled(const Numbers& n, int bits_, bool squares_)
      : x(n.copy()),
        q(Tensor::empty({(x.numel() * bits_ + 7) / 8}, dtypes::uint8)),
        scales(Tensor::empty({(x.numel() + kernels::kMomentBlock - 1) / kernels::kMomentBlock}, dtypes::fp32)),
        bits(bits_),
        squares(squares_) {
    if (squares) kernels::mul(x.numel(), x.as<float>(), x.as<float>(), x.as<float>());
  }
  kernels::MomentCodes codes() const {
    return {bits, squares ? MomentValues::kSquares : MomentValues::kMeans, q.as<uint8_t>(), scales.as<float>()};
  }
  void narrow(const RandomStream& draws) const { kernels::narrow_moments(x.numel(), x.as<float>(), draws, 0, codes()); }
  void widen() const { kernels::widen_moments(x.numel(), codes(), x.as<float>()); }
};

// Bytes that an element of moments takes, with its part of a scale.
double moment_bytes(MomentKind kind) {
  constexpr double kScale = 4.0 / kernels::kMomentBlock;
  return kind == MomentKind::kFp32 ? 4 : kind == MomentKind::kBf16 ? 2 : kScale + (kind == MomentKind::kInt8 ? 1 : 0.5);
}

// Later steps need no corrections of the moments.
Case adam_case(const Numbers& n, const char* what, bool decoupled, bool first = false) {
  return float_case(n, kFamily, what, 28, [decoupled, first](const Numbers& numbers) {
    return [p = Moved(numbers), decoupled, first] {
      kernels::AdamArgs args{p.w.numel(), p.w.as<float>(), p.m.as<float>(), p.v.as<float>(), p.g.as<float>(), kRate};
      args.weight_decay = 0.01f, args.decoupled = decoupled;
      if (first) args.c1 = 0.1f, args.c2 = 0.001f;
      kernels::adam_update(args);
    };
  });
}

Case sgd_case(const Numbers& n, const char* what, bool momentum) {
  return float_case(n, kFamily, what, momentum ? 20 : 12, [momentum](const Numbers& numbers) {
    return [p = Moved(numbers), momentum] {
      kernels::SgdArgs args{p.w.numel(), p.w.as<float>(), p.g.as<float>(), momentum ? p.m.as<float>() : nullptr, kRate};
      args.mu = momentum ? 0.9f : 0.0f;
      kernels::sgd_update(args);
    };
  });
}

Case gradient_case(const Numbers& n, const char* what, bool bounds) {
  return float_case(n, kFamily, what, bounds ? 12 : 8, [bounds](const Numbers& numbers) {
    return [p = Moved(numbers), flags = Tensor::zeros({1}, dtypes::int32), bounds] {
      kernels::FinishGradientArgs args{p.g.numel(), p.g.as<float>(), 1, bounds ? p.w.as<float>() : nullptr};
      args.flags = static_cast<uint32_t*>(flags.data());
      kernels::finish_gradient(args);
    };
  });
}

// An optimizer step of one parameter whose gradient stays the same.
struct OneParameter {
  Parameter parameter;
  Optimizer optimizer;
  int64_t steps = 0;

  OneParameter(const Numbers& n, ParameterSpec spec, OptimizerSpec rule, std::span<const Layout> layouts)
      : parameter({n.rows(), n.cols()}, std::move(spec)), optimizer(std::move(rule)) {
    parameter.initialize("weight", 1);
    for (const Layout layout : layouts) parameter.memory().add_layout(layout);
    optimizer.attach({&parameter});
    Tape tape;
    tape.backward({parameter.read()}, {n.copy()});
  }
  void step() {
    const RequantKey due{1, ++steps};
    parameter.grad_sink().done();
    optimizer.step(kRate, 1, &due);
  }
};

// The layouts besides canonical that products on a device read, limited to those this device can make.
std::vector<Layout> product_layouts(const Numbers& n, DType dtype) {
  std::vector<Layout> out;
  for (const Layout layout : {layouts::transposed, layouts::frag64}) {
    const kernels::PackArgs args{dtype, n.rows(), n.cols(), nullptr, 0, layout, nullptr};
    if (layout.info().supports(dtype) && kernels::pack_kernels().cheapest(args) != nullptr) out.push_back(layout);
  }
  return out;
}

ParameterSpec codes_of(DType dtype) {
  ParameterSpec spec;
  spec.quant.emplace();
  spec.quant->dtype = dtype;
  const bool signs = dtype.kind() == DTypeKind::kSign;
  spec.quant->scheme = signs ? "binary" : dtype == dtypes::ternary ? "ternary" : "absmax";
  if (!signs && dtype != dtypes::ternary) spec.quant->granularity = Granularity::channel(0);
  spec.init = {"uniform", -1, 1};
  spec.latent_clamp = 1.0f;
  return spec;
}

}  // namespace

std::vector<Case> update_cases(const Numbers& n) {
  std::vector<Case> cases{sgd_case(n, "sgd", false),
                          sgd_case(n, "sgd, momentum", true),
                          adam_case(n, "adam", false),
                          adam_case(n, "adam, first steps", false, true),
                          adam_case(n, "adamw", true),
                          gradient_case(n, "gradient divided", false),
                          gradient_case(n, "finished gradient", true)};
  cases.push_back(float_case(n, kFamily, "bop", 20, [](const Numbers& numbers) {
    return [p = Moved(numbers)] {
      kernels::bop_update({p.w.numel(), p.w.as<float>(), p.m.as<float>(), p.g.as<float>(), 1e-4f, 1e-8f});
    };
  }));
  for (const int bits : {8, 4})
    for (const bool squares : {false, true}) {
      const std::string moments = squares ? "squares" : "means";
      const double moved = 4 + moment_bytes(bits == 8 ? MomentKind::kInt8 : MomentKind::kInt4);
      cases.push_back(float_case(
          n, kFamily, concat(moments, " to ", bits, " bits"), moved, [bits, squares](const Numbers& numbers) {
            return [s = Scaled(numbers, bits, squares), draws = numbers.draws()] { s.narrow(*draws); };
          }));
      cases.push_back(float_case(n, kFamily, concat(moments, " from ", bits, " bits"), moved,
                                 [bits, squares](const Numbers& numbers) {
                                   const Scaled s(numbers, bits, squares);
                                   s.narrow(*numbers.draws());
                                   return [s] { s.widen(); };
                                 }));
    }
  return cases;
}

std::vector<Case> step_cases(const Numbers& n, DType dtype) {
  std::vector<Case> cases;
  if (dtype.kind() == DTypeKind::kUint) return cases;  // weights have signs
  const std::vector<Layout> layouts = product_layouts(n, dtype);
  double codes = static_cast<double>(n.rows() * Tensor::empty({1, n.cols()}, dtype).stride());
  std::string names = "canonical";
  for (const Layout layout : layouts) {
    codes += static_cast<double>(layout.info().bytes(dtype, n.rows(), n.cols()));
    names += concat(", ", layout.name());
  }
  for (const MomentKind moments : {MomentKind::kFp32, MomentKind::kBf16, MomentKind::kInt8, MomentKind::kInt4}) {
    const double moved = 4 * moment_bytes(moments);  // both are read and written
    OptimizerSpec rule;
    rule.name = "adamw";
    rule.weight_decay = 0.01f;
    rule.moments = moments;
    // Reads g; reads and writes w; writes codes.
    const double bytes = (12 + moved) * n.count() + codes;
    cases.push_back({"optimizer", concat("step of adamw, moments ", enum_name(moments)), std::string(dtype.name()),
                     names, bytes, [n = &n, dtype, rule, layouts]() -> std::function<void()> {
                       auto one = std::make_shared<OneParameter>(*n, codes_of(dtype), rule, layouts);
                       return [one] { one->step(); };
                     }});
  }
  return cases;
}

}  // namespace bitgrad::bench
