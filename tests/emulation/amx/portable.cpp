// The tile loop in portable code: emulated tiles, codes expanded one by one.
#include <cstring>

#include "emulation/amx/isa.h"
#include "emulation/amx/tiles.h"
#include "kernels/gemm/tiles/amx_loop.h"
#include "kernels/gemm/tiles/amx_small_loops.h"

namespace bitgrad::kernels::gemm_detail {

using namespace kernels;
namespace {

template <TileFormat kFormat>
class PortableFill {
 public:
  explicit PortableFill(bool unsigned_fields) : unsigned_fields_(unsigned_fields) {}

  // 8 rows of a tile, 64 bytes each.
  template <int kHalf>
  void half_tile(const uint8_t* step, int64_t second_word, uint8_t* out) const {
    for (int r = 0; r < 8; ++r, out += kTileBytes) {
      if constexpr (kFormat == TileFormat::kHalf) {
        row_of_halves(step, 8 * kHalf + r, out);
      } else {
        constexpr int kFields = 8 / format_bits(kFormat);
        const int word = (8 * kHalf + r) / kFields, field = (8 * kHalf + r) % kFields;
        row_of_fields(step + (kFields == 8 ? word * second_word : word * kTileBytes), field, out);
      }
    }
  }

 private:
  static void row_of_halves(const uint8_t* words, int row, uint8_t* out) {
    for (int column = 0; column < kTileRows; ++column) {
      uint32_t word;
      std::memcpy(&word, words + 4 * column, 4);
      for (int e = 0; e < 2; ++e) {
        const uint16_t one = (word >> (16 * e + row)) & 1 ? 0x3F80 : 0xBF80;
        std::memcpy(out + 4 * column + 2 * e, &one, 2);
      }
    }
  }
  void row_of_fields(const uint8_t* words, int field, uint8_t* out) const {
    constexpr int kBits = format_bits(kFormat), kSignBit = 1 << (kBits - 1);
    for (int i = 0; i < kTileBytes; ++i) {
      const int code = (words[i] >> (field * kBits)) & ((1 << kBits) - 1);
      if constexpr (kFormat == TileFormat::kSign)
        out[i] = static_cast<uint8_t>(2 * code - 1);
      else
        out[i] = static_cast<uint8_t>(unsigned_fields_ || kBits == 8 ? code : (code ^ kSignBit) - kSignBit);
    }
  }
  bool unsigned_fields_;
};

void permute(const uint8_t* in, const uint8_t* order, int64_t count, uint8_t* out, int64_t stride) {
  for (int64_t t = 0; t < count; ++t, in += kTileBytes, out += stride)
    for (int i = 0; i < kTileBytes; ++i) out[i] = in[order[i]];
}

struct PortableWriter {
  template <SumKind kKind, int kParts>
  static void write(const DirectRows& out, const uint8_t* sums, int64_t i, int64_t end, int64_t j) {
    for (; i < end; ++i, sums += kSumsStride) {
      float y[kBlockSide];
      if constexpr (kKind == SumKind::kDigits) AmxLoops<PortableWriter>::join_digits(sums, kParts, out.unit[i], y);
      const float* sb = out.sb + j * out.sb_step;
      float* c = out.c + i * out.stride + j;
      for (int t = 0; t < kBlockSide; ++t) {
        if constexpr (kKind == SumKind::kCodes)
          y[t] = static_cast<float>(reinterpret_cast<const int32_t*>(sums)[t]) * (out.sa[i * out.sa_step] * sb[t]);
        else
          y[t] = (kKind == SumKind::kDigits ? y[t] : reinterpret_cast<const float*>(sums)[t]) * sb[t];
        if (out.bias != nullptr) y[t] = y[t] + out.bias[j + t];
        c[t] = out.accumulate ? c[t] + y[t] : y[t];
      }
    }
  }
  static void fence() {}
};

struct Portable {
  using Tiles = EmulatedTiles;
  template <TileFormat kFormat>
  using Fill = PortableFill<kFormat>;
  using Writer = PortableWriter;
};
constexpr AmxIsa kIsa = make_amx_isa<Portable>(&TileLoops<Portable>::find, &permute);

}  // namespace

const AmxIsa& amx_emulated() { return kIsa; }

}  // namespace bitgrad::kernels::gemm_detail
