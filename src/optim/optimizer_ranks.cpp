// A step on several ranks: each updates its rows of large parameters. docs/numerics.md section 6.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "bitgrad/base/device.h"
#include "bitgrad/base/parallel.h"
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

namespace {

// Elements of a slice of rows that is updated at once: its codes are on their way while the next slice is updated.
constexpr int64_t kSweepElements = int64_t{1} << 20;

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

detail::TensorRows value_rows(const Parameter& p) {
  return {p.value().without_quant(), p.shape().rows(), p.shape().cols()};
}

void add_codes(Requantization& codes, RowShares::Slice rows, RowGather& gather) {
  gather.add({std::move(rows), [&codes](int64_t b, int64_t e) { return codes.row_bytes(b, e); },
              [&codes](int64_t b, int64_t e, std::byte* to) { codes.give_rows(b, e, to); },
              [&codes](int64_t b, int64_t e, const std::byte* from) { codes.take_rows(b, e, from); }});
}

void give_back(const RowShares& shares, int64_t rank, const Tensor& t, const detail::TensorRows& rows, int64_t all) {
  t.storage().give_back(0, rows.at(shares.begin(rank)));
  t.storage().give_back(rows.at(shares.end(rank)), rows.at(all));
}

// The owner of `p` fits learned steps again, and others say what it says.
detail::SharedRows refitted(Parameter& p, int64_t step, const RowShares& shares, int64_t rank) {
  const int64_t told = shares.end(rank) > shares.begin(rank) ? Requantization::refit_learned(p, step) : 0;
  RowShares::Slice all;
  for (int64_t r = 0; r < shares.size(); ++r) all.emplace_back(shares.begin(r), shares.end(r));
  return {std::move(all),
          [](int64_t begin, int64_t end) { return begin == end ? int64_t{0} : int64_t{sizeof(int64_t)}; },
          [told](int64_t begin, int64_t end, std::byte* to) {
            if (begin < end) std::memcpy(to, &told, sizeof told);
          },
          [&p](int64_t begin, int64_t end, const std::byte* from) {
            int64_t there = 0;
            if (begin < end) std::memcpy(&there, from, sizeof there);
            Requantization::tell_refit(p, there);
          }};
}

// Makes the codes of rows [begin, end) of the master, `step` rows at a time.
void put_master(const Parameter& p, Requantization& codes, int64_t begin, int64_t end, int64_t step) {
  parallel_for((end - begin + step - 1) / step, [&](int64_t block) {
    const int64_t from = begin + block * step, to = std::min(from + step, end);
    codes.put_rows(from, detail::number_rows(p, from, to));
    codes.pack_rows(from, to);
  });
}

}  // namespace

// The terms of the norm, in the order of the rows.
std::vector<float> Optimizer::check_own_rows(Entry& s, double count) {
  const Parameter& p = *s.parameter;
  const int64_t begin = s.shares->begin(ranks_->rank()), end = s.shares->end(ranks_->rank());
  if (begin == end) return {};
  if (one_owner(s)) {
    detail::SquareSums sums;
    sums.next();
    check_all_rows(s, count, sums);
    return sums.terms(0);
  }
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
  if (begin == end || !(spec_.measures_norm() || s.rule->whole_matrix())) return 0;
  if (one_owner(s) && (s.owner != nullptr || s.finished || norm_in_one_pass(s))) return 1;
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
    if (norm_in_one_pass(*o.entry)) of_rows = {kernels::join_chunks(std::move(of_rows))};
    for (const float term : of_rows) sums.add_to(o.index, term);
  }
}

// Calls `use` with every tensor of which a rank needs its rows alone, and the elements that share an entry of it.
template <typename Use>
void Optimizer::each_shared(const Use& use) const {
  for (const auto& s : entries_) {
    if (!s->shares) continue;
    for (const auto& [tensor, each] : s->moments.entries()) use(*s, tensor, each);
    if (s->parameter->low_bit() && s->parameter->has_master()) use(*s, s->parameter->master(), 1);
  }
}

