#include "run/adapter_files.h"

#include <algorithm>
#include <cmath>

#include "bitgrad/base/error.h"
#include "bitgrad/base/log.h"
#include "bitgrad/base/text.h"
#include "bitgrad/checkpoint/model_record.h"
#include "interop/decoder_files.h"
#include "nn/glob.h"

namespace bitgrad::detail {
namespace {

constexpr std::string_view kWeightEnd = ".weight", kLoraA = ".lora_A.weight", kLoraB = ".lora_B.weight";

std::string without_end(const std::string& name, std::string_view end) {
  return name.substr(0, name.size() - end.size());
}

// For a layer by its name: the number of its pattern, which PEFT matches at the end of names, or that of all.
double peft_number(const Json& config, const char* all, const char* pattern, const std::string& module) {
  if (config.contains(pattern) && config.at(pattern).is_object())
    for (const auto& [name, value] : config.at(pattern).members())
      if (module == name || module.ends_with('.' + name)) return value.get<double>();
  return config.at(all).get<double>();
}

double scale_of(const Json& config, const std::string& module) {
  const double rank = peft_number(config, "r", "rank_pattern", module);
  const bool root = config.value("use_rslora", false);
  return peft_number(config, "lora_alpha", "alpha_pattern", module) / (root ? std::sqrt(rank) : rank);
}

// Its values plus a number, in fp32. What is not in floats stays as it is, and is refused where it is taken.
Tensor plus(const Tensor& t, double number) {
  if (number == 0 || !t.dtype().is_float()) return t;
  std::vector<double> values = t.on_host().elements();
  for (double& x : values) x += number;
  return Tensor::from_elements(t.shape(), dtypes::fp32, values, MemoryKind::kWorkspace);
}

// The same less a number, as a file holds it. Warns of values that are others when it is added again.
Tensor less(const Tensor& t, double number, const std::string& path) {
  if (number == 0) return t;
  Tensor out = plus(t, -number);
  const std::vector<double> before = t.on_host().elements(), after = plus(out, number).on_host().elements();
  double apart = 0;
  for (size_t i = 0; i < before.size(); ++i) apart = std::max(apart, std::abs(after[i] - before[i]));
  if (apart > 0)
    log(LogLevel::kWarning, concat(path, ": the file has its values less ", number,
                                   ", rounded to fp32: when they are read, they differ by up to ", apart));
  return out;
}

// A and B of one weight from those of its parts.
class Joined {
 public:
  Joined(const AdaptedLayer& layer, int64_t outputs) : layer_(layer), outputs_(outputs) {}

  void add(const PeftNames::Part& part, const Tensor& a, const Tensor& b, double scale) {
    const bool fits = a.shape().rank() == 2 && b.shape().rank() == 2 && a.shape()[0] == b.shape()[1] &&
                      b.shape()[0] == part.rows && a.dtype().is_float() && b.dtype().is_float();
    if (!fits)
      fail_with(ErrorCode::kData, "adapters", part.module, ": got lora_A ", a, " and lora_B ", b,
                ", expected lora_B of ", part.rows, " rows and as many columns as lora_A has rows.");
    const std::vector<double> values = a.elements();
    int64_t first = 0;  // its rows in A
    const auto same = std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& x) { return x.values == values; });
    if (same != blocks_.end()) {
      first = same->first;
    } else {
      first = rank_;
      rank_ += a.shape()[0];
      blocks_.push_back({first, values});
    }
    pieces_.push_back({part.begin, part.rows, first, a.shape()[0], b.elements(), scale});
  }

