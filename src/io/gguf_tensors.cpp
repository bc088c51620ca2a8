// Conversion of tensors to blocks and back: what fits, and the bytes.
#include <algorithm>
#include <cmath>
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
using Kind = GgufFit::Kind;

void refuse(GgufFit& fit, std::string why) {
  if (fit.kind == Kind::kRefused) return;
  fit.kind = Kind::kRefused;
  fit.why = std::move(why);
}

// Rounds x to fp16 and records the loss in `fit`.
uint16_t half_of(double x, std::string_view what, GgufFit& fit) {
  const uint16_t half = fp16_from_float(static_cast<float>(x));
  const double error = std::abs(static_cast<double>(fp16_to_float(half)) - x);
  const float rounded = fp16_to_float(half);
  if (!std::isfinite(rounded) || (x != 0 && rounded == 0.0f)) {
    refuse(fit, concat(what, ' ', x, " is not an fp16 number: expected 0 or 2^-24 to 65504"));
  } else if (error > 0 && fit.kind != Kind::kRefused) {
    fit.kind = Kind::kRounded;
    fit.largest_error = std::max(fit.largest_error, error / std::abs(x));
    fit.why = concat(what, "s are rounded to fp16");
  }
  return half;
}

// Converts codes to blocks; writes the bytes if `out` is given.
class CodesToBlocks {
 public:
  CodesToBlocks(const Tensor& t, const GgufTypeInfo& type, const BlockCodec& codec)
      : t_(t), type_(type), codec_(codec), scales_(t.scale_map()) {}

  GgufFit run(uint8_t* out) {
    check_dtype();
    check_scales();
    if (fit_.kind == Kind::kRefused) return fit_;
    std::vector<int64_t> row(static_cast<size_t>(t_.cols()));
    for (int64_t r = 0; r < t_.rows() && fit_.kind != Kind::kRefused; ++r) {
      unpack_row(t_.dtype(), static_cast<const char*>(t_.data()) + r * t_.stride(), 0, t_.cols(), row.data());
      for (int64_t c = 0; c < t_.cols(); c += type_.block_elements) {
        const Block block = block_of(row.data() + c, r, c);
        if (out == nullptr) continue;
        codec_.encode(block, out);
        out += type_.block_bytes;
      }
    }
    return fit_;
  }

 private:
  // ggml's Q2_0 has the range -1 .. 2, so int2 (-2 .. 1) fits after negation.
  bool negated() const { return codec_.type == GgufType::kQ2_0 && t_.dtype() == dtypes::int2; }

  void check_dtype() {
    const DTypeInfo& info = t_.dtype().info();
    const bool integers = info.kind == DTypeKind::kInt || info.kind == DTypeKind::kUint;
    const int64_t low = negated() ? -info.qmax : info.qmin, high = negated() ? -info.qmin : info.qmax;
    const bool fits =
        codec_.signs ? info.kind == DTypeKind::kSign : integers && low >= codec_.lowest && high <= codec_.highest;
    if (!fits) refuse(fit_, concat(type_.name, " does not hold codes of ", t_.dtype()));
    if (codec_.offset && info.kind != DTypeKind::kUint)
      refuse(fit_, concat(type_.name, " is for codes from 0 on, got ", t_.dtype()));
    fit_.other_codes = fit_.kind == Kind::kRefused;
  }

  void check_scales() {
    const int64_t block = type_.block_elements;
    if (t_.cols() % block != 0)
      refuse(fit_, concat("rows of ", t_.cols(), " elements do not fill blocks of ", block, " (", type_.name, ')'));
    if (scales_.col_step != 0 && scales_.col_group % block != 0)
      refuse(fit_,
             concat("scales change inside a block of ", block, " (", type_.name, "): got ", t_.quant()->granularity));
    if (scales_.offset != nullptr && !codec_.offset)
      refuse(fit_, concat(type_.name, " has no offsets (Q4_1 and Q5_1 have)"));
  }

  Block block_of(const int64_t* numbers, int64_t r, int64_t c) {
    const auto at = static_cast<size_t>(scales_.trivial() ? 0 : scales_.index(r, c));
    const double scale = scales_.scale == nullptr ? 1.0 : scales_.scale[at];
    const int64_t zero = scales_.zero == nullptr ? 0 : scales_.zero[at];
    if (zero != 0 && !codec_.offset)
      refuse(fit_, concat(type_.name, " has no zero points, got ", zero, " (Q4_1 and Q5_1 store them as offsets)"));
    Block block;
    block.d = half_of(negated() ? -scale : scale, "scale", fit_);
    const double offset = scales_.offset == nullptr ? -scale * static_cast<double>(zero) : scales_.offset[at];
    if (codec_.offset) block.m = half_of(offset, "offset", fit_);
    for (int64_t j = 0; j < type_.block_elements; ++j)
      block.numbers[j] = static_cast<int>(negated() ? -numbers[j] : numbers[j]);
    return block;
  }

  const Tensor& t_;
  const GgufTypeInfo& type_;
  const BlockCodec& codec_;
  const ScaleMap scales_;
  GgufFit fit_;
};

