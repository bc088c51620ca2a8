#include "optim/row_step.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "bitgrad/base/parallel.h"
#include "bitgrad/base/step_scalars.h"
#include "bitgrad/dtype/layout.h"
#include "kernels/elementwise.h"
#include "kernels/reduce.h"
#include "nn/row_params.h"
#include "optim/finish.h"
#include "optim/map/finish.h"

namespace bitgrad::detail {
namespace {

constexpr int64_t kChunk = 16384;         // elements per chunk: four arrays of 64 KiB
constexpr int64_t kUpdateBlock = 131072;  // elements per block: 512 KiB of gradients
constexpr int64_t kMostRows = 64;
constexpr int64_t kMostInRowBlock = 1 << 20;  // limit for blocks that blocks of moments enlarge

Tensor scratch_rows(int64_t rows, int64_t cols) {
  return Tensor::empty({rows, cols}, dtypes::fp32, MemoryKind::kWorkspace);
}

// Copies a chunk of gradients to `to` as fp32.
void widen(const Tensor& g, const Tensor& to) {
  if (g.dtype() == dtypes::bf16)
    kernels::from_bf16(g.numel(), g.as<uint16_t>(), to.as<float>());
  else
    std::memcpy(to.data(), g.data(), static_cast<size_t>(g.numel()) * sizeof(float));
}

}  // namespace

RowStep::RowStep(Parameter& parameter, const UpdateRule& rule, Moments& moments, MomentKind kind,
                 const OptimizerSpec& spec, float lr_factor)
    : p_(parameter),
      rule_(rule),
      moments_(moments),
      none_({}, MomentKind::kFp32, parameter.shape()),
      kind_(kind),
      spec_(spec),
      lr_factor_(lr_factor) {
  const int64_t rows = p_.shape().rows(), cols = std::max<int64_t>(p_.shape().cols(), 1);
  int64_t unit = row_unit(p_);
  if (in_blocks(kind) && !swept_moments().empty()) {
    const int64_t full = std::lcm(unit, kernels::kMomentBlock / std::gcd(cols, kernels::kMomentBlock));
    in_order_ = std::min(full, rows) * cols > kMostInRowBlock && full > unit && rows > unit;
    if (!in_order_) unit = full;
  }
  chunk_ = std::max(kChunk / cols / unit * unit, unit);
  const int64_t multiple = std::lcm(unit, kRowBlock);
  block_ = std::max(std::min(kUpdateBlock / cols, kMostRows) / multiple * multiple, multiple);
  chunk_ = std::min(chunk_, block_);
}

bool RowStep::makes_codes(const RequantKey* due) const {
  if (!p_.low_bit() || !scales_are_row_local(p_)) return false;
  // Learned parts are updated after their owner, and its codes are made together with them.
  return !p_.has_master() || (due != nullptr && p_.learned().empty());
}

void RowStep::begin(const Now& now) {
  now_ = now;
  codes_.reset();
  const bool codes = makes_codes(now.due);
  checks_ = current_device().is_cpu() && !codes && !(p_.low_bit() && now.due != nullptr);
  if (!codes) return;
  if (p_.has_master())
    codes_.emplace(p_, now.due->seed, now.due->step);
  else
    codes_.emplace(p_, draws(Purpose::kUpdate));
}

void RowStep::rows(int64_t begin, int64_t end, const Tensor& g, bool finished, bool scratch) {
  const int64_t cols = p_.shape().cols();
  const bool in_place = p_.has_master() && p_.master().dtype() == dtypes::fp32;
  const Tensor wide = scratch ? Tensor() : scratch_rows(std::min(chunk_, end - begin), cols);
  for (int64_t r = begin; r < end; r += chunk_) {
    const int64_t last = std::min(r + chunk_, end);
    Tensor part = g.row_slice(r - begin, last - begin);
    if (!scratch) {
      const Tensor to = wide.row_slice(0, last - r);
      widen(part, to);
      part = to;
    }
    chunk(r, part, in_place ? as_matrix(p_.master()).row_slice(r, last) : number_rows(p_, r, last), finished);
  }
  if (codes_) codes_->pack_rows(begin, end);
}

void RowStep::chunk(int64_t begin, const Tensor& g, const Tensor& x, bool finished) {
  const bool check = now_.refuse != nullptr;
  if (!finished && !finish_chunk(p_, spec_, now_.count, begin, g, x, check) && check) now_.refuse();
  update(begin, g, x);
  if (codes_) codes_->put_rows(begin, x);
}

UpdatePiece RowStep::piece(int64_t n, float* w, float* g, std::span<float* const> state) const {
  const ParameterSpec& spec = p_.spec();
  UpdatePiece piece;
  piece.n = n;
  piece.w = w;
  piece.g = g;
  piece.state = state;
  piece.lr_factor = spec.lr_factor * lr_factor_;
  piece.lr = now_.lr * piece.lr_factor;
  const bool decays = spec_.decay_vectors || p_.shape().rank() >= 2;
  piece.base_decay = spec.weight_decay.value_or(decays ? spec_.weight_decay : 0.0f);
  piece.weight_decay = piece.base_decay * now_.factors.decay;
  piece.momentum_factor = now_.factors.momentum;
  piece.age = now_.age;
  piece.live = step_scalars();
  return piece;
}

RandomStream RowStep::draws(Purpose purpose) const {
  return live_by_step({p_.seed(), purpose, site_id(p_.path()), static_cast<uint32_t>(now_.step)});
}

bool RowStep::narrow_master() const { return p_.has_master() && p_.master().dtype() == dtypes::bf16; }

void RowStep::round_master(int64_t at, int64_t n, float* w) const {
  uint16_t* master = p_.master().as<uint16_t>() + at;
  kernels::to_bf16_stochastic(n, w, draws(Purpose::kUpdate), static_cast<uint64_t>(at), master);
  if (codes_ || checks_) kernels::from_bf16(n, master, w);
}

void RowStep::check_numbers(int64_t n, const float* w) const {
  if (kernels::all_finite(w, n)) return;
  fail_with(ErrorCode::kNonFinite, "optimizer", "the update of '", p_.path(), "' (", p_.shape(), ' ',
            p_.has_master() ? p_.master().dtype() : dtypes::fp32, ") gave NaN or Inf at optimizer step ", now_.step,
            ": the model is lost. A smaller learning rate or weight decay may help.");
}

void RowStep::update(int64_t begin, const Tensor& g, const Tensor& x) {
  const ParameterSpec& spec = p_.spec();
  const int64_t first = begin * p_.shape().cols();
  const auto body = [&](int64_t at, int64_t n, std::span<float* const> state) {
    const UpdatePiece moved = piece(n, x.as<float>() + (at - first), g.as<float>() + (at - first), state);
    scale_by_norm(n, moved.g);
    rule_.update(moved);
    if (spec.latent_clamp) kernels::clamp(n, -*spec.latent_clamp, *spec.latent_clamp, moved.w);
    if (spec.floor) kernels::clamp(n, *spec.floor, INFINITY, moved.w);
    if (narrow_master()) round_master(at, n, moved.w);
    if (checks_) check_numbers(n, moved.w);
  };
  swept().for_pieces(first, first + x.numel(), draws(Purpose::kMoment), body);
}

void RowStep::scale_by_norm(int64_t n, float* g) const {
  if (now_.directed) return;
  if (step_scalars() != nullptr)
    run_map(maps::ScaleByFactor{step_scalars(), g}, n);
  else if (now_.factor != 1)
    kernels::scale(n, g, now_.factor, g);
}

std::vector<UpdateRule::Moment> RowStep::swept_moments() const {
  return rule_.whole_matrix() ? std::vector<UpdateRule::Moment>() : rule_.moments(p_.shape());
}

void RowStep::end() {
  if (codes_) codes_->finish();
  codes_.reset();
}

void RowStep::run(const Now& now, const Tensor& g, bool finished) {
  begin(now);
  if (!rule_.whole_matrix()) return sweep(as_matrix(g), finished);
  const Tensor directed = direction(g, finished);
  now_.directed = true;
  sweep(directed, /*finished=*/true);
}

void RowStep::sweep(const Tensor& matrix, bool finished) {
  const int64_t rows_all = p_.shape().rows();
  if (!current_device().is_cpu()) {
    if (rows_all > 0) run_whole(matrix, finished);
    return end();
  }
  sweep_rows(matrix, finished, 0, rows_all);
  end();
}

void RowStep::sweep_rows(const Tensor& matrix, bool finished, int64_t first, int64_t last) {
  const auto block = [&](int64_t i) {
    const int64_t from = first + i * block_, to = std::min(from + block_, last);
    rows(from, to, matrix.row_slice(from, to), finished, /*scratch=*/false);
  };
  const int64_t blocks = (last - first + block_ - 1) / block_;
  if (in_order_)
    for (int64_t i = 0; i < blocks; ++i) block(i);
  else
    parallel_for(blocks, block);
}

RowStep::Gradient RowStep::begin_rows(const Now& now, const Tensor& g, bool finished, bool owner) {
  begin(now);
  if (codes_) codes_->share_rows();
  if (!rule_.whole_matrix() || !owner) return {as_matrix(g), finished};
  Gradient directed{direction(g, finished), true};
  now_.directed = true;
  return directed;
}

}  // namespace bitgrad::detail
