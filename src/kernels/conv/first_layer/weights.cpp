// gw of direct convolutions with few channels. Blocks of images are tasks, whose sums are added at the end. See
// first_layer.h.
#include <vector>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "kernels/conv/first_layer/first_layer.h"

namespace bitgrad::kernels::conv {
namespace {

constexpr int64_t kMostFewInputs = 4, kLeastFewRows = 1024, kMostFewTasks = 16;
constexpr int64_t kLongestRun = 9;  // that the loops support

class FewGradient {
 public:
  FewGradient(const DirectWeightsArgs& args, const FewIsa& isa)
      : args_(args),
        isa_(isa),
        plane_(args.geometry, args.channels, args.dtype, args.stride, args.pad_value),
        run_(args.geometry.kw * args.channels),
        blocks_((args.outputs + kFewLanes - 1) / kFewLanes),
        block_floats_(args.geometry.kh * run_ * kFewLanes) {}

  bool supports() const {
    return has_lines(args_.geometry) && args_.images > 0 && args_.channels > 0 && args_.outputs > 0 &&
           FewPlane::opens(args_.dtype) && args_.gy_dtype == dtypes::fp32 && bits_mode() == BitsMode::kFast;
  }
  bool pays() const {
    return args_.channels <= kMostFewInputs && args_.images * args_.geometry.windows() >= kLeastFewRows;
  }

  void run() {
    const int64_t all = blocks_ * block_floats_;
    const int64_t per_task = (args_.images + kMostFewTasks - 1) / kMostFewTasks;
    const int64_t tasks = (args_.images + per_task - 1) / per_task;
    const Workspace sums(tasks * all * int64_t{sizeof(float)});
    parallel_for(tasks, [&](int64_t task) {
      const Workspace plane(plane_.floats() * int64_t{sizeof(float)});
      float* const to = sums.as<float>() + task * all;
      std::fill(to, to + all, 0.0f);
      for (int64_t i = task * per_task; i < std::min((task + 1) * per_task, args_.images); ++i) {
        plane_.open(args_.image, i, plane.as<float>());
        for (int64_t oy = 0; oy < args_.geometry.oh; ++oy)
          for (int64_t block = 0; block < blocks_; ++block)
            add_row(i, oy, block, plane.as<float>(), to + block * block_floats_);
      }
    });
    put(sums.as<float>(), tasks);
  }

 private:
  void add_row(int64_t image, int64_t oy, int64_t block, const float* plane, float* sums) const {
    const WindowGeometry& g = args_.geometry;
    const int64_t ld = args_.gy_stride / int64_t{sizeof(float)};
    FewWeights call{};
    call.line = plane_.line();
    call.row = g.stride_y * call.line;
    call.pixel = g.stride_x * args_.channels;
    call.rows = 1;
    call.windows = g.ow;
    call.gy = static_cast<const float*>(args_.gy) + (image * g.oh + oy) * g.ow * ld + block * kFewLanes;
    call.gy_row = g.ow * ld;
    call.gy_window = ld;
    call.outputs = std::min(kFewLanes, args_.outputs - block * kFewLanes);
    call.fold = args_.fold;
    call.bf16 = args_.bf16;
    call.sums_line = run_ * kFewLanes;
    for (int64_t k = 0; k < run_; k += call.run) {
      call.run = std::min(kLongestRun, run_ - k);
      for (int64_t ky = 0; ky < g.kh; ky += call.lines) {
        call.lines = ky + 3 <= g.kh && isa_.has_weights(3, call.run) ? 3 : 1;
        call.x = plane + oy * call.row + ky * call.line + k;
        call.sums = sums + ky * call.sums_line + k * kFewLanes;
        isa_.weights(call);
      }
    }
  }

  void put(const float* sums, int64_t tasks) const {
    const int64_t k = args_.geometry.kh * run_;
    for (int64_t o = 0; o < args_.outputs; ++o)
      for (int64_t i = 0; i < k; ++i) {
        const float* const from = sums + o / kFewLanes * block_floats_ + i * kFewLanes + o % kFewLanes;
        float total = *from;
        for (int64_t task = 1; task < tasks; ++task) total += from[task * blocks_ * block_floats_];
        static_cast<float*>(args_.c)[o * k + i] = total;
      }
  }

  const DirectWeightsArgs& args_;
  const FewIsa& isa_;
  const FewPlane plane_;
  const int64_t run_, blocks_, block_floats_;  // values per tap line; blocks of 16 outputs, and floats of their sums
};

}  // namespace

bool conv_weights_few(const DirectWeightsArgs& args, const FewIsa& isa) {
  FewGradient gradient(args, isa);
  if (!gradient.supports()) return false;
  gradient.run();
  return true;
}
bool conv_weights_few_pays(const DirectWeightsArgs& args, const FewIsa& isa) {
  const FewGradient gradient(args, isa);
  return gradient.supports() && gradient.pays();
}

}  // namespace bitgrad::kernels::conv
