// y = scale * body(x) + shortcut(x); without a shortcut y = scale * body(x) + x (He et al. 2015, arXiv 1512.03385, eq.
// 1 and 2).
#include "nn/layers/fusions.h"
#include "nn/layers/norm.h"
#include "nn/values.h"

namespace bitgrad {
namespace {

constexpr std::string_view kResidual = "residual";
constexpr const char* kOperands[] = {"body_codes", "shortcut_codes"};

}  // namespace

Residual::Residual(std::shared_ptr<Sequential> body, std::shared_ptr<Sequential> shortcut, float scale)
    : body_(std::move(body)), shortcut_(std::move(shortcut)), scale_(scale) {
  add_child("body", body_);
  if (shortcut_) add_child("shortcut", shortcut_);
}

std::vector<Var> Residual::branches(const Var& x) {
  const Var y = in_layer("body", [&] { return (*body_)(x); });
  return {y, shortcut_ ? in_layer("shortcut", [&] { return (*shortcut_)(x); }) : x};
}

std::vector<std::string> Residual::operand_names() const { return {std::begin(kOperands), std::end(kOperands)}; }

Var Residual::forward(const Var& x) {
  if (quantizes_operands())
    return detail::in_values(branches(x), y_, false, [this](const std::vector<Var>& p) {
      const Var body = operand(kOperands[0], scale_ == 1 ? p[0] : times(p[0], scale_));
      return add(body, operand(kOperands[1], p[1]));
    });
  if (scale_ == 1)
    return detail::in_values(branches(x), y_, true, [](const std::vector<Var>& p) { return add(p[0], p[1]); });
  return detail::in_values(branches(x), y_, false,
                           [this](const std::vector<Var>& p) { return add(times(p[0], scale_), p[1]); });
}

bool Residual::returns_fp32(const Var& x) const {
  return scale_ == 1 && !quantizes_operands() && x.dtype() == dtypes::fp32 && y_ == dtypes::fp32;
}

Var Residual::hardtanh(const Var& x) {
  const auto f = [](const std::vector<Var>& p) { return add_hardtanh(p[0], p[1]); };
  const size_t last = body_->size() - 1;
  auto* const norm = dynamic_cast<Norm*>(&(*body_)[last]);
  if (norm == nullptr) return detail::in_values(branches(x), y_, true, f);
  const Var inner = in_layer("body", [&] { return body_->forward_first(last, x); });
  const Var other = shortcut_ ? in_layer("shortcut", [&] { return (*shortcut_)(x); }) : x;
  const auto in_norm = [&](auto&& call) { return in_layer("body", [&] { return in_layer(body_->name(last), call); }); };
  if (norm->adds_hardtanh(inner, other)) return in_norm([&] { return norm->add_hardtanh(inner, other); });
  const Var y = in_norm([&] { return (*norm)(inner); });
  return detail::in_values({y, other}, y_, true, f);
}

Form Residual::plan(const Form& in, PlanRequests& requests) {
  Form inside = in;
  inside.inner = true;
  const Form body = in_layer("body", [&] { return body_->planned(inside, requests); });
  const Form other = shortcut_ ? in_layer("shortcut", [&] { return shortcut_->planned(inside, requests); }) : inside;
  plan_operand(kOperands[0], body);
  plan_operand(kOperands[1], other);
  const char* const name = shortcut_ ? "the shortcut" : "x";
  require(body.sample == other.sample && detail::is_values(body.dtype) && detail::is_values(other.dtype), kResidual,
          "body and ", name, " are added: got ", body, " and ", other, ", expected one shape of fp32");
  Form out = body;
  out.inner = in.inner;
  out.dtype = y_ = in.float_output();
  out.grad = body.grad || other.grad;
  return out;
}

inference::Value Residual::lower(inference::Graph& graph, inference::Value x) {
  inference::Node node;
  node.layer = path();
  node.operation = inference::Join{inference::JoinKind::kAdd};
  inference::Value body = in_layer("body", [&] { return body_->lower(graph, x); });
  if (scale_ != 1)
    body = detail::add_node(graph, path(), inference::Times{scale_}, body, detail::values_like(graph[body].form, y_));
  body = lower_operand(kOperands[0], graph, body);
  const inference::Value other = shortcut_ ? in_layer("shortcut", [&] { return shortcut_->lower(graph, x); }) : x;
  node.inputs = {body, lower_operand(kOperands[1], graph, other)};
  node.form = detail::values_like(graph[body].form, y_);
  return graph.add(std::move(node));
}

std::string_view Residual::kind() const { return kResidual; }

namespace {

std::shared_ptr<Sequential> list_of(const LayerSpec& spec, std::string_view key) {
  for (const LayerList& list : spec.lists)
    if (list.key == key) return in_layer(list.key, [&] { return make_layers(list.layers); });
  return nullptr;
}

}  // namespace

LayerKind residual_kind() {
  return {.name = std::string(kResidual),
          .doc = "scale * body(x) + shortcut(x); without a shortcut scale * body(x) + x",
          .keys = {{"scale", Key::Type::kNumber, "(0, 1e6]", "1", "factor of the body's output (Granite)"}},
          .lists = {.kind = LayerLists::Kind::kNamed,
                    .keys = {{.name = "body", .standard = "!", .doc = "layers"},
                             {.name = "shortcut", .standard = "", .doc = "layers; absent or empty: the identity"}}},
          .bf16 = true,
          .make = [](const LayerSpec& spec) {
            const auto body = list_of(spec, "body");
            require(body != nullptr && body->size() > 0, kResidual, "body: got no layers, expected at least one");
            auto shortcut = list_of(spec, "shortcut");
            if (shortcut && shortcut->size() == 0) shortcut = nullptr;
            return std::make_shared<Residual>(body, shortcut, static_cast<float>(spec.attributes.number("scale")));
          }};
}

}  // namespace bitgrad
