// bench_kernels: every kernel family but the products: packing, all forms of quantization, elementwise functions,
// reductions, row-wise kernels, optimizer updates, and whole steps of one parameter. GB/s counts the bytes that a call
// must read and write, each operand once. The share is relative to the bandwidth of a large copy, measured alternately
// with the kernel (on the CPU: one thread and memcpy). Calls cycle through sets of operands that exceed the cache.
// BITGRAD_ISA caps the instruction set.
//
//   bench_kernels [--shape ROWS,COLS ...] [--dtypes LIST]
//                 [--family pack,quantize,optimizer,elementwise,reduce,pointwise,rowwise] [--what SUBSTRING]
//                 [--kernel SUBSTRING] [--in-cache] [--device cpu|cuda] [--copy-mib N] [--repeat R]
//                 [--json FILE] [--compare OLD] [--slack S]
//
// --kernel: every usable kernel whose name contains this, of the families that have several, in place of the selected
// one; --kernel _ measures all of them. --in-cache: one set of operands, and a copy of as many bytes as the kernel
// moves.
#include <algorithm>
#include <iomanip>
#include <iostream>

#include "bench_kernels_cases.h"
#include "bitgrad/base/parallel.h"
#include "kernels/flag.h"
#include "shared/common.h"
#include "shared/measure.h"

namespace {

using namespace bitgrad;
using namespace bitgrad::bench;

struct Options : SharedOptions {
  Options() : SharedOptions{.repeat = 11} {}
  std::vector<std::pair<int64_t, int64_t>> shapes;
  std::vector<DType> dtypes;
  std::vector<std::string> families{"pack", "quantize", "optimizer", "elementwise", "reduce", "pointwise", "rowwise"};
  std::string what, kernel;
  bool in_cache = false;
  int64_t copy_mib = 0;

  bool wants(const Case& c) const {
    return std::find(families.begin(), families.end(), c.family) != families.end() &&
           c.what.find(what) != std::string::npos && (kernel.empty() || c.kernel.find(kernel) != std::string::npos);
  }
};

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options), copy_(copy_launches(copy_bytes())) {}

  void run(Json& report) {
    for (const auto& [rows, cols] : options_.shapes) {
      const Numbers numbers(rows, cols);
      std::cout << "\n[" << rows << ", " << cols << "]\n";
      for (const DType dtype : options_.dtypes) {
        measure_all(code_cases(numbers, dtype, /*each_kernel=*/!options_.kernel.empty()), numbers, report["rows"]);
        measure_all(step_cases(numbers, dtype), numbers, report["rows"]);
      }
      measure_all(number_cases(numbers), numbers, report["rows"]);
      measure_all(row_cases(numbers), numbers, report["rows"]);
      measure_all(update_cases(numbers), numbers, report["rows"]);
    }
    require(!copies_.empty(), "bench_kernels", "nothing matches --family, --what and --kernel: no name contains '",
            options_.what, "'", options_.kernel.empty() ? "" : concat(" with a kernel like '", options_.kernel, "'"),
            ".");
    report["copy_gb_s"] = median(copies_);
    std::cout << "\ncopy: " << std::fixed << std::setprecision(1) << median(copies_) << " GB/s\n";
  }

 private:
  int64_t copy_bytes() const { return options_.copy_mib << 20; }

  void measure_all(const std::vector<Case>& cases, const Numbers& numbers, Json& rows) {
    for (const Case& c : cases)
      if (options_.wants(c)) rows.push_back(measured(c, numbers));
  }

  Json measured(const Case& c, const Numbers& numbers) {
    std::vector<std::function<void()>> calls;
    const int64_t sets = options_.in_cache ? 1 : operand_sets(c.bytes);
    const int64_t copied = options_.in_cache ? std::max<int64_t>(1, static_cast<int64_t>(c.bytes / 2)) : copy_bytes();
    for (int64_t i = 0; i < sets; ++i) calls.push_back(c.operands());
    std::vector<Launches> both{options_.in_cache ? copy_launches(copied) : copy_,
                               {c.what, [&](int64_t i) { calls[static_cast<size_t>(i) % calls.size()](); }}};
    measure(both, options_.repeat);
    poll_errors();
    const double copy = copied_bytes(copied) / both[0].median(), ns = both[1].median(), speed = c.bytes / ns;
    copies_.push_back(copy);
    std::cout << "  " << std::left << std::setw(11) << c.family << ' ' << std::setw(8) << c.dtype << std::setw(52)
              << c.what << std::setw(29) << c.layout << ' ' << std::setw(27) << c.kernel << std::right << std::fixed
              << std::setprecision(4) << std::setw(9) << ns / numbers.count() << " ns an element"
              << std::setprecision(1) << std::setw(11) << ns / 1000 << " us" << std::setw(9) << speed << " GB/s"
              << std::setw(7) << 100 * speed / copy << " % of copy" << std::endl;
    return {{"family", c.family},     {"what", c.what},
            {"dtype", c.dtype},       {"layout", c.layout},
            {"kernel", c.kernel},     {"rows", numbers.rows()},
            {"cols", numbers.cols()}, {"bytes", c.bytes},
            {"us", ns / 1000},        {"ns_per_element", ns / numbers.count()},
            {"gb_s", speed},          {"copy_share", speed / copy}};
  }

  const Options& options_;
  const Launches copy_;
  std::vector<double> copies_;
};

