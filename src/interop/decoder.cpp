// Recognizes a decoder in layers.

#include <algorithm>
#include <optional>
#include <set>
#include <span>

#include "bitgrad/base/error.h"
#include "bitgrad/interop/decoder.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/nn/module.h"
#include "interop/decoder_files.h"
#include "nn/expanded_layers.h"

namespace bitgrad {

namespace {

constexpr std::string_view kDecoder = "decoder", kSubNorm = "sub-norm behind it";

struct Item {
  std::string path;
  LayerSpec layer;
};

void flatten(std::span<const LayerSpec> layers, const std::string& prefix, std::vector<Item>& out) {
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerSpec layer = completed(layers[i]);
    const std::string path = concat(prefix, '.', layer.name.empty() ? std::to_string(i) : layer.name);
    if (layer.kind == "dropout") continue;
    if (layer.kind == "sequence") {
      flatten(layer.lists.at(0).layers, path, out);
    } else if (layer.kind == "repeat") {
      for (int64_t round = 0; round < layer.attributes.integer("times"); ++round)
        flatten(detail::layers_of_round(layer, round), concat(path, '.', round), out);
    } else {
      out.push_back({path, layer});
    }
  }
}

// Consumes layers from front to back, checking each against what is expected.
class Cursor {
 public:
  Cursor(std::vector<Item> items, std::string where) : items_(std::move(items)), where_(std::move(where)) {}

  bool at(std::string_view kind) const { return next_ < items_.size() && items_[next_].layer.kind == kind; }
  bool done() const { return next_ == items_.size(); }
  const Item& take(std::string_view expected, std::initializer_list<std::string_view> kinds) {
    if (next_ == items_.size()) fail(kDecoder, where_, " ends, expected ", expected, ". It is not a decoder.");
    const Item& item = items_[next_];
    if (std::find(kinds.begin(), kinds.end(), item.layer.kind) == kinds.end()) wrong(expected);
    ++next_;
    return item;
  }
  const Item& take_any(std::string_view expected) {
    return take(expected, {next_ < items_.size() ? std::string_view(items_[next_].layer.kind) : ""});
  }
  [[noreturn]] void wrong(std::string_view expected) const {
    fail(kDecoder, items_[next_].path, ": got ", items_[next_].layer.kind, ", expected ", expected,
         ". It is not a decoder.");
  }

 private:
  std::vector<Item> items_;
  std::string where_;
  size_t next_ = 0;
};

class Finder {
 public:
  explicit Finder(const ModelSpec& model) {
    std::vector<Item> items;
    flatten(model.layers, std::string(kModelRoot), items);
    Cursor cursor(std::move(items), "the model");
    start(cursor, model.input);
    do block(cursor);
    while (cursor.at("residual"));
    d_.blocks = static_cast<int64_t>(found_.paths.blocks.size());
    kinds();
    norm(cursor, found_.paths.norm);
    end(cursor);
    if (!d_.learned_positions) d_.context = std::max<int64_t>(1, model.input.sample.numel());
  }
  FoundDecoder result() const { return found_; }

 private:
  // The first layer sets the value; later ones must have the same.
  template <typename T>
  void same(T& field, T value, const Item& item, std::string_view what) {
    if (known_.insert(&field).second) field = value;
    require(field == value, kDecoder, item.path, ": ", what, ": got ", value, ", expected ", field,
            " as in the layers before. A decoder has one shape throughout.");
  }

  void start(Cursor& cursor, const Form& input) {
    const Item& tokens = cursor.take("an embedding", {"embedding"});
    require(!tokens.layer.attributes.flag("flat"), kDecoder, tokens.path,
            ": flat: got true, expected false: a row for each position.");
    d_.vocabulary = tokens.layer.attributes.integer("num");
    d_.dim = tokens.layer.attributes.integer("dim");
    d_.embedding_scale = tokens.layer.attributes.number("scale");
    found_.paths.tokens = tokens.path;
    if (!cursor.at("positions")) return;
    const Item& positions = cursor.take("positions", {"positions"});
    d_.learned_positions = true;
    d_.context = positions.layer.attributes.integer("context");
    found_.paths.positions = positions.path;
    require(input.sample.numel() <= d_.context, kDecoder, positions.path, ": got ", d_.context, " positions for ",
            input.sample.numel());
  }

