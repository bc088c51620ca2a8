// Decoders recognised in the layers of presets, and layers made of decoders; presets llama and bitnet; sums and spliced
// lists of preset keys; training from an imported model and back.
#include "bitgrad/interop/decoder.h"

#include <filesystem>
#include <functional>

#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/interop/interop.h"
#include "bitgrad/io/gguf.h"
#include "bitgrad/nn/layers.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "train/small_gpt.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

const std::string kFolder = source_path("tests/golden/hugging_face/");

RunConfig run_of(const std::string& model, const std::string& more = "") {
  const std::string text =
      "version: 1\nrun: {name: decoder, seed: 5}\n"
      "data: {root: /nowhere, tokenizer: chars, train: {format: tokens, file: a.txt, context: 12}}\n"
      "batch: {global: 2}\noptim: {name: adamw, lr: 0.01}\ntrain: {stop: 4 steps}\nmodel: " +
      model + '\n' + more;
  return parse_config(text, "decoder.yaml");
}
std::unique_ptr<Learner> learner_of(const RunConfig& config, int64_t vocabulary) {
  Form in;
  in.sample = {12};
  in.dtype = dtypes::int32;
  in.ids = vocabulary;
  return build_learner(config, in, vocabulary, 100);
}
ModelSpec spec_of(Learner& learner) { return model_record(learner)->model; }
Decoder decoder_of(const std::string& model, int64_t vocabulary = 33) {
  return find_decoder(spec_of(*learner_of(run_of(model), vocabulary))).decoder;
}
std::string refused(const std::string& layers) {
  const auto learner = learner_of(run_of("{layers: [" + layers + "]}"), 33);
  return error_of([&] { find_decoder(spec_of(*learner)); });
}
void train(Learner& learner, int64_t steps, int32_t vocabulary) {
  for (int64_t i = 0; i < steps; ++i) {
    std::vector<int32_t> x = some_ids(24, static_cast<uint64_t>(i)), y = some_ids(24, static_cast<uint64_t>(i + 50));
    for (auto* ids : {&x, &y})
      for (int32_t& id : *ids) id %= vocabulary;
    learner.microbatch(ids_tensor(x, 2), ids_tensor(y, 2));
  }
}

const std::string kStart = "{embedding: {num: 33, dim: 16, flat: false}}, ";
const std::string kAttention =
    "{residual: {body: [{rms_norm: {}}, {linear: {out: 32, bias: false}}, {attention: {heads: 4, kv_heads: 2, rope: "
    "50}}, "
    "{linear: {out: 16, bias: false}}]}}, ";
const std::string kFfn =
    "{residual: {body: [{rms_norm: {}}, {linear: {out: 48, bias: false}}, {swiglu: {}}, {linear: {out: 16, bias: "
    "false}}]}}, ";
const std::string kEnd = "{rms_norm: {}}, {head: {tie: layers.0}}";

}  // namespace

// A Gemma of 5 blocks, each third of which sees all keys.
std::string gemma(const std::string& local = "window: 4, rope: 100", const std::string& last = "{rms_norm: {}}") {
  const auto block = [&](const std::string& sees) {
    return "{sequence: {layers: [{residual: {body: [{rms_norm: {}}, {linear: {out: 32, bias: false}}, {attention: "
           "{heads: 4, "
           "kv_heads: 2, qk_norm: head, qk_eps: 1e-5, " +
           sees + "}}, {linear: {out: 16, bias: false}}, " + last +
           "]}}, {residual: {body: [{rms_norm: {}}, {linear: {out: 48, bias: false}}, {geglu_tanh: {}}, {linear: {out: "
           "16, "
           "bias: false}}, {rms_norm: {}}]}}]}}";
  };
  return "{layers: [{embedding: {num: 33, dim: 16, flat: false, scale: 4}}, {repeat: {times: 5, cycle: true, "
         "recompute: true, "
         "layers: [" +
         block(local) + ", " + block(local) + ", " + block("rope: 1000") + "]}}, " + kEnd + "]}";
}

