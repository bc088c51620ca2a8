// Forward of direct convolutions with few channels; one image per task. See first_layer.h.
#include <vector>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "kernels/conv/first_layer/first_layer.h"

namespace bitgrad::kernels::conv {
namespace {

constexpr int64_t kMostFewChannels = 4, kLeastFewWindows = 1024;

class FewForward {
 public:
  FewForward(const DirectConvArgs& args, const FewIsa& isa)
      : args_(args),
        isa_(isa),
        plane_(args.geometry, args.channels, args.dtype, args.stride, args.pad_value),
        run_(args.geometry.kw * args.channels),
        blocks_((args.outputs + kFewLanes - 1) / kFewLanes) {}

  bool supports() const {
    const bool codes = FewPlane::is_whole(args_.w_dtype) && args_.w_dtype.bits() <= 7;
    if (args_.input_gradient || !has_lines(args_.geometry) || args_.images <= 0 || args_.channels <= 0 ||
        args_.outputs <= 0 || !FewPlane::opens(args_.dtype) || !(codes || args_.w_dtype == dtypes::fp32))
      return false;
    if (args_.dtype == dtypes::fp32 || args_.w_dtype == dtypes::fp32)
      return bits_mode() == BitsMode::kFast && args_.c_dtype == dtypes::fp32 && args_.fold == nullptr && !args_.bf16;
    const double depth = static_cast<double>(args_.geometry.kh * run_);
    return (args_.c_dtype == dtypes::fp32 || args_.c_dtype == dtypes::int32) &&
           FewPlane::magnitude(args_.dtype) * FewPlane::magnitude(args_.w_dtype) * depth < 0x1p24;
  }
  bool pays() const {
    return args_.channels <= kMostFewChannels && args_.images * args_.geometry.windows() >= kLeastFewWindows;
  }

  void run() {
    pack_weights();
    parallel_for(args_.images, [&](int64_t image) { run_image(image); });
  }

 private:
  // [block][tap line][value][16]
  void pack_weights() {
    const int64_t k = args_.geometry.kh * run_;
    weights_.assign(static_cast<size_t>(blocks_ * k * kFewLanes), 0.0f);
    std::vector<int8_t> codes(static_cast<size_t>(k));
    for (int64_t o = 0; o < args_.outputs; ++o) {
      const char* const row = static_cast<const char*>(args_.w) + o * args_.w_stride;
      const bool floats = args_.w_dtype == dtypes::fp32;
      if (!floats) unpack_row_s8(args_.w_dtype, row, 0, k, codes.data());
      float* const to = weights_.data() + o / kFewLanes * k * kFewLanes + o % kFewLanes;
      for (int64_t i = 0; i < k; ++i)
        to[i * kFewLanes] =
            floats ? reinterpret_cast<const float*>(row)[i] : static_cast<float>(codes[static_cast<size_t>(i)]);
    }
  }

  void run_image(int64_t image) const {
    const WindowGeometry& g = args_.geometry;
    const Workspace memory(plane_.floats() * int64_t{sizeof(float)});
    plane_.open(args_.image, image, memory.as<float>());
    std::vector<const float*> lines(static_cast<size_t>(g.kh));
    const float image_scale = args_.image_scale == nullptr ? 1.0f : args_.image_scale[image * args_.image_step];
    FewRow row{};
    row.lines = lines.data();
    row.taps = g.kh;
    row.run = run_;
    row.pixel = g.stride_x * args_.channels;
    row.windows = g.ow;
    row.ldc = args_.ldc;
    row.integers = args_.c_dtype == dtypes::int32;
    std::vector<float> scale(static_cast<size_t>(blocks_ * kFewLanes)), bias(scale.size());
    for (int64_t o = 0; o < args_.outputs; ++o) {
      const auto at = static_cast<size_t>(o);
      scale[at] = image_scale * (args_.w_scale == nullptr ? 1.0f : args_.w_scale[o * args_.w_step]);
      bias[at] = args_.bias == nullptr ? 0.0f : args_.bias[o];
    }
    for (int64_t oy = 0; oy < g.oh; ++oy) {
      for (int64_t ky = 0; ky < g.kh; ++ky)
        lines[static_cast<size_t>(ky)] = memory.as<float>() + (oy * g.stride_y + ky) * plane_.line();
      for (int64_t block = 0; block < blocks_; ++block) {
        row.outputs = std::min(kFewLanes, args_.outputs - block * kFewLanes);
        row.scale = scale.data() + block * kFewLanes;
        row.bias = args_.bias == nullptr ? nullptr : bias.data() + block * kFewLanes;
        row.weights = weights_.data() + block * g.kh * run_ * kFewLanes;
        row.c = static_cast<char*>(args_.c) + ((image * g.oh + oy) * g.ow * args_.ldc + block * kFewLanes) * 4;
        isa_.row(row);
      }
    }
  }

  const DirectConvArgs& args_;
  const FewIsa& isa_;
  const FewPlane plane_;
  const int64_t run_, blocks_;  // values per tap line; blocks of 16 outputs
  std::vector<float> weights_;
};

}  // namespace

bool conv_few(const DirectConvArgs& args, const FewIsa& isa) {
  FewForward forward(args, isa);
  if (!forward.supports()) return false;
  forward.run();
  return true;
}
bool conv_few_pays(const DirectConvArgs& args, const FewIsa& isa) {
  const FewForward forward(args, isa);
  return forward.supports() && forward.pays();
}

}  // namespace bitgrad::kernels::conv
