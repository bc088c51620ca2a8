// y[n,o] = sum_i x[n,i] w[o,i] (+ bias[o]): on packed operands, simulated in floats, or as int32 sums with a scale.
#include "bitgrad/nn/adapter.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "nn/layers/product_keys.h"
#include "nn/slot_product.h"
#include "nn/values.h"

namespace bitgrad {
namespace {

class Linear final : public Module {
 public:
  explicit Linear(const LayerSpec& spec)
      : out_(spec.attributes.integer("out")),
        slot_(add_quantizable("weight", spec.weight, Quantizable::Kind::kLinear, spec.product.compute)),
        product_(spec) {
    if (spec.attributes.flag("bias")) bias_ = &add_parameter("bias", {out_}, {.init = {"zeros"}});
    detail::check_compute({slot_.weight(), spec.product.compute, product_.modes(), bias_ != nullptr});
  }

  Var forward(const Var& x) override {
    const RandomStream draws = product_.draws(path(), state());
    return slot_.linear(x, bias(), product_.modes(draws));
  }

  Form plan(const Form& in, PlanRequests& requests) override {
    if (!slot_.weight().described()) slot_.weight().describe({out_, in.features()});
    slot_.weight().set_stacked({});
    return slot_.plan_linear(in, requests, bias_ != nullptr, product_.modes());
  }
  PlanRequests serve(const PlanRequests& requests) override {
    if (requests.stacked().empty()) return {};
    slot_.weight().set_stacked(requests.stacked());
    if (LowRankAdapter* const adapter = slot_.adapter()) adapter->b().set_stacked(requests.stacked());
    return {};
  }
  inference::Value lower(inference::Graph& graph, inference::Value x) override { return slot_.lower(graph, x, bias_); }
  std::string_view kind() const override { return "linear"; }

 private:
  Var bias() const { return bias_ ? bias_->read() : Var(); }

  int64_t out_;
  Quantizable& slot_;
  detail::ProductKeys product_;
  Parameter* bias_ = nullptr;
};

// y = x W^T, where W is the table of an embedding or the weight of another layer: the scores of a model whose input and
// output share a vocabulary (Press and Wolf 2017, arXiv 1608.05859).
class Head final : public Module {
 public:
  explicit Head(const LayerSpec& spec)
      : tie_(spec.attributes.text("tie")),
        compute_(spec.product.compute),
        with_bias_(spec.attributes.flag("bias")),
        scale_(static_cast<float>(spec.attributes.number("scale"))),
        product_(spec) {
    if (with_bias_) bias_ = &add_parameter("bias", ParameterSpec{.init = {"zeros"}});
  }

  void connect(Module& root) override {
    const std::string prefix = std::string(kModelRoot) + '.';
    Module* const owner = tie_.starts_with(prefix) ? root.find(std::string_view(tie_).substr(prefix.size())) : nullptr;
    const std::vector<Quantizable*> slots = owner ? owner->quantizables() : std::vector<Quantizable*>();
    require(slots.size() == 1 && slots[0]->weight_owner() == nullptr, "head", "tie: got '", tie_,
            "', expected the path of a layer that owns exactly one weight, such as ", kModelRoot, ".0 of an embedding");
    slot_ = &add_tied("weight", *slots[0], compute_);
  }

  Var forward(const Var& x) override {
    const RandomStream draws = product_.draws(path(), state());
    const Var y = slot_->linear(x, bias_ ? bias_->read() : Var(), product_.modes(draws));
    return scale_ == 1 ? y : times(y, scale_);
  }

  Form plan(const Form& in, PlanRequests& requests) override {
    require(slot_ != nullptr, "head", "shares the weight of '", tie_,
            "', but is not connected: build its model with make_model, or with make_layers and connect_all");
    if (bias_ != nullptr && !bias_->described()) bias_->describe({slot_->weight().shape().rows()});
    const Form out = slot_->plan_linear(in, requests, bias_ != nullptr, product_.modes());
    require(scale_ == 1 || detail::is_values(out.dtype), "head", "scale: got ", scale_, " of a product in ", out.dtype,
            ", expected 1, or a product in fp32");
    return out;
  }
  inference::Value lower(inference::Graph& graph, inference::Value x) override {
    x = slot_->lower(graph, x, bias_);
    return scale_ == 1 ? x : detail::add_node(graph, path(), inference::Times{scale_}, x, Form(graph[x].form));
  }
  std::string_view kind() const override { return "head"; }

 private:
  std::string tie_;
  Compute compute_;
  bool with_bias_;
  float scale_;
  detail::ProductKeys product_;
  Quantizable* slot_ = nullptr;
  Parameter* bias_ = nullptr;
};

}  // namespace

LayerKind linear_kind() {
  using Type = Key::Type;
  return {.name = "linear",
          .doc = "x W^T + b, over the last axis of x",
          .keys = {{"out", Type::kInt, "[1, 1048576]", "!", "number of outputs"},
                   {"bias", Type::kBool, "", "true", "adds a bias"}},
          .weights = true,
          .product = true,
          .bf16 = true,
          .make = [](const LayerSpec& spec) { return std::make_shared<Linear>(spec); }};
}

LayerKind head_kind() {
  using Type = Key::Type;
  return {.name = "head",
          .doc = "x W^T, W being the table of an embedding or the weight of another layer",
          .keys = {{"tie", Type::kText, "", "!", "path of the layer that owns W, such as layers.0"},
                   {"bias", Type::kBool, "", "false", "adds a bias"},
                   {"scale", Type::kNumber, "(0, 1e6]", "1", "factor of the outputs (Granite)"}},
          .product = true,
          .bf16 = true,
          .make = [](const LayerSpec& spec) { return std::make_shared<Head>(spec); }};
}

std::shared_ptr<Module> make_linear(int64_t in, int64_t out, const ParameterSpec& weight, bool bias) {
  require(out > 0 && in > 0, "linear", "in and out must be at least 1: got in ", in, ", out ", out);
  LayerSpec spec;
  spec.kind = "linear";
  spec.attributes = {{"out", out}, {"bias", bias}};
  spec.weight = weight;
  return make_layer(spec, in);
}

}  // namespace bitgrad