  Tensor a() const {
    check();
    const LowRankAdapter& adapter = *layer_.slot->adapter();
    std::vector<double> all = adapter_a().elements();  // rows that are not needed keep their first values
    for (const Block& block : blocks_)
      std::copy(block.values.begin(), block.values.end(), all.begin() + block.first * cols());
    return Tensor::from_elements({adapter.adapter_spec().rank, cols()}, dtypes::fp32, all, MemoryKind::kWorkspace);
  }
  Tensor b() const {
    const AdapterSpec& spec = layer_.slot->adapter()->adapter_spec();
    std::vector<double> all(static_cast<size_t>(outputs_ * spec.rank));
    for (const Piece& p : pieces_)
      for (int64_t r = 0; r < p.rows; ++r)
        for (int64_t c = 0; c < p.rank; ++c)
          all[static_cast<size_t>((p.begin + r) * spec.rank + p.first + c)] =
              p.values[static_cast<size_t>(r * p.rank + c)] * p.scale / (spec.alpha / static_cast<double>(spec.rank));
    return Tensor::from_elements({outputs_, spec.rank}, dtypes::fp32, all, MemoryKind::kWorkspace);
  }

 private:
  struct Block {
    int64_t first;
    std::vector<double> values;
  };
  struct Piece {
    int64_t begin, rows, first, rank;
    std::vector<double> values;
    double scale;
  };
  Tensor adapter_a() const { return layer_.slot->adapter()->a().value().on_host(); }
  int64_t cols() const { return layer_.slot->adapter()->a().shape()[1]; }
  void check() const {
    const int64_t rank = layer_.slot->adapter()->adapter_spec().rank;
    if (rank_ > rank)
      fail_with(ErrorCode::kData, "adapters", layer_.layer, ": its parts in PEFT's file (such as q, k and v) have ",
                blocks_.size(), " lora_A of their own, ", rank_,
                " rows together; they are one weight here, whose adapter ", "has rank ", rank,
                ". Set adapters.rank to ", rank_, " (alpha / rank is taken from PEFT's file).");
    for (const Block& block : blocks_)
      if (std::ssize(block.values) % cols() != 0)
        fail_with(ErrorCode::kData, "adapters", layer_.layer, ": got a lora_A of ", block.values.size(),
                  " values, expected rows of ", cols(), '.');
  }

  const AdaptedLayer& layer_;
  const int64_t outputs_;
  int64_t rank_ = 0;
  std::vector<Block> blocks_;
  std::vector<Piece> pieces_;
};

}  // namespace

PeftNames::PeftNames(const std::string& record) {
  if (record.empty()) return;
  try {
    const FoundDecoder found = find_decoder(parse_model_record(record).model);
    const interop::Family& family = interop::chosen_family("", found.decoder);
    interop::check_fits(found, family, interop::FileFormat::kHuggingFace);
    for (const auto& m : interop::tensor_map(found, family, interop::FileFormat::kHuggingFace)) {
      if (m.parameter.empty()) continue;
      const bool product = m.matrix && (!m.embedding || m.name == "lm_head.weight");
      if (product)
        parts_[without_end(m.parameter, kWeightEnd)].push_back({without_end(m.name, kWeightEnd), m.begin, m.shape[0]});
      else if (!m.matrix && m.begin == 0)
        whole_[m.parameter] = {m.name, m.offset};
      transposed_ = transposed_ || m.transposed;
    }
  } catch (const Error&) {
    parts_.clear();  // no decoder, or one of no family: our own names
    whole_.clear();
  }
}

bool PeftNames::cover(const std::vector<AdaptedLayer>& layers, const std::vector<std::string>& parameters) const {
  return std::all_of(layers.begin(), layers.end(), [&](const AdaptedLayer& l) { return parts_.count(l.layer) > 0; }) &&
         std::all_of(parameters.begin(), parameters.end(), [&](const std::string& p) { return whole_.count(p) > 0; });
}

std::string PeftNames::module_of(const std::string& path) const {
  const std::string& name = whole_.at(path).name;
  return name.substr(0, name.rfind('.'));
}

