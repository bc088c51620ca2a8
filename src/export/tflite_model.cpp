#include "export/tflite_model.h"

#include <algorithm>
#include <cstdlib>

namespace bitgrad::tflite {
namespace {

constexpr size_t kAlign = 16;  // of constants, which readers use where they are in the file

// "2.11.0" is behind "2.9.0".
bool earlier(const std::string& a, const std::string& b) {
  const char *x = a.c_str(), *y = b.c_str();
  while (true) {
    char *x_end = nullptr, *y_end = nullptr;
    const long i = std::strtol(x, &x_end, 10), j = std::strtol(y, &y_end, 10);
    if (i != j) return i < j;
    if (*x_end != '.' || *y_end != '.') return *y_end == '.';
    x = x_end + 1;
    y = y_end + 1;
  }
}

}  // namespace

uint32_t FileBuilder::buffer(const std::vector<uint8_t>& bytes) {
  flat_.ForceVectorAlignment(bytes.size(), 1, kAlign);
  const auto data = flat_.CreateVector(bytes);
  buffers_.push_back(CreateBuffer(flat_, data));
  return static_cast<uint32_t>(buffers_.size() - 1);
}

TensorId FileBuilder::put(const TensorSpec& spec, uint32_t buffer) {
  flatbuffers::Offset<QuantizationParameters> quantization = 0;
  if (!spec.scale.empty()) {
    const std::vector<int64_t> zero(spec.scale.size(), spec.zero);
    quantization = CreateQuantizationParametersDirect(flat_, nullptr, nullptr, &spec.scale, &zero,
                                                      QuantizationDetails::NONE, 0, spec.dimension);
  }
  tensors_.push_back(CreateTensorDirect(flat_, &spec.shape, spec.type, buffer, spec.name.c_str(), quantization, false,
                                        0, nullptr, true));
  return static_cast<TensorId>(tensors_.size() - 1);
}

TensorId FileBuilder::tensor(const TensorSpec& spec) { return put(spec, 0); }

TensorId FileBuilder::constant(const TensorSpec& spec, const std::vector<uint8_t>& bytes) {
  return put(spec, buffer(bytes));
}

TensorId FileBuilder::constant(const std::string& name, const std::vector<int32_t>& shape,
                               const std::vector<int32_t>& numbers) {
  std::vector<uint8_t> bytes;
  for (const int32_t x : numbers)
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<uint8_t>(static_cast<uint32_t>(x) >> (8 * i)));
  return constant({.name = name, .shape = shape, .type = TensorType::INT32}, bytes);
}

void FileBuilder::add(const Op& op, const std::vector<TensorId>& inputs, TensorId output, BuiltinOptions kind,
                      flatbuffers::Offset<void> options) {
  const std::pair<BuiltinOperator, int32_t> code{op.code, op.version};
  const auto at = std::find(codes_.begin(), codes_.end(), code);
  const auto index = static_cast<uint32_t>(at - codes_.begin());
  if (at == codes_.end()) codes_.push_back(code);
  if (earlier(runtime_, op.runtime)) runtime_ = op.runtime;
  const std::vector<int32_t> outputs{output};
  operators_.push_back(CreateOperatorDirect(flat_, index, &inputs, &outputs, kind, options));
}

flatbuffers::Offset<SignatureDef> FileBuilder::signature(TensorId input, TensorId output) {
  const std::vector<flatbuffers::Offset<TensorMap>> in{
      CreateTensorMapDirect(flat_, "input", static_cast<uint32_t>(input))};
  const std::vector<flatbuffers::Offset<TensorMap>> out{
      CreateTensorMapDirect(flat_, "output", static_cast<uint32_t>(output))};
  return CreateSignatureDefDirect(flat_, &in, &out, "serving_default", 0);
}

std::vector<uint8_t> FileBuilder::finish(TensorId input, TensorId output, const std::string& description) {
  std::vector<flatbuffers::Offset<OperatorCode>> codes;
  for (const auto& [code, version] : codes_) {
    const auto old = static_cast<int8_t>(std::min(static_cast<int32_t>(code), 127));
    codes.push_back(CreateOperatorCode(flat_, old, 0, version, code));
  }
  const std::vector<int32_t> inputs{input}, outputs{output};
  const std::vector<flatbuffers::Offset<SubGraph>> graphs{
      CreateSubGraphDirect(flat_, &tensors_, &inputs, &outputs, &operators_, "main")};
  std::vector<uint8_t> runtime(runtime_.begin(), runtime_.end());
  runtime.resize(16, 0);
  const uint32_t at = buffer(runtime);
  const std::vector<flatbuffers::Offset<Metadata>> metadata{CreateMetadataDirect(flat_, "min_runtime_version", at)};
  const std::vector<flatbuffers::Offset<SignatureDef>> signatures{signature(input, output)};
  FinishModelBuffer(flat_, CreateModelDirect(flat_, 3, &codes, &graphs, description.c_str(), &buffers_, nullptr,
                                             &metadata, &signatures));
  return {flat_.GetBufferPointer(), flat_.GetBufferPointer() + flat_.GetSize()};
}

}  // namespace bitgrad::tflite
