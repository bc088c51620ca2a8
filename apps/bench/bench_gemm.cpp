// bench_gemm: every usable row of family gemm beside oneDNN's fp32 product, on one thread, measured in turns in the
// same run; medians of the thread's processor time. A is packed outside, B is prepacked in the layout that each side
// asks for. G = 1e9 multiply-adds a second; x oneDNN fp32 = its time / the row's time; the share (peak_fraction) is of
// the fastest unit for the pair, measured once at the start (bench_gemm_units.cpp).
//
//   bench_gemm [--shape M,N,K ...] [--dtypes A,B ...] [--product forward|gx|gw] [--kernel SUBSTRING] [--repeat R]
//              [--group G] [--offset] [--a-zero] [--json FILE]
//
// Products: forward: C = A B^T with both stored [free, k]; gx: B stored [k, free]; gw: both stored [k, free] and the
// product added to C. --group and --offset give B scales and real offsets (for each row, or in groups along k),
// --a-zero gives A a zero point for each row.
#include <CLI/CLI.hpp>
#include <iomanip>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "bench_gemm_measure.h"
#include "bench_gemm_operands.h"
#include "bench_gemm_options.h"
#include "bench_gemm_rival.h"
#include "bench_gemm_units.h"
#include "bitgrad/base/cpu.h"
#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/kernels/gemm.h"

namespace {

using namespace bitgrad;
using namespace bitgrad::bench;
using Json = nlohmann::ordered_json;

void add_rows(const Options& options, const Shape& s, Matrix& a, Matrix& b, Bytes& c,
              std::vector<std::shared_ptr<Bytes>>& kept, std::vector<Contestant>& all) {
  for (const GemmRow& row : gemm_rows()) {
    if (row.name.find(options.kernel) == std::string_view::npos || (row.needs & ~cpu_isa()) != 0) continue;
    GemmArgs args;
    args.m = s.m, args.n = s.n, args.k = s.k;
    args.a = {a.bytes.data(), a.dtype, row.a_layout, a.stride, options.a_k_major(), a.map};
    args.b = {b.bytes.data(), b.dtype, row.b_layout, b.stride, options.b_k_major(), b.map};
    args.c = c.data(), args.ldc = s.n, args.accumulate = options.product == "gw";
    if (!row.usable(args)) continue;
    if (row.a_layout != layouts::canonical) {
      kept.push_back(packed(a, row.a_layout));
      if (kept.back() == nullptr) continue;
      args.a.data = kept.back()->data();
    }
    if (row.b_layout != layouts::canonical) {
      kept.push_back(packed(b, row.b_layout));
      if (kept.back() == nullptr) continue;
      args.b.data = kept.back()->data();
    }
    all.push_back({std::string(row.name), [args, run = row.run] { run(args); }, 1, false, {}});
  }
}

std::string parameters_text(const Options& options) {
  std::string text;
  if (options.group != 0) text += ", B in groups of " + std::to_string(options.group);
  if (options.b_offset) text += ", offsets of B";
  if (options.a_zero) text += ", zero points of A";
  return text;
}

void bench_product(const Options& options, const Shape& s, DType a_type, DType b_type, const Units& units, Json& rows) {
  std::mt19937 rng(1);
  const bool ak = options.a_k_major(), bk = options.b_k_major();
  Matrix a(a_type, ak ? s.k : s.m, ak ? s.m : s.k, rng), b(b_type, bk ? s.k : s.n, bk ? s.n : s.k, rng);
  if (options.group != 0 || options.b_offset) b.add_scales(bk, options.group, options.b_offset, rng);
  if (options.a_zero) a.add_zeros(ak, rng);
  Bytes c(s.m * s.n * 8);
  std::vector<std::shared_ptr<Bytes>> kept;
  std::vector<Contestant> all;
  add_rival(s, all);
  const size_t rivals = all.size();
  add_rows(options, s, a, b, c, kept, all);
  require(all.size() > rivals, "bench_gemm", "no usable kernel for ", a_type, " x ", b_type, " whose name holds '",
          options.kernel, "'. Hint: `bitgrad kernels` lists all names.");
  measure(all, options.repeat);
  std::cout << "\n"
            << a_type << " x " << b_type << ", m " << s.m << ", n " << s.n << ", k " << s.k << ", " << options.product
            << parameters_text(options) << '\n';
  const UnitPeak* peak = units.fastest(a_type, b_type);
  if (peak != nullptr) std::cout << "  unit: " << peak->name << ", " << peak->gmacs << " GMAC/s\n";
  const double macs = static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  const auto faster = [&](const Contestant& x) { return all[0].median() / x.median(); };
  for (size_t i = 0; i < all.size(); ++i) {
    const Contestant& x = all[i];
    const double gmacs = macs / x.median();
    std::cout << "  " << std::left << std::setw(36) << x.name << std::right << std::fixed << std::setprecision(2)
              << std::setw(12) << x.median() / 1000 << " us" << std::setw(11) << gmacs << " GMAC/s";
    if (rivals != 0) std::cout << std::setw(9) << faster(x) << " x oneDNN fp32";
    if (peak != nullptr && i >= rivals) std::cout << std::setw(9) << 100 * gmacs / peak->gmacs << " % of the unit";
    std::cout << '\n';
    if (i < rivals) continue;
    rows.push_back({{"a", a_type.name()},
                    {"b", b_type.name()},
                    {"m", s.m},
                    {"n", s.n},
                    {"k", s.k},
                    {"group", options.group},
                    {"b_offset", options.b_offset},
                    {"a_zero", options.a_zero},
                    {"kernel", x.name},
                    {"gmacs", gmacs},
                    {"x_onednn_f32", rivals != 0 ? Json(faster(x)) : Json(nullptr)},
                    {"peak_fraction", peak != nullptr ? Json(gmacs / peak->gmacs) : Json(nullptr)},
                    {"unit", peak != nullptr ? Json(peak->name) : Json(nullptr)}});
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Multiply-adds a second of every usable gemm kernel and of oneDNN fp32, one thread.", "bench_gemm");
  try {
    const Options options = parse_options(app, argc, argv);
    set_num_threads(1);
    Json report{{"machine", cpu_model_name() + " (" + isa_names(cpu_isa()) + ")"}, {"rows", Json::array()}};
    std::cout << "machine: " << report["machine"].get<std::string>() << ", one thread, median of " << options.repeat
              << '\n';
    const Units units(options.repeat);
    for (const Shape& shape : options.shapes)
      for (const auto& [a, b] : options.dtypes) bench_product(options, shape, a, b, units, report["rows"]);
    if (!options.json.empty()) write_file_atomically(options.json, report.dump(2) + "\n");
    return 0;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::cerr << "bench_gemm: " << error.what() << "\nRun with --help for the options.\n";
    return 2;
  } catch (const Error& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::cerr << "bench_gemm: " << error.what() << '\n';
    return 70;
  }
}
