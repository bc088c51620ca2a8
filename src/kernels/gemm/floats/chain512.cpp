#include "kernels/gemm/floats/chain512.h"

#include <algorithm>
#include <optional>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "kernels/gemm/common/epilogue.h"
#include "kernels/gemm/common/operands.h"
#include "kernels/gemm/floats/float_operand.h"

namespace bitgrad::kernels::gemm_detail {
namespace {

// Block sizes in floats: B 384 x 512, or 256 x 512 beside sums of 384 x 256; A 48 x 512. Either total stays
// below kMostBytes, the budget of a thread; an A shared by several blocks must fit beside them.
constexpr int64_t kMaxBlockN = 384, kMaxBlockNBesideSums = 256, kMaxBlockMBesideSums = 384;
constexpr int64_t kGroupRows = 48;  // rows of A expanded at a time, a multiple of every mr
constexpr int64_t kMinBlockN = 128, kMinBlockM = 96, kMaxTasks = 8;
constexpr int64_t kMostBytes = 1 << 20, kSharedGrain = 4;  // grain: groups of rows per task for a shared A
constexpr int64_t kFloatBytes = sizeof(float);
constexpr double kTaskNs = 75000;  // shorter tasks are not worth a thread

// How a product is cut, by shape and dtypes alone.
struct Plan {
  int64_t panels;
  Fold fold;
  bool direct;  // sums are accumulated in C itself
  int64_t block_m, block_n, blocks_m, blocks_n;
};

// Whether the epilogue does more than store fp32.
bool finishes(const GemmArgs& args, Fold fold) { return args.bias != nullptr || fold == Fold::kOntoSum; }

Plan make_plan(const ChainKernel& kernel, const GemmArgs& args) {
  Plan plan{};
  plan.panels = std::max<int64_t>(1, ceil_div(args.k, kChainPanel));
  plan.fold = fold_of(args);
  plan.direct = args.c_dtype == dtypes::fp32 && (!args.accumulate || (plan.panels == 1 && !finishes(args, plan.fold)));
  const bool sums = !plan.direct && plan.panels > 1;
  int64_t n = std::min(round_up(args.n, kernel.nr), sums ? kMaxBlockNBesideSums : kMaxBlockN);
  int64_t m = std::min(round_up(args.m, kernel.mr),
                       sums ? kMaxBlockMBesideSums / kernel.mr * kernel.mr : round_up(args.m, kernel.mr));
  const double ns =
      multiply_adds(args) * kernel.ns_per_mac + static_cast<double>(args.n * args.k) * pack_ns_per_element(args.b);
  const auto wanted = static_cast<int64_t>(std::clamp(ns / kTaskNs, 1.0, static_cast<double>(kMaxTasks)));
  while (ceil_div(args.m, m) * ceil_div(args.n, n) < wanted) {
    const bool can_m = m >= 2 * kMinBlockM, can_n = n >= 2 * kMinBlockN;
    if (can_m && (m >= n || !can_n)) {
      m = round_up(ceil_div(m, 2), kernel.mr);
    } else if (can_n) {
      n = round_up(ceil_div(n, 2), kernel.nr);
    } else {
      break;
    }
  }
  plan.blocks_m = ceil_div(args.m, m);
  plan.blocks_n = ceil_div(args.n, n);
  plan.block_m = round_up(ceil_div(args.m, plan.blocks_m), kernel.mr);
  plan.block_n = round_up(ceil_div(args.n, plan.blocks_n), kernel.nr);
  plan.blocks_m = ceil_div(args.m, plan.block_m);
  plan.blocks_n = ceil_div(args.n, plan.block_n);
  return plan;
}

// Writes the scales of a panel that are multiplied into A; returns false if there are none.
bool fold_scales(const GemmArgs& args, Fold fold, int64_t k0, int64_t kc, float* out) {
  if (fold != Fold::kIntoA) return false;
  for (int64_t k = 0; k < kc; ++k) out[k] = args.b.scale.scale[fold_index_k(args.b, k0 + k)];
  return true;
}

// Size of a block if A is shared: B and sums.
int64_t block_bytes(const ChainKernel& kernel, const GemmArgs& args, const Plan& plan) {
  const int64_t b = round_up(plan.block_n, kernel.nr) * std::min(args.k, kChainPanel);
  const int64_t sums = plan.direct ? 0 : (plan.panels == 1 ? kernel.mr : plan.block_m) * plan.block_n;
  return (b + sums + kChainPanel) * kFloatBytes;
}

// The values of A in strips of all panels, for blocks that share them.
class SharedA {
 public:
  SharedA(const ChainKernel& kernel, const GemmArgs& args, const Plan& plan)
      : kernel_(kernel), rows_(round_up(args.m, kernel.mr)), bytes_(rows_ * args.k * kFloatBytes) {
    if (plan.blocks_n < 2 || bytes_ + block_bytes(kernel, args, plan) > kMostBytes) return;
    space_.emplace(bytes_);
    const int64_t groups = ceil_div(args.m, kGroupRows);
    parallel_ranges(plan.panels * groups, kSharedGrain, [&](int64_t begin, int64_t end) {
      float k_scale[kChainPanel];
      for (int64_t i = begin; i < end; ++i) {
        const int64_t k0 = i / groups * kChainPanel, kc = std::min(kChainPanel, args.k - k0);
        const int64_t m0 = i % groups * kGroupRows, rows = std::min(kGroupRows, args.m - m0);
        const bool scaled = fold_scales(args, plan.fold, k0, kc, k_scale);
        pack_strips({args.a, false, scaled ? k_scale : nullptr, m0, rows, k0, kc}, kernel.mr, strip(m0, k0, kc));
      }
    });
  }
  explicit operator bool() const { return space_.has_value(); }
  // The strip that begins at row m0, a multiple of mr.
  float* strip(int64_t m0, int64_t k0, int64_t kc) const { return space_->as<float>() + rows_ * k0 + m0 * kc; }

