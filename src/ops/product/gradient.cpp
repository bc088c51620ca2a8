#include "ops/product/gradient.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "ops/product/blocks.h"
#include "ops/product/fold.h"

namespace bitgrad::detail {
namespace {

// Consumes the arguments of a product; C is left to the consumer.
using RunProduct = std::function<void(kernels::GemmArgs&)>;

kernels::GemmArgs arguments(const GradientProduct& p) {
  return product_args(side_of(p.gy, p.transposed), side_of(p.other, true));
}

void no_check(const GradientForm&) {}

void with_fp32(const GradientProduct& p, const RunProduct& run) {
  kernels::GemmArgs args = arguments(p);
  args.fold_b_scale = folds(args.b.scale);
  run(args);
}

void check_bf16(const GradientForm& form) {
  require(form.other.dtype != dtypes::fp64, form.where, form.name, " bf16: ", form.other_name, " is ",
          Shape{form.other.rows, form.other.cols}, ' ', form.other.dtype,
          ", expected codes, fp32 or bf16. Products of fp64 have the mode fp32 only (they are computed in double).");
}

void with_bf16(const GradientProduct& p, const RunProduct& run) {
  kernels::GemmArgs args = arguments(p);
  const bool fold = folds(args.b.scale);
  Tensor rounded = p.gy;
  if (fold || p.gy.dtype() != dtypes::bf16) {
    const Along folded = fold ? along(args.b.scale, args.k, 0) : Along{};
    rounded = to_bf16_codes(FoldedGradient(p.gy, p.transposed, folded.scales()));
  }
  args.a = side_of(rounded, p.transposed).gemm;
  if (fold) args.b.scale = {};
  run(args);
}

template <void (*kWith)(const GradientProduct&, const RunProduct&)>
void into_slot(const GradientProduct& p, GradSlot& slot) {
  kWith(p, [&](kernels::GemmArgs& args) { product_into(args, slot); });
}

struct Mode {
  ProductMode mode;
  void (*check)(const GradientForm&);
  void (*run)(const GradientProduct&, GradSlot&);
  void (*with)(const GradientProduct&, const RunProduct&);  // nullptr: no sums over blocks
};
constexpr Mode kModes[] = {
    {ProductMode::kFp32, no_check, into_slot<with_fp32>, with_fp32},
    {ProductMode::kBf16, check_bf16, into_slot<with_bf16>, with_bf16},
    {ProductMode::kInt8, check_int8, int8_product, nullptr},
};
const Mode& mode_of(ProductMode mode) {
  for (const Mode& m : kModes)
    if (m.mode == mode) return m;
  fail_with(ErrorCode::kBug, "linear", "internal error: unknown mode ", static_cast<int>(mode));
}

}  // namespace

bool folds(const ScaleMap& s) {
  return s.scale != nullptr && s.zero == nullptr && s.offset == nullptr && (s.per_tensor() || s.per_row());
}

void check_product(ProductMode mode, const GradientForm& form) { mode_of(mode).check(form); }
void gradient_product(ProductMode mode, const GradientProduct& p, GradSlot& slot) { mode_of(mode).run(p, slot); }

void with_product(ProductMode mode, const GradientProduct& p, const RunProduct& run) {
  const Mode& m = mode_of(mode);
  ensure(m.with != nullptr, "linear", p.name, ' ', enum_name(mode), " of an operand in blocks of rows");
  m.with(p, run);
}

namespace {

// Columns of group `group` out of `count`, dense.
Tensor group_columns(const Tensor& gy, int64_t group, int64_t count) {
  const Tensor rows = gy.reshape({gy.rows(), gy.cols()});
  const int64_t n = gy.cols() / count;
  return count == 1 ? rows : rows.column_slice(group * n, (group + 1) * n).clone(MemoryKind::kWorkspace);
}

// out (+)= the sum over blocks.
void add_blocks(ProductMode mode, GradientProduct p, const Operand& other, bool accumulate, const Tensor& out) {
  const int64_t rows = other.row_count(), block = other.block_rows();
  const Tensor gy = p.gy;
  Tensor workspace;
  for (int64_t begin = 0; begin < rows; begin += block) {
    const int64_t end = std::min(begin + block, rows);
    p.gy = gy.row_slice(begin, end);
    p.other = other.rows(begin, end, workspace);
    with_product(mode, p, [&](kernels::GemmArgs& args) {
      args.c = out.data();
      args.c_dtype = out.dtype();
      args.accumulate = accumulate || begin > 0;
      run_piece(args);
    });
  }
}

}  // namespace

void gradient_product(ProductMode mode, GradientProduct p, std::span<const Operand* const> others, GradSlot& slot) {
  const auto count = static_cast<int64_t>(others.size());
  if (count == 1 && others[0]->block_rows() >= others[0]->row_count()) {
    Tensor workspace;
    p.other = others[0]->rows(0, others[0]->row_count(), workspace);
    return gradient_product(mode, p, slot);
  }
  ensure(p.transposed, "linear", p.name, " of an operand in blocks of rows");
  const bool in_place = slot.dtype() != dtypes::bf16;
  const GradTarget target =
      in_place ? slot.target() : GradTarget{Tensor::empty(slot.shape(), dtypes::fp32), false, nullptr};
  const Tensor gy = p.gy;
  const int64_t n = target.out.rows() / count;
  for (int64_t g = 0; g < count; ++g) {
    p.gy = group_columns(gy, g, count);
    add_blocks(mode, p, *others[static_cast<size_t>(g)], target.accumulate, target.out.row_slice(g * n, (g + 1) * n));
  }
  if (in_place)
    slot.commit();
  else
    slot.set_rounded(target.out);
}

}  // namespace bitgrad::detail
