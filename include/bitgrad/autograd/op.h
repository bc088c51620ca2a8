// How to write an op: one struct with its check, forward and backward, in the library and in programs alike.
//
//   struct Square {
//     static constexpr std::string_view kName = "square";
//     struct Saved { Tensor x; };
//     static Tensor forward(Saved& s, std::span<const Tensor> in) { ...; s.x = keep(in[0]); return y; }
//     static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
//       if (g[0].wanted()) g[0].set(...);
//     }
//   };
//   Var square(const Var& x) { return apply<Square>({x}); }
//
// forward may return Tensor or std::vector<Tensor>, and take further arguments (options) after `in`. gy[i] is the
// gradient of output i in the dtype of its edge; undefined if no gradient reached it. Store tensors in Saved with
// `keep(tensor)`, so that the hook and the memory account of the tape see them.
#pragma once

#include <span>
#include <type_traits>
#include <utility>

#include "bitgrad/autograd/tape.h"
#include "bitgrad/base/profile.h"

namespace bitgrad {

namespace detail {

template <typename Op>
class OpNode final : public Node {
 public:
  std::string_view name() const override { return Op::kName; }
  void backward(const std::vector<Tensor>& gy, std::vector<GradSlot>& gx) override {
    Op::backward(saved, std::span<const Tensor>(gy), std::span<GradSlot>(gx));
  }
  typename Op::Saved saved;
};

// The tape of the inputs; nullptr if none is tracked or no tape is current. Throws Error if they are on different tapes
// or not on the current device.
Tape* tape_of(std::string_view op, const std::vector<Var>& inputs);
// Scope in which an op runs: `tape` if it is recorded, else nullptr. keep() saves tensors only if it is recorded.
class Recording {
 public:
  explicit Recording(Tape* tape);
  ~Recording();

 private:
  Tape* outer_;
};
Tape* recording();

}  // namespace detail

// Keeps a tensor for backward. In the forward of an op that is not recorded, returns an undefined tensor, so that
// nothing is kept alive.
Tensor keep(const Tensor& tensor);
// Whether the backward of the running op may be called. If not, masks and other saved data need not be computed.
inline bool will_backward() { return detail::recording() != nullptr; }

// Runs the op and records it if an input is tracked. The vector form is for ops with several outputs.
template <typename Op, typename... Options>
std::vector<Var> apply_multi(const std::vector<Var>& inputs, Options&&... options) {
  Tape* tape = detail::tape_of(Op::kName, inputs);
  std::vector<Tensor> in;
  in.reserve(inputs.size());
  for (const Var& v : inputs) in.push_back(v.value());
  auto node = std::make_unique<detail::OpNode<Op>>();
  std::vector<Tensor> out;
  {
    const ProfileRange range(Op::kName);
    detail::Recording scope(tape != nullptr && tape->records() ? tape : nullptr);
    auto result = Op::forward(node->saved, std::span<const Tensor>(in), std::forward<Options>(options)...);
    if constexpr (std::is_same_v<decltype(result), Tensor>)
      out.push_back(std::move(result));
    else
      out = std::move(result);
  }
  if (tape != nullptr) return tape->record(std::move(node), inputs, std::move(out));
  return {out.begin(), out.end()};
}

template <typename Op, typename... Options>
Var apply(const std::vector<Var>& inputs, Options&&... options) {
  return std::move(apply_multi<Op>(inputs, std::forward<Options>(options)...).front());
}

}  // namespace bitgrad
