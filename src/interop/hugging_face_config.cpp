#include "interop/hugging_face.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "interop/decoder_files.h"
#include "io/metadata.h"

namespace bitgrad::interop {
namespace {

constexpr std::string_view kConfigJson = "config.json";
constexpr int64_t kMostFeatures = int64_t{1} << 24, kMostIds = int64_t{1} << 28, kMostBlocks = 1 << 16,
                  kMostContext = 1 << 20;

template <typename... Parts>
[[noreturn]] void bad_config(const Parts&... parts) {
  fail_with(ErrorCode::kData, kConfigJson, printable(concat(parts...)));
}

// Keys that say that a model computes something else, unless they are null, 0, false or, of factors, 1.
constexpr std::string_view kOtherFactors =
    "partial_rotary_factor rotary_pct rope_ratio rope_scaling_factor logits_scaling logit_scale embedding_multiplier "
    "residual_multiplier scale_emb";
constexpr std::string_view kOtherModel =
    "attention_multiplier scale_depth scale_embedding final_logit_softcapping attn_logit_softcapping "
    "query_pre_attn_scalar num_local_experts num_experts n_routed_experts qk_norm use_qk_norm qk_layernorm alibi "
    "clip_qkv parallel_residual use_parallel_residual no_rope_layers no_rope_layer_interval is_encoder_decoder "
    "multi_query pruned_heads adapters num_nextn_predict_layers";
constexpr std::string_view kRopeKeys =
    "type rope_type rope_theta factor low_freq_factor high_freq_factor original_max_position_embeddings";
constexpr std::string_view kFullType = "full_attention", kLocalType = "sliding_attention";  // of layer_types
// They say what is meant for texts, not for the model: origin_files.cpp reads them.
constexpr std::string_view kOfTexts[] = {"eos_token_id", "bos_token_id", "pad_token_id"};

std::string_view first_word(std::string_view words) { return words.substr(0, words.find(' ')); }

bool is_neutral(const Json& value, double neutral) {
  if (value.is_null() || (value.is_bool() && !value.get<bool>())) return true;
  if (value.is_number()) return value.get<double>() == neutral || value.get<double>() == 0;
  return (value.is_array() || value.is_object()) && value.empty();
}

class ConfigReader {
 public:
  explicit ConfigReader(const Json& file) : file_(file) {}

  HuggingFaceConfig read() {
    if (!file_.is_object()) bad_config("got no object.");
    const std::string type = text("model_type", "");
    out_.family = find_model_type(type);
    if (out_.family == nullptr)
      bad_config("model_type: got '", type, "', expected one of: ", joined(families(), ", ", &model_type), '.');
    const Family& f = *out_.family;
    d_.layer_norm = f.layer_norm;
    d_.learned_positions = f.learned_positions;
    d_.sub_norms = f.sub_norms;
    d_.qkv_bias = f.qkv_bias;
    d_.qk_norm = f.qk_norm;
    d_.pre_norms = f.pre_norms;
    d_.post_norms = f.post_norms;
    d_.norm_bias = d_.out_bias = d_.ffn_bias = f.biases;
    d_.gated = f.gated;
    if (f.fused_qkv)
      gpt2();
    else
      llama();
    d_.rope.dim = d_.head_dim;
    quantization();
    kinds();
    list_keys();
    return out_;
  }

