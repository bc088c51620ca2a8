// bitgrad kernels [--all]: the kernels of each family, and which of them this machine (under BITGRAD_ISA) can run; then
// its devices, with the libraries found for them.
// bitgrad kernels --shape M,N,K --dtypes A,B: which gemm kernel would run a product, at what estimated cost, and why
// the others would not.
// bitgrad kernels --calibrate: measures those costs on this machine and saves them for later runs.
#include <algorithm>
#include <iomanip>
#include <iostream>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/kernels/gemm_costs.h"
#include "bitgrad/kernels/kernel.h"
#include "command.h"

namespace bitgrad::cli {
namespace {

struct Options {
  bool all = false, calibrate = false, strict = false, a_k_major = false, b_k_major = false;
  std::vector<int64_t> shape;
  std::vector<std::string> dtypes;
  std::string out = "fp32", costs;
};

// The requirements of a kernel; "cuda" in front for one of a CUDA device.
std::string needs_of(const KernelInfo& k) {
  if (k.device == DeviceKind::kCpu) return isa_names(k.needs);
  return k.needs == isa::kAnyCuda ? "cuda" : "cuda " + isa_names(k.needs);
}

// Lists the devices of this machine, and the libraries that their kernels call.
void list_devices() {
  std::cout << "\ndevices\n" << std::left << std::setw(8) << "cpu" << device_backend(Device::cpu()).describe() << '\n';
  const int count = device_count(DeviceKind::kCuda);
  for (int i = 0; i < count; ++i) {
    const DeviceGuard guard(Device::cuda(i));
    const DeviceBackend& device = device_backend(Device::cuda(i));
    std::cout << std::setw(8) << to_string(Device::cuda(i)) << device.describe() << '\n';
    if (i + 1 < count) continue;
    for (const std::string& library : device.libraries()) std::cout << std::setw(8) << "" << library << '\n';
  }
  if (count == 0)
    std::cout << std::setw(8) << "cuda"
              << "none: " << why_absent(DeviceKind::kCuda) << '\n';
}

int list(bool all) {
  device_count(DeviceKind::kCuda);  // registers the CUDA kernels, so that they are listed too
  std::cout << std::left << std::setw(13) << "family" << std::setw(44) << "kernel" << std::setw(26) << "needs"
            << std::setw(10) << "order"
            << "available\n";
  for (const KernelInfo& k : all_kernels()) {
    if (!k.available() && !all) continue;
    std::cout << std::left << std::setw(13) << k.family << std::setw(44) << k.name << std::setw(26) << needs_of(k)
              << std::setw(10) << order_name(k.order) << (k.available() ? "yes" : "no") << '\n';
  }
  list_devices();
  return 0;
}

// Placeholders for scales and elements. Nothing reads them: only their form affects the choice.
int explain(const Options& options) {
  kernels::GemmArgs args;
  args.m = options.shape[0];
  args.n = args.ldc = options.shape[1];
  args.k = options.shape[2];
  for (const int64_t n : options.shape) require(n >= 0, "kernels", "--shape: got ", n, ", expected M,N,K >= 0");
  args.a.dtype = parse_dtype(options.dtypes[0]);
  args.b.dtype = parse_dtype(options.dtypes[1]);
  args.a.k_major = options.a_k_major;
  args.b.k_major = options.b_k_major;
  args.c_dtype = parse_dtype(options.out);
  set_bits_mode(options.strict ? BitsMode::kStrict : BitsMode::kFast);
  std::vector<kernels::GemmCandidate> rows = kernels::explain_gemm(args);
  std::stable_sort(rows.begin(), rows.end(), [](const kernels::GemmCandidate& x, const kernels::GemmCandidate& y) {
    return x.verdict != y.verdict ? x.verdict < y.verdict : x.ns < y.ns;
  });
  std::cout << args.a.dtype << (args.a.k_major ? " [k,m]" : " [m,k]") << " x " << args.b.dtype
            << (args.b.k_major ? " [k,n]" : " [n,k]") << " -> " << args.c_dtype << ", m " << args.m << ", n " << args.n
            << ", k " << args.k << ", " << (options.strict ? "strict" : "fast") << ", costs "
            << (kernels::gemm_costs().empty() ? "as shipped" : "measured on this machine") << ", "
            << isa_names(cpu_isa()) << '\n'
            << std::left << std::setw(44) << "kernel" << std::right << std::setw(12) << "expected us" << std::setw(9)
            << "times"
            << "  reads A, B in layouts     verdict\n";
  const double best = rows.front().ns;
  for (const kernels::GemmCandidate& c : rows) {
    const bool usable = c.verdict == kernels::GemmVerdict::kChosen || c.verdict == kernels::GemmVerdict::kDearer;
    if (!usable && c.verdict == kernels::GemmVerdict::kUnsupported && !options.all) continue;
    std::cout << std::left << std::setw(44) << c.kernel->name << std::right << std::fixed;
    if (usable && c.kernel->needs == isa::kScalar && c.kernel->order != SumOrder::kFree)
      std::cout << std::setw(12) << "reference" << std::setw(9) << '-';
    else if (usable)
      std::cout << std::setw(12) << std::setprecision(1) << c.ns / 1000 << std::setw(9) << std::setprecision(2)
                << c.ns / std::max(best, 1e-9);
    else
      std::cout << std::setw(12) << '-' << std::setw(9) << '-';
    std::cout << "  " << std::left << std::setw(26) << concat(c.kernel->a_layout, ", ", c.kernel->b_layout)
              << kernels::verdict_name(c.verdict);
    if (c.verdict == kernels::GemmVerdict::kNeedsIsa) std::cout << ": " << isa_names(c.kernel->needs & ~cpu_isa());
    if (c.verdict == kernels::GemmVerdict::kOrder) std::cout << ": " << order_name(c.kernel->order);
    std::cout << '\n';
  }
  return 0;
}

int calibrate(const std::string& path) {
  require(!path.empty(), "kernels",
          "--calibrate needs a path for its table: set HOME or BITGRAD_GEMM_COSTS, or pass "
          "--costs FILE");
  kernels::set_gemm_costs({});
  kernels::save_gemm_costs(path, {});  // finds out now, not after the measurement, whether the path is writable
  const std::vector<kernels::GemmCostFactors> factors =
      kernels::calibrate_gemm([](std::string_view row) { std::cout << "measuring " << row << '\n'
                                                                   << std::flush; });
  kernels::save_gemm_costs(path, factors);
  std::cout << "measured / shipped cost, by rows of A:\n" << std::left << std::setw(44) << "kernel" << std::right;
  for (const char* m : {"1", "2-16", "17-128", ">128"}) std::cout << std::setw(9) << m;
  std::cout << '\n';
  for (const kernels::GemmCostFactors& row : factors) {
    std::cout << std::left << std::setw(44) << row.kernel << std::right << std::fixed << std::setprecision(2);
    for (const double f : row.factor) std::cout << std::setw(9) << f;
    std::cout << '\n';
  }
  std::cout << "written to " << path
            << (path == kernels::gemm_costs_path()
                    ? "; train and eval on this machine use it from now on.\n"
                    : concat("; it is used where BITGRAD_GEMM_COSTS names it (now: ", kernels::gemm_costs_path(),
                             ").\n"));
  return 0;
}

int run(const Options& options) {
  const std::string path = options.costs.empty() ? kernels::gemm_costs_path() : options.costs;
  if (options.calibrate) return calibrate(path);
  if (options.shape.empty()) return list(options.all);
  require(options.dtypes.size() == 2, "kernels", "--shape needs --dtypes A,B, such as --dtypes int8,int4");
  require(options.costs.empty() || file_system().exists(path), "kernels", "--costs ", path, ": no such file. ",
          "Hint: --calibrate --costs ", path, " makes it.");
  kernels::load_gemm_costs(path);
  return explain(options);
}

}  // namespace

Run setup_kernels(Arguments& args) {
  auto o = std::make_shared<Options>();
  args.flag("--all", o->all, "also list kernels that this machine cannot run or that do not support these operands");
  const Argument shape = args.option("--shape", o->shape, "M,N,K: C[M,N] = A[M,K] B[N,K]^T")
                             .delimiter(',')
                             .expected(3)
                             .range(int64_t{0}, int64_t{1} << 31);
  args.option("--dtypes", o->dtypes, "A,B").delimiter(',').expected(2).needs(shape);
  args.option("--out", o->out, "dtype of C: fp32, bf16, int32").needs(shape);
  args.flag("--a-k-major", o->a_k_major, "A is stored [K,M]").needs(shape);
  args.flag("--b-k-major", o->b_k_major, "B is stored [K,N], as in backward products").needs(shape);
  args.flag("--strict", o->strict, "select kernels as with run.bits: strict").needs(shape);
  args.flag("--calibrate", o->calibrate,
            "measure the costs of the kernels on this machine (about ten seconds) and save them")
      .excludes(shape);
  args.option("--costs", o->costs,
              "file of the cost table, instead of $BITGRAD_GEMM_COSTS or ~/.cache/bitgrad/gemm_costs.txt");
  return [o] { return run(*o); };
}

}  // namespace bitgrad::cli
