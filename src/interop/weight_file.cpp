#include "interop/weight_file.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/data/npz.h"
#include "bitgrad/io/gguf.h"
#include "bitgrad/nn/layers.h"
#include "interop/hugging_face.h"

namespace bitgrad::interop {

WeightFile::WeightFile(const std::string& path) {
  if (path.ends_with(".npz")) {
    const auto file = std::make_shared<const NpzFile>(path);
    for (const NpzEntry& e : file->entries()) entries_.push_back({e.name, e.descr, e.shape, e.floats});
    values_ = [file](const std::string& name) { return file->floats(name); };
  } else if (path.ends_with(".gguf")) {
    const auto file = std::make_shared<const GgufFile>(GgufFile::read(path));
    for (const GgufEntry& e : file->entries()) {
      const std::string_view type = gguf_type(e.type).name;
      const bool whole = type.size() >= 2 && type[0] == 'I' && type[1] >= '0' && type[1] <= '9';
      entries_.push_back({e.name, std::string(type), Shape(e.shape), !whole});
    }
    values_ = [file](const std::string& name) {
      const DeviceGuard host(Device::cpu());
      const Tensor t = gguf_tensor(*file, name);
      return Tensor::from(t.to_vector(), t.shape(), dtypes::fp32, MemoryKind::kBuffer);
    };
  } else {  // a .safetensors file, or shards
    const auto file = std::make_shared<const HuggingFaceFiles>(path);
    for (const std::string& name : file->names()) {
      const SafetensorsEntry& e = file->entry(name);
      entries_.push_back({name, e.dtype, Shape(e.shape), is_float_type(e.dtype)});
    }
    values_ = [file](const std::string& name) { return file->floats(name); };
  }
}

Tensor WeightFile::read(const std::string& name) const {
  Tensor t = values_(name);
  for (int64_t i = 0; i < t.numel(); ++i)
    if (!std::isfinite(t.as<float>()[i]))
      fail_with(ErrorCode::kNonFinite, "init_from", "tensor '", name, "', element ", i, ": got ", t.as<float>()[i],
                ", expected a finite fp32 number");
  return t;
}

}  // namespace bitgrad::interop

namespace bitgrad {

namespace {

void find_flattened(Sequential& model, std::optional<Shape>& image, std::map<std::string, Shape>& out) {
  for (size_t i = 0; i < model.size(); ++i) {
    Module& m = model[i];
    if (auto* const inner = dynamic_cast<Sequential*>(&m)) {
      find_flattened(*inner, image, out);
      continue;
    }
    if (!m.input_form() || !m.output_form()) {
      image.reset();
      continue;
    }
    const Shape &in = m.input_form()->sample, &to = m.output_form()->sample;
    const std::vector<Parameter*> parameters = m.parameters();
    const bool own =
        std::any_of(parameters.begin(), parameters.end(), [](const Parameter* p) { return p->described(); });
    if (in.rank() == 3 && to.rank() == 1 && in.numel() == to.numel() && !own) image = in;
    if (!image) continue;
    for (const Parameter* p : parameters)
      if (p->shape().cols() == image->numel()) out[p->path()] = *image;
    for (const Module::Buffer& b : m.buffers())
      if (b.tensor.numel() == image->numel()) out[b.path] = *image;
    const LayerKind* const kind = find_layer_kind(m.kind());
    if (kind == nullptr || kind->product || to.numel() != image->numel()) image.reset();
  }
}

}  // namespace

std::map<std::string, Shape> interop::flattened_images(Module& model) {
  std::map<std::string, Shape> out;
  std::optional<Shape> image;
  if (auto* const root = dynamic_cast<Sequential*>(&model)) find_flattened(*root, image, out);
  return out;
}

}  // namespace bitgrad
