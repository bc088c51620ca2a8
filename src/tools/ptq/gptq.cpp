// gptq: codes one column after the other; the error of a column is made up for by the columns after it (Frantar et al.
// 2022, arXiv 2210.17323). With H the mean of x x^T plus damp times the mean of its diagonal, and U the upper triangle
// with H^-1 = U^T U: e = (w_k - q_k) / U_kk, w_j -= e U_kj for j > k.
//
// With one scale a row, columns are in the order of falling H_kk (ties: the first one first). Scales of groups are
// fitted to what their columns have become when the first of them is reached. A column of inputs that are all 0 gets
// the code of 0.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "bitgrad/base/parallel.h"
#include "tools/ptq/method.h"

namespace bitgrad::detail {
namespace {

constexpr int64_t kColumns = 128;      // of a block, after which the columns behind it are updated at once
constexpr int64_t kMostInputs = 8192;  // the factor takes two matrices of this size in double

class Gptq final : public PtqMethod {
 public:
  std::string_view name() const override { return "gptq"; }
  std::string_view doc() const override {
    return "codes column by column, later ones make up for the errors of earlier ones";
  }
  std::string refuses(const LayerData& data, const LayerState&) const override {
    return data.w.cols <= kMostInputs ? "" : concat("it has ", data.w.cols, " inputs, more than ", kMostInputs);
  }
  LayerState layer(const LayerData& data, const LayerState& state, const PtqSpec& spec) const override {
    LayerState to = state;
    Matrix w = data.w;
    const bool in_groups = data.blocks() > 1;
    for (int64_t g = 0; g < data.groups; ++g) clear_unused(data.sums.xx[static_cast<size_t>(g)], g, data, w);
    const int64_t part = w.rows / data.groups;
    for (int64_t g = 0; g < data.groups; ++g)
      quantize_rows(data, {g * part, (g + 1) * part, &data.sums.xx[static_cast<size_t>(g)], in_groups}, spec, w, to);
    return to;
  }

 private:
  struct Rows {
    int64_t begin, end;
    const Matrix* h;
    bool in_groups;
  };

  static void clear_unused(const Matrix& h, int64_t g, const LayerData& data, Matrix& w) {
    const int64_t part = w.rows / data.groups;
    for (int64_t k = 0; k < w.cols; ++k)
      if (h[k][k] == 0)
        for (int64_t o = g * part; o < (g + 1) * part; ++o) w[o][k] = 0;
  }

  static std::vector<int64_t> order_of(const Rows& rows) {
    std::vector<int64_t> order(static_cast<size_t>(rows.h->rows));
    std::iota(order.begin(), order.end(), int64_t{0});
    const Matrix& h = *rows.h;
    if (!rows.in_groups)
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return h[a][a] > h[b][b]; });
    return order;
  }

  static Matrix factor_of(const LayerData& data, const Rows& rows, const std::vector<int64_t>& order, double damp) {
    const int64_t n = rows.h->rows;
    double mean = 0;
    for (int64_t k = 0; k < n; ++k) mean += (*rows.h)[k][k] / static_cast<double>(n);
    Matrix h(n, n), u;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) h[i][j] = (*rows.h)[order[static_cast<size_t>(i)]][order[static_cast<size_t>(j)]];
    for (int64_t i = 0; i < n; ++i) h[i][i] = (h[i][i] == 0 ? (mean > 0 ? mean : 1.0) : h[i][i]) + damp * mean;
    require(inverse_factor(h, u), "gptq", "the inputs of '", data.layer, "' depend on each other: the Hessian is not ",
            "positive definite with damp ", damp, ". Use a larger one");
    return u;
  }

  static void quantize_rows(const LayerData& data, const Rows& rows, const PtqSpec& spec, Matrix& w, LayerState& to) {
    const std::vector<int64_t> order = order_of(rows);
    const Matrix u = factor_of(data, rows, order, spec.damp);
    const int64_t k = w.cols, group = data.grid.block;
    const int64_t step = !rows.in_groups ? kColumns : group >= kColumns ? group : kColumns / group * group;
    Matrix now(w.rows, k);  // in order
    for (int64_t o = 0; o < w.rows; ++o)
      for (int64_t j = 0; j < k; ++j) now[o][j] = w[o][order[static_cast<size_t>(j)]];
    for (int64_t begin = 0; begin < k; begin += step) {
      const int64_t end = std::min(begin + step, k);
      Matrix errors(end - begin, rows.end - rows.begin);
      for (int64_t from = begin; from < end; from += rows.in_groups ? group : step) {
        const int64_t till = std::min(end, from + (rows.in_groups ? group : step));
        if (rows.in_groups) fit_group(data, now, {rows.begin, rows.end, from, till}, to);
        parallel_ranges(rows.end - rows.begin, 8, [&](int64_t first, int64_t last) {
          for (int64_t i = first; i < last; ++i)
            for (int64_t j = from; j < till; ++j) {
              const int64_t o = rows.begin + i, column = order[static_cast<size_t>(j)];
              to.codes[o][column] = nearest_code(data, to, data.scale_of(o, column), now[o][j]);
              const double e = (now[o][j] - value_of(data, to, o, column)) / u[j][j];
              errors[j - begin][i] = e;
              for (int64_t m = j + 1; m < end; ++m) now[o][m] -= e * u[j][m];
            }
        });
      }
      add_product(-1.0, block_of(std::as_const(errors), 0, end - begin, 0, rows.end - rows.begin),
                  block_of(u, begin, end - begin, end, k - end),
                  block_of(now, rows.begin, rows.end - rows.begin, end, k - end));
    }
  }

  static void fit_group(const LayerData& data, const Matrix& w, const Part& part, LayerState& to) {
    if (to.searched)
      search_scales(data, w, part, to);
    else
      fit_scales(data, w, part, to);
  }
};

}  // namespace

std::unique_ptr<PtqMethod> make_Gptq() { return std::make_unique<Gptq>(); }

}  // namespace bitgrad::detail
