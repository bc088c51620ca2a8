#include "optim/moments.h"

#include <algorithm>

#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "kernels/elementwise.h"

namespace bitgrad::detail {
namespace {

constexpr int64_t kTask = 16384;  // elements per parallel task
constexpr int64_t kPiece = 2048;  // values, gradients and two state tensors of a piece fit in L1
static_assert(kTask % kPiece == 0 && kPiece % kernels::kMomentBlock == 0, "no two pieces of one call share a block");
constexpr int kPartShift = 40;

kernels::MomentCodes codes_of(MomentKind kind, MomentValues values, const Tensor& numbers, const Tensor& scales) {
  return {kind == MomentKind::kInt4 ? 4 : 8, values, numbers.as<uint8_t>(), scales.as<float>()};
}

}  // namespace

// Elements [begin, end) to update; [low, high), the range to widen (whole blocks where they have scales); [low, done),
// the range that is complete and can be narrowed.
struct Moments::Piece {
  int64_t begin, end, low, high, done;
  Piece(int64_t b, int64_t e, int64_t numel, bool blocks) : begin(b), end(e), low(b), high(e), done(e) {
    if (!blocks) return;
    low = b / kernels::kMomentBlock * kernels::kMomentBlock;
    high = std::min((e + kernels::kMomentBlock - 1) / kernels::kMomentBlock * kernels::kMomentBlock, numel);
    done = e == numel ? e : e / kernels::kMomentBlock * kernels::kMomentBlock;
  }
};

Moments::Moments(std::vector<UpdateRule::Moment> moments, MomentKind kind, const Shape& shape)
    : kind_(kind), numel_(shape.numel()) {
  using Extent = UpdateRule::Extent;
  for (const UpdateRule::Moment& moment : moments) {
    Store& s = (moment.extent == Extent::kElements ? stores_ : lines_).emplace_back();
    s.moment = moment;
    if (moment.extent != Extent::kElements) {
      const int64_t n = moment.extent == Extent::kRows ? shape.rows() : shape.cols();
      s.numbers = Tensor::zeros({n}, dtypes::fp32, MemoryKind::kOptimizer);
      continue;
    }
    if (in_blocks(kind)) {
      const int64_t blocks = (numel_ + kernels::kMomentBlock - 1) / kernels::kMomentBlock;
      const bool pairs = kind == MomentKind::kInt4;
      s.numbers = Tensor::zeros({pairs ? (numel_ + 1) / 2 : numel_},
                                pairs || moment.values == MomentValues::kSquares ? dtypes::uint8 : dtypes::int8,
                                MemoryKind::kOptimizer);
      s.scale = Tensor::zeros({blocks}, dtypes::fp32, MemoryKind::kOptimizer);
    } else {
      s.numbers = Tensor::zeros(shape, kind == MomentKind::kBf16 ? dtypes::bf16 : dtypes::fp32, MemoryKind::kOptimizer);
    }
  }
}

void Moments::for_pieces(int64_t first, int64_t last, const RandomStream& draws, const Body& body) {
  if (first >= last) return;
  const bool splits =
      in_blocks(kind_) && (first % kernels::kMomentBlock != 0 || (last % kernels::kMomentBlock != 0 && last != numel_));
  if (!current_device().is_cpu()) return run_pieces(first, last, /*length=*/last, draws, body);
  const int64_t from = first / kTask, to = (last + kTask - 1) / kTask;
  parallel_for(to - from, [&](int64_t i) {
    const int64_t at = (from + i) * kTask;
    run_pieces(std::max(at, first), std::min(at + kTask, last), kPiece, draws, body);
  });
  if (!splits) return;
  for (Store& s : stores_) {
    std::swap(s.from, s.to);
    s.to.clear();
  }
}

void Moments::run_pieces(int64_t begin, int64_t end, int64_t length, const RandomStream& draws, const Body& body) {
  const bool narrow = kind_ != MomentKind::kFp32;
  const int64_t room = (length + kernels::kMomentBlock - 1) / kernels::kMomentBlock * kernels::kMomentBlock;
  const Workspace scratch(narrow ? room * static_cast<int64_t>(stores_.size() * sizeof(float)) : 0);
  std::vector<float*> state(stores_.size());
  for (int64_t at = begin; at < end;) {
    const int64_t stop = std::min((at / length + 1) * length, end);
    if (narrow) {
      run_piece(Piece(at, stop, numel_, in_blocks(kind_)), scratch.as<float>(), room, draws, body, state);
    } else {
      for (size_t i = 0; i < state.size(); ++i) state[i] = stores_[i].numbers.as<float>() + at;
      body(at, stop - at, state);
    }
    at = stop;
  }
}

void Moments::run_piece(const Piece& piece, float* scratch, int64_t room, const RandomStream& draws, const Body& body,
                        std::span<float*> state) {
  for (size_t i = 0; i < stores_.size(); ++i) {
    float* wide = scratch + room * static_cast<int64_t>(i);
    widen(stores_[i], piece, wide);
    state[i] = wide + (piece.begin - piece.low);
  }
  body(piece.begin, piece.end - piece.begin, state);
  for (size_t i = 0; i < stores_.size(); ++i)
    narrow(stores_[i], piece, draws, static_cast<uint64_t>(i) << kPartShift, scratch + room * static_cast<int64_t>(i));
}

void Moments::widen(const Store& s, const Piece& p, float* out) const {
  const int64_t n = p.high - p.low;
  if (kind_ == MomentKind::kBf16) return kernels::from_bf16(n, s.numbers.as<uint16_t>() + p.low, out);
  kernels::widen_moments(n, codes_of(kind_, s.moment.values, s.numbers, s.scale).from(p.low), out);
  // The previous call has already updated these elements; the stored codes are still the old ones.
  if (p.begin > p.low) std::copy_n(s.from.begin(), p.begin - p.low, out);
}

void Moments::narrow(Store& s, const Piece& p, const RandomStream& draws, uint64_t base, const float* in) const {
  const int64_t n = p.done - p.low;
  const uint64_t first = base + static_cast<uint64_t>(p.low);
  if (kind_ == MomentKind::kBf16) {
    uint16_t* out = s.numbers.as<uint16_t>() + p.low;
    return s.moment.stochastic ? kernels::to_bf16_stochastic(n, in, draws, first, out) : kernels::to_bf16(n, in, out);
  }
  kernels::narrow_moments(n, in, draws, first, codes_of(kind_, s.moment.values, s.numbers, s.scale).from(p.low));
  if (p.end > p.done) s.to.assign(in + n, in + (p.end - p.low));
}

std::vector<float*> Moments::lines() const {
  std::vector<float*> values;
  for (const Store& s : lines_) values.push_back(s.numbers.as<float>());
  return values;
}

std::vector<Moments::Entries> Moments::entries() const {
  std::vector<Entries> out;
  for (const Store& s : stores_) {
    out.push_back({s.numbers, kind_ == MomentKind::kInt4 ? 2 : 1});
    if (s.scale.defined()) out.push_back({s.scale, kernels::kMomentBlock});
  }
  for (const Store& s : lines_)
    if (s.numbers.numel() > 0) out.push_back({s.numbers, std::max<int64_t>(numel_ / s.numbers.numel(), 1)});
  return out;
}

void Moments::list(const std::string& prefix, std::vector<Optimizer::StateTensor>& out) const {
  for (const std::vector<Store>* stores : {&stores_, &lines_})
    for (const Store& s : *stores) {
      const std::string name = concat(prefix, '.', s.moment.name);
      out.push_back({name, s.numbers});
      const bool matrix = s.moment.values == MomentValues::kMatrix;
      if (s.scale.defined()) out.push_back({name + (matrix ? ".scale" : ".unit"), s.scale});
    }
}

}  // namespace bitgrad::detail
