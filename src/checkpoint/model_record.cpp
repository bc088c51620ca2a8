#include "bitgrad/checkpoint/model_record.h"

#include <algorithm>
#include <set>

#include "base/registration.h"
#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/quant/scheme.h"
#include "checkpoint/load.h"
#include "checkpoint/records.h"
#include "io/metadata.h"
#include "nn/expanded_layers.h"

namespace bitgrad {
namespace {

using detail::parse_metadata;
using detail::whole_number;

constexpr int64_t kMaxRank = 8, kMaxAxis = int64_t{1} << 40;
constexpr int kMaxDepth = 120;  // nesting of containers
constexpr const char* kKey = "bitgrad.model";

// Conversion of each type to JSON (put) and back (get).
Json put(bool x) { return x; }
Json put(int64_t x) { return x; }
Json put(float x) { return static_cast<double>(x); }
Json put(double x) { return x; }
Json put(const std::string& x) { return x; }
Json put(const std::vector<int64_t>& x) { return x; }
Json put(const std::vector<double>& x) { return x; }
Json put(DType x) { return x.name(); }
template <NamedEnum E>
Json put(E x) {
  return enum_name(x);
}
Json put(const Init& x) { return {{"name", x.name}, {"a", x.a}, {"b", x.b}}; }
Json put(const Granularity& g) {
  return {{"kind", static_cast<int64_t>(g.kind)}, {"axis", g.axis}, {"group", g.group}, {"text", concat(g)}};
}
Json put(const QuantSpec& x);
Json put(const ObserverSpec& x);
template <typename T>
Json put(const std::optional<T>& x) {
  return x ? put(*x) : Json(nullptr);
}

void get(const Json& j, bool& x) { x = j.get<bool>(); }
void get(const Json& j, int64_t& x) { x = j.get<int64_t>(); }
void get(const Json& j, float& x) { x = j.get<float>(); }
void get(const Json& j, double& x) { x = j.get<double>(); }
void get(const Json& j, std::string& x) { x = j.text(); }
void get(const Json& j, DType& x) { x = parse_dtype(j.text()); }
template <NamedEnum E>
void get(const Json& j, E& x) {
  const std::optional<E> found = find_enum<E>(j.text());
  require(found.has_value(), kKey, "got '", j.text(), "', which this program does not know");
  x = *found;
}
void get(const Json& j, Init& x) {
  get(j.at("name"), x.name);
  get(j.at("a"), x.a);
  get(j.at("b"), x.b);
}
void get(const Json& j, Granularity& g) {
  g.kind = static_cast<Granularity::Kind>(whole_number(j.at("kind"), "kind", 0, Granularity::kGroup));
  g.axis = whole_number(j.at("axis"), "axis", -1, 1);
  g.group = whole_number(j.at("group"), "group", 0, int64_t{1} << 31);
}
void get(const Json& j, QuantSpec& x);
void get(const Json& j, ObserverSpec& x);
template <typename T>
void get(const Json& j, std::optional<T>& x) {
  if (j.is_null())
    x.reset();
  else
    get(j, x.emplace());
}

// The members of each struct, listed once for both directions.
// Beside visit_quant of quant/scheme.h.
template <typename V, typename T>
void visit_alpha(V&& v, T& x) {
  v("alpha", x.alpha), v("ste_t", x.ste_t), v("ste_t_first", x.ste_t_first), v("ste_t_last", x.ste_t_last);
}
template <typename V, typename T>
void visit_observer(V&& v, T& x) {
  v("name", x.name), v("momentum", x.momentum), v("percentile", x.percentile);
}
template <typename V, typename T>
void visit_weight(V&& v, T& x) {
  v("quant", x.quant), v("grad", x.grad), v("init", x.init), v("latent_clamp", x.latent_clamp), v("master", x.master);
  v("moments", x.moments), v("optimizer", x.optimizer), v("lr_factor", x.lr_factor), v("weight_decay", x.weight_decay);
  v("floor", x.floor), v("frozen", x.frozen), v("learned_lr_factor", x.learned.lr_factor);
  v("learned_weight_decay", x.learned.weight_decay);
}
template <typename V, typename T>
void visit_slot(V&& v, T& x) {
  v("recipe", x.recipe), v("weight", x.weight), v("input", x.input), v("observer", x.observer), v("compute", x.compute);
  v("master", x.master), v("grad", x.grad), v("latent_clamp", x.latent_clamp), v("input_grad", x.input_grad);
  v("learned_lr_factor", x.learned.lr_factor), v("learned_weight_decay", x.learned.weight_decay);
}
template <typename V, typename T>
void visit_adapter(V&& v, T& x) {
  v("rank", x.rank), v("alpha", x.alpha), v("dropout", x.dropout);
}
template <typename V, typename T>
void visit_product(V&& v, T& x) {
  v("compute", x.compute), v("gx", x.gx), v("gw", x.gw), v("gradient_rounding", x.rounding);
  v("gx_per_group", x.per_group);
}
template <typename V, typename T>
void visit_activation(V&& v, T& x) {
  v("quant", x.spec), v("grad", x.grad), v("observer", x.observer);
  v("learned_lr_factor", x.learned.lr_factor), v("learned_weight_decay", x.learned.weight_decay);
}

struct Put {
  Json& to;
  template <typename T>
  void operator()(const char* key, const T& x) const {
    to[key] = put(x);
  }
};
struct Get {
  const Json& from;
  template <typename T>
  void operator()(const char* key, T& x) const {
    get(from.at(key), x);
  }
};
// A member that the file's program did not know keeps its default.
struct GetKnown {
  const Json& from;
  template <typename T>
  void operator()(const char* key, T& x) const {
    if (from.contains(key)) get(from.at(key), x);
  }
};

Json put(const Attributes& x) {
  Json j = Json::object();
  for (const auto& [key, value] : x.values()) j[key] = std::visit([](const auto& v) { return put(v); }, value.value());
  return j;
}
Attribute attribute_of(const Json& j) {
  if (j.is_bool()) return j.get<bool>();
  if (j.is_integer()) return j.get<int64_t>();
  if (j.is_number()) return j.get<double>();
  if (!j.is_array()) return j.text();
  const bool whole = std::all_of(j.begin(), j.end(), [](const Json& item) { return item.is_integer(); });
  return whole ? Attribute(j.get<std::vector<int64_t>>()) : Attribute(j.get<std::vector<double>>());
}
void get(const Json& j, Attributes& x) {
  for (const auto& [key, value] : j.members()) x[key] = attribute_of(value);
}
// What a plugin registered when the file was written must be registered when it is read.
void check_known(std::string_view what, const std::string& name, bool known, const Json& j) {
  const std::string plugin = j.value("plugin", "");
  require(known || plugin.empty(), kKey, what, " '", name, "' is not known: it came from plugin ", plugin,
          ". Name the plugin: --plugin PATH, or load_plugin in a program");
}

Json put(const QuantSpec& x) {
  Json j;
  visit_quant(
      [&](std::string_view key, const auto& member) {
        if (!is_left_out(key, x)) j[key] = put(member);
      },
      x);
  visit_alpha(Put{j}, x);
  if (!x.keys.values().empty()) j["keys"] = put(x.keys);
  if (const std::string plugin = detail::plugin_of("scheme", x.scheme); !plugin.empty()) j["plugin"] = plugin;
  return j;
}
Json put(const ObserverSpec& x) {
  Json j;
  visit_observer(Put{j}, x);
  return j;
}
void get(const Json& j, QuantSpec& x) {
  get(j.at("dtype"), x.dtype), get(j.at("scheme"), x.scheme);
  visit_quant(GetKnown{j}, x);
  visit_alpha(Get{j}, x);
  if (j.contains("keys")) get(j.at("keys"), x.keys);
  const std::vector<std::string_view> schemes = quantizer_names();
  check_known("scheme", x.scheme, std::find(schemes.begin(), schemes.end(), x.scheme) != schemes.end(), j);
}
void get(const Json& j, ObserverSpec& x) { visit_observer(Get{j}, x); }

Json put_layers(const std::vector<LayerSpec>& layers);
Json put_layer(const LayerSpec& x) {
  const LayerKind& kind = kind_of(x);
  Json j{{"kind", x.kind}};
  if (const std::string plugin = detail::plugin_of("a layer kind", x.kind); !plugin.empty()) j["plugin"] = plugin;
  if (!x.name.empty()) j["name"] = x.name;
  j["attributes"] = put(x.attributes);
  if (kind.weights) {
    visit_weight(Put{j["weight"]}, x.weight);
    Put{j["weight"]}("matrices", x.weight.matrices);
  }
  if (kind.product) visit_product(Put{j["product"]}, x.product);
  if (kind.quantizer != LayerKind::Quantizer::kNone) visit_activation(Put{j["quantizer"]}, *x.activation);
  if (x.lists.empty()) return j;
  Json lists = Json::array();
  for (const LayerList& list : x.lists) {
    Json item{{"key", list.key}};
    item["layers"] = put_layers(list.layers);
    lists.push_back(std::move(item));
  }
  j["lists"] = std::move(lists);
  return j;
}
Json put_layers(const std::vector<LayerSpec>& layers) {
  Json list = Json::array();
  for (const LayerSpec& layer : layers) list.push_back(put_layer(layer));
  return list;
}

std::vector<LayerSpec> get_layers(const Json& list);
LayerSpec get_layer(const Json& j) {
  LayerSpec x;
  x.kind = j.at("kind").text();
  check_known("layer kind", x.kind, find_layer_kind(x.kind) != nullptr, j);
  const LayerKind& kind = kind_of(x);
  x.name = j.value("name", "");
  get(j.at("attributes"), x.attributes);
  if (kind.weights) {
    visit_weight(Get{j.at("weight")}, x.weight);
    GetKnown{j.at("weight")}("matrices", x.weight.matrices);
  }
  if (kind.product) visit_product(Get{j.at("product")}, x.product);
  if (kind.quantizer != LayerKind::Quantizer::kNone) visit_activation(Get{j.at("quantizer")}, x.activation.emplace());
  if (j.contains("lists"))
    for (const Json& list : j.at("lists")) x.lists.push_back({list.at("key").text(), get_layers(list.at("layers"))});
  return x;
}
std::vector<LayerSpec> get_layers(const Json& list) {
  std::vector<LayerSpec> layers;
  for (const Json& layer : list) layers.push_back(get_layer(layer));
  return layers;
}

Json put_form(const Form& form) {
  Json j{{"sample", form.sample.dims()}, {"dtype", put(form.dtype)}, {"ids", form.ids}};
  if (form.values != dtypes::fp32) j["values"] = put(form.values);
  return j;
}
Form get_form(const Json& j) {
  Form form;
  std::vector<int64_t> dims;
  for (const Json& size : j.at("sample")) dims.push_back(whole_number(size, "sample", 0, kMaxAxis));
  require(std::ssize(dims) <= kMaxRank, kKey, "sample: got ", dims.size(), " axes, expected at most ", kMaxRank);
  form.sample = Shape(std::move(dims));
  get(j.at("dtype"), form.dtype);
  form.ids = whole_number(j.at("ids"), "ids", 0, kMaxAxis);
  if (j.contains("values")) get(j.at("values"), form.values);
  return form;
}

// Collects the layers of a sequence. Returns false if one was not made from a spec.
bool specs_of(Sequential& model, std::vector<LayerSpec>& specs) {
  for (size_t i = 0; i < model.size(); ++i) {
    const LayerSpec* const spec = model[i].spec();
    auto* const inner = dynamic_cast<Sequential*>(&model[i]);
    LayerSpec layer;
    if (spec != nullptr) {
      layer = *spec;
    } else if (inner != nullptr) {
      layer.kind = "sequence";
      std::vector<LayerSpec> layers;
      if (!specs_of(*inner, layers)) return false;
      layer.lists.emplace_back("layers", std::move(layers));
    } else {
      return false;
    }
    layer.name = model.name(i) == std::to_string(i) ? "" : model.name(i);
    specs.push_back(std::move(layer));
  }
  return true;
}

void check_shapes(const FileForm& form, Module& model) {
  for (const auto& [path, parameter] : model.parameters_at(kModelRoot)) {
    const auto found = form.parameters.find(path);
    if (found == form.parameters.end() || found->second != parameter->shape())
      fail_with(ErrorCode::kData, "checkpoint", form.path, ": its model has parameter '", path, "' ",
                parameter->shape(), ", the file has ", found == form.parameters.end() ? "none" : concat(found->second));
  }
}

}  // namespace

std::optional<ModelRecord> model_record(Learner& learner) {
  auto* const root = dynamic_cast<Sequential*>(&learner.model());
  ModelRecord record;
  if (root == nullptr || learner.input() == nullptr || !specs_of(*root, record.model.layers)) return std::nullopt;
  record.model.input = *learner.input();
  for (const Module::QuantizableAt& at : root->quantizables_at(kModelRoot)) {
    const LowRankAdapter* const adapter = at.slot->adapter();
    const Parameter& weight = at.slot->weight();
    record.slots.push_back({at.layer, at.slot->quant(), adapter ? std::optional(adapter->adapter_spec()) : std::nullopt,
                            weight.spec().frozen && !weight.spec().converted});
    record.mode = at.slot->mode();
  }
  return record;
}

// Converts one layer or slot to JSON at a time: the tree of a model with thousands of layers takes many times the
// memory of its text.
std::string to_text(const ModelRecord& record) {
  std::string text = concat("{\"input\":", put_form(record.model.input), ",\"layers\":[");
  const auto append = [&](size_t index, const Json& json) { text += (index > 0 ? "," : "") + json.dump(); };
  for (size_t i = 0; i < record.model.layers.size(); ++i) append(i, put_layer(record.model.layers[i]));
  text += "],\"slots\":[";
  for (size_t i = 0; i < record.slots.size(); ++i) {
    Json j{{"layer", record.slots[i].layer}};
    visit_slot(Put{j}, record.slots[i].quant);
    if (record.slots[i].quant.compute == Compute::kInteger)
      Put{j}("output_rounding", record.slots[i].quant.output_rounding);
    if (record.slots[i].frozen) j["frozen"] = true;
    if (record.slots[i].adapter) visit_adapter(Put{j["adapter"]}, *record.slots[i].adapter);
    append(i, j);
  }
  const Json mode{{"quantization", put(record.mode.quantization)}, {"observers", record.mode.observers}};
  return text + concat("],\"mode\":", mode, '}');
}

ModelRecord parse_model_record(const std::string& text) {
  try {
    const Json j = parse_metadata(kKey, text, kMaxDepth);
    ModelRecord record;
    record.model.input = get_form(j.at("input"));
    record.model.layers = get_layers(j.at("layers"));
    if (detail::expanded_layers(record.model.layers) > detail::kMostLayers)
      fail_with(ErrorCode::kData, kKey, detail::too_many_layers());
    for (const Json& slot : j.at("slots")) {
      ModelRecord::Slot& to = record.slots.emplace_back();
      to.layer = slot.at("layer").text();
      visit_slot(Get{slot}, to.quant);
      GetKnown{slot}("output_rounding", to.quant.output_rounding);
      if (slot.contains("frozen")) get(slot.at("frozen"), to.frozen);
      if (slot.contains("adapter")) visit_adapter(Get{slot.at("adapter")}, to.adapter.emplace());
    }
    get(j.at("mode").at("quantization"), record.mode.quantization);
    get(j.at("mode").at("observers"), record.mode.observers);
    return record;
  } catch (const JsonError& e) {
    fail(kKey, "malformed: ", e.what());
  }
}

std::optional<ModelRecord> read_model_record(const std::string& file) {
  const std::string text = read_checkpoint_header(file).model;
  if (text.empty()) return std::nullopt;
  return checkpoint::reading(file, [&] { return parse_model_record(text); });
}

std::shared_ptr<Sequential> recorded_model(const ModelRecord& record) {
  ModelSpec spec = record.model;
  spec.input.training = false;
  std::shared_ptr<Sequential> model = make_model(spec);
  std::map<std::string, Quantizable*> slots;
  for (const Module::QuantizableAt& at : model->quantizables_at(kModelRoot)) slots[at.layer] = at.slot;
  for (const ModelRecord::Slot& slot : record.slots) {
    require(slots.count(slot.layer) == 1, kKey, "has a slot '", slot.layer, "', its model has none");
    if (slot.frozen) slots[slot.layer]->weight().change([](ParameterSpec& spec) { spec.frozen = true; });
    slots[slot.layer]->set(slot.quant);
    if (slot.adapter) slots[slot.layer]->adapt(*slot.adapter);
  }
  operands_follow_slots(*model);
  return model;
}

std::unique_ptr<Learner> load_evaluator(const std::string& file, const LossFunction& loss, int64_t eval_samples,
                                        LearnerUse use) {
  return checkpoint::load_evaluator(checkpoint::open_verified(file), loss, eval_samples, use);
}

std::unique_ptr<Learner> checkpoint::load_evaluator(const OpenFile& file, const LossFunction& loss,
                                                    int64_t eval_samples, LearnerUse use) {
  const std::string& path = file->path();
  const CheckpointHeader header = checkpoint::read_checkpoint_header(*file);
  if (header.model.empty())
    fail_with(ErrorCode::kData, "checkpoint", path,
              ": has no record of its model: open it with the configuration that it was trained with");
  const ModelRecord record = reading(path, [&] { return parse_model_record(header.model); });
  return reading(path, [&] {
    const FileForm form = checkpoint::file_form(*file);
    const std::shared_ptr<Sequential> model = recorded_model(record);
    set_quant_mode(*model, record.mode);
    check_shapes(form, *model);
    auto learner = std::make_unique<Learner>(
        model, loss, OptimizerSpec{}, RequantPolicy{}, [](int64_t) { return 0.0f; }, header.seed, use);
    PlanSpec plan;
    plan.input = record.model.input;
    plan.eval_samples = eval_samples;
    plan.trains = false;
    learner->plan(plan);
    if (form.kind == SavedKind::kModel) {
      learner->convert();
      checkpoint::load_model(file, learner->model());
    } else {
      checkpoint::load_values(file, learner->model());
    }
    return learner;
  });
}

}  // namespace bitgrad
