// The families of decoders that both llama.cpp and Hugging Face know, and what each can express.

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "interop/decoder_files.h"

namespace bitgrad::interop {

namespace {

struct Activation {
  std::string_view kind;
  bool gated;
  std::string_view hidden_act;  // of several with the same kind, the first is written
};
constexpr Activation kActivations[] = {
    {"gelu_tanh", false, "gelu_new"},
    {"gelu_tanh", false, "gelu_pytorch_tanh"},
    {"gelu", false, "gelu"},
    {"relu", false, "relu"},
    {"relu2", false, "relu2"},
    {"silu", false, "silu"},
    {"swiglu", true, "silu"},
    {"swiglu", true, "swish"},
    {"geglu_tanh", true, "gelu_pytorch_tanh"},
    {"geglu_tanh", true, "gelu_new"},
    {"geglu", true, "gelu"},
    {"reglu", true, "relu"},
    {"relu2_glu", true, "relu2"},
};

}  // namespace

std::optional<bool> activation_is_gated(std::string_view kind) {
  for (const Activation& a : kActivations)
    if (a.kind == kind) return a.gated;
  return std::nullopt;
}

std::string activation_kind(std::string_view hidden_act, bool gated) {
  for (const Activation& a : kActivations)
    if (a.hidden_act == hidden_act && a.gated == gated) return std::string(a.kind);
  return "";
}

std::string hidden_act(std::string_view kind) {
  for (const Activation& a : kActivations)
    if (a.kind == kind) return std::string(a.hidden_act);
  return "";
}

bool has_word(std::string_view words, std::string_view word) {
  for (size_t at = 0; at <= words.size();) {
    const size_t end = std::min(words.find(' ', at), words.size());
    if (words.substr(at, end - at) == word) return true;
    at = end + 1;
  }
  return false;
}

namespace {

constexpr Family kFamilies[] = {
    {.name = "gpt2",
     .model_class = "GPT2LMHeadModel",
     .layer_norm = true,
     .learned_positions = true,
     .qkv_bias = true,
     .gated = false,
     .biases = true,
     .fused_qkv = true,
     .activations_gguf = "gelu gelu_tanh",
     .activations_hf = "gelu gelu_tanh relu silu"},
    {.name = "llama",
     .model_class = "LlamaForCausalLM",
     .interleaved = true,
     .scale_tensors = true,
     .rope_factors = true,
     .activations_gguf = "swiglu",
     .activations_hf = "swiglu geglu reglu relu2_glu"},
    {.name = "qwen2",
     .model_class = "Qwen2ForCausalLM",
     .qkv_bias = true,
     .activations_gguf = "swiglu",
     .activations_hf = "swiglu geglu reglu relu2_glu"},
    {.name = "qwen3",
     .model_class = "Qwen3ForCausalLM",
     .qk_norm = "head",
     .head_dim = 128,
     .activations_gguf = "swiglu",
     .activations_hf = "swiglu geglu reglu relu2_glu"},
    {.name = "gemma3",
     .model_type = "gemma3_text",
     .model_class = "Gemma3ForCausalLM",
     .qk_norm = "head",
     .post_norms = true,
     .norm_offset = true,
     .scaled_embedding = true,
     .query_scalar = true,
     .softcaps = true,
     .local = true,
     .cycle = 6,
     .cycle_key = true,
     .kv_heads = 4,
     .head_dim = 256,
     .rope = 1000000,
     .tied = true,
     .activation_key = "hidden_activation",
     .dim_scaled_blocks = 62,
     .activations_gguf = "geglu_tanh",
     .activations_hf = "geglu_tanh swiglu geglu reglu relu2_glu"},
    {.name = "gemma2",
     .model_class = "Gemma2ForCausalLM",
     .untied = false,
     .post_norms = true,
     .norm_offset = true,
     .scaled_embedding = true,
     .query_scalar = true,
     .softcaps = true,
     .local = true,
     .cycle = 2,
     .kv_heads = 4,
     .head_dim = 256,
     .local_rope = 0,
     .window = 4096,
     .attention_softcap = 50,
     .logit_softcap = 30,
     .tied = true,
     .activation_key = "hidden_activation",
     .caps_attention = true,
     .dim_scaled_blocks = 46,
     .activations_gguf = "geglu_tanh",
     .activations_hf = "geglu_tanh swiglu geglu reglu relu2_glu"},
    {.name = "granite",
     .model_class = "GraniteForCausalLM",
     .multipliers = true,
     .interleaved = true,
     .activations_gguf = "swiglu",
     .activations_hf = "swiglu geglu reglu relu2_glu"},
    {.name = "smollm3",
     .model_class = "SmolLM3ForCausalLM",
     .no_rope = true,
     .cycle = 4,
     .kv_heads = 4,
     .rope = 2000000,
     .tied = true,
     .interleaved = true,
     .activations_gguf = "swiglu",
     .activations_hf = "swiglu geglu reglu relu2_glu"},
    {.name = "mistral",
     .arch = "llama",
     .model_class = "MistralForCausalLM",
     .local = true,
     .kv_heads = 8,
     .local_rope = 0,
     .window = 4096,
     .interleaved = true,
     .scale_tensors = true,
     .rope_factors = true,
     .activations_gguf = "swiglu",
     .activations_hf = "swiglu geglu reglu relu2_glu"},
    {.name = "olmo2",
     .model_class = "Olmo2ForCausalLM",
     .qk_norm = "row",
     .pre_norms = false,
     .post_norms = true,
     .eps = 1e-5,
     .own_head = true,
     .square = true,
     .activations_gguf = "swiglu",
     .activations_hf = "swiglu geglu reglu relu2_glu"},
    {.name = "bitnet",
     .model_class = "BitNetForCausalLM",
     .sub_norms = true,
     .untied = false,
     .rope = 500000,
     .eps = 1e-5,
     .scale_tensors = true,
     .square = true,
     .activations_gguf = "swiglu",
     .activations_hf = "swiglu geglu reglu relu2_glu",
     .activations_newer = "relu2_glu"},
};

}  // namespace

const std::vector<Family>& families() {
  static const std::vector<Family> all(std::begin(kFamilies), std::end(kFamilies));
  return all;
}

const Family* find_family(std::string_view name) {
  for (const Family& family : families())
    if (family.name == name) return &family;
  return nullptr;
}

const Family* find_arch(std::string_view name) {
  for (const Family& family : families())
    if (arch(family) == name) return &family;
  return nullptr;
}
const Family* find_model_type(std::string_view name) {
  for (const Family& family : families())
    if (model_type(family) == name) return &family;
  return nullptr;
}

std::vector<BlockKind> shortest_cycle(const std::vector<BlockKind>& kinds) {
  for (size_t n = 1; n < kinds.size(); ++n)
    if (std::equal(kinds.begin() + static_cast<std::ptrdiff_t>(n), kinds.end(), kinds.begin()))
      return {kinds.begin(), kinds.begin() + static_cast<std::ptrdiff_t>(n)};
  return kinds;
}

std::vector<BlockKind> kinds_without_rope(int64_t blocks, int64_t interval) {
  std::vector<BlockKind> kinds;
  for (int64_t n = 0; n < blocks; ++n) kinds.push_back((n + 1) % interval == 0 ? BlockKind::kNoRope : BlockKind::kFull);
  return shortest_cycle(kinds);
}

const Family& chosen_family(const std::string& name, const Decoder& d) {
  if (!name.empty()) {
    if (const Family* const family = find_family(name)) return *family;
    fail("export", "family: got ", name, ", expected one of: ", joined(families(), ", ", &Family::name), '.');
  }
  if (d.learned_positions) return *find_family("gpt2");
  if (d.sub_norms) return *find_family("bitnet");
  const auto has = [&](BlockKind kind) { return std::find(d.kinds.begin(), d.kinds.end(), kind) != d.kinds.end(); };
  if (d.post_norms) return *find_family(!d.pre_norms ? "olmo2" : d.qk_norm == "none" ? "gemma2" : "gemma3");
  if (d.residual_scale != 1 || d.logit_scale != 1 || d.embedding_scale != 1 || d.attention_scale != 0)
    return *find_family("granite");
  if (has(BlockKind::kNoRope)) return *find_family("smollm3");
  if (has(BlockKind::kLocal)) return *find_family("mistral");
  if (d.qk_norm != "none") return *find_family("qwen3");
  return *find_family(d.qkv_bias ? "qwen2" : "llama");
}

double used_attention_scale(const Decoder& d) {
  return d.attention_scale > 0 ? d.attention_scale : 1 / std::sqrt(static_cast<double>(d.head_dim));
}
int64_t query_scalar(const Decoder& d) {
  const double scale = used_attention_scale(d);
  return d.attention_scale == 0 ? d.head_dim : std::llround(std::min(1 / (scale * scale), 1e12));
}

namespace {

// What a file of the family makes of the decoder's.
double held_attention_scale(const Decoder& d, const Family& f, FileFormat format) {
  int64_t scalar = d.head_dim;
  if (format == FileFormat::kGguf && d.blocks == f.dim_scaled_blocks) scalar = d.dim / d.heads;
  if (format == FileFormat::kHuggingFace && f.query_scalar) scalar = query_scalar(d);
  return 1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, scalar)));
}

