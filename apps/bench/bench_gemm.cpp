// bench_gemm: every usable row of family gemm beside oneDNN's fp32 product, on one thread, measured in turns in the
// same run; medians of the thread's processor time. A is packed outside, B is prepacked in the layout that each side
// asks for. G = 1e9 multiply-adds a second; x oneDNN fp32 = its time / the row's time.
//
//   bench_gemm [--shape M,N,K ...] [--dtypes A,B ...] [--product forward|gx|gw] [--kernel SUBSTRING] [--repeat R]
//              [--json FILE]
//
// Products: forward: C = A B^T with both stored [free, k]; gx: B stored [k, free]; gw: both stored [k, free] and the
// product added to C.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>
#include <filesystem>
#include <functional>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/codec.h"
#include "bitgrad/kernels/gemm.h"

#if BITGRAD_WITH_ONEDNN
#include <omp.h>

#include <oneapi/dnnl/dnnl.hpp>
#endif

namespace {

using namespace bitgrad;
using Json = nlohmann::ordered_json;

struct Shape {
  int64_t m, n, k;
};
struct Options {
  std::vector<Shape> shapes;
  std::vector<std::pair<DType, DType>> dtypes;
  std::string product = "forward", kernel, json;
  int64_t repeat = 11;
  bool a_k_major() const { return product == "gw"; }
  bool b_k_major() const { return product != "forward"; }
};

// 64-byte aligned, zeroed.
class Bytes {
 public:
  explicit Bytes(int64_t bytes) : data_(static_cast<size_t>(bytes / 64 + 1)) {}
  void* data() { return data_.data(); }
  float* floats() { return reinterpret_cast<float*>(data_.data()); }

 private:
  struct alignas(64) Line {
    uint8_t bytes[64];
  };
  std::vector<Line> data_;
};

// ---- operands
// --------------------------------------------------------------------------------------------------------------- A
// random [rows, cols] matrix in canonical layout.
struct Matrix {
  DType dtype;
  int64_t rows, cols, stride;
  Bytes bytes;

  Matrix(DType type, int64_t r, int64_t c, std::mt19937& rng)
      : dtype(type), rows(r), cols(c), stride(row_bytes_memory(type, c)), bytes(r * stride) {
    const DTypeInfo& info = dtype.info();
    const bool codebook = info.kind == DTypeKind::kCodebook;
    std::vector<double> numbers(static_cast<size_t>(cols));
    for (int64_t i = 0; i < rows; ++i) {
      for (double& x : numbers) {
        if (dtype.is_float()) {
          x = static_cast<double>(rng() % 2001) / 1000 - 1;
        } else if (codebook) {
          x = info.levels[rng() % info.levels.size()];
        } else if (info.kind == DTypeKind::kSign) {
          x = rng() % 2 == 0 ? -1 : 1;
        } else {
          const auto span = static_cast<uint64_t>(dtype.is_code() ? info.qmax - info.qmin : 200);
          x = static_cast<double>((dtype.is_code() ? info.qmin : -100) + static_cast<int64_t>(rng() % (span + 1)));
        }
      }
      pack_row(dtype, numbers.data(), cols, static_cast<char*>(bytes.data()) + i * stride);
    }
  }
};

// The same codes in the layout of a row; nothing when it cannot hold them.
std::unique_ptr<Bytes> packed(Matrix& x, Layout layout) {
  const LayoutInfo& info = layout.info();
  if (!info.supports(x.dtype)) return nullptr;
  auto out = std::make_unique<Bytes>(info.bytes(x.dtype, x.rows, x.cols));
  info.pack(x.dtype, x.rows, x.cols, x.bytes.data(), x.stride, out->data());
  return out;
}

// ---- measuring
// --------------------------------------------------------------------------------------------------------------
struct Contestant {
  std::string name;
  std::function<void()> run;
  int64_t calls = 1;  // of one measurement
  bool slow = false;  // measured once
  std::vector<double> ns;

