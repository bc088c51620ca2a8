// Decoder: recognizes a uniform causal transformer in a model's layers by structure and describes it by its
// hyperparameters, the form in which other programs' files describe models. interop/interop.h reads and writes such
// files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bitgrad/nn/model_spec.h"
#include "bitgrad/ops/attention.h"

namespace bitgrad {

// Embedding; learned or rotary positions; `blocks` pre-norm residual blocks of attention and feed-forward; a final
// norm; a head. q, k and v are one weight with rows in this order; gate and up are one weight, gate first.
struct Decoder {
  int64_t vocabulary = 0, context = 0, dim = 0, blocks = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0, ffn = 0;
  bool layer_norm = false;  // false: rms_norm
  double eps = 1e-5;
  bool learned_positions = false;  // false: rotary, as `rope` says
  RopeOptions rope = {};           // rope.dim is head_dim
  std::string qk_norm = "none";    // of q and k, as key qk_norm of attention
  std::string activation = {};     // layer kind, e.g. "gelu"; of gated ones too, e.g. "swiglu"
  bool gated = false;
  bool norm_bias = false, qkv_bias = false, out_bias = false, ffn_bias = false;
  bool sub_norms = false;  // a norm before the last weight of each residual
  bool tied = true;        // the head reuses the embedding's weight
};

// Layer paths of the decoder's parts in a model, e.g. "layers.2.0.0.0.body.1".
struct DecoderPaths {
  struct Block {
    std::string attention_norm = {}, qkv = {}, attention = {}, attention_sub_norm = {}, out = {};
    std::string ffn_norm = {}, up = {}, activation = {}, ffn_sub_norm = {}, down = {};
  };
  std::string tokens = {}, positions = {}, norm = {}, head = {};
  std::vector<Block> blocks = {};
};

struct FoundDecoder {
  Decoder decoder = {};
  DecoderPaths paths = {};
};
// Looks through sequences and repeats and skips dropout. Throws Error that names the first layer that does not belong
// to a decoder or differs in its hyperparameters from the blocks before it.
FoundDecoder find_decoder(const ModelSpec& model);

// Builds the layers of preset gpt (learned positions), llama or bitnet (sub-norms) with these hyperparameters,
// unquantized. Input: ids [context].
ModelSpec decoder_model(const Decoder& decoder);
// The model section of a configuration that yields these layers, e.g. "{preset: llama, keys: {..}}"; empty if no preset
// does.
std::string decoder_preset(const Decoder& decoder);

}  // namespace bitgrad
