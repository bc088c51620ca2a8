// All tensors of a learner in file form: what is saved, hashed and restored.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "bitgrad/train/learner.h"

namespace bitgrad::checkpoint {

// The name of a dtype in files: F32, BF16, I8, U8, I32, I64. Throws a bug error for other dtypes.
std::string file_dtype(DType dtype);

// One tensor: its rows back to back.
struct Piece {
  std::string name, dtype;
  std::vector<int64_t> shape;
  const void* data;
  int64_t bytes;
};

// The pieces point into the learner's tensors, or into `owned` where rows are padded in memory.
struct Pieces {
  std::vector<Piece> list;
  std::deque<std::vector<uint8_t>> owned;

  void add_tensor(const std::string& name, const Tensor& t);
  // As U8 [rows, row_bytes]: rows start on a byte.
  void add_codes(const std::string& name, const Tensor& t);

 private:
  void add(const std::string& name, const std::string& dtype, std::vector<int64_t> shape, const Tensor& t);
};

Pieces collect(Learner& learner);

// Copies the rows of a file's tensor (back to back) into t.
void fill_rows(const Tensor& t, const uint8_t* bytes);

}  // namespace bitgrad::checkpoint
