// Family reduce: cuts blocks into chunks, calls the loops of a kernel's ISA and joins the results (docs/numerics.md
// section 8).
#include "kernels/reduce.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "kernels/elementwise/floats.h"
#include "kernels/kernel_table.h"
#include "kernels/quantize.h"
#include "kernels/reduce/loops.h"

namespace bitgrad::kernels {
namespace {

using namespace reduce_loops;

enum { kSumProduct = kRules - 1 };

// Start value and join function of a rule.
struct Rule {
  float start;
  float (*join)(float, float);
};
constexpr float zero = 0.0f, inf = std::numeric_limits<float>::infinity();
constexpr Rule kRuleList[] = {
#define BITGRAD_REDUCE_RULE(rule, start, map, join) {start, [](float a, float v) -> float { return join; }},
#include "kernels/reduce/rules.inc"
#undef BITGRAD_REDUCE_RULE
};
static_assert(std::size(kRuleList) == kRules);

int rule_index(const ReduceArgs& args) {
  return args.times != nullptr ? int{kSumProduct} : static_cast<int>(args.rule);
}

void raise_flag(uint32_t* flags) {
  std::atomic_ref<uint32_t>(*flags).fetch_or(kFlagNonFinite, std::memory_order_relaxed);
}

class Reducer {
 public:
  Reducer(const ReduceLoops& loops, const ReduceArgs& args)
      : loops_(loops), args_(args), index_(rule_index(args)), rule_(kRuleList[index_]) {}

  void all() const {
    const int64_t n = args_.rows * args_.cols, chunks = ceil_div(n, kChunk);
    Workspace space(chunks * static_cast<int64_t>(sizeof(float)));
    float* part = space.as<float>();
    parallel_ranges(chunks, kTaskElements / kChunk, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) part[k] = sequence_chunk(k * kChunk, std::min(kChunk, n - k * kChunk));
    });
    args_.out[0] = chunks == 0 ? rule_.start : join_chunks(rule_.join, part, chunks, 1);
  }

  // Each row has `per_row` blocks of `group` columns.
  void groups(int64_t group, int64_t per_row) const {
    const int64_t grain = std::max<int64_t>(1, kTaskElements / std::max<int64_t>(1, std::min(group, args_.cols)));
    parallel_ranges(args_.rows * per_row, grain, [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) {
        const int64_t r = j / per_row, c = j % per_row * group;
        args_.out[j] = run_of(r * args_.ldx + c, std::min(group, args_.cols - c), centre(j));
      }
    });
  }

  // Reduces chunks of rows, kColumnBlock columns at a time, then joins the chunks of each column.
  void columns() const {
    const int64_t blocks = ceil_div(args_.cols, kColumnBlock),
                  chunks = std::max<int64_t>(1, ceil_div(args_.rows, kChunk));
    const Workspace space(blocks * chunks * kColumnBlock * static_cast<int64_t>(sizeof(float)));
    float* const part = space.as<float>();
    const int64_t grain =
        std::max<int64_t>(1, kTaskElements / (kColumnBlock * std::clamp<int64_t>(args_.rows, 1, kChunk)));
    parallel_ranges(blocks * chunks, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        column_chunk(i % chunks, i / chunks * kColumnBlock, part + i * kColumnBlock);
    });
    for (int64_t c = 0; c < args_.cols; ++c)
      args_.out[c] = join_chunks(rule_.join, part + c / kColumnBlock * chunks * kColumnBlock + c % kColumnBlock, chunks,
                                 kColumnBlock);
  }

 private:
  float centre(int64_t j) const { return args_.center == nullptr ? 0.0f : args_.center[j]; }

  float chunk(const float* x, const float* t, int64_t n, float c) const {
    if (args_.flags != nullptr && loops_.any_nonfinite(n, x)) raise_flag(args_.flags);
    return loops_.chunk[index_](n, x, t, c);
  }

  // n <= kChunk contiguous elements from `at` on.
  float chunk_from(int64_t at, int64_t n, float c) const {
    float x[kChunk];
    return chunk(read_floats(args_.x, at, n, x), args_.times == nullptr ? nullptr : args_.times + at, n, c);
  }

  // Elements first .. first + n - 1 of the whole matrix in row-major order.
  float sequence_chunk(int64_t first, int64_t n) const {
    if (args_.ldx == args_.cols) return chunk_from(first, n, centre(0));
    float x[kChunk], t[kChunk];
    for (int64_t i = 0; i < n;) {
      const int64_t r = (first + i) / args_.cols, c = (first + i) % args_.cols, count = std::min(n - i, args_.cols - c);
      const size_t bytes = static_cast<size_t>(count) * sizeof(float);
      const float* const row = read_floats(args_.x, r * args_.ldx + c, count, x + i);
      if (row != x + i) std::memcpy(x + i, row, bytes);
      if (args_.times != nullptr) std::memcpy(t + i, args_.times + r * args_.ldx + c, bytes);
      i += count;
    }
    return chunk(x, args_.times == nullptr ? nullptr : t, n, centre(0));
  }

  // Reduces n contiguous elements from x[at].
  float run_of(int64_t at, int64_t n, float c) const {
    if (n <= kChunk) return chunk_from(at, n, c);
    const int64_t chunks = ceil_div(n, kChunk);
    Workspace space(chunks * static_cast<int64_t>(sizeof(float)));
    float* part = space.as<float>();
    for (int64_t k = 0; k < chunks; ++k) {
      const int64_t from = k * kChunk;
      part[k] = chunk_from(at + from, std::min(kChunk, n - from), c);
    }
    return join_chunks(rule_.join, part, chunks, 1);
  }

  // Rows from k * kChunk on, for the columns from c on.
  void column_chunk(int64_t k, int64_t c, float* out) const {
    const float no_centre[kColumnBlock] = {};
    const int64_t at = k * kChunk * args_.ldx + c, n = std::min(kColumnBlock, args_.cols - c);
    const int64_t rows = std::min(kChunk, args_.rows - k * kChunk);
    const float* const t = args_.times == nullptr ? nullptr : args_.times + at;
    const float* const centres = args_.center == nullptr ? no_centre : args_.center + c;
    if (args_.x.bf16())
      loops_.columns_bf16[index_](rows, n, static_cast<const uint16_t*>(args_.x.data) + at, t, args_.ldx, centres, out);
    else
      loops_.columns[index_](rows, n, args_.x.fp32() + at, t, args_.ldx, centres, out);
    for (int64_t r = 0; args_.flags != nullptr && r < rows; ++r) {
      float x[kColumnBlock];
      if (loops_.any_nonfinite(n, read_floats(args_.x, at + r * args_.ldx, n, x))) raise_flag(args_.flags);
    }
  }

  const ReduceLoops& loops_;
  const ReduceArgs& args_;
  int index_;
  const Rule& rule_;
};

