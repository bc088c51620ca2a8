// Tensors only: safetensors with the names and axis orders of PyTorch, and npz.
//
// safetensors stores codes in the layout of compressed-tensors (github.com/neuralmagic/compressed-tensors): with more
// than 4 bits, and for convolutions, `weight` I8 [o,i]; otherwise `weight_packed` I32 [o, ceil(i * 4 / 32)], which
// holds code + 8 from the low bits on. With them `weight_shape`, `weight_scale` [1], [o,1] or [o,groups], and
// `weight_zero_point`. With --dequantize, fp32 values.
// npz stores arrays under bitgrad's own paths, unchanged: codes I8 or U8 [o,k], `.scale`, `.zero`, `.offset`.
#include <cstring>
#include <deque>
#include <map>
#include <optional>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/io/safetensors.h"
#include "bitgrad/nn/module.h"
#include "bitgrad/quant/quantizer.h"
#include "data/npy_array.h"
#include "export/onnx_graph.h"
#include "export/targets.h"
#include "interop/decoder_files.h"
#include "interop/hugging_face.h"
#include "interop/weight_file.h"

namespace bitgrad {
namespace {

using Fate = ExportedTensor::Fate;

struct PlainTensor {
  std::string path;  // "layers.0.weight"
  Tensor value;
  Shape logical;                    // [o,kh,kw,c] for convolutions
  std::optional<Shape> image = {};  // if the columns are a flattened image: [h,w,c]
};

std::vector<PlainTensor> plain_tensors(Module& model) {
  const interop::ModelValues checked(model);  // rejects adapters, and quantization that is off
  std::vector<PlainTensor> out;
  for (const auto& [path, parameter] : model.parameters_at(kModelRoot))
    out.push_back({path, parameter->value().on_host(), parameter->logical_shape()});
  for (const Module::Buffer& b : model.buffers()) out.push_back({b.path, b.tensor.on_host(), b.tensor.shape()});
  const std::map<std::string, Shape> images = interop::flattened_images(model);
  for (PlainTensor& t : out)
    if (const auto at = images.find(t.path);
        at != images.end() && at->second[2] > 1 && at->second.numel() > at->second[2])
      t.image = at->second;
  return out;
}

// The name in PyTorch: without "layers.", and norms have weight and bias.
std::string torch_name(const std::string& path) {
  std::string name = path.substr(std::string(kModelRoot).size() + 1);
  const size_t dot = name.rfind('.') + 1;
  const std::string leaf = name.substr(dot);
  const char* const other = leaf == "gamma" || leaf == "slope" ? "weight" : leaf == "beta" ? "bias" : nullptr;
  return other == nullptr ? name : name.substr(0, dot) + other;
}

// Pixels of a row: those of a kernel, or of a flattened image.
std::optional<Conv2dOptions> pixels_of(const PlainTensor& t) {
  Conv2dOptions o;
  if (t.logical.rank() == 4)
    o.kernel = {t.logical[1], t.logical[2]};
  else if (t.image)
    o.kernel = {(*t.image)[0], (*t.image)[1]};
  else
    return std::nullopt;
  return o;
}
// OIHW for convolutions, [o, c, h, w] for the inputs after a flatten, otherwise unchanged.
template <typename T>
std::vector<T> torch_order(const std::vector<T>& x, const PlainTensor& t) {
  const auto pixels = pixels_of(t);
  return pixels ? reordered(x, t.value.rows(), t.value.cols(), pixels) : x;
}
std::vector<int64_t> torch_dims(const PlainTensor& t) {
  const Shape& s = t.logical;
  return s.rank() == 4 ? std::vector<int64_t>{s[0], s[3], s[1], s[2]} : s.dims();
}

class TensorList {
 public:
  TensorList(ExportReport& report, bool write) : report_(report), write_(write) {}
  template <typename T>
  void add(const PlainTensor& from, const std::string& name, const char* type, std::vector<int64_t> dims,
           const std::vector<T>& numbers) {
    report_.tensors.push_back({.name = name, .parameter = from.path, .shape = Shape(dims), .type = type});
    if (!write_) return;
    auto& bytes = bytes_.emplace_back(numbers.size() * sizeof(T));
    if (!numbers.empty()) std::memcpy(bytes.data(), numbers.data(), bytes.size());
    items_.push_back({name, type, std::move(dims), bytes.data(), static_cast<int64_t>(bytes.size())});
  }
  void refuse(const PlainTensor& from, std::string reason) {
    report_.tensors.push_back({.name = torch_name(from.path),
                               .parameter = from.path,
                               .shape = from.logical,
                               .fate = Fate::kRefused,
                               .reason = std::move(reason)});
  }
  const std::vector<SafetensorsItem>& items() const { return items_; }

