// Op dropout: the draws, numbers and codes of every dtype, scales, gradients.
#include <cmath>

#include "bitgrad/dtype/bf16.h"
#include "bitgrad/ops/ops.h"
#include "quant/reference.h"
#include "support/catch.h"
#include "support/device_run.h"
#include "support/expect_error.h"

namespace bitgrad {
namespace {

using test::contains;
using test::error_of;

DropoutOptions options_of(double p, int64_t first_row = 0) {
  return {p, RandomStream{77, Purpose::kDropout, 13, 5}, first_row};
}

std::vector<bool> kept(const DropoutOptions& o, int64_t rows, int64_t cols) {
  std::vector<bool> out;
  const int threshold = static_cast<int>(std::rint(o.p * 65536));
  for (int64_t e = o.first_row * cols; e < (o.first_row + rows) * cols; ++e)
    out.push_back(o.stream.bits16(static_cast<uint64_t>(e)) >= threshold);
  return out;
}

float factor_of(double p) { return static_cast<float>(1.0 / (1.0 - p)); }

TEST_CASE("numbers are dropped by the draw of their element and scaled, in fp32 and fp64") {
  for (const double p : {0.2, 0.5, 0.9, 1e-6, 0.99999999})
    for (const Shape& shape :
         {Shape{7, 67}, Shape{3, 64}, Shape{1, 1}, Shape{100}, Shape{2, 3, 5}, Shape{0, 5}, Shape{5, 0}}) {
      const DropoutOptions o = options_of(p, 3);
      const std::vector<float> x = test::numbers_for_test(shape.numel(), 2, 3);
      const std::vector<bool> keep = kept(o, shape.rows(), shape.cols());
      const std::vector<double> single = dropout(test::tensor_of(shape, x), o).value().elements();
      const std::vector<double> twice = test::on_cpu([&] {
        const Tensor wide = Tensor::from_elements(shape, dtypes::fp64, std::vector<double>(x.begin(), x.end()));
        return dropout(wide, o).value().elements();
      });
      int wrong = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        wrong += single[i] != (keep[i] ? static_cast<double>(x[i] * factor_of(p)) : 0.0);
        wrong += twice[i] != (keep[i] ? static_cast<double>(x[i]) * (1.0 / (1.0 - p)) : 0.0);
      }
      CHECK(wrong == 0);
    }
}

TEST_CASE("the threshold is p * 65536 rounded to nearest") {
  const Tensor x = Tensor::full({1, 1}, dtypes::fp32, 1);
  const double draw = options_of(0.5).stream.bits16(0);
  CHECK(dropout(x, options_of((draw + 0.4) / 65536)).value().elements()[0] > 0);
  CHECK(dropout(x, options_of((draw + 0.6) / 65536)).value().elements()[0] == 0);
}

TEST_CASE("dropped NaN is 0, and a probability below a draw's step drops nothing") {
  const Tensor x = Tensor::full({4, 500}, dtypes::fp32, std::nan(""));
  const DropoutOptions o = options_of(0.5);
  const std::vector<bool> keep = kept(o, 4, 500);
  const std::vector<double> y = dropout(x, o).value().elements();
  int wrong = 0;
  for (size_t i = 0; i < y.size(); ++i) wrong += keep[i] ? !std::isnan(y[i]) : y[i] != 0;
  CHECK(wrong == 0);
  int dropped = 0;
  for (const double v : dropout(Tensor::full({4, 500}, dtypes::fp32, 1), options_of(1e-6)).value().elements())
    dropped += v == 0;
  CHECK(dropped == 0);
}

TEST_CASE("p = 0 is the same tensor, and its gradient passes") {
  AccumulateSink sink;
  Tape tape;
  const Var x = tape.leaf(test::tensor_of({2, 2}, {1, 2, 3, 4}), &sink, dtypes::fp32);
  const Var y = dropout(x, options_of(0));
  CHECK(y.value().data() == x.value().data());
  CHECK(tape.nodes() == 0);
  tape.backward({y}, {test::tensor_of({2, 2}, {5, 6, 7, 8})});
  CHECK(sink.grad().elements() == std::vector<double>{5, 6, 7, 8});
}

TEST_CASE("codes of every dtype and scheme: kept values are multiplied, dropped ones are exactly 0") {
  const double p = 0.3;
  const Shape shape{6, 71};
  const std::vector<float> x = test::numbers_for_test(shape.numel(), 2, 3);
  const DropoutOptions o = options_of(p, 2);
  const std::vector<bool> keep = kept(o, 6, 71);
  int tried = 0;
  for (QuantSpec spec : test::all_specs())
    for (const Granularity& granularity : {Granularity::tensor(), Granularity::token()}) {
      if (spec.scheme == "minmax_offset" || !error_of([&] { dropout(Tensor::zeros({1, 1}, spec.dtype), o); }).empty())
        continue;
      spec.granularity = granularity;
      const Tensor codes = quantize_dynamic(spec, test::tensor_of(shape, x));
      const Tensor y = dropout(codes, o).value();
      const bool sign = spec.dtype == dtypes::bint1;
      const std::vector<double> before = codes.elements(), after = y.elements(), values = y.values();
      const std::vector<test::BlockParams> blocks = test::fit_blocks(spec, x, 6, 71);
      int wrong = !(y.dtype() == (sign ? dtypes::ternary : spec.dtype)) + (y.quant()->scheme != spec.scheme);
      for (size_t i = 0; i < x.size(); ++i) {
        const size_t block = static_cast<size_t>(test::block_of(granularity, 6, 71, static_cast<int64_t>(i) / 71, 0));
        const float s = blocks[block].s * factor_of(p);
        wrong += keep[i] ? after[i] != before[i] : values[i] != 0;
        if (keep[i])
          wrong += values[i] !=
                   static_cast<double>(s * (static_cast<float>(before[i]) - static_cast<float>(blocks[block].z)));
      }
      INFO(spec.scheme << ' ' << spec.dtype << " per " << granularity);
      CHECK(wrong == 0);
      ++tried;
    }
  CHECK(tried > 150);
}

TEST_CASE("codes without scales get one") {
  const Tensor x = Tensor::from_elements({2, 3}, dtypes::int4, std::vector<double>{1, -8, 7, 0, 3, -1});
  const Tensor y = dropout(x, options_of(0.5)).value();
  const std::vector<bool> keep = kept(options_of(0.5), 2, 3);
  CHECK(y.quant()->scale->numel() == 1);
  for (size_t i = 0; i < 6; ++i) CHECK(y.values()[i] == (keep[i] ? 2 * x.elements()[i] : 0.0));
}

TEST_CASE("codes with no exact code of value 0 are refused and named") {
  const Tensor x = test::tensor_of({2, 2}, {1, 2, 3, 4});
  QuantSpec spec;
  spec.scheme = "minmax_offset";
  spec.dtype = dtypes::uint4;
  std::string error = error_of([&] { dropout(quantize_dynamic(spec, x), options_of(0.5)); });
  CHECK(error ==
        "[dropout] dtype uint4 with a real offset has no exact code for value 0. Put dropout before the quantizer.");
  const DType odd = register_dtype({"test_odd_levels", 2, DTypeKind::kCodebook, 0, 0, {-1.5f, -0.5f, 0.5f, 1.5f}});
  error = error_of([&] { dropout(Tensor::zeros({2, 2}, odd), options_of(0.5)); });
  CHECK(error == "[dropout] codebook test_odd_levels has no exact code for value 0. Put dropout before the quantizer.");
  const DType above = register_dtype({"test_one_to_three", 2, DTypeKind::kUint, 1, 3, {}});
  error = error_of([&] { dropout(Tensor::full({2, 2}, above, 1), options_of(0.5)); });
  CHECK(error ==
        "[dropout] dtype test_one_to_three has no exact code for value 0: its codes are 1 to 3. Put dropout before the "
        "quantizer.");
  spec.scheme = "affine";
  spec.granularity = Granularity::channel(1);
  error = error_of([&] { dropout(quantize_dynamic(spec, x), options_of(0.5)); });
  CHECK(contains(error, "zero points of [2,2] uint4 per channel(1): expected per tensor or per row"));
}

TEST_CASE("a bad p or dtype is an error before any work") {
  const Tensor x = test::tensor_of({2}, {1, 2});
  CHECK(error_of([&] { dropout(x, options_of(1.0)); }) == "[dropout] p: got 1, expected 0 <= p < 1.");
  CHECK(contains(error_of([&] { dropout(x, options_of(-0.1)); }), "p: got -0.1"));
  CHECK(contains(error_of([&] { dropout(x, options_of(std::nan(""))); }), "p: got nan"));
  CHECK(contains(error_of([&] { dropout(x, options_of(0.5, -1)); }), "first_row: got -1"));
  CHECK(contains(error_of([&] { dropout(Tensor::zeros({2}, dtypes::int32), options_of(0.5)); }),
                 "dtype of x: got [2] int32"));
  CHECK(contains(error_of([&] { dropout(Tensor::zeros({2}, dtypes::fp16), options_of(0.5)); }),
                 "dtype of x: got [2] fp16"));
  CHECK(contains(error_of([&] { dropout(Var(), options_of(0.5)); }), "x is undefined"));
}

TEST_CASE("microbatches with first_row draw the masks of the whole batch") {
  const int64_t rows = 12, cols = 37;
  const std::vector<float> x = test::numbers_for_test(rows * cols, 2, 6);
  QuantSpec spec;
  spec.scheme = "binary";
  spec.dtype = dtypes::bint1;
  for (const Tensor& full :
       {test::tensor_of({rows, cols}, x), quantize_dynamic(spec, test::tensor_of({rows, cols}, x))}) {
    const std::vector<double> all = dropout(full, options_of(0.4)).value().values();
    std::vector<double> parts;
    for (int64_t r = 0; r < rows; r += 3) {
      const std::vector<double> part = dropout(full.row_slice(r, r + 3), options_of(0.4, r)).value().values();
      parts.insert(parts.end(), part.begin(), part.end());
    }
    CHECK(parts == all);
  }
}

TEST_CASE(
    "the gradient is that of the value: kept ones times 1/(1-p), for numbers and codes, fp32, bf16 and fp64 edges") {
  const double p = 0.25;
  const Shape shape{5, 67};
  const std::vector<bool> keep = kept(options_of(p), 5, 67);
  std::vector<float> g = test::numbers_for_test(shape.numel(), 3, 32);
  for (float& v : g) v = bf16_to_float(bf16_from_float(v));
  for (const DType dtype :
       {dtypes::fp32, dtypes::fp64, dtypes::bint1, dtypes::ternary, dtypes::int8, dtypes::uint3, dtypes::nf4})
    for (const DType edge : {dtypes::fp32, dtypes::bf16}) {
      const DType used = dtype == dtypes::fp64 ? dtypes::fp64 : edge;
      const DeviceGuard where(test::device_for(used));
      AccumulateSink sink;
      Tape tape;
      Var y = dropout(tape.leaf(Tensor::full(shape, dtype, 1), &sink, used), options_of(p));
      y.want_grad(used);
      tape.backward({y}, {Tensor::from_elements(shape, used, std::vector<double>(g.begin(), g.end()))});
      const std::vector<double> got = sink.grad().elements();
      int wrong = 0;
      for (size_t i = 0; i < g.size(); ++i) {
        double want = keep[i] ? static_cast<double>(g[i] * factor_of(p)) : 0;
        if (used == dtypes::fp64) want = keep[i] ? static_cast<double>(g[i]) * (1 / (1 - p)) : 0;
        if (used == dtypes::bf16) want = static_cast<double>(bf16_to_float(bf16_from_float(static_cast<float>(want))));
        wrong += got[i] != want;
      }
      INFO(dtype << ' ' << used);
      CHECK(wrong == 0);
    }
}

TEST_CASE("dropout keeps one bit an element on a tape and nothing off it") {
  const int64_t before = memory_now()[MemoryKind::kSaved];
  const Tensor x = Tensor::zeros({8, 128}, dtypes::fp32);
  dropout(x, options_of(0.5));
  CHECK(memory_now()[MemoryKind::kSaved] == before);
  AccumulateSink sink;
  Tape tape;
  const Var y = dropout(tape.leaf(x, &sink, dtypes::fp32), options_of(0.5));
  CHECK(memory_now()[MemoryKind::kSaved] - before == 8 * 128 / 8);
}

TEST_CASE("two sites, two steps and two seeds draw different masks") {
  const Tensor x = Tensor::full({4, 64}, dtypes::fp32, 1);
  const std::vector<double> base = dropout(x, options_of(0.5)).value().elements();
  DropoutOptions o = options_of(0.5);
  o.stream.id += 1;
  CHECK(dropout(x, o).value().elements() != base);
  o = options_of(0.5);
  o.stream.step += 1;
  CHECK(dropout(x, o).value().elements() != base);
  o = options_of(0.5);
  o.stream.seed += 1;
  CHECK(dropout(x, o).value().elements() != base);
  CHECK(dropout(x, options_of(0.5)).value().elements() == base);
}

}  // namespace
}  // namespace bitgrad