  double median() const {
    std::vector<double> sorted = ns;
    std::sort(sorted.begin(), sorted.end());
    const size_t half = sorted.size() / 2;
    return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  }
};

// Processor time of this thread: on a busy machine wall time would charge the longer measurements for the neighbours'
// turns.
double now_ns() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

double time_ns(const Contestant& c, int64_t calls) {
  const double start = now_ns();
  for (int64_t i = 0; i < calls; ++i) c.run();
  return (now_ns() - start) / static_cast<double>(calls);
}

// All in turns, so that a change of the machine's pace meets all of them.
void measure(std::vector<Contestant>& all, int64_t repeat) {
  constexpr double kOnceNs = 4e8, kMeasurementNs = 2e6;
  for (Contestant& c : all) {
    const double first = time_ns(c, 1);
    c.slow = first > kOnceNs;
    if (c.slow) {
      c.ns.push_back(first);
      continue;
    }
    const double warm = time_ns(c, 1);
    c.calls = std::max<int64_t>(1, static_cast<int64_t>(kMeasurementNs / std::max(warm, 1.0)));
  }
  for (int64_t r = 0; r < repeat; ++r)
    for (Contestant& c : all)
      if (!c.slow) c.ns.push_back(time_ns(c, c.calls));
}

// ---- the rival
// --------------------------------------------------------------------------------------------------------------
constexpr const char* kRival = "oneDNN fp32, prepacked";

#if BITGRAD_WITH_ONEDNN
// oneDNN fp32 with source and weights reordered to the formats that it likes best.
class Rival {
 public:
  explicit Rival(const Shape& s) : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_), c_(s.m * s.n * 4) {
    using Memory = dnnl::memory;
    const auto type = Memory::data_type::f32;
    const auto any = Memory::format_tag::any;
    const Memory::desc a({s.m, s.k}, type, any), b({s.k, s.n}, type, any), c({s.m, s.n}, type, Memory::format_tag::ab);
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc desc(engine_, a, b, c);
#else
    const dnnl::matmul::primitive_desc desc(dnnl::matmul::desc(a, b, c), engine_);
#endif
    Bytes numbers(std::max(s.m, s.n) * s.k * 4);
    for (int64_t i = 0; i < std::max(s.m, s.n) * s.k; ++i) numbers.floats()[i] = static_cast<float>(i % 17) - 8.0f;
    a_ = reordered({{s.m, s.k}, type, Memory::format_tag::ab}, desc.src_desc(), numbers);
    b_ = reordered({{s.k, s.n}, type, Memory::format_tag::ba}, desc.weights_desc(), numbers);
    c_memory_ = Memory(c, engine_, c_.data());
    product_ = dnnl::matmul(desc);
  }
  void run() {
    product_.execute(stream_, {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DST, c_memory_}});
    stream_.wait();
  }

 private:
  dnnl::memory reordered(const dnnl::memory::desc& from, const dnnl::memory::desc& to, Bytes& numbers) {
    dnnl::memory source(from, engine_, numbers.data()), out(to, engine_);
    dnnl::reorder(source, out).execute(stream_, source, out);
    stream_.wait();
    return out;
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  Bytes c_;
  dnnl::memory a_, b_, c_memory_;
  dnnl::matmul product_;
};

void add_rival(const Shape& shape, std::vector<Contestant>& all) {
  omp_set_num_threads(1);
  auto rival = std::make_shared<Rival>(shape);
  all.push_back({kRival, [rival] { rival->run(); }, 1, false, {}});
}
#else
void add_rival(const Shape&, std::vector<Contestant>&) {}
#endif

