#include "export/targets.h"

#include "bitgrad/dtype/codec.h"

namespace bitgrad {

std::vector<int64_t> codes_of(const Tensor& weight) {
  std::vector<int64_t> out;
  out.reserve(static_cast<size_t>(weight.numel()));
  std::vector<uint8_t> raw(static_cast<size_t>(weight.cols()));
  const bool levels = weight.dtype().kind() == DTypeKind::kCodebook;
  for (int64_t r = 0; r < weight.rows(); ++r) {
    unpack_row_raw(weight.dtype(), static_cast<const uint8_t*>(weight.data()) + r * weight.stride(), 0, weight.cols(),
                   raw.data());
    for (const uint8_t code : raw) out.push_back(levels ? code : decode_int(weight.dtype().info(), code));
  }
  return out;
}

}  // namespace bitgrad
