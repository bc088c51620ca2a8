// Several lists of layers over one input. Their outputs are concatenated along the last axis, added, or multiplied. An
// empty list is the identity.
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "nn/values.h"

namespace bitgrad {
namespace {

constexpr std::string_view kBranches = "branches";

class Branches final : public detail::ValuesLayer {
 public:
  enum class Join : uint8_t { kConcat, kAdd, kMultiply };

  Branches(std::vector<std::shared_ptr<Sequential>> branches, Join join) : branches_(std::move(branches)), join_(join) {
    for (size_t i = 0; i < branches_.size(); ++i) add_child(std::to_string(i), branches_[i]);
  }

  Var forward(const Var& x) override {
    std::vector<Var> parts;
    for (size_t i = 0; i < branches_.size(); ++i)
      parts.push_back(in_layer(std::to_string(i), [&] { return (*branches_[i])(x); }));
    if (quantizes_operands())
      for (size_t i = 0; i < parts.size(); ++i) parts[i] = operand(operand_name(i), parts[i]);
    const bool once = join_ == Join::kConcat || parts.size() <= 2;
    return detail::in_values(std::move(parts), y_, once, [this](const std::vector<Var>& p) { return joined(p); });
  }

  // Parts of a concatenation take the scale of what reads it.
  std::vector<std::string> operand_names() const override {
    std::vector<std::string> names;
    for (size_t i = 0; i < branches_.size() && join_ != Join::kConcat; ++i) names.push_back(operand_name(i));
    return names;
  }

  Form plan(const Form& in, PlanRequests& requests) override {
    Form out, inside = in;
    inside.inner = true;
    int64_t features = 0;
    for (size_t i = 0; i < branches_.size(); ++i) {
      const Form part = in_layer(std::to_string(i), [&] { return branches_[i]->planned(inside, requests); });
      check(part, i == 0 ? part : out, i);
      plan_operand(operand_name(i), part);
      features += part.features();
      const bool grad = part.grad || (i > 0 && out.grad);
      if (i == 0) out = part;
      out.grad = grad;
    }
    out.inner = in.inner;
    out.dtype = y_ = in.float_output();
    return join_ == Join::kConcat ? out.with_features(features) : out;
  }
  inference::Value lower(inference::Graph& graph, inference::Value x) override {
    inference::Node node;
    node.layer = path();
    for (size_t i = 0; i < branches_.size(); ++i)
      node.inputs.push_back(lower_operand(operand_name(i), graph,
                                          in_layer(std::to_string(i), [&] { return branches_[i]->lower(graph, x); })));
    using Kind = inference::JoinKind;
    const Kind kind = join_ == Join::kConcat ? Kind::kConcat : join_ == Join::kAdd ? Kind::kAdd : Kind::kMultiply;
    node.operation = inference::Join{kind};
    node.form = detail::values_like(graph[node.inputs[0]].form, y_);
    int64_t features = 0;
    for (const inference::Value part : node.inputs) features += graph[part].form.features();
    if (join_ == Join::kConcat) node.form = node.form.with_features(features);
    return graph.add(std::move(node));
  }
  std::string_view kind() const override { return kBranches; }

 private:
  static std::string operand_name(size_t i) { return concat("codes_", i); }
  Var joined(const std::vector<Var>& parts) const {
    if (join_ == Join::kConcat) return concatenate(parts, -1);
    Var y = parts[0];
    for (size_t i = 1; i < parts.size(); ++i) y = join_ == Join::kAdd ? add(y, parts[i]) : mul(y, parts[i]);
    return y;
  }
  // `first` is the form of branch 0.
  void check(const Form& part, const Form& first, size_t i) const {
    const bool concat_axes = join_ == Join::kConcat;
    const Shape wanted = concat_axes ? first.with_features(part.features()).sample : first.sample;
    require(detail::is_values(part.dtype), kBranches, "outputs are joined in fp32: branch ", i, " gives ", part,
            ". End it with a layer that returns fp32, such as dequantize");
    require(part.sample == wanted, kBranches, "branch ", i, " gives ", part, ", branch 0 ", first, ": expected ",
            concat_axes ? "shapes that differ in the last axis at most" : "one shape");
  }

  std::vector<std::shared_ptr<Sequential>> branches_;
  Join join_;
};

}  // namespace

LayerKind branches_kind() {
  return {.name = std::string(kBranches),
          .doc = "parallel lists of layers over one input, whose outputs are joined; an empty list is the identity",
          .keys = {{.name = "join",
                    .type = Key::Type::kChoice,
                    .standard = "concat",
                    .doc = "how the outputs are joined. concat: along the last axis; add; multiply",
                    .choices = {"concat", "add", "multiply"}}},
          .lists = {.kind = LayerLists::Kind::kIndexed},
          .bf16 = true,
          .make = [](const LayerSpec& spec) {
            require(spec.lists.size() >= 2, kBranches, "layers: got ", spec.lists.size(),
                    " lists, expected at least 2");
            std::vector<std::shared_ptr<Sequential>> branches;
            for (size_t i = 0; i < spec.lists.size(); ++i)
              branches.push_back(in_layer(std::to_string(i), [&] { return make_layers(spec.lists[i].layers); }));
            const std::string& join = spec.attributes.text("join");
            using Join = Branches::Join;
            return std::make_shared<Branches>(std::move(branches), join == "concat" ? Join::kConcat
                                                                   : join == "add"  ? Join::kAdd
                                                                                    : Join::kMultiply);
          }};
}

}  // namespace bitgrad
