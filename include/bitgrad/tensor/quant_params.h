// Parameters that map codes to values: value = s * (q - z), or s * q + m. Part of a Tensor. docs/numerics.md section 2.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>

namespace bitgrad {

class Tensor;
struct ScaleMap;  // dtype/dtype.h

// Which elements share a scale.
struct Granularity {
  enum Kind : uint8_t {
    kTensor,   // all elements
    kChannel,  // elements with the same index along `axis`
    kToken,    // elements of one row
    kGroup,    // runs of `group` along `axis` (the last axis, or axis 0 of a matrix); the last may be shorter
  };
  Kind kind = kTensor;
  int64_t axis = 0;
  int64_t group = 0;
  friend bool operator==(const Granularity&, const Granularity&) = default;

  // Whether every row has one scale of its own.
  bool per_row() const { return kind == kToken || (kind == kChannel && axis == 0); }

  static Granularity tensor() { return {}; }
  static Granularity channel(int64_t axis = 0) { return {kChannel, axis, 0}; }
  static Granularity token() { return {kToken, 0, 0}; }
  static Granularity groups(int64_t size, int64_t axis = -1) { return {kGroup, axis, size}; }
};
// As in configurations: tensor, channel(0), channel(1), token, group(32) along a row, group(0,32) along axis 0.
std::ostream& operator<<(std::ostream& out, const Granularity& granularity);
// Number of scales of a [rows, cols] matrix.
int64_t scale_count(const Granularity& granularity, int64_t rows, int64_t cols);
// Index rule of the scales of a matrix with `cols` columns: steps and groups are set, pointers are null.
ScaleMap scale_steps(const Granularity& granularity, int64_t cols);

struct QuantParams {
  std::string scheme = {};  // scheme name, as in docs/numerics.md
  Granularity granularity = {};
  std::shared_ptr<const Tensor> scale = {};   // fp32, flat; null: all 1
  std::shared_ptr<const Tensor> zero = {};    // int32 zero points, flat, indexed as scale; null: none
  std::shared_ptr<const Tensor> offset = {};  // fp32 real offsets, indexed as scale; null: none. Not combined with zero
  // fp32, flat, indexed as scale: an additional statistic that quantization and backward need (the threshold of
  // ternary_threshold, max abs tanh x of dorefa_weight); null: none.
  std::shared_ptr<const Tensor> statistic = {};
  int64_t bytes() const;
};

}  // namespace bitgrad
