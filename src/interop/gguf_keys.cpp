#include "interop/gguf_keys.h"

#include <algorithm>
#include <cmath>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "bitgrad/io/gguf.h"
#include "interop/decoder_files.h"

namespace bitgrad::interop {
namespace {

constexpr std::string_view kKeysWhere = "gguf";
constexpr int64_t kMostCount = int64_t{1} << 31;
constexpr const char *kWindowKey = "attention.sliding_window", *kPatternKey = "attention.sliding_window_pattern",
                     *kLocalBaseKey = "rope.freq_base_swa";

class KeyReader {
 public:
  KeyReader(const GgufFile& file, std::string_view arch) : file_(file), prefix_(concat(arch, '.')) {}

  int64_t count(const std::string& key) const {
    const int64_t n = file_.integer(prefix_ + key);
    if (n < 1 || n > kMostCount) bad(key, n, "a number from 1 on");
    return n;
  }
  int64_t count(const std::string& key, int64_t otherwise) const {
    return file_.find(prefix_ + key) == nullptr ? otherwise : count(key);
  }
  double number(const std::string& key) const {
    const double x = file_.number(prefix_ + key);
    if (!std::isfinite(x) || x <= 0) bad(key, x, "a number above 0");
    return x;
  }
  double number(const std::string& key, double otherwise) const {
    return file_.find(prefix_ + key) == nullptr ? otherwise : number(key);
  }
  // The frequencies of Llama 3.1 and later, beside which no other scaling is read.
  void read_rope_freqs(RopeOptions& rope, const Family& family) const {
    const std::string name(kRopeFactors);
    if (!file_.contains(name)) return;
    const auto refuse = [&](const auto&... parts) {
      fail_with(ErrorCode::kData, kKeysWhere, "'", file_.path(), "': tensor '", name, "': ", parts...,
                ". Import the model's Hugging Face folder.");
    };
    if (!family.rope_factors) refuse("llama.cpp does not read it in models of ", family.name);
    if (rope.factor != 1) refuse("frequencies are scaled by it and by rope.scaling.factor, which is not read");
    const Tensor factors = gguf_tensor(file_, name);
    if (!factors.dtype().is_float() || factors.numel() != rope.dim / 2)
      refuse("got ", factors, ", expected ", rope.dim / 2, " floats");
    if (!read_rope_factors(factors.to_vector(), rope))
      refuse("its factors are none of Llama 3.1's scaling (factor, low_freq_factor, high_freq_factor)");
  }
  // As llama.cpp: a factor without a type is linear, and the old name of the factor counts if the new one is absent.
  void read_rope_scaling(RopeOptions& rope) const {
    const std::string type_key = "rope.scaling.type";
    const std::string type = has(type_key) ? file_.text(prefix_ + type_key) : std::string(kLinearScaling);
    if (type == "none") return;
    if (type != kLinearScaling) bad(type_key, type, "none or linear. Import the model's Hugging Face folder");
    const std::string factor = has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
    if (!has(factor) || file_.number(prefix_ + factor) == 0) return;
    const double times = number(factor);
    if (times < 1 || times > 1e6) bad(factor, times, "1 to 1e6");
    scale_linear(rope, times);
  }
  std::string full(const std::string& key) const { return prefix_ + key; }
  bool has(const std::string& key) const { return file_.find(prefix_ + key) != nullptr; }

  template <typename T, typename U>
  [[noreturn]] void bad(const std::string& key, const T& got, const U& expected) const {
    fail_with(
        ErrorCode::kData, kKeysWhere,
        printable(concat("'", file_.path(), "': key '", prefix_, key, "': got ", got, ", expected ", expected, '.')));
  }

