// prelu and shift: one learned value per channel (parameters slope and shift).
#include "bitgrad/nn/layers.h"
#include "bitgrad/ops/ops.h"
#include "nn/values.h"

namespace bitgrad {
namespace {

constexpr std::string_view kPrelu = "prelu", kShift = "shift";

class ChannelLayer final : public detail::ValuesLayer {
 public:
  using Op = Var (*)(const Var&, const Var&);
  ChannelLayer(std::string_view name, Op op, std::string parameter, double init)
      : name_(name),
        op_(op),
        numbers_(add_parameter(std::move(parameter), ParameterSpec{.init = {"constant", init, 0}})) {}

  Var forward(const Var& x) override {
    return detail::in_values(x, y_, [this](const Var& in) { return op_(in, numbers_.read()); });
  }
  Form plan(const Form& in, PlanRequests&) override {
    require(detail::is_values(in.dtype), name_, "needs fp32 input, got ", in.dtype,
            ". Put it before the quantizer, or dequantize before it");
    numbers_.describe({in.features()});
    Form out = in;
    out.dtype = y_ = in.float_output();
    out.grad = true;
    return out;
  }
  inference::Value lower(inference::Graph& graph, inference::Value x) override {
    const Form form = detail::values_like(graph[x].form, y_);
    std::vector<float> numbers = detail::floats_of(numbers_.value());
    if (name_ == kPrelu) return detail::add_node(graph, path(), inference::Prelu{std::move(numbers)}, x, form);
    return detail::add_node(graph, path(), inference::Shift{std::move(numbers)}, x, form);
  }
  std::string_view kind() const override { return name_; }

 private:
  std::string_view name_;
  Op op_;
  Parameter& numbers_;
};

}  // namespace

LayerKind prelu_kind() {
  return {.name = std::string(kPrelu),
          .doc = "x where x > 0, else slope * x, with a learned slope a channel",
          .keys = {{"init", Key::Type::kNumber, "[-16, 16]", "0.25", "first value of the slopes"}},
          .bf16 = true,
          .output = LayerKind::Output::kNone,
          .make = [](const LayerSpec& spec) {
            return std::make_shared<ChannelLayer>(kPrelu, prelu, "slope", spec.attributes.number("init"));
          }};
}

LayerKind shift_kind() {
  return {.name = std::string(kShift),
          .doc = "adds a learned number a channel, 0 at first",
          .bf16 = true,
          .output = LayerKind::Output::kKeeps,
          .make = [](const LayerSpec&) { return std::make_shared<ChannelLayer>(kShift, shift, "shift", 0); }};
}

}  // namespace bitgrad
