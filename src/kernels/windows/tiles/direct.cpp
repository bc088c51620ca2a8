// Forward and gx of direct convolutions: weights are packed once, then each image is a task.
#include "kernels/windows/tiles/direct.h"

#include <algorithm>
#include <vector>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/bf16.h"
#include "kernels/windows/tiles/plane.h"

namespace bitgrad::kernels {
namespace windows {
namespace {

constexpr double kLeastMultiplyAdds = 1 << 22, kLeastUsed = 0.4;
constexpr int64_t kManyBits = 64;
constexpr int64_t kLeastWindows = 2048;  // packed weights are read so often
constexpr int64_t kTile = 1024, kPair = 2 * kTile;

class Direct {
 public:
  Direct(const DirectConvArgs& args, const DirectIsa& isa)
      : args_(args),
        isa_(isa),
        plane_(args.geometry),
        floats_(args.dtype == dtypes::fp32),
        parts_(floats_ && !args.bf16 ? kFloatParts : 1),
        element_(floats_ ? 2 : 1),
        pixel_(args.channels * element_),
        steps_(up(args.geometry.kw * pixel_, kStepBytes) / kStepBytes),
        pairs_((args.outputs + 31) / 32) {}

  bool supports() const {
    const bool codes = is_bytes(args_.dtype), weights = is_bytes(args_.w_dtype) && !is_unsigned(args_.w_dtype);
    if (!plane_.fits() || !weights || !(codes || floats_) || args_.images == 0) return false;
    if (floats_) return bits_mode() == BitsMode::kFast && args_.c_dtype == dtypes::fp32;
    const double most = magnitude_of(args_.dtype) * magnitude_of(args_.w_dtype) * depth();
    return most < 0x1p31 && (args_.c_dtype == dtypes::fp32 || args_.c_dtype == dtypes::int32);
  }
  bool pays() const {
    // Many channels of bits are counted as fast, and need not be opened.
    if (args_.dtype.bits() == 1 && args_.w_dtype.bits() == 1 && args_.channels >= kManyBits) return false;
    const double work = depth() * static_cast<double>(args_.outputs * args_.images * args_.geometry.windows());
    return work >= kLeastMultiplyAdds && plane_.used() >= kLeastUsed &&
           args_.images * args_.geometry.windows() >= kLeastWindows;
  }

  void run() {
    const Workspace weights(pairs_ * args_.geometry.kh * steps_ * kPair);
    b_ = weights.as<uint8_t>();
    parallel_for(pairs_, [&](int64_t pair) { pack(pair); });
    place_positions();
    if (args_.fold != nullptr)
      for (int64_t x = 0; x < args_.geometry.w; ++x) fold_.insert(fold_.end(), args_.fold, args_.fold + args_.channels);
    parallel_for(args_.images, [&](int64_t image) { run_image(image); });
  }

 private:
  double depth() const { return static_cast<double>(args_.geometry.taps() * args_.channels); }

  // ---- weights ----
  // Column n of line ky: kw * channels values, in the order of the plane.
  void column(int64_t n, int64_t ky, int8_t* out) const {
    const WindowGeometry& g = args_.geometry;
    const int64_t run = g.kw * args_.channels;
    if (!args_.turned) {
      unpack_row_s8(args_.w_dtype, row(n), ky * run, run, out);
      return;
    }
    for (int64_t kx = 0; kx < g.kw; ++kx) {
      const int64_t tap = (g.kh - 1 - ky) * g.kw + (g.kw - 1 - kx);
      for (int64_t i = 0; i < args_.channels; ++i)
        unpack_row_s8(args_.w_dtype, row(i), tap * args_.outputs + n, 1, out + kx * args_.channels + i);
    }
  }
  const char* row(int64_t i) const { return static_cast<const char*>(args_.w) + i * args_.w_stride; }

  // Turned weights of a pair are opened by rows: 32 neighbouring columns of every tap.
  void columns(int64_t first, int64_t count, int64_t ky, int8_t* out, int64_t ld) const {
    const WindowGeometry& g = args_.geometry;
    if (!args_.turned) {
      for (int64_t n = 0; n < count; ++n) column(first + n, ky, out + n * ld);
      return;
    }
    int8_t line[32];
    for (int64_t kx = 0; kx < g.kw; ++kx) {
      const int64_t tap = (g.kh - 1 - ky) * g.kw + (g.kw - 1 - kx);
      for (int64_t i = 0; i < args_.channels; ++i) {
        unpack_row_s8(args_.w_dtype, row(i), tap * args_.outputs + first, count, line);
        for (int64_t n = 0; n < count; ++n) out[n * ld + kx * args_.channels + i] = line[n];
      }
    }
  }

  void pack(int64_t pair) const {
    const int64_t run = args_.geometry.kw * args_.channels, depth = kStepBytes / element_, ld = steps_ * depth;
    const int64_t first = pair * 32, count = std::min<int64_t>(32, args_.outputs - first), group = 4 / element_;
    std::vector<int8_t> values(static_cast<size_t>(32 * ld));
    for (int64_t ky = 0; ky < args_.geometry.kh; ++ky) {
      std::fill(values.begin(), values.end(), int8_t{0});
      columns(first, count, ky, values.data(), ld);
      uint8_t* const out = b_ + (pair * args_.geometry.kh + ky) * steps_ * kPair;
      std::memset(out, 0, static_cast<size_t>(steps_ * kPair));
      for (int64_t n = 0; n < count; ++n) {
        const int8_t* const from = values.data() + n * ld;
        for (int64_t k = 0; k < run; ++k) {
          const int64_t in_step = k % depth;
          uint8_t* const to =
              out + k / depth * kPair + n / 16 * kTile + in_step / group * 64 + n % 16 * 4 + in_step % group * element_;
          if (floats_) {
            const uint16_t half = bf16_from_float(static_cast<float>(from[k]));
            std::memcpy(to, &half, 2);
          } else {
            *to = static_cast<uint8_t>(from[k]);
          }
        }
      }
    }
  }

