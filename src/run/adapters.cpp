#include "bitgrad/run/adapters.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/log.h"
#include "bitgrad/io/safetensors.h"
#include "bitgrad/io/sha256.h"
#include "checkpoint/part.h"
#include "config/weight_names.h"
#include "run/adapter_files.h"

namespace bitgrad {
namespace {

constexpr const char* kTensors = "adapter_model.safetensors";
constexpr const char* kConfig = "adapter_config.json";
constexpr const char* kState = "bitgrad_state.safetensors";
constexpr int64_t kMostConfig = int64_t{1} << 24;  // bytes
using detail::PeftNames;
constexpr std::string_view kPrefix = detail::kPeftPrefix;
constexpr const char* kBase = "bitgrad.base";

struct Part {
  std::string name;  // tensor name in files
  Parameter* parameter;
};
std::vector<Part> parts_of(const std::vector<AdaptedLayer>& layers) {
  std::vector<Part> parts;
  for (const AdaptedLayer& l : layers) {
    parts.push_back({concat(kPrefix, l.layer, ".lora_A.weight"), &l.slot->adapter()->a()});
    parts.push_back({concat(kPrefix, l.layer, ".lora_B.weight"), &l.slot->adapter()->b()});
  }
  return parts;
}

std::vector<AdaptedLayer> layers_with_adapters(Module& model) {
  std::vector<AdaptedLayer> layers = adapted_layers(model);
  require(!layers.empty(), "adapters", "the model has no adapters");
  require(model.initialized(), "adapters", "the model has no values before initialize. Initialize or load it first.");
  return layers;
}

// The adapter_config.json of PEFT: r and lora_alpha for all layers, patterns for those that differ from the first.
// names: nullptr for our own.
Json config_of(const std::vector<AdaptedLayer>& layers, const std::vector<std::string>& modules, const PeftNames* names,
               const std::string& base) {
  const AdapterSpec& first = layers[0].slot->adapter()->adapter_spec();
  Json targets = Json::array(), ranks = Json::object(), alphas = Json::object();
  const auto add = [&](const std::string& module, const AdapterSpec& spec) {
    targets.push_back(module);
    if (spec.rank != first.rank) ranks[module] = spec.rank;
    if (spec.alpha != first.alpha) alphas[module] = spec.alpha;
  };
  for (const AdaptedLayer& l : layers) {
    const AdapterSpec& spec = l.slot->adapter()->adapter_spec();
    if (names == nullptr) {
      add(l.layer, spec);
      continue;
    }
    for (const PeftNames::Part& part : names->parts(l.layer)) add(part.module, spec);
  }
  Json config{{"peft_type", "LORA"},
              {"base_model_name_or_path", base.empty() ? Json(nullptr) : Json(base)},
              {"r", first.rank},
              {"lora_alpha", first.alpha},
              {"lora_dropout", first.dropout},
              {"bias", "none"},
              {"target_modules", std::move(targets)},
              {"rank_pattern", ranks},
              {"alpha_pattern", alphas},
              {"modules_to_save", modules.empty() ? Json(nullptr) : Json(modules)}};
  if (names != nullptr) {
    config["task_type"] = "CAUSAL_LM";
    config["fan_in_fan_out"] = names->transposed();
  }
  return config;
}

// Of the frozen fp32 parameters, which are the base model's; empty if there are none.
std::string base_hash(Module& model) {
  Sha256 hash;
  bool any = false;
  for (const Parameter* p : model.parameters()) {
    if (!p->spec().frozen || p->low_bit() || p->path().find(".adapter.") != std::string::npos) continue;
    const std::vector<float> values = p->value().on_host().to_vector();
    hash.update(concat(p->path(), '\n'));
    hash.update(values.data(), values.size() * sizeof(float));
    any = true;
  }
  return any ? hash.hex() : "";
}

// JSON of another program may have anything in its members.
template <typename Use>
auto reading(const std::string& path, Use use) {
  try {
    return use();
  } catch (const JsonError& e) {
    fail_with(ErrorCode::kData, "adapters", path, ": ", e.what());
  }
}

Json read_config(const std::string& path) {
  const std::vector<uint8_t> bytes = read_file(path, kMostConfig);
  return reading(
      path, [&] { return Json::parse(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())); });
}

// What of PEFT changes a result and is not read here.
void refuse_other_kinds(const Json& config, const std::string& path) {
  if (config.value("peft_type", "LORA") != "LORA")
    fail_with(ErrorCode::kData, "adapters", path, ": peft_type: got ", config.at("peft_type").dump(),
              ", expected LORA.");
  for (const char* key : {"use_dora", "use_qalora", "lora_bias", "alora_invocation_tokens", "layer_replication"})
    if (config.contains(key) && !config.at(key).is_null() && config.at(key) != Json(false))
      fail_with(ErrorCode::kData, "adapters", path, ": ", key, ": got ", config.at(key).dump(), ", which is not read.");
}

// Value for one layer: its pattern if there is one, otherwise the value for all layers.
double number_of(const Json& config, const char* all, const char* pattern, const std::string& layer) {
  if (config.contains(pattern) && config.at(pattern).contains(layer)) return config.at(pattern).at(layer).get<double>();
  return config.at(all).get<double>();
}

void check_config(const std::string& path, const Json& config, const std::vector<AdaptedLayer>& layers) {
  for (const AdaptedLayer& l : layers) {
    const AdapterSpec& spec = l.slot->adapter()->adapter_spec();
    const double rank = number_of(config, "r", "rank_pattern", l.layer);
    const double alpha = number_of(config, "lora_alpha", "alpha_pattern", l.layer);
    if (rank != static_cast<double>(spec.rank) || alpha != spec.alpha)
      fail_with(ErrorCode::kData, "adapters", path, ": '", l.layer, "' has rank ", rank, " and alpha ", alpha,
                ", the model's adapter rank ", spec.rank, " and alpha ", spec.alpha);
  }
}

// The file's tensor for each part; names may have PEFT's prefix or not.
std::map<std::string, Tensor> by_name(const NamedTensors& tensors) {
  std::map<std::string, Tensor> out;
  for (const auto& [name, t] : tensors) out[name.starts_with(kPrefix) ? name : concat(kPrefix, name)] = t;
  return out;
}

std::string mismatches(const std::vector<Part>& parts, const std::map<std::string, Tensor>& tensors,
                       std::set<std::string> known) {
  std::string text;
  for (const Part& part : parts) {
    known.insert(part.name);
    const auto found = tensors.find(part.name);
    const Shape& shape = part.parameter->shape();
    if (found == tensors.end())
      text += concat("\n  missing: ", part.name, ' ', shape);
    else if (found->second.shape() != shape)
      text += concat("\n  shape: ", part.name, " is ", found->second.shape(), ", the model has ", shape);
    else if (!found->second.dtype().is_float())
      text += concat("\n  dtype: ", part.name, " is ", found->second.dtype(), ", expected fp32, fp16 or bf16");
  }
  for (const auto& [name, t] : tensors)
    if (!known.count(name)) text += concat("\n  unexpected: ", name, ' ', t.shape());
  return text;
}

Tensor finite_values(const std::string& file, const std::string& name, const Tensor& t) {
  const std::vector<double> values = t.elements();
  for (size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i]))
      fail_with(ErrorCode::kNonFinite, "adapters", file, ": tensor '", name, "', element ", i, " is ", values[i]);
  return Tensor::from_elements(t.shape(), dtypes::fp32, values, MemoryKind::kWorkspace);
}

}  // namespace