std::string PeftNames::other_layers(const std::map<std::string, Tensor>& tensors,
                                    const std::vector<AdaptedLayer>& layers) const {
  std::set<std::string> held, adapted;
  for (const AdaptedLayer& l : layers) adapted.insert(l.layer);
  for (const auto& [layer, parts] : parts_)
    if (tensors.count(concat(kPeftPrefix, layer, kLoraA)) > 0 ||
        std::any_of(parts.begin(), parts.end(),
                    [&](const Part& p) { return tensors.count(concat(kPeftPrefix, p.module, kLoraA)) > 0; }))
      held.insert(layer);
  if (held.empty() || held == adapted) return "";
  return concat("\nThe file has adapters of ", joined(held), ". Set adapters.layers to [\"",
                joined(globs_of(held), "\", \""), "\"].");
}

// Blocks differ in one number of their path: a `*` in its place, if it matches no other layer.
std::set<std::string> PeftNames::globs_of(const std::set<std::string>& layers) const {
  std::set<std::string> globs;
  for (const std::string& layer : layers) {
    std::string best = layer;
    int64_t most = 1;
    for (size_t from = 0; from < layer.size();) {
      const size_t to = std::min(layer.find('.', from), layer.size());
      const std::string glob = concat(layer.substr(0, from), '*', layer.substr(to));
      int64_t good = 0, bad = 0;
      for (const auto& [other, parts] : parts_)
        if (glob_matches(glob, other)) ++(layers.count(other) > 0 ? good : bad);
      if (bad == 0 && good > most && layer.substr(from, to - from).find_first_not_of("0123456789") == std::string::npos)
        best = glob, most = good;
      from = to + 1;
    }
    globs.insert(best);
  }
  return globs;
}

NamedTensors PeftNames::to_peft(const NamedTensors& tensors) const {
  NamedTensors out;
  for (const auto& [name, tensor] : tensors) {
    const std::string own = name.substr(kPeftPrefix.size());
    if (const auto whole = whole_.find(own); whole != whole_.end()) {
      out[concat(kPeftPrefix, whole->second.name)] = less(tensor, whole->second.offset, own);
      continue;
    }
    const bool first = own.ends_with(kLoraA);
    const auto parts = parts_.find(without_end(own, first ? kLoraA : kLoraB));
    ensure(parts != parts_.end(), "adapters", "a tensor without a name of PEFT");
    for (const Part& part : parts->second)
      out[concat(kPeftPrefix, part.module, first ? kLoraA : kLoraB)] =
          first ? tensor : tensor.on_host().row_slice(part.begin, part.begin + part.rows);
  }
  return out;
}

std::map<std::string, Tensor> PeftNames::from_peft(std::map<std::string, Tensor> tensors,
                                                   const std::vector<AdaptedLayer>& layers, const Json& config) const {
  for (const auto& [path, whole] : whole_)
    if (auto node = tensors.extract(concat(kPeftPrefix, whole.name)); !node.empty()) {
      node.key() = concat(kPeftPrefix, path);
      node.mapped() = plus(node.mapped(), whole.offset);
      tensors.insert(std::move(node));
    }
  for (const AdaptedLayer& layer : layers) {
    const auto parts = parts_.find(layer.layer);
    if (parts == parts_.end()) continue;
    Joined joined(layer, layer.slot->weight().shape()[0]);
    bool any = false;
    for (const Part& part : parts->second) {
      const std::string name = concat(kPeftPrefix, part.module);
      const auto a = tensors.find(concat(name, kLoraA)), b = tensors.find(concat(name, kLoraB));
      if (a == tensors.end() || b == tensors.end()) continue;  // not a target there: its rows of B are zeros
      joined.add(part, a->second, b->second, scale_of(config, part.module));
      tensors.erase(a);
      tensors.erase(b);
      any = true;
    }
    if (!any) continue;
    tensors[concat(kPeftPrefix, layer.layer, kLoraA)] = joined.a();
    tensors[concat(kPeftPrefix, layer.layer, kLoraB)] = joined.b();
  }
  return tensors;
}

}  // namespace bitgrad::detail
