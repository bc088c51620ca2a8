// Tensor maps from the driver. Its function is looked up at run time, because the library does not link the driver.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <bit>

#include "bitgrad/base/error.h"
#include "cuda/runtime/tensor_map.h"

namespace bitgrad::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// nullptr if the driver has no such function.
Encode find_encode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
  return error == cudaSuccess && found == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(function) : nullptr;
}

}  // namespace

TensorMap detail::encode_tensor_map(const void* data, int64_t columns, int64_t rows, int64_t stride, int box_rows) {
  static const Encode encode = find_encode();
  if (encode == nullptr) {
    fail_with(ErrorCode::kDevice, "tensor map",
              "the driver's cuTensorMapEncodeTiled: got none, expected a driver of CUDA 12.0 or later.");
  }
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(stride)};
  const cuuint32_t box[] = {128, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[] = {1, 1};
  CUtensorMap map;
  const CUresult result = encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<void*>(data), sizes, strides, box,
                                 steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    fail_with(ErrorCode::kDevice, "tensor map", "cuTensorMapEncodeTiled of [", rows, ", ", columns,
              "] bytes with a row stride of ", stride, " and boxes of ", box_rows, " rows: got error ",
              static_cast<int>(result), ", expected success.");
  }
  return std::bit_cast<TensorMap>(map);
}

}  // namespace bitgrad::cuda
