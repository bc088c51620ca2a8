#include "export/onnx_graph.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "bitgrad/base/error.h"

namespace bitgrad::onnx {

GraphBuilder::GraphBuilder(const inference::Graph& graph, const ExportSpec& spec, ExportReport& report)
    : source_(graph), qdq_(spec.form == "qdq"), opset_(spec.opset == 0 ? 21 : spec.opset), report_(report) {
  file_.ir_version = opset_ >= 25 ? 13 : 10;
}

std::string GraphBuilder::unique(const std::string& name) {
  const int count = names_[name]++;
  return count == 0 ? name : concat(name, '.', count);
}

std::string GraphBuilder::add(const std::string& op, std::vector<std::string> inputs, Attributes attributes,
                              const std::string& domain) {
  std::string name = unique(concat(node_ == nullptr ? "model" : node_->layer, '/', op));
  file_.nodes.push_back({op, domain, name, std::move(inputs), {name}, std::move(attributes)});
  return name;
}

std::string GraphBuilder::tensor(TensorValue value) {
  value.name = unique(value.name);
  file_.initializers.push_back(std::move(value));
  return file_.initializers.back().name;
}

std::string GraphBuilder::numbers(const std::vector<float>& x, std::vector<int64_t> dims) {
  TensorValue t = tensor_of("number", std::move(dims), x);
  if (x.size() > 1) {
    t.name = concat(node_->layer, ".numbers");
    return tensor(std::move(t));
  }
  const std::string key = concat("f", t.dims.size(), '/', std::string(t.bytes.begin(), t.bytes.end()));
  return once(key, [&] { return tensor(std::move(t)); });
}

std::string GraphBuilder::once(const std::string& key, const std::function<std::string()>& make) {
  const auto found = constants_.find(key);
  return found != constants_.end() ? found->second : constants_[key] = make();
}

std::string GraphBuilder::positions(inference::Value sequence) {
  return once(concat("positions ", source_[sequence].form.sample[0]), [&] {
    return add("Shape", {stand(sequence).name}, {{"start", int64_t{1}}, {"end", int64_t{2}}});
  });
}

std::string GraphBuilder::integers(const std::vector<int64_t>& x, std::vector<int64_t> dims, Type type) {
  std::string key = concat("i", static_cast<int>(type), '/', dims.size(), '/');
  for (const int64_t each : x) key += concat(each, ',');
  return once(key, [&] { return tensor(tensor_of("integers", type, std::move(dims), x)); });
}

std::string GraphBuilder::per_feature(const std::vector<float>& x, const Stand& like) {
  if (x.size() == 1) return scalar(x[0]);
  const auto count = static_cast<int64_t>(x.size());
  return numbers(x, like.channels_first ? std::vector<int64_t>{count, 1, 1} : std::vector<int64_t>{count});
}

Stand GraphBuilder::in_order(inference::Value value, bool first) {
  const Stand& now = stands_.at(value);
  if (now.channels_first == first || source_[value].form.sample.rank() != 3) return now;
  const auto found = turned_.find(value);
  if (found != turned_.end()) return found->second;
  Stand turned = now;
  turned.name = add("Transpose", {now.name},
                    {{"perm", first ? std::vector<int64_t>{0, 3, 1, 2} : std::vector<int64_t>{0, 2, 3, 1}}});
  turned.channels_first = first;
  return turned_[value] = turned;
}

void GraphBuilder::note(std::string operation, ExportedTensor::Fate fate, double error, std::string reason) {
  report_.layers.push_back({node_->layer, std::move(operation), fate, error, std::move(reason)});
}

void GraphBuilder::note_codes(std::string operation, const std::vector<float>& steps) {
  const auto rounded = std::find_if(report_.layers.begin(), report_.layers.end(),
                                    [](const ExportedLayer& l) { return l.fate == ExportedTensor::Fate::kRounded; });
  std::string reason;
  if (rounded != report_.layers.end()) {
    reason = concat(
        "of numbers behind ", rounded->layer,
        ", which the client rounds in its own order: a value near the middle of two codes may round to the other");
    if (!steps.empty()) reason += concat(", a step of ", *std::max_element(steps.begin(), steps.end()));
  }
  note(std::move(operation), ExportedTensor::Fate::kExact, 0, std::move(reason));
}

bool power_of_two(float x) {
  int exponent = 0;
  return std::frexp(x, &exponent) == 0.5f;
}

Type byte_type(DType dtype) {
  return dtype.kind() == DTypeKind::kUint || dtype.kind() == DTypeKind::kCodebook ? Type::kUint8 : Type::kInt8;
}

std::vector<int64_t> weight_dims(const inference::Product& op) {
  const int64_t o = op.weight.rows(), k = op.weight.cols();
  if (!op.conv) return {k, o};
  const int64_t taps = op.conv->kernel[0] * op.conv->kernel[1];
  return {o, k / taps, op.conv->kernel[0], op.conv->kernel[1]};
}

}  // namespace bitgrad::onnx
