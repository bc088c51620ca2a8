// What LSQ and LSQ+ pass at the ends of their codes: docs/numerics.md section 3.
#include <cmath>
#include <limits>

#include "quant/reference.h"
#include "support/catch.h"
#include "support/spec_of.h"

namespace bitgrad {
namespace {

using test::spec_of;

// u at, just inside and just outside both ends of the codes, and half a code beyond, where rint u still is a code.
std::vector<double> border_cases(DType dtype) {
  std::vector<double> out;
  for (const int64_t end : {dtype.info().qmin, dtype.info().qmax}) {
    const float at = static_cast<float>(end), up = std::numeric_limits<float>::infinity();
    for (const float u : {at, std::nextafter(at, up), std::nextafter(at, -up), at + 0.25f, at - 0.25f, at + 0.5f,
                          at - 0.5f, at + 0.75f, at - 0.75f, at + 100, at - 100})
      out.push_back(static_cast<double>(u));
  }
  return out;
}

TEST_CASE("LSQ and LSQ+ pass a gradient where qmin < u < qmax before rounding, and nowhere else") {
  for (const char* scheme : {"lsq", "lsq_plus"})
    for (const DType dtype : {dtypes::int2, dtypes::int3, dtypes::int4, dtypes::int8, dtypes::uint2, dtypes::uint4,
                              dtypes::uint8, dtypes::ternary})
      for (const Granularity& granularity : {Granularity::tensor(), Granularity::channel(0), Granularity::channel(1)}) {
        QuantSpec spec = spec_of(scheme, dtype, granularity);
        INFO(scheme << ' ' << dtype << " per " << granularity);
        const Quantizer& q = find_quantizer(scheme);
        const double qmin = static_cast<double>(dtype.info().qmin), qmax = static_cast<double>(dtype.info().qmax);
        const std::vector<double> u = border_cases(dtype);
        const int64_t cols = static_cast<int64_t>(u.size()), rows = 4;
        const int64_t blocks = scale_count(granularity, rows, cols);
        std::vector<double> numbers, expected;
        double outside = 0;
        for (int64_t i = 0; i < rows * cols; ++i) {
          const double v = u[static_cast<size_t>(i % cols)], g = static_cast<double>(i % 7 + 1);
          numbers.push_back(v * 4);  // exact, as is the quotient
          expected.push_back(v > qmin && v < qmax ? g : 0.0);
          outside += g - expected.back();
        }
        std::vector<Tensor> learned{Tensor::full({blocks}, dtypes::fp32, 4)};
        if (q.learned(spec).size() > 1) learned.push_back(Tensor::zeros({blocks}, dtypes::fp32));
        const QuantParams params = q.params_of(spec, learned);
        const Tensor x = Tensor::from_elements({rows, cols}, dtypes::fp32, numbers);
        std::vector<double> gradients(numbers.size());
        for (size_t i = 0; i < gradients.size(); ++i) gradients[i] = static_cast<double>(i % 7 + 1);
        const Tensor g = Tensor::from_elements({rows, cols}, dtypes::fp32, gradients),
                     gx = Tensor::full({rows, cols}, dtypes::fp32, 3);
        q.leaf_backward(spec, params, x, g, gx);
        CHECK(gx.elements() == expected);
        // With the sums, and in place. What does not pass is what an offset gets.
        std::vector<Tensor> sums;
        for (size_t i = 0; i < learned.size(); ++i) sums.push_back(Tensor::zeros({blocks}, dtypes::fp32));
        const Tensor both = g.clone(MemoryKind::kGrad);
        q.leaf_backward(spec, params, x, both, both, sums);
        CHECK(both.elements() == expected);
        if (sums.size() > 1) {
          double sum = 0;
          for (const double part : sums[1].elements()) sum += part;
          CHECK(sum == outside);
        }
        spec.ste = SteRule::kIdentity;
        q.leaf_backward(spec, params, x, g, gx);
        CHECK(gx.elements() == g.elements());
        spec.ste = SteRule::kNone;
        q.leaf_backward(spec, params, x, g, gx);
        CHECK(gx.elements() == std::vector<double>(gradients.size(), 0.0));
      }
}

TEST_CASE("numbers without codes pass no gradient of LSQ") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
  for (const char* scheme : {"lsq", "lsq_plus"}) {
    const QuantSpec spec = spec_of(scheme, dtypes::int4);
    const Quantizer& q = find_quantizer(scheme);
    const Tensor x = test::tensor_of({4}, {kNan, kInf, -kInf, 0}), g = Tensor::full({4}, dtypes::fp32, 1),
                 gx = Tensor::empty({4}, dtypes::fp32);
    std::vector<Tensor> learned{Tensor::full({1}, dtypes::fp32, 0.25)};
    if (q.learned(spec).size() > 1) learned.push_back(Tensor::zeros({1}, dtypes::fp32));
    q.leaf_backward(spec, q.params_of(spec, learned), x, g, gx);
    CHECK(gx.elements() == std::vector<double>{0, 0, 0, 1});
  }
}

}  // namespace
}  // namespace bitgrad
