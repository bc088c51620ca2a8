// Sums of rows that travel with codes of one bit and with weights of 8 bits on the (emulated) device: whoever makes the
// codes makes them, products read them and no kernel reads the codes a second time.
#include "bitgrad/ops/ops.h"
#include "bitgrad/optim/optimizer.h"
#include "bitgrad/quant/quantizer.h"
#include "cuda/counted.h"
#include "cuda/kernels/gemm/wgmma/plan.h"
#include "cuda/on_device.h"
#include "kernels/quantize.h"
#include "optim/optim_support.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

constexpr const char* kSecondRead = "gemm_code_sums_simt";

// Of signs the number of +1.
std::vector<double> sums_of(const Tensor& codes) {
  const bool signs = codes.dtype().kind() == DTypeKind::kSign;
  std::vector<double> sums(static_cast<size_t>(codes.rows()));
  const std::vector<double> numbers = codes.without_quant().elements();
  for (size_t i = 0; i < numbers.size(); ++i)
    sums[i / static_cast<size_t>(codes.cols())] += signs ? numbers[i] > 0 : numbers[i];
  return sums;
}
// The sums that codes carry are those of their rows.
void check_sums(const Tensor& codes) {
  REQUIRE(codes.row_sums().defined());
  CHECK(codes.row_sums().elements() == sums_of(codes));
}

TEST_CASE("the signs of a norm carry the sums of their rows, on the CPU where they are asked for") {
  for (const Shape& shape : {Shape{7, 70}, Shape{40, 300}}) {
    const Tensor x = host_numbers(shape, 4), ones = Tensor::full({shape.cols()}, dtypes::fp32, 1),
                 zeros = Tensor::zeros({shape.cols()}, dtypes::fp32);
    const auto run = [&](bool summed) {
      Tensor codes = Tensor::empty(shape, dtypes::bint1);
      const Tensor on[] = {here(x), here(ones), here(zeros)};
      const Tensor sums = Tensor::full({shape.rows()}, dtypes::int32, 9);
      NormalizeSignArgs args;
      args.norm.rows = shape.rows(), args.norm.cols = shape.cols(), args.norm.column_step = 1;
      args.norm.x = on[0].as<float>();
      args.norm.mean = args.norm.beta = on[2].as<float>();
      args.norm.inv = args.norm.gamma = on[1].as<float>();
      args.codes = codes.data(), args.stride = codes.stride();
      if (summed) args.row_ones = sums.as<int32_t>();
      normalize_sign(args);
      CHECK(sums.elements() == (summed ? sums_of(codes) : std::vector<double>(static_cast<size_t>(shape.rows()), 9)));
    };
    run(true);
    const DeviceGuard guard(gpu());
    run(false);
    run(true);
  }
}

TEST_CASE("codes of one bit carry the sums of their rows, whichever kernel makes them") {
  const DeviceGuard guard(gpu());
  std::vector<QuantSpec> specs{binary(Granularity::token()), binary(Granularity::tensor(), false),
                               binary(Granularity::channel(1)),
                               scheme("standardized_binary", dtypes::bint1, Granularity::token()),
                               scheme("step", dtypes::int1, Granularity::tensor())};
  for (const Shape& shape :
       {Shape{1, 1}, Shape{5, 33}, Shape{9, 256}, Shape{3, 1000}, Shape{130, 129}, Shape{300, 512}})
    for (const QuantSpec& spec : specs)
      for (const bool transposed : {false, true})
        for (const bool mask : {false, true}) {
          INFO(spec.scheme << ' ' << shape << " transposed " << transposed << " mask " << mask);
          QuantizeOptions options;
          Tensor bits;
          options.transposed = transposed;
          if (mask) options.mask = &bits;
          check_sums(quantize_dynamic(spec, here(host_numbers(shape, 3)), options));
        }
}

