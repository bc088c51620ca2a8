// gw of direct convolutions, fp32 or int8 times signs. Blocks of images are tasks, whose sums are added at the end. See
// binary.h.
#include <algorithm>
#include <cstring>
#include <vector>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "kernels/conv/binary/binary.h"
#include "kernels/conv/taps.h"

namespace bitgrad::kernels::conv {
namespace {

constexpr int64_t kMostBlocks = 16, kSumBytes = 1 << 20;  // blocks of images; bytes of their sums
constexpr int64_t kIndexBytes = 24 << 10;                 // per run, to fit in L1
constexpr int64_t kGroup = 4;                             // images per table
constexpr int64_t kLeastWeighed = 1024, kMostWeighed = 32;

// Lines of windows that read the same lines of taps.
struct Lines {
  int64_t first, end, ky, lines;
};

class SignWeights {
 public:
  SignWeights(const DirectWeightsArgs& args, const SignIsa& isa)
      : args_(args),
        isa_(isa),
        bytes_(args.gy_dtype == dtypes::int8),
        blocks_((args.channels + kLanes - 1) / kLanes),
        width_(args.geometry.stride_x * (args.geometry.ow - 1) + args.geometry.kw),
        sums_of_block_(rounded_up(args.outputs, kLanes) * args.geometry.taps() * kLanes) {}

  bool supports() const {
    const WindowGeometry& g = args_.geometry;
    if (args_.dtype != dtypes::bint1 || !has_lines(g) || args_.channels <= 0 || args_.outputs <= 0 ||
        args_.images <= 0 || !isa_.has_weights(1, g.kw))
      return false;
    if (bytes_) return exact_in_floats(images_of_task() * g.windows()) && args_.images * g.windows() < (1 << 24);
    return args_.gy_dtype == dtypes::fp32 && bits_mode() == BitsMode::kFast;
  }
  bool pays() const {
    const bool ternary = args_.pad_value == 0 && reads_outside(args_.geometry);
    return args_.images * args_.geometry.windows() >= kLeastWeighed && (ternary || args_.channels <= kMostWeighed);
  }

  void run() {
    const int64_t all = sums_of_block_ * blocks_;
    const int64_t most = std::clamp<int64_t>(kSumBytes / (all * int64_t{sizeof(float)}), 1, kMostBlocks);
    const int64_t per_task = rounded_up((args_.images + most - 1) / most, kGroup),
                  tasks = (args_.images + per_task - 1) / per_task;
    find_windows();
    find_lines();
    const Workspace sums(tasks * all * int64_t{sizeof(float)});
    parallel_for(tasks, [&](int64_t task) {
      const int64_t first = task * per_task;
      sum_images(first, std::min(first + per_task, args_.images), sums.as<float>() + task * all);
    });
    parallel_ranges(args_.outputs, 16, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) put(o, sums.as<float>(), tasks);
    });
  }

 private:
  int64_t images_of_task() const {
    const int64_t all = sums_of_block_ * blocks_;
    const int64_t most = std::clamp<int64_t>(kSumBytes / (all * int64_t{sizeof(float)}), 1, kMostBlocks);
    return rounded_up((args_.images + most - 1) / most, kGroup);
  }
  bool pads_count() const { return args_.pad_value != 0; }

  void find_windows() {
    const WindowGeometry& g = args_.geometry;
    for (int64_t ox = 0; ox < g.ow; ++ox) {
      uint32_t valid = 0;
      for (int64_t kx = 0; kx < g.kw; ++kx)
        if (pads_count() || inside(ox * g.stride_x + kx - g.left, g.w)) valid |= 1u << kx;
      valid_.push_back(static_cast<uint8_t>(valid));
    }
  }

