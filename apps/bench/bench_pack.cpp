// bench_pack: the cost of packing: codes into every layout and back, values into codes (binarize and pack, quantize
// rows, with and without stochastic rounding) and codes into values. Measures each usable kernel of the family,
// alternating with a memcpy of as many bytes as the kernel reads and writes, in one run on one thread; medians of the
// thread's CPU time. Reports ns per code, GB/s of bytes read plus bytes written, and x memcpy = memcpy's time / the
// kernel's time.
//
//   bench_pack [--shape ROWS,COLS ...] [--dtypes LIST] [--what pack,unpack,quantize,dequantize] [--kernel SUBSTRING]
//              [--repeat R] [--json FILE] [--compare OLD] [--slack S]
#include <algorithm>
#include <cstring>
#include <iomanip>
#include <iostream>
#include <memory>
#include <random>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/codec.h"
#include "bitgrad/kernels/pack.h"
#include "bitgrad/kernels/quantize.h"
#include "shared/bytes.h"
#include "shared/common.h"
#include "shared/measure.h"
#include "shared/report.h"

namespace {

using namespace bitgrad;
using namespace bitgrad::bench;

struct Options {
  std::vector<std::pair<int64_t, int64_t>> shapes;
  std::vector<DType> dtypes;
  std::vector<std::string> what{"pack", "unpack", "quantize", "dequantize"};
  std::string kernel, json, compare;
  double slack = 0.9;
  int64_t repeat = 11;

  bool wants(const std::string& name) const { return std::find(what.begin(), what.end(), name) != what.end(); }
};

struct Entry {
  std::string what, layout, kernel;
  double bytes;  // read and written
};

// One [rows, cols] matrix as values and as codes, with all measurements of it.
class Bench {
 public:
  Bench(const Options& options, DType dtype, int64_t rows, int64_t cols)
      : options_(options),
        dtype_(dtype),
        rows_(rows),
        cols_(cols),
        stride_(row_bytes_memory(dtype, cols)),
        numbers_(rows * cols * 4),
        codes_(rows * stride_),
        mask_(rows * plane_words(cols) * 8),
        copy_from_(largest_entry()),
        copy_to_(largest_entry()) {
    std::mt19937 rng(1);
    const auto limit = static_cast<float>(std::max<int64_t>(dtype.info().qmax, 1));
    for (int64_t i = 0; i < rows * cols; ++i)
      numbers_.floats()[i] = (static_cast<float>(rng() % 2001) / 1000 - 1) * limit * 0.05f;
    scale_.assign(static_cast<size_t>(rows), 0.05f);
    kernels::QuantizeArgs fill = quantize_args();
    quantize(fill);
  }

  void run(Json& rows) {
    if (options_.wants("pack")) add_pack();
    if (options_.wants("unpack")) add_unpack();
    if (options_.wants("quantize")) add_quantize();
    if (options_.wants("dequantize")) add_dequantize();
    const size_t count = entries_.size();
    for (size_t i = 0; i < count; ++i) {  // the matching memcpy comes `count` places later
      const auto half = static_cast<size_t>(entries_[i].bytes / 2);
      all_.push_back({"", [this, half] { std::memcpy(copy_to_.data(), copy_from_.data(), half); }, 1, false, {}});
    }
    measure(all_, options_.repeat);
    for (size_t i = 0; i < count; ++i) report(entries_[i], all_[i].median(), all_[count + i].median(), rows);
  }

 private:
  // Upper bound of the bytes that one call reads and writes: values and codes, or canonical codes and a layout, with
  // pads.
  int64_t largest_entry() const {
    int64_t upper = rows_ * cols_ * 5;
    for (const Layout layout : all_layouts())
      if (layout.info().supports(dtype_)) upper = std::max(upper, layout.info().bytes(dtype_, rows_, cols_));
    return upper + rows_ * stride_ + 64;
  }

  bool chosen(std::string_view kernel) const { return kernel.find(options_.kernel) != std::string_view::npos; }
  void add(Entry entry, std::function<void()> run) {
    entries_.push_back(std::move(entry));
    all_.push_back({"", std::move(run), 1, false, {}});
  }