void run_reduce(const ReduceLoops& loops, const ReduceArgs& args) {
  const Reducer reducer(loops, args);
  if (args.axis == ReduceAxis::kAll) return reducer.all();
  if (args.axis == ReduceAxis::kColumns) return reducer.columns();
  if (args.axis == ReduceAxis::kRows) return reducer.groups(args.cols, 1);
  reducer.groups(args.group, ceil_div(args.cols, args.group));
}

template <const ReduceLoops& (*kLoops)(), double kRelativeCost>
constexpr Kernel<ReduceArgs> kernel(std::string_view name, IsaMask needs) {
  return {{"reduce", name, DeviceKind::kCpu, needs, SumOrder::kLanes},
          supports_all<ReduceArgs>,
          [](const ReduceArgs& args) { return kRelativeCost * static_cast<double>(args.rows * args.cols); },
          [](const ReduceArgs& args) { run_reduce(kLoops(), args); }};
}
// Each supports every rule and axis, in the single order of docs/numerics.md section 8. Fastest first.
constexpr Kernel<ReduceArgs> kKernels[] = {kernel<loops_avx512, 0.07>("reduce_lanes_avx512", isa::kAvx512),
                                           kernel<loops_avx2, 0.1>("reduce_lanes_avx2", isa::kAvx2),
                                           kernel<loops_scalar, 0.5>("reduce_lanes_scalar", isa::kScalar)};

ReduceArgs contiguous(ReduceRule rule, const float* x, int64_t n, float* out) {
  ReduceArgs args;
  args.rule = rule;
  args.rows = 1;
  args.cols = args.ldx = n;
  args.x = x;
  args.out = out;
  return args;
}

}  // namespace

KernelList<Kernel<ReduceArgs>>& reduce_kernels() {
  static auto& list = *new KernelList<Kernel<ReduceArgs>>(kKernels);
  return list;
}

void reduce(const ReduceArgs& args) { reduce_kernels().cheapest(args)->run(args); }

