#include "bench_gemm.h"

#include <iomanip>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/dtype/codec.h"
#include "bitgrad/kernels/gemm.h"
#include "bitgrad/tensor/tensor.h"
#include "kernels/pack.h"
#include "shared/measure.h"

namespace bitgrad::bench {
namespace {

Tensor to_device(const void* host, int64_t bytes) {
  Tensor t = Tensor::empty({bytes}, dtypes::uint8);
  device_backend(current_device()).copy_from_host(t.data(), host, bytes);
  return t;
}

// One operand of a product, in several copies.
struct Side {
  DType dtype;
  int64_t rows, cols, stride;
  std::vector<Tensor> copies;
  Tensor scales;

  Side(DType type, int64_t r, int64_t c, int64_t free, std::mt19937& rng) : dtype(type), rows(r), cols(c) {
    const Device device = current_device();
    const DeviceGuard host(Device::cpu());
    const int64_t count = operand_sets(static_cast<double>(row_bytes_memory(type, c) * r));
    for (int64_t i = 0; i < count; ++i) {
      Matrix x(type, r, c, rng);
      stride = x.stride;
      const DeviceGuard there(device);
      copies.push_back(to_device(x.bytes.data(), x.stride * r));
    }
    std::vector<double> s(static_cast<size_t>(free));
    for (double& v : s) v = 0.5 + static_cast<double>(rng() % 1000) / 1000;
    const DeviceGuard there(device);
    scales = Tensor::from_elements({free}, dtypes::fp32, s);
  }

  // The codes in the layout that a kernel reads; empty if the layout does not support the dtype.
  std::vector<Tensor> in(Layout layout) const {
    if (layout == layouts::canonical) return copies;
    if (!layout.info().supports(dtype)) return {};
    std::vector<Tensor> out;
    for (const Tensor& codes : copies) {
      out.push_back(Tensor::empty_layout({rows, cols}, dtype, layout, MemoryKind::kDerived));
      kernels::pack({dtype, rows, cols, codes.data(), stride, layout, out.back().data()});
    }
    return out;
  }

  kernels::GemmOperand operand(const Tensor& data, Layout layout, bool k_major, bool scaled) const {
    kernels::GemmOperand o{data.data(), dtype, layout, stride, k_major, {}};
    if (!scaled || !dtype.is_code()) return o;
    o.scale.scale = scales.as<float>();
    (k_major ? o.scale.col_step : o.scale.row_step) = 1;
    return o;
  }
};

const Tensor& turn(const std::vector<Tensor>& copies, int64_t i) {
  return copies[static_cast<size_t>(i) % copies.size()];
}

Launches product(const kernels::GemmKernel& kernel, kernels::GemmArgs args, std::vector<Tensor> a,
                 std::vector<Tensor> b, std::string name) {
  return {std::move(name), [&kernel, args, a = std::move(a), b = std::move(b)](int64_t i) {
            kernels::GemmArgs now = args;
            now.a.data = turn(a, i).data();
            now.b.data = turn(b, i).data();
            kernel.run(now);
          }};
}

class Products {
 public:
  Products(const Options& options, const ProductShape& s) : options_(options), s_(s) {
    c_ = Tensor::empty({s.m, s.n}, dtypes::bf16);
  }

  kernels::GemmArgs args(const Side& a, const Side& b, Layout a_layout, Layout b_layout, bool scaled) const {
    kernels::GemmArgs g;
    g.m = s_.m, g.n = s_.n, g.k = s_.k;
    g.a = a.operand(a.copies[0], a_layout, options_.a_k_major(), scaled);
    g.b = b.operand(b.copies[0], b_layout, options_.b_k_major(), scaled);
    g.c = c_.data(), g.c_dtype = dtypes::bf16, g.ldc = s_.n, g.accumulate = options_.accumulate();
    return g;
  }
  Side side(DType dtype, bool a, std::mt19937& rng) const {
    const int64_t free = a ? s_.m : s_.n;
    const bool k_major = a ? options_.a_k_major() : options_.b_k_major();
    return {dtype, k_major ? s_.k : free, k_major ? free : s_.k, free, rng};
  }

 private:
  const Options& options_;
  const ProductShape s_;
  Tensor c_;
};

// GB/s of a copy, counting bytes read and written.
double copy_bandwidth(int64_t repeat) {
  constexpr int64_t kBytes = int64_t{1} << 29;
  std::vector<Launches> all{copy_launches(kBytes)};
  measure(all, repeat);
  return copied_bytes(kBytes) / all[0].median();
}

void bench_product(const Options& options, const ProductShape& s, const Case& what, Json& rows) {
  std::mt19937 rng(1);
  const Products products(options, s);
  const Side a = products.side(what.a, true, rng), b = products.side(what.b, false, rng),
             a16 = products.side(dtypes::bf16, true, rng), b16 = products.side(dtypes::bf16, false, rng);
  std::vector<Launches> all;
  const kernels::GemmArgs wide = products.args(a16, b16, layouts::canonical, layouts::canonical, false);
  const kernels::GemmKernel& rival = kernels::select_gemm(wide);
  all.push_back(product(rival, wide, a16.copies, b16.copies, concat("bf16 x bf16: ", rival.name)));
  for (const kernels::GemmKernel& kernel : kernels::gemm_kernels()) {
    if (!kernel.granted() || kernel.name.find(options.kernel) == std::string_view::npos) continue;
    if (options.fast_rows && kernel.name.ends_with("_simt")) continue;
    const kernels::GemmArgs args = products.args(a, b, kernel.a_layout, kernel.b_layout, true);
    if (!kernel.usable(args)) continue;
    std::vector<Tensor> in_a = a.in(kernel.a_layout), in_b = b.in(kernel.b_layout);
    if (in_a.empty() || in_b.empty()) continue;
    all.push_back(product(kernel, args, std::move(in_a), std::move(in_b), std::string(kernel.name)));
  }
  measure(all, options.repeat);
  std::cout << "\n"
            << what.a << " x " << what.b << " -> bf16 with scales, m " << s.m << ", n " << s.n << ", k " << s.k << ", "
            << what.product << '\n';
  const double work = static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  for (const Launches& t : all) {
    std::cout << "  " << std::left << std::setw(40) << t.name << std::right << std::fixed << std::setprecision(2)
              << std::setw(12) << t.median() / 1000 << " us" << std::setw(12) << 2 * work / t.median() / 1000
              << " TOP/s, x bf16 " << all[0].median() / t.median() << '\n';
    rows.push_back({{"a", what.a.name()},
                    {"b", what.b.name()},
                    {"m", s.m},
                    {"n", s.n},
                    {"k", s.k},
                    {"product", what.product},
                    {"kernel", t.name},
                    {"us", t.median() / 1000},
                    {"x_bf16", all[0].median() / t.median()}});
  }
}

}  // namespace

int run_on_device(const Options& options) {
  const DeviceGuard guard(options.device);
  Json report = new_report(1);
  report["device"] = device_backend(options.device).describe();
  const double bandwidth = copy_bandwidth(options.repeat);
  report["copy_gb_s"] = bandwidth;
  std::cout << to_string(options.device) << ": " << report["device"].get<std::string>() << ", copy " << std::fixed
            << std::setprecision(0) << bandwidth << " GB/s, median of " << options.repeat << '\n';
  Options now = options;
  for (const ProductShape& shape : options.shapes)
    for (const Case& what : options.cases) {
      now.product = what.product;
      bench_product(now, shape, what, report["rows"]);
    }
  write_report(options.json, report);
  return 0;
}

}  // namespace bitgrad::bench
