// Which rank updates which rows, and what that moves and holds. docs/numerics.md section 6, "Rows that have owners".
#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "bitgrad/dtype/codec.h"
#include "bitgrad/nn/requantization.h"
#include "nn/row_params.h"
#include "optim/finish.h"
#include "optim/matrix_parts.h"
#include "optim/optimizer_entry.h"
#include "optim/shards.h"

namespace bitgrad {

using detail::RowShares;

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

// A learned part goes with its owner.
bool Optimizer::shareable(const Entry& s) const {
  if (s.owner != nullptr) return shareable(*s.owner);
  const Parameter& p = *s.parameter;
  if (!p.value().device().is_cpu() || (p.low_bit() && !p.value().quant())) return false;
  return p.shape().numel() * static_cast<int64_t>(sizeof(float)) >= detail::least_shared_bytes;
}

// Whether the update, or its codes, need all rows at once: one rank has them then.
bool Optimizer::one_owner(const Entry& s) const {
  const Parameter& p = *s.parameter;
  if (s.owner != nullptr || !p.learned().empty() || s.rule->whole_matrix() || s.row_step.in_order()) return true;
  if (p.low_bit() && !scales_are_row_local(p) && !Requantization::scales_join(p)) return true;
  return spec_.measures_norm() && p.spec().grad != dtypes::bf16 && !norm_in_one_pass(s);
}

// The owners of parameters that have one each, dealt by cost. A large one that would load its owner more than the sum
// of its gradients loads every rank has none: all update it.
std::map<const Optimizer::Entry*, int64_t> Optimizer::deal(int64_t ranks) const {
  std::vector<const Entry*> dealt;
  int64_t total = 0;
  for (const auto& s : entries_) {
    if (s->owner != nullptr || !shareable(*s) || !one_owner(*s)) continue;
    dealt.push_back(s.get());
    total += s->shape.numel();
  }
  std::erase_if(dealt, [&](const Entry* s) { return s->shape.numel() * ranks > detail::most_of_one_owner * total; });
  std::vector<int64_t> costs;
  costs.reserve(dealt.size());
  for (const Entry* s : dealt) costs.push_back(s->shape.numel() + (s->rule->whole_matrix() ? matrix_macs(*s) : 0));
  const std::vector<int> owners = detail::owners_of(costs, static_cast<int>(ranks));
  std::map<const Entry*, int64_t> owner_of;
  for (size_t i = 0; i < dealt.size(); ++i) owner_of.emplace(dealt[i], owners[i]);
  return owner_of;
}

// By entry.
std::vector<std::optional<RowShares>> Optimizer::shares_of(int64_t ranks) const {
  const std::map<const Entry*, int64_t> owner_of = deal(ranks);
  std::vector<std::optional<RowShares>> all;
  int64_t turn = 0;
  for (const auto& s : entries_) {
    auto& shares = all.emplace_back();
    if (!shareable(*s)) continue;
    const Parameter& p = *s->parameter;
    int64_t unit = s->row_step.block_rows();
    if (one_owner(*s)) {
      const auto owner = owner_of.find(s->owner != nullptr ? s->owner : s.get());
      if (owner != owner_of.end()) shares = RowShares::of_one(s->shape.rows(), unit, ranks, owner->second);
      continue;
    }
    if (spec_.measures_norm())
      unit = std::lcm(unit, norm_in_one_pass(*s) ? detail::square_unit(p) : detail::rows_at_a_time(p));
    if (p.low_bit() && Requantization::scales_join(p)) unit = std::lcm(unit, Requantization::scale_unit(p));
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
      if (s.owner == nullptr) t.gradients += detail::wire_bytes(p.spec().grad, (rows - own) * s.shape.cols(), wire);
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

}  // namespace bitgrad
