// Family pack: converts canonical codes to another layout. Exact; the scalar kernel calls LayoutInfo::pack.
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
  void* out = nullptr;  // to.info().bytes(dtype, rows, cols) bytes, written in full
};

KernelList<Kernel<PackArgs>>& pack_kernels();
void pack(const PackArgs& args);

}  // namespace bitgrad::kernels
