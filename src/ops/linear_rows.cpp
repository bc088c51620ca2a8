// Backward products of a linear layer: where they go. A fused update takes blocks of rows of gW as they are made, so
// that gW never exists as a whole.
#include <algorithm>
#include <limits>

#include "bitgrad/base/parallel.h"
#include "bitgrad/kernels/gemm_costs.h"
#include "bitgrad/kernels/pack.h"
#include "ops/common.h"
#include "ops/linear_product.h"

namespace bitgrad::detail {
namespace {

// An operand from free index `begin` on. Codes of less than 8 bits that lie k-major begin on a byte.
GemmOperand from_free(GemmOperand x, int64_t begin) {
  const char* data = static_cast<const char*>(x.data);
  ScaleMap& s = x.scale;
  const int64_t group = x.k_major ? s.col_group : s.row_group, step = x.k_major ? s.col_step : s.row_step;
  ensure(x.layout == layouts::canonical && begin % group == 0 && begin * x.dtype.bits() % 8 == 0, "linear",
         "rows from ", begin, " on of an operand in layout ", x.layout);
  x.data = data + (x.k_major ? begin * x.dtype.bits() / 8 : begin * x.stride);
  const int64_t at = begin / group * step;
  if (s.scale != nullptr) s.scale += at;
  if (s.zero != nullptr) s.zero += at;
  if (s.offset != nullptr) s.offset += at;
  return x;
}

GemmArgs rows_of(const GemmArgs& args, int64_t begin, int64_t end) {
  GemmArgs part = args;
  part.m = end - begin;
  part.a = from_free(args.a, begin);
  if (args.row_minus != nullptr) part.row_minus = args.row_minus + begin;
  part.c_dtype = dtypes::fp32;
  part.ldc = args.n;
  return part;
}

// How C is made: `rows` of it a call, by one row of family gemm, that reads B in one layout.
struct Plan {
  const GemmRow* row = nullptr;
  Layout b_layout;
  int64_t rows = 0;
  double cost = std::numeric_limits<double>::infinity();  // nanoseconds
};

constexpr double kPackNs = 0.1;  // an element of B
constexpr double kFarNs = 0.25;  // an element of C that does not stay in L2
constexpr int64_t kNearBytes = 1 << 20;
constexpr int64_t kMostBlocks = 8;  // of rows that are taken, in one call

void better(Plan& best, const Plan& other) {
  if (other.cost < best.cost) best = other;
}

// The cheapest way to exact sums, `count` rows a call: B as it lies, or packed once.
Plan plan_exact(const GemmArgs& args, int64_t count) {
  const GemmArgs part = rows_of(args, 0, count);
  const double calls = static_cast<double>((args.m + count - 1) / count);
  const GemmRow &lying = select_gemm(part), &any = plan_gemm(part);
  Plan plan{&lying, args.b.layout, count, gemm_cost(lying, part) * calls};
  if (any.a_layout == args.a.layout && any.b_layout != args.b.layout)
    better(plan, {&any, any.b_layout, count,
                  gemm_cost(any, part) * calls + kPackNs * static_cast<double>(args.n) * static_cast<double>(args.k)});
  return plan;
}

// The same for sums of floats: the bits are those of the row that runs the whole product, which has no order of its
// own.
Plan plan_floats(const GemmArgs& args, const GemmRow& whole, int64_t count) {
  const GemmArgs part = rows_of(args, 0, count);
  const int64_t rest = args.m % count;
  if (whole.order == SumOrder::kFree || !whole.supports(part) || (rest > 0 && !whole.supports(rows_of(args, 0, rest))))
    return {};
  return {&whole, args.b.layout, count, gemm_cost(whole, part) * static_cast<double>((args.m + count - 1) / count)};
}

// Blocks that are taken are small so that they stay in cache; kernels that make much of B in each call get several.
Plan plan_blocks(const GemmArgs& args, int64_t block) {
  const GemmRow& whole = select_gemm(args);
  Plan best;
  for (int64_t n = 1; n <= kMostBlocks; n *= 2) {
    const int64_t count = std::min(n * block, args.m);
    Plan plan = whole.order == SumOrder::kExact ? plan_exact(args, count) : plan_floats(args, whole, count);
    if (count * args.n * static_cast<int64_t>(sizeof(float)) > kNearBytes)
      plan.cost += kFarNs * static_cast<double>(args.m) * static_cast<double>(args.n);
    better(best, plan);
  }
  return best;
}

// B in the layout that the row reads.
Tensor packed_b(GemmArgs& args, Layout layout) {
  if (layout == args.b.layout) return {};
  const int64_t rows = args.b.k_major ? args.k : args.n, cols = args.b.k_major ? args.n : args.k;
  Tensor packed = Tensor::empty_layout({rows, cols}, args.b.dtype, layout, MemoryKind::kWorkspace);
  pack({args.b.dtype, rows, cols, args.b.data, args.b.stride, layout, packed.data()});
  args.b.data = packed.data();
  args.b.layout = layout;
  return packed;
}

void run_blocks(GemmArgs args, const Plan& plan, GradRows& rows) {
  const Tensor b = packed_b(args, plan.b_layout);
  const int64_t block = rows.block_rows();
  parallel_for((args.m + plan.rows - 1) / plan.rows, [&](int64_t i) {
    const int64_t begin = i * plan.rows, end = std::min(begin + plan.rows, args.m);
    const Tensor c = Tensor::empty({end - begin, args.n}, dtypes::fp32, MemoryKind::kWorkspace);
    GemmArgs part = rows_of(args, begin, end);
    part.c = c.data();
    const GemmRow& row = plan.row->supports(part) ? *plan.row : select_gemm(part);
    row.run(part);
    for (int64_t r = begin; r < end; r += block) rows.take(r, c.row_slice(r - begin, std::min(r + block, end) - begin));
  });
}

// The whole, by the cheapest row where sums are exact.
void run_whole(GemmArgs& args, GradSlot& slot) {
  const GradTarget target = slot.target();
  args.c = target.out.data();
  args.c_dtype = target.out.dtype();
  args.accumulate = target.accumulate;
  args.sr = target.sr;
  const GemmRow& lying = select_gemm(args);
  if (lying.order == SumOrder::kExact && args.m > 0) {
    const Plan plan = plan_exact(args, args.m);
    const Tensor b = packed_b(args, plan.b_layout);
    (plan.row->supports(args) ? *plan.row : select_gemm(args)).run(args);
  } else {
    lying.run(args);
  }
  slot.commit();
}

}  // namespace

void product_into(GemmArgs& args, GradSlot& slot) {
  args.c_dtype = slot.dtype();
  args.ldc = args.n;
  const int64_t block = args.m > 0 ? slot.block_rows() : 0;
  if (block > 0) {
    const Plan plan = plan_blocks(args, block);
    if (plan.row != nullptr) {
      run_blocks(args, plan, *slot.rows());
      return slot.commit();
    }
  }
  run_whole(args, slot);
}

}  // namespace bitgrad::detail
