// A step on several ranks: each updates its rows of large parameters. docs/numerics.md section 6.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "bitgrad/base/device.h"
#include "bitgrad/nn/requantization.h"
#include "kernels/reduce.h"
#include "nn/row_params.h"
#include "optim/finish.h"
#include "optim/optimizer_entry.h"
#include "optim/shards.h"
#include "optim/square_sums.h"

namespace bitgrad {

using detail::RowGather;
using detail::RowShares;
using detail::SharedRows;

namespace {

// Fills rows of a tensor that belong to other ranks with NaN. `each`: elements of [rows, cols] to an entry.
void poison(const RowShares& shares, int64_t rank, const Tensor& t, int64_t cols, int64_t each) {
  if (t.dtype() != dtypes::fp32 && t.dtype() != dtypes::bf16) return;
  const int64_t n = t.numel(), begin = std::min(shares.begin(rank) * cols / each, n),
                end = std::min((shares.end(rank) * cols + each - 1) / each, n);
  const auto fill = [&](auto* x, auto nan) {
    std::fill(x, x + begin, nan);
    std::fill(x + end, x + n, nan);
  };
  if (t.dtype() == dtypes::fp32)
    fill(t.as<float>(), std::numeric_limits<float>::quiet_NaN());
  else
    fill(t.as<uint16_t>(), uint16_t{0x7FC0});
}

}  // namespace

void Optimizer::set_ranks(std::shared_ptr<Communicator> ranks) {
  ranks_ = std::move(ranks);
  share_rows();
}

const RowShares* Optimizer::shares(const Parameter& p) const {
  for (const auto& s : entries_)
    if (s->parameter == &p) return s->shares ? &*s->shares : nullptr;
  return nullptr;
}

bool Optimizer::shareable(const Entry& s) const {
  const Parameter& p = *s.parameter;
  if (!p.value().device().is_cpu() || s.owner != nullptr || !p.learned().empty() || s.row_step.in_order()) return false;
  if (p.shape().numel() * static_cast<int64_t>(sizeof(float)) < detail::least_shared_bytes) return false;
  if (s.rule->whole_matrix() || !s.moments.lines().empty()) return false;
  if (p.low_bit() && (!scales_are_row_local(p) || !p.value().quant())) return false;
  return !spec_.measures_norm() || p.spec().grad == dtypes::bf16 || norm_in_one_pass(s);
}

void Optimizer::share_rows() {
  require(whole_, "optimizer", "ranks share rows anew while masters are on other ranks: call gather_state first");
  int64_t turn = 0;
  for (const auto& s : entries_) {
    s->shares.reset();
    if (!shareable(*s)) continue;
    const Parameter& p = *s->parameter;
    int64_t unit = s->row_step.block_rows();
    if (spec_.measures_norm())
      unit = std::lcm(unit, norm_in_one_pass(*s) ? detail::square_unit(p) : detail::rows_at_a_time(p));
    s->shares.emplace(p.shape().rows(), unit, ranks_->size(), turn++);
  }
}

// The terms of the norm, in the order of the rows.
std::vector<float> Optimizer::check_own_rows(const Entry& s, double count) const {
  const Parameter& p = *s.parameter;
  const int64_t begin = s.shares->begin(ranks_->rank()), end = s.shares->end(ranks_->rank());
  if (begin == end) return {};
  if (norm_in_one_pass(s)) {
    auto squares = detail::finished_squares(p, spec_, count, begin, end);
    if (!squares) refuse(p);
    return std::move(*squares);
  }
  check_finite(s, detail::as_matrix(p.grad()).row_slice(begin, end));
  std::vector<float> terms;
  if (!finishes_early(s)) return terms;
  const int64_t step = detail::rows_at_a_time(p);
  for (int64_t from = begin; from < end; from += step) {
    const int64_t to = std::min(from + step, end);
    const Tensor g = detail::gradient_rows(p, from, to);
    detail::finish_rows(p, spec_, count, from, g, p.has_master() ? detail::number_rows(p, from, to) : Tensor(), {});
    terms.push_back(kernels::sum_squares(g.as<float>(), g.numel()));
  }
  return terms;
}

int64_t Optimizer::square_terms(const Entry& s, int64_t rank) const {
  const int64_t begin = s.shares->begin(rank), end = s.shares->end(rank);
  if (begin == end || !spec_.measures_norm()) return 0;
  if (norm_in_one_pass(s)) return detail::square_chunks(*s.parameter, begin, end);
  const int64_t step = detail::rows_at_a_time(*s.parameter);
  return (end - begin + step - 1) / step;
}

// Also keeps all ranks from the update if one of them has refused its rows.
void Optimizer::gather_squares(const std::vector<OwnSquares>& own, detail::SquareSums& sums) const {
  std::vector<float> terms;
  for (const OwnSquares& o : own) terms.insert(terms.end(), o.terms.begin(), o.terms.end());
  const std::vector<std::vector<float>> all = gather_lists(*ranks_, std::span<const float>(terms));
  std::vector<int64_t> at(all.size());
  for (const OwnSquares& o : own) {
    std::vector<float> of_rows;
    for (size_t r = 0; r < all.size(); ++r) {
      const int64_t n = square_terms(*o.entry, static_cast<int64_t>(r));
      of_rows.insert(of_rows.end(), all[r].begin() + at[r], all[r].begin() + at[r] + n);
      at[r] += n;
    }
    if (of_rows.empty()) continue;
    if (norm_in_one_pass(*o.entry)) of_rows = {detail::join_chunks(std::move(of_rows))};
    for (const float term : of_rows) sums.add_to(o.index, term);
  }
}

void Optimizer::apply_shared(const RequantKey* due) {
  const int64_t rank = ranks_->rank();
  RowGather gather(*ranks_);
  detail::with_transfers(*ranks_, [&] {
    for (const auto& s : entries_) {
      if (!s->active || !s->shares) continue;
      whole_ = false;
      detail::RowStep::Now now{now_.lr, now_.count, steps_, now_.factor, factors_, due, s->rule->age_of(s->updates)};
      now.age.place = s->place;
      Parameter& p = *s->parameter;
      s->row_step.run_rows(now, p.grad(), s->shares->begin(rank), s->shares->end(rank));
      if (Requantization* const codes = s->row_step.codes())
        gather.add(
            {&*s->shares, [codes](int64_t begin, int64_t end) { return codes->row_bytes(begin, end); },
             [codes](int64_t begin, int64_t end, std::byte* to) { codes->give_rows(begin, end, to); },
             [codes](int64_t begin, int64_t end, const std::byte* from) { codes->take_rows(begin, end, from); }});
      else if (!p.low_bit())
        gather.add(detail::rows_of_tensor(*s->shares, p.value(), p.shape().rows(), p.shape().cols()));
    }
    gather.finish();
  });
  for (const auto& s : entries_) {
    if (!s->active || !s->shares) continue;
    s->row_step.end();
    if (!detail::poison_foreign_rows) continue;
    const int64_t cols = s->shape.cols();
    if (s->parameter->low_bit() && s->parameter->has_master())
      poison(*s->shares, rank, s->parameter->master(), cols, 1);
    for (const auto& [tensor, each] : s->moments.entries()) poison(*s->shares, rank, tensor, cols, each);
  }
}

// Of a parameter that had no gradient in a step that requantizes.
void Optimizer::gather_masters(const Entry& s) const {
  if (!s.parameter->has_master()) return;
  RowGather gather(*ranks_);
  detail::with_transfers(*ranks_, [&] {
    gather.add(detail::rows_of_tensor(*s.shares, s.parameter->master(), s.shape.rows(), s.shape.cols()));
    gather.finish();
  });
}

void Optimizer::gather_state(const std::function<Tensor(const Parameter&)>& more) {
  if (whole_) return;
  RowGather gather(*ranks_);
  detail::with_transfers(*ranks_, [&] {
    for (const auto& s : entries_) {
      if (!s->shares) continue;
      const Parameter& p = *s->parameter;
      const auto add = [&](const Tensor& t, int64_t each) {
        gather.add(detail::rows_of_tensor(*s->shares, t, s->shape.rows(), s->shape.cols(), each));
      };
      for (const auto& [tensor, each] : s->moments.entries()) add(tensor, each);
      if (!p.low_bit() || !p.has_master()) continue;
      add(p.master(), 1);
      if (const Tensor t = more ? more(p) : Tensor(); t.defined()) add(t, 1);
    }
    gather.finish();
  });
  whole_ = true;
}

}  // namespace bitgrad
