#include "interop/decoder_files.h"

#include "bitgrad/base/error.h"

namespace bitgrad::interop {
namespace {

// Names of one format: of the model, and within a block. Empty: no such tensor.
struct Names {
  const char *tokens, *positions, *norm, *head, *block;  // block: prefix before the number
  const char *attention_norm, *qkv, *q, *k, *v, *attention_sub_norm, *out, *ffn_norm, *gate, *up, *ffn_sub_norm, *down;
  const char *q_norm, *k_norm, *attention_post_norm, *ffn_post_norm;
};
// Of GGUF, and of folders: of GPT-2, of the other families, and of those with norms behind the bodies.
constexpr Names kNames[] = {{"token_embd",    "position_embd", "output_norm", "output",      "blk.",
                             "attn_norm",     "attn_qkv",      "attn_q",      "attn_k",      "attn_v",
                             "attn_sub_norm", "attn_output",   "ffn_norm",    "ffn_gate",    "ffn_up",
                             "ffn_sub_norm",  "ffn_down",      "attn_q_norm", "attn_k_norm", "post_attention_norm",
                             "post_ffw_norm"},
                            {"wte", "wpe",         "ln_f", "lm_head", "h.",       "ln_1", "attn.c_attn", "", "", "",
                             "",    "attn.c_proj", "ln_2", "",        "mlp.c_fc", "",     "mlp.c_proj",  "", "", "",
                             ""},
                            {"embed_tokens",
                             "",
                             "norm",
                             "lm_head",
                             "layers.",
                             "input_layernorm",
                             "",
                             "self_attn.q_proj",
                             "self_attn.k_proj",
                             "self_attn.v_proj",
                             "self_attn.attn_sub_norm",
                             "self_attn.o_proj",
                             "post_attention_layernorm",
                             "mlp.gate_proj",
                             "mlp.up_proj",
                             "mlp.ffn_sub_norm",
                             "mlp.down_proj",
                             "self_attn.q_norm",
                             "self_attn.k_norm",
                             "",
                             ""},
                            {"embed_tokens",
                             "",
                             "norm",
                             "lm_head",
                             "layers.",
                             "input_layernorm",
                             "",
                             "self_attn.q_proj",
                             "self_attn.k_proj",
                             "self_attn.v_proj",
                             "self_attn.attn_sub_norm",
                             "self_attn.o_proj",
                             "pre_feedforward_layernorm",
                             "mlp.gate_proj",
                             "mlp.up_proj",
                             "mlp.ffn_sub_norm",
                             "mlp.down_proj",
                             "self_attn.q_norm",
                             "self_attn.k_norm",
                             "post_attention_layernorm",
                             "post_feedforward_layernorm"}};

class Mapper {
 public:
  Mapper(const FoundDecoder& found, const Family& family, FileFormat format, std::string_view prefix)
      : d_(found.decoder),
        paths_(found.paths),
        family_(family),
        prefix_(prefix),
        names_(kNames[format == FileFormat::kGguf ? 0
                      : family.fused_qkv          ? 1
                      : family.post_norms         ? 3
                                                  : 2]),
        norm_offset_(format == FileFormat::kHuggingFace && family.norm_offset ? 1 : 0) {
    transposed_ = format == FileFormat::kHuggingFace && family.fused_qkv;
    // If a family's rope rotates other pairs than ours, its files have the rows of q and k in another order.
    reordered_ = format == FileFormat::kGguf && !d_.learned_positions && family.interleaved != d_.rope.interleaved;
  }

  std::vector<MappedTensor> run() {
    table(prefix_ + names_.tokens, paths_.tokens, d_.vocabulary);
    if (d_.learned_positions) table(prefix_ + names_.positions, paths_.positions, d_.context);
    for (size_t n = 0; n < paths_.blocks.size(); ++n) block(paths_.blocks[n], concat(prefix_, names_.block, n, '.'));
    norm(prefix_ + names_.norm, paths_.norm, d_.dim);
    if (!d_.tied) table(names_.head, paths_.head, d_.vocabulary);
    return std::move(out_);
  }