 private:
  bool config_has(const Json& j, std::string_view key) const {
    if (&j == &file_) seen_.emplace(key);
    return j.contains(key) && !j.at(key).is_null();
  }
  void list_keys() {
    seen_.insert(std::begin(kOfTexts), std::end(kOfTexts));
    std::string wrong;
    for (const auto& [key, value] : file_.members()) {
      const bool read = seen_.count(key) > 0;
      (read ? out_.read : out_.unused).push_back("config.json: " + key);
      const bool factor = has_word(kOtherFactors, key);
      if (!read && (factor || has_word(kOtherModel, key)) && !is_neutral(value, factor ? 1 : 0))
        wrong += concat("\n  ", key, ": ", value.dump().substr(0, 80));
    }
    if (!wrong.empty()) bad_config("these keys say that the model computes something that is not read here:", wrong);
  }
  // Since transformers 4.53: the attention of each layer.
  void kinds() {
    const Family& f = *out_.family;
    std::vector<BlockKind> kinds;
    if (config_has(file_, "layer_types")) {
      const Json& types = file_.at("layer_types");
      if (!types.is_array()) bad_config("layer_types: got ", types.dump().substr(0, 80), ", expected a list.");
      for (const Json& type : types) kinds.push_back(kind_of_type(type));
      if (f.local && std::ssize(kinds) != d_.blocks)
        bad_config("layer_types: got ", kinds.size(), " types for ", d_.blocks, " blocks (num_hidden_layers).");
    }
    if (f.no_rope) return without_rope();
    if (!f.local) return;
    const int64_t cycle = f.cycle_key ? whole("sliding_window_pattern", kMostBlocks, f.cycle) : f.cycle;
    const bool none = file_.contains("sliding_window") && !config_has(file_, "sliding_window");
    for (int64_t n = std::ssize(kinds); n < d_.blocks; ++n)
      kinds.push_back((cycle == 0 ? none : (n + 1) % cycle == 0) ? BlockKind::kFull : BlockKind::kLocal);
    d_.kinds = shortest_cycle(kinds);
    if (cycle == 0 && d_.kinds != std::vector{none ? BlockKind::kFull : BlockKind::kLocal})
      bad_config("layer_types: expected ", none ? kFullType : kLocalType, " in all, as sliding_window says.");
    if (d_.kinds == std::vector{BlockKind::kFull}) return;
    if (none && cycle > 0) bad_config("sliding_window: got null, expected a number: layer_types has ", kLocalType, '.');
    d_.window = f.window > 0 ? whole("sliding_window", kMostContext, f.window) : whole("sliding_window", kMostContext);
    if (f.local_rope == 0) d_.local_rope = d_.rope;
    d_.local_rope.dim = d_.head_dim;
  }
  // no_rope_layers has 1 for each block that turns q and k.
  void without_rope() {
    const int64_t interval = whole("no_rope_layer_interval", kMostBlocks, out_.family->cycle);
    d_.kinds = kinds_without_rope(d_.blocks, interval);
    if (!config_has(file_, "no_rope_layers")) {
      if (interval == 1) bad_config("no_rope_layer_interval: got 1, expected 2 or more: of 1, no block has positions.");
      return;
    }
    const Json& list = file_.at("no_rope_layers");
    const auto bad = [&] {
      bad_config("no_rope_layers: got ", list.dump().substr(0, 80), ", expected a list of 0 and 1 for ", d_.blocks,
                 " blocks (num_hidden_layers), one of them 1.");
    };
    if (!list.is_array() || std::ssize(list) < d_.blocks) bad();
    std::vector<BlockKind> kinds;
    for (int64_t n = 0; n < d_.blocks; ++n) {
      const Json& turns = list.at(static_cast<size_t>(n));
      if (turns != 0 && turns != 1) bad();
      kinds.push_back(turns == 1 ? BlockKind::kFull : BlockKind::kNoRope);
    }
    d_.kinds = shortest_cycle(kinds);
    if (d_.kinds == std::vector{BlockKind::kNoRope}) bad();
  }
  BlockKind kind_of_type(const Json& type) const {
    if (type == kFullType) return BlockKind::kFull;
    if (type == kLocalType && out_.family->local) return BlockKind::kLocal;
    bad_config("layer_types: got ", type.dump().substr(0, 80), ", expected ", kFullType,
               out_.family->local ? concat(" or ", kLocalType) : "", '.');
  }

  int64_t whole(std::string_view key, int64_t most, std::optional<int64_t> otherwise = {}) const {
    if (!config_has(file_, key)) {
      if (otherwise) return *otherwise;
      bad_config(key, ": missing.");
    }
    return detail::whole_number(file_.at(key), std::string(key), 1, most);
  }
  double number(const Json& in, std::string_view key, std::optional<double> otherwise, double least,
                double most) const {
    if (!config_has(in, key)) {
      if (otherwise) return *otherwise;
      bad_config(key, ": missing.");
    }
    if (!in.at(key).is_number()) bad_config(key, ": got ", in.at(key).dump().substr(0, 80), ", expected a number.");
    const auto x = in.at(key).get<double>();
    if (!(x >= least && x <= most)) bad_config(key, ": got ", x, ", expected ", least, " to ", most, '.');
    return x;
  }
  bool flag(std::string_view key, bool otherwise) const {
    if (!config_has(file_, key)) return otherwise;
    const Json& value = file_.at(key);
    if (!value.is_bool()) bad_config(key, ": got ", value.dump().substr(0, 80), ", expected true or false.");
    return value.get<bool>();
  }
  std::string text(std::string_view key, const char* otherwise) const { return text(file_, key, otherwise); }
  std::string text(const Json& in, std::string_view key, const char* otherwise) const {
    if (!config_has(in, key)) return otherwise;
    if (!in.at(key).is_string()) bad_config(key, ": got ", in.at(key).dump().substr(0, 80), ", expected a text.");
    return in.at(key).text();
  }
  void expect(std::string_view key, bool wanted, bool otherwise) const {
    if (flag(key, otherwise) != wanted)
      bad_config(key, ": got ", wanted ? "false" : "true", ", expected ", wanted ? "true" : "false", '.');
  }