  // Groups lines of windows by their inside tap lines, split to fit in cache and the limits of the loops.
  void find_lines() {
    const WindowGeometry& g = args_.geometry;
    const int64_t line_bytes = width_ * kLanes * int64_t{sizeof(int32_t)};
    const auto taps = [&](int64_t oy, int64_t& from, int64_t& end) {
      from = end = 0;
      const int64_t y = oy * g.stride_y - g.top;
      if (pads_count()) {
        end = g.kh;
      } else {
        from = std::clamp<int64_t>(-y, 0, g.kh);
        end = std::clamp<int64_t>(g.h - y, from, g.kh);
      }
    };
    int64_t most_lines = 1;
    while (isa_.has_weights(most_lines + 1, g.kw)) ++most_lines;
    for (int64_t first = 0, end = 0; first < g.oh; first = end) {
      int64_t from = 0, to = 0, next_from = 0, next_to = 0;
      taps(first, from, to);
      for (end = first + 1; end < g.oh; ++end) {
        taps(end, next_from, next_to);
        const int64_t read = (end + 1 - first) * g.stride_y + to - from;
        if (next_from != from || next_to != to || read * line_bytes > kIndexBytes) break;
      }
      for (int64_t ky = from; ky < to; ky += most_lines)
        lines_.push_back({first, end, ky, std::min(most_lines, to - ky)});
    }
  }

  // Sums over images [first, last): [block][output][tap][16].
  void sum_images(int64_t first, int64_t last, float* sums) const {
    const WindowGeometry& g = args_.geometry;
    std::memset(sums, 0, static_cast<size_t>(sums_of_block_ * blocks_) * sizeof(float));
    const Workspace index(plane_lines() * width_ * kLanes * int64_t{sizeof(int32_t)}),
        gy(rounded_up(args_.outputs, kLanes) * kGroup * g.windows() * int64_t{sizeof(float)});
    for (int64_t image = first; image < last; image += kGroup) {
      const int64_t count = std::min(kGroup, last - image);
      mix(image, count, gy.as<float>());
      for (int64_t block = 0; block < blocks_; ++block) {
        open(image, count, block, index.as<int32_t>());
        for (const Lines& run : lines_)
          multiply(run, index.as<int32_t>(), gy.as<float>(), sums + block * sums_of_block_);
      }
    }
  }

  // [outputs / 16][4][window][16]: outputs j, j + 4, j + 8 and j + 12 of 4 images, interleaved.
  void mix(int64_t image, int64_t count, float* out) const {
    const WindowGeometry& g = args_.geometry;
    MixCall call{};
    call.bytes = bytes_;
    call.step = args_.gy_stride / (bytes_ ? 1 : int64_t{sizeof(float)});
    call.windows = g.windows();
    call.fold = bytes_ ? nullptr : args_.fold;
    call.bf16 = args_.bf16;
    call.plane = g.windows() * kLanes;
    for (int64_t o = 0; o < args_.outputs; o += kLanes) {
      call.channels = std::min(kLanes, args_.outputs - o);
      for (int64_t i = 0; i < count; ++i)
        call.x[i] = static_cast<const char*>(args_.gy) + (image + i) * g.windows() * args_.gy_stride +
                    o * (bytes_ ? 1 : int64_t{sizeof(float)});
      call.out = out + o / kLanes * kGroup * call.plane;
      isa_.mix(call);
    }
  }

  // Number of lines, starting from that of the first window's first tap.
  int64_t plane_lines() const { return args_.geometry.stride_y * (args_.geometry.oh - 1) + args_.geometry.kh; }

