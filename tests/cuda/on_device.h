// Products of host memory run by rows of the device: everything that GemmArgs points to is carried over and back.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "bitgrad/base/device.h"
#include "bitgrad/dtype/codec.h"
#include "bitgrad/kernels/gemm.h"
#include "cuda/kernels/gemm/args.h"
#include "cuda/runtime/runtime.h"

namespace bitgrad::test {

// A copy of host bytes on the device while it lives. Null stays null. `shift`: the copy begins that many bytes behind
// an address that the device hands out.
class Carried {
 public:
  Carried(const void* host, int64_t bytes, int64_t shift = 0) : bytes_(bytes) {
    if (host == nullptr || bytes + shift == 0) return;
    block_ = static_cast<uint8_t*>(cuda::device_malloc(bytes + shift));
    if (block_ == nullptr) throw std::runtime_error("the emulated device is out of memory");
    data_ = block_ + shift;
    if (bytes > 0) cuda::copy_async(data_, host, bytes, cuda::CopyKind::kHostToDevice, nullptr);
  }
  ~Carried() {
    if (block_ != nullptr) cuda::device_free(block_);
  }
  Carried(const Carried&) = delete;
  Carried& operator=(const Carried&) = delete;
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  void fetch(void* host) const {
    if (data_ != nullptr && bytes_ > 0) cuda::copy_async(host, data_, bytes_, cuda::CopyKind::kDeviceToHost, nullptr);
  }

 private:
  int64_t bytes_;
  uint8_t *block_ = nullptr, *data_ = nullptr;
};

inline int64_t operand_bytes(const kernels::GemmOperand& x, int64_t free, int64_t k) {
  const int64_t rows = x.k_major ? k : free, cols = x.k_major ? free : k;
  if (x.layout != layouts::canonical) return x.layout.info().bytes(x.dtype, rows, cols);
  return rows <= 0 ? 0 : (rows - 1) * x.stride + row_bytes_memory(x.dtype, cols);
}
inline int64_t param_count(const kernels::GemmOperand& x, int64_t free, int64_t k) {
  const int64_t rows = x.k_major ? k : free, cols = x.k_major ? free : k;
  return x.scale.index(std::max<int64_t>(rows, 1) - 1, std::max<int64_t>(cols, 1) - 1) + 1;
}

// An operand on the device.
class CarriedOperand {
 public:
  CarriedOperand(const kernels::GemmOperand& x, int64_t free, int64_t k, int64_t shift)
      : codes_(x.data, operand_bytes(x, free, k), shift),
        scale_(x.scale.scale, param_count(x, free, k) * 4),
        zero_(x.scale.zero, param_count(x, free, k) * 4),
        offset_(x.scale.offset, param_count(x, free, k) * 4),
        operand_(x) {
    operand_.data = codes_.as<void>();
    operand_.scale.scale = scale_.as<float>();
    operand_.scale.zero = zero_.as<int32_t>();
    operand_.scale.offset = offset_.as<float>();
  }
  const kernels::GemmOperand& operand() const { return operand_; }

 private:
  Carried codes_, scale_, zero_, offset_;
  kernels::GemmOperand operand_;
};

// Runs `row` on the device with the pointers of `args` in host memory. Codes and C begin `shift` bytes (a multiple of
// 8) behind an aligned address.
inline void run_on_device(const kernels::GemmKernel& kernel, const kernels::GemmArgs& args, int64_t shift = 0) {
  const DeviceGuard guard(Device::cuda());
  const CarriedOperand a(args.a, args.m, args.k, shift), b(args.b, args.n, args.k, shift);
  const int64_t size = args.c_dtype.bits() / 8;
  const Carried c(args.c, args.m <= 0 ? 0 : ((args.m - 1) * args.ldc + args.n) * size, shift);
  const Carried bias(args.bias, args.n * 4), minus(args.row_minus, args.m * 8);
  kernels::GemmArgs moved = args;
  moved.a = a.operand();
  moved.b = b.operand();
  moved.c = c.as<void>();
  moved.bias = bias.as<float>();
  moved.row_minus = minus.as<int64_t>();
  kernel.run(moved);
  cuda::device_synchronize();
  c.fetch(args.c);
}

inline const kernels::GemmKernel& cuda_kernel(const std::string& name) {
  for (const kernels::GemmKernel& kernel : cuda::cuda_gemm_kernels())
    if (kernel.name == name) return kernel;
  throw std::runtime_error("no gemm row " + name + " for CUDA");
}

// The row with a `run` that takes host memory, for the checks of tests/support. One at a time.
inline kernels::GemmKernel on_device(const kernels::GemmKernel& kernel) {
  static const kernels::GemmKernel* current;
  static int64_t turn;
  current = &kernel;
  kernels::GemmKernel wrapped = kernel;
  wrapped.run = [](const kernels::GemmArgs& args) { run_on_device(*current, args, ++turn % 3 * 8); };
  return wrapped;
}

}  // namespace bitgrad::test