// Each third block without positions.
std::string smollm3(const std::string& last = "rope: 0") {
  const auto block = [&](const std::string& sees) {
    return "{sequence: {layers: [{residual: {body: [{rms_norm: {}}, {linear: {out: 32, bias: false}}, {attention: "
           "{heads: 4, "
           "kv_heads: 2, " +
           sees + "}}, {linear: {out: 16, bias: false}}]}}, " + kFfn.substr(0, kFfn.size() - 2) + "]}}";
  };
  return "{layers: [" + kStart + "{repeat: {times: 4, cycle: true, layers: [" + block("rope: 50") + ", " +
         block("rope: 50") + ", " + block(last) + "]}}, " + kEnd + "]}";
}
// Norms behind the bodies alone, and a head of its own.
std::string olmo2(const std::string& head = "{linear: {out: 33, bias: false}}") {
  return "{layers: [" + kStart +
         "{repeat: {times: 2, layers: [{residual: {body: [{linear: {out: 32, bias: false}}, {attention: {heads: 4, "
         "kv_heads: 2, "
         "rope: 50, qk_norm: row, qk_eps: 1e-5}}, {linear: {out: 16, bias: false}}, {rms_norm: {}}]}}, {residual: "
         "{body: "
         "[{linear: {out: 48, bias: false}}, {swiglu: {}}, {linear: {out: 16, bias: false}}, {rms_norm: {}}]}}]}}, "
         "{rms_norm: "
         "{}}, " +
         head + "]}";
}
std::string mistral(const std::string& window) {
  std::string attention = kAttention;
  attention.insert(attention.find("heads: 4"), window);
  return "{layers: [" + kStart + attention + kFfn + attention + kFfn + kEnd + "]}";
}

TEST_CASE("blocks in turn are those of a decoder where they differ in what they see") {
  const Decoder d = decoder_of(gemma());
  using K = BlockKind;
  CHECK((d.kinds == std::vector{K::kLocal, K::kLocal, K::kFull}));
  CHECK((d.blocks == 5 && d.window == 4 && d.local_rope.base == 100 && d.rope.base == 1000));
  CHECK((d.pre_norms && d.post_norms && d.qk_norm == "head" && d.embedding_scale == 4 && d.attention_scale == 0));
  CHECK(d.activation == "geglu_tanh");
  CHECK((d.kind(0) == K::kLocal && d.kind(2) == K::kFull && d.kind(4) == K::kLocal));
  const auto learner = learner_of(run_of(gemma()), 33);
  const std::shared_ptr<Sequential> made = make_model(decoder_model(d));
  const auto a = learner->model().parameters_at(kModelRoot), b = made->parameters_at(kModelRoot);
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) CHECK(a[i].second->shape() == b[i].second->shape());
  CHECK(decoder_preset(d).empty());
  const auto of = [](const std::string& model) {
    const auto l = learner_of(run_of(model), 33);
    return error_of([&] { find_decoder(spec_of(*l)); });
  };
  CHECK(contains(of(gemma("window: 4, rope: 100", "{relu: {}}")), "got relu, expected the end of the residual"));
  CHECK(contains(of(gemma("window: 4")), "rope: got 0 and a window, expected a base."));
  CHECK(of(gemma("rope: 0")).empty());
}

