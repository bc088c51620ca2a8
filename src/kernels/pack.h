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

std::span<const Kernel<PackArgs>> pack_kernels();
void register_pack_kernels(std::span<const Kernel<PackArgs>> kernels);  // for devices other than the CPU
void pack(const PackArgs& args);

}  // namespace bitgrad::kernels
