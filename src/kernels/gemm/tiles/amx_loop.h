// The loop over blocks of 32 x 32 sums, written once over an Isa: its tile instructions (Isa::Tiles), its expansion of
// codes (Isa::Fill<format>) and how it writes rows of C (Isa::Writer). Isa is a type in an unnamed namespace, so that
// object files share no instances.
//
// Sums stay in tiles over all of k. Everything else that a block needs overlaps with its products: the codes of the
// step three ahead are expanded into the ring, a quarter after each product; the sums of a block are stored between the
// first products of the next one, and finished (scaled, written) a few steps later, some rows per step. A dummy tile
// store runs every 16 steps: if none has run for some 2000 cycles, the next one stalls for as many as 950 (measured on
// Sapphire Rapids). Tiles are configured at every entry, because other code of the process may release them, and
// released at the end, so that a context switch has little to save.
//
// This header is included inside a target region: no std:: here.
#pragma once

#include "kernels/gemm/tiles/amx_tiles.h"

namespace bitgrad::kernels::gemm_detail {

template <typename Isa, TileFormat kFormat, TileProduct kProduct, int kParts>
class TileLoop {
 public:
  explicit TileLoop(const TileTask& task)
      : task_(task), fill_(task.unsigned_fields), pairs_((task.panels + 1) / 2), rounds_(task.blocks * kParts) {
    // The finish of a block starts at its tenth step, or after an eighth of its steps, and ends by its last.
    finish_from_ = task.steps < 16 ? 1 : task.steps < 80 ? task.steps / 8 : 10;
    const int64_t steps = task.steps > finish_from_ ? task.steps - finish_from_ : 1;
    finish_rows_ = static_cast<int>((kBlockSide + steps - 1) / steps);
    const int min = task.direct.c != nullptr ? kLeastDirectRows : kLeastFinishRows;
    if (finish_rows_ < min) finish_rows_ = min;
  }

  void run() {
    static constexpr TileConfig kConfig = block_config();
    Tiles::configure(kConfig);
    set_source(0);
    if constexpr (kExpands) {
      for (int i = 0; i < kRingSteps - 1; ++i) expand_step(fill_);
    }
    for (int64_t pair = 0; pair < pairs_; ++pair) {
      for (int64_t block = 0; block < task_.blocks; ++block) {
        const bool half = task_.half_block && block == task_.blocks - 1;
        for (int part = 0; part < kParts; ++part)
          half ? multiply_block<1>({pair, block, part}) : multiply_block<2>({pair, block, part});
      }
    }
    store_last();
    Tiles::release();
    if (task_.direct.streamed) Isa::Writer::fence();
  }

 private:
  using Tiles = typename Isa::Tiles;
  using Fill = typename Isa::template Fill<kFormat>;
  static constexpr bool kExpands = kFormat != TileFormat::kBytes;
  static constexpr int kDummyStoreSteps = 16;
  static constexpr SumKind kSums = kProduct == TileProduct::kBf16 ? SumKind::kFloats
                                   : kParts > 1                   ? SumKind::kDigits
                                                                  : SumKind::kCodes;
  // A call of finish stalls the tiles for some 80 cycles; rows that miss the cache together wait only once.
  static constexpr int kLeastFinishRows = 8, kLeastDirectRows = 4;
  static constexpr int64_t kPanelStep = panel_step_bytes(kFormat);
  struct Place {
    int64_t pair, block;
    int part;
  };

  // ---- locations ----
  const uint8_t* panel(int64_t pair, int side) const {
    const int64_t at = 2 * pair + side;
    return task_.b + (at < task_.panels ? at : task_.panels - 1) * task_.panel_stride;
  }
  uint8_t* slot(const Place& place) {
    if (task_.sums == nullptr) return scratch_ + place.part * kSumBytes;
    return task_.sums + place.pair * task_.sums_stride + (place.block * kParts + place.part) * kSumBytes;
  }
  static constexpr int64_t tile_offset(int tile) { return tile / 2 * kTileRows * kSumsStride + tile % 2 * kTileBytes; }

