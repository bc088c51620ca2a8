// A step on several ranks: each updates its rows of large parameters. docs/numerics.md section 6.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "bitgrad/base/device.h"
#include "bitgrad/dtype/codec.h"
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

}  // namespace

void Optimizer::set_ranks(std::shared_ptr<Communicator> ranks) {
  require(place_ == Place::kAllRanks, "optimizer",
          "ranks share rows anew while masters are on other ranks: call gather_state first");
  if (ranks->size() == 1) return;
  ranks_ = std::move(ranks);
  auto shares = shares_of(ranks_->size());
  for (size_t i = 0; i < entries_.size(); ++i) entries_[i]->shares = std::move(shares[i]);
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

std::vector<std::optional<RowShares>> Optimizer::shares_of(int64_t ranks) const {
  std::vector<std::optional<RowShares>> all;
  int64_t turn = 0;
  for (const auto& s : entries_) {
    auto& shares = all.emplace_back();
    if (!shareable(*s)) continue;
    const Parameter& p = *s->parameter;
    int64_t unit = s->row_step.block_rows();
    if (spec_.measures_norm())
      unit = std::lcm(unit, norm_in_one_pass(*s) ? detail::square_unit(p) : detail::rows_at_a_time(p));
    shares.emplace(p.shape().rows(), unit, ranks, turn++);
  }
  return all;
}

RankTraffic Optimizer::traffic(int64_t ranks, WireFormat wire) const {
  const std::vector<std::optional<RowShares>> shares = shares_of(ranks);
  std::vector<RankTraffic> of(static_cast<size_t>(ranks));
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& s = *entries_[i];
    const Parameter& p = *s.parameter;
    const int64_t rows = s.shape.rows(), numel = s.shape.numel(),
                  whole = detail::wire_bytes(p.spec().grad, numel, WireFormat::kExact);
    int64_t state = p.low_bit() && p.has_master() ? p.master().bytes() : 0, values = p.value().without_quant().bytes();
    for (const auto& [tensor, each] : s.moments.entries()) state += tensor.bytes();
    if (p.low_bit()) {
      values = rows * row_bytes_file(p.value().dtype(), p.value().cols());
      const QuantParams& q = *p.value().quant();
      for (const auto& part : {q.scale, q.zero, q.offset, q.statistic}) values += part ? part->bytes() : 0;
    }
    for (int64_t r = 0; r < ranks; ++r) {
      RankTraffic& t = of[static_cast<size_t>(r)];
      if (!shares[i]) {
        if (s.owner == nullptr) t.gradients += 2 * whole * (ranks - 1) / ranks;
        t.state += state;
        continue;
      }
      const int64_t own = shares[i]->end(r) - shares[i]->begin(r);
      t.gradients += detail::wire_bytes(p.spec().grad, (rows - own) * s.shape.cols(), wire);
      t.values += values * own / rows * (ranks - 1);
      t.state += state * own / rows;
    }
  }
  RankTraffic most;
  for (const RankTraffic& t : of) {
    most.gradients = std::max(most.gradients, t.gradients);
    most.values = std::max(most.values, t.values);
    most.state = std::max(most.state, t.state);
  }
  return most;
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

// Calls `use` with every tensor of which a rank needs its rows alone, and the elements that share an entry of it.
template <typename Use>
void Optimizer::each_shared(const Use& use) const {
  for (const auto& s : entries_) {
    if (!s->shares) continue;
    for (const auto& [tensor, each] : s->moments.entries()) use(*s, tensor, each);
    if (s->parameter->low_bit() && s->parameter->has_master()) use(*s, s->parameter->master(), 1);
  }
}

void Optimizer::apply_shared(const RequantKey* due) {
  const int64_t rank = ranks_->rank();
  const bool any = std::any_of(entries_.begin(), entries_.end(), [](const auto& s) { return s->active && s->shares; });
  if (any && std::exchange(place_, Place::kOwners) != Place::kOwners)
    each_shared([&](const Entry& s, const Tensor& t, int64_t each) {
      const detail::TensorRows rows(t, s.shape.rows(), s.shape.cols(), each);
      t.storage().use_all();  // of ranks that the state was not brought to
      t.storage().give_back(0, rows.at(s.shares->begin(rank)));
      t.storage().give_back(rows.at(s.shares->end(rank)), rows.at(s.shape.rows()));
    });
  RowGather gather(*ranks_);
  detail::with_transfers(*ranks_, [&] {
    for (const auto& s : entries_) {
      if (!s->active || !s->shares) continue;
      detail::RowStep::Now now{now_.lr, now_.count, steps_, now_.factor, factors_, due, s->rule->age_of(s->updates)};
      now.age.place = s->place;
      Parameter& p = *s->parameter;
      s->row_step.begin_rows(now);
      Requantization* const codes = s->row_step.codes();
      const detail::TensorRows values(p.value().without_quant(), p.shape().rows(), p.shape().cols());
      for (RowShares::Slice& slice : s->shares->slices(kSweepElements / std::max<int64_t>(p.shape().cols(), 1))) {
        const auto [begin, end] = slice[static_cast<size_t>(rank)];
        s->row_step.sweep_rows(p.grad(), begin, end);
        if (codes != nullptr)
          gather.add({std::move(slice), [codes](int64_t b, int64_t e) { return codes->row_bytes(b, e); },
                      [codes](int64_t b, int64_t e, std::byte* to) { codes->give_rows(b, e, to); },
                      [codes](int64_t b, int64_t e, const std::byte* from) { codes->take_rows(b, e, from); }});
        else if (!p.low_bit())
          gather.add(values.slice(std::move(slice)));
      }
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
void Optimizer::gather_masters(const Entry& s) const {
  if (!s.parameter->has_master()) return;
  const Tensor& master = s.parameter->master();
  master.storage().use_all();
  RowGather gather(*ranks_);
  detail::with_transfers(*ranks_, [&] {
    const detail::TensorRows rows(master, s.shape.rows(), s.shape.cols());
    for (RowShares::Slice& slice : s.shares->slices(rows.rows_in_bucket())) gather.add(rows.slice(std::move(slice)));
    gather.finish();
  });
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
