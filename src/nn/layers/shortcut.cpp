// Parameter-free shortcut of residual nets: every stride-th pixel, with channels of zeros around the existing ones.
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/spatial.h"
#include "nn/layers/windows_keys.h"
#include "nn/values.h"

namespace bitgrad {
namespace {

constexpr std::string_view kShortcutLayer = "shortcut_a";

class ShortcutLayer final : public detail::ValuesLayer {
 public:
  explicit ShortcutLayer(const LayerSpec& spec)
      : out_(spec.attributes.integer("out")), stride_(detail::pair_of(spec.attributes, "stride")) {}

  Var forward(const Var& x) override {
    return shortcut_a(detail::as_image(detail::pass_through(x, y_)), out_, stride_);
  }
  Form plan(const Form& in, PlanRequests&) override {
    require(detail::is_values(in.dtype), kShortcutLayer, "needs fp32 input, got ", in.dtype,
            ". Put it before the quantizer, or dequantize before it");
    Form out = detail::image_form(kShortcutLayer, in);
    require(out_ >= out.features(), kShortcutLayer, "out: got ", out_, ", expected at least the ", out.features(),
            " channels of ", in);
    const auto left = [](int64_t size, int64_t step) { return (size + step - 1) / step; };
    out.sample = {left(out.sample[0], stride_[0]), left(out.sample[1], stride_[1]), out_};
    out.dtype = y_ = detail::passed_dtype(in);
    return out;
  }
  inference::Value lower(inference::Graph& graph, inference::Value x) override {
    x = detail::as_image_node(graph, path(), x);
    return detail::add_node(graph, path(), inference::Shortcut{out_, stride_}, x,
                            detail::values_like(*output_form(), y_));
  }
  std::string_view kind() const override { return kShortcutLayer; }

 private:
  int64_t out_;
  std::array<int64_t, 2> stride_;
};

}  // namespace

LayerKind shortcut_a_kind() {
  LayerKind kind;
  kind.name = kShortcutLayer;
  kind.doc =
      "every stride-th pixel of images [h, w, c] with zero channels added, half before and half after them; the "
      "input itself where nothing changes";
  kind.keys = {{"out", Key::Type::kInt, "[1, 1048576]", "!", "number of output channels"},
               detail::pair_key("stride", "1", "pixels between those that are kept")};
  kind.output = LayerKind::Output::kNone;
  kind.bf16 = kind.axes = true;
  kind.make = [](const LayerSpec& spec) { return std::make_shared<ShortcutLayer>(spec); };
  return kind;
}

}  // namespace bitgrad