TEST_CASE("codes of 8 bits carry the sums of their rows where there is a place for them") {
  const DeviceGuard guard(gpu());
  QuantSpec drawn = scheme("absmax", dtypes::int8, Granularity::token());
  drawn.rounding = Rounding::kStochastic;
  const RandomStream sr{7, Purpose::kActivation, 1, 2};
  const std::vector<QuantSpec> specs{scheme("absmax", dtypes::int8, Granularity::token()),
                                     scheme("absmax", dtypes::int8, Granularity::channel(1)),
                                     scheme("affine", dtypes::int8, Granularity::tensor()),
                                     scheme("affine", dtypes::uint8, Granularity::token()), drawn};
  for (const Shape& shape :
       {Shape{1, 1}, Shape{5, 33}, Shape{9, 256}, Shape{3, 1000}, Shape{130, 129}, Shape{300, 512}})
    for (const QuantSpec& spec : specs)
      for (const bool transposed : {false, true}) {
        INFO(spec.scheme << ' ' << spec.dtype << ' ' << shape << " transposed " << transposed);
        Tensor into = Tensor::full(shape, spec.dtype, 1);
        into.attach_row_sums(Tensor::full({shape.rows()}, dtypes::int32, 77));
        QuantizeOptions options;
        options.transposed = transposed;
        options.into = &into;
        options.sr = &sr;
        const Tensor codes = quantize_dynamic(spec, here(host_numbers(shape, 3)), options);
        CHECK(codes.data() == into.data());
        check_sums(codes);
      }
}

TEST_CASE("sums of rows are where products read them: not on the CPU, not of wider codes") {
  const Tensor x = host_numbers({4, 70}, 3);
  const QuantSpec spec = binary(Granularity::tensor(), false);
  CHECK_FALSE(quantize_dynamic(spec, x).row_sums().defined());
  const DeviceGuard guard(gpu());
  CHECK_FALSE(quantize_dynamic(scheme("absmax", dtypes::int8, Granularity::token()), here(x)).row_sums().defined());
  const Tensor codes = quantize_dynamic(spec, here(x));
  CHECK(codes.row_sums().defined());
  CHECK_FALSE(codes.row_slice(1, 3).row_sums().defined());
  CHECK_FALSE(codes.reshape({2, 2, 70}).row_sums().defined());
  CHECK_FALSE(codes.clone(MemoryKind::kActivation).row_sums().defined());
  CHECK(contains(error_of([&] { Tensor(codes).attach_row_sums(here(host_numbers({4}, 1))); }), "[attach_row_sums]"));
}

// Steps of a weight by the sweep (sgd) or by single kernels (moments of fewer bits), and by requantize.
TEST_CASE("the sums of a weight's rows follow its codes through updates, requantization and restoring") {
  const DeviceGuard guard(gpu());
  const std::vector<QuantSpec> specs{binary(Granularity::tensor(), false), binary(Granularity::channel(0), true),
                                     scheme("absmax", dtypes::int8, Granularity::channel(0)),
                                     scheme("affine", dtypes::uint8, Granularity::channel(0)),
                                     scheme("absmax", dtypes::int8, Granularity::tensor())};
  for (const QuantSpec& quant : specs)
    for (const MomentKind moments : {MomentKind::kFp32, MomentKind::kBf16})
      for (const Shape& shape : {Shape{5, 70}, Shape{33, 1100}}) {
        INFO(quant.scheme << ' ' << quant.dtype << ' ' << static_cast<int>(moments) << ' ' << shape);
        ParameterSpec spec;
        spec.init = {"uniform", -0.01, 0.01};
        spec.quant = quant;
        Parameter p(shape, spec);
        p.initialize("w", 3);
        check_sums(p.value());
        const Tensor before = p.value().clone(MemoryKind::kWorkspace);
        p.memory().add_layout(layouts::transposed);
        check_sums(p.value());
        OptimizerSpec rule = named("adam");
        rule.moments = moments;
        const auto optimizer = make_optimizer(rule);
        optimizer->attach({&p});
        for (int step = 0; step < 2; ++step) {
          accumulate(p, here(host_numbers(shape, 20 + static_cast<uint64_t>(step))));
          const RequantKey due{3, step + 1};
          optimizer->step(0.1f, 1, &due);
          check_sums(p.value());
        }
        CHECK(p.value().elements() != before.elements());
        p.requantize(3, 9);
        check_sums(p.value());
        p.restore({p.master(), before});  // codes come from elsewhere: their sums are not known
        CHECK_FALSE(p.value().row_sums().defined());
        p.requantize(3, 10);
        check_sums(p.value());
      }
}