  void activation(std::string_view key, const std::string& otherwise) {
    const std::string name = text(key, otherwise.c_str());
    d_.activation = activation_kind(name, d_.gated);
    if (d_.activation.empty()) bad_config(key, ": got '", name, "', which is not supported.");
  }

  void gpt2() {
    d_.vocabulary = whole("vocab_size", kMostIds);
    d_.context = whole("n_positions", kMostContext);
    d_.dim = whole("n_embd", kMostFeatures);
    d_.blocks = whole("n_layer", kMostBlocks);
    d_.heads = d_.kv_heads = whole("n_head", d_.dim);
    d_.ffn = whole("n_inner", kMostFeatures, 4 * d_.dim);
    d_.eps = number(file_, "layer_norm_epsilon", 1e-5, 1e-30, 1);
    d_.tied = flag("tie_word_embeddings", true);
    if (d_.dim % d_.heads != 0) bad_config("n_embd: got ", d_.dim, ", expected a multiple of n_head ", d_.heads, '.');
    d_.head_dim = d_.dim / d_.heads;
    activation("activation_function", "gelu_new");
    expect("scale_attn_weights", true, true);
    expect("scale_attn_by_inverse_layer_idx", false, false);
    expect("add_cross_attention", false, false);
  }

  void llama() {
    d_.vocabulary = whole("vocab_size", kMostIds);
    d_.context = whole("max_position_embeddings", kMostContext);
    d_.dim = whole("hidden_size", kMostFeatures);
    d_.blocks = whole("num_hidden_layers", kMostBlocks);
    d_.heads = whole("num_attention_heads", d_.dim);
    const int64_t kv_unsaid = out_.family->kv_heads;
    d_.kv_heads = whole("num_key_value_heads", d_.heads, kv_unsaid > 0 ? std::min(kv_unsaid, d_.heads) : d_.heads);
    d_.ffn = whole("intermediate_size", kMostFeatures);
    d_.eps = number(file_, "rms_norm_eps", out_.family->eps, 1e-30, 1);
    d_.tied = flag("tie_word_embeddings", out_.family->tied);
    const int64_t standard = out_.family->head_dim;
    if (!config_has(file_, "head_dim") && standard == 0 && d_.dim % d_.heads != 0)
      bad_config("hidden_size: got ", d_.dim, ", expected a multiple of num_attention_heads ", d_.heads, '.');
    d_.head_dim = whole("head_dim", kMostFeatures, standard > 0 ? standard : d_.dim / d_.heads);
    if (d_.heads % d_.kv_heads != 0)
      bad_config("num_key_value_heads: got ", d_.kv_heads, ", expected a divisor of num_attention_heads ", d_.heads,
                 '.');
    if (d_.head_dim % 2 != 0) bad_config("features of a head: got ", d_.head_dim, ", expected an even number.");
    const Family& f = *out_.family;
    activation(f.activation_key, hidden_act(d_.sub_norms ? "relu2_glu" : first_word(f.activations_hf)));
    if (f.scaled_embedding) d_.embedding_scale = std::sqrt(static_cast<double>(d_.dim));
    if (f.query_scalar) query_scalar();
    if (f.multipliers) multipliers();
    if (f.softcaps) softcaps();
    expect("use_bidirectional_attention", false, false);
    expect("attention_bias", d_.qkv_bias, d_.qkv_bias);
    expect("mlp_bias", false, false);
    expect("use_sliding_window", false, false);
    if (f.local && f.local_rope > 0)
      local_rope();
    else
      rope();
  }