// What the attention of blocks sees.
void check_kinds(const FoundDecoder& found, const Family& f, FileFormat format) {
  const Decoder& d = found.decoder;
  const bool gguf = format == FileFormat::kGguf;
  for (int64_t n = 0; n < d.blocks; ++n) {
    const std::string& path = found.paths.blocks.at(static_cast<size_t>(n)).attention;
    const auto need = [&](bool fits, const auto&... parts) {
      require(fits, "export", path, ": ", parts..., ". Files of ", f.name, " cannot say it");
    };
    const BlockKind kind = d.kind(n);
    need(kind != BlockKind::kLocal || f.local, "window: got ", d.window, ", expected 0");
    need(kind != BlockKind::kNoRope || f.no_rope, "rope: got 0, expected a base");
    if (f.local && f.cycle == 0) {  // all blocks have it, and llama.cpp knows none
      need(kind == d.kind(0), "window: got ", kind == BlockKind::kLocal ? d.window : 0,
           ", expected one in all or none");
      need(!gguf || kind != BlockKind::kLocal || d.context <= d.window, "window: got ", d.window, " of a context of ",
           d.context, ", expected 0: llama.cpp computes none here");
    }
    const bool turned = kind != BlockKind::kNoRope;
    need(!gguf || !f.no_rope || turned == ((n + 1) % f.cycle != 0), "rope: got ", turned ? "a base" : "0",
         ", expected ", turned ? "0" : "a base", ": in llama.cpp each ", f.cycle,
         "th block and no other is without positions");
  }
}

