#include "interop/decoder_files.h"

#include "bitgrad/base/error.h"

namespace bitgrad::interop {
namespace {

// The names of a tensor: in GGUF, in folders of GPT-2, and in those of the other families. Empty: there is none.
struct Name {
  const char *gguf, *gpt2, *hugging_face;
  const char* with_post_norms = nullptr;  // of families with norms behind the bodies, if another one
};
// Of the model; block: in front of the number.
constexpr Name kTokens{"token_embd", "wte", "embed_tokens"}, kPositions{"position_embd", "wpe", ""},
    kNorm{"output_norm", "ln_f", "norm"}, kHead{"output", "lm_head", "lm_head"}, kBlock{"blk.", "h.", "layers."};
// Within a block.
constexpr Name kAttentionNorm{"attn_norm", "ln_1", "input_layernorm"}, kQkv{"attn_qkv", "attn.c_attn", ""},
    kQ{"attn_q", "", "self_attn.q_proj"}, kK{"attn_k", "", "self_attn.k_proj"}, kV{"attn_v", "", "self_attn.v_proj"},
    kQNorm{"attn_q_norm", "", "self_attn.q_norm"}, kKNorm{"attn_k_norm", "", "self_attn.k_norm"},
    kAttentionSubNorm{"attn_sub_norm", "", "self_attn.attn_sub_norm"},
    kOut{"attn_output", "attn.c_proj", "self_attn.o_proj"},
    kAttentionPostNorm{"post_attention_norm", "", "", "post_attention_layernorm"},
    kFfnNorm{"ffn_norm", "ln_2", "post_attention_layernorm", "pre_feedforward_layernorm"},
    kGate{"ffn_gate", "", "mlp.gate_proj"}, kUp{"ffn_up", "mlp.c_fc", "mlp.up_proj"},
    kFfnSubNorm{"ffn_sub_norm", "", "mlp.ffn_sub_norm"}, kDown{"ffn_down", "mlp.c_proj", "mlp.down_proj"},
    kFfnPostNorm{"post_ffw_norm", "", "", "post_feedforward_layernorm"};

class Mapper {
 public:
  Mapper(const FoundDecoder& found, const Family& family, FileFormat format, std::string_view prefix)
      : d_(found.decoder),
        paths_(found.paths),
        family_(family),
        prefix_(prefix),
        format_(format),
        norm_offset_(format == FileFormat::kHuggingFace && family.norm_offset ? 1 : 0) {
    transposed_ = format == FileFormat::kHuggingFace && family.fused_qkv;
    // If a family's rope rotates other pairs than ours, its files have the rows of q and k in another order.
    reordered_ = format == FileFormat::kGguf && !d_.learned_positions && family.interleaved != d_.rope.interleaved;
  }

  std::vector<MappedTensor> run() {
    table(prefix_ + name(kTokens), paths_.tokens, d_.vocabulary);
    if (d_.learned_positions) table(prefix_ + name(kPositions), paths_.positions, d_.context);
    for (size_t n = 0; n < paths_.blocks.size(); ++n) block(paths_.blocks[n], concat(prefix_, name(kBlock), n, '.'));
    norm(prefix_ + name(kNorm), paths_.norm, d_.dim);
    if (!d_.tied) table(name(kHead), paths_.head, d_.vocabulary);
    return std::move(out_);
  }

 private:
  std::string name(const Name& of) const {
    if (format_ == FileFormat::kGguf) return of.gguf;
    if (family_.fused_qkv) return of.gpt2;
    return family_.post_norms && of.with_post_norms != nullptr ? of.with_post_norms : of.hugging_face;
  }

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
    if (d_.pre_norms) norm(at + name(kAttentionNorm), p.attention_norm, d_.dim);
    if (family_.fused_qkv) {
      linear(at + name(kQkv), p.qkv, 0, q + 2 * kv, d_.dim, d_.qkv_bias);
    } else {
      linear(at + name(kQ), p.qkv, 0, q, d_.dim, d_.qkv_bias, d_.heads);
      linear(at + name(kK), p.qkv, q, kv, d_.dim, d_.qkv_bias, d_.kv_heads);
      linear(at + name(kV), p.qkv, q + kv, kv, d_.dim, d_.qkv_bias);
    }
    if (d_.qk_norm != "none") {
      head_norm(at + name(kQNorm), p.attention + ".q_norm", d_.heads);
      head_norm(at + name(kKNorm), p.attention + ".k_norm", d_.kv_heads);
    }
    if (d_.sub_norms) norm(at + name(kAttentionSubNorm), p.attention_sub_norm, q);
    linear(at + name(kOut), p.out, 0, d_.dim, q, d_.out_bias);
    if (d_.post_norms) norm(at + name(kAttentionPostNorm), p.attention_post_norm, d_.dim);
    if (d_.pre_norms) norm(at + name(kFfnNorm), p.ffn_norm, d_.dim);
    if (d_.gated) linear(at + name(kGate), p.up, 0, d_.ffn, d_.dim, d_.ffn_bias);
    linear(at + name(kUp), p.up, d_.gated ? d_.ffn : 0, d_.ffn, d_.dim, d_.ffn_bias);
    if (d_.sub_norms) norm(at + name(kFfnSubNorm), p.ffn_sub_norm, d_.ffn);
    linear(at + name(kDown), p.down, 0, d_.dim, d_.ffn, d_.ffn_bias);
    if (d_.post_norms) norm(at + name(kFfnPostNorm), p.ffn_post_norm, d_.dim);
  }

  const Decoder& d_;
  const DecoderPaths& paths_;
  const Family& family_;
  const std::string prefix_;  // of the names but the head
  const FileFormat format_;
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
