#include "ops/product/fold.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "kernels/elementwise.h"
#include "kernels/quantize.h"
#include "kernels/reduce.h"
#include "ops/map/linear.h"

namespace bitgrad::detail {
namespace {

constexpr int64_t kBlockElements = 1 << 16;
constexpr int64_t kMaxChunks = 64;
constexpr float kQmax = 127.0f, kEps = 0x1p-126f;

int64_t block_count(const FoldedGradient& g) {
  return g.cols() == 0 ? 0 : (g.rows() + g.block_rows() - 1) / g.block_rows();
}
int64_t chunk_count(const FoldedGradient& g) { return std::min(block_count(g), kMaxChunks); }

// Calls body(chunk, r0, count, values) for blocks of rows. The blocks of a chunk run in order on one thread. The split
// depends only on the shape.
template <typename Body>
void for_each_block(const FoldedGradient& g, Body&& body) {
  const int64_t step = g.block_rows(), blocks = block_count(g), chunks = chunk_count(g);
  parallel_for(chunks, [&](int64_t chunk) {
    const Workspace scratch(step * g.cols() * static_cast<int64_t>(sizeof(float)));
    for (int64_t b = blocks * chunk / chunks; b < blocks * (chunk + 1) / chunks; ++b) {
      const int64_t r0 = b * step, count = std::min(step, g.rows() - r0);
      body(chunk, r0, count, g.block(r0, count, scratch.as<float>()));
    }
  });
}

// Largest absolute value per free index.
std::vector<float> largest(const FoldedGradient& g, uint32_t* flags) {
  const int64_t free = g.free(), cols = g.cols(), chunks = std::max<int64_t>(1, chunk_count(g));
  // transposed: one line per chunk, merged at the end; the order does not affect a maximum.
  std::vector<float> lines(static_cast<size_t>(g.transposed() ? chunks * free : free), 0.0f);
  for_each_block(g, [&](int64_t chunk, int64_t r0, int64_t count, const float* x) {
    kernels::ReduceArgs args;
    args.rule = kernels::ReduceRule::kAbsMax;
    args.axis = g.transposed() ? kernels::ReduceAxis::kColumns : kernels::ReduceAxis::kRows;
    args.rows = count;
    args.cols = cols;
    args.x = x;
    args.ldx = cols;
    args.flags = flags;
    if (!g.transposed()) {
      args.out = lines.data() + r0;
      return kernels::reduce(args);
    }
    const Workspace block(free * static_cast<int64_t>(sizeof(float)));
    args.out = block.as<float>();
    kernels::reduce(args);
    float* line = lines.data() + chunk * free;
    for (int64_t f = 0; f < free; ++f) line[f] = std::max(line[f], args.out[f]);
  });
  if (g.transposed())
    for (int64_t chunk = 1; chunk < chunks; ++chunk)
      for (int64_t f = 0; f < free; ++f)
        lines[static_cast<size_t>(f)] =
            std::max(lines[static_cast<size_t>(f)], lines[static_cast<size_t>(chunk * free + f)]);
  lines.resize(static_cast<size_t>(free));
  return lines;
}

// Free indices that contain a NaN or Inf. Called only if there is one.
std::vector<bool> broken(const FoldedGradient& g) {
  std::vector<bool> out(static_cast<size_t>(g.free()), false);
  const Workspace scratch(g.cols() * static_cast<int64_t>(sizeof(float)));
  for (int64_t r = 0; r < g.rows(); ++r) {
    const float* x = g.block(r, 1, scratch.as<float>());
    for (int64_t c = 0; c < g.cols(); ++c)
      if (!std::isfinite(x[c])) out[static_cast<size_t>(g.transposed() ? c : r)] = true;
  }
  return out;
}

}  // namespace

int64_t FoldedGradient::block_rows() const {
  return std::max<int64_t>(1, kBlockElements / std::max<int64_t>(1, cols()));
}

const float* FoldedGradient::block(int64_t r0, int64_t count, float* scratch) const {
  const int64_t width = cols();
  const float* x = scratch;
  if (gy_.dtype() == dtypes::bf16) {
    kernels::from_bf16(count * width, gy_.as<uint16_t>() + r0 * width, scratch);
  } else {
    x = gy_.as<float>() + r0 * width;
  }
  if (fold_ == nullptr) return x;
  for (int64_t r = 0; r < count; ++r) {
    if (transposed_) {
      kernels::scale(width, x + r * width, fold_[r0 + r], scratch + r * width);
    } else {
      kernels::mul(width, x + r * width, fold_, scratch + r * width);
    }
  }
  return scratch;
}

Along along(const ScaleMap& map, int64_t k, int64_t c0) {
  Along out;
  if (map.scale != nullptr) out.scale = Tensor::empty({k}, dtypes::fp32, MemoryKind::kWorkspace);
  if (map.zero != nullptr) out.zero = Tensor::empty({k}, dtypes::int32, MemoryKind::kWorkspace);
  if (map.scale == nullptr && map.zero == nullptr) return out;
  run_map(maps::GatherAlong{map.scale, map.zero, map.row_group, map.row_step, c0 / map.col_group * map.col_step,
                            map.scale == nullptr ? nullptr : out.scale.as<float>(),
                            map.zero == nullptr ? nullptr : out.zero.as<int32_t>()},
          k);
  return out;
}

namespace {

// In the form that maps read.
maps::FoldedNumbers numbers_of(const FoldedGradient& g) {
  return {g.gy().data(), g.gy().dtype() == dtypes::bf16, g.transposed(), g.cols(), g.fold()};
}

}  // namespace

Tensor to_bf16_codes(const FoldedGradient& g) {
  Tensor out = Tensor::empty({g.rows(), g.cols()}, dtypes::bf16);
  if (!current_device().is_cpu()) {
    run_map(maps::FoldToBf16{numbers_of(g), out.as<uint16_t>()}, out.numel());
    return out;
  }
  for_each_block(g, [&](int64_t, int64_t r0, int64_t count, const float* x) {
    kernels::to_bf16(count * g.cols(), x, out.as<uint16_t>() + r0 * g.cols());
  });
  return out;
}

namespace {

Tensor with_scales(const Tensor& codes, const Tensor& scales, bool transposed) {
  QuantParams params;
  params.scheme = "absmax";
  params.granularity = transposed ? Granularity::channel(1) : Granularity::token();
  params.scale = std::make_shared<const Tensor>(scales);
  return codes.with_quant(std::make_shared<const QuantParams>(std::move(params)));
}

// One order of gy's codes, for the kernel that writes them if all values are finite.
struct Order {
  Order(const FoldedGradient& g, const std::optional<RandomStream>& sr, int64_t first_element,
        bool codes_transposed = false)
      : scales(Tensor::empty({g.free()}, dtypes::fp32)),
        codes(Tensor::empty(codes_transposed ? Shape{g.cols(), g.rows()} : Shape{g.rows(), g.cols()}, dtypes::int8)),
        args{g.fold(),      scales.as<float>(), codes.as<int8_t>(), codes.stride(), sr ? &*sr : nullptr,
             first_element, codes_transposed} {}
  Tensor scales, codes;
  kernels::Int8Order args;
};

kernels::Int8OrdersArgs orders_of(const Tensor& gy) {
  kernels::Int8OrdersArgs args;
  args.rows = gy.rows();
  args.cols = gy.cols();
  args.x = gy.data();
  args.bf16 = gy.dtype() == dtypes::bf16;
  return args;
}

// General CPU version: values that are not finite affect only their own index. Kernels of other devices set scale NaN
// for such indices themselves.
Tensor codes_beside_nonfinite(const FoldedGradient& g, const std::optional<RandomStream>& sr, int64_t first_element) {
  uint32_t flags = 0;
  const std::vector<float> largest_of = largest(g, &flags);
  const std::vector<bool> bad = flags != 0 ? broken(g) : std::vector<bool>(largest_of.size(), false);
  const Tensor scales = Tensor::empty({g.free()}, dtypes::fp32);
  float* s = scales.as<float>();
  for (size_t f = 0; f < largest_of.size(); ++f) s[f] = bad[f] ? 1.0f : std::max(largest_of[f] / kQmax, kEps);
  const Tensor codes = Tensor::empty({g.rows(), g.cols()}, dtypes::int8);
  for_each_block(g, [&](int64_t, int64_t r0, int64_t count, const float* x) {
    uint32_t seen = 0;
    kernels::QuantizeArgs args;
    args.rows = count;
    args.cols = g.cols();
    args.x = x;
    args.ldx = g.cols();
    args.dtype = dtypes::int8;
    args.codes = static_cast<char*>(codes.data()) + r0 * codes.stride();
    args.stride = codes.stride();
    args.lo = -static_cast<int64_t>(kQmax);
    args.hi = static_cast<int64_t>(kQmax);
    args.scale.scale = g.transposed() ? s : s + r0;
    (g.transposed() ? args.scale.col_step : args.scale.row_step) = 1;
    args.sr = sr ? &*sr : nullptr;
    args.first_element = first_element + r0 * g.cols();
    args.flags = &seen;
    kernels::quantize(args);
  });
  for (size_t f = 0; f < bad.size(); ++f)
    if (bad[f]) s[f] = std::numeric_limits<float>::quiet_NaN();
  return with_scales(codes, scales, g.transposed());
}

}  // namespace

Tensor to_int8_codes(const FoldedGradient& g, const std::optional<RandomStream>& sr, int64_t first_element) {
  const Order order(g, sr, first_element);
  kernels::Int8OrdersArgs args = orders_of(g.gy());
  (g.transposed() ? args.by_column : args.by_row) = order.args;
  if (!kernels::quantize_int8_orders(args)) return codes_beside_nonfinite(g, sr, first_element);
  return with_scales(order.codes, order.scales, g.transposed());
}

Int8Codes to_int8_codes_both(const Tensor& gy, const float* fold_plain, const float* fold_transposed,
                             const std::optional<RandomStream>& sr_plain,
                             const std::optional<RandomStream>& sr_transposed) {
  const FoldedGradient plain(gy, false, fold_plain), transposed(gy, true, fold_transposed);
  {
    // Rows of 16 bytes, which a device multiplies fastest.
    const bool codes_transposed = !current_device().is_cpu() && gy.rows() % 16 == 0;
    const Order by_row(plain, sr_plain, 0), by_column(transposed, sr_transposed, 0, codes_transposed);
    kernels::Int8OrdersArgs args = orders_of(gy);
    args.by_row = by_row.args;
    args.by_column = by_column.args;
    if (kernels::quantize_int8_orders(args))
      return {with_scales(by_row.codes, by_row.scales, false),
              with_scales(by_column.codes, by_column.scales, !codes_transposed), codes_transposed};
  }
  return {to_int8_codes(plain, sr_plain, 0), to_int8_codes(transposed, sr_transposed, 0)};
}

Tensor sums_with_zeros(const Tensor& codes, bool transposed, const Tensor& zero) {
  constexpr int64_t kGrain = 64;
  const int64_t rows = codes.rows(), cols = codes.cols(), stride = codes.stride(), free = transposed ? cols : rows;
  const auto* q = static_cast<const int8_t*>(codes.data());
  const auto* z = zero.as<int32_t>();
  Tensor sums = Tensor::zeros({free}, dtypes::int64, MemoryKind::kWorkspace);
  auto* out = sums.as<int64_t>();
  if (!current_device().is_cpu()) {
    const int64_t contracted = transposed ? rows : cols,
                  parts = (contracted + maps::kZerosPerPart - 1) / maps::kZerosPerPart;
    run_map(maps::SumWithZeros{q, stride, free, contracted, transposed, z, out}, parts * free);
    return sums;
  }
  parallel_ranges(free, kGrain, [&](int64_t begin, int64_t end) {
    if (!transposed) {
      for (int64_t r = begin; r < end; ++r) {
        int64_t total = 0;
        for (int64_t c = 0; c < cols; ++c) total += int64_t{q[r * stride + c]} * z[c];
        out[r] = total;
      }
      return;
    }
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = begin; c < end; ++c) out[c] += q[r * stride + c] * int64_t{z[r]};
  });
  return sums;
}

}  // namespace bitgrad::detail
