// Builds a file of TensorFlow Lite: tensors, constants and operations. Needs what flatc makes of tflite.fbs.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "export/tflite_generated.h"

namespace bitgrad::tflite {

// Index of a tensor of the file.
using TensorId = int32_t;

struct TensorSpec {
  std::string name = {};
  std::vector<int32_t> shape = {};
  TensorType type = TensorType::INT8;
  std::vector<float> scale = {};  // one, or one per index of axis `dimension`; empty: no codes
  int64_t zero = 0;
  int32_t dimension = 0;
};

// An operation, its version, and the first TensorFlow that reads it.
struct Op {
  BuiltinOperator code = BuiltinOperator::ADD;
  int32_t version = 1;
  const char* runtime = "1.5.0";
};

// The member of the union for options of a type.
template <typename Options>
inline constexpr BuiltinOptions kKindOf = BuiltinOptions::NONE;
#define BITGRAD_KIND(options) \
  template <>                 \
  inline constexpr BuiltinOptions kKindOf<options> = BuiltinOptions::options;
BITGRAD_KIND(Conv2DOptions)
BITGRAD_KIND(DepthwiseConv2DOptions)
BITGRAD_KIND(Pool2DOptions)
BITGRAD_KIND(SoftmaxOptions)
BITGRAD_KIND(ConcatenationOptions)
BITGRAD_KIND(AddOptions)
BITGRAD_KIND(ReshapeOptions)
BITGRAD_KIND(MulOptions)
BITGRAD_KIND(PadOptions)
BITGRAD_KIND(GatherOptions)
BITGRAD_KIND(CastOptions)
BITGRAD_KIND(PadV2Options)
#undef BITGRAD_KIND

class FileBuilder {
 public:
  TensorId tensor(const TensorSpec& spec);
  TensorId constant(const TensorSpec& spec, const std::vector<uint8_t>& bytes);
  TensorId constant(const std::string& name, const std::vector<int32_t>& shape, const std::vector<int32_t>& numbers);
  template <typename Options>
  void add(const Op& op, const std::vector<TensorId>& inputs, TensorId output, flatbuffers::Offset<Options> options) {
    static_assert(kKindOf<Options> != BuiltinOptions::NONE);
    add(op, inputs, output, kKindOf<Options>, options.Union());
  }
  flatbuffers::FlatBufferBuilder& flat() { return flat_; }
  // The file, with one input and one output, which signature serving_default names "input" and "output".
  std::vector<uint8_t> finish(TensorId input, TensorId output, const std::string& description);

 private:
  void add(const Op& op, const std::vector<TensorId>& inputs, TensorId output, BuiltinOptions kind,
           flatbuffers::Offset<void> options);
  uint32_t buffer(const std::vector<uint8_t>& bytes);
  TensorId put(const TensorSpec& spec, uint32_t buffer);
  flatbuffers::Offset<SignatureDef> signature(TensorId input, TensorId output);

  flatbuffers::FlatBufferBuilder flat_{1024};
  std::vector<flatbuffers::Offset<Tensor>> tensors_;
  // The first is empty: that of values that are not constant.
  std::vector<flatbuffers::Offset<Buffer>> buffers_{CreateBuffer(flat_)};
  std::vector<flatbuffers::Offset<Operator>> operators_;
  std::vector<std::pair<BuiltinOperator, int32_t>> codes_;
  std::string runtime_ = "1.5.0";
};

}  // namespace bitgrad::tflite
