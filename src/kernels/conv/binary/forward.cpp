// Forward of direct convolutions of signs. Weights are packed once, then each image is a task. See binary.h.
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "kernels/conv/binary/binary.h"
#include "kernels/conv/taps.h"

namespace bitgrad::kernels::conv {
namespace {

constexpr int64_t kWord = 8, kLeastCompared = 256, kManyCompared = 64;

class SignForward {
 public:
  SignForward(const DirectConvArgs& args, const SignIsa& isa)
      : args_(args),
        isa_(isa),
        bytes_(args.channels / 8),
        words_((args.geometry.kw * bytes_ + kWord - 1) / kWord),
        blocks_((args.outputs + kLanes - 1) / kLanes),
        width_(std::max(args.geometry.stride_x * (args.geometry.ow - 1) + args.geometry.kw,
                        args.geometry.left + args.geometry.w)),
        line_(width_ * bytes_) {}

  bool supports() const {
    const WindowGeometry& g = args_.geometry;
    return !args_.input_gradient && args_.dtype == dtypes::bint1 && args_.w_dtype == dtypes::bint1 && has_lines(g) &&
           args_.channels > 0 && args_.channels % 8 == 0 && args_.outputs > 0 && args_.images > 0 &&
           (args_.c_dtype == dtypes::fp32 || args_.c_dtype == dtypes::int32);
  }
  bool pays() const {
    const bool ternary = args_.pad_value == 0 && reads_outside(args_.geometry);
    return args_.images * args_.geometry.windows() >= kLeastCompared && (ternary || args_.channels < kManyCompared);
  }

  void run() {
    pack_weights();
    find_windows();
    scale_.resize(static_cast<size_t>(blocks_ * kLanes));
    bias_.resize(scale_.size());
    for (int64_t j = 0; j < args_.outputs && args_.bias != nullptr; ++j) bias_[static_cast<size_t>(j)] = args_.bias[j];
    parallel_for(args_.images, [&](int64_t image) { run_image(image); });
  }

 private:
  // [block][tap line][word][16], zero-padded after the bits of a line.
  void pack_weights() {
    const WindowGeometry& g = args_.geometry;
    weights_.assign(static_cast<size_t>(blocks_ * g.kh * words_ * kLanes), 0);
    const int64_t run = g.kw * bytes_;
    for (int64_t o = 0; o < args_.outputs; ++o)
      for (int64_t ky = 0; ky < g.kh; ++ky) {
        const char* const from = static_cast<const char*>(args_.w) + o * args_.w_stride + ky * run;
        for (int64_t l = 0; l < words_; ++l) {
          uint64_t word = 0;
          std::memcpy(&word, from + l * kWord, static_cast<size_t>(std::min(kWord, run - l * kWord)));
          weights_[static_cast<size_t>((((o / kLanes * g.kh + ky) * words_ + l) * kLanes) + o % kLanes)] = word;
        }
      }
  }
  // The valid bits of each window's tap line, and their number per count of lines.
  void find_windows() {
    const WindowGeometry& g = args_.geometry;
    std::vector<uint8_t> line(static_cast<size_t>(words_ * kWord));
    masks_.resize(static_cast<size_t>(g.ow * words_));
    valid_.resize(static_cast<size_t>((g.kh + 1) * g.ow));
    for (int64_t ox = 0; ox < g.ow; ++ox) {
      int32_t taps = 0;
      std::fill(line.begin(), line.end(), uint8_t{0});
      for (int64_t kx = 0; kx < g.kw; ++kx) {
        if (args_.pad_value == 0 && !inside(ox * g.stride_x + kx - g.left, g.w)) continue;
        ++taps;
        std::memset(line.data() + kx * bytes_, 0xFF, static_cast<size_t>(bytes_));
      }
      for (int64_t lines = 0; lines <= g.kh; ++lines)
        valid_[static_cast<size_t>(lines * g.ow + ox)] = static_cast<int32_t>(taps * lines * args_.channels);
      std::memcpy(masks_.data() + ox * words_, line.data(), line.size());
    }
  }