 private:
  const GgufFile& file_;
  std::string prefix_;
};

bool has_bias(const GgufFile& file, std::string_view name) { return file.contains(concat("blk.0.", name, ".bias")); }

void read_shape(const KeyReader& keys, Decoder& d) {
  d.context = keys.count("context_length");
  d.dim = keys.count("embedding_length");
  d.blocks = keys.count("block_count");
  d.ffn = keys.count("feed_forward_length");
  d.heads = keys.count("attention.head_count");
  d.kv_heads = keys.count("attention.head_count_kv", d.heads);
  if (d.heads % d.kv_heads != 0) keys.bad("attention.head_count_kv", d.kv_heads, concat("a divisor of ", d.heads));
  d.head_dim = keys.count("attention.key_length", std::max<int64_t>(1, d.dim / d.heads));
  if (keys.count("attention.value_length", d.head_dim) != d.head_dim)
    keys.bad("attention.value_length", keys.count("attention.value_length"), concat(d.head_dim, ", that of keys"));
  if (d.head_dim % 2 != 0 && !d.learned_positions) keys.bad("attention.key_length", d.head_dim, "an even number");
}

// attention.sliding_window and which blocks have it: a list, or every n-th block has not.
void read_windows(const GgufFile& file, const KeyReader& keys, const Family& family, Decoder& d) {
  const bool said = keys.has(kWindowKey);
  if (said ? file.integer(keys.full(kWindowKey)) == 0 : family.window == 0) return;
  if (d.blocks > std::ssize(file.entries())) return;  // refused by the import
  d.window = said ? keys.count(kWindowKey) : family.window;
  if (family.local_rope > 0) d.local_rope = {.dim = d.head_dim, .base = family.local_rope};
  if (family.local_rope == 0) d.local_rope = d.rope;
  d.local_rope.base = keys.number(kLocalBaseKey, d.local_rope.base);
  const GgufValue* const pattern = file.find(keys.full(kPatternKey));
  const bool list = pattern != nullptr && pattern->is_array();
  std::vector<BlockKind> kinds;
  if (list) {
    const auto* const local = std::get_if<GgufValue::Integers>(&pattern->data());
    if (local == nullptr || std::ssize(*local) < d.blocks)
      keys.bad(kPatternKey, pattern->describe(), concat("a number, or a list of ", d.blocks, " bool"));
    for (int64_t n = 0; n < d.blocks; ++n)
      kinds.push_back((*local)[static_cast<size_t>(n)] != 0 ? BlockKind::kLocal : BlockKind::kFull);
  } else {
    const int64_t cycle = keys.count(kPatternKey, family.cycle);
    for (int64_t n = 0; n < d.blocks; ++n) kinds.push_back((n + 1) % cycle == 0 ? BlockKind::kFull : BlockKind::kLocal);
  }
  d.kinds = shortest_cycle(kinds);
  if (d.kinds == std::vector{BlockKind::kFull}) d.window = 0, d.local_rope = {};
}

void read_scales(const KeyReader& keys, const Family& family, Decoder& d) {
  if (family.multipliers) {
    d.embedding_scale = keys.number("embedding_scale", 1);
    d.attention_scale = keys.number("attention.scale", 0);
    d.residual_scale = keys.number("residual_scale", 1);
    d.logit_scale = 1 / keys.number("logit_scale", 1);
  }
  if (family.caps_attention) d.attention_softcap = keys.number("attn_logit_softcapping", family.attention_softcap);
  if (family.softcaps && (family.logit_softcap > 0 || keys.has("final_logit_softcapping")))
    d.logit_softcap = keys.number("final_logit_softcapping", family.logit_softcap);
}

std::string activation_of(const GgufFile& file, const Family& family) {
  const std::string known(family.activations_gguf);
  const auto checked = [&](const std::string& key, const std::string& kind) {
    if (has_word(known, kind) || has_word(family.activations_newer, kind)) return kind;
    fail_with(ErrorCode::kData, kKeysWhere,
              printable(concat("'", file.path(), "': key '", key, "': got ", file.text(key), ", expected one of: ",
                               known, family.activations_newer.empty() ? "" : " ", family.activations_newer, '.')));
  };
  if (file.find(kActivationKey) != nullptr) return checked(std::string(kActivationKey), file.text(kActivationKey));
  const std::string key = concat(family.name, '.', kHiddenActivation);
  if (file.find(key) != nullptr) return checked(key, activation_kind(file.text(key), family.gated));
  return family.gated ? known : "gelu_tanh";
}

}  // namespace

GgufMetadata decoder_keys(const Decoder& d, const Family& family) {
  require(d.rope.factor == 1 || d.learned_positions || scales_linear(d.rope) || family.rope_factors, "export",
          "rope_factor: got ", d.rope.factor,
          ", expected 1: llama.cpp scales frequencies apart in models of llama, not of ", family.name, '.');
  const std::string name(arch(family));
  GgufMetadata out;
  const auto add = [&](const std::string& key, GgufValue value) {
    out.emplace_back(name + '.' + key, std::move(value));
  };
  out.emplace_back("general.architecture", GgufValue::text(name));
  out.emplace_back("general.type", GgufValue::text("model"));
  out.emplace_back("general.name", GgufValue::text(concat(name, ' ', d.blocks, 'x', d.dim)));
  out.emplace_back("general.file_type", GgufValue::uint32(0));
  out.emplace_back("general.quantization_version", GgufValue::uint32(2));
  add("context_length", GgufValue::uint32(d.context));
  add("embedding_length", GgufValue::uint32(d.dim));
  add("block_count", GgufValue::uint32(d.blocks));
  add("feed_forward_length", GgufValue::uint32(d.ffn));
  add("attention.head_count", GgufValue::uint32(d.heads));
  add("attention.head_count_kv", GgufValue::uint32(d.kv_heads));
  add(d.layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", GgufValue::float32(d.eps));
  add("vocab_size", GgufValue::uint32(d.vocabulary));
  if (d.head_dim * d.heads != d.dim) {
    add("attention.key_length", GgufValue::uint32(d.head_dim));
    add("attention.value_length", GgufValue::uint32(d.head_dim));
  }
  if (!d.learned_positions) {
    add("rope.dimension_count", GgufValue::uint32(d.head_dim));
    add("rope.freq_base", GgufValue::float32(d.rope.base));
    if (scales_linear(d.rope)) {
      add("rope.scaling.type", GgufValue::text("linear"));
      add("rope.scaling.factor", GgufValue::float32(d.rope.factor));
    }
  }
  if (family.multipliers) {
    add("embedding_scale", GgufValue::float32(d.embedding_scale));
    add("attention.scale", GgufValue::float32(used_attention_scale(d)));
    add("residual_scale", GgufValue::float32(d.residual_scale));
    add("logit_scale", GgufValue::float32(1 / d.logit_scale));
  }
  if (d.attention_softcap > 0) add("attn_logit_softcapping", GgufValue::float32(d.attention_softcap));
  if (d.logit_softcap > 0) add("final_logit_softcapping", GgufValue::float32(d.logit_softcap));
  if (family.local && family.cycle > 0 && d.window + family.window > 0) {  // else llama.cpp takes its own
    add(kWindowKey, GgufValue::uint32(d.window > 0 ? d.window : d.context));
    add(kLocalBaseKey, GgufValue::float32(d.window > 0 ? d.local_rope.base : d.rope.base));
    GgufValue::Integers local;
    bool usual = true;
    for (int64_t n = 0; n < d.blocks; ++n) {
      local.push_back(d.kind(n) == BlockKind::kLocal ? 1 : 0);
      usual = usual && (local.back() == 0) == ((n + 1) % family.cycle == 0);
    }
    if (!usual) add(kPatternKey, GgufValue(GgufValue::Type::kBool, true, std::move(local)));
  }
  if (!family.activations_newer.empty()) add(std::string(kHiddenActivation), GgufValue::text(hidden_act(d.activation)));
  out.emplace_back(kActivationKey, GgufValue::text(d.activation));
  return out;
}

GgufDecoder decoder_of(const GgufFile& file) {
  GgufDecoder out;
  const std::string& name = file.text("general.architecture");
  out.family = find_arch(name);
  if (out.family == nullptr) {
    std::string known;
    for (const Family& f : families())
      if (f.arch.empty()) known += concat(known.empty() ? "" : ", ", f.name);
    fail_with(ErrorCode::kData, kKeysWhere, "'", file.path(), "': key 'general.architecture': got ", name,
              ", expected one of: ", known, '.');
  }
  const Family& family = *out.family;
  const KeyReader keys(file, name);
  Decoder& d = out.decoder;
  d.layer_norm = family.layer_norm;
  d.learned_positions = family.learned_positions;
  d.sub_norms = family.sub_norms;
  d.qk_norm = family.qk_norm;
  d.pre_norms = family.pre_norms;
  d.post_norms = family.post_norms;
  d.gated = family.gated;
  read_shape(keys, d);
  d.vocabulary = file.entry("token_embd.weight").shape.at(0);
  d.eps = static_cast<double>(static_cast<float>(
      keys.number(d.layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon")));
  if (!d.learned_positions) {
    keys.read_rope_scaling(d.rope);
    d.rope.base = keys.number("rope.freq_base", 10000);
    d.rope.dim = d.head_dim;
    keys.read_rope_freqs(d.rope, family);
    if (keys.count("rope.dimension_count", d.head_dim) != d.head_dim)
      keys.bad("rope.dimension_count", keys.count("rope.dimension_count"), concat(d.head_dim, ", all of a head"));
  }
  if (family.scaled_embedding) d.embedding_scale = std::sqrt(static_cast<double>(d.dim));
  if (d.blocks == family.dim_scaled_blocks && d.dim / d.heads != d.head_dim)
    d.attention_scale = 1 / std::sqrt(static_cast<double>(d.dim / d.heads));
  read_scales(keys, family, d);
  if (family.local) read_windows(file, keys, family, d);
  if (family.no_rope && d.blocks <= std::ssize(file.entries())) d.kinds = kinds_without_rope(d.blocks, family.cycle);
  d.activation = activation_of(file, family);
  d.norm_bias = d.out_bias = d.ffn_bias = family.biases;
  d.qkv_bias = family.biases || has_bias(file, "attn_q");
  d.tied = !family.untied || !file.contains("output.weight");
  if (d.logit_scale != 1 && !d.tied)
    keys.bad("logit_scale", keys.number("logit_scale"), "1: the head is not tied (tensor output.weight)");
  return out;
}

namespace {

// Keys behind the architecture's name that are read here, or that change no result where they are.
constexpr std::string_view kReadKeys =
    "context_length embedding_length block_count feed_forward_length attention.head_count attention.head_count_kv "
    "attention.key_length attention.value_length attention.layer_norm_epsilon attention.layer_norm_rms_epsilon "
    "rope.dimension_count rope.freq_base rope.scaling.type rope.scaling.factor rope.scale_linear";
constexpr std::string_view kUnusedKeys =
    "vocab_size rope.scaling.original_context_length rope.scaling.finetuned rope.scaling.yarn_log_multiplier "
    "rope.scaling.yarn_ext_factor rope.scaling.yarn_attn_factor rope.scaling.yarn_beta_fast "
    "rope.scaling.yarn_beta_slow tensor_data_layout";
constexpr std::string_view kReadWindows =
    "attention.sliding_window attention.sliding_window_pattern rope.freq_base_swa";  // of families with local blocks
constexpr std::string_view kReadMultipliers = "embedding_scale attention.scale residual_scale logit_scale";
constexpr std::string_view kReadCaps = "attn_logit_softcapping final_logit_softcapping";
// The two of gguf_keys.h beside them.
constexpr std::string_view kReadElsewhere =
    "general.architecture general.alignment split.count split.no tokenizer.ggml.model tokenizer.ggml.pre "
    "tokenizer.ggml.tokens tokenizer.ggml.token_type tokenizer.ggml.merges tokenizer.ggml.eos_token_id "
    "tokenizer.ggml.eot_token_id tokenizer.ggml.eom_token_id tokenizer.ggml.bos_token_id "
    "tokenizer.ggml.padding_token_id tokenizer.ggml.add_bos_token tokenizer.chat_template";

std::string text_of(const GgufValue& value) {
  if (value.count() != 1) return value.describe();
  if (const auto* n = std::get_if<GgufValue::Integers>(&value.data())) return concat((*n)[0]);
  if (const auto* x = std::get_if<GgufValue::Floats>(&value.data())) return concat((*x)[0]);
  return printable(std::get<GgufValue::Texts>(value.data())[0].substr(0, 80));
}

// Whether a value says that what the key is about is absent: 0, false, and 1 of a factor.
bool changes_nothing(const GgufValue& value, std::string_view key) {
  const bool factor = key.ends_with("_scale") || key.ends_with("_factor") || key.ends_with(".scale");
  const auto neutral = [&](auto x) { return key == "attention.causal" ? x == 1 : x == 0 || (factor && x == 1); };
  if (const auto* n = std::get_if<GgufValue::Integers>(&value.data()))
    return std::all_of(n->begin(), n->end(), neutral);
  if (const auto* x = std::get_if<GgufValue::Floats>(&value.data())) return std::all_of(x->begin(), x->end(), neutral);
  return std::get<GgufValue::Texts>(value.data()).empty();
}

}  // namespace

void list_keys(const GgufFile& file, const Family& family, std::vector<std::string>& read,
               std::vector<std::string>& unused) {
  const std::string prefix = file.text("general.architecture") + '.';
  std::string wrong;
  for (const auto& [key, value] : file.metadata()) {
    const bool own = key.starts_with(prefix);
    const std::string_view rest = own ? std::string_view(key).substr(prefix.size()) : std::string_view(key);
    const bool ours = key == kActivationKey || key == kTokenizerKey;
    const bool of_family = own && ((family.local && has_word(kReadWindows, rest)) ||
                                   (family.multipliers && has_word(kReadMultipliers, rest)) ||
                                   (family.caps_attention && has_word(kReadCaps, rest)) ||
                                   (family.softcaps && rest == "final_logit_softcapping") ||
                                   (!family.activations_newer.empty() && rest == kHiddenActivation));
    if (ours || of_family || has_word(own ? kReadKeys : kReadElsewhere, rest)) {
      read.push_back(key);
      continue;
    }
    unused.push_back(key);
    if (own && !has_word(kUnusedKeys, rest) && !changes_nothing(value, rest))
      wrong += concat("\n  ", key, ": ", text_of(value));
  }
  if (!wrong.empty())
    fail_with(ErrorCode::kData, kKeysWhere, "'", file.path(),
              "': these keys say that the model computes something that is not read here:", wrong);
}

}  // namespace bitgrad::interop
