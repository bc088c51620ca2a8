#include "bitgrad/nn/form.h"

#include <ostream>

#include "bitgrad/quant/quantizer.h"

namespace bitgrad {

Shape Form::shape() const {
  std::vector<int64_t> dims{samples};
  dims.insert(dims.end(), sample.dims().begin(), sample.dims().end());
  return Shape(std::move(dims));
}

Form Form::with_features(int64_t features) const {
  std::vector<int64_t> dims = sample.dims();
  if (dims.empty()) dims.push_back(0);
  dims.back() = features;
  Form out = *this;
  out.sample = Shape(std::move(dims));
  return out;
}

// Determined by quantizing a one-element tensor.
std::shared_ptr<const QuantParams> params_form(const QuantSpec& spec) {
  const Quantizer& quantizer = find_quantizer(spec.scheme);
  const std::vector<Tensor> ones(quantizer.learned(spec).size(), Tensor::full({1}, dtypes::fp32, 1.0));
  return std::make_shared<const QuantParams>(ones.empty() ? quantizer.fit(spec, Tensor::full({1, 1}, dtypes::fp32, 0.5))
                                                          : quantizer.params_of(spec, ones));
}

std::optional<ScaleForm> scale_form(const QuantSpec& spec) {
  const QuantParams params = *params_form(spec);
  if (!params.scale && !params.zero && !params.offset) return std::nullopt;
  return ScaleForm{params.granularity, params.zero != nullptr, params.offset != nullptr};
}

void check_values(DType values) {
  require(values == dtypes::fp32 || values == dtypes::bf16, "model", "values between layers: got ", values,
          ", expected fp32 or bf16");
}

std::ostream& operator<<(std::ostream& out, const Form& form) {
  out << "[n";
  for (const int64_t size : form.sample.dims()) out << ',' << size;
  return out << "] " << form.dtype;
}

}  // namespace bitgrad
