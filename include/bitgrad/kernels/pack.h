// Family pack: canonical codes into another layout. Exact; the scalar kernel calls the layout record itself.
#pragma once

#include "bitgrad/dtype/layout.h"
#include "bitgrad/kernels/kernel.h"

namespace bitgrad::kernels {

struct PackArgs {
  DType dtype = dtypes::bint1;
  int64_t rows = 0, cols = 0;
  const void* canonical = nullptr;
  int64_t stride = 0;  // bytes between canonical rows
  Layout to;
  void* out = nullptr;  // to.info().bytes(dtype, rows, cols), written whole
};

std::span<const Kernel<PackArgs>> pack_kernels();
void register_pack_kernels(std::span<const Kernel<PackArgs>> kernels);  // of another device
void pack(const PackArgs& args);

}  // namespace bitgrad::kernels