TEST_CASE("a product of bits by wgmma reads the sums that came with its operands, and makes only the others") {
  const DeviceGuard guard(gpu());
  const QuantSpec spec = binary(Granularity::token());
  const Tensor a = quantize_dynamic(spec, here(host_numbers({140, 1024}, 5))),
               b = quantize_dynamic(spec, here(host_numbers({70, 1024}, 6)));
  const GemmKernel& kernel = cuda_kernel("gemm_b1_b1_wgmma");
  std::vector<double> expected;
  for (const int given : {0, 1, 2, 3}) {
    const Tensor c = Tensor::zeros({140, 70}, dtypes::fp32);
    GemmArgs args;
    args.m = 140, args.n = args.ldc = 70, args.k = 1024;
    args.a = {a.data(),
              a.dtype(),
              a.layout(),
              a.stride(),
              false,
              a.scale_map(),
              (given & 1) != 0 ? a.row_sums().as<int32_t>() : nullptr};
    args.b = {b.data(),
              b.dtype(),
              b.layout(),
              b.stride(),
              false,
              b.scale_map(),
              (given & 2) != 0 ? b.row_sums().as<int32_t>() : nullptr};
    args.c = c.data();
    REQUIRE(kernel.supports(args));
    const double cost = kernel.cost(args);
    const Counted second(kSecondRead);
    kernel.run(args);
    CHECK(second.now() == (given == 3 ? 0 : 1));
    if (given == 0) expected = c.elements();
    CHECK(c.elements() == expected);
    args.a.row_sums = args.b.row_sums = nullptr;
    CHECK((kernel.cost(args) > cost) == (given == 3));
  }
}

TEST_CASE("a binary linear layer reads its codes once: no kernel sums them") {
  const Tensor x = host_numbers({256, 16384}, 5);
  ParameterSpec spec;
  spec.init = {"uniform", -1, 1};
  spec.quant = binary(Granularity::channel(0));
  const DeviceGuard guard(gpu());
  Parameter w({512, 16384}, spec);
  w.initialize("w", 3);
  GemmArgs args;
  args.m = 256, args.n = args.ldc = 512, args.k = 16384;
  args.a.dtype = args.b.dtype = dtypes::bint1;
  args.a.stride = args.b.stride = 2048;
  CHECK(select_gemm(args).name == "gemm_b1_b1_wgmma");
  Tensor codes = quantize_dynamic(binary(Granularity::tensor(), false), here(x));
  const auto reads = [&] {
    const Counted second(kSecondRead);
    CHECK(linear(Var(codes), w.read()).value().shape() == Shape{256, 512});
    return second.now();
  };
  CHECK(reads() == 0);
  codes.attach_row_sums({});
  CHECK(reads() == 1);
}

TEST_CASE("a layer with affine inputs and weights of 8 bits sums the codes of neither") {
  const Tensor x = host_numbers({256, 4096}, 5);
  ParameterSpec spec;
  spec.init = {"uniform", -1, 1};
  spec.quant = scheme("absmax", dtypes::int8, Granularity::channel(0));
  const DeviceGuard guard(gpu());
  Parameter w({512, 4096}, spec);
  w.initialize("w", 3);
  const Tensor codes = quantize_dynamic(scheme("affine", dtypes::uint8, Granularity::token()), here(x));
  REQUIRE(codes.quant()->zero != nullptr);
  CHECK_FALSE(codes.row_sums().defined());
  std::vector<double> expected;
  const auto reads = [&](bool given) {
    const Counted second(kSecondRead);
    const Var read = w.read();
    Tensor weights = read.value();
    if (!given) weights = weights.clone(MemoryKind::kWorkspace).with_quant(weights.quant());
    const std::vector<double> y = linear(Var(codes), Var(weights)).value().elements();
    if (expected.empty()) expected = y;
    CHECK(y == expected);
    return second.now();
  };
  CHECK(reads(true) == 0);
  CHECK(reads(false) == 1);
}

}  // namespace
