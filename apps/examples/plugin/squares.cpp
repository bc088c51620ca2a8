// Layer kind `squares`: y = factor x^2; with `keep`, x is kept in front of it.
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "parts.h"

using namespace bitgrad;

namespace rings {
namespace {

// y = factor x^2; gx = 2 factor x gy.
struct ScaledSquare {
  static constexpr std::string_view kName = "squares";
  struct Saved {
    Tensor x;
    float factor = 1;
  };
  static Tensor forward(Saved& saved, std::span<const Tensor> in, float factor) {
    const Tensor x = in[0];
    Tensor y = Tensor::empty(x.shape(), dtypes::fp32);
    for (int64_t i = 0; i < x.numel(); ++i) y.as<float>()[i] = factor * x.as<float>()[i] * x.as<float>()[i];
    saved.x = keep(x);
    saved.factor = factor;
    return y;
  }
  static void backward(Saved& saved, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (!g[0].wanted()) return;
    const Tensor gx = Tensor::empty(saved.x.shape(), dtypes::fp32);
    for (int64_t i = 0; i < gx.numel(); ++i)
      gx.as<float>()[i] = 2.0f * saved.factor * saved.x.as<float>()[i] * gy[0].as<float>()[i];
    g[0].set(gx);
  }
};

class Squares final : public Module {
 public:
  Squares(float factor, bool keep) : factor_(factor), keep_(keep) {}
  Var forward(const Var& x) override {
    const Var squares = apply<ScaledSquare>({x}, factor_);
    return keep_ ? concatenate({x, squares}, x.shape().rank() - 1) : squares;
  }
  Form plan(const Form& in, PlanRequests&) override {
    require(in.dtype == dtypes::fp32, "squares", "needs fp32 input, got ", in.dtype, ". Put it before the quantizer");
    return keep_ ? in.with_features(2 * in.features()) : in;
  }
  std::string_view kind() const override { return "squares"; }

 private:
  float factor_;
  bool keep_;
};

}  // namespace

void register_layer_kind() {
  LayerKind kind;
  kind.name = "squares";
  kind.doc = "squares of the features";
  kind.keys = {{.name = "factor",
                .type = Key::Type::kNumber,
                .range = "(0, 100]",
                .standard = "1",
                .doc = "what the squares are multiplied by"},
               {.name = "keep", .type = Key::Type::kBool, .standard = "true", .doc = "the features stay before them"}};
  kind.output = LayerKind::Output::kNone;
  kind.make = [](const LayerSpec& spec) {
    return std::make_shared<Squares>(static_cast<float>(spec.attributes.number("factor")),
                                     spec.attributes.flag("keep"));
  };
  register_layer(std::move(kind));
}

}  // namespace rings
