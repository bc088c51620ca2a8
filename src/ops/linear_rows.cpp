// Backward products of a linear layer: where they go. A fused update takes blocks of rows of gW as they are made, so that
// gW never exists as a whole.
#include <algorithm>

#include "bitgrad/base/parallel.h"
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

// The row that runs blocks of `count` rows: any for exact sums, else that of the whole product. nullptr: its order is
// its own, so that blocks may give other bits than the whole.
const GemmRow* row_of_blocks(const GemmArgs& args, const GemmRow& whole, int64_t count) {
  if (count == 0 || whole.order == SumOrder::kFree) return nullptr;
  const GemmArgs part = rows_of(args, 0, count);
  if (whole.order == SumOrder::kExact) return &select_gemm(part);
  return whole.usable(part) ? &whole : nullptr;
}

void run_blocks(const GemmArgs& args, const GemmRow& whole, GradRows& rows) {
  const int64_t step = rows.block_rows();
  parallel_for((args.m + step - 1) / step, [&](int64_t block) {
    const int64_t begin = block * step, end = std::min(begin + step, args.m);
    const Tensor c = Tensor::empty({end - begin, args.n}, dtypes::fp32, MemoryKind::kWorkspace);
    GemmArgs part = rows_of(args, begin, end);
    part.c = c.data();
    row_of_blocks(args, whole, end - begin)->run(part);
    rows.take(begin, c);
  });
}

}  // namespace

void product_into(GemmArgs& args, GradSlot& slot) {
  args.c_dtype = slot.dtype();
  args.ldc = args.n;
  if (args.m > 0) {
    const GemmRow& whole = select_gemm(args);
    // A block has one row at least, and all rows at most.
    const bool splits = row_of_blocks(args, whole, 1) != nullptr && row_of_blocks(args, whole, args.m) != nullptr;
    if (GradRows* rows = splits ? slot.rows() : nullptr) {
      run_blocks(args, whole, *rows);
      return slot.commit();
    }
  }
  gemm_into(args, slot);
}

}  // namespace bitgrad::detail
