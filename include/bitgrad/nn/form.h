// Form: what flows between modules, known before any value does; and what a reader requests of the one that makes it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <vector>

#include "bitgrad/dtype/dtype.h"
#include "bitgrad/dtype/layout.h"
#include "bitgrad/quant/scheme.h"
#include "bitgrad/tensor/quant_params.h"
#include "bitgrad/tensor/shape.h"

namespace bitgrad {

// How codes, or int32 sums, are scaled.
struct ScaleForm {
  Granularity granularity = {};
  bool zero_point = false;
  bool offset = false;  // a real offset
  friend bool operator==(const ScaleForm&, const ScaleForm&) = default;
};

// A batch is a tensor [samples, sample...]. Images are {height, width, channels} (NHWC), sequences {positions,
// features} or, of ids, {positions}. Products and norms over features act on the last axis: they read the matrix
// [rows(), features()].
struct Form {
  int64_t samples = 0;  // axis 0; 0: only the form is asked for, no layout is planned
  Shape sample = {};    // of one sample
  DType dtype = dtypes::fp32;
  int64_t ids = 0;                       // of ids: they are 0 .. ids - 1; 0: not known
  std::optional<ScaleForm> scales = {};  // none: codes stand for themselves
  bool training = true;                  // dropout changes dtypes in training only
  bool grad = false;                     // something before it trains, so that a gradient is wanted
  // Dtype of the float values that one layer hands to the next: fp32, or bf16 (half the bytes, one rounding where they
  // are written). docs/numerics.md section 10.
  DType values = dtypes::fp32;
  // The model mixes positions causally (LayerKind::causal): what it gives for a row depends on that row and on earlier
  // ones of its sample alone, and in evaluation its bits do not depend on how many rows there are. Set by
  // Module::plan of the whole model. docs/numerics.md section 10, "One row, one result".
  bool causal = false;
  bool inner = false;  // another layer reads what is made of this input; false: it is the model's output, in fp32

  // Dtype of the float values that a layer makes of this input.
  DType float_output() const { return inner ? values : dtypes::fp32; }

  int64_t features() const { return sample.cols(); }
  // Rows of the matrix of one sample, and of all of them. Throws Error past 2^62.
  int64_t sample_rows() const { return sample.rows(); }
  int64_t rows() const { return shape().rows(); }
  // [samples, sample...]
  Shape shape() const;
  // A sample of another size along its last axis, the other axes as they are.
  Form with_features(int64_t features) const;
  friend bool operator==(const Form&, const Form&) = default;
};
// The scales that the scheme of `spec` makes for weights; none: their codes stand for themselves.
std::optional<ScaleForm> scale_form(const QuantSpec& spec);
// Throws Error unless values between layers can have this dtype: fp32 or bf16.
void check_values(DType values);
std::ostream& operator<<(std::ostream& out, const Form& form);  // "[n,28,28] fp32"

// What a module that reads a tensor wants of the module that makes it: further layouts of the codes, written while
// they are made.
class PlanRequests {
 public:
  void request(Layout layout) {
    if (!wants(layout)) layouts_.push_back(layout);
  }
  void merge(const PlanRequests& other) {
    for (const Layout layout : other.layouts_) request(layout);
  }
  bool wants(Layout layout) const { return std::find(layouts_.begin(), layouts_.end(), layout) != layouts_.end(); }
  bool empty() const { return layouts_.empty(); }

 private:
  std::vector<Layout> layouts_;
};

}  // namespace bitgrad
