// Forward and gx of direct convolutions. Weights are packed once, then each image is a task.
#include "kernels/conv/amx/direct.h"

#include <algorithm>
#include <vector>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/bf16.h"
#include "kernels/conv/amx/plane.h"

namespace bitgrad::kernels {
namespace conv {
namespace {

// Measured: docs/performance_log.md, "Direct convolutions on the tile unit".
constexpr double kLeastMultiplyAdds = 1 << 22;
constexpr double kLeastUsed = 0.4;       // fraction of the multiplied positions that must be windows
constexpr int64_t kManyBits = 128;       // channels from which popcounts of gathered bits are faster
constexpr int64_t kLeastWindows = 2048;  // packed weights must be read at least this often
constexpr int64_t kTile = 1024, kPair = 2 * kTile;

// One product of the plane: the whole convolution or, for gx, the pixels of one residue modulo the stride in both
// directions, which read the taps of one residue.
struct Phase {
  int64_t y = 0, x = 0;         // first pixel of gx
  int64_t ky = 0, kx = 0;       // first tap
  int64_t lines = 0, taps = 0;  // tap lines, and taps of each
  int64_t steps = 0;            // steps of 64 bytes per line
  int64_t at = 0;               // pixel of the plane at which the first row begins
  int64_t rows = 0;             // positions
  uint8_t* b = nullptr;
  std::vector<int32_t> place;
};

// Ceiling division; 0 below 1.
constexpr int64_t pieces(int64_t n, int64_t unit) { return n <= 0 ? 0 : (n + unit - 1) / unit; }

// Taps of one residue along one direction: window = a + shift - j for pixel first + stride * a and tap residue + stride
// * j.
struct Taps {
  Taps(int64_t first, int64_t border, int64_t kernel, int64_t stride, int64_t size)
      : residue((first + border) % stride),
        count(pieces(kernel - residue, stride)),
        shift((first + border) / stride),
        pixels(pieces(size - first, stride)) {}
  int64_t before() const { return std::max<int64_t>(0, count - 1 - shift); }
  int64_t residue, count, shift, pixels;
};

// The plane of gy, for gx.
Plane gradient_plane(const WindowGeometry& g) {
  Plane plane{g.oh, g.ow, 0, 0, g.ow, g.oh};
  for (int64_t i = 0; i < g.stride_y; ++i) {
    const Taps y(i, g.top, g.kh, g.stride_y, g.h), x(i, g.left, g.kw, g.stride_x, g.w);
    plane.top = std::max(plane.top, y.before());
    plane.left = std::max(plane.left, x.before());
    plane.height = std::max(plane.height, y.pixels + y.shift);
    plane.width = std::max(plane.width, x.pixels + x.shift);
  }
  plane.height += plane.top;
  plane.width += plane.left;
  return plane;
}

class Direct {
 public:
  Direct(const DirectConvArgs& args, const DirectIsa& isa)
      : args_(args),
        isa_(isa),
        floats_(args.dtype == dtypes::fp32),
        parts_(floats_ && !args.bf16 ? kFloatParts : 1),
        element_(floats_ ? 2 : 1),
        pixel_(args.channels * element_),
        pairs_((args.outputs + 31) / 32) {
    if (!is_direct(args.geometry)) return;
    plane_ = args.input_gradient ? gradient_plane(args.geometry) : image_plane(args.geometry);
    args.input_gradient ? find_phases() : add_image_phase();
    for (Phase& phase : phases_) {
      phase.steps = pieces(phase.taps * pixel_, kStepBytes);
      steps_ = std::max(steps_, phase.steps);
      blocks_ += pieces(phase.rows, kBlockRows);
    }
  }

  bool supports() const {
    const bool codes = is_bytes(args_.dtype), weights = is_bytes(args_.w_dtype) && !is_unsigned(args_.w_dtype);
    if (!is_direct(args_.geometry) || !weights || !(codes || floats_) || args_.images == 0) return false;
    if (floats_) return bits_mode() == BitsMode::kFast && args_.c_dtype == dtypes::fp32;
    const double most = magnitude_of(args_.dtype) * magnitude_of(args_.w_dtype) * depth();
    return most < 0x1p31 && (args_.c_dtype == dtypes::fp32 || args_.c_dtype == dtypes::int32);
  }
  bool pays() const {
    // With many 1-bit channels, popcounts are as fast and need no unpacking.
    if (args_.dtype.bits() == 1 && args_.w_dtype.bits() == 1 && args_.channels >= kManyBits) return false;
    const double work = depth() * static_cast<double>(args_.outputs * args_.images * args_.geometry.windows());
    const double used =
        static_cast<double>(rows_of_c()) / static_cast<double>(std::max<int64_t>(1, blocks_) * kBlockRows);
    return work >= kLeastMultiplyAdds && used >= kLeastUsed && args_.images * args_.geometry.windows() >= kLeastWindows;
  }

