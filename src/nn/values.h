// Shared by layers: float values between them (Form::values; layers compute in fp32 and round once, when they write:
// docs/numerics.md section 10), and nodes of the inference graph.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/nn/form.h"
#include "bitgrad/nn/inference.h"
#include "bitgrad/nn/module.h"
#include "bitgrad/nn/parameter.h"
#include "bitgrad/ops/ops.h"

namespace bitgrad::detail {

// Whether the dtype is one of float values between layers: fp32 or bf16.
inline bool is_values(DType dtype) { return dtype == dtypes::fp32 || dtype == dtypes::bf16; }

// f(x) in dtype `y`, for an f that returns the dtype of its argument. If they differ, f computes in fp32: x is widened,
// or the result rounded. Dtypes other than fp32 and bf16 are passed to f unchanged.
template <typename F>
Var in_values(const Var& x, DType y, F&& f) {
  if (x.dtype() == y || !is_values(x.dtype())) return f(x);
  return y == dtypes::fp32 ? f(cast(x, y)) : cast(f(x), y);
}

// The same for several inputs. once: f accepts bf16 and rounds only once.
template <typename F>
Var in_values(std::vector<Var> parts, DType y, bool once, F&& f) {
  bool same = true, values = true;
  for (const Var& part : parts) {
    same = same && part.dtype() == y;
    values = values && is_values(part.dtype());
  }
  if (!values || (same && (once || y == dtypes::fp32))) return f(parts);
  for (Var& part : parts) part = cast(part, dtypes::fp32);
  return cast(f(parts), y);
}

// A layer whose output is float values of a dtype that plan sets.
class ValuesLayer : public Module {
 protected:
  // The form in `dtype`, which becomes y_.
  Form planned_as(Form form, DType dtype) {
    form.dtype = y_ = dtype;
    return form;
  }
  DType y_ = dtypes::fp32;
};

// For layers that pass their input through: the output dtype, and the input converted to it. Only the output of a whole
// model is converted, bf16 to fp32.
inline DType passed_dtype(const Form& in) { return in.dtype == dtypes::bf16 && !in.inner ? dtypes::fp32 : in.dtype; }
inline Var pass_through(const Var& x, DType planned) {
  return x.dtype() == dtypes::bf16 && planned == dtypes::fp32 ? cast(x, planned) : x;
}

// ---- helpers for Module::lower (nn/inference.h)

// Host copy of fp32 values.
inline std::vector<float> floats_of(const Tensor& t) { return t.to_vector(); }

// Adds a node with one input, whose result has `form`.
inline inference::Value add_node(inference::Graph& graph, const std::string& layer, inference::Operation operation,
                                 inference::Value x, const Form& form,
                                 std::shared_ptr<const QuantParams> params = nullptr) {
  inference::Node node;
  node.layer = layer;
  node.operation = std::move(operation);
  node.inputs = {x};
  node.form = form;
  node.params = std::move(params);
  return graph.add(std::move(node));
}

// Adds a node that keeps the dtype and scales of x.
inline inference::Value add_passing(inference::Graph& graph, const std::string& layer, inference::Operation operation,
                                    inference::Value x, const Shape& sample) {
  Form form = graph[x].form;
  form.sample = sample;
  return add_node(graph, layer, std::move(operation), x, form, graph[x].params);
}

// Float values of this dtype, in the shape of x.
inline Form values_like(const Form& x, DType dtype) {
  Form form = x;
  form.dtype = dtype;
  form.scales.reset();
  return form;
}

// x as an image [h,w,c]; planes get a channel axis.
inline inference::Value as_image_node(inference::Graph& graph, const std::string& layer, inference::Value x) {
  const Shape s = graph[x].form.sample;
  return s.rank() == 2 ? add_passing(graph, layer, inference::Reshape{}, x, {s[0], s[1], 1}) : x;
}

}  // namespace bitgrad::detail