  void multipliers() {
    const auto factor = [&](std::string_view key) { return number(file_, key, 1, 1e-6, 1e6); };
    d_.embedding_scale = factor("embedding_multiplier");
    d_.attention_scale = factor("attention_multiplier");
    d_.residual_scale = factor("residual_multiplier");
    d_.logit_scale = 1 / factor("logits_scaling");
    if (d_.logit_scale != 1 && !d_.tied)
      bad_config("logits_scaling: got ", 1 / d_.logit_scale, " of a head that is not tied, expected 1.");
  }
  // null: none.
  void softcaps() {
    const auto cap = [&](std::string_view key, double unsaid) {
      return config_has(file_, key) ? number(file_, key, {}, 1e-6, 1e6) : file_.contains(key) ? 0 : unsaid;
    };
    const Family& f = *out_.family;
    const std::string_view of_scores = "attn_logit_softcapping";
    if (!f.caps_attention && config_has(file_, of_scores))
      bad_config(of_scores, ": got ", file_.at(of_scores).dump().substr(0, 80),
                 ", expected null: transformers does not apply it in models of ", f.name, '.');
    d_.attention_softcap = cap(of_scores, f.attention_softcap);
    d_.logit_softcap = cap("final_logit_softcapping", f.logit_softcap);
  }
  // Scores are divided by its root.
  void query_scalar() {
    const double scalar = number(file_, "query_pre_attn_scalar", 256, 1e-6, 1e12);
    if (scalar != static_cast<double>(d_.head_dim)) d_.attention_scale = 1 / std::sqrt(scalar);
  }

  // Of blocks with a window and of others: in rope_parameters of transformers 5, else rope_local_base_freq for the
  // former.
  void local_rope() {
    const Json& all = config_has(file_, "rope_parameters") ? file_.at("rope_parameters") : file_;
    const bool apart = all.is_object() && (config_has(all, kFullType) || config_has(all, kLocalType));
    d_.local_rope.base = number(file_, "rope_local_base_freq", out_.family->local_rope, 1, 1e12);
    if (!apart) return rope();
    const Json none = Json::object();
    const auto read = [&](std::string_view type, RopeOptions& to) {
      const Json& j = config_has(all, type) ? all.at(type) : none;
      const std::string where = concat("rope_parameters.", type);
      if (!j.is_object()) bad_config(where, ": got ", j.dump().substr(0, 80), ", expected an object.");
      to.base = number(j, "rope_theta", to.base, 1, 1e12);
      rope_scaling(j, where, to);
    };
    for (const auto& [key, value] : all.members())
      if (key != kFullType && key != kLocalType && !is_neutral(value, 1))
        bad_config("rope_parameters.", key, ": got ", value.dump().substr(0, 80), ", which is not supported.");
    d_.rope.base = number(file_, "rope_theta", out_.family->rope, 1, 1e12);
    read(kFullType, d_.rope);
    read(kLocalType, d_.local_rope);
    if (config_has(file_, "rope_scaling")) same_scaling();
  }

  // rope_theta and rope_scaling; since transformers 5 both are in rope_parameters.
  void rope() {
    const bool together = config_has(file_, "rope_parameters"), apart = config_has(file_, "rope_scaling");
    const Json none = Json::object();
    const Json& base = together ? file_.at("rope_parameters") : file_;
    const Json& scaling = together ? base : apart ? file_.at("rope_scaling") : none;
    if (!base.is_object()) bad_config("rope_parameters: got ", base.dump().substr(0, 80), ", expected an object.");
    if (!scaling.is_object()) bad_config("rope_scaling: got ", scaling.dump().substr(0, 80), ", expected an object.");
    const double fallback =
        config_has(file_, "rope_theta") ? number(file_, "rope_theta", {}, 1, 1e12) : out_.family->rope;
    d_.rope.base = number(base, "rope_theta", fallback, 1, 1e12);
    rope_scaling(scaling, together ? "rope_parameters" : "rope_scaling", d_.rope);
    if (together && apart) same_scaling();
  }
  // rope_parameters and rope_scaling, as programs between the two versions write them: they have to say the same.
  void same_scaling() const {
    RopeOptions second{.base = d_.rope.base};
    if (!file_.at("rope_scaling").is_object()) bad_config("rope_scaling: got no object.");
    rope_scaling(file_.at("rope_scaling"), "rope_scaling", second);
    if (second.factor != d_.rope.factor || second.low != d_.rope.low || second.high != d_.rope.high ||
        second.original != d_.rope.original)
      bad_config("rope_scaling: got ", file_.at("rope_scaling").dump(),
                 ", and rope_parameters say something else: ", file_.at("rope_parameters").dump(), '.');
  }
  void rope_scaling(const Json& scaling, std::string_view where, RopeOptions& to) const {
    std::string type = "default";
    for (const char* key : {"type", "rope_type"}) type = text(scaling, key, type.c_str());
    const bool typed = config_has(scaling, "type") || config_has(scaling, "rope_type");
    if (!typed && config_has(scaling, "factor"))
      bad_config(where, ": got a factor and no rope_type, expected both: ", scaling.dump(), '.');
    if (type != "default" && type != "llama3" && type != kLinearScaling)
      bad_config(where, ".rope_type: got '", type, "', expected default, linear or llama3.");
    for (const auto& [key, value] : scaling.members())
      if (!has_word(kRopeKeys, key) && !is_neutral(value, 1))
        bad_config(where, '.', key, ": got ", value.dump().substr(0, 80), ", which is not supported.");
    if (type == "default") return;
    const double factor = number(scaling, "factor", {}, 1, 1e6);
    if (type == kLinearScaling) return scale_linear(to, factor);
    to.factor = factor;
    to.low = number(scaling, "low_freq_factor", {}, 1e-6, 1e6);
    to.high = number(scaling, "high_freq_factor", {}, 1e-6, 1e6);
    if (!(to.high > to.low))
      bad_config("high_freq_factor: got ", to.high, ", expected more than low_freq_factor ", to.low, '.');
    if (!config_has(scaling, "original_max_position_embeddings"))
      bad_config("original_max_position_embeddings: missing.");
    to.original = detail::whole_number(scaling.at("original_max_position_embeddings"),
                                       "original_max_position_embeddings", 1, int64_t{1} << 30);
  }

