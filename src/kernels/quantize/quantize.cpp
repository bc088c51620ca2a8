// Family quantize: values -> codes and straight-through masks. Cuts the work, reads the scales and calls the loops of
// the kernel's ISA.
#include "kernels/quantize.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "bitgrad/base/error.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/codec.h"
#include "kernels/elementwise/floats.h"
#include "kernels/kernel_table.h"
#include "kernels/quantize/chunk_params.h"
#include "kernels/quantize/plan.h"

namespace bitgrad::kernels {

quantize_loops::SortedLevels quantize_loops::sort_levels(const DTypeInfo& info) {
  SortedLevels out;
  for (size_t raw = 0; raw < info.levels.size(); ++raw) out.codes.push_back(static_cast<uint8_t>(raw));
  const auto level = [&](uint8_t raw) { return info.levels[raw]; };
  std::stable_sort(out.codes.begin(), out.codes.end(), [&](uint8_t a, uint8_t b) { return level(a) < level(b); });
  const auto last =
      std::unique(out.codes.begin(), out.codes.end(), [&](uint8_t a, uint8_t b) { return level(a) == level(b); });
  out.codes.erase(last, out.codes.end());
  for (size_t i = 0; i + 1 < out.codes.size(); ++i) {
    const double middle =
        0.5 * (static_cast<double>(level(out.codes[i])) + static_cast<double>(level(out.codes[i + 1])));
    float bound = static_cast<float>(middle);
    if (static_cast<double>(bound) > middle) bound = std::nextafter(bound, -std::numeric_limits<float>::infinity());
    out.bounds.push_back(bound);
  }
  size_t index = 0;
  while (index < out.bounds.size() && 0.0f > out.bounds[index]) ++index;
  if (!out.codes.empty()) out.zero = out.codes[index];
  return out;
}

namespace {

using namespace quantize_loops;

void raise_flag(uint32_t* flags) {
  if (flags != nullptr) std::atomic_ref<uint32_t>(*flags).fetch_or(kFlagNonFinite, std::memory_order_relaxed);
}

// Parameters for a rule that does not round.
ChunkParams without_zero(ChunkParams p) {
  static constexpr int32_t kNoZero = 0;
  p.per_element = false;
  p.zero = &kNoZero;
  return p;
}

// Short rows of byte codes with a single scale, such as image pixels, are quantized as one long row.
bool rows_join(const QuantizeArgs& args) {
  return args.cols > 0 && args.cols * 8 <= kChunk && args.ldx == args.cols && args.dtype.bits() == 8 &&
         args.mask == nullptr && args.scale.per_tensor();
}

// One chunk of a row: n <= kChunk elements from column c, a multiple of 64.
class ChunkQuantizer {
 public:
  ChunkQuantizer(const QuantizeLoops& loops, const QuantizeArgs& args, const Plan& plan)
      : loops_(loops), args_(args), plan_(plan), params_(loops, args.scale, multiplies(args.rule)) {}

  void run(int64_t r, int64_t c, int64_t n) {
    make_codes(r, c, n);
    const int64_t padded = (n + 63) / 64 * 64;
    const int bits = plan_.info.bits;
    std::memset(raw_ + n, 0, static_cast<size_t>(padded - n));
    loops_.pack(bits, padded, raw_, packed_);
    const int64_t bytes = c + n < args_.cols ? n / 8 * bits : row_bytes_memory(args_.dtype, args_.cols) - c / 8 * bits;
    std::memcpy(static_cast<char*>(args_.codes) + r * args_.stride + c / 8 * bits, packed_, static_cast<size_t>(bytes));
    if (args_.mask == nullptr) return;
    if (!plan_.clip) std::memset(pass_, 1, static_cast<size_t>(n));
    std::memset(pass_ + n, 0, static_cast<size_t>(padded - n));
    loops_.pack(1, padded, pass_, packed_);
    std::memcpy(args_.mask + r * ((args_.cols + 63) / 64) + c / 64, packed_, static_cast<size_t>(padded / 8));
  }
  // Whole rows that are joined, at most kChunk elements.
  void run_rows(int64_t r, int64_t rows) {
    make_codes(r, 0, rows * args_.cols);
    const int64_t bytes = row_bytes_memory(args_.dtype, args_.cols);
    auto* to = static_cast<char*>(args_.codes) + r * args_.stride;
    const uint8_t* from = raw_;
    if (bytes == 8) {  // a whole word is read, so its padding is cleared
      const uint64_t mask = ~uint64_t{0} >> (64 - 8 * args_.cols);
      for (int64_t i = 0; i < rows; ++i, to += args_.stride, from += args_.cols) {
        uint64_t word;
        std::memcpy(&word, from, 8);
        word &= mask;
        std::memcpy(to, &word, 8);
      }
      return;
    }
    for (int64_t i = 0; i < rows; ++i, to += args_.stride, from += args_.cols) {
      std::memcpy(to, from, static_cast<size_t>(args_.cols));
      std::memset(to + args_.cols, 0, static_cast<size_t>(bytes - args_.cols));
    }
  }