 private:
  void table(const std::string& name, const std::string& path, int64_t rows) {
    out_.push_back({.name = name + ".weight",
                    .parameter = path + ".weight",
                    .shape = {rows, d_.dim},
                    .matrix = true,
                    .embedding = true});
  }
  void norm(const std::string& name, const std::string& path, int64_t features) {
    out_.push_back(
        {.name = name + ".weight", .parameter = path + ".gamma", .shape = {features}, .offset = norm_offset_});
    if (family_.biases)
      out_.push_back({.name = name + ".bias", .parameter = d_.norm_bias ? path + ".beta" : "", .shape = {features}});
  }
  // Of q or k: gamma of a head, or of all. Its features are in the order of the rows of their weights.
  void head_norm(const std::string& name, const std::string& parameter, int64_t heads) {
    const int64_t normed = d_.qk_norm == "row" ? heads : 1;
    out_.push_back({.name = name + ".weight",
                    .parameter = parameter,
                    .shape = {normed * d_.head_dim},
                    .heads = reordered_ ? normed : 0,
                    .offset = norm_offset_});
  }
  // Rows begin .. begin + rows - 1 of a weight, and of its bias.
  void linear(const std::string& name, const std::string& path, int64_t begin, int64_t rows, int64_t cols, bool bias,
              int64_t heads = 0) {
    const int64_t rotated = reordered_ ? heads : 0;
    out_.push_back({.name = name + ".weight",
                    .parameter = path + ".weight",
                    .shape = {rows, cols},
                    .begin = begin,
                    .matrix = true,
                    .transposed = transposed_,
                    .heads = rotated});
    if (!bias && !family_.biases) return;
    out_.push_back({.name = name + ".bias",
                    .parameter = bias ? path + ".bias" : "",
                    .shape = {rows},
                    .begin = begin,
                    .heads = rotated});
  }

  void block(const DecoderPaths::Block& p, const std::string& at) {
    const int64_t q = d_.heads * d_.head_dim, kv = d_.kv_heads * d_.head_dim;
    if (d_.pre_norms) norm(at + names_.attention_norm, p.attention_norm, d_.dim);
    if (family_.fused_qkv) {
      linear(at + names_.qkv, p.qkv, 0, q + 2 * kv, d_.dim, d_.qkv_bias);
    } else {
      linear(at + names_.q, p.qkv, 0, q, d_.dim, d_.qkv_bias, d_.heads);
      linear(at + names_.k, p.qkv, q, kv, d_.dim, d_.qkv_bias, d_.kv_heads);
      linear(at + names_.v, p.qkv, q + kv, kv, d_.dim, d_.qkv_bias);
    }
    if (d_.qk_norm != "none") {
      head_norm(at + names_.q_norm, p.attention + ".q_norm", d_.heads);
      head_norm(at + names_.k_norm, p.attention + ".k_norm", d_.kv_heads);
    }
    if (d_.sub_norms) norm(at + names_.attention_sub_norm, p.attention_sub_norm, q);
    linear(at + names_.out, p.out, 0, d_.dim, q, d_.out_bias);
    if (d_.post_norms) norm(at + names_.attention_post_norm, p.attention_post_norm, d_.dim);
    if (d_.pre_norms) norm(at + names_.ffn_norm, p.ffn_norm, d_.dim);
    if (d_.gated) linear(at + names_.gate, p.up, 0, d_.ffn, d_.dim, d_.ffn_bias);
    linear(at + names_.up, p.up, d_.gated ? d_.ffn : 0, d_.ffn, d_.dim, d_.ffn_bias);
    if (d_.sub_norms) norm(at + names_.ffn_sub_norm, p.ffn_sub_norm, d_.ffn);
    linear(at + names_.down, p.down, 0, d_.dim, d_.ffn, d_.ffn_bias);
    if (d_.post_norms) norm(at + names_.ffn_post_norm, p.ffn_post_norm, d_.dim);
  }

  const Decoder& d_;
  const DecoderPaths& paths_;
  const Family& family_;
  const std::string prefix_;  // of the names but the head
  const Names& names_;
  const double norm_offset_;
  bool transposed_ = false, reordered_ = false;
  std::vector<MappedTensor> out_;
};

}  // namespace

std::vector<MappedTensor> tensor_map(const FoundDecoder& found, const Family& family, FileFormat format,
                                     std::optional<std::string_view> prefix) {
  const std::string_view own = format == FileFormat::kGguf ? "" : family.fused_qkv ? "transformer." : "model.";
  return Mapper(found, family, format, prefix.value_or(own)).run();
}

}  // namespace bitgrad::interop
