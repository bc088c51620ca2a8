#include "bitgrad/nn/inference.h"

#include "bitgrad/base/error.h"
#include "bitgrad/nn/module.h"

namespace bitgrad {

inference::Value Module::lower(inference::Graph&, inference::Value) {
  fail(kind(), "has no form in ONNX or C: it does not override Module::lower. Values go out with --format safetensors ",
       "or npz");
}

namespace inference {

Graph::Graph(const Form& input) {
  Node first;
  first.layer = "input";
  first.form = input;
  first.form.samples = 0;
  nodes_.push_back(std::move(first));
}

Value Graph::add(Node node) {
  for (const Value input : node.inputs)
    ensure(input >= 0 && input <= output(), "inference", "inputs come before what reads them");
  nodes_.push_back(std::move(node));
  return output();
}

int Graph::readers(Value value) const {
  int count = value == output() ? 1 : 0;  // read by the model's caller
  for (const Node& node : nodes_)
    for (const Value input : node.inputs) count += input == value ? 1 : 0;
  return count;
}

const Node* Graph::only_reader(Value value) const {
  if (readers(value) != 1) return nullptr;
  for (const Node& node : nodes_)
    for (const Value input : node.inputs)
      if (input == value) return &node;
  return nullptr;
}

Graph lowered(Module& model, const Form& input) {
  require(model.initialized(), "inference", "the model has no values: initialize or load it first.");
  const bool ids = (input.dtype == dtypes::int32 || input.dtype == dtypes::int64) && !input.scales;
  require(input.dtype == dtypes::fp32 || ids, "inference", "got input ", input, ", expected fp32 or ids.");
  Graph graph(input);
  const Value last = model.lower(graph, graph.output());
  if (last != graph.output()) {  // the result is from an earlier node: end with an identity Reshape
    Node same;
    same.layer = graph[last].layer;
    same.operation = Reshape{};
    same.inputs = {last};
    same.form = graph[last].form;
    same.params = graph[last].params;
    graph.add(std::move(same));
  }
  return graph;
}

}  // namespace inference
}  // namespace bitgrad