  void quantization() {
    if (!config_has(file_, "quantization_config")) return;
    const Json& q = file_.at("quantization_config");
    if (!q.is_object()) bad_config("quantization_config: got ", q.dump().substr(0, 80), ", expected an object.");
    const std::string method = text(q, "quant_method", "");
    if (method == "compressed-tensors") {
      if (out_.family->fused_qkv)
        bad_config("quant_method: got compressed-tensors in a model of ", out_.family->name,
                   ", whose products have no codes there. Take the float weights.");
      out_.schemes = parse_code_schemes(q);
      return;
    }
    if (method != "bitnet" || !d_.sub_norms)
      bad_config("quant_method: got '", method, "' in a model of ", out_.family->name,
                 ", expected none, compressed-tensors (integer codes), or bitnet in a model of bitnet. Take the float "
                 "weights.");
    const std::string mode = q.value("quantization_mode", "offline");
    if (mode == "online") return;  // weights are floats, which transformers rounds itself
    if (mode != "offline") bad_config("quantization_mode: got '", mode, "', expected offline or online.");
    const std::string kind = q.value("linear_class", "bitlinear");
    if (kind != "bitlinear" && kind != "autobitlinear")
      bad_config("linear_class: got '", kind, "', expected bitlinear or autobitlinear.");
    out_.weights = kind == "bitlinear" ? HuggingFaceWeights::kTernaryDivided : HuggingFaceWeights::kTernary;
  }