  void end(Cursor& cursor) {
    const Item& head = cursor.take("the head", {"head", "linear"});
    require(!head.layer.attributes.flag("bias"), kDecoder, head.path, ": bias of the head: got true, expected false.");
    d_.tied = head.layer.kind == "head";
    if (d_.tied)
      require(head.layer.attributes.text("tie") == found_.paths.tokens, kDecoder, head.path, ": tie: got ",
              head.layer.attributes.text("tie"), ", expected ", found_.paths.tokens, ", the embedding.");
    else
      require(head.layer.attributes.integer("out") == d_.vocabulary, kDecoder, head.path, ": out: got ",
              head.layer.attributes.integer("out"), ", expected ", d_.vocabulary, ", the rows of the embedding.");
    found_.paths.head = head.path;
    if (d_.tied) d_.logit_scale = head.layer.attributes.number("scale");
    if (cursor.at("softcap")) d_.logit_softcap = cursor.take("softcap", {"softcap"}).layer.attributes.number("cap");
    if (!cursor.done()) cursor.wrong("the end");
  }

  void norm(Cursor& cursor, std::string& path) {
    const Item& item = cursor.take("a norm", {"layer_norm", "rms_norm"});
    path = item.path;
    const bool layer_norm = item.layer.kind == "layer_norm";
    same(d_.layer_norm, layer_norm, item, "layer_norm");
    same(d_.eps, item.layer.attributes.number("eps"), item, "eps");
    if (layer_norm) same(d_.norm_bias, item.layer.attributes.flag("bias"), item, "bias of norms");
  }

  // An optional norm in front of a body. Without it there is one behind it.
  void pre_norm(Cursor& cursor, std::string& path) {
    const bool there = !cursor.at("linear");
    if (known_.insert(&d_.pre_norms).second) d_.pre_norms = there;
    if (d_.pre_norms)
      norm(cursor, path);
    else if (there)
      cursor.take("linear", {"linear"});
  }
  // An optional RMS norm, with the same eps as the others.
  void optional_norm(Cursor& cursor, bool& field, std::string& path, const Item& before, std::string_view what) {
    const bool there = cursor.at("rms_norm");
    same(field, there, before, what);
    if (!there) return;
    const Item& item = cursor.take("a norm", {"rms_norm"});
    same(d_.eps, item.layer.attributes.number("eps"), item, "eps");
    path = item.path;
  }

  const Item& linear(Cursor& in, std::string_view what, bool& bias, std::optional<int64_t> out, std::string& path) {
    const Item& item = in.take(what, {"linear"});
    path = item.path;
    same(bias, item.layer.attributes.flag("bias"), item, "bias");
    if (out)
      require(item.layer.attributes.integer("out") == *out, kDecoder, item.path, ": out: got ",
              item.layer.attributes.integer("out"), ", expected ", *out, ".");
    return item;
  }

  Cursor body(Cursor& cursor, std::string_view expected) {
    const Item& item = cursor.take(expected, {"residual"});
    same(d_.residual_scale, item.layer.attributes.number("scale"), item, "scale");
    std::vector<Item> items;
    for (const LayerList& list : item.layer.lists) {
      if (list.key == "body") flatten(list.layers, item.path + ".body", items);
      require(list.key == "body" || list.layers.empty(), kDecoder, item.path,
              ": got layers in the shortcut, expected none. It is not a decoder.");
    }
    return Cursor(std::move(items), item.path);
  }

  void block(Cursor& cursor) {
    DecoderPaths::Block& paths = found_.paths.blocks.emplace_back();
    Cursor attention = body(cursor, "the residual of attention");
    attend(attention, paths);
    Cursor ffn = body(cursor, "the residual of a feed-forward");
    feed_forward(ffn, paths);
  }

  void attend(Cursor& in, DecoderPaths::Block& paths) {
    pre_norm(in, paths.attention_norm);
    const Item& qkv = linear(in, "linear (q, k and v)", d_.qkv_bias, {}, paths.qkv);
    const Item& item = in.take("attention", {"attention"});
    const Attributes& keys = item.layer.attributes;
    const int64_t heads = keys.integer("heads"), kv = keys.integer("kv_heads");
    same(d_.heads, heads, item, "heads");
    same(d_.kv_heads, kv == 0 ? heads : kv, item, "kv_heads");
    const int64_t sides = heads + 2 * d_.kv_heads, rows = qkv.layer.attributes.integer("out");
    require(rows % sides == 0, kDecoder, qkv.path, ": out: got ", rows, ", expected a multiple of ", sides, ".");
    same(d_.head_dim, rows / sides, qkv, "features of a head");
    see(item);
    same(d_.attention_scale, keys.number("scale"), item, "scale");
    same(d_.attention_softcap, keys.number("softcap"), item, "softcap");
    same(d_.qk_norm, keys.text("qk_norm"), item, "qk_norm");
    if (d_.qk_norm != "none") same(d_.eps, keys.number("qk_eps"), item, "qk_eps");
    paths.attention = item.path;
    optional_norm(in, d_.sub_norms, paths.attention_sub_norm, item, kSubNorm);
    const Item& out = linear(in, "linear (out of attention)", d_.out_bias, d_.dim, paths.out);
    post_norm(in, paths.attention_post_norm, out);
  }
  // The norm behind a body, and its end.
  void post_norm(Cursor& in, std::string& path, const Item& last) {
    optional_norm(in, d_.post_norms, path, last, "norm behind it");
    require(d_.pre_norms || d_.post_norms, kDecoder, last.path, ": no norm before or behind the body of its residual.");
    if (!in.done()) in.wrong("the end of the residual");
  }

