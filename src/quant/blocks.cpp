#include "quant/blocks.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "bitgrad/base/device.h"

namespace bitgrad::detail {
namespace {

bool down_the_rows(const Granularity& g) { return g.kind == Granularity::kGroup && g.axis == 0; }

kernels::ReduceAxis axis_of(const Granularity& g) {
  switch (g.kind) {
    case Granularity::kTensor:
      return kernels::ReduceAxis::kAll;
    case Granularity::kToken:
      return kernels::ReduceAxis::kRows;
    case Granularity::kChannel:
      return g.axis == 0 ? kernels::ReduceAxis::kRows : kernels::ReduceAxis::kColumns;
    case Granularity::kGroup:
      break;
  }
  return g.axis == 0 ? kernels::ReduceAxis::kColumns : kernels::ReduceAxis::kGroups;
}

maps::q::BlockSizes sizes_of(const Granularity& g, int64_t rows, int64_t cols) {
  using maps::q::BlockSizes;
  if (down_the_rows(g)) return {BlockSizes::kDown, rows, cols, g.group};
  switch (axis_of(g)) {
    case kernels::ReduceAxis::kAll:
      break;
    case kernels::ReduceAxis::kRows:
      return {BlockSizes::kRows, rows, cols, 0};
    case kernels::ReduceAxis::kColumns:
      return {BlockSizes::kColumns, rows, cols, 0};
    case kernels::ReduceAxis::kGroups:
      return {BlockSizes::kGroups, rows, cols, g.group};
  }
  return {BlockSizes::kAll, rows, cols, 0};
}

Tensor numbers_of(int64_t count) { return Tensor::empty({count}, dtypes::fp32, MemoryKind::kWorkspace); }

// Whether all are finite; a branch-free OR, which vectorizes.
bool all_plain(std::span<const float> numbers) {
  constexpr uint32_t kExponent = 0x7F800000u;
  uint32_t odd = 0;
  for (const float number : numbers)
    odd |= static_cast<uint32_t>((std::bit_cast<uint32_t>(number) & kExponent) == kExponent);
  return odd == 0;
}

}  // namespace

int64_t block_size(const Granularity& g, int64_t rows, int64_t cols, int64_t block) {
  return sizes_of(g, rows, cols).elements(block);
}

Blocks::Blocks(std::string_view scheme, const Granularity& granularity, const Tensor& x)
    : scheme_(scheme), granularity_(granularity), x_(x) {
  const bool floats = x.defined() && (x.dtype() == dtypes::fp32 || x.dtype() == dtypes::bf16);
  require(floats && !x.quant(), scheme, "scales are fitted to fp32 or bf16 values: got ", x,
          x.quant() ? ", which is quantized already" : "", '.');
  require(x.layout() == layouts::canonical, scheme, "scales are fitted to values in layout canonical: got layout ",
          x.layout(), '.');
  count_ = scale_count(granularity, x.rows(), x.cols());
}

maps::q::BlockSizes Blocks::sizes() const { return sizes_of(granularity_, x_.rows(), x_.cols()); }

kernels::ReduceArgs Blocks::arguments() const {
  kernels::ReduceArgs args;
  args.axis = axis_of(granularity_);
  args.rows = x_.rows();
  args.cols = x_.cols();
  args.group = granularity_.group;
  args.x = {x_.data(), x_.dtype()};
  args.ldx = x_.stride() * 8 / x_.dtype().bits();
  return args;
}

std::function<void()> Blocks::not_finite() const {
  return [scheme = scheme_, shape = x_.shape(), dtype = x_.dtype()] {
    fail_with(ErrorCode::kNonFinite, scheme, "x ", shape, ' ', dtype, " holds NaN or Inf: it has no scale.");
  };
}

Blocks::Ranges Blocks::ranges() const {
  kernels::ReduceArgs args = empty() ? kernels::ReduceArgs{} : arguments();
  if (empty() || (args.axis != kernels::ReduceAxis::kRows && args.axis != kernels::ReduceAxis::kGroups))
    return {statistic(kernels::ReduceRule::kMin), statistic(kernels::ReduceRule::kMax)};
  Ranges out{numbers_of(count_), numbers_of(count_)};
  const DataFlag flag;
  args.out = out.low.as<float>();
  args.flags = flag.word();
  kernels::reduce_ranges(args, out.high.as<float>());
  flag.check(not_finite());
  return out;
}

void Blocks::reduce_to(kernels::ReduceRule rule, const float* center, uint32_t* flags, float* out) const {
  kernels::ReduceArgs args = arguments();
  args.rule = rule;
  args.center = center;
  args.out = out;
  args.flags = flags;
  const int64_t step = down_the_rows(granularity_) ? granularity_.group : args.rows;
  for (int64_t r = 0; r < x_.rows(); r += step) {
    args.rows = std::min(step, x_.rows() - r);
    kernels::reduce(args);
    args.x = args.x.from(step * args.ldx);
    args.out += args.cols;
    if (args.center != nullptr) args.center += args.cols;
  }
}

Tensor Blocks::statistic(kernels::ReduceRule rule, const Tensor& center) const {
  Tensor out = numbers_of(count_);
  if (empty()) {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    const float of_nothing =
        rule == kernels::ReduceRule::kMin ? kInf : (rule == kernels::ReduceRule::kMax ? -kInf : 0.0f);
    run_map(maps::FillFloats{of_nothing, out.as<float>()}, count_);
    return out;
  }
  const DataFlag flag;
  reduce_to(rule, center.defined() ? center.as<float>() : nullptr, flag.word(), out.as<float>());
  flag.check(not_finite());
  return out;
}

Tensor Blocks::means(kernels::ReduceRule rule, const MeanOptions& options) const {
  if (empty()) return filled(count_, std::max(0.0f, options.floor));
  const Tensor sum = statistic(rule);
  Tensor out = Tensor::empty({count_}, dtypes::fp32, MemoryKind::kQuantState);
  const BlockCheck check;
  run_map(maps::BlockScales{sum.as<float>(),
                            sizes(),
                            true,
                            options.times,
                            options.divisor,
                            options.floor,
                            {out.as<float>(), check.flags()}},
          count_);
  check.numbers(out, *this, options.name);
  return out;
}

void Blocks::sums_to(float* out) const {
  if (empty()) return run_map(maps::FillFloats{0.0f, out}, count_);
  reduce_to(kernels::ReduceRule::kSum, nullptr, nullptr, out);
}

BlockCheck::BlockCheck() {
  if (!current_device().is_cpu()) flag_.emplace();
}

void BlockCheck::numbers(const Tensor& made, std::string_view scheme, const std::string& what,
                         std::string_view name) const {
  if (flag_) {
    return flag_->check([scheme, what, name] {
      fail_with(ErrorCode::kNonFinite, scheme, what, " are too large: the ", name,
                " of a block is not finite in fp32.");
    });
  }
  for (int64_t j = 0; j < made.numel(); ++j) require_finite(scheme, what, name, j, made.as<float>()[j]);
}

void BlockCheck::numbers(const Tensor& made, const Blocks& blocks, std::string_view name) const {
  if (!flag_ && all_plain({made.as<float>(), static_cast<size_t>(made.numel())})) return;
  numbers(made, blocks.scheme(), blocks.what(), name);
}

void BlockCheck::fails(std::function<void()> fail) const {
  if (flag_) flag_->check(std::move(fail));
}

void require_finite(std::string_view scheme, const std::string& what, std::string_view name, int64_t block,
                    float number) {
  if (!std::isfinite(number))
    fail_with(ErrorCode::kNonFinite, scheme, what, " are too large: the ", name, " of block ", block, " is ", number,
              " in fp32.");
}

Tensor filled(int64_t count, float number) {
  Tensor out = Tensor::empty({count}, dtypes::fp32, MemoryKind::kQuantState);
  run_map(maps::FillFloats{number, out.as<float>()}, count);
  return out;
}

namespace {

thread_local uint32_t* t_scope = nullptr;

}  // namespace

FlagScope::FlagScope(uint32_t* word) : outer_(t_scope) {
  if (!current_device().is_cpu()) t_scope = word;
}
FlagScope::~FlagScope() { t_scope = outer_; }

DataFlag::DataFlag() : scope_(t_scope) {
  if (scope_ == nullptr) own_.emplace();
}

}  // namespace bitgrad::detail
