#include <algorithm>
#include <optional>

#include "bench_kernels_cases.h"
#include "kernels/pack.h"
#include "kernels/quantize.h"

namespace bitgrad::bench {

Numbers::Numbers(int64_t rows, int64_t cols) : rows_(rows), cols_(cols) {
  const Tensor host = Tensor::empty({rows, cols}, dtypes::fp32, MemoryKind::kWorkspace, Device::cpu());
  for (int64_t i = 0; i < host.numel(); ++i) host.as<float>()[i] = draws()->uniform(static_cast<uint64_t>(i)) * 2 - 1;
  numbers_ = current_device().is_cpu() ? host : host.to_device(current_device(), MemoryKind::kWorkspace);
}

const RandomStream* Numbers::draws() const {
  static const RandomStream stream{1, Purpose::kUser, site_id("bench_kernels"), 0};
  return &stream;
}

namespace {

// Operands of quantize. A copy of this struct keeps them alive.
struct Quantized {
  Tensor x, codes, scales, mask, flags;
  kernels::QuantizeArgs args;

  // Without operands: what kernels are selected by.
  static kernels::QuantizeArgs form(const Numbers& numbers, DType dtype) {
    kernels::QuantizeArgs form;
    form.rows = numbers.rows(), form.cols = numbers.cols(), form.ldx = numbers.cols(), form.dtype = dtype;
    form.rule = dtype.kind() == DTypeKind::kSign ? CodeRule::kSign : CodeRule::kInverse;
    form.lo = dtype.info().qmin, form.hi = dtype.info().qmax;
    return form;
  }

  Quantized(const Numbers& numbers, DType dtype)
      : x(numbers.copy()),
        codes(numbers.room(dtype)),
        scales(numbers.column_of(1.0 / static_cast<double>(std::max<int64_t>(dtype.info().qmax, 1)))),
        mask(Tensor::empty({numbers.rows(), plane_words(numbers.cols()) * 8}, dtypes::uint8)),
        flags(Tensor::zeros({1}, dtypes::int32)),
        args(form(numbers, dtype)) {
    args.x = x.as<float>(), args.codes = codes.data(), args.stride = codes.stride();
    if (args.rule != CodeRule::kSign) args.scale.scale = scales.as<float>(), args.scale.row_step = 1;
    args.flags = static_cast<uint32_t*>(flags.data());
  }
};

double canonical_bytes(const Numbers& n, DType dtype) {
  const Tensor row = Tensor::empty({1, n.cols()}, dtype);
  return static_cast<double>(n.rows() * row.stride());
}
double layout_bytes(const Numbers& n, DType dtype, Layout layout) {
  return static_cast<double>(layout.info().bytes(dtype, n.rows(), n.cols()));
}
Tensor layout_room(const Numbers& n, DType dtype, Layout layout) {
  return Tensor::empty_layout({n.rows(), n.cols()}, dtype, layout, MemoryKind::kWorkspace);
}

// The selected kernel, or each usable one.
template <typename Args>
std::vector<const Kernel<Args>*> measured_kernels(const KernelList<Kernel<Args>>& all, const Args& args, bool each) {
  std::vector<const Kernel<Args>*> list;
  for (const Kernel<Args>& kernel : all)
    if (each ? kernel.usable(args) : &kernel == all.cheapest(args)) list.push_back(&kernel);
  return list;
}

class CodeCases {
 public:
  CodeCases(const Numbers& numbers, DType dtype, bool each_kernel)
      : n_(numbers), dtype_(dtype), each_kernel_(each_kernel) {}

