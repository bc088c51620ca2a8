// The optimizer state of one parameter: stored as fp32, bf16, 8 or 4 bits, read and written in pieces of fp32.
// docs/numerics.md section 6.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bitgrad/optim/optimizer.h"

namespace bitgrad::detail {

// Whether blocks of kMomentBlock elements share a scale, so that a block is rounded as a whole.
inline bool in_blocks(MomentKind kind) { return kind == MomentKind::kInt8 || kind == MomentKind::kInt4; }

class Moments {
 public:
  Moments(std::vector<UpdateRule::Moment> moments, MomentKind kind, const Shape& shape);

  // Calls body(begin, n, state) for pieces of elements [first, last), on several threads, or on the calling thread
  // inside a parallel loop. state[i] points to the n <= 2048 values of moment i that start at element `begin`; the body
  // updates them. On a device other than the CPU the range must be the whole parameter, which is one piece.
  // draws: element e of moment i has index i * 2^40 + e.
  // The ranges of a step must not overlap. For fp32 and bf16, and for int8 and int4 if first and last are multiples of
  // kMomentBlock (or last is the end of the parameter), they may come in any order and from several threads. Other
  // ranges split blocks: then one thread must visit all elements of the step in order, without gaps.
  // Parts of rows and columns are left out.
  using Body = std::function<void(int64_t begin, int64_t n, std::span<float* const> state)>;
  void for_pieces(int64_t first, int64_t last, const RandomStream& draws, const Body& body);

  // The values of the moments of rows and columns, in their order.
  std::vector<float*> lines() const;

  // All tensors, and how many elements of the parameter there are to an entry of each: consecutive ones, but for
  // moments of columns.
  struct Entries {
    Tensor tensor;
    int64_t each = 1;
  };
  std::vector<Entries> entries() const;

  // Appends the state tensors, named "<prefix>.<name>" (and ".unit" of 8 and 4 bits; ".scale"
  // of values of a matrix, whose codes are others).
  void list(const std::string& prefix, std::vector<Optimizer::StateTensor>& out) const;

 private:
  struct Store {
    UpdateRule::Moment moment;
    Tensor numbers;               // fp32, bf16: [shape]; 8 bits: int8 or uint8 [numel]; 4 bits: uint8 [(numel + 1) / 2]
    Tensor scale;                 // 8 and 4 bits: fp32 [blocks]
    std::vector<float> from, to;  // updated values of a block of 256 that a call left incomplete, for the next call
  };
  struct Piece;
  void run_pieces(int64_t begin, int64_t end, int64_t length, const RandomStream& draws, const Body& body);
  // scratch: `room` elements per moment.
  void run_piece(const Piece& piece, float* scratch, int64_t room, const RandomStream& draws, const Body& body,
                 std::span<float*> state);
  void widen(const Store& store, const Piece& piece, float* out) const;
  void narrow(Store& store, const Piece& piece, const RandomStream& draws, uint64_t base, const float* in) const;

  MomentKind kind_;
  int64_t numel_;
  std::vector<Store> stores_;  // of elements, in the order of the rule
  std::vector<Store> lines_;   // of rows and columns
};

}  // namespace bitgrad::detail