// Masters and moments of rows of other ranks give their memory back.
void Optimizer::leave_to_owners() {
  const int64_t rank = ranks_->rank();
  const bool any = std::any_of(entries_.begin(), entries_.end(), [](const auto& s) { return s->active && s->shares; });
  if (!any || std::exchange(place_, Place::kOwners) == Place::kOwners) return;
  each_shared([&](const Entry& s, const Tensor& t, int64_t each) {
    const detail::TensorRows rows(t, s.shape.rows(), s.shape.cols(), each);
    t.storage().use_all();  // of ranks that the state was not brought to
    give_back(*s.shares, rank, t, rows, s.shape.rows());
  });
}

void Optimizer::sweep_own_rows(Entry& s, const RequantKey* due, RowGather& gather) {
  detail::RowStep::Now now{now_.lr, now_.count, steps_, now_.factor, factors_, due, s.rule->age_of(s.updates)};
  now.age.place = s.place;
  const int64_t rank = ranks_->rank(), rows = s.shape.rows();
  const bool learned = s.owner != nullptr, all = s.shares->begin(rank) == 0 && s.shares->end(rank) == rows;
  const detail::RowStep::Gradient gradient =
      s.row_step.begin_rows(now, learned ? s.gradient : s.parameter->grad(), learned || s.finished, all);
  for (RowShares::Slice& slice : s.shares->slices(kSweepElements / std::max<int64_t>(s.shape.cols(), 1))) {
    const auto [begin, end] = slice[static_cast<size_t>(rank)];
    s.row_step.sweep_rows(gradient, begin, end);
    if (Requantization* const codes = s.row_step.codes())
      add_codes(*codes, std::move(slice), gather);
    else if (!s.parameter->low_bit() && !learned)
      gather.add(value_rows(*s.parameter).slice(std::move(slice)));
  }
}

// Codes of rows whose scales need more than the row: joined from terms of all ranks, or fitted by the owner of all
// rows.
void Optimizer::code_own_rows(const RequantKey& due, RowGather& gather) {
  struct Pass {
    Entry& entry;
    std::unique_ptr<Requantization> codes;
    bool joins;
  };
  const auto own = static_cast<size_t>(ranks_->rank());
  std::vector<Pass> passes;
  std::vector<float> terms;
  for (const auto& s : entries_) {
    Parameter& p = *s->parameter;
    if (!s->active || !s->shares || !p.low_bit() || s->row_step.codes() != nullptr) continue;
    const Pass& pass = passes.emplace_back(
        Pass{*s, std::make_unique<Requantization>(p, due.seed, due.step), Requantization::scales_join(p)});
    if (!pass.joins) continue;
    const std::vector<float> of = pass.codes->scale_terms(
        detail::number_rows(p, s->shares->begin(ranks_->rank()), s->shares->end(ranks_->rank())));
    terms.insert(terms.end(), of.begin(), of.end());
  }
  std::vector<std::vector<float>> all;
  if (std::any_of(passes.begin(), passes.end(), [](const Pass& pass) { return pass.joins; }))
    all = gather_lists(*ranks_, std::span<const float>(terms));
  std::vector<int64_t> at(all.size());
  for (const Pass& pass : passes) {
    Entry& s = pass.entry;
    if (pass.joins) {
      std::vector<float> of_rows;
      for (size_t r = 0; r < all.size(); ++r) {
        const auto rank = static_cast<int64_t>(r);
        const int64_t n = Requantization::scale_term_count(*s.parameter, s.shares->begin(rank), s.shares->end(rank));
        of_rows.insert(of_rows.end(), all[r].begin() + at[r], all[r].begin() + at[r] + n);
        at[r] += n;
      }
      pass.codes->join_scales(std::move(of_rows));
    }
    pass.codes->share_rows();
    const bool apart = pass.joins || scales_are_row_local(*s.parameter);
    for (RowShares::Slice& slice : s.shares->slices(kSweepElements / std::max<int64_t>(s.shape.cols(), 1))) {
      const auto [begin, end] = slice[own];
      if (apart)
        put_master(*s.parameter, *pass.codes, begin, end, s.row_step.block_rows());
      else if (begin == 0)
        put_master(*s.parameter, *pass.codes, 0, s.shares->end(ranks_->rank()), s.shape.rows());
      add_codes(*pass.codes, std::move(slice), gather);
    }
  }
  gather.finish();
  for (const Pass& pass : passes) pass.codes->finish();
}

