#include "cuda/runtime/tensor_map.h"

#include "bitgrad/base/error.h"

namespace bitgrad::cuda {

TensorMap make_tensor_map(const void* data, int64_t columns, int64_t rows, int64_t stride, int box_rows) {
  require(reinterpret_cast<uintptr_t>(data) % 16 == 0, "tensor map", "address: got ", data,
          ", expected a multiple of 16.");
  require(stride % 16 == 0 && stride >= 0 && stride < (int64_t{1} << 40), "tensor map", "row stride: got ", stride,
          " bytes, expected a multiple of 16 below 2^40.");
  require(columns >= 1 && rows >= 1 && columns <= (int64_t{1} << 32) && rows <= (int64_t{1} << 32), "tensor map",
          "matrix: got [", rows, ", ", columns, "] bytes, expected sizes of 1 to 2^32.");
  require(box_rows >= 1 && box_rows <= 256, "tensor map", "box: got ", box_rows, " rows, expected 1 to 256.");
  return detail::encode_tensor_map(data, columns, rows, stride, box_rows);
}

}  // namespace bitgrad::cuda
