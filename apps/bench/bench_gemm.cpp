// bench_gemm: every usable gemm kernel compared with libraries (oneDNN fp32, bf16, int8; OpenBLAS; Eigen) on the same
// product, on one thread, alternating within one run; medians of the thread's CPU time. A is packed outside the timed
// call, B is prepacked in the layout that each side prefers. G = 1e9 multiply-adds per second; x a rival = its time /
// the kernel's time; the share (peak_fraction) is relative to the fastest unit for the pair of dtypes, measured once at
// the start (bench_gemm_units.cpp).
//
//   bench_gemm [--shape M,N,K ...] [--dtypes A,B ...] [--product forward,gx,gw] [--a-k-major] [--b-k-major] [--all]
//              [--kernel SUBSTRING] [--fast-rows] [--rivals LIST] [--repeat R] [--group G] [--offset] [--a-zero]
//              [--device cpu|cuda] [--json FILE] [--compare OLD] [--guard FILE | --record FILE] [--slack S]
//   bench_gemm --conv [--shape NAME|n,h,w,c,o,kernel,stride,pad ...] [--dtypes A,B ...] [--product forward,gx,gw]
//              [--grad fp32,bf16,int8] [--threads T] [--rivals LIST] [--repeat R] [--json FILE] [--compare OLD]
//              [--slack S]                                                    (convolutions: bench_gemm_conv.cpp)
//
// Products. forward: C = A B^T, both stored [free, k]; gx: B stored [k, free]; gw: both stored [k, free], and the
// product is added to C. --group and --offset give B scales and real offsets (per row, or per group along k); --a-zero
// gives A a zero point per row. Kernels slower than 0.4 s are measured three times, those above 2 s once.
#include <iomanip>
#include <iostream>
#include <memory>
#include <random>

#include "bench_gemm.h"
#include "bitgrad/base/cpu.h"
#include "bitgrad/base/error.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/kernels/gemm.h"
#include "shared/measure.h"

namespace {

using namespace bitgrad;
using namespace bitgrad::bench;

void add_rows(const Options& options, const ProductShape& s, Matrix& a, Matrix& b, Bytes& c,
              std::vector<std::shared_ptr<Bytes>>& kept, std::vector<Contestant>& all) {
  for (const kernels::GemmKernel& kernel : kernels::gemm_kernels()) {
    if (kernel.name.find(options.kernel) == std::string_view::npos || !kernel.granted()) continue;
    if (options.fast_rows && kernel.needs == isa::kScalar) continue;
    kernels::GemmArgs args;
    args.m = s.m, args.n = s.n, args.k = s.k;
    args.a = {a.bytes.data(), a.dtype, kernel.a_layout, a.stride, options.a_k_major(), a.map};
    args.b = {b.bytes.data(), b.dtype, kernel.b_layout, b.stride, options.b_k_major(), b.map};
    args.c = c.data(), args.ldc = s.n, args.accumulate = options.accumulate();
    if (!kernel.usable(args)) continue;
    if (kernel.a_layout != layouts::canonical) {
      kept.push_back(packed(a, kernel.a_layout));
      if (kept.back() == nullptr) continue;
      args.a.data = kept.back()->data();
    }
    if (kernel.b_layout != layouts::canonical) {
      kept.push_back(packed(b, kernel.b_layout));
      if (kept.back() == nullptr) continue;
      args.b.data = kept.back()->data();
    }
    all.push_back({std::string(kernel.name), [args, run = kernel.run] { run(args); }, 1, false, {}});
  }
}

std::string parameters_text(const Options& options) {
  std::string text;
  if (options.group != 0) text += ", B in groups of " + std::to_string(options.group);
  if (options.b_offset) text += ", offsets of B";
  if (options.a_zero) text += ", zero points of A";
  return text;
}

struct Measured {
  const Options& options;
  const ProductShape& shape;
  const Case& what;
  const UnitPeak* peak;
  std::vector<Rival> rivals;
  const std::vector<Contestant>& all;

  double gmacs(const Contestant& x) const {
    return static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k) / x.median();
  }