 private:
  const ChainKernel& kernel_;
  int64_t rows_, bytes_;
  std::optional<Workspace> space_;
};

// One block of C.
class Block {
 public:
  Block(const ChainKernel& kernel, const GemmArgs& args, const Plan& plan, const SharedA& shared, int64_t index)
      : kernel_(kernel),
        args_(args),
        plan_(plan),
        shared_(shared),
        m0_(index / plan.blocks_n * plan.block_m),
        n0_(index % plan.blocks_n * plan.block_n),
        m_(std::min(plan.block_m, args.m - m0_)),
        n_(std::min(plan.block_n, args.n - n0_)),
        kc_(std::min(args.k, kChainPanel)),
        workspace_((b_floats() + a_floats() + scale_floats() + sum_floats()) * static_cast<int64_t>(sizeof(float))) {
    b_ = workspace_.as<float>();
    a_ = b_ + b_floats();
    scales_ = a_ + a_floats();
    sums_ = scales_ + scale_floats();
  }

  void run() {
    for (int64_t panel = 0; panel < plan_.panels; ++panel) {
      const int64_t k0 = panel * kChainPanel, kc = std::min(kChainPanel, args_.k - k0);
      const bool scaled = fold_scales(args_, plan_.fold, k0, kc, scales_);
      pack_strips({args_.b, plan_.fold != Fold::kNone, nullptr, n0_, n_, k0, kc}, kernel_.nr, b_, kernel_.transpose16,
                  kernel_.halves16);
      for (int64_t group = 0; group < m_; group += kGroupRows) {
        const int64_t end = std::min(group + kGroupRows, m_);
        const float* a = a_;
        if (shared_)
          a = shared_.strip(m0_ + group, k0, kc);
        else
          pack_strips({args_.a, false, scaled ? scales_ : nullptr, m0_ + group, end - group, k0, kc}, kernel_.mr, a_);
        for (int64_t i = group; i < end; i += kernel_.mr) {
          const int64_t rows = std::min(kernel_.mr, end - i);
          multiply(i, rows, kc, a + (i - group) * kc, panel > 0 || (plan_.direct && args_.accumulate));
          if (panel + 1 == plan_.panels) finish(i, rows);
        }
      }
    }
  }

