// Statistics of codes and the values behind them, in one sweep over blocks of rows. Counts are exact. Sums of squares
// are accumulated in double per block and added in block order, so they do not depend on the number of threads.
#include "bitgrad/run/quant_monitor.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>

#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/codec.h"
#include "bitgrad/nn/requantization.h"
#include "kernels/quantize.h"
#include "nn/row_params.h"
#include "optim/finish.h"
#include "quant/values.h"

namespace bitgrad {
namespace {

constexpr int64_t kBlockElements = 65536;  // elements at a time, at least one row unit
constexpr std::string_view kWhere = "quant_statistics";

using Rows = std::function<Tensor(int64_t begin, int64_t end)>;

struct BlockStatistics {
  std::array<int64_t, 256> raw{};  // number of elements per raw code
  int64_t saturated = 0, passed = 0;
  double signal = 0, noise = 0;
};

void count_codes(const Tensor& codes, BlockStatistics& part) {
  std::vector<uint8_t> raw(static_cast<size_t>(codes.cols()));
  for (int64_t r = 0; r < codes.rows(); ++r) {
    const auto* row = static_cast<const uint8_t*>(codes.data()) + r * codes.stride();
    unpack_row_raw(codes.dtype(), row, 0, codes.cols(), raw.data());
    for (const uint8_t code : raw) ++part.raw[code];
  }
}

// Number of elements whose code is out of range before clamping, by the rule that quantized x.
int64_t count_saturated(const QuantSpec& spec, const CodeRange& range, const Tensor& x) {
  const int64_t words = (x.cols() + 63) / 64;
  std::vector<uint64_t> mask(static_cast<size_t>(x.rows() * words));
  const Tensor codes = Tensor::empty({x.rows(), x.cols()}, spec.dtype, MemoryKind::kWorkspace);
  const detail::KernelScales scales(range, x);
  uint32_t flags = 0;
  kernels::QuantizeArgs args;
  args.rows = x.rows();
  args.cols = args.ldx = x.cols();
  args.x = x.as<float>();
  args.dtype = spec.dtype;
  args.codes = codes.data();
  args.stride = codes.stride();
  args.rule = range.rule;
  args.lo = range.lo;
  args.hi = range.hi;
  args.scale = scales.map();
  args.ste = SteRule::kClip;
  args.mask = mask.data();
  args.flags = &flags;
  kernels::quantize(args);
  int64_t inside = 0;
  for (const uint64_t word : mask) inside += std::popcount(word);
  return x.numel() - inside;
}

int64_t count_passed(const QuantSpec& spec, const QuantParams& params, const Tensor& x) {
  const Tensor g = Tensor::full(x.shape(), dtypes::fp32, 1, MemoryKind::kWorkspace);
  find_quantizer(spec.scheme).leaf_backward(spec, params, x, g, g);
  const float* from = g.as<float>();
  return std::count_if(from, from + g.numel(), [](float v) { return v != 0.0f; });
}

void add_noise(const Tensor& codes, const Tensor& x, BlockStatistics& part) {
  const Tensor values = dequantize_tensor(codes, MemoryKind::kWorkspace);
  const float *w = x.as<float>(), *v = values.as<float>();
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double number = w[i], error = number - static_cast<double>(v[i]);
    part.signal += number * number;
    part.noise += error * error;
  }
}

double decibels(double signal, double noise) { return 10.0 * std::log10(signal / noise); }

// The histogram in the order of the dtype's codes, from counts by raw code.
void histogram_of(DType dtype, const std::array<int64_t, 256>& raw, QuantStatistics& s) {
  const DTypeInfo& info = dtype.info();
  const bool by_raw = info.kind == DTypeKind::kSign || info.kind == DTypeKind::kCodebook;
  const int64_t codes = info.kind == DTypeKind::kSign ? 2 : info.qmax - info.qmin + 1;
  for (int64_t i = 0; i < codes; ++i)
    s.histogram.push_back(raw[by_raw ? static_cast<uint64_t>(i) : encode_int(info, info.qmin + i)]);
  s.entropy_limit = std::log2(static_cast<double>(codes));
  s.dead_codes = std::count(s.histogram.begin(), s.histogram.end(), 0);
  if (s.elements == 0) return;
  const double n = static_cast<double>(s.elements);
  for (const int64_t count : s.histogram)
    if (count > 0) s.entropy -= static_cast<double>(count) / n * std::log2(static_cast<double>(count) / n);
  if (codes > 2) s.at_ends = static_cast<double>(s.histogram.front() + s.histogram.back()) / n;
}

std::optional<QuantStatistics::Scale> scale_of(const QuantParams& params) {
  if (!params.scale || params.scale->numel() == 0) return std::nullopt;
  const Tensor scale = params.scale->on_host();
  const float* s = scale.as<float>();
  const int64_t n = scale.numel();
  QuantStatistics::Scale out{s[0], 0, s[0]};
  for (int64_t i = 0; i < n; ++i) {
    out.least = std::min(out.least, static_cast<double>(s[i]));
    out.largest = std::max(out.largest, static_cast<double>(s[i]));
    out.mean += static_cast<double>(s[i]);
  }
  out.mean /= static_cast<double>(n);
  return out;
}

// `numbers` returns rows of x; empty if x is not known. Blocks start at multiples of `unit` rows.
QuantStatistics sweep(const QuantSpec& spec, const Tensor& codes, int64_t unit, const Rows& numbers) {
  const Tensor matrix = detail::as_matrix(codes);
  const int64_t rows = matrix.rows(), cols = matrix.cols();
  const CodeRange range = find_quantizer(spec.scheme).code_range(spec);
  const int64_t step = std::max(kBlockElements / std::max<int64_t>(cols, 1) / unit, int64_t{1}) * unit;
  std::vector<BlockStatistics> parts(static_cast<size_t>(codes.numel() == 0 ? 0 : (rows + step - 1) / step));
  parallel_for(static_cast<int64_t>(parts.size()), [&](int64_t block) {
    BlockStatistics& part = parts[static_cast<size_t>(block)];
    const int64_t begin = block * step, end = std::min(begin + step, rows);
    const auto params = detail::params_of_rows(codes.quant(), cols, begin, end);
    const Tensor c = matrix.without_quant().row_slice(begin, end).with_quant(params);
    count_codes(c, part);
    if (!numbers) return;
    const Tensor x = numbers(begin, end);
    if (rounds(range.rule)) part.saturated = count_saturated(spec, range, x.with_quant(params));
    part.passed = count_passed(spec, *params, x);
    add_noise(c, x, part);
  });
  BlockStatistics sum;
  for (const BlockStatistics& p : parts) {
    for (size_t i = 0; i < p.raw.size(); ++i) sum.raw[i] += p.raw[i];
    sum.saturated += p.saturated;
    sum.passed += p.passed;
    sum.signal += p.signal;
    sum.noise += p.noise;
  }
  QuantStatistics s;
  s.elements = codes.numel();
  histogram_of(codes.dtype(), sum.raw, s);
  s.scale = scale_of(*codes.quant());
  if (!numbers || s.elements == 0) return s;
  const double n = static_cast<double>(s.elements);
  if (rounds(range.rule)) s.saturated = static_cast<double>(sum.saturated) / n;
  s.pass = static_cast<double>(sum.passed) / n;
  if (sum.signal > 0 || sum.noise > 0) s.sqnr_db = decibels(sum.signal, sum.noise);
  return s;
}

}  // namespace