 private:
  void make_codes(int64_t r, int64_t c, int64_t n) {
    const float* x = read_floats(args_.x, r * args_.ldx + c, n, wide_);
    if (codes_by_groups(r, c, n, x)) return;
    codes_of(r, c, n, x);
    if (loops_.any_nonfinite(n, x)) replace_nonfinite(n, x);
  }
  bool codes_by_groups(int64_t r, int64_t c, int64_t n, const float* x) {
    if (!plan_.short_way) return false;
    GroupParams p;
    return group_params(args_.scale, r, c, n, p) && loops_.code_groups(args_.rule, n, x, p, plan_.range, raw_);
  }

  void codes_of(int64_t r, int64_t c, int64_t n, const float* x) {
    ChunkParams p = params_.read(r, c, n);
    loops_.number[static_cast<int>(args_.rule)](n, x, p, number_);
    if (!plan_.levels.codes.empty()) {
      const SortedLevels& levels = plan_.levels;
      loops_.level(n, number_, static_cast<int64_t>(levels.bounds.size()), levels.bounds.data(), levels.codes.data(),
                   raw_);
      return;
    }
    if (plan_.stochastic) {
      args_.sr->fill_bits16(static_cast<uint64_t>(args_.first_element + r * args_.cols + c), n, draws_);
      loops_.stochastic(n, number_, p, plan_.range, draws_, raw_, pass_);
    } else {
      if (!plan_.rounds) p = without_zero(p);
      loops_.nearest(n, number_, p, plan_.range, raw_, pass_);
    }
    if (plan_.clip && plan_.unit_mask) loops_.pass_unit(n, x, pass_);
  }

  void replace_nonfinite(int64_t n, const float* x) {
    raise_flag(args_.flags);
    for (int64_t i = 0; i < n; ++i) {
      if (is_finite_number(x[i])) continue;
      raw_[i] = plan_.levels.zero;
      pass_[i] = 0;
    }
  }

