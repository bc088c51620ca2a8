#include "interop/weight_file.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/data/npz.h"
#include "bitgrad/io/gguf.h"
#include "bitgrad/nn/layer_kind.h"
#include "bitgrad/nn/sequential.h"
#include "interop/hugging_face.h"

namespace bitgrad::interop {

namespace {

// A .safetensors file, or shards.
class SafetensorsWeights final : public WeightFile {
 public:
  explicit SafetensorsWeights(const std::string& path) : files_(path) {}
  std::vector<WeightEntry> entries() const override {
    std::vector<WeightEntry> out;
    for (const std::string& name : files_.names()) {
      const SafetensorsEntry& e = files_.entry(name);
      out.push_back({name, e.dtype, Shape(e.shape), is_float_type(e.dtype)});
    }
    return out;
  }

 protected:
  Tensor values(const std::string& name) const override { return files_.floats(name); }

 private:
  HuggingFaceFiles files_;
};

class NpzWeights final : public WeightFile {
 public:
  explicit NpzWeights(const std::string& path) : file_(path) {}
  std::vector<WeightEntry> entries() const override {
    std::vector<WeightEntry> out;
    for (const NpzEntry& e : file_.entries()) out.push_back({e.name, e.descr, e.shape, e.floats});
    return out;
  }

 protected:
  Tensor values(const std::string& name) const override { return file_.floats(name); }

 private:
  NpzFile file_;
};

class GgufWeights final : public WeightFile {
 public:
  explicit GgufWeights(const std::string& path) : file_(GgufFile::read(path)) {}
  std::vector<WeightEntry> entries() const override {
    std::vector<WeightEntry> out;
    for (const GgufEntry& e : file_.entries()) {
      const std::string_view type = gguf_type(e.type).name;
      const bool whole = type.size() >= 2 && type[0] == 'I' && type[1] >= '0' && type[1] <= '9';
      out.push_back({e.name, std::string(type), Shape(e.shape), !whole});
    }
    return out;
  }

 protected:
  Tensor values(const std::string& name) const override {
    const DeviceGuard host(Device::cpu());
    const Tensor t = gguf_tensor(file_, name);
    return Tensor::from(t.to_vector(), t.shape(), dtypes::fp32, MemoryKind::kBuffer);
  }

 private:
  GgufFile file_;
};

}  // namespace

std::unique_ptr<WeightFile> WeightFile::open(const std::string& path) {
  if (path.ends_with(".npz")) return std::make_unique<NpzWeights>(path);
  if (path.ends_with(".gguf")) return std::make_unique<GgufWeights>(path);
  return std::make_unique<SafetensorsWeights>(path);
}

Tensor WeightFile::read(const std::string& name) const {
  Tensor t = values(name);
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
