#include "bench_kernels_cases.h"
#include "kernels/elementwise.h"
#include "kernels/reduce.h"

namespace bitgrad::bench {
namespace {

class NumberCases {
 public:
  explicit NumberCases(const Numbers& numbers) : n_(numbers) {}

  void add_pointwise() {
    for (const UnaryOp op : {UnaryOp::relu, UnaryOp::tanh, UnaryOp::silu, UnaryOp::gelu}) {
      add("elementwise", concat(unary_name(op), ", forward"), 8, [op](const Numbers& n) {
        return
            [op, x = n.copy(), y = n.copy()] { kernels::unary_forward(op, x.numel(), x.as<float>(), y.as<float>()); };
      });
      add("elementwise", concat(unary_name(op), ", backward"), 12, [op](const Numbers& n) {
        return [op, x = n.copy(), gy = n.copy(), gx = n.copy()] {
          kernels::unary_backward(op, x.numel(), x.as<float>(), gy.as<float>(), gx.as<float>());
        };
      });
    }
    add("elementwise", "add", 12, [](const Numbers& n) {
      return [a = n.copy(), b = n.copy(), y = n.copy()] {
        add_numbers(a.numel(), a.as<float>(), b.as<float>(), y.as<float>());
      };
    });
    add("elementwise", "clamp", 8,
        [](const Numbers& n) { return [x = n.copy()] { kernels::clamp(x.numel(), -0.5f, 0.5f, x.as<float>()); }; });
    add("elementwise", "mask", 8 + 1.0 / 8, [](const Numbers& n) {
      const Tensor mask = Tensor::zeros({n.rows(), plane_words(n.cols()) * 8}, dtypes::uint8);
      return [mask, g = n.copy(), gx = n.copy(), rows = n.rows(), cols = n.cols()] {
        kernels::apply_mask(
            {rows, cols, g.as<float>(), static_cast<const uint64_t*>(mask.data()), 1.25f, gx.as<float>()});
      };
    });
    add("elementwise", "keep mask", 1.0 / 8, [](const Numbers& n) {
      const Tensor mask = Tensor::zeros({n.rows(), plane_words(n.cols()) * 8}, dtypes::uint8);
      return [mask, rows = n.rows(), cols = n.cols(), draws = n.draws()] {
        kernels::keep_mask({rows, cols, draws, 0, 13107, static_cast<uint64_t*>(mask.data())});
      };
    });
  }

  void add_bf16() {
    add("elementwise", "fp32 to bf16", 6, [](const Numbers& n) {
      return [x = n.copy(), y = n.room(dtypes::bf16)] { kernels::to_bf16(x.numel(), x.as<float>(), y.as<uint16_t>()); };
    });
    add("elementwise", "fp32 to bf16 stochastically", 6, [](const Numbers& n) {
      return [x = n.copy(), y = n.room(dtypes::bf16), draws = n.draws()] {
        kernels::to_bf16_stochastic(x.numel(), x.as<float>(), *draws, 0, y.as<uint16_t>());
      };
    });
    add("elementwise", "bf16 to fp32", 6, [](const Numbers& n) {
      const Tensor x = n.copy(), y = n.room(dtypes::bf16);
      kernels::to_bf16(x.numel(), x.as<float>(), y.as<uint16_t>());
      return [x, y] { kernels::from_bf16(x.numel(), y.as<uint16_t>(), x.as<float>()); };
    });
  }

  void add_norms() {
    add("elementwise", "norm, forward", 8, [](const Numbers& n) {
      return [x = n.copy(), y = n.copy(), mean = n.row_of(0.1), inv = n.row_of(1.5), rows = n.rows(), cols = n.cols()] {
        const float *m = mean.as<float>(), *s = inv.as<float>();
        kernels::normalize({rows, cols, x.as<float>(), m, s, s, m, 1, y.as<float>()});
      };
    });
    add("elementwise", "norm, backward", 12, [](const Numbers& n) {
      return [x = n.copy(), gy = n.copy(), gx = n.copy(), mean = n.row_of(0.1), inv = n.row_of(1.5), rows = n.rows(),
              cols = n.cols()] {
        const float *m = mean.as<float>(), *s = inv.as<float>();
        kernels::normalize_backward({rows, cols, x.as<float>(), gy.as<float>(), m, s, s, m, m, 1, gx.as<float>()});
      };
    });
    add("reduce", "sums of a norm's backward", 8, [](const Numbers& n) {
      return [x = n.copy(), gy = n.copy(), mean = n.row_of(0.1), inv = n.row_of(1.5), a = n.row_of(0), b = n.row_of(0),
              rows = n.rows(), cols = n.cols()] {
        kernels::norm_sums({rows, cols, gy.as<float>(), x.as<float>(), mean.as<float>(), inv.as<float>(), 1,
                            a.as<float>(), b.as<float>()});
      };
    });
  }

  void add_reductions() {
    add_reduction("sums of rows", kernels::ReduceRule::kSum, kernels::ReduceAxis::kRows);
    add_reduction("sums of columns", kernels::ReduceRule::kSum, kernels::ReduceAxis::kColumns);
    add_reduction("largest of rows", kernels::ReduceRule::kAbsMax, kernels::ReduceAxis::kRows);
    add_reduction("sum of squares", kernels::ReduceRule::kSumSquares, kernels::ReduceAxis::kAll);
  }

  std::vector<Case> release() { return std::move(cases_); }

 private:
  static void add_numbers(int64_t n, const float* a, const float* b, float* y) { kernels::add(n, a, b, y); }

  void add_reduction(const char* what, kernels::ReduceRule rule, kernels::ReduceAxis axis) {
    add("reduce", what, 4, [rule, axis](const Numbers& n) {
      kernels::ReduceArgs args;
      args.rule = rule, args.axis = axis, args.rows = n.rows(), args.cols = n.cols(), args.ldx = n.cols();
      const Tensor x = n.copy(), out = Tensor::zeros({kernels::reduce_outputs(args)}, dtypes::fp32);
      args.x = x.as<float>(), args.out = out.as<float>();
      return [args, x, out] { reduce(args); };
    });
  }
  template <typename Make>
  void add(const char* family, std::string what, double bytes_a_number, Make make) {
    cases_.push_back(float_case(n_, family, std::move(what), bytes_a_number, make));
  }

  const Numbers& n_;
  std::vector<Case> cases_;
};

}  // namespace

std::vector<Case> number_cases(const Numbers& numbers) {
  NumberCases cases(numbers);
  cases.add_pointwise();
  cases.add_bf16();
  cases.add_norms();
  cases.add_reductions();
  return cases.release();
}

}  // namespace bitgrad::bench
