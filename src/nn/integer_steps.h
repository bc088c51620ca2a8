// What the nodes of an integer graph need at each run, made once on the current device: weights as kernels read them,
// and output stages.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "bitgrad/nn/integer_graph.h"
#include "kernels/codes.h"

namespace bitgrad::inference::integer {

inline constexpr int64_t kSamplesAtOnce = 16;  // their values stay in caches

inline kernels::codes::Rule kernel_rule(OutputRounding rule) { return static_cast<kernels::codes::Rule>(rule); }
static_assert(static_cast<int>(OutputRounding::kRuy) == static_cast<int>(kernels::codes::Rule::kRuy) &&
              static_cast<int>(OutputRounding::kSingle) == static_cast<int>(kernels::codes::Rule::kSingle) &&
              static_cast<int>(OutputRounding::kFloat) == static_cast<int>(kernels::codes::Rule::kFloat));

// The numbers of an output stage in arrays of whole blocks of channels, on the current device.
class StageNumbers {
 public:
  StageNumbers() = default;
  // bias: one per channel, or none.
  StageNumbers(const Requantize& op, int64_t channels, std::span<const int32_t> bias);
  kernels::codes::Stage stage() const;

 private:
  kernels::codes::Stage constants_ = {};
  Tensor bias_ = {}, m_ = {}, e_ = {}, factor_ = {};
};

// A product with its output stage, from codes to codes: no int32 in memory. On the CPU.
class DirectProduct {
 public:
  // bias: of sums of w * x, the zero point of x in it.
  DirectProduct(const Node& product, const Form& in, int32_t zero, const Requantize& stage,
                std::span<const int32_t> bias);
  // Whether there is a kernel for them, on some instructions. `wide`: its output stage shifts to the left.
  static bool fits(const Product& op, const Requantize& stage, const Form& in);
  // Codes of x [n, ..] to y [n, ..].
  void run(const Tensor& x, const Tensor& y) const;

 private:
  void pack(const Product& op);
  void fill_outside(uint8_t* to) const;
  void copy_image(const int8_t* from, int64_t stride, uint8_t* to) const;

  StageNumbers stage_ = {};
  Tensor weights_ = {};  // [blocks * groups, 64]
  std::vector<int32_t> offsets_ = {};
  int64_t outputs_ = 0, channels_ = 0, pixel_ = 0;  // pixel_: bytes, a multiple of 4
  int64_t height_ = 1, width_ = 1;                  // of the image with the pixels outside
  Conv2dOptions window_ = {};
  bool image_ = false;
  int32_t zero_ = 0;
  std::array<int64_t, 2> in_{1, 1}, out_{1, 1};
};

// Of one node.
struct Step {
  Tensor weight = {};                                // of a product, in the layout of its kernel too
  Tensor bias = {};                                  // less the zero point of its input times the sums of the weight
  StageNumbers stage = {};                           // of a Requantize of sums
  std::shared_ptr<const DirectProduct> direct = {};  // of a Requantize, with the product before it
  std::shared_ptr<const QuantParams> params = {};    // of the node
  Value last_reader = 0;
};
std::vector<Step> steps_of(const Graph& graph);

}  // namespace bitgrad::inference::integer