void Optimizer::apply_shared(const RequantKey* due) {
  const int64_t rank = ranks_->rank();
  leave_to_owners();
  RowGather gather(*ranks_);
  detail::with_transfers(*ranks_, [&] {
    for (const auto& s : entries_)
      if (s->active && s->shares) sweep_own_rows(*s, due, gather);
    for (const auto& s : entries_)  // steps may be fitted again before codes are made with them
      if (due != nullptr && s->active && s->shares && !s->parameter->learned().empty())
        gather.add(refitted(*s->parameter, due->step, *s->shares, rank));
    for (const auto& s : entries_)
      if (s->active && s->shares && s->owner != nullptr)
        for (RowShares::Slice& slice : s->shares->slices(s->shape.rows()))
          gather.add(value_rows(*s->parameter).slice(std::move(slice)));
    gather.finish();
    if (due != nullptr) code_own_rows(*due, gather);
  });
  for (const auto& s : entries_)
    if (s->active && s->shares) s->row_step.end();
  if (detail::poison_foreign_rows)
    each_shared([&](const Entry& s, const Tensor& t, int64_t each) {
      if (s.active) poison(*s.shares, rank, t, s.shape.cols(), each);
    });
}

bool Optimizer::whole() const {
  return place_ == Place::kAllRanks || (place_ == Place::kFirstRank && ranks_->rank() == 0);
}

// Masters and moments of all rows are set.
void Optimizer::set_steps(int64_t steps) {
  each_shared([](const Entry&, const Tensor& t, int64_t) { t.storage().use_all(); });
  place_ = Place::kAllRanks;
  steps_ = steps;
  for (const auto& s : entries_) s->updates = steps;
}

// Of a parameter that had no gradient in a step that requantizes.
void Optimizer::requantize_shared(const Entry& s, const RequantKey& due) const {
  if (!s.parameter->has_master()) return;
  const Tensor& master = s.parameter->master();
  master.storage().use_all();
  RowGather gather(*ranks_);
  detail::with_transfers(*ranks_, [&] {
    const detail::TensorRows rows(master, s.shape.rows(), s.shape.cols());
    for (RowShares::Slice& slice : s.shares->slices(rows.rows_in_bucket())) gather.add(rows.slice(std::move(slice)));
    gather.finish();
  });
  s.parameter->requantize(due.seed, due.step);
  if (place_ == Place::kOwners)
    give_back(*s.shares, ranks_->rank(), master, detail::TensorRows(master, s.shape.rows(), s.shape.cols()),
              s.shape.rows());
}

void Optimizer::gather_state(Place place, const std::function<Tensor(const Parameter&)>& more) {
  if (place_ >= place) return;
  const bool first = place == Place::kFirstRank, here = !first || ranks_->rank() == 0;
  RowGather gather(*ranks_, first);
  detail::with_transfers(*ranks_, [&] {
    const auto add = [&](const Entry& s, const Tensor& t, int64_t each) {
      if (here) t.storage().use_all();
      const detail::TensorRows rows(t, s.shape.rows(), s.shape.cols(), each);
      for (RowShares::Slice& slice : s.shares->slices(rows.rows_in_bucket())) gather.add(rows.slice(std::move(slice)));
    };
    each_shared(add);
    for (const auto& s : entries_)
      if (s->shares && more && s->parameter->low_bit() && s->parameter->has_master())
        if (const Tensor t = more(*s->parameter); t.defined()) add(*s, t, 1);
    gather.finish();
  });
  place_ = place;
}

}  // namespace bitgrad
