// Backward products in int8: gy is quantized (absmax narrow, one scale per index that is not contracted), multiplied by
// the saved codes in integers, and scaled. docs/numerics.md section 5.
//
//   s[k], z[k] of the other operand along the contracted index k:  g'[f,k] = gy[f,k] * s[k];  q, t[f] = int8(g');
//   C[f,n] = float(sum_k q[f,k] c[k,n] - sum_k q[f,k] z[k]) * t[f].
// Scales and zero points per tensor or per index n stay with the codes: C = float(sum_k q (c - z)) * (t[f] * s[n]).
// Groups of columns n: one such product per group; gy is folded and quantized anew for each, with its own draws.
#include <algorithm>

#include "ops/common.h"
#include "ops/map/linear.h"
#include "ops/product/blocks.h"
#include "ops/product/fold.h"
#include "ops/product/gradient.h"
#include "ops/product/transposed.h"

namespace bitgrad::detail {
namespace {

constexpr int64_t kSmallestGroup = 64;

// Scales of a stored operand [rows, cols], simplified: a single group along an axis becomes per row or per column.
ScaleMap simplest_map(ScaleMap map, int64_t rows, int64_t cols) {
  if (map.trivial()) return {};
  if (map.row_step != 0 && map.col_step != 0) {
    if (map.col_group >= cols) {
      map.col_step = 0;
      map.col_group = 1;
    } else if (map.row_group >= rows) {
      map.row_step = 0;
      map.row_group = 1;
    }
  }
  return map;
}
ScaleMap simplest_map(const Tensor& t) { return simplest_map(t.scale_map(), t.rows(), t.cols()); }
bool is_grouped(const ScaleMap& map) { return map.row_step != 0 && map.col_step != 0; }

// Quantizes gy (or uses the codes already computed) as A of args, then calls run(args). B of args must be set,
// including its scale unless that is in `folded`.
template <typename Run>
void with_codes(const GradientProduct& p, const Along& folded, int64_t first_element, kernels::GemmArgs& args,
                Run&& run) {
  const Tensor codes = p.gy_codes.defined()
                           ? p.gy_codes
                           : to_int8_codes(FoldedGradient(p.gy, p.transposed, folded.scales()), p.sr, first_element);
  const bool transposed = p.transposed && !p.gy_transposed;
  Tensor minus;
  if (folded.zero.defined()) {
    minus = sums_with_zeros(codes, transposed, folded.zero);
    args.row_minus = minus.as<int64_t>();
  }
  args.a = side_of(codes, transposed).gemm;
  run(args);
}

// What is folded into gy if the other operand has no groups.
Along folded_of(const GradientProduct& p, const ScaleMap& map) {
  return map.row_step == 0 ? Along{} : along(map, p.transposed ? p.gy.rows() : p.gy.cols(), 0);
}

// Columns [c0, c0 + n) of the codes, repacked.
Tensor columns(const Tensor& t, int64_t c0, int64_t n) {
  Tensor out = Tensor::empty({t.rows(), n}, t.dtype());
  const int64_t bits = t.dtype().bits(), words = out.stride() / 8;
  run_map(maps::CopyBits{static_cast<const uint64_t*>(t.data()), t.stride() / 8, c0 * bits, n * bits,
                         static_cast<uint64_t*>(out.data()), words},
          t.rows() * words);
  return out;
}

void run_groups(const GradientProduct& p, const ScaleMap& map, kernels::GemmArgs args) {
  const int64_t cols = p.other.cols(), bits = p.other.dtype().bits(), elements = p.gy.numel();
  char* const c = static_cast<char*>(args.c);
  for (int64_t c0 = 0, group = 0; c0 < cols; c0 += map.col_group, ++group) {
    args.n = std::min(map.col_group, cols - c0);
    args.b = side_of(p.other, true, {}).gemm;
    Tensor copy;
    if (c0 * bits % 64 == 0) {
      args.b.data = static_cast<const char*>(p.other.data()) + c0 * bits / 8;
    } else {
      copy = columns(p.other, c0, args.n);
      args.b.data = copy.data();
      args.b.stride = copy.stride();
    }
    args.c = c + c0 * static_cast<int64_t>(sizeof(float));
    args.row_minus = nullptr;
    with_codes(p, along(map, args.k, c0), group * elements, args,
               [](const kernels::GemmArgs& ready) { kernels::gemm(ready); });
  }
}

// Describes the other operand in errors.
struct OtherName {
  const GradientForm& form;
  friend std::ostream& operator<<(std::ostream& out, const OtherName& o) {
    out << o.form.other_name << ' ';
    if (o.form.shape_known) out << Shape{o.form.other.rows, o.form.other.cols} << ' ';
    return out << o.form.other.dtype;
  }
};

// Hint about what else gx int8 supports.
struct GroupHint {
  const GradientForm& form;
  friend std::ostream& operator<<(std::ostream& out, const GroupHint& hint) {
    if (hint.form.windows) return out << "(0).";
    return out << ", or groups of at least " << kSmallestGroup
               << " along a row with gx_per_group (backward.per_group).";
  }
};

}  // namespace

void check_int8(const GradientForm& p) {
  const OperandForm& t = p.other;
  const OtherName other{p};
  require(is_integer(t.dtype) && t.dtype.is_code(), p.where, p.name, " int8 multiplies codes: got ", other,
          ", expected an int, uint or sign dtype of at most 8 bits. Apply `quantize` to ", p.other_name,
          " first, or set ", p.name, " to bf16 or fp32.");
  const ScaleMap map = simplest_map(scale_map_of(t), t.rows, t.cols);
  const auto granularity = [&] { return t.scales.value_or(Granularity{}); };
  require(map.offset == nullptr, p.where, p.name, " int8 has no real offsets; use bf16: got ", other,
          t.scheme.empty() ? "" : ", " + t.scheme, " per ", granularity(),
          ", expected integer zero points or none (affine, symmetric, absmax).");
  if (!is_grouped(map)) return;
  if (p.transposed)
    fail(p.where, p.name, " int8 needs scales per tensor", p.windows ? " or channel(1)" : ", channel or token",
         "; use bf16: got ", other, " per ", granularity(), '.');
  const bool served = p.per_group && map.row_group == 1 && map.col_group >= kSmallestGroup;
  require(served, p.where, p.name, " int8 needs per-channel scales; use bf16: got ", other, " per ", granularity(),
          ", expected scales per tensor or channel", GroupHint{p});
}

void share_int8_codes(GradientProduct& gx, GradientProduct& gw) {
  const ScaleMap x_map = simplest_map(gw.other), w_map = simplest_map(gx.other);
  if (is_grouped(x_map) || is_grouped(w_map)) return;
  const Along along_w = folded_of(gx, w_map), along_x = folded_of(gw, x_map);
  Int8Codes codes = to_int8_codes_both(gx.gy, along_w.scales(), along_x.scales(), gx.sr, gw.sr);
  gx.gy_codes = std::move(codes.plain);
  gw.gy_codes = std::move(codes.transposed);
  gw.gy_transposed = codes.codes_transposed;
}

void int8_product(const GradientProduct& p, GradSlot& slot) {
  const ScaleMap map = simplest_map(p.other);
  const ScaleMap stays = !is_grouped(map) && map.row_step == 0 ? map : ScaleMap{};
  kernels::GemmArgs args = product_args(side_of(p.gy, p.transposed), side_of(p.other, true, stays));
  if (!is_grouped(map)) {
    const Tensor transposed = p.other.in_layout(layouts::transposed);
    const kernels::GemmOperand b_transposed =
        transposed.defined() ? from_transposed(transposed.data(), transposed.dtype(), transposed.rows(), stays)
                             : kernels::GemmOperand{};
    return with_codes(p, folded_of(p, map), 0, args, [&](kernels::GemmArgs& ready) {
      product_into(ready, slot, transposed.defined() ? &b_transposed : nullptr);
    });
  }
  // The draws of a bf16 sum are numbered by whole rows, but a group's product only knows its own columns.
  const bool in_place = slot.dtype() == dtypes::fp32;
  const GradTarget target =
      in_place ? slot.target() : GradTarget{Tensor::empty(slot.shape(), dtypes::fp32), false, nullptr};
  args.c = target.out.data();
  args.c_dtype = target.out.dtype();
  args.ldc = target.out.cols();
  args.accumulate = target.accumulate;
  args.sr = target.sr;
  run_groups(p, map, args);
  if (in_place)
    slot.commit();
  else
    slot.set_rounded(target.out);
}

}  // namespace bitgrad::detail