// The rotary positions of blocks with a window, where files have them only in part, or have one for all blocks.
void check_local_rope(const FoundDecoder& found, const Family& f, FileFormat format) {
  const Decoder& d = found.decoder;
  int64_t first = 0;
  while (first < d.blocks && d.kind(first) != BlockKind::kLocal) ++first;
  if (first == d.blocks) return;
  const std::string& path = found.paths.blocks.at(static_cast<size_t>(first)).attention;
  const auto need = [&](bool fits, const char* key, const auto& got, const auto& expected) {
    require(fits, "export", path, ": ", key, " in a window: got ", got, ", expected ", expected, ". Files of ", f.name,
            " cannot say it");
  };
  const RopeOptions &local = d.local_rope, &full = d.rope;
  const bool gguf = format == FileFormat::kGguf, own = f.local_rope > 0;  // own: not that of full blocks
  need(local.interleaved == full.interleaved, "interleaved", local.interleaved ? "true" : "false",
       full.interleaved ? "true" : "false");
  if (own) return need(!gguf || local.factor == 1, "rope_factor", local.factor, 1);
  need(gguf || local.base == full.base, "rope", local.base, full.base);
  need(local.factor == full.factor, "rope_factor", local.factor, full.factor);
  if (local.factor == 1 || (scales_linear(local) && scales_linear(full))) return;
  need(local.low == full.low, "rope_low", local.low, full.low);
  need(local.high == full.high, "rope_high", local.high, full.high);
  need(local.original == full.original, "rope_original", local.original, full.original);
}

