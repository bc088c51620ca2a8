// Measures the costs of gemm kernels on this machine. Each vector kernel runs small random products of every pair of
// operands that it supports, and is compared with its own cost function. The factor of a kernel for a class of m is the
// geometric mean over pairs of (median measured ns) / (estimated ns).
#include <time.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "bitgrad/base/error.h"
#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/codec.h"
#include "bitgrad/kernels/gemm_costs.h"
#include "kernels/gemm/common/operands.h"

namespace bitgrad::kernels {
namespace {

constexpr int64_t kClassRows[kGemmCostClasses] = {1, 8, 64, 256};  // m of each class
constexpr int64_t kColumns = 512, kDepth = 1024;
constexpr int kRepeat = 5;
constexpr double kTooSlow = 2e8;  // estimated ns of a run above which it is skipped

struct Pair {
  DType a, b;
  bool a_k_major, b_k_major;
};
// The operand pairs of forward products, and of backward products on saved codes.
std::vector<Pair> pairs() {
  using namespace dtypes;
  std::vector<Pair> out;
  for (const auto& [a, b] : {std::pair{bint1, bint1},
                             {ternary, bint1},
                             {int2, bint1},
                             {uint2, bint1},
                             {ternary, ternary},
                             {int8, bint1},
                             {int8, int2},
                             {int8, int4},
                             {int8, int8},
                             {fp32, fp32},
                             {fp32, int4},
                             {fp32, bint1},
                             {bf16, bint1},
                             {bf16, bf16}})
    out.push_back({a, b, false, false});
  for (const DType a : {int8, fp32, bf16})
    for (const DType b : {bint1, ternary, int8})
      for (const bool transposed : {false, true}) out.push_back({a, b, transposed, true});
  return out;
}

// A random matrix, canonical or in a derived layout.
class Codes {
 public:
  Codes(DType dtype, int64_t rows, int64_t cols, uint64_t seed)
      : dtype_(dtype), rows_(rows), cols_(cols), stride_(row_bytes_memory(dtype, cols)), bytes_(rows * stride_) {
    const RandomStream draws{seed, Purpose::kUser, 0, 0};
    const DTypeInfo& info = dtype.info();
    std::vector<double> row(static_cast<size_t>(cols));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        const double u = static_cast<double>(draws.uniform(static_cast<uint64_t>(r * cols + c)));
        double x = 2 * u - 1;
        if (info.kind == DTypeKind::kSign)
          x = u < 0.5 ? -1 : 1;
        else if (dtype.is_code())
          x = std::floor(u * static_cast<double>(info.qmax - info.qmin + 1)) + static_cast<double>(info.qmin);
        row[static_cast<size_t>(c)] = x;
      }
      pack_row(dtype, row.data(), cols, bytes_.as<char>() + r * stride_);
    }
  }
  // Returns false if this layout cannot represent the codes.
  bool in_layout(Layout layout, GemmOperand& out) {
    out.dtype = dtype_;
    out.layout = layout;
    out.stride = stride_;
    out.data = bytes_.as<char>();
    if (layout == layouts::canonical) return true;
    const LayoutInfo& info = layout.info();
    if (!info.supports(dtype_)) return false;
    derived_ = std::make_unique<Workspace>(info.bytes(dtype_, rows_, cols_));
    info.pack(dtype_, rows_, cols_, bytes_.as<char>(), stride_, derived_->as<char>());
    out.data = derived_->as<char>();
    return true;
  }

 private:
  DType dtype_;
  int64_t rows_, cols_, stride_;
  Workspace bytes_;
  std::unique_ptr<Workspace> derived_;
};

// Limits execution to one thread during its lifetime.
class OneThread {
 public:
  OneThread() : before_(num_threads()) { set_num_threads(1); }
  ~OneThread() { set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

double thread_ns() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

double median_ns(const GemmKernel& kernel, const GemmArgs& args, double estimate) {
  const auto calls = std::max<int64_t>(1, static_cast<int64_t>(2e5 / std::max(estimate, 1.0)));
  kernel.run(args);
  std::array<double, kRepeat> ns{};
  for (double& x : ns) {
    const double start = thread_ns();
    for (int64_t i = 0; i < calls; ++i) kernel.run(args);
    x = (thread_ns() - start) / static_cast<double>(calls);
  }
  std::nth_element(ns.begin(), ns.begin() + kRepeat / 2, ns.end());
  return ns[kRepeat / 2];
}

GemmArgs product_of(const Pair& pair, int64_t m) {
  GemmArgs args;
  args.m = m;
  args.n = args.ldc = kColumns;
  args.k = kDepth;
  args.a.k_major = pair.a_k_major;
  args.b.k_major = pair.b_k_major;
  args.a.dtype = pair.a;
  args.b.dtype = pair.b;
  return args;
}

bool worth_measuring(const GemmKernel& kernel, const GemmArgs& args) {
  return kernel.supports(args) && kernel.cost(args) <= kTooSlow;
}

// False for a vector kernel that supports none of these products here, such as oneDNN's bf16 without AVX-512.
bool takes_any(const GemmKernel& kernel) {
  for (const Pair& pair : pairs())
    for (const int64_t m : kClassRows)
      if (worth_measuring(kernel, product_of(pair, m))) return true;
  return false;
}

// Measured / estimated time for one product; 0 if the kernel does not support it.
double ratio(const GemmKernel& kernel, const Pair& pair, int64_t m) {
  GemmArgs args = product_of(pair, m);
  if (!worth_measuring(kernel, args)) return 0;
  Codes a(pair.a, pair.a_k_major ? kDepth : m, pair.a_k_major ? m : kDepth, 1);
  Codes b(pair.b, pair.b_k_major ? kDepth : kColumns, pair.b_k_major ? kColumns : kDepth, 2);
  if (!a.in_layout(kernel.a_layout, args.a) || !b.in_layout(kernel.b_layout, args.b)) return 0;
  const Workspace c(m * kColumns * static_cast<int64_t>(sizeof(float)));
  args.c = c.as<float>();
  const double estimate = kernel.cost(args);
  return median_ns(kernel, args, estimate) / estimate;
}

}  // namespace

std::vector<GemmCostFactors> calibrate_gemm(const std::function<void(std::string_view)>& progress) {
  const OneThread one;
  std::vector<GemmCostFactors> out;
  for (const GemmKernel& kernel : gemm_kernels()) {
    if (!kernel.granted() || (kernel.needs == isa::kScalar && kernel.order != SumOrder::kFree) || !takes_any(kernel))
      continue;
    if (progress) progress(kernel.name);
    GemmCostFactors factors;
    factors.kernel = kernel.name;
    for (int size = 0; size < kGemmCostClasses; ++size) {
      double sum = 0;
      int count = 0;
      for (const Pair& pair : pairs()) {
        const double x = ratio(kernel, pair, kClassRows[size]);
        if (x <= 0) continue;
        sum += std::log(x);
        ++count;
      }
      if (count > 0) factors.factor[static_cast<size_t>(size)] = std::exp(sum / count);
    }
    out.push_back(std::move(factors));
  }
  return out;
}

}  // namespace bitgrad::kernels