  // ---- the ring ----
  void set_source(int64_t pair) {
    source_pair_ = pair;
    source_step_ = 0;
    source_[0] = panel(pair, 0);
    source_[1] = panel(pair, 1);
    set_second_word();
  }
  // There may be nothing to read after the last, odd word of a panel. A is zero there, so any word serves.
  void set_second_word() { second_word_ = task_.odd_words && source_step_ == task_.steps - 1 ? 0 : kTileBytes; }
  template <int kQuarter>
  [[gnu::always_inline]] void expand(const Fill& fill) {
    if constexpr (kExpands) {
      constexpr int kSide = kQuarter / 2, kHalf = kQuarter % 2;
      fill.template half_tile<kHalf>(source_[kSide], second_word_,
                                     ring_ + ring_write_ * kStepBytes + kQuarter * (kStepBytes / 4));
    }
  }
  void advance() {
    if constexpr (kExpands) {
      ring_write_ = (ring_write_ + 1) & (kRingSteps - 1);
      if (++source_step_ < task_.steps) {
        source_[0] += kPanelStep;
        source_[1] += kPanelStep;
        set_second_word();
        return;
      }
      // The same panels for the next rows, then the next pair. After the last pair it is expanded again, but never
      // read.
      const bool next = ++source_round_ >= rounds_ && source_pair_ + 1 < pairs_;
      if (next) source_round_ = 0;
      set_source(source_pair_ + next);
    }
  }
  [[gnu::always_inline]] void expand_step(const Fill& fill) {
    expand<0>(fill);
    expand<1>(fill);
    expand<2>(fill);
    expand<3>(fill);
    advance();
  }

  // ---- one step ----
  template <int kRowTiles>
  void load_operands(const uint8_t* a) {
    const uint8_t *left = dense_[0], *right = dense_[1];
    if constexpr (kExpands) {
      left = ring_ + ring_read_ * kStepBytes;
      right = left + kStepBytes / 2;
      ring_read_ = (ring_read_ + 1) & (kRingSteps - 1);
    } else {
      dense_[0] += kPanelStep;
      dense_[1] += kPanelStep;
    }
    Tiles::template load<6>(left, kTileBytes);
    Tiles::template load_streamed<4>(a, kTileBytes);
    Tiles::template load<7>(right, kTileBytes);
    if constexpr (kRowTiles == 2) Tiles::template load_streamed<5>(a + kStepBytes / 2, kTileBytes);
  }
  template <int kTile, int kRowTiles>
  void multiply() {
    if constexpr (kTile < 2 * kRowTiles) Tiles::template multiply<kProduct, kTile, 4 + kTile / 2, 6 + kTile % 2>();
  }
  // Stores the previous block's sums and begins this block's.
  template <int kTile, int kRowTiles>
  void turn(uint8_t* sums) {
    if (previous_sums_ != nullptr) Tiles::template store<kTile>(previous_sums_ + tile_offset(kTile), kSumsStride);
    if (task_.resume)
      Tiles::template load<kTile>(sums + tile_offset(kTile), kSumsStride);
    else
      Tiles::template zero<kTile>();
    multiply<kTile, kRowTiles>();
  }

  template <int kRowTiles>
  void multiply_block(Place place) {
    const uint8_t* a = task_.a + (place.block * kParts + place.part) * task_.steps * kStepBytes;
    uint8_t* sums = slot(place);
    dense_[0] = panel(place.pair, 0);
    dense_[1] = panel(place.pair, 1);
    load_operands<kRowTiles>(a);
    turn<0, kRowTiles>(sums);
    turn<1, kRowTiles>(sums);
    turn<2, kRowTiles>(sums);
    turn<3, kRowTiles>(sums);
    // A local copy whose address is not taken stays in registers; the asm's "memory" clobber would reload a member.
    const Fill fill = fill_;
    expand_step(fill);
    const bool finishing = task_.finish != nullptr && previous_sums_ != nullptr && previous_.part == kParts - 1;
    const bool fetching = finishing && !task_.direct.streamed;
    int finished = 0, fetched = 0;
    if (finishing && task_.steps == 1) finished = finish_some(finished, kBlockSide);
    for (int64_t step = 1; step < task_.steps; ++step) {
      a += kStepBytes;
      load_operands<kRowTiles>(a);
      multiply<0, kRowTiles>();
      expand<0>(fill);
      multiply<1, kRowTiles>();
      expand<1>(fill);
      multiply<2, kRowTiles>();
      expand<2>(fill);
      multiply<3, kRowTiles>();
      expand<3>(fill);
      advance();
      if (step % kDummyStoreSteps == 0) Tiles::template store<4>(dummy_, kTileBytes);
      if (fetching && fetched < kBlockSide) fetched = fetch_some(fetched);
      if (finishing && step >= finish_from_ && finished < kBlockSide) finished = finish_some(finished, finish_rows_);
    }
    previous_ = place;
    previous_sums_ = sums;
  }

