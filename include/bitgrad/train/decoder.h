// A decoder (a causal transformer of one shape throughout) recognised in a model's layers by their structure, and made
// of its numbers: what files of other programs say of a model. train/interop.h reads and writes such files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bitgrad/nn/model_spec.h"
#include "bitgrad/ops/attention.h"

namespace bitgrad {

// Embedding, learned or rotary positions, `blocks` times attention and feed-forward as residuals with a norm first,
// a norm, a head. q, k and v are one weight, rows in this order; gate and up are one, gate first.
struct Decoder {
  int64_t vocabulary = 0, context = 0, dim = 0, blocks = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0, ffn = 0;
  bool layer_norm = false;  // else rms_norm
  double eps = 1e-5;
  bool learned_positions = false;  // else rotary ones, as `rope` says
  RopeOptions rope = {};           // dim is head_dim
  std::string activation = {};     // kind: "gelu"; of a gated one too, "swiglu"
  bool gated = false;
  bool norm_bias = false, qkv_bias = false, out_bias = false, ffn_bias = false;
  bool sub_norms = false;  // before the last weight of each residual
  bool tied = true;        // the head multiplies by the embedding
};

// Where its parts are in a model: paths of layers, "layers.2.0.0.0.body.1".
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
// Sequences and repeats are looked through, dropout is skipped. Throws Error that names the layer which a decoder would
// not have there, or whose numbers differ from those of the blocks before.
FoundDecoder find_decoder(const ModelSpec& model);

// The layers of preset gpt (learned positions), llama or bitnet (sub-norms) with these numbers, without quantization;
// input: ids [context].
ModelSpec decoder_model(const Decoder& decoder);
// What a configuration says to have those layers: "{preset: llama, keys: {..}}"; empty: no preset has them.
std::string decoder_preset(const Decoder& decoder);

}  // namespace bitgrad
