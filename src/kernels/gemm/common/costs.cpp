// Cost factors of gemm kernels: stored per kernel, saved as text; also reports a verdict on every kernel.
#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/log.h"
#include "bitgrad/kernels/gemm_costs.h"
#include "kernels/gemm/kernels.h"

namespace bitgrad::kernels {
namespace {

constexpr char kHead[] = "bitgrad gemm costs 1";
constexpr char kWhere[] = "gemm costs";
constexpr size_t kMaxRows = 256;
constexpr int64_t kMostBytes = int64_t{1} << 20;  // maximum file size

struct Table {
  std::vector<GemmCostFactors> named;
  std::array<std::array<double, kGemmCostClasses>, kMaxRows> by_row;
  Table() {
    for (auto& factors : by_row) factors.fill(1);
  }
};

std::mutex g_mutex;
// Tables in use are read without a lock, so old ones are kept alive. One is added only when a program sets costs.
std::vector<std::unique_ptr<const Table>> g_tables;
std::atomic<const Table*> g_table{nullptr};
std::atomic<uint64_t> g_generation{0};

std::vector<std::string> words(const std::string& line) {
  TextReader in(line);
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

// Numbers are not read or written through streams, because the program's locale may use a decimal comma.
bool parse_factor(const std::string& text, double& out) {
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, out);
  return error == std::errc{} && at == end && std::isfinite(out) && out > 0;
}

std::string factor_text(double factor) {
  std::array<char, 32> text;
  const auto [end, error] =
      std::to_chars(text.data(), text.data() + text.size(), factor, std::chars_format::general, 4);
  return {text.data(), end};
}

GemmCostFactors parse_row(const std::string& path, int64_t number, const std::string& line) {
  const std::vector<std::string> parts = words(line);
  GemmCostFactors factors;
  bool good = parts.size() == 1 + kGemmCostClasses;
  for (size_t i = 0; good && i < kGemmCostClasses; ++i) good = parse_factor(parts[i + 1], factors.factor[i]);
  if (!good)
    fail_with(ErrorCode::kData, kWhere, path, ':', number, ": got '", line, "', expected a kernel's name and ",
              kGemmCostClasses,
              " factors above 0. Hint: measure again with `bitgrad kernels --calibrate`, or delete the file.");
  factors.kernel = parts[0];
  return factors;
}

}  // namespace

int gemm_cost_class(int64_t m) { return m <= 1 ? 0 : m <= 16 ? 1 : m <= 128 ? 2 : 3; }

double gemm_cost(const GemmKernel& kernel, const GemmArgs& args) {
  const Table* table = g_table.load(std::memory_order_acquire);
  const double ns = kernel.cost(args);
  if (table == nullptr) return ns;
  const auto at = static_cast<size_t>(&kernel - gemm_kernels().data());
  return ns * table->by_row[at][static_cast<size_t>(gemm_cost_class(args.m))];
}

void set_gemm_costs(std::vector<GemmCostFactors> factors) {
  const std::span<const GemmKernel> kernels = gemm_kernels();
  ensure(kernels.size() <= kMaxRows, kWhere, "more than ", kMaxRows, " gemm kernels");
  auto table = std::make_unique<Table>();
  for (size_t i = 0; i < factors.size(); ++i) {
    for (size_t j = 0; j < i; ++j)
      require(factors[i].kernel != factors[j].kernel, kWhere, "kernel '", factors[i].kernel,
              "' is named twice, expected once");
    for (const double f : factors[i].factor)
      require(std::isfinite(f) && f > 0, kWhere, "factor of kernel '", factors[i].kernel, "': got ", f,
              ", expected a finite number above 0");
    for (size_t r = 0; r < kernels.size(); ++r)
      if (kernels[r].name == factors[i].kernel) table->by_row[r] = factors[i].factor;
  }
  table->named = std::move(factors);
  const std::lock_guard lock(g_mutex);
  g_tables.push_back(std::move(table));
  g_table.store(g_tables.back().get(), std::memory_order_release);
  g_generation.fetch_add(1);
}

std::vector<GemmCostFactors> gemm_costs() {
  const Table* table = g_table.load(std::memory_order_acquire);
  return table == nullptr ? std::vector<GemmCostFactors>{} : table->named;
}

uint64_t gemm_costs_generation() { return g_generation.load(std::memory_order_relaxed); }

std::string gemm_costs_path() {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  if (const std::string path = variable("BITGRAD_GEMM_COSTS"); !path.empty()) return path;
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty()) return cache + "/bitgrad/gemm_costs.txt";
  if (const std::string home = variable("HOME"); !home.empty()) return home + "/.cache/bitgrad/gemm_costs.txt";
  return "";
}