  void run() {
    const int64_t bytes = pairs_ * args_.geometry.kh * steps_ * kPair;
    const Workspace weights(static_cast<int64_t>(phases_.size()) * bytes);
    for (size_t i = 0; i < phases_.size(); ++i) {
      phases_[i].b = weights.as<uint8_t>() + static_cast<int64_t>(i) * bytes;
      place_positions(phases_[i]);
    }
    parallel_for(pairs_, [&](int64_t pair) {
      for (const Phase& phase : phases_) pack(phase, pair);
    });
    if (args_.fold != nullptr)
      for (int64_t x = 0; x < plane_.w; ++x) fold_.insert(fold_.end(), args_.fold, args_.fold + args_.channels);
    parallel_for(args_.images, [&](int64_t image) { run_image(image); });
  }

 private:
  double depth() const { return static_cast<double>(args_.geometry.taps() * args_.channels); }
  int64_t rows_of_c() const { return args_.input_gradient ? args_.geometry.pixels() : args_.geometry.windows(); }
  // Pixels between consecutive positions.
  int64_t distance() const { return args_.input_gradient ? 1 : args_.geometry.stride_x; }

  void add_image_phase() {
    const WindowGeometry& g = args_.geometry;
    Phase phase;
    phase.lines = g.kh;
    phase.taps = g.kw;
    phase.rows = window_positions(g, plane_);
    phases_.push_back(phase);
  }
  void find_phases() {
    const WindowGeometry& g = args_.geometry;
    for (int64_t i = 0; i < g.stride_y * g.stride_x; ++i) {
      Phase phase;
      phase.y = i / g.stride_x;
      phase.x = i % g.stride_x;
      const Taps y(phase.y, g.top, g.kh, g.stride_y, g.h), x(phase.x, g.left, g.kw, g.stride_x, g.w);
      if (y.pixels == 0 || x.pixels == 0) continue;
      phase.ky = y.residue;
      phase.kx = x.residue;
      phase.lines = x.count == 0 ? 0 : y.count;
      phase.taps = x.count;
      phase.at = (y.shift - y.count + 1 + plane_.top) * plane_.width + x.shift - x.count + 1 + plane_.left;
      if (phase.lines == 0) phase.at = 0;
      phase.rows = (y.pixels - 1) * plane_.width + x.pixels;
      phases_.push_back(phase);
    }
  }

  // ---- weights ----
  const char* row(int64_t i) const { return static_cast<const char*>(args_.w) + i * args_.w_stride; }

  // Unpacks `count` columns of a tap line: taps * channels values each, in the order of the plane, columns ld apart.
  void columns(const Phase& phase, int64_t first, int64_t count, int64_t line, int8_t* out, int64_t ld) const {
    const WindowGeometry& g = args_.geometry;
    if (!args_.input_gradient) {
      const int64_t run = g.kw * args_.channels;
      for (int64_t n = 0; n < count; ++n) unpack_row_s8(args_.w_dtype, row(first + n), line * run, run, out + n * ld);
      return;
    }
    // Transposed weights are unpacked by rows: 32 neighbouring columns of every tap, the last tap first.
    int8_t opened[32];
    for (int64_t i = 0; i < phase.taps; ++i) {
      const int64_t ky = phase.ky + g.stride_y * (phase.lines - 1 - line);
      const int64_t tap = ky * g.kw + phase.kx + g.stride_x * (phase.taps - 1 - i);
      for (int64_t c = 0; c < args_.channels; ++c) {
        unpack_row_s8(args_.w_dtype, row(c), tap * args_.outputs + first, count, opened);
        for (int64_t n = 0; n < count; ++n) out[n * ld + i * args_.channels + c] = opened[n];
      }
    }
  }