namespace {

// Ranges of `runs` runs of n <= kChunk elements from x[at].
bool short_ranges(const ReduceLoops& loops, int64_t runs, int64_t n, const FloatsIn& x, int64_t at, float* low,
                  float* high) {
  float wide[kChunk];
  const int64_t together = x.bf16() ? kChunk / n : runs;
  bool found = false;
  for (int64_t j = 0; j < runs; j += together) {
    const int64_t count = std::min(together, runs - j);
    found |= loops.ranges(count, n, read_floats(x, at + j * n, count * n, wide), low + j, high + j);
  }
  return found;
}

// Range of the n elements from x[at], more than a chunk.
bool long_range(const ReduceLoops& loops, int64_t n, const FloatsIn& x, int64_t at, float* low, float* high) {
  const int64_t chunks = ceil_div(n, kChunk), full = n / kChunk;
  const Workspace space(2 * chunks * static_cast<int64_t>(sizeof(float)));
  float *min = space.as<float>(), *max = min + chunks;
  bool found = short_ranges(loops, full, kChunk, x, at, min, max);
  if (full < chunks) found |= short_ranges(loops, 1, n - full * kChunk, x, at + full * kChunk, min + full, max + full);
  *low = join_chunks(kRuleList[static_cast<int>(ReduceRule::kMin)].join, min, chunks, 1);
  *high = join_chunks(kRuleList[static_cast<int>(ReduceRule::kMax)].join, max, chunks, 1);
  return found;
}

}  // namespace

void cpu::reduce_ranges(const ReduceArgs& args, float* high) {
  const ReduceLoops& loops = reduce_loops::loops();
  const int64_t group = args.axis == ReduceAxis::kRows ? args.cols : args.group;
  const int64_t per_row = args.axis == ReduceAxis::kRows ? 1 : ceil_div(args.cols, group), full = args.cols / group;
  const int64_t grain = std::max<int64_t>(1, kTaskElements / std::max<int64_t>(1, args.cols));
  parallel_ranges(args.rows, grain, [&](int64_t begin, int64_t end) {
    bool found = false;
    for (int64_t r = begin; r < end; ++r) {
      const int64_t at = r * args.ldx;
      float *low_out = args.out + r * per_row, *high_out = high + r * per_row;
      if (group > kChunk) {
        for (int64_t j = 0; j < per_row; ++j)
          found |= long_range(loops, std::min(group, args.cols - j * group), args.x, at + j * group, low_out + j,
                              high_out + j);
        continue;
      }
      found |= short_ranges(loops, full, group, args.x, at, low_out, high_out);
      if (full < per_row)
        found |= short_ranges(loops, 1, args.cols - full * group, args.x, at + full * group, low_out + full,
                              high_out + full);
    }
    if (found && args.flags != nullptr) raise_flag(args.flags);
  });
}

int64_t reduce_outputs(const ReduceArgs& args) {
  if (args.axis == ReduceAxis::kAll) return 1;
  if (args.axis == ReduceAxis::kRows) return args.rows;
  if (args.axis == ReduceAxis::kColumns) return args.cols;
  return args.rows * ceil_div(args.cols, args.group);
}

namespace {

float contiguous_number(ReduceRule rule, const float* x, int64_t n) {
  const Workspace out(sizeof(float));
  reduce(contiguous(rule, x, n, out.as<float>()));
  return read_number(out.as<float>());
}

}  // namespace

float sum(const float* x, int64_t n) { return contiguous_number(ReduceRule::kSum, x, n); }
float sum_squares(const float* x, int64_t n) { return contiguous_number(ReduceRule::kSumSquares, x, n); }

void cpu::check_finite(int64_t n, const float* x, uint32_t* flags) {
  if (!all_finite(x, n)) raise_flag(flags);
}

bool all_finite(const float* x, int64_t n) {
  if (!current_device().is_cpu()) {
    const Workspace word(sizeof(uint32_t));
    device_backend(current_device()).fill_zero(word.as<uint32_t>(), sizeof(uint32_t));
    check_finite(n, x, word.as<uint32_t>());
    uint32_t found = 0;
    device_backend(current_device()).copy_to_host(&found, word.as<uint32_t>(), sizeof(found));
    return found == 0;
  }
  std::atomic<bool> found{false};
  const ReduceLoops& loops = reduce_loops::loops();
  parallel_ranges(n, kTaskElements, [&](int64_t begin, int64_t end) {
    if (loops.any_nonfinite(end - begin, x + begin)) found.store(true, std::memory_order_relaxed);
  });
  return !found;
}

float join_chunks(std::vector<float> chunks) {
  size_t n = chunks.size();
  for (; n > 1; n = (n + 1) / 2) {
    for (size_t i = 0; i < n / 2; ++i) chunks[i] = chunks[2 * i] + chunks[2 * i + 1];
    if (n % 2 == 1) chunks[n / 2] = chunks[n - 1];
  }
  return chunks.empty() ? 0.0f : chunks[0];
}

}  // namespace bitgrad::kernels