TEST_CASE("a decoder without positions, with norms of other places or other windows is refused by its families") {
  TempDir temp;
  const auto error = [&](const std::string& model, const std::string& family) {
    const auto learner = learner_of(run_of(model), 33);
    ExportSpec spec;
    spec.family = family;
    return error_of([&] { export_gguf(learner->model(), spec_of(*learner), nullptr, temp.file("m.gguf"), spec); });
  };
  CHECK(error(gemma(), "").empty());
  CHECK(contains(error(gemma(), "qwen3"), "layers.1.0.0.1.body.2: got geglu_tanh, expected one of: swiglu"));
  std::string silu = gemma();
  for (size_t at = 0; (at = silu.find("geglu_tanh", at)) != std::string::npos;) silu.replace(at, 10, "swiglu");
  CHECK(contains(error(silu, "qwen3"), "layers.1.0.0.0.body.3: a norm behind it, expected none. Files of qwen3"));
  CHECK(contains(error(gemma("rope: 0"), ""), "layers.1.0.0.0.body.2: rope: got 0, expected a base. Files of gemma3"));
  CHECK(
      contains(error(gemma("window: 4, rope: 100, rope_factor: 2"), ""), "rope_factor in a window: got 2, expected 1"));
  std::string other = gemma();
  other.replace(other.find("scale: 4"), 8, "scale: 5");
  CHECK(contains(error(other, ""), "layers.0: scale: got 5, expected 4. Files of gemma3 cannot say it"));
  // 4 blocks, each third without positions: llama.cpp has each fourth.
  CHECK(contains(error(smollm3(), ""),
                 "layers.1.2.0.0.body.2: rope: got 0, expected a base: in llama.cpp each 4th block"));
  CHECK(contains(error(smollm3("rope: 50"), "smollm3"), "rope: got a base, expected 0"));
  CHECK(contains(error(olmo2("{head: {tie: layers.0}}"), ""), "a tied head, expected a linear layer. Files of olmo2"));
  CHECK(contains(error(mistral("window: 5, "), ""),
                 "window: got 5 of a context of 12, expected 0: llama.cpp computes none"));
  CHECK(error(mistral("window: 12, "), "").empty());
  CHECK(GgufFile::read(temp.file("m.gguf")).text("general.architecture") == "llama");
  other = gemma("scale: 0.25, window: 4, rope: 100");
  CHECK(contains(error(other, ""), "layers.1.2.0.0.body.2: scale: got 0, expected 0.25 as in the layers before"));
}

// A Gemma 2 of such blocks, each third of which sees all keys.
std::string gemma2(const std::string& local, const std::string& full = "rope: 1000") {
  std::string model = gemma(local);
  const auto replace = [&](const std::string& from, const std::string& to) {
    REQUIRE(contains(model, from));
    for (size_t at = 0; (at = model.find(from, at)) != std::string::npos; at += to.size())
      model.replace(at, from.size(), to);
  };
  replace("qk_norm: head, qk_eps: 1e-5, ", "softcap: 5, ");
  if (full != "rope: 1000") replace("softcap: 5, rope: 1000}", "softcap: 5, " + full + "}");
  replace("{head: {tie: layers.0}}", "{head: {tie: layers.0}}, {softcap: {cap: 3}}");
  return model;
}

TEST_CASE("the rope of blocks with a window is refused where files of the family have one for all blocks") {
  TempDir temp;
  const auto gguf = [&](const std::string& model) {
    const auto learner = learner_of(run_of(model), 33);
    return error_of([&] { export_gguf(learner->model(), spec_of(*learner), nullptr, temp.file("m.gguf")); });
  };
  const auto folder = [&](const std::string& model) {
    const auto learner = learner_of(run_of(model), 33);
    TempDir out;
    return error_of([&] { export_hugging_face(learner->model(), spec_of(*learner), nullptr, out.file("out")); });
  };
  const std::string at = "layers.1.0.0.0.body.2: ", linear = ", rope_factor: 2, rope_low: 1, rope_original: 1";
  // A folder of gemma2 has one rope_theta; llama.cpp reads the base of windows, and the factor of the others.
  CHECK(folder(gemma2("window: 4, rope: 1000")).empty());
  CHECK(contains(folder(gemma2("window: 4, rope: 100")),
                 at + "rope in a window: got 100, expected 1000. Files of gemma2 cannot say it"));
  CHECK(contains(folder(gemma2("window: 4, rope: 1000, rope_factor: 2")),
                 at + "rope_factor in a window: got 2, expected 1. Files of gemma2 cannot say it"));
  CHECK(contains(folder(gemma2("window: 4, rope: 1000, rope_factor: 2, rope_low: 1.5", "rope: 1000, rope_factor: 2")),
                 at + "rope_low in a window: got 1.5, expected 1. Files of gemma2 cannot say it"));
  CHECK(gguf(gemma2("window: 4, rope: 100")).empty());
  CHECK(contains(gguf(gemma2("window: 4, rope: 1000" + linear)),
                 at + "rope_factor in a window: got 2, expected 1. Files of gemma2 cannot say it"));
  CHECK(contains(gguf(gemma2("window: 4, rope: 1000", "rope: 1000" + linear)),
                 at + "rope_factor in a window: got 1, expected 2. Files of gemma2 cannot say it"));
  // What GGUF says is read as it was written.
  CHECK(gguf(gemma2("window: 4, rope: 100" + linear, "rope: 1000" + linear)).empty());
  const Decoder read = find_decoder(import_gguf(temp.file("m.gguf")).spec).decoder;
  CHECK((read.local_rope.base == 100 && read.local_rope.factor == 2));
  CHECK((read.rope.base == 1000 && read.rope.factor == 2));
  // Pairs are one for all blocks, in both formats.
  for (const auto& write :
       {std::function<std::string(const std::string&)>(gguf), std::function<std::string(const std::string&)>(folder)}) {
    CHECK(contains(write(gemma("window: 4, rope: 100, interleaved: true")),
                   at + "interleaved in a window: got true, expected false. Files of gemma3 cannot say it"));
    CHECK(contains(write(gemma2("window: 4, rope: 1000", "rope: 1000, interleaved: true")),
                   at + "interleaved in a window: got false, expected true. Files of gemma2 cannot say it"));
  }
  // A folder of gemma3 has positions of both.
  CHECK(folder(gemma("window: 4, rope: 100, rope_factor: 2")).empty());
}

