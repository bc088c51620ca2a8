// Produces gW in blocks of rows for a fused update, so that gW never exists as a whole.
#include "ops/product/blocks.h"

#include <algorithm>
#include <limits>

#include "bitgrad/base/parallel.h"
#include "bitgrad/kernels/gemm_costs.h"
#include "kernels/pack.h"
#include "ops/common.h"
#include "ops/product/transposed.h"

namespace bitgrad::detail {
namespace {

// An operand starting at free index `begin`. k-major codes of less than 8 bits must begin on a byte there.
kernels::GemmOperand from_free(kernels::GemmOperand x, int64_t begin) {
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

kernels::GemmArgs rows_of(const kernels::GemmArgs& args, int64_t begin, int64_t end) {
  kernels::GemmArgs part = args;
  part.m = end - begin;
  part.a = from_free(args.a, begin);
  if (args.row_minus != nullptr) part.row_minus = args.row_minus + begin;
  part.c_dtype = dtypes::fp32;
  part.ldc = args.n;
  return part;
}

// How C is computed: `rows` rows per call, by a single kernel of family gemm that reads B in one layout; with
// `transposed`, B is transposed first.
struct Plan {
  const kernels::GemmKernel* kernel = nullptr;
  Layout b_layout;
  int64_t rows = 0;
  double cost = std::numeric_limits<double>::infinity();  // nanoseconds
  bool transposed = false;
};

constexpr double kPackNs = 0.1;  // per element of B, transposed or not
constexpr double kFarNs = 0.25;  // per element of C that does not stay in L2
constexpr int64_t kNearBytes = 1 << 20;
constexpr int64_t kMostBlocks = 8;  // most blocks of rows per call
constexpr int64_t kCalls = 16;      // calls that keep all threads busy; a single call is itself split across threads

void better(Plan& best, const Plan& other) {
  if (other.cost < best.cost) best = other;
}

int64_t calls_of(const kernels::GemmArgs& args, int64_t count) { return (args.m + count - 1) / count; }

// Whether the kernel supports `part` and the shorter last block of C.
bool serves(const kernels::GemmKernel& kernel, const kernels::GemmArgs& args, const kernels::GemmArgs& part) {
  const int64_t rest = args.m % part.m;
  return kernel.supports(part) && (rest == 0 || kernel.supports(rows_of(args, 0, rest)));
}

// Number of distinct matrices B in a batch.
int64_t members_of_b(const kernels::GemmBatch& batch) {
  return batch.b == 0 ? std::min<int64_t>(1, batch.count) : batch.count;
}

// Cost of packing B once, in nanoseconds, per member of the batch.
double pack_cost(const kernels::GemmArgs& args) {
  const double share =
      args.batch.count > 0 ? static_cast<double>(members_of_b(args.batch)) / static_cast<double>(args.batch.count) : 1;
  return kPackNs * static_cast<double>(args.n) * static_cast<double>(args.k) * share;
}

// The cheapest kernel with this order for calls like `part`, with B transposed and packed once. Only 1-bit codes are
// transposed: wider codes are as fast to pack in each call.
Plan plan_transposed(const kernels::GemmArgs& args, const kernels::GemmArgs& part, SumOrder order) {
  if (!can_transpose(args.b) || args.b.dtype.bits() != 1 || args.batch.count != 1) return {};
  kernels::GemmArgs full = args, form = part;
  full.b = form.b = transposed_form(args.b, args.k);
  const kernels::GemmKernel& kernel = kernels::plan_gemm(form);
  if (kernel.order != order || kernel.a_layout != args.a.layout || !serves(kernel, full, form)) return {};
  const double calls = static_cast<double>(calls_of(args, part.m));
  return {&kernel, kernel.b_layout, part.m, kernels::gemm_cost(kernel, form) * calls + pack_cost(args), true};
}

// The cheapest way to compute exact sums with calls like `part`: B as stored, or packed once.
Plan plan_exact(const kernels::GemmArgs& args, const kernels::GemmArgs& part) {
  const double calls = static_cast<double>(calls_of(args, part.m));
  const kernels::GemmKernel &stored = kernels::select_gemm(part), &any = kernels::plan_gemm(part);
  Plan plan;
  if (serves(stored, args, part)) plan = {&stored, args.b.layout, part.m, kernels::gemm_cost(stored, part) * calls};
  if (any.a_layout == args.a.layout && any.b_layout != args.b.layout && serves(any, args, part))
    better(plan, {&any, any.b_layout, part.m, kernels::gemm_cost(any, part) * calls + pack_cost(args)});
  better(plan, plan_transposed(args, part, SumOrder::kExact));
  return plan;
}

// The same for float sums: the bits must be those of the kernel that runs the whole product, so there is no plan if its
// order is free. Digits are computed per row of A, so the layout of B does not affect their sums.
Plan plan_floats(const kernels::GemmArgs& args, const kernels::GemmKernel& full, const kernels::GemmArgs& part) {
  if (full.order == SumOrder::kFree || !serves(full, args, part)) return {};
  Plan plan = {&full, args.b.layout, part.m,
               kernels::gemm_cost(full, part) * static_cast<double>(calls_of(args, part.m))};
  const bool digits = full.order == SumOrder::kDigits3 || full.order == SumOrder::kDigits2;
  if (digits) better(plan, plan_transposed(args, part, full.order));
  return plan;
}

// Blocks are small so that they stay in cache. Kernels with a high cost per call for B get several blocks per call:
// either all of them, or so few that threads can share the calls.
Plan plan_blocks(const kernels::GemmArgs& args, const kernels::GemmKernel& full, int64_t block) {
  Plan best;
  for (int64_t n = 1; n <= kMostBlocks; n *= 2) {
    const kernels::GemmArgs part = rows_of(args, 0, std::min(n * block, args.m));
    const int64_t calls = calls_of(args, part.m);
    if (calls > 1 && calls < std::min(kCalls, args.m / block)) continue;
    Plan plan = full.order == SumOrder::kExact ? plan_exact(args, part) : plan_floats(args, full, part);
    if (part.m * args.n * static_cast<int64_t>(sizeof(float)) > kNearBytes)
      plan.cost += kFarNs * static_cast<double>(args.m) * static_cast<double>(args.n);
    better(best, plan);
  }
  return best;
}

// Converts B of `args`, or every B of a batch, to another layout.
Tensor put_b(kernels::GemmArgs& args, Layout layout) {
  const int64_t rows = args.b.k_major ? args.k : args.n, cols = args.b.k_major ? args.n : args.k;
  const int64_t members = members_of_b(args.batch);
  const int64_t bytes = (layout.info().bytes(args.b.dtype, rows, cols) + 7) / 8 * 8;
  Tensor packed = Tensor::empty({members * bytes}, dtypes::uint8, MemoryKind::kWorkspace);
  parallel_ranges(members, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      kernels::pack({args.b.dtype, rows, cols, static_cast<const char*>(args.b.data) + i * args.batch.b, args.b.stride,
                     layout, static_cast<char*>(packed.data()) + i * bytes});
  });
  args.b.data = packed.data();
  args.b.layout = layout;
  if (args.batch.b != 0) args.batch.b = bytes;
  return packed;
}

// Converts B to the layout that the planned kernel reads.
Tensor packed_b(kernels::GemmArgs& args, const Plan& plan) {
  Tensor transposed;
  if (plan.transposed) {
    transposed = put_b(args, layouts::transposed);
    args.b = from_transposed(transposed.data(), args.b.dtype, args.k, args.b.scale);
  }
  return plan.b_layout == args.b.layout ? transposed : put_b(args, plan.b_layout);
}

void run(const kernels::GemmKernel& kernel, const kernels::GemmArgs& args) {
  ensure(kernel.supports(args), "linear", "kernel ", kernel.name,
         " was planned for a product that it does not support");
  kernel.run(args);
}

void run_blocks(const kernels::GemmArgs& args, const Plan& plan, GradRows& rows) {
  const int64_t block = rows.block_rows();
  parallel_for(calls_of(args, plan.rows), [&](int64_t i) {
    const int64_t begin = i * plan.rows, end = std::min(begin + plan.rows, args.m);
    const Tensor c = Tensor::empty({end - begin, args.n}, dtypes::fp32, MemoryKind::kWorkspace);
    kernels::GemmArgs part = rows_of(args, begin, end);
    part.c = c.data();
    run(*plan.kernel, part);
    parallel_ranges(end - begin, block,
                    [&](int64_t first, int64_t last) { rows.consume(begin + first, c.row_slice(first, last)); });
  });
}

void run_whole(kernels::GemmArgs& args, const kernels::GemmOperand* b_transposed, GradSlot& slot) {
  const GradTarget target = slot.target();
  args.c = target.out.data();
  args.c_dtype = target.out.dtype();
  args.accumulate = target.accumulate;
  args.sr = target.sr;
  run_product(args, b_transposed);
  slot.commit();
}

std::string why_whole(const kernels::GemmKernel& kernel) {
  return concat("its gradient was not produced in blocks of rows: ", kernel.name,
                kernel.order == SumOrder::kFree ? " is a library kernel, which sums blocks of rows in another order"
                                                : " does not support blocks of rows");
}

}  // namespace

void run_product(kernels::GemmArgs& args, const kernels::GemmOperand* b_transposed) {
  const kernels::GemmKernel& stored = kernels::select_gemm(args);
  const bool exact = stored.order == SumOrder::kExact, cpu = current_device().is_cpu();
  if (exact && !cpu && args.batch.count == 1) {
    run_on_device(args, b_transposed);
  } else if (exact && cpu && args.m > 0) {
    const Plan plan = plan_exact(args, args);
    const Tensor b = packed_b(args, plan);
    run(*plan.kernel, args);
  } else {
    stored.run(args);
  }
}

void run_piece(kernels::GemmArgs& args) {
  const kernels::GemmKernel& stored = kernels::select_gemm(args);
  if (stored.order == SumOrder::kExact || !current_device().is_cpu() || args.m == 0) return run_product(args);
  Plan plan = {&stored, args.b.layout, args.m, kernels::gemm_cost(stored, args)};
  for (const SumOrder order : {SumOrder::kDigits3, SumOrder::kDigits2, SumOrder::kFree})
    better(plan, plan_transposed(args, args, order));
  const Tensor b = packed_b(args, plan);
  run(*plan.kernel, args);
}

RowBlocks::RowBlocks(const kernels::GemmArgs& whole, int64_t block) {
  kernels::GemmArgs args = whole, part = whole;
  part.m = std::min(block, whole.m);
  kernel_ = &kernels::select_gemm(args);
  if (current_device().is_cpu() && args.m > 0) {
    const Plan plan = kernel_->order == SumOrder::kExact ? plan_exact(args, part) : plan_floats(args, *kernel_, part);
    if (plan.kernel != nullptr) {
      packed_ = packed_b(args, plan);
      kernel_ = plan.kernel;
    }
  }
  b_ = args.b;
}

void RowBlocks::run(kernels::GemmArgs part) const {
  part.b = b_;
  if (kernel_->supports(part)) return kernel_->run(part);
  kernels::gemm(part);
}

void product_into(kernels::GemmArgs& args, GradSlot& slot, const kernels::GemmOperand* b_transposed) {
  args.c_dtype = slot.dtype();
  args.ldc = args.n;
  const int64_t block = args.m > 0 ? slot.block_rows() : 0;
  if (block > 0 && args.batch.count != 1) {
    slot.decline_rows("its gradient was not produced in blocks of rows: it is a batch of products");
  } else if (block > 0 && !current_device().is_cpu()) {
    decline_rows_on_device(slot);
  } else if (block > 0) {
    const kernels::GemmKernel& full = kernels::select_gemm(args);
    const Plan plan = plan_blocks(args, full, block);
    if (plan.kernel != nullptr) {
      // Before rows(): a failure after it would leave the update half done.
      const Tensor b = packed_b(args, plan);
      run_blocks(args, plan, *slot.rows());
      return slot.commit();
    }
    slot.decline_rows(why_whole(full));
  }
  run_whole(args, b_transposed, slot);
}

}  // namespace bitgrad::detail