  // ---- images ----
  void place_positions() {
    const WindowGeometry& g = args_.geometry;
    place_.assign(static_cast<size_t>(up(plane_.last, kBlockRows)), -1);
    for (int64_t y = 0; y < g.oh; ++y)
      for (int64_t x = 0; x < g.ow; ++x)
        place_[static_cast<size_t>(y * plane_.width + x)] = static_cast<int32_t>(y * g.ow + x);
  }

  // Bytes of a plane, with what blocks and steps read behind it.
  int64_t plane_bytes() const {
    return up(plane_.positions() * pixel_ + kBlockRows * pixel_ + steps_ * kStepBytes, kStepBytes);
  }

  void open_floats(const float* image, uint16_t* out) const {
    const WindowGeometry& g = args_.geometry;
    const int64_t part = plane_bytes() / 2, c = args_.channels, ld = args_.stride / int64_t{sizeof(float)};
    const int64_t used = plane_.positions() * c;
    for (int i = 0; i < parts_; ++i) {
      put_border(plane_, c, 0, out + i * part);
      std::memset(out + i * part + used, 0, static_cast<size_t>((part - used) * 2));
    }
    for (int64_t y = 0; y < g.h; ++y) {
      uint16_t* const to = out + ((y + g.top) * plane_.width + g.left) * c;
      const float* const from = image + y * g.w * ld;
      if (ld == c) {
        isa_.split(g.w * c, from, fold_.empty() ? nullptr : fold_.data(), parts_, to, part);
      } else {
        for (int64_t x = 0; x < g.w; ++x) isa_.split(c, from + x * ld, args_.fold, parts_, to + x * c, part);
      }
    }
  }

  void run_image(int64_t image) const {
    const WindowGeometry& g = args_.geometry;
    const Workspace memory(parts_ * plane_bytes());
    const char* const from = static_cast<const char*>(args_.image) + image * g.pixels() * args_.stride;
    if (floats_) {
      open_floats(reinterpret_cast<const float*>(from), memory.as<uint16_t>());
    } else {
      open_plane(plane_, args_.dtype, from, args_.stride, args_.channels, args_.pad_value, memory.as<int8_t>());
      const int64_t used = plane_.positions() * pixel_;
      std::memset(memory.as<uint8_t>() + used, 0, static_cast<size_t>(plane_bytes() - used));
    }
    RowFinish finish{};
    finish.place = place_.data();
    const int64_t size = args_.c_dtype.bits() / 8;
    finish.c = static_cast<char*>(args_.c) + image * g.windows() * args_.ldc * size;
    finish.ldc = args_.ldc;
    finish.columns = args_.outputs;
    finish.floats = floats_;
    finish.integers = args_.c_dtype == dtypes::int32;
    finish.image_scale = args_.image_scale == nullptr ? 1.0f : args_.image_scale[image * args_.image_step];
    finish.scale = args_.w_scale;
    finish.scale_step = args_.w_step;
    finish.bias = args_.bias;
    struct Context {
      const DirectIsa& isa;
      const RowFinish& finish;
    } const context{isa_, finish};
    PlaneTask task{};
    task.plane = memory.as<uint8_t>();
    task.part_bytes = plane_bytes();
    task.parts = parts_;
    task.pixel = pixel_;
    task.line = plane_.width * pixel_;
    task.lines = g.kh;
    task.steps = steps_;
    task.rows = plane_.last;
    task.b = b_;
    task.pairs = pairs_;
    task.odd = (args_.outputs + 15) / 16 % 2 != 0;
    task.finish = [](const void* c, int64_t row, int64_t pair, const uint8_t* sums) {
      const auto& at = *static_cast<const Context*>(c);
      at.isa.finish(at.finish, row, pair, sums);
    };
    task.context = &context;
    isa_.planes(floats_ ? TileProduct::kBf16 : is_unsigned(args_.dtype) ? TileProduct::kUS : TileProduct::kSS, task);
  }

  const DirectConvArgs& args_;
  const DirectIsa& isa_;
  const Plane plane_;
  const bool floats_;
  const int parts_;
  const int64_t element_, pixel_, steps_, pairs_;
  uint8_t* b_ = nullptr;
  std::vector<int32_t> place_;
  std::vector<float> fold_;  // of a line of pixels
};

}  // namespace

bool conv_direct(const DirectConvArgs& args, const DirectIsa& isa, bool force) {
  Direct direct(args, isa);
  if (!direct.supports() || !(force || direct.pays())) return false;
  direct.run();
  return true;
}

}  // namespace windows

bool conv_direct(const DirectConvArgs& args) {
  if (!current_device().is_cpu() || (cpu_isa() & isa::kAmx) == 0) return false;
  return windows::conv_direct(args, windows::direct_machine(), false);
}

}  // namespace bitgrad::kernels
