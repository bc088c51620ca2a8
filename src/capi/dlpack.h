// The structs of DLPack 0.x, with the ABI of DLManagedTensor (github.com/dmlc/dlpack, include/dlpack/dlpack.h).
#pragma once

#include <cstdint>

struct DLDevice {
  int32_t device_type;  // 1: CPU
  int32_t device_id;
};
struct DLDataType {
  uint8_t code;  // 0: int, 1: uint, 2: float
  uint8_t bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; NULL: row-major
  uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};

static_assert(sizeof(DLTensor) == 48 && sizeof(DLManagedTensor) == 64, "the ABI of 64-bit systems");
