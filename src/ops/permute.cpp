// y = x with permuted axes: axis i of y is axis axes[i] of x. gx: the inverse permutation.
#include "bitgrad/ops/ops.h"
#include "ops/common.h"
#include "ops/strided.h"

namespace bitgrad {
namespace {

struct Permute {
  static constexpr std::string_view kName = "permute";
  struct Saved {
    std::vector<int64_t> inverse;
  };

  // `axes` are a permutation of 0, 1, ...
  static std::vector<int64_t> checked(const Tensor& x, const std::vector<int64_t>& axes) {
    const int64_t rank = x.shape().rank();
    require_movable(kName, "x", x);
    require(rank <= kernels::kPointwiseAxes, kName, "x ", x, " has ", rank, " axes, expected at most ",
            kernels::kPointwiseAxes, ". Reshape it to fewer");
    require(static_cast<int64_t>(axes.size()) == rank, kName, "got ", axes.size(), " axes for x ", x, ", expected ",
            rank);
    std::vector<int64_t> out;
    for (const int64_t axis : axes) {
      out.push_back(axis_in(kName, axis, x));
      require(std::count(out.begin(), out.end(), out.back()) == 1, kName, "axis ", out.back(), " of x ", x,
              " is named twice");
    }
    require(x.dtype().bits() >= 8 || rank == 0 || out.back() == rank - 1, kName, "the last axis of x ", x,
            " is packed and stays the last: got axis ", rank == 0 ? 0 : out.back(), " there. Dequantize x first");
    return out;
  }

  static Tensor forward(Saved& s, std::span<const Tensor> in, const std::vector<int64_t>& given) {
    const std::vector<int64_t> axes = checked(in[0], given);
    s.inverse.resize(axes.size());
    for (size_t i = 0; i < axes.size(); ++i) s.inverse[static_cast<size_t>(axes[i])] = static_cast<int64_t>(i);
    return permuted(in[0], axes, false);
  }
  static void backward(Saved& s, std::span<const Tensor> gy, std::span<GradSlot> g) {
    if (g[0].wanted()) g[0].set_rounded(permuted(gy[0], s.inverse, true));
  }
};

}  // namespace

Var permute(const Var& x, const std::vector<int64_t>& axes) { return apply<Permute>({x}, axes); }

}  // namespace bitgrad