// Factors and caps.
void check_scales(const FoundDecoder& found, const Family& f, FileFormat format) {
  const Decoder& d = found.decoder;
  const DecoderPaths::Block& first = found.paths.blocks.at(0);
  const bool gguf = format == FileFormat::kGguf;
  const auto need = [&](bool fits, const std::string& path, const auto& key, double got, const auto& expected) {
    require(fits, "export", path, ": ", key, ": got ", got, ", expected ", expected, ". Files of ", f.name,
            " cannot say it");
  };
  const double scale = f.scaled_embedding ? std::sqrt(static_cast<double>(d.dim)) : 1;
  const double attention = held_attention_scale(d, f, format), own = used_attention_scale(d);
  if (!f.multipliers) {
    need(static_cast<float>(d.embedding_scale) == static_cast<float>(scale), found.paths.tokens, "scale",
         d.embedding_scale, scale);
    need(static_cast<float>(own) == static_cast<float>(attention), first.attention, "scale", own, attention);
    need(d.residual_scale == 1, first.out, "scale of its residual", d.residual_scale, 1);
    need(d.logit_scale == 1, found.paths.head, "scale", d.logit_scale, 1);
  }
  if (f.caps_attention && gguf) {
    need(d.attention_softcap > 0, first.attention, "softcap", d.attention_softcap, "a number above 0");
    need(d.logit_softcap > 0, found.paths.head, "softcap behind it", d.logit_softcap, "a number above 0");
  } else {
    need(d.attention_softcap == 0 || f.caps_attention, first.attention, "softcap", d.attention_softcap, 0);
    need(d.logit_softcap == 0 || f.softcaps, found.paths.head, "softcap behind it", d.logit_softcap, 0);
  }
}

// What Gemma and its kin have in common.
void check_shape(const FoundDecoder& found, const Family& f, FileFormat format) {
  const Decoder& d = found.decoder;
  const DecoderPaths::Block& first = found.paths.blocks.at(0);
  const auto need = [&](bool fits, const std::string& path, const auto&... parts) {
    require(fits, "export", path, ": ", parts..., ". Files of ", f.name, " cannot say it");
  };
  need(d.qk_norm == f.qk_norm, first.attention, "qk_norm: got ", d.qk_norm, ", expected ", f.qk_norm);
  need(d.pre_norms == f.pre_norms, first.qkv, d.pre_norms ? "a norm before it, expected none" : "no norm before it");
  need(d.post_norms == f.post_norms, first.out, d.post_norms ? "a norm behind it, expected none" : "no norm behind it");
  check_scales(found, f, format);
  check_kinds(found, f, format);
  check_local_rope(found, f, format);
  const bool gguf = format == FileFormat::kGguf;
  need(!gguf || !f.own_head || !d.tied, found.paths.head, "a tied head, expected a linear layer");
  need(!gguf || !f.square || d.heads * d.head_dim == d.dim, first.attention, "got ", d.heads, " heads of ", d.head_dim,
       " in ", d.dim, " features, expected heads that fill them");
}

}  // namespace

void check_fits(const FoundDecoder& found, const Family& f, FileFormat format, bool newer) {
  const Decoder& d = found.decoder;
  const DecoderPaths::Block& first = found.paths.blocks.at(0);
  const auto need = [&](bool fits, const std::string& path, const auto&... parts) {
    require(fits, "export", path, ": ", parts..., ". Files of ", f.name, " cannot say it");
  };
  need(d.learned_positions == f.learned_positions, d.learned_positions ? found.paths.positions : first.attention,
       d.learned_positions ? "learned positions, expected rotary ones" : "rotary positions, expected learned ones");
  need(d.layer_norm == f.layer_norm, first.attention_norm, "got ", d.layer_norm ? "layer_norm" : "rms_norm",
       ", expected ", f.layer_norm ? "layer_norm" : "rms_norm");
  need(!d.sub_norms || f.sub_norms, first.attention_sub_norm,
       "a norm before the last linear layer of attention, expected none (preset bitnet has a family with one)");
  need(d.sub_norms || !f.sub_norms, first.out, "no norm before it, expected one (sub-norm)");
  need(d.gated == f.gated, first.activation, "got ", d.activation, ", expected ",
       f.gated ? "a gated activation" : "one that is not gated");
  const std::string_view known = format == FileFormat::kGguf ? f.activations_gguf : f.activations_hf;
  const bool later = format == FileFormat::kGguf && has_word(f.activations_newer, d.activation);
  need(has_word(known, d.activation) || (later && newer), first.activation, "got ", d.activation,
       ", expected one of: ", known,
       later ? " (llama.cpp computes it only in versions that read it from the file: --client newer)"
       : format == FileFormat::kGguf ? " (llama.cpp computes no other in this graph)"
                                     : "");
  check_shape(found, f, format);
  need(!d.norm_bias || f.biases, first.attention_norm, "a norm with bias, expected none");
  need(!d.out_bias || f.biases, first.out, "a bias, expected none");
  need(!d.ffn_bias || f.biases, first.up, "a bias, expected none");
  need(!d.qkv_bias || f.qkv_bias, first.qkv, "a bias, expected none");
  need(d.qkv_bias || !f.qkv_bias || f.biases, first.qkv, "no bias, expected one");
  need(d.tied || f.untied || format == FileFormat::kHuggingFace, found.paths.head,
       "a head with a weight of its own, expected head: {tie: ", found.paths.tokens, "}");
  need(!f.fused_qkv || (d.kv_heads == d.heads && d.head_dim * d.heads == d.dim), first.attention, "got ", d.heads,
       " heads of ", d.head_dim, " with ", d.kv_heads, " of k and v in ", d.dim,
       " features, expected as many of k and v, and heads that fill them");
  if (format == FileFormat::kHuggingFace && !d.learned_positions)
    need(!d.rope.interleaved, first.attention, "interleaved: true, expected false");
}

