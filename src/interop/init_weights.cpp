// Initializes a model from a file of another program: all names, shapes and orders are checked before any value
// changes.
#include "interop/weight_file.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/data/npz.h"
#include "bitgrad/interop/interop.h"
#include "bitgrad/io/gguf.h"
#include "bitgrad/io/safetensors.h"
#include "bitgrad/nn/layers.h"
#include "checkpoint/part.h"
#include "config/weight_names.h"
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

namespace {

using interop::WeightEntry;
using interop::WeightFile;

constexpr std::string_view kInit = "init_from";
constexpr size_t kListed = 20;  // of each kind of mismatch

// A parameter or buffer of the model.
struct Target {
  std::string path;
  Parameter* parameter = nullptr;  // nullptr: a buffer
  Tensor buffer = {};
  Shape shape = {}, logical = {};
  std::optional<Shape> image = {};  // if the columns are a flattened image: [h, w, c]
};

// The tensor for a target, and how its elements must be reordered.
struct Match {
  const Target* target = nullptr;
  const WeightEntry* entry = nullptr;
  bool transpose = false, oihw = false;
  std::vector<int64_t> chw = {};
};

std::vector<Target> targets_of(Module& model, const std::set<std::string>& own, InitFrom& found) {
  const std::map<std::string, Shape> flattened = interop::flattened_images(model);
  std::vector<Target> out;
  const auto add = [&](Target target) {
    if (const auto at = flattened.find(target.path); at != flattened.end()) target.image = at->second;
    out.push_back(std::move(target));
  };
  for (Parameter* p : model.parameters()) {
    if (own.count(p->path()))
      found.fresh.push_back(p->path());
    else
      add({p->path(), p, {}, p->shape(), p->logical_shape(), {}});
  }
  for (const Module::Buffer& b : model.buffers()) {
    if (own.count(b.path) || b.tensor.dtype() != dtypes::fp32)
      found.fresh.push_back(b.path);
    else
      add({b.path, nullptr, b.tensor, b.tensor.shape(), b.tensor.shape(), {}});
  }
  return out;
}

// Lists of mismatches, by kind.
class Mismatches {
 public:
  template <typename... Parts>
  void add(const std::string& kind, const Parts&... parts) {
    std::vector<std::string>& list = lists_[kind];
    ++counts_[kind];
    if (list.size() < kListed) list.push_back(concat(parts...));
  }
  void check(const std::string& path) const {
    if (lists_.empty()) return;
    std::string text;
    for (const auto& [kind, list] : lists_) {
      for (const std::string& line : list) text += concat("\n  ", kind, ": ", line);
      const size_t count = counts_.at(kind);
      if (count > list.size()) text += concat("\n  ", kind, ": and ", count - list.size(), " more");
    }
    fail_with(ErrorCode::kData, kInit, path, " does not fit this model:", text,
              "\nmodel.rename names tensors: {layers.0: fc1}; model.ignore leaves tensors of the file out");
  }

 private:
  std::map<std::string, std::vector<std::string>> lists_;
  std::map<std::string, size_t> counts_;
};

class Matcher {
 public:
  Matcher(const WeightFile& file, const WeightMap& map) : map_(map), entries_(file.entries()) {
    for (const WeightEntry& e : entries_) by_name_[e.name] = &e;
    rule_used_.resize(map.names.size());
  }

  std::vector<Match> matches(const std::vector<Target>& targets, const std::string& path) {
    std::vector<Match> out;
    for (const Target& target : targets)
      if (const auto match = match_of(target)) out.push_back(*match);
    for (const WeightEntry& e : entries_)
      if (!used_.count(e.name) && !ignored(e.name)) wrong_.add("unexpected", e.name, ' ', e.shape, ' ', e.type);
    for (size_t i = 0; i < rule_used_.size(); ++i)
      if (!rule_used_[i]) wrong_.add("rename", '\'', map_.names[i].parameter, "' matches no parameter of the model");
    wrong_.check(path);
    return out;
  }
  // What is not used, and what model.ignore leaves out, there and here.
  void list_unused(InitFrom& found) const {
    for (const WeightEntry& e : entries_)
      if (!used_.count(e.name)) (left_out_.ignored(e.name) ? found.ignored : found.skipped).push_back(e.name);
    found.own = own_;
    left_out_.require_used();
  }