SavedAdapters save_adapters(const std::string& folder, Module& model, const std::string& record,
                            const std::string& base) {
  const std::vector<AdaptedLayer> layers = layers_with_adapters(model);
  const detail::AdapterRest rest = detail::rest_of_adapters(model);
  for (const Parameter* p : rest.parameters)
    require(!p->read_only(), "adapters", "parameter '", p->path(),
            "' was opened to predict, without its master: load the run with LearnerUse::kTrain");
  NamedTensors tensors;
  for (const Part& part : parts_of(layers)) tensors[part.name] = part.parameter->value();
  for (const Parameter* p : rest.parameters) tensors[concat(kPrefix, p->path())] = p->value();
  for (const Module::Buffer& b : rest.buffers) tensors[concat(kPrefix, b.path)] = b.tensor;
  SavedAdapters saved{rest.modules, {}};
  std::vector<std::string> whole;
  for (const Parameter* p : rest.parameters) whole.push_back(p->path());
  const PeftNames names(record);
  saved.peft = rest.buffers.empty() && names.cover(layers, whole);
  if (saved.peft) {
    tensors = names.to_peft(tensors);
    std::set<std::string> modules;
    for (const std::string& path : whole) modules.insert(names.module_of(path));
    saved.modules.assign(modules.begin(), modules.end());
  }
  for (const Parameter* p : rest.beyond_parameters) saved.beyond.push_back(p->path());
  for (const Module::Buffer& b : rest.beyond_buffers) saved.beyond.push_back(b.path);
  file_system().make_directories(folder);
  const std::string state = folder + '/' + kState;
  FileGroup group;
  if (!saved.beyond.empty()) checkpoint::save_part(state, rest.beyond_parameters, rest.beyond_buffers, record);
  save_tensors(folder + '/' + kTensors, tensors, {{"format", "pt"}, {kBase, base_hash(model)}});
  const Json config = config_of(layers, saved.modules, saved.peft ? &names : nullptr, base);
  write_file_atomically(folder + '/' + kConfig, config.dump(2) + '\n');
  group.commit();
  if (saved.beyond.empty() && file_system().exists(state)) file_system().remove(state);  // of other adapters
  if (!saved.beyond.empty())
    log(LogLevel::kWarning, concat("PEFT's format has no place for ", detail::names_text(saved.beyond),
                                   ": they are in ", state, ", which only bitgrad reads"));
  return saved;
}