// ---- one table
// --------------------------------------------------------------------------------------------------------------
void add_rows(const Options& options, const Shape& s, Matrix& a, Matrix& b, Bytes& c,
              std::vector<std::shared_ptr<Bytes>>& kept, std::vector<Contestant>& all) {
  for (const GemmRow& row : gemm_rows()) {
    if (row.name.find(options.kernel) == std::string_view::npos || (row.needs & ~cpu_isa()) != 0) continue;
    GemmArgs args;
    args.m = s.m, args.n = s.n, args.k = s.k;
    args.a = {a.bytes.data(), a.dtype, row.a_layout, a.stride, options.a_k_major(), {}};
    args.b = {b.bytes.data(), b.dtype, row.b_layout, b.stride, options.b_k_major(), {}};
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

void bench(const Options& options, const Shape& s, DType a_type, DType b_type, Json& rows) {
  std::mt19937 rng(1);
  const bool ak = options.a_k_major(), bk = options.b_k_major();
  Matrix a(a_type, ak ? s.k : s.m, ak ? s.m : s.k, rng), b(b_type, bk ? s.k : s.n, bk ? s.n : s.k, rng);
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
            << '\n';
  const double macs = static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  const auto faster = [&](const Contestant& x) { return all[0].median() / x.median(); };
  for (size_t i = 0; i < all.size(); ++i) {
    const Contestant& x = all[i];
    const double gmacs = macs / x.median();
    std::cout << "  " << std::left << std::setw(36) << x.name << std::right << std::fixed << std::setprecision(2)
              << std::setw(12) << x.median() / 1000 << " us" << std::setw(11) << gmacs << " GMAC/s";
    if (rivals != 0) std::cout << std::setw(9) << faster(x) << " x oneDNN fp32";
    std::cout << '\n';
    if (i < rivals) continue;
    rows.push_back({{"a", a_type.name()},
                    {"b", b_type.name()},
                    {"m", s.m},
                    {"n", s.n},
                    {"k", s.k},
                    {"kernel", x.name},
                    {"gmacs", gmacs},
                    {"x_onednn_f32", rivals != 0 ? Json(faster(x)) : Json(nullptr)},
                    {"peak_fraction", nullptr}});
  }
}

// ---- arguments
// --------------------------------------------------------------------------------------------------------------
std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

int64_t parse_size(const std::string& text, const std::string& whole) {
  constexpr int64_t kMaxSide = 1 << 20;
  const bool digits = !text.empty() && text.size() <= 8 &&
                      std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  const int64_t size = digits ? std::stoll(text) : 0;
  require(size >= 1 && size <= kMaxSide, "bench_gemm", "--shape: got '", whole,
          "', expected M,N,K, three whole numbers of 1 .. ", kMaxSide, '.');
  return size;
}

Shape parse_shape(const std::string& text) {
  constexpr int64_t kMaxElements = int64_t{1} << 30;
  const std::vector<std::string> parts = split(text);
  require(parts.size() == 3, "bench_gemm", "--shape: got '", text, "', expected M,N,K, such as 1024,1024,1024.");
  const Shape s{parse_size(parts[0], text), parse_size(parts[1], text), parse_size(parts[2], text)};
  require(std::max({s.m * s.n, s.m * s.k, s.n * s.k}) <= kMaxElements, "bench_gemm", "--shape: got '", text,
          "', expected matrices of at most ", kMaxElements, " elements.");
  return s;
}

std::pair<DType, DType> parse_pair(const std::string& text) {
  const std::vector<std::string> parts = split(text);
  require(parts.size() == 2, "bench_gemm", "--dtypes: got '", text, "', expected A,B, such as bint1,bint1.");
  return {parse_dtype(parts[0]), parse_dtype(parts[1])};
}

Options parse(CLI::App& app, int argc, char** argv) {
  Options options;
  std::vector<std::string> shapes{"1024,1024,1024"}, dtypes{"bint1,bint1"};
  const auto one_each = [](CLI::Option* option) {
    option->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->allow_extra_args(false);
  };
  one_each(app.add_option("--shape", shapes, "M,N,K; may be given several times (1024,1024,1024)"));
  one_each(app.add_option("--dtypes", dtypes, "A,B; may be given several times (bint1,bint1)"));
  app.add_option("--product", options.product,
                 "forward | gx (B stored [k, free]) | gw (both stored [k, free], added to C)")
      ->check(CLI::IsMember({"forward", "gx", "gw"}));
  app.add_option("--kernel", options.kernel, "only rows whose name holds this");
  app.add_option("--repeat", options.repeat, "measurements of each row; the median counts (11)")
      ->check(CLI::Range(1, 100000));
  app.add_option("--json", options.json, "writes the rows to this file");
  app.parse(argc, argv);
  for (const std::string& text : shapes) options.shapes.push_back(parse_shape(text));
  for (const std::string& text : dtypes) options.dtypes.push_back(parse_pair(text));
  if (!options.json.empty()) {
    const std::filesystem::path folder = std::filesystem::absolute(options.json).parent_path();
    require(std::filesystem::is_directory(folder) && !std::filesystem::is_directory(options.json), "bench_gemm",
            "--json: cannot write '", options.json, "', expected a file in a folder that exists.");
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Multiply-adds a second of every usable gemm kernel and of oneDNN fp32, one thread.", "bench_gemm");
  try {
    const Options options = parse(app, argc, argv);
    set_num_threads(1);
    Json report{{"machine", cpu_model_name() + " (" + isa_names(cpu_isa()) + ")"}, {"rows", Json::array()}};
    std::cout << "machine: " << report["machine"].get<std::string>() << ", one thread, median of " << options.repeat
              << '\n';
    for (const Shape& shape : options.shapes)
      for (const auto& [a, b] : options.dtypes) bench(options, shape, a, b, report["rows"]);
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