  const QuantizeLoops& loops_;
  const QuantizeArgs& args_;
  const Plan& plan_;
  ChunkParamReader params_;
  float number_[kChunk], wide_[kChunk];
  alignas(64) uint16_t draws_[kChunk];
  alignas(64) uint8_t raw_[kChunk + 8], pass_[kChunk];
  alignas(64) uint8_t packed_[kChunk + 8];
};

void quantize_any(const QuantizeLoops& loops, const QuantizeArgs& args) {
  const Plan plan(args);
  if (rows_join(args)) {
    const int64_t most = kChunk / args.cols;
    return parallel_ranges(args.rows, 16 * most, [&](int64_t begin, int64_t end) {
      ChunkQuantizer chunk(loops, args, plan);
      for (int64_t r = begin; r < end; r += most) chunk.run_rows(r, std::min(most, end - r));
    });
  }
  for_row_tiles(args.rows, args.cols, [&](int64_t r, int64_t c0, int64_t c1) {
    ChunkQuantizer chunk(loops, args, plan);
    for (int64_t c = c0; c < c1; c += kChunk) chunk.run(r, c, std::min(kChunk, c1 - c));
  });
}

void quantize_sign(const QuantizeLoops& loops, const QuantizeArgs& args) {
  const bool clip = args.ste == SteRule::kClip;
  const int64_t words = (args.cols + 63) / 64;
  // `rows` rows of n elements from (r, c) on, which are at x.
  const auto signs = [&](int64_t r, int64_t c, int64_t rows, int64_t n, const float* x) {
    uint64_t* mask = args.mask == nullptr ? nullptr : args.mask + r * words + c / 64;
    uint8_t* codes = static_cast<uint8_t*>(args.codes) + r * args.stride + c / 8;
    if (loops.sign_rows(rows, n, x, args.ldx, codes, args.stride, mask, words, clip)) raise_flag(args.flags);
  };
  for_row_blocks(args.rows, args.cols, [&](int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
    if (!args.x.bf16()) return signs(r0, c0, r1 - r0, c1 - c0, args.x.fp32() + r0 * args.ldx + c0);
    alignas(64) float x[kFloatPiece];
    for (int64_t r = r0; r < r1; ++r)
      for_pieces(c1 - c0, [&](int64_t i, int64_t n) {
        signs(r, c0 + i, 1, n, read_floats(args.x, r * args.ldx + c0 + i, n, x));
      });
  });
}

bool sign_supports(const QuantizeArgs& args) {
  return args.rule == CodeRule::kSign && args.dtype.kind() == DTypeKind::kSign && args.dtype.bits() == 1;
}

template <bool kSigns, const QuantizeLoops& (*kLoops)(), double kRelativeCost>
constexpr Kernel<QuantizeArgs> kernel(std::string_view name, IsaMask needs) {
  return {{"quantize", name, DeviceKind::kCpu, needs, SumOrder::kExact},
          kSigns ? sign_supports : supports_all<QuantizeArgs>,
          [](const QuantizeArgs& args) { return kRelativeCost * static_cast<double>(args.rows * args.cols); },
          [](const QuantizeArgs& args) { kSigns ? quantize_sign(kLoops(), args) : quantize_any(kLoops(), args); }};
}
// Fastest first.
constexpr Kernel<QuantizeArgs> kKernels[] = {
    // bits from comparisons: kind sign with rule kSign
    kernel<true, loops_avx512, 0.02>("quantize_sign_avx512", isa::kAvx512),
    kernel<true, loops_avx2, 0.05>("quantize_sign_avx2", isa::kAvx2),
    kernel<true, loops_scalar, 0.5>("quantize_sign_scalar", isa::kScalar),
    // all dtypes and rules
    kernel<false, loops_avx512, 0.3>("quantize_any_avx512", isa::kAvx512),
    kernel<false, loops_avx2, 0.5>("quantize_any_avx2", isa::kAvx2),
    kernel<false, loops_scalar, 3.0>("quantize_any_scalar", isa::kScalar)};

}  // namespace

KernelList<Kernel<QuantizeArgs>>& quantize_kernels() {
  static auto& list = *new KernelList<Kernel<QuantizeArgs>>(kKernels);
  return list;
}

void quantize(const QuantizeArgs& args) { quantize_kernels().cheapest(args)->run(args); }

void cpu::clip_gradient(const QuantizeArgs& args, const float* g, float* gx) {
  const QuantizeLoops& loops = quantize_loops::loops();
  const Plan plan(args);
  const bool unit = args.rule == CodeRule::kSign || args.rule == CodeRule::kPositive;
  for_row_tiles(args.rows, args.cols, [&](int64_t r, int64_t c0, int64_t c1) {
    ChunkParamReader params(loops, args.scale, multiplies(args.rule));
    float number[kChunk], wide[kChunk];
    for (int64_t c = c0; c < c1; c += kChunk) {
      const int64_t n = std::min(kChunk, c1 - c), at = r * args.cols + c;
      const float* const x = read_floats(args.x, r * args.ldx + c, n, wide);
      if (unit) {
        loops.clip_unit(n, x, g + at, gx + at);
        continue;
      }
      GroupParams groups;
      if (group_params(args.scale, r, c, n, groups) &&
          loops.clip_groups(args.rule, n, x, groups, plan.range, g + at, gx + at))
        continue;
      ChunkParams p = params.read(r, c, n);
      loops.number[static_cast<int>(args.rule)](n, x, p, number);
      if (!plan.rounds) p = without_zero(p);
      loops.clip(n, x, number, p, plan.range, g + at, gx + at);
    }
  });
}

}  // namespace bitgrad::kernels