  std::vector<Layout> derived() const {
    std::vector<Layout> list;
    for (const Layout layout : all_layouts())
      if (layout != layouts::canonical && layout.info().supports(dtype_)) list.push_back(layout);
    return list;
  }
  std::shared_ptr<Bytes> room(Layout layout) const {
    return std::make_shared<Bytes>(layout.info().bytes(dtype_, rows_, cols_));
  }
  double bytes_of(Layout layout) const {
    return static_cast<double>(rows_ * stride_ + layout.info().bytes(dtype_, rows_, cols_));
  }

  void add_pack() {
    for (const Layout layout : derived())
      for (const Kernel<kernels::PackArgs>& kernel : kernels::pack_kernels()) {
        auto out = room(layout);
        const kernels::PackArgs args{dtype_, rows_, cols_, codes_.data(), stride_, layout, out->data()};
        if (!chosen(kernel.name) || !kernel.usable(args)) continue;
        add({"pack", std::string(layout.name()), std::string(kernel.name), bytes_of(layout)},
            [args, out, run = kernel.run] { run(args); });
      }
  }
  void add_unpack() {
    if (!options_.kernel.empty()) return;  // unpack is not a kernel family
    for (const Layout layout : derived()) {
      auto packed = room(layout);
      kernels::pack({dtype_, rows_, cols_, codes_.data(), stride_, layout, packed->data()});
      auto back = std::make_shared<Bytes>(rows_ * stride_);
      add({"unpack", std::string(layout.name()), "layout", bytes_of(layout)}, [this, layout, packed, back] {
        layout.info().unpack(dtype_, rows_, cols_, packed->data(), back->data(), stride_);
      });
    }
  }

  kernels::QuantizeArgs quantize_args() {
    kernels::QuantizeArgs args;
    args.rows = rows_, args.cols = cols_, args.x = numbers_.floats(), args.ldx = cols_;
    args.dtype = dtype_, args.codes = codes_.data(), args.stride = stride_;
    const bool sign = dtype_.kind() == DTypeKind::kSign;
    args.rule = sign ? CodeRule::kSign : CodeRule::kInverse;
    args.lo = dtype_.info().qmin, args.hi = dtype_.info().qmax;
    if (!sign) args.scale.scale = scale_.data(), args.scale.row_step = 1;
    return args;
  }
  void add_quantize() {
    const double bytes = static_cast<double>(rows_ * (cols_ * 4 + stride_));
    const double mask = static_cast<double>(rows_ * plane_words(cols_) * 8);
    kernels::QuantizeArgs plain = quantize_args(), masked = plain, drawn = plain;
    masked.ste = SteRule::kClip;
    masked.mask = static_cast<uint64_t*>(mask_.data());
    drawn.sr = &draws_;
    add_quantize_kernels("quantize", plain, bytes);
    add_quantize_kernels("quantize with clip mask", masked, bytes + mask);
    if (rounds(plain.rule)) add_quantize_kernels("quantize stochastically", drawn, bytes);
    if (plain.rule != CodeRule::kSign) return;
    for (const Layout layout : derived()) {
      auto out = room(layout);
      add({"binarize and pack", std::string(layout.name()), "both families", bytes + mask + bytes_of(layout)},
          [this, masked, out, layout] {
            quantize(masked);
            kernels::pack({dtype_, rows_, cols_, codes_.data(), stride_, layout, out->data()});
          });
    }
  }
  void add_quantize_kernels(const char* what, const kernels::QuantizeArgs& args, double bytes) {
    for (const Kernel<kernels::QuantizeArgs>& kernel : kernels::quantize_kernels())
      if (chosen(kernel.name) && kernel.usable(args))
        add({what, "canonical", std::string(kernel.name), bytes}, [args, run = kernel.run] { run(args); });
  }

  void add_dequantize() {
    if (!options_.kernel.empty()) return;
    kernels::DequantizeArgs args;
    args.rows = rows_, args.cols = cols_, args.dtype = dtype_, args.codes = codes_.data(), args.stride = stride_;
    args.scale.scale = scale_.data(), args.scale.row_step = 1;
    args.y = copy_from_.floats(), args.ldy = cols_;
    add({"dequantize", "canonical", "selected", static_cast<double>(rows_ * (cols_ * 4 + stride_))},
        [args] { kernels::dequantize(args); });
  }