void load_adapters(const std::string& path, Module& model, const std::string& record) {
  const std::vector<AdaptedLayer> layers = layers_with_adapters(model);
  const bool folder = file_system().is_directory(path);
  const std::string file = folder ? path + '/' + kTensors : path;
  const std::vector<Part> parts = parts_of(layers);
  const std::string state = folder ? path + '/' + kState
                            : path.ends_with(kTensors)
                                ? path.substr(0, path.size() - std::string_view(kTensors).size()) + kState
                                : std::string();
  std::vector<Tensor> values;
  detail::RestValues rest;
  {
    const DeviceGuard cpu(Device::cpu());
    std::map<std::string, Tensor> tensors = by_name(load_tensors(file));
    const std::string config_path = file.substr(0, file.rfind('/') + 1) + kConfig;
    const Json config = file_system().exists(config_path) ? read_config(config_path) : Json(nullptr);
    bool own = true;
    if (!config.is_null()) {
      refuse_other_kinds(config, config_path);
      const auto has_own = [&](const Part& part) { return tensors.count(part.name) > 0; };
      own = std::any_of(parts.begin(), parts.end(), has_own);
    }
    const PeftNames names(record);
    const std::string others = names.other_layers(tensors, layers);
    if (!own) tensors = reading(config_path, [&] { return names.from_peft(std::move(tensors), layers, config); });
    std::string wrong;
    rest = detail::rest_values(model, tensors, kPrefix, wrong);
    if (const std::string text = mismatches(parts, tensors, rest.names) + wrong; !text.empty())
      fail_with(ErrorCode::kData, "adapters", file, " does not hold the adapters of this model:", text, others);
    if (own && config.is_null())
      log(LogLevel::kWarning, concat(config_path, " is missing: that the adapters of ", file,
                                     " have the model's alpha is not known, and is assumed"));
    else if (own)
      reading(config_path, [&] { check_config(config_path, config, layers); });
    for (const Part& part : parts) values.push_back(finite_values(file, part.name, tensors.at(part.name)));
    for (detail::RestValues::Item& item : rest.items) item.values = finite_values(file, item.name, item.values);
  }
  for (size_t i = 0; i < parts.size(); ++i) parts[i].parameter->assign(values[i], 0);
  detail::take(rest);
  std::set<std::string> taken = rest.paths();
  if (!state.empty() && file_system().exists(state))
    for (const std::string& name : checkpoint::take_part(state, model).taken) taken.insert(name);
  detail::warn_of_missing(model, taken, path);
  const auto metadata = SafetensorsFile::open(file).metadata();
  const auto base = metadata.find(kBase);
  if (base != metadata.end() && !base->second.empty() && base->second != base_hash(model))
    log(LogLevel::kWarning,
        concat("adapters from ", path,
               " were trained over another base model: weights that are frozen here differ from ",
               "those there, or others are frozen. Give the base of the adapters in model.init_from"));
}

}  // namespace bitgrad