 private:
  int64_t b_floats() const { return round_up(n_, kernel_.nr) * kc_; }
  int64_t a_floats() const { return shared_ ? 0 : std::min(kGroupRows, round_up(m_, kernel_.mr)) * kc_; }
  int64_t scale_floats() const { return plan_.fold == Fold::kIntoA ? kc_ : 0; }
  int64_t sum_floats() const { return plan_.direct ? 0 : (plan_.panels == 1 ? kernel_.mr : m_) * n_; }

  // Row i of the block, in C or in the buffer of sums.
  float* sum_row(int64_t i) const {
    if (plan_.direct) return static_cast<float*>(args_.c) + (m0_ + i) * args_.ldc + n0_;
    return sums_ + (plan_.panels == 1 ? i % kernel_.mr : i) * n_;
  }

  void multiply(int64_t i, int64_t rows, int64_t kc, const float* a, bool add) {
    float* to = sum_row(i);
    const int64_t ld = plan_.direct ? args_.ldc : n_;
    for (int64_t j = 0; j < n_; j += kernel_.nr) {
      kernel_.run(kc, rows, std::min(kernel_.nr, n_ - j), a, b_ + j * kc, to + j, ld, add);
    }
  }

  void finish(int64_t i, int64_t rows) {
    if (plan_.direct && !finishes(args_, plan_.fold)) return;
    for (int64_t r = i; r < i + rows; ++r) {
      float* sums = sum_row(r);
      if (plan_.fold == Fold::kOntoSum)
        for (int64_t j = 0; j < n_; ++j) sums[j] *= args_.b.scale.scale[fold_index_n(args_.b, n0_ + j)];
      finish_row(args_, m0_ + r, n0_, n_, sums);
    }
  }

  const ChainKernel& kernel_;
  const GemmArgs& args_;
  const Plan& plan_;
  const SharedA& shared_;
  int64_t m0_, n0_, m_, n_, kc_;
  Workspace workspace_;
  float *b_ = nullptr, *a_ = nullptr, *scales_ = nullptr, *sums_ = nullptr;
};

}  // namespace

bool chain512_supports(const GemmArgs& args) {
  const bool output = args.c_dtype == dtypes::fp32 || args.c_dtype == dtypes::bf16;
  return output && args.a.dtype != dtypes::fp64 && args.b.dtype != dtypes::fp64 && fold_is_legal(args) &&
         !gemm_is_integer(args) && args.row_minus == nullptr;
}

double chain512_cost(const ChainKernel& kernel, const GemmArgs& args) {
  if (args.m <= 0 || args.n <= 0) return 400.0;  // empty result
  const Plan plan = make_plan(kernel, args);
  const double fixed = 150.0 + 100.0 * static_cast<double>(plan.blocks_m * plan.blocks_n);
  const double a = static_cast<double>(args.m * args.k * plan.blocks_n) * pack_ns_per_element(args.a);
  const double b = static_cast<double>(round_up(args.n, 16) * args.k * plan.blocks_m) * pack_ns_per_element(args.b);
  const double tiles = static_cast<double>(args.m * args.n * plan.panels) * 0.05;
  // A strip of few rows has the same fma latency as one of four.
  const int64_t rest = args.m % kernel.mr;
  const int64_t rows = args.m - rest + (rest == 0 ? 0 : std::max<int64_t>(rest, 4));
  return fixed + a + b + tiles + static_cast<double>(rows * round_up(args.n, 16) * args.k) * kernel.ns_per_mac;
}

void run_chain512(const ChainKernel& kernel, const GemmArgs& args) {
  if (args.m <= 0 || args.n <= 0) return;
  const Plan plan = make_plan(kernel, args);
  const SharedA shared(kernel, args, plan);
  parallel_for(plan.blocks_m * plan.blocks_n, [&](int64_t index) { Block(kernel, args, plan, shared, index).run(); });
}

}  // namespace bitgrad::kernels::gemm_detail