void save_gemm_costs(const std::string& path, const std::vector<GemmCostFactors>& factors) {
  TextWriter text;
  text << kHead << "\ncpu " << cpu_model_name() << '\n';
  for (const GemmCostFactors& entry : factors) {
    text << entry.kernel;
    for (const double f : entry.factor) text << ' ' << factor_text(f);
    text << '\n';
  }
  if (const size_t slash = path.rfind('/'); slash != std::string::npos && slash > 0)
    file_system().make_directories(path.substr(0, slash));
  write_file_atomically(path, text.str());
}

bool load_gemm_costs(const std::string& path) {
  if (path.empty() || !file_system().exists(path)) return false;
  const std::vector<uint8_t> bytes = read_file(path, kMostBytes);
  TextReader in(std::string(bytes.begin(), bytes.end()));
  std::string line;
  if (!std::getline(in, line) || line != kHead)
    fail_with(ErrorCode::kData, kWhere, path, ":1: got '", line, "', expected '", kHead,
              "'. Hint: measure again with `bitgrad kernels --calibrate`, or delete the file.");
  const std::string cpu = concat("cpu ", cpu_model_name());
  if (!std::getline(in, line) || line != cpu) {
    log(LogLevel::kWarning, concat(path, " was measured on another machine ('", line, "', this is '", cpu,
                                   "'): the shipped costs are used. `bitgrad kernels --calibrate` measures again."));
    return false;
  }
  std::vector<GemmCostFactors> rows;
  for (int64_t number = 3; std::getline(in, line); ++number)
    if (!line.empty()) {
      rows.push_back(parse_row(path, number, line));
      for (size_t i = 0; i + 1 < rows.size(); ++i)
        if (rows[i].kernel == rows.back().kernel)
          fail_with(ErrorCode::kData, kWhere, path, ':', number, ": kernel '", rows[i].kernel,
                    "' is named twice, expected once");
    }
  set_gemm_costs(std::move(rows));
  return true;
}

std::vector<GemmCandidate> explain_gemm(const GemmArgs& args_in) {
  GemmArgs args = args_in;
  args.a.layout = args.b.layout = layouts::canonical;
  const GemmKernel& best = plan_gemm(args);
  std::vector<GemmCandidate> out;
  for (const GemmKernel& kernel : gemm_kernels()) {
    GemmCandidate c{&kernel, GemmVerdict::kDearer, 0};
    if (!kernel.granted())
      c.verdict = GemmVerdict::kNeedsIsa;
    else if (!kernel.supports(args))
      c.verdict = GemmVerdict::kUnsupported;
    else if (!kernel.usable(args) || !gemm_detail::legal_order(kernel, args))
      c.verdict = GemmVerdict::kOrder;
    else
      c.ns = gemm_cost(kernel, args);
    if (&kernel == &best) c.verdict = GemmVerdict::kChosen;
    out.push_back(c);
  }
  return out;
}

std::string_view verdict_name(GemmVerdict verdict) {
  constexpr std::array<std::string_view, 5> kNames{"chosen", "slower", "needs instructions that are not enabled",
                                                   "operands not supported", "summation order not allowed in strict"};
  static_assert(kNames.size() == static_cast<size_t>(GemmVerdict::kOrder) + 1, "a name for every verdict");
  return kNames[static_cast<size_t>(verdict)];
}

}  // namespace bitgrad::kernels
