// An op between two others, as in a model: its edges are inner ones, whose gradients have the dtype that the edge names
// and are stored as the op gives them. With the memory that it takes.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "bitgrad/autograd/op.h"
#include "bitgrad/base/memory.h"

namespace bitgrad::test {

// Gives `value`, and stores the gradient that reaches it.
struct EdgeBegin {
  static constexpr std::string_view kName = "edge begin";
  struct Saved {
    Tensor* gradient = nullptr;
  };
  static Tensor forward(Saved& s, std::span<const Tensor>, const Tensor& value, Tensor* gradient) {
    s.gradient = gradient;
    return value;
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot>) { *s.gradient = gy[0]; }
};

// Gives one element, whatever it reads, and to that the gradient `gy`.
struct EdgeEnd {
  static constexpr std::string_view kName = "edge end";
  struct Saved {
    Tensor gy;
  };
  static Tensor forward(Saved& s, std::span<const Tensor>, const Tensor& gy) {
    s.gy = gy;
    return Tensor::zeros({1}, dtypes::fp32);
  }
  static void backward(Saved& s, std::span<const Tensor>, std::span<GradSlot> g) { g[0].set(s.gy); }
};

// What is used at once at most, beyond what was there before. More: of all kinds.
struct MemoryUse {
  int64_t workspace = 0, more = 0;
};
template <typename F>
MemoryUse memory_use(F&& f) {
  const MemoryAccount before = memory_now();
  reset_memory_peaks();
  f();
  const MemoryAccount peak = memory_peak_by_kind();
  return {peak[MemoryKind::kWorkspace] - before[MemoryKind::kWorkspace], peak.total - before.total};
}

struct InnerRun {
  Tensor y, gx;
  std::vector<Tensor> gradients;  // of the parameters
  MemoryUse forward, backward;
};

// op(x, parameters), with gradients of x in x_edge and of y in the dtype of gy. An undefined gy: forward alone.
inline InnerRun run_inner(const std::function<Var(const Var&, const std::vector<Var>&)>& op, const Tensor& x,
                          DType x_edge, const std::vector<Tensor>& parameters, const Tensor& gy) {
  InnerRun run;
  Tape tape;
  AccumulateSink root_sink;
  std::vector<AccumulateSink> sinks(parameters.size());
  std::vector<Var> leaves;
  for (size_t i = 0; i < parameters.size(); ++i) leaves.push_back(tape.leaf(parameters[i], &sinks[i], dtypes::fp32));
  const Var root = tape.leaf(Tensor::zeros({1}, dtypes::fp32), &root_sink, dtypes::fp32);
  Var begin = apply<EdgeBegin>({root}, x, &run.gx);
  begin.want_grad(x_edge);
  Var y;
  run.forward = memory_use([&] { y = op(begin, leaves); });
  run.y = y.value();
  if (!gy.defined()) return run;
  y.want_grad(gy.dtype());
  const Var end = apply<EdgeEnd>({y}, gy);
  run.backward = memory_use([&] { tape.backward(end); });
  for (const AccumulateSink& sink : sinks) run.gradients.push_back(sink.filled() ? sink.grad() : Tensor());
  return run;
}

}  // namespace bitgrad::test