DType parse_codes(const std::string& name) {
  const DType dtype = parse_dtype(name);
  require(dtype.is_code() && dtype.kind() != DTypeKind::kCodebook, "bench_kernels", "--dtypes: got ", name,
          ", expected codes of an int, uint or sign dtype.");
  return dtype;
}

std::pair<int64_t, int64_t> parse_shape(const std::string& text) {
  const std::vector<int64_t> sizes = whole_numbers(text);
  const auto fits = [](int64_t size) { return size >= 1 && size <= 65536; };
  require(sizes.size() == 2 && std::all_of(sizes.begin(), sizes.end(), fits), "bench_kernels", "--shape: got '", text,
          "', expected ROWS,COLS, two whole numbers of 1 .. 65536.");
  return {sizes[0], sizes[1]};
}

Options parse_options(cli::Arguments& args, int argc, char** argv) {
  Options options;
  std::vector<std::string> shapes{"4096,4096"}, dtypes{"bint1", "ternary", "int2", "int4", "int8"};
  args.option("--shape", shapes, "ROWS,COLS; may be given several times (4096,4096)").repeatable();
  args.option("--dtypes", dtypes, "dtypes of codes (bint1,ternary,int2,int4,int8)").delimiter(',');
  args.option("--family", options.families, "pack, quantize, optimizer, elementwise, reduce, pointwise, rowwise (all)")
      .delimiter(',')
      .one_of(options.families);
  args.option("--what", options.what, "only rows whose name contains this");
  args.option("--kernel", options.kernel,
              "every usable kernel whose name contains this, of families that have several (the selected one)");
  args.flag("--in-cache", options.in_cache, "one set of operands, compared with a copy of as many bytes");
  add_device_option(args, options);
  args.option("--copy-mib", options.copy_mib, "size of the copy (cuda 512, cpu 64)").range(1, 1 << 14);
  add_report_options(args, options, "copy_share");
  parse(args, argc, argv, options);
  if (options.copy_mib == 0) options.copy_mib = options.device.is_cpu() ? 64 : 512;
  for (const std::string& text : shapes) options.shapes.push_back(parse_shape(text));
  for (const std::string& name : dtypes) options.dtypes.push_back(parse_codes(name));
  return options;
}

int run(const Options& options) {
  set_num_threads(1);
  const DeviceGuard guard(options.device);
  Json report = new_report(1);
  report["device"] = device_backend(options.device).describe();
  std::cout << to_string(options.device) << ": " << report["device"].get<std::string>() << ", median of "
            << options.repeat << '\n';
  Bench(options).run(report);
  CompareRule rule{{"family", "what", "dtype", "layout", "rows", "cols"}, "copy_share"};
  if (!options.kernel.empty()) rule.key.push_back("kernel");  // else whichever is selected
  return finish(report, options, rule);
}

}  // namespace

int main(int argc, char** argv) {
  return run_main("bench_kernels", "Kernels other than products, relative to a copy on the same device.",
                  [&](cli::Arguments& args) { return run(parse_options(args, argc, argv)); });
}