 private:
  bool ignored(const std::string& name) const {
    constexpr std::string_view kCounter = "num_batches_tracked";
    return name == kCounter || name.ends_with(concat('.', kCounter)) || left_out_.ignored(name);
  }
  std::optional<Match> match_of(const Target& target) {
    const WeightName* rule = nullptr;
    std::optional<std::string> name;
    for (size_t i = 0; i < map_.names.size(); ++i)
      if (auto given = interop::renamed(map_.names[i], target.path)) {
        name = std::move(given);
        rule = &map_.names[i];
        rule_used_[i] = true;
      }
    std::string tried;
    bool ignores = false;
    for (const std::string& candidate : interop::candidate_names(target.path, name)) {
      ignores = ignores || left_out_.ignored(candidate);
      if (const auto found = by_name_.find(candidate); found != by_name_.end() && !ignores)
        return oriented(target, *found->second, rule);
      tried += concat(tried.empty() ? "" : ", ", candidate);
    }
    if (ignores) {
      own_.push_back(target.path);
      return std::nullopt;
    }
    wrong_.add("missing", target.path, ' ', target.logical, ": no tensor ", tried);
    return std::nullopt;
  }
  std::optional<Match> oriented(const Target& target, const WeightEntry& e, const WeightName* rule) {
    if (!used_.insert(e.name).second) wrong_.add("twice", e.name, " for ", target.path, " and another parameter");
    if (!e.floats) {
      wrong_.add("dtype", e.name, ' ', e.type, " for ", target.path, ", expected floats");
      return std::nullopt;
    }
    Match match{&target, &e};
    const bool image = target.logical.rank() == 4 && !(rule != nullptr && rule->ohwi);
    Shape expected = target.logical;
    if (image) expected = {expected[0], expected[3], expected[1], expected[2]};
    if (rule != nullptr && rule->transpose && target.shape.rank() == 2 && !image) {
      expected = {target.shape[1], target.shape[0]};
      match.transpose = true;
    }
    const bool matrix = image && e.shape == target.shape;  // a matrix [O, h*w*c] is already in our order
    match.oihw = image && !matrix;
    if (e.shape != expected && !matrix) {
      wrong_.add("shape", e.name, ' ', e.shape, " for ", target.path, ' ', target.logical, ", expected ", expected,
                 image ? " (OIHW; a rule may say ohwi)" : "");
      return std::nullopt;
    }
    if (rule != nullptr && !rule->chw.empty())
      match.chw = rule->chw;
    else if (target.image)
      match.chw = {(*target.image)[2], (*target.image)[0], (*target.image)[1]};
    if (!match.chw.empty() && Shape(match.chw).numel() != target.shape.cols())
      wrong_.add("shape", e.name, ": chw", Shape(match.chw), " has ", Shape(match.chw).numel(), " elements, ",
                 target.path, " has ", target.shape.cols(), " inputs");
    return match;
  }

  const WeightMap& map_;
  mutable interop::IgnoredNames left_out_{map_.ignore};
  std::vector<std::string> own_;
  std::vector<WeightEntry> entries_;
  std::map<std::string, const WeightEntry*> by_name_;
  std::set<std::string> used_;
  std::vector<bool> rule_used_;
  Mismatches wrong_;
};

// Reorders the elements to [rows, cols] of the target.
Tensor transposed(const Tensor& from, const Match& match) {
  const Target& target = *match.target;
  const int64_t rows = target.shape.rows(), cols = target.shape.cols();
  Tensor to = Tensor::empty(target.shape, dtypes::fp32, MemoryKind::kBuffer, Device::cpu());
  const float* const x = from.as<float>();
  float* const y = to.as<float>();
  // Position in a row of the file of column k.
  std::vector<int64_t> place(static_cast<size_t>(cols));
  for (int64_t k = 0; k < cols; ++k) place[static_cast<size_t>(k)] = k;
  const auto from_chw = [&](int64_t c, int64_t h, int64_t w) {
    for (int64_t k = 0; k < cols; ++k) place[static_cast<size_t>(k)] = (k % c) * h * w + k / c;
  };
  if (match.oihw) from_chw(target.logical[3], target.logical[1], target.logical[2]);
  if (!match.chw.empty()) from_chw(match.chw[0], match.chw[1], match.chw[2]);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t k = 0; k < cols; ++k) {
      const int64_t at = place[static_cast<size_t>(k)];
      y[r * cols + k] = match.transpose ? x[at * rows + r] : x[r * cols + at];
    }
  return to;
}

bool written_by_bitgrad(const std::string& path) {
  return SafetensorsFile::open(path).metadata().contains("bitgrad.state");
}

}  // namespace

bool is_weight_file(const std::string& path) {
  if (path.ends_with(".npz") || path.ends_with(".gguf") || path.ends_with(".index.json")) return true;
  if (file_system().is_directory(path))
    return !file_system().exists(path + "/config.yaml") &&
           (file_system().exists(path + "/model.safetensors") ||
            file_system().exists(path + "/model.safetensors.index.json"));
  return path.ends_with(".safetensors") && file_system().exists(path) && !written_by_bitgrad(path);
}

InitFrom init_from_weights(const std::string& path, Module& model, const WeightMap& map, int64_t step) {
  const WeightFile file(path);
  std::set<std::string> names;
  for (const WeightEntry& e : file.entries()) names.insert(e.name);
  const std::set<std::string> own =
      checkpoint::own_values(model, [&](const std::string& at) { return names.count(at) > 0; });
  InitFrom found;
  const std::vector<Target> targets = targets_of(model, own, found);
  Matcher matcher(file, map);
  const std::vector<Match> matches = matcher.matches(targets, path);
  std::vector<Tensor> values;
  for (const Match& match : matches) values.push_back(transposed(file.read(match.entry->name), match));
  for (size_t i = 0; i < matches.size(); ++i) {
    const Target& target = *matches[i].target;
    if (target.parameter != nullptr)
      target.parameter->assign(values[i], step);
    else
      target.buffer.copy_from(target.buffer.device().is_cpu()
                                  ? values[i]
                                  : values[i].to_device(target.buffer.device(), MemoryKind::kBuffer));
    found.taken.push_back(target.path);
  }
  matcher.list_unused(found);
  return found;
}

}  // namespace bitgrad
