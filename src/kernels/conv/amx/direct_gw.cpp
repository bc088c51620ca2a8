// gw of direct convolutions. Images are processed in groups whose operands stay in cache. For each group the operands
// are built, one image per task, and then added to the tiles of gw, a few tiles per task.
#include <algorithm>
#include <vector>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "kernels/conv/amx/plane.h"

namespace bitgrad::kernels {
namespace conv {
namespace {

// Measured: docs/performance_log.md, "Direct convolutions on the tile unit".
constexpr double kLeastWork = 1 << 22;    // multiply-adds
constexpr double kLeastUsedOfSums = 0.3;  // fraction of the multiplied positions that must be windows
constexpr int64_t kMostFloats = 64 * 64;  // channels times outputs of float gradients
constexpr int64_t kSumTile = 1024, kGroupBytes = 1 << 20, kTilesOfTask = 4, kSquare = 64;

class DirectWeights {
 public:
  DirectWeights(const DirectWeightsArgs& args, const DirectIsa& isa)
      : args_(args),
        isa_(isa),
        stride_(args.geometry.stride_x),
        plane_(image_plane(args.geometry)),
        floats_(args.gy_dtype == dtypes::fp32),
        parts_(floats_ && !args.bf16 ? kFloatParts : 1),
        element_(floats_ ? 2 : 1),
        steps_(up(window_positions(args.geometry, plane_), kStepBytes / element_) * element_ / kStepBytes),
        panels_((args.outputs + 15) / 16),
        merged_(stride_ == 1 && args.geometry.kw * args.channels <= 16 ? args.geometry.kw : 1),
        channels_(merged_ * args.channels),
        taps_(args.geometry.taps() / merged_),
        channel_tiles_((channels_ + 15) / 16),
        tiles_(taps_ * channel_tiles_),
        line_(up(plane_.positions() / stride_ + 1, kSquare)),
        pitch_((line_ * element_ + 3 * kStepBytes) | kStepBytes),
        image_bytes_(stride_ * channel_tiles_ * 16 * pitch_ + kStepBytes * 2),
        gy_bytes_(parts_ * panels_ * steps_ * kSumTile) {}

  bool supports() const {
    const bool gy = floats_ || args_.gy_dtype == dtypes::int8;
    if (!is_direct(args_.geometry) || !is_bytes(args_.dtype) || !gy || args_.images == 0) return false;
    if (floats_) return bits_mode() == BitsMode::kFast;
    return 127.0 * magnitude_of(args_.dtype) * static_cast<double>(args_.images * args_.geometry.windows()) < 0x1p31;
  }
  bool pays() const {
    const WindowGeometry& g = args_.geometry;
    const double windows = static_cast<double>(args_.images * g.windows());
    const double used = static_cast<double>(g.windows()) / static_cast<double>(steps_ * kStepBytes / element_);
    // Beyond this, parts of floats take longer than digits of gathered windows.
    if (floats_ && args_.channels * args_.outputs > kMostFloats) return false;
    return windows * static_cast<double>(g.taps() * args_.channels * args_.outputs) >= kLeastWork &&
           used >= kLeastUsedOfSums;
  }

  void run() {
    const int64_t bytes = image_bytes_ + gy_bytes_;
    const int64_t group = std::clamp<int64_t>(kGroupBytes / bytes, 2, std::max<int64_t>(2, args_.images));
    const Workspace operands(group * bytes), sums(tiles_ * panels_ * kSumTile);
    images_ = operands.as<uint8_t>();
    gy_ = images_ + group * image_bytes_;
    sums_ = sums.as<uint8_t>();
    if (args_.fold != nullptr) fold_.assign(static_cast<size_t>(args_.outputs), *args_.fold);
    nothing_.assign(static_cast<size_t>(std::max<int64_t>(args_.outputs, 1)), 0.0f);
    find_rows();
    parallel_for(group, [&](int64_t i) { std::memset(gy_ + i * gy_bytes_, 0, static_cast<size_t>(gy_bytes_)); });
    for (int64_t first = 0; first < args_.images; first += group) {
      const int64_t count = std::min(group, args_.images - first);
      parallel_for(2 * count, [&](int64_t i) { i % 2 == 0 ? put_image(first, i / 2) : put_gy(first, i / 2); });
      parallel_for((tiles_ + kTilesOfTask - 1) / kTilesOfTask,
                   [&](int64_t i) { multiply(first, count, i * kTilesOfTask); });
    }
    put_gradient();
  }