// Converts floats, or dequantized codes, to a float type, some rows at a time.
GgufFit floats_to(const Tensor& tensor, DType dtype, uint8_t* out) {
  constexpr int64_t kElements = 1 << 16;
  const Tensor t = tensor.reshape({tensor.rows(), tensor.cols()});  // row_slice cuts vectors along their only axis
  GgufFit fit;
  const int64_t rows = std::max<int64_t>(1, kElements / std::max<int64_t>(1, t.cols()));
  for (int64_t begin = 0; begin < t.rows(); begin += rows) {
    const std::vector<double> values = t.row_slice(begin, std::min(begin + rows, t.rows())).values();
    const Tensor rounded = Tensor::from_elements({static_cast<int64_t>(values.size())}, dtype, values);
    const std::vector<double> back = rounded.elements();
    for (size_t i = 0; i < values.size(); ++i) {
      if (back[i] == values[i] || std::isnan(values[i])) continue;
      if (!std::isfinite(back[i])) refuse(fit, concat("the value ", values[i], " is beyond the range of ", dtype));
      if (fit.kind == Kind::kRefused) return fit;
      fit.kind = Kind::kRounded;
      fit.largest_error = std::max(fit.largest_error, std::abs(back[i] - values[i]) / std::abs(values[i]));
      fit.why = concat("values are rounded to ", dtype);
    }
    if (out == nullptr || values.empty()) continue;
    const size_t bytes = values.size() * static_cast<size_t>(dtype.bits() / 8);
    std::memcpy(out, rounded.data(), bytes);
    out += bytes;
  }
  return fit;
}

GgufFit integers_to(const Tensor& t, DType dtype, uint8_t* out) {
  GgufFit fit;
  if (t.dtype() != dtype || t.quant()) {
    refuse(fit, concat("got ", t, t.quant() ? " with scales" : "", ", expected ", dtype, " without scales"));
    return fit;
  }
  const auto row = static_cast<size_t>(row_bytes_file(dtype, t.cols()));
  for (int64_t r = 0; out != nullptr && r < t.rows(); ++r)
    std::memcpy(out + static_cast<size_t>(r) * row, static_cast<const char*>(t.data()) + r * t.stride(), row);
  return fit;
}

// `out`: nullptr, or a buffer for the bytes of a tensor that fits.
GgufFit fit_to(const Tensor& t, const GgufTypeInfo& type, uint8_t* out) {
  if (const BlockCodec* const codec = block_codec(type.type)) {
    if (t.dtype().is_code() && t.layout() == layouts::canonical) return CodesToBlocks(t, type, *codec).run(out);
    GgufFit fit;
    refuse(fit, concat(type.name, " holds codes, got ", t, ": quantize it first"));
    return fit;
  }
  const std::optional<DType> dtype = plain_dtype(type.type);
  if (dtype) return is_float_type(type.type) ? floats_to(t, *dtype, out) : integers_to(t, *dtype, out);
  GgufFit fit;
  refuse(fit, concat("bitgrad does not write ", type.name));
  return fit;
}

}  // namespace

GgufFit gguf_fit(const Tensor& tensor, GgufType type) {
  const DeviceGuard host(Device::cpu());
  return fit_to(tensor.on_host(), gguf_type(type), nullptr);
}

GgufItem gguf_item(const std::string& name, const Tensor& tensor, GgufType type) {
  const DeviceGuard host(Device::cpu());
  const Tensor t = tensor.on_host();
  const GgufTypeInfo& info = gguf_type(type);
  const GgufFit fit = fit_to(t, info, nullptr);
  require(fit.kind != Kind::kRefused, "gguf_item", "tensor '", name, "' (", t, ") as ", info.name, ": ", fit.why, '.');
  const int64_t bytes = t.numel() / info.block_elements * info.block_bytes;
  GgufItem item{name, type, t.shape().dims(), std::vector<uint8_t>(static_cast<size_t>(bytes))};
  fit_to(t, info, item.data.data());
  return item;
}

// Blocks to tensors.

namespace {

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
  return std::make_shared<const Tensor>(
      Tensor::from(numbers, {std::ssize(numbers)}, dtypes::fp32, MemoryKind::kBuffer));
}

class BlocksToCodes {
 public:
  BlocksToCodes(const GgufFile& file, const GgufEntry& entry, const GgufTypeInfo& type, const BlockCodec& codec)
      : file_(file), entry_(entry), type_(type), codec_(codec), data_(file.data(entry.name)) {}

  Tensor run() {
    const bool two = has_two();
    const Tensor t =
        Tensor::zeros(Shape(entry_.shape), two ? dtypes::int2 : codec_.codes, MemoryKind::kBuffer, Device::cpu());
    uint8_t code_of[256];  // of number i - 128, negated if two
    for (int i = 0; i < 256; ++i)
      code_of[i] = static_cast<uint8_t>(encode_int(t.dtype().info(), two ? 128 - i : i - 128));
    // If the tensor has no elements, its other dimensions may be arbitrarily large.
    const int64_t rows = t.numel() == 0 ? 0 : t.rows();
    std::vector<uint8_t> raw(static_cast<size_t>(rows == 0 ? 0 : t.cols()));
    std::vector<float> scales, offsets;
    const uint8_t* in = data_.data();
    Block block;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < t.cols(); c += type_.block_elements, in += type_.block_bytes) {
        codec_.decode(in, block);
        const float d = fp16_to_float(block.d);
        scales.push_back(two ? -d : d);
        if (codec_.offset) offsets.push_back(fp16_to_float(block.m));
        for (int64_t j = 0; j < type_.block_elements; ++j)
          raw[static_cast<size_t>(c + j)] = code_of[block.numbers[j] + 128];
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
    Block block;
    for (const uint8_t* in = data_.data(); in < data_.data() + data_.size(); in += type_.block_bytes) {
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
