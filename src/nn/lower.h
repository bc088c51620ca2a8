// Helpers for Module::lower (nn/inference.h).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/nn/inference.h"
#include "bitgrad/nn/parameter.h"

namespace bitgrad::detail {

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