 private:
  // The first row of every tile: 16 channels, starting at the position of a tap among the pixels of its residue modulo
  // the stride.
  void find_rows() {
    const WindowGeometry& g = args_.geometry;
    for (int64_t ky = 0; ky < g.kh; ++ky)
      for (int64_t kx = 0; kx < g.kw; kx += merged_)
        for (int64_t c = 0; c < channel_tiles_; ++c)
          rows_.push_back(row_of((ky * plane_.width + kx) % stride_, c * 16) +
                          (ky * plane_.width + kx) / stride_ * element_);
  }

  uint8_t* row_of(int64_t residue, int64_t channel) const {
    return images_ + (residue * channel_tiles_ * 16 + channel) * pitch_;
  }

  // [residue][c][j]: pixel stride * j + residue of an image's plane, zero-padded.
  void put_image(int64_t first, int64_t i) const {
    const WindowGeometry& g = args_.geometry;
    const int64_t c = args_.channels, used = plane_.positions() * c, all = line_ * stride_ * c + kSquare;
    const Workspace opened(std::max(used, all));
    auto* const bytes = opened.as<uint8_t>();
    const char* const from = static_cast<const char*>(args_.image) + (first + i) * g.pixels() * args_.stride;
    open_plane(plane_, args_.dtype, from, args_.stride, c, args_.pad_value, opened.as<int8_t>());
    std::memset(bytes + used, 0, static_cast<size_t>(all - used));
    const int64_t shift = i * image_bytes_;
    for (int64_t residue = 0; residue < stride_; ++residue) {
      for (int64_t row = 0; row < channel_tiles_ * 16; ++row) {
        const int64_t filled = row < channels_ ? line_ * element_ : 0;
        std::memset(row_of(residue, row) + shift + filled, 0, static_cast<size_t>(pitch_ - filled));
      }
      put_channels(bytes + residue * c, row_of(residue, 0) + shift);
    }
    std::memset(row_of(stride_, 0) + shift, 0, kStepBytes * 2);
  }
  // Rows of the channels, followed by those of merged taps.
  void put_channels(const uint8_t* from, uint8_t* to) const {
    const int64_t c = args_.channels;
    alignas(64) uint8_t square[kSquare * kSquare];
    for (int64_t p = 0; p < line_; p += kSquare)
      for (int64_t c0 = 0; c0 < c; c0 += kSquare) {
        const int64_t lines = std::min(kSquare, c - c0);
        isa_.transpose_bytes(from + p * stride_ * c + c0, stride_ * c, lines, square);
        for (int64_t k = 0; k < lines; ++k) {
          uint8_t* const line = to + (c0 + k) * pitch_ + p * element_;
          if (floats_) {
            isa_.to_bf16(kSquare, square + k * kSquare, is_unsigned(args_.dtype), reinterpret_cast<uint16_t*>(line));
          } else {
            std::memcpy(line, square + k * kSquare, kSquare);
          }
        }
      }
    for (int64_t kx = 1; kx < merged_; ++kx)
      for (int64_t i = 0; i < c; ++i)
        std::memcpy(to + (kx * c + i) * pitch_, to + i * pitch_ + kx * element_, static_cast<size_t>(line_ * element_));
  }