 private:
  ExportReport& report_;
  const bool write_;
  std::deque<std::vector<uint8_t>> bytes_;
  std::vector<SafetensorsItem> items_;
};

// Why compressed-tensors cannot store the weight; empty if it can.
std::string not_compressed(const PlainTensor& t) {
  const DTypeInfo& info = t.value.dtype().info();
  const ScaleMap map = t.value.scale_map();
  if (info.kind == DTypeKind::kCodebook) return "levels of a codebook";
  if (map.offset != nullptr) return "real offsets";
  if (info.kind == DTypeKind::kUint) return "unsigned codes";
  if (map.row_group > 1) return "scales of groups of rows";
  if (t.logical.rank() == 4 && map.col_step != 0) return "scales of groups in a convolution";
  if (t.image && map.col_step != 0) return "scales of groups of pixels, which PyTorch flattens in another order,";
  return "";
}

void add_codes(TensorList& out, const PlainTensor& t) {
  if (const std::string why = not_compressed(t); !why.empty())
    return out.refuse(t, why + " have no place in compressed-tensors. Use --dequantize, or npz");
  const Tensor& w = t.value;
  const int64_t o = w.rows(), k = w.cols();
  const std::string name = torch_name(t.path);
  const std::vector<int64_t> codes = torch_order(codes_of(w), t);
  const bool is_signed = w.dtype().info().qmin < 0;
  if (w.dtype().bits() > 4 || t.logical.rank() == 4) {
    out.add(t, name, "I8", torch_dims(t), std::vector<int8_t>(codes.begin(), codes.end()));
  } else {
    out.add(t, name + "_packed", "I32", {o, (k + 7) / 8}, interop::packed_rows(codes, o, k, 4, is_signed ? 8 : 0));
    out.add(t, name + "_shape", "I64", {2}, std::vector<int64_t>{o, k});
  }
  const Blocks b = blocks_of(w);
  const std::vector<int64_t> dims =
      b.rows == 1 && b.cols == 1 ? std::vector<int64_t>{1} : std::vector<int64_t>{b.rows, b.cols};
  out.add(t, name + "_scale", "F32", dims, b.scale);
  if (!b.zero.empty()) out.add(t, name + "_zero_point", "I8", dims, std::vector<int8_t>(b.zero.begin(), b.zero.end()));
}

void add_values(TensorList& out, const PlainTensor& t) {
  const std::string name = torch_name(t.path);
  if (t.value.dtype() == dtypes::int64) {
    std::vector<int64_t> numbers(t.value.as<int64_t>(), t.value.as<int64_t>() + t.value.numel());
    return out.add(t, name, "I64", torch_dims(t), numbers);
  }
  const Tensor values = t.value.dtype().is_code() ? dequantize_tensor(t.value) : t.value;
  out.add(t, name, "F32", torch_dims(t), torch_order(values.to_vector(), t));
}

template <typename T>
data::NpzArray npz_array(const std::string& name, const char* descr, std::vector<int64_t> shape,
                         const std::vector<T>& x) {
  data::NpzArray a{name, descr, std::move(shape), std::vector<uint8_t>(x.size() * sizeof(T))};
  if (!x.empty()) std::memcpy(a.bytes.data(), x.data(), a.bytes.size());
  return a;
}

void add_arrays(std::vector<data::NpzArray>& out, const PlainTensor& t) {
  if (!t.value.dtype().is_code()) {
    out.push_back(npz_array(t.path, "<f4", t.logical.dims(), t.value.to_vector()));
    return;
  }
  const std::vector<int64_t> codes = codes_of(t.value);
  if (onnx::byte_type(t.value.dtype()) == onnx::Type::kUint8)
    out.push_back(npz_array(t.path, "|u1", t.logical.dims(), std::vector<uint8_t>(codes.begin(), codes.end())));
  else
    out.push_back(npz_array(t.path, "|i1", t.logical.dims(), std::vector<int8_t>(codes.begin(), codes.end())));
  const QuantParams* const q = t.value.quant().get();
  if (q == nullptr) return;
  for (const auto& [name, part] :
       {std::pair{".scale", q->scale}, std::pair{".zero", q->zero}, std::pair{".offset", q->offset}})
    if (part) out.push_back(npz_array(t.path + name, "<f4", {part->numel()}, part->to_vector()));
}

}  // namespace

ExportReport export_target_safetensors(const ExportSource& source, const std::string& path, const ExportSpec& spec) {
  ExportReport report{.variant = spec.dequantize ? "values" : "compressed-tensors"};
  TensorList out(report, !spec.dry_run);
  for (const PlainTensor& t : plain_tensors(*source.model))
    t.value.dtype().is_code() && !spec.dequantize ? add_codes(out, t) : add_values(out, t);
  if (spec.dry_run) return report;
  report.require_all_held("export");
  write_safetensors(path, out.items(), {{"format", "pt"}});
  return report;
}

ExportReport export_target_npz(const ExportSource& source, const std::string& path, const ExportSpec& spec) {
  ExportReport report{.variant = "arrays"};
  std::vector<data::NpzArray> arrays;
  for (const PlainTensor& t : plain_tensors(*source.model)) {
    const PlainTensor values{t.path, t.value.dtype().is_code() ? dequantize_tensor(t.value) : t.value, t.logical};
    add_arrays(arrays, spec.dequantize ? values : t);
  }
  for (const data::NpzArray& a : arrays)
    report.tensors.push_back({.name = a.name, .parameter = a.name, .shape = Shape(a.shape), .type = a.descr});
  if (spec.dry_run) return report;
  const std::vector<uint8_t> bytes = data::npz_bytes(arrays);
  write_file_atomically(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  return report;
}

}  // namespace bitgrad