// Codes and values on a device are copied to the host for counting.
QuantStatistics quant_statistics(const QuantSpec& spec, const Tensor& codes, const Tensor& x) {
  if (!codes.device().is_cpu() || (x.defined() && !x.device().is_cpu())) {
    const Tensor on_host = codes.on_host(), numbers = x.on_host();
    const DeviceGuard cpu(Device::cpu());
    return quant_statistics(spec, on_host, numbers);
  }
  const DeviceGuard cpu(Device::cpu());
  require(codes.defined() && codes.dtype() == spec.dtype && codes.layout() == layouts::canonical && codes.quant(),
          kWhere, "needs canonical ", spec.dtype, " codes with scales, got ", codes);
  require(!x.defined() || (x.dtype() == dtypes::fp32 && x.shape() == codes.shape() && x.contiguous()), kWhere,
          "the values of ", codes, ": got ", x, ", expected fp32 of the same shape");
  const Granularity& g = codes.quant()->granularity;
  const int64_t unit = g.kind == Granularity::kGroup && g.axis == 0 ? g.group : 1;
  Rows numbers;
  if (x.defined())
    numbers = [matrix = detail::as_matrix(x.without_quant())](int64_t begin, int64_t end) {
      return matrix.row_slice(begin, end);
    };
  return sweep(spec, codes, unit, numbers);
}

QuantStatistics quant_statistics(const Parameter& p) {
  require(p.low_bit() && p.value().quant(), kWhere, "parameter '", p.path(), "' ", p.value(), " has no codes");
  const DeviceGuard own(p.value().device());
  if (!p.value().device().is_cpu())
    return quant_statistics(*p.spec().quant, p.value(), p.has_master() ? dequantized(p) : Tensor());
  Rows numbers;
  if (p.has_master()) numbers = [&p](int64_t begin, int64_t end) { return detail::number_rows(p, begin, end); };
  return sweep(*p.spec().quant, p.value(), row_unit(p), numbers);
}

std::optional<double> scale_drift(const QuantParams& before, const QuantParams& now) {
  if (!before.scale || !now.scale) return before.scale || now.scale ? std::nullopt : std::optional<double>(0.0);
  const int64_t n = now.scale->numel();
  if (before.scale->numel() != n || n == 0) return std::nullopt;
  const Tensor scale_before = before.scale->on_host(), scale_now = now.scale->on_host();
  const float *a = scale_before.as<float>(), *b = scale_now.as<float>();
  double sum = 0;
  int64_t counted = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (a[i] == 0.0f) continue;
    sum += std::abs(static_cast<double>(b[i]) - static_cast<double>(a[i])) / static_cast<double>(a[i]);
    ++counted;
  }
  return counted > 0 ? std::optional<double>(sum / static_cast<double>(counted)) : std::nullopt;
}

}  // namespace bitgrad
