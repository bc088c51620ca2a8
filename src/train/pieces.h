// All tensors of a learner or of a converted model in file form, for saving, hashing and restoring.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "bitgrad/nn/module.h"
#include "bitgrad/train/learner.h"

namespace bitgrad::checkpoint {

// The name of a dtype in files: F32, BF16, I8, U8, I32, I64. Throws Error(kBug) for other dtypes.
std::string file_dtype(DType dtype);

// One tensor: its rows back to back.
struct Piece {
  std::string name, dtype;
  std::vector<int64_t> shape;
  const void* data;
  int64_t bytes;
};

// Pieces point into the learner's tensors, into `copies` of device tensors, or into `owned` if rows are padded in
// memory.
struct Pieces {
  std::vector<Piece> list;
  std::deque<std::vector<uint8_t>> owned;
  std::deque<Tensor> copies;

  void add_tensor(const std::string& name, const Tensor& t);
  // Stored as U8 [rows, row_bytes]: each row starts at a byte.
  void add_codes(const std::string& name, const Tensor& t);
  // Codes with their scales, as <path>.codes, .scale, .zero, .offset and .statistic; `prefix` in place of the dot.
  void add_value(const std::string& path, const Tensor& value, const std::string& prefix = ".");

 private:
  void add(const std::string& name, const std::string& dtype, std::vector<int64_t> shape, const Tensor& tensor);
};

// A parameter of a model that trains: master, and codes with scales.
void add_parameter(Pieces& pieces, const Parameter& p);
// Before the names of the codes of TrainState::cut_window.
inline constexpr const char* kWindowPrefix = ".window_";

Pieces collect(const detail::TrainState& s);
// Throws Error for a low-bit parameter with a master.
Pieces collect_model(Module& model);

// Names of pieces (F32, BF16) that contain NaN or Inf, in order.
std::vector<std::string> not_finite(const Pieces& pieces);
// The first piece from which no product is of use, as the beginning of a sentence: it holds NaN or Inf, or a parameter
// or scale beyond 1e18, whose square is more than an fp32. Empty: none.
std::string useless(const Pieces& pieces);
// The same for a learner, trained or converted, as a sentence for an error; if all are finite, it names the parameter
// with the largest value.
std::string describe_not_finite(const detail::TrainState& s);
// Throws Error(kNonFinite) that names the first useless piece of a learner that trains.
void require_finite(Learner& learner);

// Copies rows of a file's tensor (back to back) into rows [begin, end) of t, which must be on the CPU.
void fill_rows(const Tensor& t, int64_t begin, int64_t end, const uint8_t* bytes);

}  // namespace bitgrad::checkpoint
