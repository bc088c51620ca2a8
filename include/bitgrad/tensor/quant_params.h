// What turns codes into values: value = s * (q - z), or s * q + m. Travels with the tensor. docs/numerics.md section 2.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>

namespace bitgrad {

class Tensor;
struct ScaleMap;  // dtype/scale_map.h

// Which elements share one scale.
struct Granularity {
  enum Kind : uint8_t {
    kTensor,   // all
    kChannel,  // those of one index of `axis`
    kToken,    // those of one row
    kGroup,    // runs of `group` along `axis` (the last axis, or axis 0 of a matrix), ragged last
  };
  Kind kind = kTensor;
  int64_t axis = 0;
  int64_t group = 0;
  friend bool operator==(const Granularity&, const Granularity&) = default;

  static Granularity tensor() { return {}; }
  static Granularity channel(int64_t axis = 0) { return {kChannel, axis, 0}; }
  static Granularity token() { return {kToken, 0, 0}; }
  static Granularity groups(int64_t size, int64_t axis = -1) { return {kGroup, axis, size}; }
};
// As configurations write it: tensor, channel(0), channel(1), token, group(32) along a row, group(0,32) along axis 0.
std::ostream& operator<<(std::ostream& out, const Granularity& granularity);
// Number of scales of a [rows, cols] matrix.
int64_t scale_count(const Granularity& granularity, int64_t rows, int64_t cols);
// Where the scale of an element of a matrix with `cols` columns lies: steps and groups, the pointers null.
ScaleMap scale_steps(const Granularity& granularity, int64_t cols);

struct QuantParams {
  std::string scheme = {};  // its name, as in numerics.md
  Granularity granularity = {};
  std::shared_ptr<const Tensor> scale = {};   // fp32, flat; null: all 1
  std::shared_ptr<const Tensor> zero = {};    // int32, flat, indexed as scale; null: none
  std::shared_ptr<const Tensor> offset = {};  // fp32 real offsets; null: none. Not together with zero
  // fp32, flat, indexed as scale: what coding and backward need beside the value (the threshold of ternary_threshold,
  // max abs tanh x of dorefa_weight); null: none.
  std::shared_ptr<const Tensor> statistic = {};
  int64_t bytes() const;
};

}  // namespace bitgrad
