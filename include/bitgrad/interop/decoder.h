// Decoder: recognizes a causal transformer in a model's layers by structure and describes it by its
// hyperparameters, the form in which other programs' files describe models. interop/interop.h reads and writes such
// files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/base/key.h"
#include "bitgrad/nn/model_spec.h"
#include "bitgrad/ops/attention.h"

namespace bitgrad {

// What a block's attention sees. full: all keys before it, with `rope` of the decoder; local: those in its window, with
// `local_rope`; no_rope: all, without positions.
enum class BlockKind : uint8_t { kFull, kLocal, kNoRope };
template <>
struct EnumNames<BlockKind> {
  static constexpr std::string_view all[] = {"full", "local", "no_rope"};
};

// Embedding; learned or rotary positions; `blocks` residual blocks of attention and feed-forward, each with a norm
// before or behind its body, or both; a final norm; a head. q, k and v are one weight with rows in this order; gate and
// up are one weight, gate first.
struct Decoder {
  int64_t vocabulary = 0, context = 0, dim = 0, blocks = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0, ffn = 0;
  bool layer_norm = false;  // false: rms_norm
  double eps = 1e-5;
  bool learned_positions = false;                     // false: rotary, as `rope` says
  RopeOptions rope = {};                              // rope.dim is head_dim
  std::vector<BlockKind> kinds = {BlockKind::kFull};  // block n is kinds[n % size]
  int64_t window = 0;                                 // keys that a local block sees; 0: none is local
  RopeOptions local_rope = {};
  double attention_scale = 0;                       // as key scale of attention
  double residual_scale = 1, logit_scale = 1;       // as key scale of residual and of head
  double attention_softcap = 0, logit_softcap = 0;  // 0: no cap
  double embedding_scale = 1;                       // as key scale of embedding
  std::string qk_norm = "none";                     // of q and k, as key qk_norm of attention
  std::string activation = {};                      // layer kind, e.g. "gelu"; of gated ones too, e.g. "swiglu"
  bool gated = false;
  bool norm_bias = false, qkv_bias = false, out_bias = false, ffn_bias = false;
  bool sub_norms = false;   // a norm before the last weight of each residual
  bool pre_norms = true;    // a norm begins each residual
  bool post_norms = false;  // a norm ends each residual
  bool tied = true;         // the head reuses the embedding's weight

  BlockKind kind(int64_t block) const { return kinds[static_cast<size_t>(block) % kinds.size()]; }
};

// Layer paths of the decoder's parts in a model, e.g. "layers.2.0.0.0.body.1".
struct DecoderPaths {
  struct Block {
    std::string attention_norm = {}, qkv = {}, attention = {}, attention_sub_norm = {}, out = {};
    std::string attention_post_norm = {};
    std::string ffn_norm = {}, up = {}, activation = {}, ffn_sub_norm = {}, down = {}, ffn_post_norm = {};
  };
  std::string tokens = {}, positions = {}, norm = {}, head = {};
  std::vector<Block> blocks = {};
};

struct FoundDecoder {
  Decoder decoder = {};
  DecoderPaths paths = {};
};
// Looks through sequences and repeats and skips dropout. Throws Error that names the first layer that does not belong
// to a decoder or differs in its hyperparameters from the blocks of its kind before it.
FoundDecoder find_decoder(const ModelSpec& model);

// Builds the layers of preset gpt (learned positions), llama or bitnet (sub-norms) with these hyperparameters,
// unquantized. Input: ids [context].
ModelSpec decoder_model(const Decoder& decoder);
// The model section of a configuration that yields these layers, e.g. "{preset: llama, keys: {..}}"; empty if no preset
// does.
std::string decoder_preset(const Decoder& decoder);

}  // namespace bitgrad