  void add_pack() {
    for (const Layout layout : all_layouts()) {
      if (layout == layouts::canonical || !layout.info().supports(dtype_)) continue;
      const double bytes = canonical_bytes(n_, dtype_) + layout_bytes(n_, dtype_, layout);
      kernels::PackArgs args{dtype_, n_.rows(), n_.cols(), nullptr, 0, layout, nullptr};
      for (const Kernel<kernels::PackArgs>* kernel : measured_kernels(kernels::pack_kernels(), args, each_kernel_)) {
        add("pack", "pack", layout.name(), bytes,
            [n = &n_, dtype = dtype_, args, layout, run = kernel->run]() mutable -> std::function<void()> {
              const Quantized from(*n, dtype);
              quantize(from.args);
              const Tensor to = layout_room(*n, dtype, layout);
              args.canonical = from.codes.data(), args.stride = from.codes.stride(), args.out = to.data();
              return [args, codes = from.codes, to, run] { run(args); };
            });
        cases_.back().kernel = kernel->name;
      }
      if (current_device().is_cpu())
        add("pack", "unpack", layout.name(), bytes, [n = &n_, dtype = dtype_, layout]() -> std::function<void()> {
          const Quantized to(*n, dtype);
          quantize(to.args);
          const Tensor from = layout_room(*n, dtype, layout);
          kernels::pack({dtype, n->rows(), n->cols(), to.codes.data(), to.codes.stride(), layout, from.data()});
          return [n, dtype, layout, from, codes = to.codes] {
            layout.info().unpack(dtype, n->rows(), n->cols(), from.data(), codes.data(), codes.stride());
          };
        });
    }
  }

  void add_quantize() {
    const double bytes = 4 * n_.count() + canonical_bytes(n_, dtype_);
    const double mask = static_cast<double>(n_.rows() * plane_words(n_.cols()) * 8);
    add_quantize("quantize", bytes, [](Quantized&, const Numbers&) {});
    add_quantize("quantize, clip mask", bytes + mask, [](Quantized& q, const Numbers&) {
      q.args.ste = SteRule::kClip;
      q.args.mask = static_cast<uint64_t*>(q.mask.data());
    });
    if (rounds(Quantized::form(n_, dtype_).rule))
      add_quantize("quantize stochastically", bytes, [](Quantized& q, const Numbers& n) { q.args.sr = n.draws(); });
    add("quantize", "quantize, both orders", layouts::transposed.name(),
        bytes + layout_bytes(n_, dtype_, layouts::transposed), [n = &n_, dtype = dtype_]() -> std::function<void()> {
          const Quantized q(*n, dtype);
          return [q, transposed = layout_room(*n, dtype, layouts::transposed)] {
            kernels::quantize_transposed(q.args, transposed.data());
          };
        });
    add("quantize", "dequantize", "canonical", bytes, [n = &n_, dtype = dtype_]() -> std::function<void()> {
      const Quantized q(*n, dtype);
      kernels::quantize(q.args);
      kernels::DequantizeArgs args{n->rows(),        n->cols(), dtype,           q.codes.data(),
                                   q.codes.stride(), {},        q.x.as<float>(), n->cols()};
      args.scale.scale = q.scales.as<float>(), args.scale.row_step = 1;
      return [q, args] { kernels::dequantize(args); };
    });
  }

  void add_signs() {
    if (dtype_ != dtypes::bint1) return;
    const double codes = canonical_bytes(n_, dtype_), transposed = layout_bytes(n_, dtype_, layouts::transposed),
                 counts = 8.0 * static_cast<double>(n_.rows()) + 4.0 * static_cast<double>(n_.cols());
    add("quantize", "binarize, both orders, alpha, counts", layouts::transposed.name(),
        4 * n_.count() + codes + transposed + counts, [n = &n_]() -> std::function<void()> {
          const Quantized q(*n, dtypes::bint1);
          const Tensor to = layout_room(*n, dtypes::bint1, layouts::transposed), alpha = n->column_of(0),
                       row_ones = Tensor::empty({n->rows()}, dtypes::int32),
                       column_ones = Tensor::empty({n->cols()}, dtypes::int32);
          kernels::BinarizeArgs args{n->rows(), n->cols(),      q.x.as<float>(),
                                     n->cols(), q.codes.data(), q.codes.stride()};
          args.transposed = to.data(), args.alpha = alpha.as<float>(), args.flags = q.args.flags;
          args.row_ones = row_ones.as<int32_t>(), args.column_ones = column_ones.as<int32_t>();
          return [args, q, to, alpha, row_ones, column_ones] { kernels::binarize(args); };
        });
    add("quantize", "signs of a norm", "canonical", 4 * n_.count() + codes, [n = &n_]() -> std::function<void()> {
      const Quantized q(*n, dtypes::bint1);
      const Tensor mean = n->row_of(0.1), inv = n->row_of(1.5), beta = n->row_of(-0.1);
      kernels::NormalizeSignArgs args;
      args.norm.rows = n->rows(), args.norm.cols = n->cols(), args.norm.x = q.x.as<float>();
      args.norm.mean = mean.as<float>(), args.norm.inv = args.norm.gamma = inv.as<float>();
      args.norm.beta = beta.as<float>();
      args.codes = q.codes.data(), args.stride = q.codes.stride(), args.flags = q.args.flags;
      return [args, q, mean, inv, beta] { kernels::normalize_sign(args); };
    });
  }

