// Codes of weights and activations made with their scales, or in both orders, by one kernel on the (emulated) device,
// with the bits of the CPU.
#include <cmath>
#include <memory>

#include "cuda/counted.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

struct Weights {
  const char* name;
  QuantSpec spec;
  MasterKind master = MasterKind::kFp32;
  bool binarized = true;  // by the one kernel
};

std::vector<Weights> weights() {
  std::vector<Weights> all{{"alpha of rows", binary(Granularity::channel(0))},
                           {"alpha of tokens, bf16 master", binary(Granularity::token()), MasterKind::kBf16},
                           {"alpha of rows, no master", binary(Granularity::channel(0)), MasterKind::kNone},
                           {"alpha_grad, eps", binary(Granularity::channel(0))},
                           {"pow2", binary(Granularity::channel(0)), MasterKind::kFp32, false},
                           {"alpha of the whole", binary(Granularity::tensor()), MasterKind::kFp32, false},
                           {"alpha of columns", binary(Granularity::channel(1)), MasterKind::kFp32, false},
                           {"signs", binary(Granularity::tensor(), false), MasterKind::kFp32, false},
                           {"int4", scheme("absmax", dtypes::int4, Granularity::channel(0)), MasterKind::kFp32, false},
                           {"nf4", scheme("codebook", dtypes::nf4, Granularity::groups(32)), MasterKind::kFp32, false},
                           {"lsq", scheme("lsq", dtypes::int3, Granularity::channel(0)), MasterKind::kFp32, false}};
  all[3].spec.alpha_grad = true;
  all[3].spec.eps = 0.75f;
  all[4].spec.pow2 = true;
  return all;
}

TEST_CASE("weights with alpha of rows are binarized, and transposed codes written, by one kernel") {
  for (const Shape& shape : {Shape{1, 1}, Shape{13, 48}, Shape{64, 128}, Shape{65, 129}, Shape{3, 1025}})
    for (const Weights& w : weights())
      for (const bool both_orders : {false, true}) {
        INFO(w.name << ' ' << shape << " both orders " << both_orders);
        std::unique_ptr<Counted> binarized, coded, transposed, together;
        CHECK(device_difference([&] {
                ParameterSpec spec;
                spec.init = {"uniform", -1, 1};
                spec.quant = w.spec;
                spec.master = w.master;
                Parameter p(shape, spec);
                p.initialize("layers.0.weight", 3);
                if (both_orders) p.memory().add_layout(layouts::transposed);
                binarized = std::make_unique<Counted>("binarize_cuda");
                coded = std::make_unique<Counted>("quantize_sign_cuda");
                transposed = std::make_unique<Counted>("transpose_codes_cuda");
                together = std::make_unique<Counted>("quantize_transposed_cuda");
                p.assign(here(host_numbers(shape, 7)), 1);
                Results out{p.value().clone(MemoryKind::kWorkspace), transposed_codes(p.value())};
                p.change([](ParameterSpec& s) { s.scales_frozen = true; });
                p.requantize(3, 2);
                out.push_back(p.value().clone(MemoryKind::kWorkspace));
                out.push_back(transposed_codes(p.value()));
                return out;
              }) == "");
        const bool master = w.master != MasterKind::kNone, levels = w.spec.dtype == dtypes::nf4;
        const int64_t calls = master ? 2 : 1, at_once = w.binarized ? 1 : 0;
        CHECK(binarized->now() == at_once);
        CHECK(transposed->now() == (both_orders && levels ? calls : 0));
        CHECK(together->now() == (both_orders && !levels ? calls - at_once : 0));
        if (w.binarized) CHECK(coded->now() == (both_orders ? 0 : calls - at_once));
      }
}

TEST_CASE("a matrix without elements has transposed codes too, and no kernel runs") {
  for (const Shape& shape : {Shape{0, 70}, Shape{70, 0}})
    for (const Weights& w : weights()) {
      INFO(w.name << ' ' << shape);
      const Counted binarized("binarize_cuda"), together("quantize_transposed_cuda");
      CHECK(device_difference([&] {
              QuantizeOptions options;
              options.transposed = true;
              const Tensor x = Tensor::empty(shape, dtypes::fp32), codes = quantize_dynamic(w.spec, x, options);
              return Results{codes, transposed_codes(codes)};
            }) == "");
      CHECK(binarized.now() + together.now() == 0);
    }
}

TEST_CASE("numbers that have no codes or no alpha: binarized weights fail with the CPU's texts") {
  for (const float bad : {std::nanf(""), INFINITY, 3e38f})  // 3e38: finite numbers whose sum is not
    for (const bool activation : {false, true}) {
      INFO(bad << ' ' << activation);
      const Counted binarized("binarize_cuda");
      const TwoErrors e = errors_of([&] {
        const Tensor x = Tensor::full({3, 40}, dtypes::fp32, bad);
        if (activation) {
          quantize_dynamic(binary(Granularity::token()), x);
          return;
        }
        ParameterSpec spec;
        spec.quant = binary(Granularity::channel(0));
        Parameter p({3, 40}, spec);
        p.initialize("layers.0.weight", 3);
        p.master().copy_from(x);
        p.requantize(3, 17);
      });
      CHECK(contains(e.on_cpu, activation ? "[binary]" : "the master of 'layers.0.weight'"));
      // A device does not name the block.
      const bool block = contains(e.on_cpu, "scale of block 0 is inf");
      CHECK(block == (activation && bad == 3e38f));
      if (block) CHECK(contains(e.on_gpu, "[binary] the values of x [3,40] fp32 are too large: the scale of a block"));
      if (!block) CHECK(e.on_gpu == e.on_cpu);
      CHECK(binarized.now() == (activation ? 1 : 2));
    }
}

TEST_CASE("activations with alpha are binarized at once where no mask is wanted, and NaN raises their flag") {
  const QuantSpec spec = binary(Granularity::token());
  Tensor bad = host_numbers({6, 70}, 1);
  bad.as<float>()[75] = std::nanf("");
  for (const bool training : {false, true}) {
    const Counted binarized("binarize_cuda");
    CHECK(device_difference([&] {
            Tape tape;
            AccumulateSink sink;
            const Tensor x = here(host_numbers({6, 70}, 1));
            const Var y = quantize(training ? tape.leaf(x, &sink, dtypes::fp32) : Var(x), spec);
            if (!training) return Results{y.value()};
            tape.backward({y}, {here(host_numbers({6, 70}, 2))});
            return Results{y.value(), sink.grad()};
          }) == "");
    CHECK(binarized.now() == (training ? 0 : 1));
  }
  const DeviceGuard guard(gpu());
  const Tensor flag = Tensor::zeros({1}, dtypes::int32);
  QuantizeOpOptions options;
  options.flag = reinterpret_cast<uint32_t*>(flag.as<int32_t>());
  quantize(Var(here(bad)), spec, options);
  CHECK(flag.elements()[0] == 1);
  CHECK_NOTHROW(poll_errors());
}

}  // namespace
