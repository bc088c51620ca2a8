// Conversion of blocks to tensors.
#include <algorithm>
#include <cstring>
#include <optional>

#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "bitgrad/dtype/bf16.h"
#include "bitgrad/dtype/codec.h"
#include "bitgrad/io/gguf.h"
#include "io/gguf_format.h"

namespace bitgrad {
namespace {

using namespace gguf;

Tensor floats_of(const GgufEntry& entry, DType dtype, const std::vector<uint8_t>& data) {
  Tensor t = Tensor::zeros(Shape(entry.shape), dtype, MemoryKind::kBuffer, Device::cpu());
  const auto row = static_cast<size_t>(row_bytes_file(dtype, t.cols()));
  for (int64_t r = 0; row > 0 && r < t.rows(); ++r)
    std::memcpy(static_cast<char*>(t.data()) + r * t.stride(), data.data() + static_cast<size_t>(r) * row, row);
  return t;
}

Tensor int16_of(const GgufEntry& entry, const std::vector<uint8_t>& data) {
  Tensor t = Tensor::zeros(Shape(entry.shape), dtypes::int32, MemoryKind::kBuffer, Device::cpu());
  for (int64_t i = 0; i < t.numel(); ++i) {
    int16_t x;
    std::memcpy(&x, data.data() + 2 * i, sizeof x);
    t.as<int32_t>()[i] = x;
  }
  return t;
}

Tensor values_of(const GgufEntry& entry, const GgufTypeInfo& type, DecodeValues decode,
                 const std::vector<uint8_t>& data) {
  Tensor t = Tensor::zeros(Shape(entry.shape), dtypes::fp32, MemoryKind::kBuffer, Device::cpu());
  const uint8_t* in = data.data();
  for (int64_t i = 0; i < t.numel(); i += type.block_elements, in += type.block_bytes) decode(in, t.as<float>() + i);
  return t;
}

std::shared_ptr<const Tensor> flat(const std::vector<float>& numbers) {
  const Tensor t =
      Tensor::zeros({static_cast<int64_t>(numbers.size())}, dtypes::fp32, MemoryKind::kBuffer, Device::cpu());
  std::copy(numbers.begin(), numbers.end(), t.as<float>());
  return std::make_shared<const Tensor>(t);
}

class BlocksToCodes {
 public:
  BlocksToCodes(const GgufFile& file, const GgufEntry& entry, const GgufTypeInfo& type, const BlockCodec& codec)
      : file_(file), entry_(entry), type_(type), codec_(codec), data_(file.data(entry.name)) {}

  Tensor run() {
    const bool two = has_two();
    const Tensor t =
        Tensor::zeros(Shape(entry_.shape), two ? dtypes::int2 : codec_.codes, MemoryKind::kBuffer, Device::cpu());
    const DTypeInfo& info = t.dtype().info();
    // If the tensor has no elements, its other dimensions may be arbitrarily large.
    const int64_t rows = t.numel() == 0 ? 0 : t.rows();
    std::vector<uint8_t> raw(static_cast<size_t>(rows == 0 ? 0 : t.cols()));
    std::vector<float> scales, offsets;
    const uint8_t* in = data_.data();
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < t.cols(); c += type_.block_elements, in += type_.block_bytes) {
        Block block;
        codec_.decode(in, block);
        const float d = fp16_to_float(block.d);
        scales.push_back(two ? -d : d);
        if (codec_.offset) offsets.push_back(fp16_to_float(block.m));
        for (int64_t j = 0; j < type_.block_elements; ++j)
          raw[static_cast<size_t>(c + j)] =
              static_cast<uint8_t>(encode_int(info, two ? -block.numbers[j] : block.numbers[j]));
      }
      pack_row_raw(t.dtype(), raw.data(), t.cols(), static_cast<char*>(t.data()) + r * t.stride());
    }
    QuantParams params{.scheme = "fixed", .granularity = Granularity::groups(type_.block_elements)};
    params.scale = flat(scales);
    if (codec_.offset) params.offset = flat(offsets);
    return t.with_quant(std::make_shared<const QuantParams>(std::move(params)));
  }

 private:
  // Whether a code of a type for {-1, 0, 1} is 2: valid in Q2_0, damage in the ternary types.
  bool has_two() const {
    if (codec_.type != GgufType::kQ2_0 && codec_.type != GgufType::kTQ2_0 && codec_.type != GgufType::kTQ1_0)
      return false;
    for (const uint8_t* in = data_.data(); in < data_.data() + data_.size(); in += type_.block_bytes) {
      Block block;
      codec_.decode(in, block);
      if (std::find(block.numbers, block.numbers + type_.block_elements, 2) == block.numbers + type_.block_elements)
        continue;
      if (codec_.highest < 2)
        fail_with(ErrorCode::kData, "gguf", "'", file_.path(), "': tensor '", entry_.name, "' (", type_.name,
                  ") has the code 3 in block ", (in - data_.data()) / type_.block_bytes,
                  ", expected 0, 1 or 2. The file is damaged.");
      return true;
    }
    return false;
  }

  const GgufFile& file_;
  const GgufEntry& entry_;
  const GgufTypeInfo& type_;
  const BlockCodec& codec_;
  const std::vector<uint8_t> data_;
};

Tensor host_tensor(const GgufFile& file, const GgufEntry& entry) {
  const GgufTypeInfo& type = gguf_type(entry.type);
  if (const BlockCodec* const codec = block_codec(type.type)) return BlocksToCodes(file, entry, type, *codec).run();
  if (const std::optional<DType> dtype = plain_dtype(type.type)) return floats_of(entry, *dtype, file.data(entry.name));
  if (type.type == GgufType::kI16) return int16_of(entry, file.data(entry.name));
  if (const DecodeValues decode = value_decoder(type.type))
    return values_of(entry, type, decode, file.data(entry.name));
  fail_with(ErrorCode::kData, "gguf", "'", file.path(), "': tensor '", entry.name, "' is of type ", type.name,
            ", which bitgrad does not read. Convert the file to Q8_0, Q4_0, Q4_K, Q6_K or F16.");
}

}  // namespace

Tensor gguf_tensor(const GgufFile& file, std::string_view name) {
  const Device device = current_device();
  const DeviceGuard host(Device::cpu());
  const Tensor t = host_tensor(file, file.entry(name));
  return device.is_cpu() ? t : t.to_device(device, MemoryKind::kBuffer);
}

}  // namespace bitgrad
