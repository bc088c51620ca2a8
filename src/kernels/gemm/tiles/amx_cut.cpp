#include "kernels/gemm/tiles/amx_cut.h"

#include <algorithm>

#include "kernels/gemm/bytes/s8_expand.h"

namespace bitgrad::kernels::gemm_detail {
namespace {

constexpr int64_t kPackedBytes = int64_t{2} << 20;  // of B, if packed during the call
constexpr int64_t kColumnsOfPasses = 2048;          // columns whose sums are kept between passes

constexpr StepOrder kOrders[kTileFormats] = {make_step_order(TileFormat::kSign),  make_step_order(TileFormat::kBits1),
                                             make_step_order(TileFormat::kBits2), make_step_order(TileFormat::kBits4),
                                             make_step_order(TileFormat::kBytes), make_step_order(TileFormat::kHalf)};

// Budget for A, which shares L2 with a pair of panels or the packed part of B: half of L2's capacity, or all of it
// where reading wide codes of B once per block of A costs more.
int64_t most_bytes_of_a(TileFormat format, bool packs) {
  return int64_t{!packs && format_bits(format) >= 4 ? 1024 : 512} << 10;
}

bool is_raw_byte(DType dtype) { return byte_range(dtype).shift != 0; }

TileFormat format_of(const GemmArgs& args, TileNumbers numbers) {
  const DType b = args.b.dtype;
  if (numbers == TileNumbers::kHalves) return TileFormat::kHalf;
  if (b.kind() == DTypeKind::kSign) return TileFormat::kSign;
  // Canonical codes of more than one bit are packed as bytes. Digits have no loops for other fields.
  const int bits = args.b.layout == layouts::canonical && b.bits() > 1 ? 8 : b.bits();
  constexpr TileFormat kByBits[9] = {TileFormat::kBytes, TileFormat::kBits1, TileFormat::kBits2,
                                     TileFormat::kBytes, TileFormat::kBits4, TileFormat::kBytes,
                                     TileFormat::kBytes, TileFormat::kBytes, TileFormat::kBytes};
  const TileFormat format = kByBits[bits];
  return numbers == TileNumbers::kDigits && format != TileFormat::kSign ? TileFormat::kBytes : format;
}

TileProduct product_of(const GemmArgs& args, TileNumbers numbers, TileFormat format) {
  if (numbers == TileNumbers::kHalves) return TileProduct::kBf16;
  const bool a = numbers == TileNumbers::kCodes && is_raw_byte(args.a.dtype);
  const bool b = format == TileFormat::kBytes && is_raw_byte(args.b.dtype);
  constexpr TileProduct kBySign[2][2] = {{TileProduct::kSS, TileProduct::kSU}, {TileProduct::kUS, TileProduct::kUU}};
  return kBySign[a][b];
}

}  // namespace

TileCut::TileCut(const GemmArgs& args, TileNumbers numbers, int parts_in)
    : format(format_of(args, numbers)),
      product(product_of(args, numbers, format)),
      parts(parts_in),
      packs(args.b.layout == layouts::canonical) {
  steps = ceil_div(args.k, step_depth(format));
  const int64_t most_of_a = most_bytes_of_a(format, packs);
  pass = std::min(steps, most_of_a / (kStepBytes * parts));
  rows = std::min(round_up(args.m, kBlockSide), most_of_a / (pass * kStepBytes * parts) * kBlockSide);
  columns = args.n;
  if (packs) {
    const int64_t unit = pack_columns_unit(format);
    const int64_t upper = kPackedBytes / (packed_panel_bytes(format, args.k) / kTileRows);
    columns = std::min(columns, std::max(unit, upper / unit * unit));
  }
  if (passes() > 1) columns = std::min(columns, kColumnsOfPasses);
}

const uint8_t* step_order_of(TileFormat format) { return kOrders[static_cast<size_t>(format)].data(); }

}  // namespace bitgrad::kernels::gemm_detail