  const Json& file_;
  mutable std::set<std::string, std::less<>> seen_;
  HuggingFaceConfig out_;
  Decoder& d_ = out_.decoder;
};

Json rope_json(const RopeOptions& rope) {
  const bool linear = scales_linear(rope);
  Json j{{"rope_theta", rope.base}, {"rope_type", rope.factor == 1 ? "default" : linear ? "linear" : "llama3"}};
  if (rope.factor == 1) return j;
  j["factor"] = rope.factor;
  if (linear) return j;
  j["low_freq_factor"] = rope.low;
  j["high_freq_factor"] = rope.high;
  j["original_max_position_embeddings"] = rope.original;
  return j;
}

void write_gpt2(const Decoder& d, Json& j) {
  j["n_positions"] = d.context;
  j["n_embd"] = d.dim;
  j["n_layer"] = d.blocks;
  j["n_head"] = d.heads;
  j["n_inner"] = d.ffn;
  j["activation_function"] = hidden_act(d.activation);
  j["layer_norm_epsilon"] = d.eps;
  for (const char* rate : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) j[rate] = 0.0;
}

// What blocks with a window have, and those without.
void write_local(const Decoder& d, const Family& family, Json& j) {
  if (family.query_scalar) j["query_pre_attn_scalar"] = query_scalar(d);
  j["sliding_window"] = d.window > 0 ? Json(d.window) : Json(nullptr);
  if (family.cycle == 0) return;
  Json types = Json::array();
  for (int64_t n = 0; n < d.blocks; ++n) types.push_back(Json(d.kind(n) == BlockKind::kLocal ? kLocalType : kFullType));
  j["layer_types"] = types;
  if (family.local_rope == 0) return;
  j["rope_local_base_freq"] = d.local_rope.base;
  j["rope_parameters"] = {{std::string(kFullType), rope_json(d.rope)},
                          {std::string(kLocalType), rope_json(d.local_rope)}};
}

// A quotient that is a whole number but for its rounding is that number.
double inverse(double x) {
  const double y = 1 / x, whole = std::round(y);
  return std::abs(y - whole) < 1e-9 * std::abs(y) ? whole : y;
}
void write_scales(const Decoder& d, const Family& family, Json& j) {
  if (family.multipliers) {
    j["embedding_multiplier"] = d.embedding_scale;
    j["attention_multiplier"] = used_attention_scale(d);
    j["residual_multiplier"] = d.residual_scale;
    j["logits_scaling"] = inverse(d.logit_scale);
  }
  if (!family.softcaps) return;
  j["attn_logit_softcapping"] = d.attention_softcap > 0 ? Json(d.attention_softcap) : Json(nullptr);
  j["final_logit_softcapping"] = d.logit_softcap > 0 ? Json(d.logit_softcap) : Json(nullptr);
}

void write_without_rope(const Decoder& d, Json& j) {
  Json list = Json::array();
  for (int64_t n = 0; n < d.blocks; ++n) list.push_back(Json(int64_t{d.kind(n) == BlockKind::kNoRope ? 0 : 1}));
  j["no_rope_layers"] = list;
}

void write_llama(const Decoder& d, const Family& family, Json& j) {
  j["hidden_size"] = d.dim;
  j["intermediate_size"] = d.ffn;
  j["num_hidden_layers"] = d.blocks;
  j["num_attention_heads"] = d.heads;
  j["num_key_value_heads"] = d.kv_heads;
  j["head_dim"] = d.head_dim;
  j[std::string(family.activation_key)] = hidden_act(d.activation);
  j["max_position_embeddings"] = d.context;
  j["rms_norm_eps"] = d.eps;
  if (!family.qkv_bias) j["attention_bias"] = false;
  // Older versions read the first two, newer ones the third.
  j["rope_theta"] = d.rope.base;
  j["rope_scaling"] = d.rope.factor == 1 ? Json(nullptr) : rope_json(d.rope);
  j["rope_parameters"] = rope_json(d.rope);
  write_scales(d, family, j);
  if (family.local) write_local(d, family, j);
  if (family.no_rope) write_without_rope(d, j);
}

}  // namespace

HuggingFaceConfig parse_hugging_face_config(const std::string& text, const std::string& where) {
  try {
    return ConfigReader(detail::parse_metadata("config.json", text, 20)).read();
  } catch (const JsonError& e) {
    fail_with(ErrorCode::kData, kConfigJson, "'", where, "': ", e.what());
  } catch (const Error& e) {
    fail_with(ErrorCode::kData, kConfigJson, "'", where, "': ", e.what());
  }
}

Json hugging_face_config(const HuggingFaceConfig& config, const std::vector<int32_t>& ends, const ModelOrigin& origin) {
  const Decoder& d = config.decoder;
  const Family& family = *config.family;
  Json j = Json::object();
  j["architectures"] = Json::array({Json(family.model_class)});
  j["model_type"] = model_type(family);
  j["vocab_size"] = d.vocabulary;
  j["tie_word_embeddings"] = d.tied;
  j["dtype"] = "float32";
  j["torch_dtype"] = "float32";
  const Json none = nullptr;
  // A model trained here reads its first text after the end of another one.
  const bool own = origin.name.empty() && !ends.empty();
  j["bos_token_id"] = origin.begin >= 0 ? Json(origin.begin) : own ? Json(ends[0]) : none;
  j["eos_token_id"] = ends.empty() ? none : ends.size() == 1 ? Json(ends[0]) : Json(ends);
  j["pad_token_id"] = origin.pad >= 0 ? Json(origin.pad) : none;  // where it is absent, families have ids of their own
  if (family.fused_qkv)
    write_gpt2(d, j);
  else
    write_llama(d, family, j);
  if (config.weights == HuggingFaceWeights::kTernary)
    j["quantization_config"] = {
        {"quant_method", "bitnet"}, {"linear_class", "autobitlinear"}, {"quantization_mode", "offline"}};
  else if (!config.schemes.empty())
    j["quantization_config"] = code_schemes_json(config.schemes);
  return j;
}

}  // namespace bitgrad::interop