namespace {

double frequency(const RopeOptions& rope, size_t pair) {
  return std::pow(rope.base, -2.0 * static_cast<double>(pair) / static_cast<double>(rope.dim));
}

// Converters compute in fp32: next to the pairs of a factor of 32, one in 10^5.
constexpr double kApart = 5e-5;

bool has_factors(const RopeOptions& rope, std::span<const float> factors) {
  const std::vector<float> expected = rope_factors(rope);
  for (size_t i = 0; i < factors.size(); ++i)
    if (!(std::abs(static_cast<double>(factors[i]) - expected[i]) <= kApart * expected[i])) return false;
  return true;
}

// low = 1, and high and original of the line through the first and the last pair between them.
bool fit_line(std::span<const float> factors, RopeOptions& rope) {
  double first[2] = {}, last[2] = {};  // frequency / (2 pi), and the share that is not scaled
  size_t between = 0;
  for (size_t i = 0; i < factors.size(); ++i) {
    const double factor = factors[i];
    if (factor < 1 + kApart || factor > rope.factor * (1 - kApart)) continue;
    double* const at = between++ == 0 ? first : last;
    at[0] = frequency(rope, i) / (2 * std::numbers::pi);
    at[1] = (1 / factor - 1 / rope.factor) / (1 - 1 / rope.factor);
  }
  if (between < 2) return false;
  const double slope = (first[1] - last[1]) / (first[0] - last[0]), start = first[1] - slope * first[0];
  if (!(slope > 0 && start < 0)) return false;
  rope.low = 1;
  rope.high = std::round((1 - 1 / start) * 1024) / 1024;
  const double original = std::round(slope * (rope.high - rope.low));
  if (!(rope.high > rope.low && original >= 1 && original < 1e9)) return false;
  rope.original = static_cast<int64_t>(original);
  return has_factors(rope, factors);
}

}  // namespace

std::vector<float> rope_factors(const RopeOptions& rope) {
  std::vector<float> out;
  for (size_t pair = 0; pair < static_cast<size_t>(rope.dim / 2); ++pair) {
    const double turns = static_cast<double>(rope.original) * frequency(rope, pair) / (2 * std::numbers::pi);
    const double kept = std::clamp((turns - rope.low) / (rope.high - rope.low), 0.0, 1.0);
    out.push_back(static_cast<float>(rope.factor == 1 ? 1 : 1 / ((1 - kept) / rope.factor + kept)));
  }
  return out;
}

bool read_rope_factors(std::span<const float> factors, RopeOptions& rope) {
  if (factors.empty() || std::ssize(factors) != rope.dim / 2) return false;
  const auto [least, most] = std::minmax_element(factors.begin(), factors.end());
  if (!(*least >= 1 - kApart && *most <= 1e6)) return false;
  if (*most <= 1 + kApart) return true;
  scale_linear(rope, *most);
  if (has_factors(rope, factors)) return true;
  constexpr int64_t kMostOriginal = int64_t{1} << 22;
  for (rope.original = 1; rope.original <= kMostOriginal; rope.original *= 2)  // all that Meta published: 8192
    if (has_factors(rope, factors)) return true;
  return fit_line(factors, rope);
}

}  // namespace bitgrad::interop