  void run_image(int64_t image) const {
    const WindowGeometry& g = args_.geometry;
    const int border = args_.pad_value > 0 ? 0xFF : 0;
    const int64_t lines = g.h + 1;  // the last one: pixels outside
    const Workspace memory(lines * line_ + words_ * kWord + kWord);
    auto* const plane = memory.as<uint8_t>();
    std::memset(plane, border, static_cast<size_t>(lines * line_ + words_ * kWord + kWord));
    const char* from = static_cast<const char*>(args_.image) + image * g.pixels() * args_.stride;
    for (int64_t y = 0; y < g.h; ++y) {
      uint8_t* to = plane + y * line_ + g.left * bytes_;
      copy_pixels(from + y * g.w * args_.stride, to);
    }
    const float image_scale = args_.image_scale == nullptr ? 1.0f : args_.image_scale[image * args_.image_step];
    std::vector<float> scale(scale_.size(), 0.0f);
    for (int64_t j = 0; j < args_.outputs; ++j)
      scale[static_cast<size_t>(j)] = image_scale * (args_.w_scale == nullptr ? 1.0f : args_.w_scale[j * args_.w_step]);
    LineSets sets{std::vector<const uint8_t*>(static_cast<size_t>(g.kh)),
                  std::vector<const uint64_t*>(static_cast<size_t>(g.kh))};
    for (int64_t oy = 0; oy < g.oh; ++oy) run_row(image, oy, plane, scale.data(), sets);
  }
  void copy_pixels(const char* from, uint8_t* to) const {
    const int64_t w = args_.geometry.w;
    const auto copy = [&](auto bytes) {
      for (int64_t x = 0; x < w; ++x) std::memcpy(to + x * bytes, from + x * args_.stride, static_cast<size_t>(bytes));
    };
    if (bytes_ == args_.stride) {
      std::memcpy(to, from, static_cast<size_t>(w * bytes_));
    } else if (bytes_ == 2) {
      copy(std::integral_constant<int64_t, 2>{});
    } else if (bytes_ == 4) {
      copy(std::integral_constant<int64_t, 4>{});
    } else {
      copy(bytes_);
    }
  }

  struct LineSets {
    std::vector<const uint8_t*> lines;
    std::vector<const uint64_t*> weights;
  };
  void run_row(int64_t image, int64_t oy, const uint8_t* plane, const float* scale, LineSets& sets) const {
    const WindowGeometry& g = args_.geometry;
    const int64_t top = oy * g.stride_y - g.top;
    const bool all = args_.pad_value != 0;
    const int64_t from = all ? 0 : std::clamp<int64_t>(-top, 0, g.kh),
                  to = all ? g.kh : std::clamp<int64_t>(g.h - top, from, g.kh);
    for (int64_t ky = from; ky < to; ++ky)
      sets.lines[static_cast<size_t>(ky - from)] = plane + (inside(top + ky, g.h) ? top + ky : g.h) * line_;
    SignRow row{};
    row.lines = sets.lines.data();
    row.taps = to - from;
    row.words = words_;
    row.pixel = g.stride_x * bytes_;
    row.masks = masks_.data();
    row.valid = valid_.data() + row.taps * g.ow;
    row.windows = g.ow;
    row.ldc = args_.ldc;
    row.integers = args_.c_dtype == dtypes::int32;
    for (int64_t block = 0; block < blocks_; ++block) {
      for (int64_t ky = from; ky < to; ++ky)
        sets.weights[static_cast<size_t>(ky - from)] = weights_.data() + (block * g.kh + ky) * words_ * kLanes;
      row.weights = sets.weights.data();
      row.outputs = std::min(kLanes, args_.outputs - block * kLanes);
      row.c = static_cast<char*>(args_.c) + ((image * g.oh + oy) * g.ow * args_.ldc + block * kLanes) * 4;
      row.scale = scale + block * kLanes;
      row.bias = args_.bias == nullptr ? nullptr : bias_.data() + block * kLanes;
      isa_.sign_row(row);
    }
  }

  const DirectConvArgs& args_;
  const SignIsa& isa_;
  const int64_t bytes_, words_, blocks_;  // per pixel; per tap line; blocks of 16 outputs
  const int64_t width_, line_;            // pixels and bytes per line of the plane
  std::vector<uint64_t> weights_, masks_;
  std::vector<int32_t> valid_;  // [lines][window]
  std::vector<float> scale_, bias_;
};

}  // namespace

bool conv_signs(const DirectConvArgs& args, const SignIsa& isa) {
  SignForward forward(args, isa);
  if (!forward.supports()) return false;
  forward.run();
  return true;
}
bool conv_signs_pays(const DirectConvArgs& args, const SignIsa& isa) {
  const SignForward forward(args, isa);
  return forward.supports() && forward.pays();
}

}  // namespace bitgrad::kernels::conv