  void report(const Entry& entry, double ns, double memcpy_ns, Json& rows) const {
    const double codes = static_cast<double>(rows_) * static_cast<double>(cols_);
    rows.push_back({{"what", entry.what},
                    {"dtype", dtype_.name()},
                    {"layout", entry.layout},
                    {"rows", rows_},
                    {"cols", cols_},
                    {"kernel", entry.kernel},
                    {"ns_per_code", ns / codes},
                    {"gb_per_s", entry.bytes / ns},
                    {"x_memcpy", memcpy_ns / ns}});
    std::cout << "  " << std::left << std::setw(25) << entry.what << std::setw(11) << entry.layout << std::setw(34)
              << entry.kernel << std::right << std::fixed << std::setprecision(4) << std::setw(9) << ns / codes
              << " ns a code" << std::setprecision(2) << std::setw(9) << entry.bytes / ns << " GB/s" << std::setw(8)
              << memcpy_ns / ns << " x memcpy\n";
  }

  const Options& options_;
  DType dtype_;
  int64_t rows_, cols_, stride_;
  Bytes numbers_, codes_, mask_, copy_from_, copy_to_;
  std::vector<float> scale_;
  RandomStream draws_{1, Purpose::kUser, site_id("bench_pack"), 0};
  std::vector<Entry> entries_;
  std::vector<Contestant> all_;
};

Options parse_options(cli::Arguments& args, int argc, char** argv) {
  Options options;
  std::vector<std::string> shapes{"512,4096", "4096,4096"}, dtypes{"bint1", "ternary", "int2", "int4", "int8"};
  args.option("--shape", shapes, "ROWS,COLS; may be given several times (512,4096 and 4096,4096)").repeatable();
  args.option("--dtypes", dtypes, "dtypes of codes (bint1,ternary,int2,int4,int8)").delimiter(',');
  args.option("--what", options.what, "pack, unpack, quantize, dequantize (all)")
      .delimiter(',')
      .one_of({"pack", "unpack", "quantize", "dequantize"});
  args.option("--kernel", options.kernel, "only kernels whose name contains this");
  args.option("--repeat", options.repeat, "measurements; the median counts (11)").range(1, 100000);
  args.option("--json", options.json, "write the results to this file");
  args.option("--compare", options.compare,
              "an earlier --json file: exit status 1 if a result's x_memcpy is below slack times the recorded one");
  args.option("--slack", options.slack, "of --compare (0.9)").range(0.0, 10.0);
  args.parse(argc, argv);
  for (const std::string& text : shapes) options.shapes.push_back(parse_matrix_shape("bench_pack", text));
  for (const std::string& name : dtypes) {
    options.dtypes.push_back(parse_dtype(name));
    const DTypeKind kind = options.dtypes.back().kind();
    require(options.dtypes.back().is_code() && kind != DTypeKind::kCodebook, "bench_pack", "--dtypes: got ", name,
            ", expected codes of an int, uint or sign dtype.");
  }
  check_writable("--json", options.json);
  return options;
}

int run(const Options& options) {
  set_num_threads(1);
  Json report = new_report(1);
  std::cout << report["machine"].get<std::string>() << " (" << report["isa"].get<std::string>()
            << "), one thread, median of " << options.repeat << '\n';
  for (const auto& [rows, cols] : options.shapes)
    for (const DType dtype : options.dtypes) {
      std::cout << '\n' << dtype << " [" << rows << ", " << cols << "]\n";
      Bench(options, dtype, rows, cols).run(report["rows"]);
    }
  write_report(options.json, report);
  if (options.compare.empty()) return 0;
  const CompareRule rule{{"what", "dtype", "layout", "rows", "cols", "kernel"}, "x_memcpy", options.slack};
  return compare_with_file(report, options.compare, rule) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  cli::Arguments args("Packing, unpacking and quantizing relative to memcpy, one thread.", "bench_pack");
  return run_main("bench_pack", [&] { return run(parse_options(args, argc, argv)); });
}
