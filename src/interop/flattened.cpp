#include "interop/flattened.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "bitgrad/nn/layers.h"

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