  // Finishes rows [from, from + count) of the previous block; returns where they end.
  [[gnu::always_inline]] int finish_some(int from, int count) {
    const int end = from + count < kBlockSide ? from + count : kBlockSide;
    const uint8_t* sums = previous_sums_ - (kParts - 1) * kSumBytes;
    if (task_.direct.c != nullptr && (previous_.pair + 1) * kBlockSide <= task_.direct.columns)
      write_directly(sums, from, end);
    else
      task_.finish(task_.context, previous_.block, previous_.pair, sums, from, end);
    return end;
  }
  [[gnu::always_inline]] void write_directly(const uint8_t* sums, int from, int end) {
    const int64_t first = previous_.block * kBlockSide, left = task_.direct.rows - first;
    const int64_t stop = end < left ? end : left;
    if (from < stop)
      Isa::Writer::template write<kSums, kParts>(task_.direct, sums + from * kSumsStride, first + from, first + stop,
                                                 previous_.pair * kBlockSide);
  }
  // Prefetches lines of C that finish_some will write: a store that misses delays the stores into the ring behind it.
  int fetch_some(int from) {
    const int end = from + finish_rows_ < kBlockSide ? from + finish_rows_ : kBlockSide;
    const uint8_t* c = task_.c + (previous_.block * kBlockSide + from) * task_.c_row + previous_.pair * task_.c_pair;
    for (int r = from; r < end; ++r, c += task_.c_row)
      for (int64_t line = 0; line < task_.c_pair; line += kTileBytes) __builtin_prefetch(c + line, 1);
    return end;
  }
  void store_last() {
    if (previous_sums_ == nullptr) return;
    Tiles::template store<0>(previous_sums_ + tile_offset(0), kSumsStride);
    Tiles::template store<1>(previous_sums_ + tile_offset(1), kSumsStride);
    Tiles::template store<2>(previous_sums_ + tile_offset(2), kSumsStride);
    Tiles::template store<3>(previous_sums_ + tile_offset(3), kSumsStride);
    if (task_.finish != nullptr) finish_some(0, kBlockSide);
  }

  const TileTask& task_;
  const Fill fill_;
  const int64_t pairs_, rounds_;  // rounds: how often a pair's codes are read
  int64_t finish_from_ = 0;
  int finish_rows_ = 0;
  const uint8_t* source_[2] = {};  // what is expanded next
  int64_t source_pair_ = 0, source_step_ = 0, source_round_ = 0, second_word_ = 0;
  const uint8_t* dense_[2] = {};
  int64_t ring_write_ = 0, ring_read_ = 0;
  Place previous_{};
  uint8_t* previous_sums_ = nullptr;
  alignas(64) uint8_t ring_[kRingSteps * kStepBytes];
  alignas(64) uint8_t scratch_[kParts * kSumBytes];
  alignas(64) uint8_t dummy_[kStepBytes / 2];
};

template <typename Isa, TileFormat kFormat, TileProduct kProduct, int kParts>
void run_tile_loop(const TileTask& task) {
  TileLoop<Isa, kFormat, kProduct, kParts> loop(task);
  loop.run();
}

using TileLoopFunction = void (*)(const TileTask&);
// The products that exist; nullptr for the others.
template <typename Isa>
struct TileLoops {
  using F = TileFormat;
  using P = TileProduct;
  template <F kFormat, P kProduct, int kParts = 1>
  static constexpr TileLoopFunction kLoop = &run_tile_loop<Isa, kFormat, kProduct, kParts>;
  // [product][format]
  static constexpr TileLoopFunction kWhole[5][kTileFormats] = {
      {kLoop<F::kSign, P::kSS>, kLoop<F::kBits1, P::kSS>, kLoop<F::kBits2, P::kSS>, kLoop<F::kBits4, P::kSS>,
       kLoop<F::kBytes, P::kSS>, nullptr},
      {nullptr, nullptr, nullptr, nullptr, kLoop<F::kBytes, P::kSU>, nullptr},
      {kLoop<F::kSign, P::kUS>, kLoop<F::kBits1, P::kUS>, kLoop<F::kBits2, P::kUS>, kLoop<F::kBits4, P::kUS>,
       kLoop<F::kBytes, P::kUS>, nullptr},
      {nullptr, nullptr, nullptr, nullptr, kLoop<F::kBytes, P::kUU>, nullptr},
      {nullptr, nullptr, nullptr, nullptr, nullptr, kLoop<F::kHalf, P::kBf16>}};
  // [parts][kSign, kBytes]
  static constexpr TileLoopFunction kDigits[2][2] = {{kLoop<F::kSign, P::kSS, 2>, kLoop<F::kBytes, P::kSS, 2>},
                                                     {kLoop<F::kSign, P::kSS, 3>, kLoop<F::kBytes, P::kSS, 3>}};
  static TileLoopFunction find(F format, P product, int parts) {
    if (parts == 1) return kWhole[static_cast<int>(product)][static_cast<int>(format)];
    if (product != P::kSS || (format != F::kSign && format != F::kBytes)) return nullptr;
    return kDigits[parts - 2][format == F::kBytes];
  }
};

}  // namespace bitgrad::kernels::gemm_detail
