// Form: shape, dtype and scales of the values between modules, known at plan time; PlanRequests: what a consumer asks
// of the producer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <vector>

#include "bitgrad/dtype/dtype.h"
#include "bitgrad/dtype/layout.h"
#include "bitgrad/quant/scheme.h"
#include "bitgrad/tensor/quant_params.h"
#include "bitgrad/tensor/shape.h"

namespace bitgrad {

// How codes or int32 sums are scaled.
struct ScaleForm {
  Granularity granularity = {};
  bool zero_point = false;
  bool offset = false;  // real-valued offset
  friend bool operator==(const ScaleForm&, const ScaleForm&) = default;
};

// A batch is a tensor [samples, sample...]. Images are {height, width, channels} (NHWC), sequences {positions,
// features}, or {positions} for ids. Products and feature norms act on the last axis, i.e. on the matrix [rows(),
// features()].
struct Form {
  int64_t samples = 0;  // axis 0; 0: shape inference only, no layouts are planned
  Shape sample = {};    // shape of one sample
  DType dtype = dtypes::fp32;
  int64_t ids = 0;                       // ids are in 0 .. ids - 1; 0: unknown
  std::optional<ScaleForm> scales = {};  // nullopt: codes stand for themselves
  bool training = true;                  // dropout changes dtypes in training only
  bool grad = false;                     // something upstream trains, so a gradient is needed
  // Dtype of the float values passed from layer to layer: fp32, or bf16 (half the bytes, one rounding at the store).
  // docs/numerics.md section 10.
  DType values = dtypes::fp32;
  // The model mixes positions causally (LayerKind::causal): an output row depends only on its own and earlier rows of
  // the sample, and in evaluation its bits do not depend on the number of rows. Set by Module::plan of the whole model.
  // docs/numerics.md section 10, "One row, one result".
  bool causal = false;
  int64_t least_samples = 0;  // in the smallest training batch; 0: unknown
  bool inner = false;         // another layer reads the output; false: it is the model's output, which is fp32

  // Dtype of float values that a layer computes from this input.
  DType float_output() const { return inner ? values : dtypes::fp32; }

  int64_t features() const { return sample.cols(); }
  // Rows of the matrix of one sample, and of the whole batch. Throw Error above 2^62.
  int64_t sample_rows() const { return sample.rows(); }
  int64_t rows() const { return shape().rows(); }
  // [samples, sample...]
  Shape shape() const;
  // The same form with `features` along the last axis; other axes are unchanged.
  Form with_features(int64_t features) const;
  friend bool operator==(const Form&, const Form&) = default;
};
// Quantization parameters as `spec` makes them, with values that mean nothing: scheme, granularity, and which parts
// there are.
std::shared_ptr<const QuantParams> params_form(const QuantSpec& spec);
// The kind of scales that `spec` produces for weights; nullopt: codes stand for themselves.
std::optional<ScaleForm> scale_form(const QuantSpec& spec);
// Throws Error unless `values` is a valid dtype for values between layers: fp32 or bf16.
void check_values(DType values);
std::ostream& operator<<(std::ostream& out, const Form& form);  // e.g. "[n,28,28] fp32"

// What the consumer of a tensor requests from its producer: additional layouts of the codes, to be written while the
// codes are made; and how many features each of its independent parts has (q, k and v; gate and up), so that update
// rules of whole matrices take them apart.
class PlanRequests {
 public:
  void request(Layout layout) {
    if (!wants(layout)) layouts_.push_back(layout);
  }
  void merge(const PlanRequests& other) {
    for (const Layout layout : other.layouts_) request(layout);
    if (stacked_.empty())
      stacked_ = other.stacked_;
    else if (!other.stacked_.empty() && other.stacked_ != stacked_)
      stacked_ = {0};  // readers that differ: parts that do not add up, so none
  }
  void stack(std::vector<int64_t> features) { stacked_ = std::move(features); }
  const std::vector<int64_t>& stacked() const { return stacked_; }
  // Of them, those that hold for the input of a layer that keeps features apart but makes other codes or values.
  PlanRequests parts() const {
    PlanRequests parts;
    parts.stacked_ = stacked_;
    return parts;
  }
  bool wants(Layout layout) const { return std::find(layouts_.begin(), layouts_.end(), layout) != layouts_.end(); }
  bool empty() const { return layouts_.empty() && stacked_.empty(); }

 private:
  std::vector<Layout> layouts_;
  std::vector<int64_t> stacked_;
};

}  // namespace bitgrad