  // The kind of a block, and the window and positions that blocks of its kind share.
  void see(const Item& item) {
    const Attributes& keys = item.layer.attributes;
    const int64_t window = keys.integer("window");
    const double base = keys.number("rope");
    require(base == 0 || !d_.learned_positions, kDecoder, item.path, ": rope: got ", base,
            ", expected 0: positions are learned.");
    const bool without = base == 0 && !d_.learned_positions;
    require(!without || window == 0, kDecoder, item.path, ": rope: got 0 and a window, expected a base.");
    d_.kinds.push_back(without ? BlockKind::kNoRope : window > 0 ? BlockKind::kLocal : BlockKind::kFull);
    if (window > 0) same(d_.window, window, item, "window");
    if (!without) rope(item, window > 0 ? d_.local_rope : d_.rope);
  }
  void rope(const Item& item, RopeOptions& to) {
    const Attributes& keys = item.layer.attributes;
    same(to.base, keys.number("rope"), item, "rope");
    same(to.interleaved, keys.flag("interleaved"), item, "interleaved");
    same(to.factor, keys.number("rope_factor"), item, "rope_factor");
    same(to.low, keys.number("rope_low"), item, "rope_low");
    same(to.high, keys.number("rope_high"), item, "rope_high");
    same(to.original, keys.integer("rope_original"), item, "rope_original");
    to.dim = d_.head_dim;
  }
  // The shortest cycle that gives the kinds of all blocks.
  void kinds() {
    d_.kinds.erase(d_.kinds.begin());  // what a Decoder begins with
    d_.kinds = interop::shortest_cycle(d_.kinds);
    const auto has = [&](BlockKind kind) {
      return std::find(d_.kinds.begin(), d_.kinds.end(), kind) != d_.kinds.end();
    };
    require(has(BlockKind::kFull) || has(BlockKind::kLocal), kDecoder, found_.paths.blocks[0].attention,
            ": rope: got 0, expected a base: positions are neither learned nor rotary.");
    if (!has(BlockKind::kFull)) d_.rope = d_.local_rope;
    if (!has(BlockKind::kLocal)) d_.local_rope = {};
  }

  void feed_forward(Cursor& in, DecoderPaths::Block& paths) {
    pre_norm(in, paths.ffn_norm);
    const Item& up = linear(in, "linear (up, or gate and up)", d_.ffn_bias, {}, paths.up);
    const Item& act = in.take_any("an activation");
    const std::optional<bool> gated = interop::activation_is_gated(act.layer.kind);
    require(gated.has_value(), kDecoder, act.path, ": got ", act.layer.kind,
            ", expected an activation. It is not a decoder.");
    same(d_.activation, act.layer.kind, act, "activation");
    d_.gated = *gated;
    const int64_t rows = up.layer.attributes.integer("out");
    require(!d_.gated || rows % 2 == 0, kDecoder, up.path, ": out: got ", rows, ", expected an even number.");
    same(d_.ffn, d_.gated ? rows / 2 : rows, up, "features");
    paths.activation = act.path;
    optional_norm(in, d_.sub_norms, paths.ffn_sub_norm, act, kSubNorm);
    const Item& down = linear(in, "linear (down)", d_.ffn_bias, d_.dim, paths.down);
    post_norm(in, paths.ffn_post_norm, down);
  }

  FoundDecoder found_;
  Decoder& d_ = found_.decoder;
  std::set<const void*> known_;  // fields of d_ that a layer has set
};

}  // namespace

FoundDecoder find_decoder(const ModelSpec& model) { return Finder(model).result(); }

