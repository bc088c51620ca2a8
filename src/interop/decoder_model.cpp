// Builds the layers of a decoder, as presets gpt, llama and bitnet do.
#include "bitgrad/base/error.h"
#include "bitgrad/interop/decoder.h"
#include "bitgrad/nn/module.h"

namespace bitgrad {
namespace {

LayerSpec layer(std::string kind, Attributes keys = {}) {
  LayerSpec spec;
  spec.kind = std::move(kind);
  spec.attributes = std::move(keys);
  return spec;
}
LayerSpec dropout() { return layer("dropout", {{"p", 0.0}}); }

class Builder {
 public:
  explicit Builder(const Decoder& d) : d_(d) {}

  ModelSpec model() const {
    ModelSpec out;
    out.input.sample = Shape{d_.context};
    out.input.dtype = dtypes::int32;
    out.input.ids = d_.vocabulary;
    out.layers.push_back(layer("embedding", {{"num", d_.vocabulary}, {"dim", d_.dim}, {"flat", false}}));
    if (d_.learned_positions) out.layers.push_back(layer("positions", {{"context", d_.context}}));
    out.layers.push_back(dropout());
    LayerSpec blocks = layer("repeat", {{"times", d_.blocks}});
    LayerSpec block = layer("sequence");
    block.lists.push_back({"layers", {attention(), feed_forward()}});
    blocks.lists.push_back({"layers", {block}});
    out.layers.push_back(blocks);
    out.layers.push_back(norm());
    out.layers.push_back(d_.tied ? layer("head", {{"tie", concat(kModelRoot, ".0")}}) : linear(d_.vocabulary, false));
    return out;
  }

 private:
  LayerSpec norm() const {
    if (d_.layer_norm) return layer("layer_norm", {{"eps", d_.eps}, {"bias", d_.norm_bias}});
    return layer("rms_norm", {{"eps", d_.eps}});
  }
  LayerSpec linear(int64_t out, bool bias) const { return layer("linear", {{"out", out}, {"bias", bias}}); }

  LayerSpec residual(std::vector<LayerSpec> body) const {
    LayerSpec spec = layer("residual");
    body.push_back(dropout());
    spec.lists.push_back({"body", std::move(body)});
    return spec;
  }
  LayerSpec attention() const {
    LayerSpec attend = layer("attention", {{"heads", d_.heads}, {"kv_heads", d_.kv_heads}});
    if (!d_.learned_positions) {
      attend.attributes["rope"] = d_.rope.base;
      attend.attributes["interleaved"] = d_.rope.interleaved;
      attend.attributes["rope_factor"] = d_.rope.factor;
      attend.attributes["rope_low"] = d_.rope.low;
      attend.attributes["rope_high"] = d_.rope.high;
      attend.attributes["rope_original"] = d_.rope.original;
    }
    std::vector<LayerSpec> body{norm(), linear((d_.heads + 2 * d_.kv_heads) * d_.head_dim, d_.qkv_bias), attend};
    if (d_.sub_norms) body.push_back(layer("rms_norm", {{"eps", d_.eps}}));
    body.push_back(linear(d_.dim, d_.out_bias));
    return residual(std::move(body));
  }
  LayerSpec feed_forward() const {
    std::vector<LayerSpec> body{norm(), linear(d_.gated ? 2 * d_.ffn : d_.ffn, d_.ffn_bias), layer(d_.activation)};
    if (d_.sub_norms) body.push_back(layer("rms_norm", {{"eps", d_.eps}}));
    body.push_back(linear(d_.dim, d_.ffn_bias));
    return residual(std::move(body));
  }

  const Decoder& d_;
};

std::string yes(bool x) { return x ? "true" : "false"; }

}  // namespace

ModelSpec decoder_model(const Decoder& decoder) { return Builder(decoder).model(); }

std::string decoder_preset(const Decoder& d) {
  if (d.head_dim * d.heads != d.dim || d.out_bias != (d.learned_positions && d.qkv_bias)) return "";
  if (d.rope.factor != 1 || d.rope.interleaved) return "";
  const std::string shape = concat("vocabulary: ", d.vocabulary, ", layers: ", d.blocks, ", heads: ", d.heads,
                                   ", dim: ", d.dim, ", eps: ", d.eps, ", act: {", d.activation, ": {}}");
  if (d.learned_positions) {
    const bool bias = d.qkv_bias;
    if (!d.layer_norm || d.gated || !d.tied || d.ffn != 4 * d.dim || d.kv_heads != d.heads) return "";
    if (d.norm_bias != bias || d.out_bias != bias || d.ffn_bias != bias) return "";
    return concat("{preset: gpt, keys: {", shape, ", context: ", d.context, ", bias: ", yes(bias),
                  d.sub_norms ? concat(", sub_norm: [{rms_norm: {eps: ", d.eps, "}}]") : "", "}}");
  }
  if (d.layer_norm || !d.gated || d.ffn_bias || (d.sub_norms && d.qkv_bias)) return "";
  return concat("{preset: ", d.sub_norms ? "bitnet" : "llama", ", keys: {", shape, ", kv_heads: ", d.kv_heads,
                ", ffn: ", d.ffn, ", rope: ", d.rope.base, d.qkv_bias ? ", qkv_bias: true" : "",
                d.tied ? "" : concat(", head: {linear: {out: ", d.vocabulary, ", bias: false}}"), "}}");
}

}  // namespace bitgrad