TEST_CASE("caps of attention are of gemma2, in both formats") {
  TempDir temp;
  std::string model = gemma("softcap: 5, window: 4, rope: 100");
  model.replace(model.find("rope: 1000"), 10, "softcap: 5, rope: 1000");  // all blocks have it
  const auto learner = learner_of(run_of(model), 33);
  const std::string text = "layers.1.0.0.0.body.2: softcap: got 5, expected 0. Files of gemma3 cannot say it";
  CHECK(contains(error_of([&] { export_hugging_face(learner->model(), spec_of(*learner), nullptr, temp.file("out")); }),
                 text));
  CHECK(contains(error_of([&] { export_gguf(learner->model(), spec_of(*learner), nullptr, temp.file("m.gguf")); }),
                 text));
}

TEST_CASE("a granite in GGUF with a head of its own is refused if its logits are scaled") {
  TempDir temp;
  save_imported(import_hugging_face(kFolder + "granite"), temp.file("m"));
  const auto learner = load_evaluator(temp.file("m"), find_loss("softmax_cross_entropy"));
  export_gguf(learner->model(), read_model_record(temp.file("m"))->model, nullptr, temp.file("m.gguf"));
  const GgufFile file = GgufFile::read(temp.file("m.gguf"));
  CHECK(file.number("granite.logit_scale") == 3);
  std::vector<GgufItem> items;
  for (const GgufEntry& e : file.entries()) items.push_back({e.name, e.type, e.shape, file.data(e.name)});
  const GgufEntry& table = file.entry("token_embd.weight");
  items.push_back({"output.weight", table.type, table.shape, file.data(table.name)});
  const auto untied = [&](float scale) {
    GgufMetadata keys = file.metadata();
    for (auto& [key, value] : keys)
      if (key == "granite.logit_scale") value = GgufValue::float32(scale);
    write_gguf(temp.file("untied.gguf"), items, keys);
    return import_gguf(temp.file("untied.gguf"));
  };
  CHECK(contains(error_of([&] { untied(3); }),
                 "key 'granite.logit_scale': got 3, expected 1: the head is not tied (tensor output.weight)."));
  CHECK(error_code_of([&] { untied(3); }) == 3);
  CHECK_FALSE(find_decoder(untied(1).spec).decoder.tied);
}