  // [line][pixel][16]: the signs of a channel at a pixel, for 4 images.
  void open(int64_t image, int64_t count, int64_t block, int32_t* index) const {
    const WindowGeometry& g = args_.geometry;
    std::vector<uint16_t> masks(static_cast<size_t>(width_ * kGroup), args_.pad_value > 0 ? 0xFFFF : 0);
    const auto* const from = static_cast<const char*>(args_.image) + block * (kLanes / 8);
    const int64_t used = std::min(g.w, width_ - g.left);
    const auto line = [&](int64_t y) { isa_.nibbles({masks.data(), width_, index + y * width_ * kLanes}); };
    for (int64_t y = 0; y < plane_lines() && pads_count(); ++y)
      if (!inside(y - g.top, g.h)) line(y);
    for (int64_t y = g.top; y < std::min(plane_lines(), g.top + g.h); ++y) {
      for (int64_t i = 0; i < count; ++i) {
        const char* pixel = from + ((image + i) * g.pixels() + (y - g.top) * g.w) * args_.stride;
        uint16_t* to = masks.data() + g.left * kGroup + i;
        for (int64_t x = 0; x < used; ++x, pixel += args_.stride, to += kGroup)
          std::memcpy(to, pixel, sizeof(uint16_t));
      }
      line(y);
    }
  }

  void multiply(const Lines& lines, const int32_t* index, const float* gy, float* sums) const {
    const WindowGeometry& g = args_.geometry;
    WeightRun run{};
    run.lines = lines.lines;
    run.kw = g.kw;
    run.line = width_ * kLanes;
    run.row = g.stride_y * run.line;
    run.pixel = g.stride_x * kLanes;
    run.index = index + lines.first * run.row + lines.ky * run.line;
    run.rows = lines.end - lines.first;
    run.windows = g.ow;
    run.valid = valid_.data();
    const int64_t plane = g.windows() * kLanes, step = g.taps() * kLanes;
    for (int64_t pair = 0; pair < rounded_up(args_.outputs, kLanes) / 2; ++pair) {
      const int64_t j = pair / 2, o = j / 4 * kLanes + j % 4 + pair % 2 * 8;
      if (o >= args_.outputs) continue;
      run.gy = gy + j * plane + lines.first * g.ow * kLanes + pair % 2 * 8;
      run.sums = sums + o * step + lines.ky * g.kw * kLanes;
      run.second_sums = run.sums + 4 * step;
      isa_.weights(run);
    }
  }

  // Adds up the tasks' sums of one output.
  void put(int64_t o, const float* sums, int64_t tasks) const {
    bytes_ ? put<int32_t>(o, sums, tasks) : put<float>(o, sums, tasks);
  }
  template <typename T>
  void put(int64_t o, const float* sums, int64_t tasks) const {
    const int64_t taps = args_.geometry.taps();
    T* const out = static_cast<T*>(args_.c) + o * taps * args_.channels;
    for (int64_t block = 0; block < blocks_; ++block)
      for (int64_t tap = 0; tap < taps; ++tap) {
        T total[kLanes] = {};
        for (int64_t task = 0; task < tasks; ++task) {
          const float* const part = sums + (task * blocks_ + block) * sums_of_block_ + (o * taps + tap) * kLanes;
          for (int64_t i = 0; i < kLanes; ++i)
            total[i] = task == 0 ? static_cast<T>(part[i]) : total[i] + static_cast<T>(part[i]);
        }
        const int64_t count = std::min(kLanes, args_.channels - block * kLanes);
        for (int64_t i = 0; i < count; ++i) out[tap * args_.channels + block * kLanes + i] = total[i];
      }
  }

  const DirectWeightsArgs& args_;
  const SignIsa& isa_;
  const bool bytes_;
  const int64_t blocks_;  // blocks of 16 channels
  const int64_t width_;   // pixels that a line of windows reads
  const int64_t sums_of_block_;
  std::vector<uint8_t> valid_;  // [window]: bit kx
  std::vector<Lines> lines_;
};

}  // namespace

bool conv_weights_signs(const DirectWeightsArgs& args, const SignIsa& isa) {
  SignWeights weights(args, isa);
  if (!weights.supports()) return false;
  weights.run();
  return true;
}
bool conv_weights_signs_pays(const DirectWeightsArgs& args, const SignIsa& isa) {
  const SignWeights weights(args, isa);
  return weights.supports() && weights.pays();
}

}  // namespace bitgrad::kernels::conv
