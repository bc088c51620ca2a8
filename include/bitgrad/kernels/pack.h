// Family pack: canonical codes into another layout. Exact; the scalar row calls the layout record itself.
#pragma once

#include "bitgrad/dtype/layout.h"
#include "bitgrad/kernels/row.h"

namespace bitgrad {

struct PackArgs {
  DType dtype = dtypes::bint1;
  int64_t rows = 0, cols = 0;
  const void* canonical = nullptr;
  int64_t stride = 0;  // bytes between canonical rows
  Layout to;
  void* out = nullptr;  // to.info().bytes(dtype, rows, cols), written whole
};

std::span<const KernelRow<PackArgs>> pack_rows();
void register_pack_rows(std::span<const KernelRow<PackArgs>> rows);  // of another device
void pack(const PackArgs& args);

}  // namespace bitgrad