TEST_CASE("presets gpt, llama and bitnet are decoders with the numbers of their keys") {
  const Decoder gpt =
      decoder_of("{preset: gpt, keys: {layers: 2, heads: 4, dim: 16, bias: true, act: {gelu_tanh: {}}}}");
  CHECK(gpt.learned_positions);
  CHECK(gpt.layer_norm);
  CHECK((gpt.norm_bias && gpt.qkv_bias && gpt.out_bias && gpt.ffn_bias && gpt.tied));
  CHECK_FALSE((gpt.gated || gpt.sub_norms));
  CHECK(gpt.activation == "gelu_tanh");
  CHECK((gpt.vocabulary == 33 && gpt.context == 12 && gpt.dim == 16 && gpt.blocks == 2 && gpt.heads == 4));
  CHECK((gpt.kv_heads == 4 && gpt.head_dim == 4 && gpt.ffn == 64));
  const Decoder sub = decoder_of("{preset: gpt, keys: {layers: 1, heads: 2, dim: 8, sub_norm: [{rms_norm: {}}]}}");
  CHECK((sub.sub_norms && !sub.qkv_bias));

  const Decoder llama = decoder_of(
      "{preset: llama, keys: {layers: 3, heads: 4, kv_heads: 2, dim: 16, ffn: 24, rope: 500, qkv_bias: true}}");
  CHECK_FALSE((llama.learned_positions || llama.layer_norm || llama.sub_norms || llama.out_bias || llama.ffn_bias));
  CHECK((llama.gated && llama.qkv_bias && llama.tied));
  CHECK((llama.activation == "swiglu" && llama.rope.base == 500 && llama.rope.dim == 4));
  CHECK((llama.blocks == 3 && llama.kv_heads == 2 && llama.head_dim == 4 && llama.ffn == 24));

  const Decoder qwen3 = decoder_of(
      "{preset: llama, keys: {layers: 1, heads: 4, kv_heads: 2, dim: 16, ffn: 24, head_dim: 10, qk_norm: head, eps: "
      "0.5}}");
  CHECK((qwen3.head_dim == 10 && qwen3.qk_norm == "head" && qwen3.eps == 0.5 && llama.qk_norm == "none"));

  const Decoder bitnet = decoder_of(
      "{preset: bitnet, keys: {layers: 1, heads: 4, kv_heads: 1, dim: 16, ffn: 24, act: {relu2_glu: {}}, "
      "head: {linear: {out: 33, bias: false}}}}");
  CHECK((bitnet.sub_norms && bitnet.gated && !bitnet.tied && bitnet.kv_heads == 1));
  CHECK(bitnet.activation == "relu2_glu");
}

TEST_CASE("a decoder's layers and its preset are the same decoder") {
  for (const std::string model :
       {"{preset: gpt, keys: {vocabulary: 33, layers: 2, heads: 4, dim: 16, bias: true}}",
        "{preset: gpt, keys: {vocabulary: 33, layers: 2, heads: 4, dim: 16, sub_norm: [{rms_norm: {}}]}}",
        "{preset: llama, keys: {vocabulary: 33, layers: 2, heads: 4, kv_heads: 2, dim: 16, ffn: 24}}",
        "{preset: llama, keys: {vocabulary: 33, layers: 2, heads: 4, kv_heads: 2, dim: 16, ffn: 24, head_dim: 6, "
        "qk_norm: "
        "head, eps: 0.01}}",
        "{preset: llama, keys: {vocabulary: 33, layers: 2, heads: 4, kv_heads: 2, dim: 16, ffn: 24, rope_factor: 8, "
        "rope_low: 1.5, rope_high: 3, rope_original: 40}}",
        "{preset: bitnet, keys: {vocabulary: 33, layers: 2, heads: 4, kv_heads: 1, dim: 16, ffn: 24}}"}) {
    INFO(model);
    const auto from = learner_of(run_of(model), 33);
    const Decoder d = find_decoder(spec_of(*from)).decoder;
    const std::string preset = decoder_preset(d);
    REQUIRE_FALSE(preset.empty());
    const auto again = learner_of(run_of(preset), 33);
    const std::shared_ptr<Sequential> made = make_model(decoder_model(d));
    const auto a = from->model().parameters_at(kModelRoot), b = again->model().parameters_at(kModelRoot),
               c = made->parameters_at(kModelRoot);
    REQUIRE(a.size() == b.size());
    REQUIRE(a.size() == c.size());
    for (size_t i = 0; i < a.size(); ++i) {
      INFO(a[i].first);
      CHECK((a[i].first == b[i].first && a[i].first == c[i].first));
      CHECK(a[i].second->shape() == b[i].second->shape());
    }
    const Decoder twin = find_decoder(spec_of(*again)).decoder;
    CHECK((twin.head_dim == d.head_dim && twin.qk_norm == d.qk_norm && twin.eps == d.eps));
    CHECK((twin.rope.factor == d.rope.factor && twin.rope.low == d.rope.low && twin.rope.high == d.rope.high));
    CHECK(twin.rope.original == d.rope.original);
  }
}

