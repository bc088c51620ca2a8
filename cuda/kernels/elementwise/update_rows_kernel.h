// The kernel of the sweep update_rows, for one update rule and one code rule.
//
// A team updates the values of its row, four adjacent ones per thread, and keeps the new ones in shared memory. From
// them it computes the row's scale, then codes in octets. Layouts that mix rows come last, from the canonical codes of
// the block's rows, which are then in a cache: 8 rows fill whole bytes of layout transposed, 16 rows whole words of
// frag64.
#pragma once

#include "bitgrad/dtype/bf16.h"
#include "cuda/kernels/elementwise/update_formulas.h"
#include "cuda/kernels/elementwise/update_rows.h"
#include "cuda/kernels/pack/frag64.h"
#include "cuda/kernels/quantize/element.h"
#include "cuda/kernels/reduce/sums.h"
#include "kernels/map/scales.h"
#include "kernels/map/straight_through.h"

namespace bitgrad::cuda::sweep {

// Row scales in the sweep update_rows, which a team of threads computes from the new values of its row.

// A thread's place in its team, which is a warp or the whole block.
struct Seat {
  int thread, team;
  BITGRAD_DEVICE void meet() const {
    if (team == 32)
      __syncwarp();
    else
      __syncthreads();
  }
};

// Minimum and maximum; NaN is skipped.
struct Range {
  float low, high;
  BITGRAD_DEVICE static Range none() { return {__int_as_float(0x7F800000), -__int_as_float(0x7F800000)}; }
  BITGRAD_DEVICE void accumulate(float x) { join({x, x}); }
  BITGRAD_DEVICE void join(Range v) {
    low = v.low < low ? v.low : low;
    high = v.high > high ? v.high : high;
  }
};

// The range over all threads of the team, returned in each. The team must have synchronized since the previous row.
BITGRAD_DEVICE inline Range range_of_team(const Seat& seat, Range mine) {
  __shared__ Range of_warp[kSweepThreads / 32];
  for (int d = 16; d >= 1; d /= 2)
    mine.join({__shfl_xor_sync(0xFFFFFFFFu, mine.low, d), __shfl_xor_sync(0xFFFFFFFFu, mine.high, d)});
  if (seat.team == 32) return mine;
  if (seat.thread % 32 == 0) of_warp[seat.thread / 32] = mine;
  __syncthreads();
  for (int i = 0; i < kSweepThreads / 32; ++i) mine.join(of_warp[i]);
  return mine;
}

// The sum of term(x[i]), i < n, in the order of docs/numerics.md section 8, returned in each thread of the team. part
// is memory for the chunks that only this team uses.
template <typename Term>
BITGRAD_DEVICE inline float sum_of_team(const Seat& seat, const float* x, int64_t n, float* part, Term term) {
  const int64_t chunks = (n + sums::kChunk - 1) / sums::kChunk;
  const int lane = seat.thread % sums::kLanes, half = seat.thread / sums::kLanes % 2;
  for (int64_t first = seat.thread / 32 * 2; first < chunks; first += seat.team / sums::kLanes) {
    const int64_t begin = (first + half) * sums::kChunk, end = begin + sums::kChunk < n ? begin + sums::kChunk : n;
    float sum = 0.0f;
    for (int64_t i = begin + lane; i < end; i += sums::kLanes) sum = sum + term(x[i]);
    for (int d = sums::kLanes / 2; d >= 1; d /= 2) sum = sum + sums::down(sum, d, sums::kLanes);
    if (lane == 0 && first + half < chunks) part[first + half] = sum;
  }
  seat.meet();
  for (int64_t d = 1; d < chunks; d *= 2) {
    for (int64_t i = 2 * d * seat.thread; i + d < chunks; i += 2 * d * seat.team) part[i] = part[i] + part[i + d];
    seat.meet();
  }
  const float sum = part[0];
  seat.meet();
  return sum;
}

// Stores scale and zero point of row r computed from its range. Called by one thread.
BITGRAD_DEVICE inline void store_range(const SweepCall& call, int64_t r, const Range& range) {
  const RowFit& fit = call.fit;
  const maps::q::RangeBlocks block{&range.low,
                                   &range.high,
                                   fit.lo,
                                   fit.hi,
                                   fit.eps,
                                   {call.scale + r, call.codes.flags, fit.rounding},
                                   call.zero == nullptr ? nullptr : call.zero + r,
                                   nullptr};
  switch (fit.rule) {
    case RowFit::kAbsmax:
      return maps::AbsmaxScales{block}(0);
    case RowFit::kSymmetric:
      return maps::SymmetricScales{block}(0);
    case RowFit::kSymmetricNoClip:
      return maps::SymmetricNoClipScales{block}(0);
    default:
      return maps::AffineScales{block}(0);
  }
}

// Fits the scale of row r to the values x. range covers the values this thread has seen. The team must have
// synchronized after x was complete; it synchronizes again before returning, so that the scale can be read.
BITGRAD_DEVICE inline void fit_row(const SweepCall& call, const Seat& seat, int64_t r, const float* x, Range range) {
  const maps::q::BlockOut out{call.scale + r, call.codes.flags, call.fit.rounding};
  if (call.fit.rule < RowFit::kMeanAbs) {
    range = range_of_team(seat, range);
    if (seat.thread == 0) store_range(call, r, range);
  } else if (call.cols == 0) {
    if (seat.thread == 0) out.store(0, call.fit.eps);
  } else {
    float* const part = call.partial + r * call.chunks;
    const bool abs = call.fit.rule == RowFit::kMeanAbs;
    const float sum = sum_of_team(seat, x, call.cols, part,
                                  [abs](float v) { return abs ? (v < 0.0f ? -v : v) : (v > 0.0f ? v : 0.0f); });
    if (abs) {
      const maps::q::BlockSizes size{maps::q::BlockSizes::kRows, call.rows, call.cols, 0};
      if (seat.thread == 0) maps::BlockScales{&sum, size, true, 1.0f, 1.0f, call.fit.eps, out}(0);
    } else {
      const float count = sum_of_team(seat, x, call.cols, part, [](float v) { return v > 0.0f ? 1.0f : 0.0f; });
      if (seat.thread == 0) maps::MeanAboveScales{&sum, &count, call.fit.eps, out}(0);
    }
  }
  seat.meet();
}

// No codes: identity, and rules that read neither range nor scales.
struct NoCodes {
  static constexpr bool kAny = false;
};
template <CodeRule kCodeRule>
struct Codes {
  static constexpr bool kAny = true;
  static constexpr CodeRule kRule = kCodeRule;
};

template <int N>
BITGRAD_DEVICE inline Pack<float, N> load_sums(const SweepCall& call, int64_t i) {
  if (!call.bf16) return load_pack<N>(static_cast<const float*>(call.sums) + i);
  const Pack<uint16_t, N> narrow = load_pack<N>(static_cast<const uint16_t*>(call.sums) + i);
  Pack<float, N> out;
  for (int k = 0; k < N; ++k) out.v[k] = bf16_to_float(narrow.v[k]);
  return out;
}

// Converts the sums at (r, c) and the elements after it to gradients of the values w there.
template <int N, typename C>
BITGRAD_DEVICE inline void finish(const SweepCall& call, float factor, int64_t r, int64_t c, const Pack<float, N>& w,
                                  Pack<float, N>& g) {
  if (call.divisor != 1.0f)
    for (int k = 0; k < N; ++k) g.v[k] = g.v[k] / call.divisor;
  if constexpr (C::kAny) {
    if (call.ste == SteRule::kClip || call.times_scale) {
      Params p(call.before.scale, r, c, kInverts<C::kRule>);
      for (int k = 0; k < N; ++k) {
        if (k > 0) p.advance();
        if (call.times_scale) g.v[k] = g.v[k] * p.scale;
        if (call.ste == SteRule::kClip && !clip_passes<C::kRule>(call.before, w.v[k], p)) g.v[k] = 0.0f;
      }
    }
  }
  for (int k = 0; k < N; ++k) {
    if (call.ste == SteRule::kApproxSign) g.v[k] = g.v[k] * maps::q::approx_sign_slope(w.v[k]);
    if (call.ste == SteRule::kNone) g.v[k] = 0.0f;
    if (call.clip_value > 0) g.v[k] = clamp_number(g.v[k], -call.clip_value, call.clip_value);
    g.v[k] = g.v[k] * factor;
  }
}

// Updates the values at (r, c) and after it; returns the new ones.
template <int N, typename C, typename Update>
BITGRAD_DEVICE inline Pack<float, N> move_numbers(const SweepCall& call, const Update& update, float factor, int64_t r,
                                                  int64_t c) {
  constexpr int kStates = Update::kStates;
  const int64_t i = r * call.cols + c;
  Pack<float, N> in[2 + kStates], out[1 + kStates];
  in[0] = load_sums<N>(call, i);
  in[1] = load_pack<N>(call.w + i);
  for (int s = 0; s < kStates; ++s) in[2 + s] = load_pack<N>(call.state[s] + i);
  finish<N, C>(call, factor, r, c, in[1], in[0]);
  for (int k = 0; k < N; ++k) {
    float x[2 + kStates], y[1 + kStates];
    for (int a = 0; a < 2 + kStates; ++a) x[a] = in[a].v[k];
    update(x, y);
    if (call.clamps) y[0] = clamp_number(y[0], -call.clamp, call.clamp);
    if (call.floors) y[0] = clamp_number(y[0], call.floor, __int_as_float(0x7F800000));
    for (int a = 0; a < 1 + kStates; ++a) out[a].v[k] = y[a];
  }
  store_pack<N>(call.w + i, out[0]);
  for (int s = 0; s < kStates; ++s) store_pack<N>(call.state[s] + i, out[1 + s]);
  return out[0];
}

// Column range of a block.
struct Columns {
  int64_t begin, end;
};

template <typename C, typename Update>
BITGRAD_DEVICE inline void update_row(const SweepCall& call, const Update& of_call, const Seat& seat, int64_t r,
                                      const Columns& columns, float* kept, Range& range) {
  const Update update = of_call.now();
  const float factor = call.live != nullptr ? call.live->factor : call.factor;
  const auto take = [&]<int N>(int64_t c) {
    const Pack<float, N> x = move_numbers<N, C>(call, update, factor, r, c);
    if constexpr (C::kAny) {
      if (!call.coded) return;
      for (int k = 0; k < N; ++k) range.accumulate(x.v[k]);
      if (kept != nullptr) store_pack<N>(kept + (c - columns.begin), x);
    }
  };
  const int64_t packed = call.by_four ? columns.begin + (columns.end - columns.begin) / 4 * 4 : columns.begin;
  for (int64_t c = columns.begin + 4 * seat.thread; c < packed; c += 4 * seat.team) take.template operator()<4>(c);
  for (int64_t c = packed + seat.thread; c < columns.end; c += seat.team) take.template operator()<1>(c);
}

template <CodeRule kRule>
BITGRAD_DEVICE inline void code_row(const SweepCall& call, const Seat& seat, int64_t r, const Columns& columns,
                                    const float* x, bool wide) {
  const int64_t end = columns.end == call.cols ? padded_octets(call.cols) : columns.end / 8;
  const RowParams p(call.codes.scale, r, kInverts<kRule>);
  int sum = 0;
  for (int64_t o = columns.begin / 8 + seat.thread; o < end; o += seat.team) {
    const int64_t c = 8 * o, count = columns.end - c;
    OctetCodes codes;
    if (count > 0)
      codes =
          code_numbers<kRule>(call.codes, Levels{}, r, c, count, load_numbers(x + (c - columns.begin), count, wide), p);
    store_codes(call.codes, r, o, codes);
    sum += sum_codes(call.codes, codes.bytes);
  }
  if (call.codes.row_sums == nullptr) return;
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
  if (threadIdx.x % 32 == 0 && sum != 0) atomicAdd(call.codes.row_sums + r, sum);
}

// Writes rows row .. row + block_rows to layout transposed, eight at a time.
BITGRAD_DEVICE inline void transpose_rows(const SweepCall& call, int64_t row, const Columns& columns) {
  const CodeRows& from = call.codes.codes;
  for (int64_t first = row; first < row + call.block_rows; first += 8)
    for (int64_t c = columns.begin + threadIdx.x; c < columns.end; c += kSweepThreads) {
      uint64_t codes = 0;
      for (int k = 0; k < 8; ++k)
        if (first + k < call.rows)
          codes |= static_cast<uint64_t>(gemm::raw_code(from.data + (first + k) * from.stride, c, from.bits))
                   << (k * from.bits);
      store_octet(call.transposed, c, first / 8, codes);
    }
}

// Writes the 16 rows from `row` on, which belong to one warp in frag64's thread order.
BITGRAD_DEVICE inline void fragment_rows(const SweepCall& call, int64_t row, const Columns& columns) {
  using namespace frag64_layout;
  const Frag64Args& args = call.frag64;
  const int64_t column_block = columns.begin / kColumns, all = column_blocks(call.cols);
  const int64_t blocks = column_blocks(columns.end) - column_block, share = block_bytes(args.bits) / 16;  // words
  const int warp = static_cast<int>(row % kRows) / 16;
  for (int64_t i = threadIdx.x; i < blocks * share; i += kSweepThreads) {
    const Cell at = cell_of(i, share);
    int word = static_cast<int>(at.col), before = 0;
    Frag64Part part{4, args.bits};
    for (; part.bits > 0; part.bits /= 2) {
      if ((args.bits & part.bits) == 0) continue;
      part.position -= part.bits;
      if (word < 64 * part.bits) break;
      word -= 64 * part.bits;
      before += static_cast<int>(block_bytes(part.bits));
    }
    // Words in memory order: at most 16 bytes of a thread are contiguous.
    const int together = part.bits == 1 ? 2 : 4, thread = 32 * warp + word / together % 32;
    const WordPlace own{thread, word % together + word / (32 * together) * together};
    const int64_t block = row / kRows * all + column_block + at.row;
    const int64_t byte = block * block_bytes(args.bits) + before + word_byte(part.bits, thread, own.word);
    args.out[byte / 4] = frag64_word(args, row / kRows * kRows, (column_block + at.row) * kColumns, part, own);
  }
}

template <typename C, typename Update>
BITGRAD_GLOBAL void __launch_bounds__(kSweepThreads, 2) update_rows_kernel(Update update, SweepCall call) {
  const Cell block = cell_of(blockIdx.x, call.pieces);
  const int64_t row = block.row * call.block_rows, begin = block.col * call.piece;
  const Columns columns{begin, begin + call.piece < call.cols ? begin + call.piece : call.cols};
  const int teams = kSweepThreads / call.team, team = static_cast<int>(threadIdx.x) / call.team;
  const Seat seat{static_cast<int>(threadIdx.x) % call.team, call.team};
  float* const kept = call.room == 0 ? nullptr : dynamic_shared<float>() + team * call.room;
  for (int64_t r = row + team; r < row + call.block_rows && r < call.rows; r += teams) {
    Range range = Range::none();
    update_row<C>(call, update, seat, r, columns, kept, range);
    if constexpr (C::kAny) {
      if (!call.coded) continue;
      const float* const x = kept != nullptr ? kept : call.w + r * call.cols + begin;
      seat.meet();
      if (call.fitted) fit_row(call, seat, r, x, range);
      code_row<C::kRule>(call, seat, r, columns, x, kept != nullptr || call.by_four);
      seat.meet();
    }
  }
  if constexpr (C::kAny) {
    if (call.transposed.data == nullptr && call.frag64.out == nullptr) return;
    __syncthreads();
    if (call.transposed.data != nullptr) transpose_rows(call, row, columns);
    if (call.frag64.out != nullptr) fragment_rows(call, row, columns);
  }
}

template <typename Update>
void launch_rows(const Update& update, const SweepCall& call, const LaunchShape& shape) {
  if (!call.knows_codes) return launch(update_rows_kernel<NoCodes, Update>, shape, update, call);
#define BITGRAD_SWEEP_RULE(name) \
  if (call.rule == CodeRule::name) launch(update_rows_kernel<Codes<CodeRule::name>, Update>, shape, update, call);
#include "kernels/sweep_rules.inc"
#undef BITGRAD_SWEEP_RULE
}

}  // namespace bitgrad::cuda::sweep
