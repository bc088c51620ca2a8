#include "quant/blocks.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

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

int64_t block_size(const Granularity& g, int64_t rows, int64_t cols, int64_t block) {
  switch (g.kind) {
    case Granularity::kTensor:
      break;
    case Granularity::kToken:
      return cols;
    case Granularity::kChannel:
      return g.axis == 0 ? cols : rows;
    case Granularity::kGroup:
      return down_the_rows(g) ? run_length(rows, g.group, block / cols)
                              : run_length(cols, g.group, block % scale_count(g, 1, cols));
  }
  return rows * cols;
}

Blocks::Blocks(std::string_view scheme, const Granularity& granularity, const Tensor& x)
    : scheme_(scheme), granularity_(granularity), x_(x) {
  require(x.defined() && x.dtype() == dtypes::fp32 && !x.quant(), scheme, "scales are fitted to fp32 numbers: got ", x,
          x.quant() ? ", which is quantized already" : "", '.');
  require(x.layout() == layouts::canonical, scheme, "scales are fitted to canonical numbers: got layout ", x.layout(),
          '.');
  count_ = scale_count(granularity, x.rows(), x.cols());
}

float Blocks::size(int64_t block) const {
  return static_cast<float>(block_size(granularity_, x_.rows(), x_.cols(), block));
}

void Blocks::reduce_to(ReduceRule rule, std::span<const float> center, uint32_t* flags, float* out) const {
  if (empty()) return;
  ReduceArgs args;
  args.rule = rule;
  args.axis = axis_of(granularity_);
  args.rows = x_.rows();
  args.cols = x_.cols();
  args.group = granularity_.group;
  args.x = x_.as<float>();
  args.ldx = x_.stride() / static_cast<int64_t>(sizeof(float));
  args.center = center.empty() ? nullptr : center.data();
  args.out = out;
  args.flags = flags;
  const int64_t step = down_the_rows(granularity_) ? granularity_.group : args.rows;
  for (int64_t r = 0; r < x_.rows(); r += step) {
    args.rows = std::min(step, x_.rows() - r);
    reduce(args);
    args.x += step * args.ldx;
    args.out += args.cols;
    if (args.center != nullptr) args.center += args.cols;
  }
}

std::vector<float> Blocks::statistic(ReduceRule rule, std::span<const float> center) const {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float of_nothing = rule == ReduceRule::kMin ? kInf : (rule == ReduceRule::kMax ? -kInf : 0.0f);
  std::vector<float> out(static_cast<size_t>(count_), of_nothing);
  uint32_t flags = 0;
  reduce_to(rule, center, &flags, out.data());
  if (flags != 0) fail_with(ErrorCode::kNonFinite, scheme_, "x ", x_, " holds NaN or Inf: no scale fits it.");
  return out;
}

std::vector<float> Blocks::sums() const {
  std::vector<float> out(static_cast<size_t>(count_), 0.0f);
  reduce_to(ReduceRule::kSum, {}, nullptr, out.data());
  return out;
}

std::vector<float> Blocks::sizes() const {
  std::vector<float> out(static_cast<size_t>(count_), 0.0f);
  for (int64_t j = 0; j < count_ && !empty(); ++j) out[static_cast<size_t>(j)] = size(j);
  return out;
}

std::vector<float> Blocks::mean_abs() const {
  std::vector<float> out = statistic(ReduceRule::kSumAbs);
  for (int64_t j = 0; j < count_ && !empty(); ++j) out[static_cast<size_t>(j)] /= size(j);
  return out;
}

float ceil_pow2(float s) {
  const uint32_t bits = std::bit_cast<uint32_t>(s);
  if (bits < 0x00800000u) return std::bit_cast<float>(std::bit_ceil(bits));  // subnormal
  return std::bit_cast<float>((bits + 0x007FFFFFu) & 0xFF800000u);
}

float finish_scale(const QuantSpec& spec, std::string_view scheme, const std::string& what, int64_t block,
                   float scale) {
  const float s = spec.pow2 ? ceil_pow2(scale) : scale;
  if (!std::isfinite(s))
    fail_with(ErrorCode::kNonFinite, scheme, what, " are too large: the scale of block ", block, " is ", s,
              " in fp32.");
  return s;
}

float finish_offset(std::string_view scheme, const std::string& what, int64_t block, float number,
                    std::string_view name) {
  if (!std::isfinite(number))
    fail_with(ErrorCode::kNonFinite, scheme, what, " are too large: the ", name, " of block ", block, " is ", number,
              " in fp32.");
  return number;
}

std::shared_ptr<const Tensor> state_tensor(std::span<const float> numbers) {
  const Tensor out = Tensor::empty({static_cast<int64_t>(numbers.size())}, dtypes::fp32, MemoryKind::kQuantState);
  std::copy(numbers.begin(), numbers.end(), out.as<float>());
  return std::make_shared<const Tensor>(out);
}

}  // namespace bitgrad::detail