  void add_dropout() {
    const DType to = dtype_ == dtypes::bint1 ? dtypes::ternary : dtype_;
    const double mask = static_cast<double>(n_.rows() * plane_words(n_.cols()) * 8);
    add("elementwise", "dropped codes", "canonical", canonical_bytes(n_, dtype_) + mask + canonical_bytes(n_, to),
        [n = &n_, from = dtype_, to]() -> std::function<void()> {
          const Quantized q(*n, from);
          quantize(q.args);
          const Tensor out = n->room(to);
          auto* const keep = static_cast<uint64_t*>(q.mask.data());
          kernels::keep_mask({n->rows(), n->cols(), n->draws(), 0, 13107, keep});
          return [q, out,
                  args = kernels::DropCodesArgs{n->rows(), n->cols(), from, to, q.codes.data(), q.codes.stride(), keep,
                                                nullptr, 0, out.data(), out.stride()}] { kernels::drop_codes(args); };
        });
  }

  // Codes of gradients; the same call computes the scales.
  void add_int8_orders() {
    if (dtype_ != dtypes::int8) return;
    for (const bool bf16 : {false, true})
      for (const bool both : {false, true}) {
        const double bytes = (bf16 ? 2 : 4) * n_.count() + (both ? 2 : 1) * canonical_bytes(n_, dtype_);
        add("quantize",
            concat("gradients ", bf16 ? "bf16" : "fp32", " stochastically by ", both ? "row and column" : "row"),
            "canonical", bytes, [n = &n_, bf16, both] { return int8_orders(*n, bf16, both); });
      }
  }

  std::vector<Case> release() { return std::move(cases_); }

 private:
  static std::function<void()> int8_orders(const Numbers& n, bool bf16, bool both) {
    const Quantized q(n, dtypes::int8);
    const Tensor by_column = n.room(dtypes::int8), column_scales = n.row_of(1), narrow = n.room(dtypes::bf16);
    if (bf16) kernels::to_bf16(q.x.numel(), q.x.as<float>(), narrow.as<uint16_t>());
    kernels::Int8OrdersArgs args{n.rows(), n.cols(), bf16 ? narrow.data() : q.x.data(), bf16, {}, {}, q.args.flags};
    args.by_row = {nullptr, q.scales.as<float>(), q.codes.as<int8_t>(), q.codes.stride(), n.draws(), 0};
    if (both)
      args.by_column = {nullptr, column_scales.as<float>(), by_column.as<int8_t>(), by_column.stride(), n.draws(), 0};
    return [args, q, by_column, column_scales, narrow] { kernels::quantize_int8_orders(args); };
  }

  template <typename Change>
  void add_quantize(const char* what, double bytes, Change change) {
    const kernels::QuantizeArgs form = Quantized::form(n_, dtype_);
    for (const Kernel<kernels::QuantizeArgs>* kernel :
         measured_kernels(kernels::quantize_kernels(), form, each_kernel_)) {
      add("quantize", what, "canonical", bytes,
          [n = &n_, dtype = dtype_, change, run = kernel->run]() -> std::function<void()> {
            Quantized q(*n, dtype);
            change(q, *n);
            return [q, run] { run(q.args); };
          });
      cases_.back().kernel = kernel->name;
    }
  }
  void add(const char* family, std::string what, std::string_view layout, double bytes,
           std::function<std::function<void()>()> operands) {
    cases_.push_back(
        {family, std::move(what), std::string(dtype_.name()), std::string(layout), bytes, std::move(operands), {}});
  }

  const Numbers& n_;
  DType dtype_;
  bool each_kernel_;
  std::vector<Case> cases_;
};

}  // namespace

std::vector<Case> code_cases(const Numbers& numbers, DType dtype, bool each_kernel) {
  CodeCases cases(numbers, dtype, each_kernel);
  cases.add_pack();
  cases.add_quantize();
  cases.add_signs();
  cases.add_dropout();
  cases.add_int8_orders();
  return cases.release();
}

}  // namespace bitgrad::bench
