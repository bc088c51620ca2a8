#include "cuda/kernels/gemm/wgmma/kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "bitgrad/base/error.h"
#include "cuda/kernels/gemm/args.h"
#include "cuda/kernels/gemm/wgmma/args.h"
#include "cuda/kernels/gemm/wgmma/tile.h"
#include "cuda/runtime/runtime.h"
#include "kernels/gemm/common/operands.h"

namespace bitgrad::cuda::gemm {
namespace {

constexpr NamedWgmmaKernel kWgmmaKernels[] = {
#define BITGRAD_WGMMA_SS(kernel, type, columns, cluster, rows, store) \
  {&kernel, #kernel, WgmmaType::type, 8, {columns, cluster, rows}, WgmmaStore::store},
#include "cuda/kernels/gemm/wgmma/ss_kernels.inc"
#undef BITGRAD_WGMMA_SS
#define BITGRAD_WGMMA_RS(kernel, type, bits, columns, cluster, rows, store) \
  {&kernel, #kernel, WgmmaType::type, bits, {columns, cluster, rows}, WgmmaStore::store},
#include "cuda/kernels/gemm/wgmma/rs_kernels.inc"
#undef BITGRAD_WGMMA_RS
};

using gemm_detail::ceil_div;
using gemm_detail::IntegerProduct;

// Fitted to an H100 (docs/results/gpu_h100.md). A step of 32 bytes of k on one tile takes N / 2 clocks for each of two
// consumers, divided by the share of peak that such loops reach.
constexpr double kClocksPerNs = 1.7, kLoopShare = 1.0, kAloneShare = 0.9, kTurnsShare = 0.89;
// Twice what the instructions take: boxes wait for TMA to read those before them.
constexpr double kEpilogueClocksPerColumn = 23.5;
// Of an epilogue, what products of the other consumer's tile do not cover if the consumers take turns.
constexpr double kTurnsEnd = 0.8;

// Clusters of four leave 12 multiprocessors idle: those of a GPC are 16 or 18.
constexpr double at_once(int cluster) { return cluster == 4 ? 30 : kMultiprocessors / cluster; }

double form_ns(TileForm form, int64_t rows, int64_t columns, int64_t k_bytes) {
  const double tiles = static_cast<double>(ceil_div(rows, form.rows * form.cluster) * ceil_div(columns, form.columns));
  const double waves = std::ceil(tiles / at_once(form.cluster));
  const double share = form.rows != kTileRows ? kTurnsShare : form.cluster == 1 ? kAloneShare : kLoopShare;
  const double products =
      static_cast<double>(ceil_div(k_bytes, kBlockBytes) * 4 * form.columns) / share * form.rows / kTileRows;
  const double end = form.columns * kEpilogueClocksPerColumn * form.rows / kTileRows;
  return kLaunchNs + waves * (products + end * (form.rows == kTileRows ? 1 : kTurnsEnd)) / kClocksPerNs;
}

// Sums are added in the L2 cache at a fraction of the store rate. Clearing them and converting them to C takes one
// launch each.
constexpr double kAddsPerNs = 500;
constexpr int64_t kMostParts = 16;

// All parts run at the same time, so there are at most kMultiprocessors / tiles of them.
double split_ns(int64_t rows, int64_t columns, int64_t k_bytes, int parts) {
  const double sums = static_cast<double>(rows) * static_cast<double>(columns);
  return form_ns(kNarrowTile128, rows, columns, ceil_div(k_bytes, parts)) + sums * parts / kAddsPerNs +
         3 * 4 * sums / kBytesPerNs + 2 * kLaunchNs;
}

void set_shared_sizes(TileForm form, int bits, LaunchShape& shape) {
  if (form.rows != kTileRows) {
    shape.shared_bytes = TileMemory<256, 8, 64>::kBytes;
    return;
  }
  const auto bytes = [&]<int kColumns>() {
    switch (bits) {
      case 1:
        return TileMemory<kColumns, 1, kTileRows>::kBytes;
      case 2:
        return TileMemory<kColumns, 2, kTileRows>::kBytes;
      case 3:
        return TileMemory<kColumns, 3, kTileRows>::kBytes;
      case 4:
        return TileMemory<kColumns, 4, kTileRows>::kBytes;
      case 5:
        return TileMemory<kColumns, 5, kTileRows>::kBytes;
      case 6:
        return TileMemory<kColumns, 6, kTileRows>::kBytes;
      case 7:
        return TileMemory<kColumns, 7, kTileRows>::kBytes;
      default:
        return TileMemory<kColumns, 8, kTileRows>::kBytes;
    }
  };
  shape.shared_bytes = form.columns == 256 ? bytes.template operator()<256>() : bytes.template operator()<128>();
}

// ---- stores from fragments (store.h) ----
StoreSide side_of(const FreeParams& params, const int32_t* sum, int32_t times, int64_t count) {
  StoreSide side;
  side.scale = params.scale;
  side.step = static_cast<int32_t>(params.step);
  side.sum = sum;
  side.times = times;
  side.count = static_cast<int32_t>(count);
  return side;
}

// C must be overwritten, in rows that TMA can write, with sums whose corrections fit in int32. bits: the product
// corrects its sums, so its tables have no room for a bias. TMA writes whole pieces of 16 bytes, also past the bounds
// of its matrix: behind rows that end within one may lie something else.
bool allows(const WgmmaArgs& args, bool rows_are_weights, bool bits) {
  const Output& out = args.out;
  const int64_t size = out.form == OutputForm::kFp32 ? 4 : 2;
  const bool is_float = out.form == OutputForm::kFp32 || out.form == OutputForm::kBf16;
  return is_float && !(rows_are_weights && out.form == OutputForm::kFp32) && !out.accumulate && !out.stochastic &&
         !args.rule.wide && !(bits && out.bias != nullptr) && reinterpret_cast<uintptr_t>(out.c) % 16 == 0 &&
         out.ldc * size % 16 == 0 && out.n * size % 16 == 0 && std::max(out.n, out.ldc) * size <= INT32_MAX;
}

}  // namespace

bool wgmma_operand(const GemmOperand& x, int64_t batch_step) {
  return !x.k_major && x.layout == layouts::canonical && x.stride % 16 == 0 && batch_step % 16 == 0 &&
         reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}

bool wgmma_product(const GemmArgs& args, double largest_product) {
  return args.k > 0 && gemm_detail::integer_product(args) == IntegerProduct::kPlain && integer_output(args) &&
         largest_product * static_cast<double>(args.k) <= 0x7FFFFFFFp0 &&
         std::max({args.m, args.n, args.k}) <= INT32_MAX / 2;
}

std::optional<TileForm> named_form() {
  const char* const name = std::getenv("BITGRAD_WGMMA_FORM");
  if (name == nullptr || *name == '\0') return std::nullopt;
  const std::string_view form = name;
  if (form == "wide") return kWideTile256;
  if (form == "narrow") return kNarrowTile128;
  if (form == "turns") return kTurnsTile256;
  fail_with(ErrorCode::kUsage, "BITGRAD_WGMMA_FORM", "got '", form, "', expected wide, narrow or turns");
}

TileForm choose_form(int64_t rows, int64_t columns, int64_t k_bytes, bool turns) {
  if (const auto named = named_form()) {
    require(named->rows == kTileRows || turns, "BITGRAD_WGMMA_FORM",
            "got turns, expected wide or narrow: only int8 x int8 and 1 bit x 1 bit into fp32 or bf16 have turns");
    return *named;
  }
  TileForm best = kWideTile256;
  const auto takes = [&](TileForm form) {
    if (form_ns(form, rows, columns, k_bytes) < form_ns(best, rows, columns, k_bytes)) best = form;
  };
  takes(kNarrowTile128);
  if (turns) takes(kTurnsTile256);
  return best;
}

int split_parts(int64_t rows, int64_t columns, int64_t k_bytes, bool turns) {
  if (rows == 0 || columns == 0 || named_form()) return 1;
  const int64_t tiles = ceil_div(rows, kTileRows) * ceil_div(columns, kNarrowTile128.columns);
  const int64_t most =
      std::min({static_cast<int64_t>(kMultiprocessors) / tiles, ceil_div(k_bytes, kBlockBytes) / kStages, kMostParts});
  if (most < 2) return 1;
  const auto parts = static_cast<int>(most);
  const double whole = form_ns(choose_form(rows, columns, k_bytes, turns), rows, columns, k_bytes);
  return split_ns(rows, columns, k_bytes, parts) < whole ? parts : 1;
}

double tiles_cost(const GemmArgs& args, int64_t rows, int64_t columns, int64_t k_bytes, bool turns, int parts) {
  const double tiles = parts > 1 ? split_ns(rows, columns, k_bytes, parts)
                                 : form_ns(choose_form(rows, columns, k_bytes, turns), rows, columns, k_bytes);
  const bool makes_sums =
      (needs_sums_a(args) && args.a.row_sums == nullptr) || (needs_sums_b(args) && args.b.row_sums == nullptr);
  return tiles + (makes_sums ? kLaunchNs : 0);
}

RawRule raw_rule(DType dtype) {
  if (dtype.kind() == DTypeKind::kSign) return {2, 1};
  return {1, 0};
}

WgmmaArgs common_args(const GemmArgs& args) {
  WgmmaArgs out;
  out.out = output_of(args);
  out.a = free_params(operand_of(args.a));
  out.b = free_params(operand_of(args.b));
  const RawRule a = raw_rule(args.a.dtype), b = raw_rule(args.b.dtype);
  SumRule& rule = out.rule;
  rule.factor_a = a.factor;
  rule.factor_b = b.factor;
  rule.base_a = a.base;
  rule.base_b = b.base;
  rule.wide = args.a.scale.zero != nullptr || args.b.scale.zero != nullptr || args.row_minus != nullptr;
  rule.plain = !rule.wide && a.factor * b.factor == 1;
  return out;
}

bool needs_sums_a(const GemmArgs& args) { return raw_rule(args.b.dtype).base != 0 || args.b.scale.zero != nullptr; }
bool needs_sums_b(const GemmArgs& args) { return raw_rule(args.a.dtype).base != 0 || args.a.scale.zero != nullptr; }

void sum_codes(const GemmArgs& args, bool of_a, bool of_b, int32_t* sums, SumRule& rule) {
  if (of_a) rule.sum_a = args.a.row_sums;
  if (of_b) rule.sum_b = args.b.row_sums;
  of_a = of_a && rule.sum_a == nullptr;
  of_b = of_b && rule.sum_b == nullptr;
  if (!of_a && !of_b) return;
  const CodeSumsArgs both{
      {operand_of(args.a), of_a ? args.m : 0, sums}, {operand_of(args.b), of_b ? args.n : 0, sums + args.m}, args.k};
  if (of_a) rule.sum_a = both.a.out;
  if (of_b) rule.sum_b = both.b.out;
  LaunchShape shape;
  shape.grid.x = static_cast<unsigned>(ceil_div(both.a.rows + both.b.rows, kCodeSumsThreads / 32));
  shape.block.x = kCodeSumsThreads;
  shape.name = "gemm_code_sums_simt";
  launch(&gemm_code_sums_simt, shape, both);
}

int multiprocessors() { return device_properties(current_device_index()).multiprocessors; }

void launch_tiles(WgmmaKernel kernel, const char* name, WgmmaArgs args, int64_t rows, int64_t columns, TileForm form,
                  int bits, int blocks) {
  args.schedule.rows = static_cast<int32_t>(ceil_div(rows, form.rows * form.cluster));
  args.schedule.columns = static_cast<int32_t>(ceil_div(columns, form.columns));
  args.schedule.band = 8 / form.cluster;
  LaunchShape shape;
  shape.block.x = kWgmmaThreads;
  shape.cluster = form.cluster;
  shape.name = name;
  set_shared_sizes(form, bits, shape);
  // No more clusters than can run at once: the tiles of a waiting cluster would become an extra round.
  const int64_t most = std::min(std::max(1, blocks / form.cluster), max_active_clusters(kernel, shape));
  const int64_t clusters = std::min<int64_t>(int64_t{args.schedule.count()} * args.split.parts, most);
  shape.grid.x = static_cast<unsigned>(clusters * form.cluster);
  launch(kernel, shape, args);
}

bool stores_fragments(const GemmArgs& args, bool rows_are_weights) {
  return allows(common_args(args), rows_are_weights, args.a.dtype.bits() == 1);
}

WgmmaStore plan_store(const GemmArgs& args, bool rows_are_weights, WgmmaArgs& out) {
  if (!allows(out, rows_are_weights, args.a.dtype.bits() == 1)) return WgmmaStore::kGeneral;
  const SumRule& rule = out.rule;
  const int64_t size = out.out.form == OutputForm::kFp32 ? 4 : 2;
  StoreSide a = side_of(out.a, rule.sum_a, -rule.factor_a * rule.base_b, args.m);
  StoreSide b = side_of(out.b, rule.sum_b, -rule.factor_b * rule.base_a, args.n);
  a.base = static_cast<int32_t>(args.k) * rule.base_a * rule.base_b;
  b.bias = out.out.bias;
  out.store.factor = rule.factor_a * rule.factor_b;
  out.store.bias = b.bias != nullptr;
  out.store.rows = rows_are_weights ? b : a;
  out.store.columns = rows_are_weights ? a : b;
  out.store.c = make_tensor_map(args.c, args.n * size, args.m, out.out.ldc * size, kBoxRows);
  return out.out.form == OutputForm::kFp32 ? WgmmaStore::kFp32 : WgmmaStore::kBf16;
}

const NamedWgmmaKernel& wgmma_kernel(WgmmaType type, int bits, TileForm form, WgmmaStore store) {
  const auto* const found = std::find_if(std::begin(kWgmmaKernels), std::end(kWgmmaKernels), [&](const auto& k) {
    return k.type == type && k.bits == bits && k.form.columns == form.columns && k.form.rows == form.rows &&
           k.store == store;
  });
  ensure(found != std::end(kWgmmaKernels), "gemm", "no wgmma kernel of type ", static_cast<int>(type), ", ", bits,
         " bits, a tile of ", form.rows, " x ", form.columns, " and store ", static_cast<int>(store));
  return *found;
}

}  // namespace bitgrad::cuda::gemm