TEST_CASE("preset llama's q, k and v have dim + 2 dim kv_heads / heads rows, and its forward pass accepts any length") {
  for (const int64_t kv : {1, 2, 4}) {
    const auto learner = learner_of(
        run_of(concat("{preset: llama, keys: {layers: 1, heads: 4, kv_heads: ", kv, ", dim: 24, ffn: 20}}")), 33);
    CHECK(learner->model().find("1.0.0.0.body.1") == nullptr);
    bool found = false;
    for (const auto& [path, p] : learner->model().parameters_at(kModelRoot))
      if (path.ends_with(".0.body.1.weight")) found = p->shape() == Shape{24 + 12 * kv, 24};
    CHECK(found);
    for (const int64_t length : {1, 5, 12})
      CHECK(learner->predict(ids_tensor(some_ids(length))).numel() == 33 * length);
  }
}

TEST_CASE("a model that is not a decoder is refused with the layer that is missing") {
  CHECK(contains(refused("{embedding: {num: 33, dim: 16, flat: false}}, {linear: {out: 33}}"),
                 "layers.1: got linear, expected the residual of attention"));
  CHECK(contains(refused(kStart + kAttention + kFfn + "{linear: {out: 33, bias: false}}"),
                 "layers.3: got linear, expected a norm"));
  CHECK(contains(refused(kStart + kFfn + kAttention + kEnd), "layers.1.body.2: got swiglu, expected attention"));
  CHECK(
      contains(refused(kStart + kAttention + kEnd), "layers.2: got rms_norm, expected the residual of a feed-forward"));
  CHECK(contains(refused(kStart + "{relu: {}}, " + kAttention + kFfn + kEnd),
                 "layers.1: got relu, expected the residual of attention"));
  std::string other = kAttention;
  other.replace(other.find("rope: 50"), 8, "rope: 60");
  CHECK(contains(refused(kStart + kAttention + kFfn + other + kFfn + kEnd),
                 "layers.3.body.2: rope: got 60, expected 50"));
  CHECK(contains(refused(kStart + kAttention + kFfn + "{rms_norm: {}}, {linear: {out: 33}}"), "bias of the head"));
  CHECK_FALSE(contains(refused(kStart + kAttention + kFfn + "{rms_norm: {}}, {linear: {out: 33}}"), "layers.1"));
}

TEST_CASE("a layer that a family does not support is refused by its path") {
  const auto learner = learner_of(run_of("{layers: [" + kStart + kAttention + kFfn + kEnd + "]}"), 33);
  const auto error = [&](const std::string& family) {
    return error_of([&] { export_hugging_face(learner->model(), spec_of(*learner), nullptr, "/nowhere/x", {family}); });
  };
  CHECK(contains(error("gpt2"), "layers.1.body.2: rotary positions"));
  CHECK(contains(error("bitnet"), "layers.1.body.3: no norm before it"));
  CHECK(contains(error("qwen2"), "layers.1.body.1: no bias, expected one"));
  CHECK(contains(error("qwen3"), "layers.1.body.2: qk_norm: got none, expected head. Files of qwen3 cannot say it"));
  CHECK(contains(error("mamba"),
                 "family: got mamba, expected one of: gpt2, llama, qwen2, qwen3, gemma3, gemma2, granite, smollm3, "
                 "mistral, olmo2, bitnet"));
}

