// Family quantize: int8 codes of a gradient with one scale per row and with one per column (contract: quantize.h).
// Makes two sweeps over the values: first the largest magnitudes in both orders, then the codes in both. The bits of
// |x| compare like integers, so the largest are found by atomics directly in the scale arrays.
//
// A row (or column) with a NaN or Inf gets the scale NaN, and its other values are coded with scale 1 (docs/numerics.md
// section 5). The flag is set.
#include "bitgrad/base/error.h"
#include "bitgrad/dtype/bf16.h"
#include "cuda/kernels/contracts.h"
#include "cuda/kernels/launch.h"
#include "cuda/kernels/pack/tile.h"
#include "cuda/kernels/quantize/element.h"

namespace bitgrad::cuda {

// One order, with its stream by value.
struct OrderCall {
  const float* fold = nullptr;
  float* scales = nullptr;
  uint8_t* codes = nullptr;
  int64_t stride = 0, first_element = 0;
  RandomStream draws;
  bool stochastic = false;
};
struct OrdersCall {
  int64_t rows, cols;
  const void* x;
  bool wide;  // octets of x are aligned to 16 bytes
  OrderCall by_row, by_column;
  uint32_t* flags;
};

inline constexpr float kQmax = 127.0f, kEps = 0x1p-126f;
inline constexpr int kInfinity = 0x7F800000;
inline constexpr int kOrdersWarps = 8, kOrdersRows = 64, kBlockCols = 256;

template <bool kBf16>
BITGRAD_DEVICE inline Numbers8 load_gradient(const OrdersCall& call, int64_t r, int64_t c) {
  const int64_t at = r * call.cols + c, count = call.cols - c;
  if constexpr (!kBf16) return load_numbers(static_cast<const float*>(call.x) + at, count, call.wide);
  return load_numbers(static_cast<const uint16_t*>(call.x) + at, count, call.wide);
}

BITGRAD_DEVICE inline int abs_bits(float x) { return __float_as_int(x) & 0x7FFFFFFF; }

// A block processes 64 rows of 256 columns: one row at a time per warp, one octet per thread.
template <bool kBf16>
BITGRAD_GLOBAL void largest_kernel(OrdersCall call) {
  __shared__ int of_warp[kOrdersWarps][kBlockCols];
  const Cell block = cell_of(blockIdx.x, (call.cols + kBlockCols - 1) / kBlockCols);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t c = block.col * kBlockCols + 8 * lane, count = call.cols - c;
  Numbers8 fold;
  for (int k = 0; k < 8; ++k) fold.v[k] = call.by_row.fold != nullptr && k < count ? call.by_row.fold[c + k] : 1.0f;
  int max[8] = {};
  for (int i = warp; i < kOrdersRows; i += kOrdersWarps) {
    const int64_t r = block.row * kOrdersRows + i;
    if (r >= call.rows) break;
    const Numbers8 x = load_gradient<kBf16>(call, r, c);
    if (call.by_column.codes != nullptr) {
      const float f = call.by_column.fold == nullptr ? 1.0f : call.by_column.fold[r];
      for (int k = 0; k < 8; ++k) {
        const int bits = abs_bits(x.v[k] * f);
        if (k < count && bits > max[k]) max[k] = bits;
      }
    }
    if (call.by_row.codes == nullptr) continue;
    int top = 0;
    for (int k = 0; k < 8; ++k) {
      const int bits = abs_bits(x.v[k] * fold.v[k]);
      if (k < count && bits > top) top = bits;
    }
    top = __reduce_max_sync(0xffffffffu, top);
    if (lane == 0) atomicMax(reinterpret_cast<int*>(call.by_row.scales) + r, top);
  }
  if (call.by_column.codes == nullptr) return;
  for (int k = 0; k < 8; ++k) of_warp[warp][k * 32 + lane] = max[k];
  __syncthreads();
  int top = 0;
  for (int w = 0; w < kOrdersWarps; ++w) top = of_warp[w][threadIdx.x] > top ? of_warp[w][threadIdx.x] : top;
  const int64_t column = block.col * kBlockCols + 8 * lane + warp;  // word warp * 32 + lane
  if (column < call.cols) atomicMax(reinterpret_cast<int*>(call.by_column.scales) + column, top);
}

// Converts the largest bits to scales, in place.
BITGRAD_GLOBAL void scales_kernel(int64_t n, float* scales, uint32_t* flags) {
  for (int64_t i = thread_index(); i < n; i += thread_count()) {
    const int bits = __float_as_int(scales[i]);
    const float s = __int_as_float(bits) / kQmax;
    scales[i] = bits >= kInfinity ? __int_as_float(0x7FC00000) : (s < kEps ? kEps : s);
    if (bits >= kInfinity && flags != nullptr) atomicOr(flags, kFlagNonFinite);
  }
}

BITGRAD_DEVICE inline uint64_t int8_byte(float folded, float scale, bool stochastic, uint16_t draw) {
  using namespace quantize_loops;
  int q = 0;
  if (scale == scale) {
    q = int8_code(folded * (1.0f / scale), stochastic, draw);
  } else if (is_finite_number(folded)) {
    q = stochastic ? stochastic_code(folded, 0.0f, -kQmax - 1.0f, kQmax + 1.0f, int8_parts(), draw)
                   : nearest_code(folded, 0);
    q = clamp_int(q, -127, 127);
  }
  return static_cast<uint64_t>(static_cast<uint8_t>(q));
}

// Stores whole octets up to the stride, which clears what follows the columns.
BITGRAD_DEVICE inline void store_order(const OrderCall& order, int64_t r, int64_t o, uint64_t bytes) {
  const CodeRows rows{order.codes, order.stride, order.stride, 8, 8};
  if (8 * o < order.stride) store_octet(rows, r, o, bytes);
}

// The codes of an octet in both orders.
struct BothCodes {
  uint64_t by_row = 0, by_column = 0;
};
template <bool kBf16>
BITGRAD_DEVICE inline BothCodes codes_of_octet(const OrdersCall& call, int64_t r, int64_t c) {
  const OrderCall &a = call.by_row, &b = call.by_column;
  const int64_t count = call.cols - c, element = r * call.cols + c;
  BothCodes out;
  if (count <= 0) return out;
  const Numbers8 x = load_gradient<kBf16>(call, r, c);
  if (a.codes != nullptr) {
    const Draws8 draws = a.stochastic ? draws8(a.draws, static_cast<uint64_t>(a.first_element + element)) : Draws8{};
    const float scale = a.scales[r];
    for (int k = 0; k < 8; ++k)
      if (k < count)
        out.by_row |= int8_byte(a.fold == nullptr ? x.v[k] : x.v[k] * a.fold[c + k], scale, a.stochastic, draws.v[k])
                      << (8 * k);
  }
  if (b.codes != nullptr) {
    const Draws8 draws = b.stochastic ? draws8(b.draws, static_cast<uint64_t>(b.first_element + element)) : Draws8{};
    const float fold = b.fold == nullptr ? 1.0f : b.fold[r];
    for (int k = 0; k < 8; ++k)
      if (k < count) out.by_column |= int8_byte(x.v[k] * fold, b.scales[c + k], b.stochastic, draws.v[k]) << (8 * k);
  }
  return out;
}

template <bool kBf16>
BITGRAD_GLOBAL void int8_codes_kernel(OrdersCall call, int64_t octets) {
  const OrderCall &a = call.by_row, &b = call.by_column;
  for (int64_t i = thread_index(); i < call.rows * octets; i += thread_count()) {
    const Cell at = cell_of(i, octets);
    const BothCodes codes = codes_of_octet<kBf16>(call, at.row, 8 * at.col);
    if (a.codes != nullptr) store_order(a, at.row, at.col, codes.by_row);
    if (b.codes != nullptr) store_order(b, at.row, at.col, codes.by_column);
  }
}

// Same with by_column transposed: a block processes a tile of 128 x 128 values and transposes its codes in shared
// memory.
template <bool kBf16>
BITGRAD_GLOBAL void __launch_bounds__(kTileThreads, 3) int8_codes_turned_kernel(OrdersCall call, int64_t octets) {
  __shared__ uint32_t tile[kTileWords];
  const OrderCall &a = call.by_row, &b = call.by_column;
  const TilePlace at = tile_place(call.rows);
  for (int i = static_cast<int>(threadIdx.x); i < kTileOctets; i += kTileThreads) {
    const int r = i / (kTileSide / 8), o = i % (kTileSide / 8);
    const int64_t row = at.row + r, octet = at.col / 8 + o;
    BothCodes codes;
    if (row < call.rows && octet < octets) {
      codes = codes_of_octet<kBf16>(call, row, 8 * octet);
      if (a.codes != nullptr) store_order(a, row, octet, codes.by_row);
    }
    put_octet(tile, r, o, codes.by_column);
  }
  __syncthreads();
  store_transposed(tile, at, call.cols, {b.codes, b.stride, b.stride, 8, 8});
}

namespace {

OrderCall order_call(const Int8Order& order) {
  ensure(order.codes == nullptr ||
             (reinterpret_cast<uintptr_t>(order.codes) | static_cast<uint64_t>(order.stride)) % 8 == 0,
         "quantize_int8_orders", "codes at a stride of ", order.stride, " bytes, expected whole words");
  OrderCall call{order.fold,         order.scales,        reinterpret_cast<uint8_t*>(order.codes),
                 order.stride,       order.first_element, {},
                 order.sr != nullptr};
  if (order.sr != nullptr) call.draws = *order.sr;
  return call;
}

template <bool kBf16>
void run_orders(const OrdersCall& call, bool turned) {
  const int64_t blocks = ceil_div(call.rows, kOrdersRows) * ceil_div(call.cols, kBlockCols);
  const LaunchShape shape{{static_cast<unsigned>(blocks)}, {32 * kOrdersWarps}, 0, 1, "int8_largest_cuda"};
  launch(largest_kernel<kBf16>, shape, call);
  int64_t octets = ceil_div(call.cols, 8);
  const auto finish = [&](const OrderCall& order, int64_t n) {
    if (order.codes == nullptr) return;
    launch(scales_kernel, cover(n, "int8_scales_cuda"), n, order.scales, call.flags);
    if (order.stride > 8 * octets && !(turned && &order == &call.by_column)) octets = order.stride / 8;
  };
  finish(call.by_row, call.rows);
  finish(call.by_column, call.cols);
  if (turned) {
    // Tiles extend to the stride of by_row, to clear the rest of its rows.
    const LaunchShape tiles{
        {static_cast<unsigned>(tile_count(call.rows, 8 * octets))}, {kTileThreads}, 0, 1, "int8_codes_turned_cuda"};
    return launch(int8_codes_turned_kernel<kBf16>, tiles, call, octets);
  }
  launch(int8_codes_kernel<kBf16>, cover(call.rows * octets, "int8_codes_cuda"), call, octets);
}

}  // namespace

bool quantize_int8_orders_cuda(const Int8OrdersArgs& args) {
  const OrdersCall call{args.rows,
                        args.cols,
                        args.x,
                        args.bf16 ? lies_on<8>(static_cast<const uint16_t*>(args.x)) && args.cols % 8 == 0
                                  : rows_lie_on_four(static_cast<const float*>(args.x), args.cols),
                        order_call(args.by_row),
                        order_call(args.by_column),
                        args.flags};
  const auto clear = [](const OrderCall& order, int64_t n) {
    if (order.codes != nullptr && n > 0) fill_async(order.scales, 0, 4 * n, current_stream());
  };
  clear(call.by_row, args.rows);
  clear(call.by_column, args.cols);
  const bool turned = args.by_column.turned && args.by_column.codes != nullptr;
  ensure(!args.by_row.turned, "quantize_int8_orders", "codes by row are not turned");
  args.bf16 ? run_orders<true>(call, turned) : run_orders<false>(call, turned);
  return true;
}

}  // namespace bitgrad::cuda
