// y = conv2d(x, w) (+ bias) of images [h,w,c]: on packed operands, simulated in floats, or as int32 sums with a scale.
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/spatial.h"
#include "nn/layers/product_keys.h"
#include "nn/layers/windows_keys.h"
#include "nn/slot_product.h"
#include "nn/values.h"

namespace bitgrad {
namespace {

constexpr std::string_view kConv2d = "conv2d";

class Conv2d final : public Module {
 public:
  explicit Conv2d(const LayerSpec& spec)
      : out_(spec.attributes.integer("out")),
        slot_(add_quantizable("weight", spec.weight, Quantizable::Kind::kConv, spec.product.compute)),
        product_(spec) {
    options_.kernel = detail::pair_of(spec.attributes, "kernel");
    options_.stride = detail::pair_of(spec.attributes, "stride");
    options_.dilation = detail::pair_of(spec.attributes, "dilation");
    options_.groups = spec.attributes.integer("groups");
    options_.pad_value = static_cast<int>(spec.attributes.integer("pad_value"));
    same_ = detail::is_same(spec.attributes, "padding");
    if (!same_) options_.padding = detail::sides_of(spec.attributes, "padding");
    if (spec.attributes.flag("bias")) bias_ = &add_parameter("bias", {out_}, {.init = {"zeros"}});
    detail::check_compute({slot_.weight(), spec.product.compute, product_.modes(), bias_ != nullptr});
  }

  Var forward(const Var& x) override {
    const RandomStream draws = product_.draws(path(), state());
    return slot_.conv2d(detail::as_image(x), bias_ ? bias_->read() : Var(), options_, product_.modes(draws));
  }

  Form plan(const Form& in, PlanRequests& requests) override {
    const Form image = detail::image_form(kConv2d, in);
    const int64_t c = image.features(), taps = options_.kernel[0] * options_.kernel[1];
    require(c % options_.groups == 0 && out_ % options_.groups == 0, kConv2d, "groups: got ", options_.groups,
            ", expected a divisor of the ", c, " channels of ", in, " and of out ", out_);
    if (same_) options_.padding = same_padding(image.sample[0], image.sample[1], options_);
    const int64_t in_group = c / options_.groups, out_group = out_ / options_.groups;
    if (!slot_.weight().described())
      slot_.weight().describe({out_, taps * in_group}, {out_, options_.kernel[0], options_.kernel[1], in_group},
                              {taps * in_group, taps * out_group});
    return slot_.plan_conv2d(image, requests, options_, bias_ != nullptr, product_.modes());
  }
  inference::Value lower(inference::Graph& graph, inference::Value x) override {
    return slot_.lower(graph, x, bias_, &options_);
  }
  std::string_view kind() const override { return kConv2d; }

 private:
  int64_t out_;
  Quantizable& slot_;
  detail::ProductKeys product_;
  Conv2dOptions options_;
  bool same_ = false;
  Parameter* bias_ = nullptr;
};

}  // namespace

LayerKind conv2d_kind() {
  using Type = Key::Type;
  return {
      .name = std::string(kConv2d),
      .doc = "convolution of images [h, w, c]",
      .keys = {{"out", Type::kInt, "[1, 1048576]", "!", "number of output channels"},
               detail::pair_key("kernel", "!", "rows and columns of a window"),
               detail::pair_key("stride", "1", "pixels between windows"),
               detail::sides_key("padding", "0", "pixels outside the image", /*same=*/true),
               {"pad_value", Type::kInt, "[-1, 1]", "0", "value of the pixels outside; -1 and 1 need signs or floats"},
               detail::pair_key("dilation", "1", "pixels between taps"),
               {"groups", Type::kInt, "[1, 1048576]", "1", "groups of channels; as many as channels: depthwise"},
               {"bias", Type::kBool, "", "true", "adds a bias"}},
      .weights = true,
      .product = true,
      .axes = true,
      .bf16 = true,
      .make = [](const LayerSpec& spec) { return std::make_shared<Conv2d>(spec); }};
}

}  // namespace bitgrad