TEST_CASE("trained, exported and imported again: the same logits bit for bit") {
  const std::vector<std::string> models{
      "{preset: gpt, keys: {layers: 2, heads: 4, dim: 16, bias: true}}",
      "{preset: gpt, keys: {layers: 2, heads: 4, dim: 16}}",  // files of gpt2 hold zeros for its biases
      "{preset: llama, keys: {layers: 2, heads: 4, kv_heads: 2, dim: 16, ffn: 24}}",
      "{preset: llama, keys: {layers: 2, heads: 4, kv_heads: 2, dim: 16, ffn: 24, qkv_bias: true}}",
      "{preset: llama, keys: {layers: 2, heads: 4, kv_heads: 2, dim: 16, ffn: 24, head_dim: 6, qk_norm: head}}",
      "{preset: llama, keys: {layers: 2, heads: 4, kv_heads: 2, dim: 16, ffn: 24, rope_factor: 8, rope_original: 12}}",
      gemma(),
      gemma("window: 1, rope: 100"),
      smollm3(),
      olmo2(),
      mistral("window: 5, "),
      "{preset: bitnet, keys: {layers: 2, heads: 4, kv_heads: 1, dim: 16, ffn: 24}}"};
  for (const std::string& model : models) {
    INFO(model);
    TempDir temp;
    const auto learner = learner_of(run_of(model), 33);
    train(*learner, 3, 33);
    learner->convert();
    const ExportReport report = export_hugging_face(learner->model(), spec_of(*learner), nullptr, temp.file("out"));
    for (const ExportedTensor& t : report.tensors) {
      INFO(t.name);
      const auto fate = t.parameter.empty() ? ExportedTensor::Fate::kZeros : ExportedTensor::Fate::kExact;
      CHECK(t.fate == fate);
    }
    save_imported(import_hugging_face(temp.file("out")), temp.file("m"));
    const auto again = load_evaluator(temp.file("m"), find_loss("softmax_cross_entropy"));
    const Tensor ids = ids_tensor(some_ids(12));
    CHECK(learner->predict(ids).elements() == again->predict(ids).elements());
  }
}

TEST_CASE("training begins from an imported model, in floats and in int4") {
  for (const std::string name : {"gpt2", "llama", "bf16", "qwen2", "qwen3", "bitnet", "bitnet_packed"}) {
    INFO(name);
    TempDir temp;
    const ImportedModel imported = import_hugging_face(kFolder + name);
    save_imported(imported, temp.file("m"));
    const std::string preset = decoder_preset(find_decoder(imported.spec).decoder);
    std::string floats = preset;  // of preset bitnet: preset llama with sub-norms
    if (const size_t at = floats.find("bitnet, keys: {"); at != std::string::npos)
      floats.replace(at, 15, "llama, keys: {sub_norm: [{rms_norm: {eps: 1e-5}}], ");
    const auto learner = learner_of(run_of(floats), 41);
    const InitFrom found = init_from(temp.file("m"), learner->model());
    CHECK(found.skipped.empty());
    CHECK(found.fresh.empty());
    if (name != "bitnet_packed") {
      const auto file = load_evaluator(temp.file("m"), find_loss("softmax_cross_entropy"));
      const Tensor ids = ids_tensor({1, 2, 40, 3});
      CHECK(learner->predict(ids).elements() == file->predict(ids).elements());
    }
    const auto low =
        learner_of(run_of(preset,
                          "quant: {rules: [{layers: \"layers.*.body.*\", weights: {dtype: int4, scheme: symmetric, "
                          "granularity: group(16), scale_dtype: fp16}}]}\n"),
                   41);
    init_from(temp.file("m"), low->model());
    const auto before = low->predict(ids_tensor({1, 2, 3})).elements();
    train(*low, 3, 33);
    CHECK(low->predict(ids_tensor({1, 2, 3})).elements() != before);
    low->convert();
    export_hugging_face(low->model(), spec_of(*low), nullptr, temp.file("out"));
    save_imported(import_hugging_face(temp.file("out")), temp.file("again"));
    const auto again = load_evaluator(temp.file("again"), find_loss("softmax_cross_entropy"));
    CHECK(again->model().parameters().size() == low->model().parameters().size());
  }
}
