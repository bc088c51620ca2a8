// The state of one parameter, kept as fp32, bf16 or in 8 bits, and read and written in pieces of fp32. docs/numerics.md
// section 6.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bitgrad/optim/optimizer.h"

namespace bitgrad::detail {

class Moments {
 public:
  Moments(const UpdateRule& rule, MomentKind kind, const Shape& shape);

  // Calls body(begin, n, state) for pieces of elements [first, last), on several threads, or on this one inside a
  // parallel loop: state[i] points to the n <= 2048 numbers of part i from element `begin` on, which the body moves.
  // On a device other than the CPU the range is the whole parameter, and one piece.
  // draws: for part i element e of the parameter is element i * 2^40 + e.
  // Ranges of one step may come in any order and from several threads, as long as they do not overlap, where the kind
  // is fp32 or bf16, or where first and last are multiples of kMomentBlock (last: or the end of the parameter). Other
  // ranges of kind int8 split blocks: then one thread goes through all elements of the step in order, without gaps.
  using Body = std::function<void(int64_t begin, int64_t n, std::span<float* const> state)>;
  void for_pieces(int64_t first, int64_t last, const RandomStream& draws, const Body& body);

  // Adds the tensors, named "<prefix>.<part>" (".scale").
  void list(const std::string& prefix, std::vector<Optimizer::StateTensor>& out) const;

 private:
  struct Store {
    UpdateRule::Part part;
    Tensor numbers;               // fp32, bf16 [shape]; int8, uint8 [numel]
    Tensor scale;                 // 8 bits: fp32 [blocks]
    std::vector<float> from, to;  // moved numbers of a block of 256 that a call leaves open, for the next call
  };
  struct Piece;
  void run_pieces(int64_t begin, int64_t end, int64_t length, const RandomStream& draws, const Body& body);
  // scratch: `room` numbers a part.
  void run_piece(const Piece& piece, float* scratch, int64_t room, const RandomStream& draws, const Body& body,
                 std::span<float*> state);
  void widen(const Store& store, const Piece& piece, float* out) const;
  void narrow(Store& store, const Piece& piece, const RandomStream& draws, uint64_t base, const float* in) const;

  MomentKind kind_;
  int64_t numel_;
  std::vector<Store> stores_;
};

}  // namespace bitgrad::detail