// Builds the layers of a decoder, as presets gpt, llama and bitnet do.

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
    out.layers.push_back(
        layer("embedding", {{"num", d_.vocabulary}, {"dim", d_.dim}, {"flat", false}, {"scale", d_.embedding_scale}}));
    if (d_.learned_positions) out.layers.push_back(layer("positions", {{"context", d_.context}}));
    out.layers.push_back(dropout());
    LayerSpec blocks = layer("repeat", {{"times", d_.blocks}});
    if (d_.kinds.size() > 1) blocks.attributes[std::string(detail::kCycleKey)] = true;
    std::vector<LayerSpec> turns;
    for (const BlockKind kind : d_.kinds) {
      turns.push_back(layer("sequence"));
      turns.back().lists.push_back({"layers", {attention(kind), feed_forward()}});
    }
    blocks.lists.push_back({"layers", std::move(turns)});
    out.layers.push_back(blocks);
    out.layers.push_back(norm());
    out.layers.push_back(d_.tied ? layer("head", {{"tie", concat(kModelRoot, ".0")}, {"scale", d_.logit_scale}})
                                 : linear(d_.vocabulary, false));
    if (d_.logit_softcap > 0) out.layers.push_back(layer("softcap", {{"cap", d_.logit_softcap}}));
    return out;
  }

 private:
  LayerSpec norm() const {
    if (d_.layer_norm) return layer("layer_norm", {{"eps", d_.eps}, {"bias", d_.norm_bias}});
    return layer("rms_norm", {{"eps", d_.eps}});
  }
  LayerSpec linear(int64_t out, bool bias) const { return layer("linear", {{"out", out}, {"bias", bias}}); }

  // With the norms around it.
  LayerSpec residual(std::vector<LayerSpec> body) const {
    LayerSpec spec = layer("residual", {{"scale", d_.residual_scale}});
    if (d_.pre_norms) body.insert(body.begin(), norm());
    if (d_.post_norms) body.push_back(norm());
    body.push_back(dropout());
    spec.lists.push_back({"body", std::move(body)});
    return spec;
  }
  LayerSpec attention(BlockKind kind) const {
    LayerSpec attend = layer("attention", {{"heads", d_.heads},
                                           {"kv_heads", d_.kv_heads},
                                           {"scale", d_.attention_scale},
                                           {"softcap", d_.attention_softcap}});
    if (kind == BlockKind::kLocal) attend.attributes["window"] = d_.window;
    if (!d_.learned_positions && kind != BlockKind::kNoRope) {
      const RopeOptions& rope = kind == BlockKind::kLocal ? d_.local_rope : d_.rope;
      attend.attributes["rope"] = rope.base;
      attend.attributes["interleaved"] = rope.interleaved;
      attend.attributes["rope_factor"] = rope.factor;
      attend.attributes["rope_low"] = rope.low;
      attend.attributes["rope_high"] = rope.high;
      attend.attributes["rope_original"] = rope.original;
    }
    if (d_.qk_norm != "none") {
      attend.attributes["qk_norm"] = d_.qk_norm;
      attend.attributes["qk_eps"] = d_.eps;
    }
    std::vector<LayerSpec> body{linear((d_.heads + 2 * d_.kv_heads) * d_.head_dim, d_.qkv_bias), attend};
    if (d_.sub_norms) body.push_back(layer("rms_norm", {{"eps", d_.eps}}));
    body.push_back(linear(d_.dim, d_.out_bias));
    return residual(std::move(body));
  }
  LayerSpec feed_forward() const {
    std::vector<LayerSpec> body{linear(d_.gated ? 2 * d_.ffn : d_.ffn, d_.ffn_bias), layer(d_.activation)};
    if (d_.sub_norms) body.push_back(layer("rms_norm", {{"eps", d_.eps}}));
    body.push_back(linear(d_.dim, d_.ffn_bias));
    return residual(std::move(body));
  }

  const Decoder& d_;
};

// Keys of preset llama.
std::string scaled_rope(const RopeOptions& rope) {
  if (rope.factor == 1) return "";
  return concat(", rope_factor: ", rope.factor, ", rope_low: ", rope.low, ", rope_high: ", rope.high,
                ", rope_original: ", rope.original);
}
std::string yes(bool x) { return x ? "true" : "false"; }

}  // namespace

ModelSpec decoder_model(const Decoder& decoder) { return Builder(decoder).model(); }

std::string decoder_preset(const Decoder& d) {
  const bool own_heads = d.head_dim * d.heads != d.dim;
  if (d.rope.interleaved || d.out_bias != (d.learned_positions && d.qkv_bias)) return "";
  const bool plain = d.kinds == std::vector{BlockKind::kFull} && d.attention_scale == 0 && d.embedding_scale == 1 &&
                     d.residual_scale == 1 && d.logit_scale == 1 && d.attention_softcap == 0 && d.logit_softcap == 0;
  if (!plain || !d.pre_norms || d.post_norms) return "";
  if ((d.learned_positions || d.sub_norms) && (own_heads || d.qk_norm != "none" || d.rope.factor != 1)) return "";
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
                own_heads ? concat(", head_dim: ", d.head_dim) : "",
                d.qk_norm == "none" ? "" : concat(", qk_norm: ", d.qk_norm), scaled_rope(d.rope),
                d.tied ? "" : concat(", head: {linear: {out: ", d.vocabulary, ", bias: false}}"), "}}");
}

}  // namespace bitgrad
