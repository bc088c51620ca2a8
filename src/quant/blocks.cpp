#include "quant/blocks.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace bitgrad::detail {
namespace {

bool down_the_rows(const Granularity& g) { return g.kind == Granularity::kGroup && g.axis == 0; }

ReduceAxis axis_of(const Granularity& g) {
  switch (g.kind) {
    case Granularity::kTensor:
      return ReduceAxis::kAll;
    case Granularity::kToken:
      return ReduceAxis::kRows;
    case Granularity::kChannel:
      return g.axis == 0 ? ReduceAxis::kRows : ReduceAxis::kColumns;
    case Granularity::kGroup:
      break;
  }
  return g.axis == 0 ? ReduceAxis::kColumns : ReduceAxis::kGroups;
}

// Elements of block `index` of those of `group` along an axis of n.
int64_t run_length(int64_t n, int64_t group, int64_t index) { return std::min(group, n - index * group); }

}  // namespace

Blocks::Blocks(std::string_view scheme, const Granularity& granularity, const Tensor& x)
    : scheme_(scheme), granularity_(granularity), x_(x) {
  require(x.defined() && x.dtype() == dtypes::fp32 && !x.quant(), scheme, "scales are fitted to fp32 numbers: got ", x,
          x.quant() ? ", which is quantized already" : "", '.');
  require(x.layout() == layouts::canonical, scheme, "scales are fitted to canonical numbers: got layout ", x.layout(),
          '.');
  count_ = scale_count(granularity, x.rows(), x.cols());
}

float Blocks::size(int64_t block) const {
  const int64_t rows = x_.rows(), cols = x_.cols();
  int64_t n = x_.numel();
  switch (granularity_.kind) {
    case Granularity::kTensor:
      break;
    case Granularity::kToken:
      n = cols;
      break;
    case Granularity::kChannel:
      n = granularity_.axis == 0 ? cols : rows;
      break;
    case Granularity::kGroup:
      n = down_the_rows(granularity_)
              ? run_length(rows, granularity_.group, block / cols)
              : run_length(cols, granularity_.group, block % ((cols + granularity_.group - 1) / granularity_.group));
  }
  return static_cast<float>(n);
}

std::vector<float> Blocks::statistic(ReduceRule rule) const {
  std::vector<float> out(static_cast<size_t>(count_), 0.0f);
  if (empty()) return out;
  uint32_t flags = 0;
  ReduceArgs args;
  args.rule = rule;
  args.axis = axis_of(granularity_);
  args.rows = x_.rows();
  args.cols = x_.cols();
  args.group = granularity_.group;
  args.x = x_.as<float>();
  args.ldx = x_.stride() / static_cast<int64_t>(sizeof(float));
  args.out = out.data();
  args.flags = &flags;
  const int64_t step = down_the_rows(granularity_) ? granularity_.group : args.rows;
  for (int64_t r = 0; r < x_.rows(); r += step) {
    args.rows = std::min(step, x_.rows() - r);
    reduce(args);
    args.x += step * args.ldx;
    args.out += args.cols;
  }
  if (flags != 0) fail_with(ErrorCode::kNonFinite, scheme_, "x ", x_, " holds NaN or Inf: no scale fits it.");
  return out;
}

float ceil_pow2(float s) {
  const uint32_t bits = std::bit_cast<uint32_t>(s);
  if (bits < 0x00800000u) return std::bit_cast<float>(std::bit_ceil(bits));  // subnormal
  return std::bit_cast<float>((bits + 0x007FFFFFu) & 0xFF800000u);
}

float finish_scale(const QuantSpec& spec, const Blocks& blocks, int64_t block, float scale) {
  const float s = spec.pow2 ? ceil_pow2(scale) : scale;
  if (!std::isfinite(s))
    fail_with(ErrorCode::kNonFinite, blocks.scheme(), "the numbers of x ", blocks.tensor(),
              " are too large: the scale of block ", block, " is ", s, " in fp32.");
  return s;
}

float finish_offset(const Blocks& blocks, int64_t block, float offset) {
  if (!std::isfinite(offset))
    fail_with(ErrorCode::kNonFinite, blocks.scheme(), "the numbers of x ", blocks.tensor(),
              " are too large: the offset of block ", block, " is ", offset, " in fp32.");
  return offset;
}

}  // namespace bitgrad::detail
