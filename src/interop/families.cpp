// The families of decoders that both llama.cpp and Hugging Face know, and what each can express.
#include <algorithm>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "interop/decoder_files.h"

namespace bitgrad::interop {
namespace {

bool has_word(std::string_view words, std::string_view word) {
  for (size_t at = 0; at <= words.size();) {
    const size_t end = std::min(words.find(' ', at), words.size());
    if (words.substr(at, end - at) == word) return true;
    at = end + 1;
  }
  return false;
}

}  // namespace

const std::vector<Family>& families() {
  static const std::vector<Family> all{
      {.name = "gpt2",
       .layer_norm = true,
       .learned_positions = true,
       .qkv_bias = true,
       .gated = false,
       .biases = true,
       .fused_qkv = true,
       .model_class = "GPT2LMHeadModel",
       .activations_gguf = "gelu gelu_tanh",
       .activations_hf = "gelu gelu_tanh relu silu"},
      {.name = "llama",
       .interleaved = true,
       .scale_tensors = true,
       .rope_factors = true,
       .model_class = "LlamaForCausalLM",
       .activations_gguf = "swiglu",
       .activations_hf = "swiglu geglu reglu relu2_glu"},
      {.name = "qwen2",
       .qkv_bias = true,
       .model_class = "Qwen2ForCausalLM",
       .activations_gguf = "swiglu",
       .activations_hf = "swiglu geglu reglu relu2_glu"},
      {.name = "bitnet",
       .sub_norms = true,
       .scale_tensors = true,
       .untied = false,
       .model_class = "BitNetForCausalLM",
       .activations_gguf = "swiglu",
       .activations_hf = "swiglu geglu reglu relu2_glu"},
  };
  return all;
}

const Family* find_family(std::string_view name) {
  for (const Family& family : families())
    if (family.name == name) return &family;
  return nullptr;
}

const Family& family_of(const Decoder& d) {
  if (d.learned_positions) return *find_family("gpt2");
  if (d.sub_norms) return *find_family("bitnet");
  return *find_family(d.qkv_bias ? "qwen2" : "llama");
}

void check_fits(const FoundDecoder& found, const Family& f, FileFormat format) {
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
  need(has_word(known, d.activation), first.activation, "got ", d.activation, ", expected one of: ", known,
       format == FileFormat::kGguf ? " (llama.cpp computes no other in this graph)" : "");
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

}  // namespace bitgrad::interop