  // gy at a position of an image; zeros if there is no window.
  const void* gy_at(int64_t image, int64_t position) const {
    const WindowGeometry& g = args_.geometry;
    const int64_t y = position / plane_.width, x = position % plane_.width;
    if (y >= g.oh || x >= g.ow) return nothing_.data();
    return static_cast<const char*>(args_.gy) + ((image * g.oh + y) * g.ow + x) * args_.gy_stride;
  }
  // Number of windows of a line from position p on; 0 if none begins there.
  int64_t windows_at(int64_t p) const {
    const int64_t y = p / plane_.width, x = p % plane_.width;
    return y < args_.geometry.oh ? std::max<int64_t>(0, args_.geometry.ow - x) : 0;
  }
  // Positions of a group without windows have held zeros since the start.
  void put_gy(int64_t first, int64_t i) const {
    uint8_t* const to = gy_ + i * gy_bytes_;
    const int64_t panel = steps_ * kSumTile, positions = steps_ * kStepBytes / element_;
    const auto row = [&](int64_t p) { return gy_at(first + i, p); };
    const auto any = [&](int64_t p, int64_t n) {
      for (int64_t k = 0; k < n; ++k)
        if (windows_at(p + k) > 0) return true;
      return false;
    };
    if (!floats_) {
      for (int64_t p = 0; p < positions; p += 4) {
        if (!any(p, 4)) continue;
        const int8_t* rows[4];
        for (int64_t r = 0; r < 4; ++r) rows[r] = static_cast<const int8_t*>(row(p + r));
        isa_.interleave(args_.outputs, rows, to + p * 16, panel);
      }
      return;
    }
    const float* const fold = fold_.empty() ? nullptr : fold_.data();
    const int64_t step = 2 * args_.gy_stride / int64_t{sizeof(float)};
    for (int64_t p = 0, pairs = 0; p < positions; p += 2 * pairs) {
      pairs = std::max<int64_t>(1, windows_at(p) / 2);
      if (!any(p, 2)) continue;
      isa_.split_pairs(args_.outputs, pairs, static_cast<const float*>(row(p)), static_cast<const float*>(row(p + 1)),
                       step, fold, parts_, reinterpret_cast<uint16_t*>(to + p * 32), panels_ * panel / 2, panel / 2);
    }
  }

  void multiply(int64_t first, int64_t count, int64_t tile) const {
    PositionTask task{};
    task.a = rows_.data() + tile;
    task.tiles = std::min(kTilesOfTask, tiles_ - tile);
    task.a_pitch = pitch_;
    task.a_image = image_bytes_;
    task.images = count;
    task.steps = steps_;
    task.b = gy_;
    task.b_image = gy_bytes_;
    task.b_part = panels_ * steps_ * kSumTile;
    task.b_panel = steps_ * kSumTile;
    task.parts = parts_;
    task.panels = panels_;
    task.sums = sums_ + tile * panels_ * kSumTile;
    task.resume = first > 0;
    // A holds the image, as unsigned bytes if its codes are uint8.
    isa_.positions(floats_ ? TileProduct::kBf16 : is_unsigned(args_.dtype) ? TileProduct::kUS : TileProduct::kSS, task);
  }

  // C[o, tap * channels + c] = sums[tap, c / 16][o / 16][c % 16][o % 16].
  void put_gradient() const {
    const int64_t c = channels_, k = taps_ * c;
    parallel_ranges(args_.outputs, 16, [&](int64_t begin, int64_t end) {
      for (int64_t tile = 0; tile < tiles_; ++tile) {
        const int64_t c0 = tile % channel_tiles_ * 16, at = tile / channel_tiles_ * c + c0;
        const auto* const sums = reinterpret_cast<const uint32_t*>(sums_ + (tile * panels_ + begin / 16) * kSumTile);
        for (int64_t o = begin; o < end; ++o)
          for (int64_t i = 0; i < std::min<int64_t>(16, c - c0); ++i)
            static_cast<uint32_t*>(args_.c)[o * k + at + i] = sums[i * 16 + o % 16];
      }
    });
  }

  const DirectWeightsArgs& args_;
  const DirectIsa& isa_;
  const int64_t stride_;
  const Plane plane_;
  const bool floats_;
  const int parts_;
  const int64_t element_, steps_, panels_;
  const int64_t merged_;           // taps of a line whose channels share one tile's rows, each shifted by its tap
  const int64_t channels_, taps_;  // rows of A, and positions at which they begin
  const int64_t channel_tiles_, tiles_;
  const int64_t line_, pitch_,  // pixels per row, and bytes between rows
      image_bytes_, gy_bytes_;
  uint8_t *images_ = nullptr, *gy_ = nullptr, *sums_ = nullptr;
  std::vector<const uint8_t*> rows_;
  std::vector<float> fold_, nothing_;
};

}  // namespace

bool conv_weights_amx(const DirectWeightsArgs& args, const DirectIsa& isa) {
  DirectWeights direct(args, isa);
  if (!direct.supports()) return false;
  direct.run();
  return true;
}
bool conv_weights_amx_pays(const DirectWeightsArgs& args, const DirectIsa& isa) {
  const DirectWeights direct(args, isa);
  return direct.supports() && direct.pays();
}

}  // namespace conv
}  // namespace bitgrad::kernels
