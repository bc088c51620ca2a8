// Family gemm: the list of kernels and the choice among them.
//
// The choice is a pure function of GemmArgs, the machine and the mode. Of the addresses in GemmArgs, it matters only
// which are null; the number of members of a batch does not matter. A small direct-mapped cache per thread stores it.
#include "bitgrad/kernels/gemm.h"

#include <array>
#include <string>

#include "bitgrad/base/error.h"
#include "bitgrad/kernels/gemm_costs.h"
#include "kernels/gemm/common/batch.h"
#include "kernels/gemm/common/operands.h"
#include "kernels/gemm/kernels.h"
#include "kernels/gemm/tables/table.h"
#include "kernels/kernel_table.h"

namespace bitgrad::kernels {
namespace {

// From these sizes on, sum tables are faster than the chain on every instruction set (docs/performance.md).
constexpr int64_t kLeastM = 8, kLeastN = 256;

constexpr GemmKernel kKernels[] = {
#define BITGRAD_GEMM_KERNEL(name, isa, order, a_layout, b_layout) \
  {{{"gemm", #name, DeviceKind::kCpu, isa, SumOrder::order},      \
    &gemm_impl::name##_supports,                                  \
    &gemm_impl::name##_cost,                                      \
    &gemm_detail::batched<&gemm_impl::name>},                     \
   layouts::a_layout,                                             \
   layouts::b_layout},
#include "kernels/gemm/kernels.inc"
#undef BITGRAD_GEMM_KERNEL
};

// Sets of layouts, one bit each.
using LayoutSet = uint64_t;
constexpr LayoutSet kAnyLayout = ~LayoutSet{0};
constexpr LayoutSet only(Layout layout) { return LayoutSet{1} << layout.id(); }

// The cheapest usable kernel whose operands may be in one of these layouts.
const GemmKernel* choose(const GemmArgs& args, LayoutSet a_layouts, LayoutSet b_layouts) {
  const GemmKernel* best = nullptr;
  double best_cost = 0;
  for (const GemmKernel& kernel : gemm_kernels()) {
    if ((only(kernel.a_layout) & a_layouts) == 0 || (only(kernel.b_layout) & b_layouts) == 0) continue;
    if (!kernel.usable(args) || !gemm_detail::legal_order(kernel, args)) continue;
    const double cost = gemm_cost(kernel, args);
    if (best == nullptr || cost < best_cost) {
      best = &kernel;
      best_cost = cost;
    }
  }
  return best;
}

using Key = std::array<uint64_t, 22>;

void put_operand(const GemmOperand& x, uint64_t* out) {
  out[0] = x.dtype.id() | (uint64_t{x.layout.id()} << 8) | (uint64_t{x.k_major} << 16) |
           (uint64_t{x.scale.scale != nullptr} << 17) | (uint64_t{x.scale.zero != nullptr} << 18) |
           (uint64_t{x.scale.offset != nullptr} << 19) | (uint64_t{x.row_sums != nullptr} << 20);
  out[1] = static_cast<uint64_t>(x.stride);
  out[2] = static_cast<uint64_t>(x.scale.row_step);
  out[3] = static_cast<uint64_t>(x.scale.col_step);
  out[4] = static_cast<uint64_t>(x.scale.row_group);
  out[5] = static_cast<uint64_t>(x.scale.col_group);
}

Key key_of(const GemmArgs& args, LayoutSet a_layouts, LayoutSet b_layouts) {
  Key key{};
  // For the steps of a batch, only what they are multiples of matters.
  if (args.batch.count > 1)
    key[21] = 1 | (static_cast<uint64_t>(args.batch.a) % 64) << 8 | (static_cast<uint64_t>(args.batch.b) % 64) << 16;
  key[18] = a_layouts;
  key[19] = b_layouts;
  key[20] = static_cast<uint64_t>(current_device().kind) | (uint64_t{current_device().index} << 8) |
            (uint64_t{device_isa()} << 16);
  key[0] = static_cast<uint64_t>(args.m);
  key[1] = static_cast<uint64_t>(args.n);
  key[2] = static_cast<uint64_t>(args.k);
  key[3] = static_cast<uint64_t>(args.ldc);
  key[4] = args.c_dtype.id() | (uint64_t{args.bias != nullptr} << 8) | (uint64_t{args.fold_b_scale} << 9) |
           (uint64_t{args.accumulate} << 10) | (uint64_t{args.sr != nullptr} << 11) |
           (uint64_t{bits_mode() == BitsMode::kStrict} << 12) | (uint64_t{args.row_minus != nullptr} << 13) |
           (uint64_t{args.row_alone} << 14);
  key[5] = isa_generation() ^ (gemm_costs_generation() << 32);
  put_operand(args.a, &key[6]);
  put_operand(args.b, &key[12]);
  return key;
}

// Multiply and xor (Steele and Vigna 2021, mixing by odd constants): sufficient for a cache of a few dozen shapes.
uint64_t hash_of(const Key& key) {
  uint64_t h = 0;
  for (const uint64_t word : key) {
    h = (h ^ word) * 0x9E3779B97F4A7C15u;
    h ^= h >> 32;
  }
  return h;
}

struct CachedChoice {
  Key key{};
  const GemmKernel* kernel = nullptr;
};
constexpr size_t kCacheSlots = 256;

std::string describe_scale(const GemmOperand& x) {
  if (x.scale.trivial()) return "no scale";
  std::string text;
  if (x.scale.per_tensor()) {
    text = "scale per tensor";
  } else if (gemm_detail::scaled_per_free_index(x)) {
    text = "scale per free index";
  } else {
    text = "scale along k";
  }
  if (x.scale.zero != nullptr) text += " with zero points";
  if (x.scale.offset != nullptr) text += " with offsets";
  return text;
}

std::string describe(const GemmOperand& x, int64_t free, int64_t k) {
  const std::string shape = x.k_major ? concat('[', k, ',', free, ']') : concat('[', free, ',', k, ']');
  return concat(x.dtype, shape, " in layout ", x.layout, ", ", describe_scale(x));
}

[[noreturn]] void fail_no_kernel(const GemmArgs& args, const char* where) {
  if (!current_device().is_cpu())
    for (const DType dtype : {args.a.dtype, args.b.dtype, args.c_dtype})
      if (dtype == dtypes::fp64) detail::fail_fp64_on_device(where);
  std::string options;
  if (args.bias != nullptr) options += ", bias";
  if (args.fold_b_scale) options += ", fold_b_scale";
  if (args.row_minus != nullptr) options += ", row_minus";
  if (args.accumulate) options += ", accumulate";
  fail(where, "no kernel for these operands: got A ", describe(args.a, args.m, args.k), "; B ",
       describe(args.b, args.n, args.k), "; C ", args.c_dtype, '[', args.m, ',', args.n, ']', options,
       ", expected operands in canonical layout or in the layouts of one kernel of `bitgrad kernels`, and for an "
       "integer "
       "C codes without scales, bias or accumulate (row_minus: integer codes without groups or offsets). Hint: "
       "pass the canonical codes, or query plan_gemm for the layouts.");
}

}  // namespace

SumOrder gemm_detail::strict_order(const GemmArgs& args) {
  if (gemm_is_integer(args)) return SumOrder::kExact;
  if (args.a.dtype == dtypes::fp64 || args.b.dtype == dtypes::fp64 || args.c_dtype == dtypes::fp64)
    return SumOrder::kFp64;
  // With row_alone, a row must have the order that it would have as the only row.
  const bool tables =
      !args.row_alone && args.m >= kLeastM && args.n >= kLeastN && gemm_detail::table_f32_supports(args);
  return tables ? SumOrder::kTable : SumOrder::kChain512;
}

KernelList<GemmKernel>& gemm_kernels() {
  static auto& list = *new KernelList<GemmKernel>(kKernels);
  return list;
}

bool gemm_is_integer(const GemmArgs& args) {
  return gemm_detail::integer_product(args) != gemm_detail::IntegerProduct::kNone;
}

namespace {

const GemmKernel* cached_choice(const GemmArgs& args, LayoutSet a_layouts, LayoutSet b_layouts, const char* where) {
  if (args.batch.count != 1) gemm_detail::check_batch(args, where);
  thread_local std::array<CachedChoice, kCacheSlots> cache;
  const Key key = key_of(args, a_layouts, b_layouts);
  CachedChoice& slot = cache[hash_of(key) % kCacheSlots];
  if (slot.key != key || slot.kernel == nullptr) slot = {key, choose(args, a_layouts, b_layouts)};
  return slot.kernel;
}

const GemmKernel& needed_choice(const GemmArgs& args, LayoutSet a_layouts, LayoutSet b_layouts, const char* where) {
  const GemmKernel* const kernel = cached_choice(args, a_layouts, b_layouts, where);
  if (kernel == nullptr) fail_no_kernel(args, where);
  return *kernel;
}

LayoutSet set_of(std::span<const Layout> layouts) {
  LayoutSet set = 0;
  for (const Layout layout : layouts) set |= only(layout);
  return set;
}

// `supports` and `cost` refer to the operands as stored. A derived layout is made from canonical codes, so planning
// starts from those.
GemmArgs as_canonical(GemmArgs args) {
  args.a.layout = layouts::canonical;
  args.b.layout = layouts::canonical;
  return args;
}

}  // namespace

const GemmKernel& select_gemm(const GemmArgs& args) {
  return needed_choice(args, only(args.a.layout), only(args.b.layout), "gemm");
}

const GemmKernel& plan_gemm(const GemmArgs& args) {
  return needed_choice(as_canonical(args), kAnyLayout, kAnyLayout, "plan_gemm");
}

const GemmKernel& plan_gemm(const GemmArgs& args, std::span<const Layout> b_layouts) {
  return needed_choice(as_canonical(args), kAnyLayout, set_of(b_layouts), "plan_gemm");
}

const GemmKernel* find_gemm(const GemmArgs& args, std::span<const Layout> b_layouts) {
  return cached_choice(as_canonical(args), kAnyLayout, set_of(b_layouts), "find_gemm");
}

void gemm(const GemmArgs& args) { select_gemm(args).run(args); }

}  // namespace bitgrad::kernels