  void print() const {
    std::cout << "\n"
              << what.a << " x " << what.b << ", m " << shape.m << ", n " << shape.n << ", k " << shape.k << ", "
              << what.product << parameters_text(options) << '\n';
    if (peak != nullptr) std::cout << "  unit: " << peak->name << ", " << peak->gmacs << " GMAC/s\n";
    for (size_t i = 0; i < all.size(); ++i) {
      std::cout << "  " << std::left << std::setw(36) << all[i].name << std::right << std::fixed << std::setprecision(2)
                << std::setw(12) << all[i].median() / 1000 << " us" << std::setw(11) << gmacs(all[i]) << " GMAC/s";
      if (peak != nullptr && i >= rivals.size())
        std::cout << std::setw(9) << 100 * gmacs(all[i]) / peak->gmacs << " % of the unit";
      for (size_t r = 0; r < rivals.size(); ++r)
        std::cout << (r == 0 ? ", x " : " ") << rivals[r].id << ' ' << all[r].median() / all[i].median();
      std::cout << '\n';
    }
  }

  Json row(const Contestant& x) const {
    Json out{{"a", what.a.name()},
             {"b", what.b.name()},
             {"m", shape.m},
             {"n", shape.n},
             {"k", shape.k},
             {"product", what.product},
             {"a_k_major", options.a_k_major()},
             {"b_k_major", options.b_k_major()},
             {"group", options.group},
             {"b_offset", options.b_offset},
             {"a_zero", options.a_zero},
             {"kernel", x.name},
             {"gmacs", gmacs(x)},
             {"peak_fraction", peak != nullptr ? Json(gmacs(x) / peak->gmacs) : Json(nullptr)},
             {"unit", peak != nullptr ? Json(peak->name) : Json(nullptr)}};
    for (size_t r = 0; r < rivals.size(); ++r) out["x_" + rivals[r].id] = all[r].median() / x.median();
    return out;
  }
};

void bench_product(const Options& options, const ProductShape& s, const Case& what, const Units& units, Json& rows) {
  std::mt19937 rng(1);
  const bool ak = options.a_k_major(), bk = options.b_k_major();
  Matrix a(what.a, ak ? s.k : s.m, ak ? s.m : s.k, rng), b(what.b, bk ? s.k : s.n, bk ? s.n : s.k, rng);
  if (options.group != 0 || options.b_offset) b.add_scales(bk, options.group, options.b_offset, rng);
  if (options.a_zero) a.add_zeros(ak, rng);
  Bytes c(s.m * s.n * 8);
  std::vector<std::shared_ptr<Bytes>> kept;
  std::vector<Contestant> all;
  const std::vector<Rival> rivals = add_rivals(options, s, all);
  add_rows(options, s, a, b, c, kept, all);
  if (all.size() == rivals.size() && options.fast_rows) return;
  require(all.size() > rivals.size(), "bench_gemm", "no usable kernel for ", what.a, " x ", what.b,
          " whose name contains '", options.kernel, "'. Hint: `bitgrad kernels` lists all names.");
  measure(all, options.repeat);
  const Measured measured{options, s, what, units.fastest(what.a, what.b), rivals, all};
  measured.print();
  for (size_t i = rivals.size(); i < all.size(); ++i) rows.push_back(measured.row(all[i]));
}

const CompareRule kRule{
    {"a", "b", "m", "n", "k", "product", "a_k_major", "b_k_major", "group", "b_offset", "a_zero", "kernel"},
    "x_onednn_f32"};

int run(Options options) {
  set_num_threads(1);
  Json report = new_report(1);
  std::cout << "machine: " << machine_of(report) << ", one thread, median of " << options.repeat << '\n';
  std::cout << "clock, measured by a chain of products: " << std::setprecision(3) << clock_ghz()
            << " GHz (MAC a cycle = GMAC/s divided by it)\n";
  const Units units(options.repeat);
  for (const ProductShape& shape : options.shapes)
    for (const Case& what : options.cases) {
      options.product = what.product;
      bench_product(options, shape, what, units, report["rows"]);
    }
  const CompareRule short_rule{{"a", "b", "m", "n", "k", "product", "kernel"}, kRule.ratio, options.slack};
  if (!options.record.empty()) record(report, options.record, short_rule);
  const bool held = options.guard.empty() || guard(report, options.guard, short_rule);
  return finish(report, options, kRule) == 0 && held ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr const char* kWhat = "Multiply-adds per second of every usable gemm kernel and of libraries, one thread.";
  return run_main("bench_gemm", kWhat, [&](cli::Arguments& args) {
    const Options options = parse_options(args, argc, argv);
    if (options.conv) return run_conv(options);
    return options.device.is_cpu() ? run(options) : run_on_device(options);
  });
}