  void pack(const Phase& phase, int64_t pair) const {
    const int64_t run = phase.taps * args_.channels, depth = kStepBytes / element_, ld = phase.steps * depth;
    const int64_t first = pair * 32, count = std::min<int64_t>(32, args_.outputs - first), group = 4 / element_;
    std::vector<int8_t> values(static_cast<size_t>(32 * ld));
    for (int64_t line = 0; line < phase.lines; ++line) {
      std::fill(values.begin(), values.end(), int8_t{0});
      columns(phase, first, count, line, values.data(), ld);
      uint8_t* const out = phase.b + (pair * phase.lines + line) * phase.steps * kPair;
      std::memset(out, 0, static_cast<size_t>(phase.steps * kPair));
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
  void place_positions(Phase& phase) const {
    const WindowGeometry& g = args_.geometry;
    phase.place.assign(static_cast<size_t>(up(phase.rows, kBlockRows)), -1);
    const auto put = [&](int64_t y, int64_t x, int64_t row) {
      phase.place[static_cast<size_t>(y * plane_.width + x)] = static_cast<int32_t>(row);
    };
    if (args_.input_gradient) {
      for (int64_t y = phase.y; y < g.h; y += g.stride_y)
        for (int64_t x = phase.x; x < g.w; x += g.stride_x) put(y / g.stride_y, x / g.stride_x, y * g.w + x);
    } else {
      for (int64_t i = 0; i < g.windows(); ++i) put(i / g.ow, i % g.ow, i);
    }
  }

  // Bytes of a plane, including what blocks and steps read past its end.
  int64_t plane_bytes() const {
    return up(plane_.positions() * pixel_ + kBlockRows * distance() * pixel_ + steps_ * kStepBytes, kStepBytes);
  }

  void open_floats(const float* image, uint16_t* out) const {
    const int64_t part = plane_bytes() / 2, c = args_.channels, ld = args_.stride / int64_t{sizeof(float)};
    const int64_t used = plane_.positions() * c;
    for (int i = 0; i < parts_; ++i) {
      put_border(plane_, c, 0, out + i * part);
      std::memset(out + i * part + used, 0, static_cast<size_t>((part - used) * 2));
    }
    for (int64_t y = 0; y < plane_.h; ++y) {
      uint16_t* const to = out + ((y + plane_.top) * plane_.width + plane_.left) * c;
      const float* const from = image + y * plane_.w * ld;
      if (ld == c) {
        isa_.split(plane_.w * c, from, fold_.empty() ? nullptr : fold_.data(), parts_, to, part);
      } else {
        for (int64_t x = 0; x < plane_.w; ++x) isa_.split(c, from + x * ld, args_.fold, parts_, to + x * c, part);
      }
    }
  }

  void run_image(int64_t image) const {
    const Workspace memory(parts_ * plane_bytes());
    const char* const from = static_cast<const char*>(args_.image) + image * plane_.h * plane_.w * args_.stride;
    if (floats_) {
      open_floats(reinterpret_cast<const float*>(from), memory.as<uint16_t>());
    } else {
      open_plane(plane_, args_.dtype, from, args_.stride, args_.channels, args_.pad_value, memory.as<int8_t>());
      const int64_t used = plane_.positions() * pixel_;
      std::memset(memory.as<uint8_t>() + used, 0, static_cast<size_t>(plane_bytes() - used));
    }
    RowFinish finish{};
    const int64_t size = args_.c_dtype.bits() / 8;
    finish.c = static_cast<char*>(args_.c) + image * rows_of_c() * args_.ldc * size;
    finish.ldc = args_.ldc;
    finish.columns = args_.outputs;
    finish.floats = floats_;
    finish.integers = args_.c_dtype == dtypes::int32;
    finish.image_scale = args_.image_scale == nullptr ? 1.0f : args_.image_scale[image * args_.image_step];
    finish.scale = args_.w_scale;
    finish.scale_step = args_.w_step;
    finish.bias = args_.bias;
    for (const Phase& phase : phases_) {
      finish.place = phase.place.data();
      multiply(phase, memory.as<uint8_t>(), finish);
    }
  }

  void multiply(const Phase& phase, const uint8_t* plane, const RowFinish& finish) const {
    struct Context {
      const DirectIsa& isa;
      const RowFinish& finish;
    } const context{isa_, finish};
    PlaneTask task{};
    task.plane = plane + phase.at * pixel_;
    task.part_bytes = plane_bytes();
    task.parts = parts_;
    task.pixel = distance() * pixel_;
    task.line = plane_.width * pixel_;
    task.lines = phase.lines;
    task.steps = phase.steps;
    task.rows = phase.rows;
    task.b = phase.b;
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
  const bool floats_;
  const int parts_;
  const int64_t element_, pixel_, pairs_;
  Plane plane_;
  std::vector<Phase> phases_;
  int64_t steps_ = 0, blocks_ = 0;  // maximum per line; total over positions
  std::vector<float> fold_;         // for a line of pixels
};

}  // namespace

bool conv_amx(const DirectConvArgs& args, const DirectIsa& isa) {
  Direct direct(args, isa);
  if (!direct.supports()) return false;
  direct.run();
  return true;
}
bool conv_amx_pays(const DirectConvArgs& args, const DirectIsa& isa) {
  const Direct direct(args, isa);
  return direct.supports() && direct.pays();
}

}  // namespace conv
}  // namespace bitgrad::kernels
