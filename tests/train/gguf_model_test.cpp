// Whole models as GGUF files: what was written is read again, and what is damaged is refused.
#include <cstring>

#include "bitgrad/base/file.h"
#include "bitgrad/base/text.h"
#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/data/tokenizer.h"
#include "bitgrad/interop/interop.h"
#include "bitgrad/io/gguf.h"
#include "bitgrad/run/trainer.h"
#include "interop/decoder_files.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"
#include "train/config_support.h"
#include "train/small_gpt.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

std::unique_ptr<Learner> learner_of(const std::string& preset, const std::string& keys, const std::string& weights) {
  const std::string blocks = preset == "gpt" ? "layers.3.*" : "layers.2.*";
  return converted_decoder(preset, "layers: 2, " + keys,
                           weights.empty() ? "" : "{layers: \"" + blocks + "\", weights: {" + weights + "}}");
}

const std::string kLlama = "heads: 4, kv_heads: 2, dim: 64, ffn: 128";
const std::string kInt4 = "dtype: int4, scheme: absmax, granularity: group(32), scale_dtype: fp16";

ImportedModel round_trip(Learner& learner, const std::string& path) {
  export_gguf(learner.model(), model_record(learner)->model, nullptr, path);
  return import_gguf(path);
}

// Codes, scales and numbers, element by element. read_as: the dtype of codes that the file's type stands for, where it
// is a wider one.
void check_equal_values(Module& model, const ImportedModel& read, const std::string& read_as = "") {
  std::map<std::string, Tensor> known;
  for (const auto& [path, parameter] : model.parameters_at(kModelRoot)) known[path] = parameter->value();
  CHECK(read.parameters.size() == known.size());
  for (const auto& [path, tensor] : read.parameters) {
    INFO(path);
    REQUIRE(known.count(path) == 1);
    CHECK(tensor.values() == known[path].values());
    if (!known[path].dtype().is_code()) continue;
    CHECK(tensor.dtype().name() == (read_as.empty() ? known[path].dtype().name() : read_as));
    if (read_as.empty()) CHECK(tensor.elements() == known[path].elements());
  }
}

// The same logits bit for bit, of the file that `import` writes.
void check_equal_logits(Learner& learner, const ImportedModel& read) {
  TempDir temp;
  save_imported(read, temp.file("m"));
  const auto again = load_evaluator(temp.file("m"), find_loss("softmax_cross_entropy"));
  const Tensor ids = ids_tensor(some_ids(24, 3), 2);
  CHECK(again->predict(ids).elements() == learner.predict(ids).elements());
}

template <typename Call>
void expect_error(Call&& call, const std::string& text) {
  const std::string error = error_of(call);
  INFO(error);
  INFO(text);
  CHECK(contains(error, text));
}

}  // namespace

TEST_CASE("a llama of packed weights has the same codes, scales and logits after GGUF, in each supported type") {
  struct Case {
    std::string type, weights, keys = kLlama, read_as = "";
  };
  const std::string groups = ", granularity: group(32), scale_dtype: fp16",
                    wide = "heads: 4, kv_heads: 2, dim: 128, ffn: 128";
  const std::vector<Case> cases{
      {"F32", ""},
      {"Q4_0", kInt4},
      {"Q8_0", "dtype: int8, scheme: absmax" + groups},
      {"Q8_0", "dtype: int6, scheme: symmetric" + groups, kLlama, "int8"},
      {"Q5_0", "dtype: int5, scheme: absmax" + groups},
      {"Q5_1", "dtype: uint5, scheme: minmax_offset" + groups},
      {"Q4_1", "dtype: uint4, scheme: minmax_offset" + groups},
      {"Q4_1", "dtype: uint3, scheme: minmax_offset" + groups, kLlama, "uint4"},
      {"Q2_0", "dtype: ternary, scheme: ternary"},
      {"Q2_0", "dtype: int2, scheme: symmetric, granularity: group(64), scale_dtype: fp16"},
      {"TQ2_0", "dtype: ternary, scheme: ternary", "heads: 4, kv_heads: 2, dim: 256, ffn: 256"},
      {"Q1_0", "dtype: bint1, scheme: binary, alpha: channel, scale_dtype: fp16", wide},
      {"Q1_0", "dtype: bint1, scheme: binary, alpha: tensor", wide}};
  TempDir temp;
  for (const Case& c : cases) {
    INFO(c.type << ": " << c.weights);
    const auto learner = learner_of("llama", c.keys, c.weights);
    const ImportedModel read = round_trip(*learner, temp.file("m.gguf"));
    const GgufFile file = GgufFile::read(temp.file("m.gguf"));
    for (const char* name : {"attn_q", "attn_v", "attn_output", "ffn_gate", "ffn_down"})
      CHECK(gguf_type(file.entry(concat("blk.1.", name, ".weight")).type).name == c.type);
    CHECK(read.family == "llama");
    check_equal_values(learner->model(), read, c.read_as);
    check_equal_logits(*learner, read);
  }
}

// Other programs write TQ1_0; ours is TQ2_0, which is faster to read and holds the same.
TEST_CASE("a model in TQ1_0 is the same codes and scales") {
  TempDir temp;
  const auto learner =
      learner_of("llama", "heads: 4, kv_heads: 2, dim: 256, ffn: 256", "dtype: ternary, scheme: ternary");
  const ImportedModel ours = round_trip(*learner, temp.file("m.gguf"));
  const GgufFile file = GgufFile::read(temp.file("m.gguf"));
  std::vector<GgufItem> items;
  for (const GgufEntry& e : file.entries()) {
    items.push_back({e.name, e.type, e.shape, file.data(e.name)});
    if (e.type == GgufType::kTQ2_0) items.back() = gguf_item(e.name, gguf_tensor(file, e.name), GgufType::kTQ1_0);
  }
  write_gguf(temp.file("tq1.gguf"), items, file.metadata());
  const ImportedModel read = import_gguf(temp.file("tq1.gguf"));
  check_equal_values(learner->model(), read);
  check_equal_logits(*learner, read);
}

TEST_CASE("bitnet, qwen2, qwen3 and gpt2 are the same numbers after GGUF") {
  TempDir temp;
  const auto bitnet =
      learner_of("bitnet", "heads: 4, kv_heads: 2, dim: 64, ffn: 64", "");  // its own rule: int8 inputs a token
  const ImportedModel b = round_trip(*bitnet, temp.file("b.gguf"));
  CHECK(b.family == "bitnet");
  check_equal_values(bitnet->model(), b);
  check_equal_logits(*bitnet, b);
  const auto qwen = learner_of("llama", kLlama + ", qkv_bias: true", kInt4);
  const ImportedModel q = round_trip(*qwen, temp.file("q.gguf"));
  CHECK(q.family == "qwen2");
  check_equal_values(qwen->model(), q);
  check_equal_logits(*qwen, q);
  const auto three = learner_of("llama", kLlama + ", head_dim: 24, qk_norm: head", kInt4);
  const ImportedModel t = round_trip(*three, temp.file("t.gguf"));
  CHECK(t.family == "qwen3");
  CHECK(GgufFile::read(temp.file("t.gguf")).integer("qwen3.attention.key_length") == 24);
  check_equal_values(three->model(), t);
  check_equal_logits(*three, t);
  const auto gpt = learner_of("gpt", "heads: 4, dim: 64, context: 12", kInt4);
  const ImportedModel g = round_trip(*gpt, temp.file("g.gguf"));
  CHECK(g.family == "gpt2");
  check_equal_values(gpt->model(), g);
  check_equal_logits(*gpt, g);
}

TEST_CASE("an activation that only some versions of llama.cpp compute is written where it is said, and read again") {
  TempDir temp;
  const std::string keys = "heads: 4, kv_heads: 2, dim: 64, ffn: 64", path = temp.file("m.gguf");
  const auto relu2 = learner_of("bitnet", keys + ", act: {relu2_glu: {}}", "");
  expect_error(
      [&] { export_gguf(relu2->model(), model_record(*relu2)->model, nullptr, path); },
      "got relu2_glu, expected one of: swiglu (llama.cpp computes it only in versions that read it from the file: "
      "--client newer). Files of bitnet cannot say it");
  ExportSpec newer;
  newer.client = "newest";
  expect_error([&] { export_gguf(relu2->model(), model_record(*relu2)->model, nullptr, path, newer); },
               "--client: got newest, expected newer, or none.");
  newer.client = "newer";
  export_gguf(relu2->model(), model_record(*relu2)->model, nullptr, path, newer);
  const GgufFile file = GgufFile::read(path);
  CHECK(file.text("bitnet.hidden_activation") == "relu2");
  std::vector<GgufItem> items;
  for (const GgufEntry& e : file.entries()) items.push_back({e.name, e.type, e.shape, file.data(e.name)});
  const auto with = [&](const std::string& activation) {
    GgufMetadata kept;
    for (const auto& [key, value] : file.metadata())
      if (key != "bitgrad.activation" && key != "bitnet.hidden_activation") kept.emplace_back(key, value);
    if (!activation.empty()) kept.emplace_back("bitnet.hidden_activation", GgufValue::text(activation));
    write_gguf(path, items, kept);
    return import_gguf(path);
  };
  check_equal_logits(*relu2, with("relu2"));
  CHECK(find_decoder(with("silu").spec).decoder.activation == "swiglu");
  const ImportedModel silent = with("");
  CHECK(find_decoder(silent.spec).decoder.activation == "swiglu");
  const auto notes = [](const ImportedModel& m) { return joined(m.notes); };
  CHECK(contains(notes(silent), "no key says the activation: taken swiglu, as llama.cpp computes it, not relu2_glu"));
  CHECK_FALSE(contains(notes(with("silu")), "no key says the activation"));
  expect_error([&] { with("tanh"); }, "key 'bitnet.hidden_activation': got tanh, expected one of: swiglu relu2_glu.");
  const auto silu = learner_of("bitnet", keys, "");
  export_gguf(silu->model(), model_record(*silu)->model, nullptr, path);
  CHECK(GgufFile::read(path).text("bitnet.hidden_activation") == "silu");
}

TEST_CASE("characters and bytes are tokens of the longest match, without an end, and ids beyond them match no text") {
  TempDir temp;
  const auto learner = learner_of("llama", kLlama, "");
  const auto tokenizer = make_tokenizer("chars", "a\\\n\x7f \xc3\xa9");
  export_gguf(learner->model(), model_record(*learner)->model, tokenizer.get(), temp.file("m.gguf"));
  const GgufFile file = GgufFile::read(temp.file("m.gguf"));
  CHECK(file.text("tokenizer.ggml.model") == "rwkv");
  GgufValue::Texts expected{"\\x0a", " ", "\\\\", "a", "\\x7f", "\\xc3\\xa9"};
  while (expected.size() < 33) expected.push_back(concat("\\xff<|unused_", expected.size(), "|>"));
  CHECK(file.texts("tokenizer.ggml.tokens") == expected);
  const auto& types = std::get<GgufValue::Integers>(file.find("tokenizer.ggml.token_type")->data());
  for (size_t id = 0; id < types.size(); ++id) CHECK(types[id] == (id < 6 ? 1 : 5));
  for (const char* key : {"merges", "bos_token_id", "eos_token_id"})
    CHECK(file.find(concat("tokenizer.ggml.", key)) == nullptr);
  CHECK(tokenizer_difference(*import_gguf(temp.file("m.gguf")).tokenizer, *tokenizer).empty());
}

TEST_CASE("q and k of llama have neighbours where the model has halves, biases of gpt2 are zeros") {
  TempDir temp;
  const auto learner = learner_of("llama", kLlama, "");
  export_gguf(learner->model(), model_record(*learner)->model, nullptr, temp.file("m.gguf"));
  const Tensor file = gguf_tensor(GgufFile::read(temp.file("m.gguf")), "blk.1.attn_k.weight");
  Tensor ours;
  for (const auto& [path, p] : learner->model().parameters_at(kModelRoot))
    if (path == "layers.2.1.0.0.body.1.weight") ours = p->value();
  REQUIRE(ours.defined());
  // Head 1 of k: rows 64 + 16 on; of 16 features the pair (3, 11) stands at 6 and 7.
  for (int64_t c = 0; c < 64; ++c) {
    CHECK(file.at({16 + 6, c}) == ours.at({64 + 16 + 3, c}));
    CHECK(file.at({16 + 7, c}) == ours.at({64 + 16 + 11, c}));
  }
  const auto gpt = learner_of("gpt", "heads: 4, dim: 64, context: 12", "");
  const ExportReport report = export_gguf(gpt->model(), model_record(*gpt)->model, nullptr, temp.file("g.gguf"));
  const GgufFile g = GgufFile::read(temp.file("g.gguf"));
  CHECK(g.entry("blk.0.attn_qkv.bias").shape == std::vector<int64_t>{192});
  for (const double x : gguf_tensor(g, "blk.0.attn_qkv.bias").values()) CHECK(x == 0);
  int64_t zeros = 0;
  for (const ExportedTensor& t : report.tensors) zeros += t.fate == ExportedTensor::Fate::kZeros;
  CHECK(zeros == 2 * 6 + 1);
}

TEST_CASE("the frequencies of Llama 3.1 are factors in the file, and are found again in them") {
  TempDir temp;
  const std::string path = temp.file("m.gguf");
  struct Case {
    int64_t dim;
    double base, factor, low, high;
    int64_t original;
  };
  // Llama 3.1 8B and 3.2 1B, small ones, and numbers that no file has: they are found by the line between the two.
  for (const Case& c : std::vector<Case>{{128, 500000, 8, 1, 4, 8192},
                                         {64, 500000, 32, 1, 4, 8192},
                                         {16, 500, 8, 1, 4, 64},
                                         {128, 10000, 4, 1, 8, 3000},
                                         {128, 10000, 4, 2, 8, 4096}}) {
    RopeOptions rope{.dim = c.dim, .base = c.base, .factor = c.factor, .low = c.low, .high = c.high};
    rope.original = c.original;
    const std::vector<float> factors = interop::rope_factors(rope);
    CHECK(factors.front() == 1);
    CHECK(factors.back() == static_cast<float>(c.factor));
    RopeOptions read{.dim = c.dim, .base = c.base};
    REQUIRE(interop::read_rope_factors(factors, read));
    CHECK(read.factor == c.factor);
    // Only their ratios count.
    CHECK(read.high / read.low == c.high / c.low);
    CHECK(static_cast<double>(read.original) / read.low == static_cast<double>(c.original) / c.low);
    std::vector<float> other = factors;
    other[other.size() / 2] *= 1.5f;
    CHECK_FALSE(interop::read_rope_factors(other, read));
  }
  // One pair between the two, as in the golden llama.
  const RopeOptions few{.dim = 8, .base = 500, .factor = 4, .low = 1, .high = 4, .original = 16};
  RopeOptions found{.dim = 8, .base = 500};
  REQUIRE(interop::read_rope_factors(interop::rope_factors(few), found));
  CHECK(found.original == 16);
  const auto learner = learner_of("llama", kLlama, "");
  export_gguf(learner->model(), model_record(*learner)->model, nullptr, path);
  const GgufFile file = GgufFile::read(path);
  std::vector<GgufItem> items;
  for (const GgufEntry& e : file.entries()) items.push_back({e.name, e.type, e.shape, file.data(e.name)});
  const RopeOptions rope{.dim = 16, .base = 10000, .factor = 8, .low = 1, .high = 4, .original = 64};
  const auto with = [&](std::vector<float> factors, const GgufMetadata& keys) {
    std::vector<GgufItem> all = items;
    const Tensor t = Tensor::from(factors, {std::ssize(factors)}, dtypes::fp32, MemoryKind::kBuffer);
    all.push_back(gguf_item("rope_freqs.weight", t, GgufType::kF32));
    write_gguf(temp.file("r.gguf"), all, keys);
    return import_gguf(temp.file("r.gguf"));
  };
  const ImportedModel read = with(interop::rope_factors(rope), file.metadata());
  save_imported(read, temp.file("m"));
  const auto again = load_evaluator(temp.file("m"), find_loss("softmax_cross_entropy"));
  const Tensor ids = ids_tensor(some_ids(24, 3), 2);
  CHECK(again->predict(ids).elements() != learner->predict(ids).elements());
  // The way back writes the same tensor.
  export_gguf(again->model(), read.spec, nullptr, temp.file("again.gguf"));
  const Tensor written = gguf_tensor(GgufFile::read(temp.file("again.gguf")), "rope_freqs.weight");
  CHECK(written.to_vector() == interop::rope_factors(rope));
  check_equal_logits(*again, import_gguf(temp.file("again.gguf")));
  expect_error([&] { with({1, 1, 1, 1, 2, 4, 3, 8}, file.metadata()); }, "its factors are none of Llama 3.1's scaling");
  expect_error([&] { with({1, 1, 8}, file.metadata()); }, "expected 8 floats");
  GgufMetadata keys = file.metadata();
  keys.emplace_back("llama.rope.scaling.type", GgufValue::text("linear"));
  keys.emplace_back("llama.rope.scaling.factor", GgufValue::float32(2));
  expect_error([&] { with(interop::rope_factors(rope), keys); }, "frequencies are scaled by it and by");
  ExportSpec qwen;
  qwen.family = "qwen2";
  expect_error([&] { export_gguf(again->model(), read.spec, nullptr, temp.file("no.gguf"), qwen); }, "Files of qwen2");
}

TEST_CASE("what GGUF cannot hold is refused, all of it, and nothing is written") {
  TempDir temp;
  const std::string path = temp.file("m.gguf");
  const auto learner = learner_of("llama", "heads: 4, kv_heads: 2, dim: 48, ffn: 96", kInt4);
  ExportSpec dry;
  dry.dry_run = true;
  const ExportReport report = export_gguf(learner->model(), model_record(*learner)->model, nullptr, path, dry);
  CHECK(report.refused());
  CHECK_FALSE(file_system().exists(path));
  expect_error([&] { export_gguf(learner->model(), model_record(*learner)->model, nullptr, path); },
               "layers.2.1.0.1.body.1.weight (blk.1.ffn_up.weight): rows of 48 elements do not fill blocks of 32");
  CHECK_FALSE(file_system().exists(path));
  const auto nf4 = learner_of("llama", kLlama, "dtype: nf4, scheme: codebook, granularity: group(32)");
  expect_error([&] { export_gguf(nf4->model(), model_record(*nf4)->model, nullptr, path); },
               "layers.2.1.0.1.body.1.weight (blk.1.ffn_up.weight): no type holds codes of nf4\n");
  ExportSpec other;
  other.family = "gpt2";
  expect_error([&] { export_gguf(learner->model(), model_record(*learner)->model, nullptr, path, other); },
               "rotary positions, expected learned ones. Files of gpt2 cannot say it");
  other.family = "mamba";
  expect_error([&] { export_gguf(learner->model(), model_record(*learner)->model, nullptr, path, other); },
               "family: got mamba, expected one of: gpt2, llama, qwen2, qwen3, gemma3, gemma2, granite, smollm3, "
               "mistral, olmo2, bitnet.");
}

TEST_CASE("damaged and foreign GGUF models are refused with what is wrong") {
  TempDir temp;
  const std::string path = temp.file("m.gguf"), bad = temp.file("bad.gguf");
  const auto learner = learner_of("llama", kLlama, "");
  export_gguf(learner->model(), model_record(*learner)->model, nullptr, path);
  const GgufFile file = GgufFile::read(path);
  std::vector<GgufItem> items;
  for (const GgufEntry& e : file.entries()) items.push_back({e.name, e.type, e.shape, file.data(e.name)});
  const auto with_key = [&](const std::string& key, GgufValue value) {
    GgufMetadata keys = file.metadata();
    for (auto& [name, old] : keys)
      if (name == key) old = value;
    write_gguf(bad, items, keys);
  };
  const auto refused = [&](const std::string& text) {
    expect_error([&] { import_gguf(bad); }, text);
    CHECK(error_code_of([&] { import_gguf(bad); }) == 3);
  };
  with_key("general.architecture", GgufValue::text("mamba"));
  refused(
      "key 'general.architecture': got mamba, expected one of: gpt2, llama, qwen2, qwen3, gemma3, gemma2, granite, "
      "smollm3, "
      "olmo2, bitnet.");
  with_key("llama.block_count", GgufValue::uint32(2000000000));
  refused("got 2000000000 blocks in a file of 20 tensors");
  with_key("llama.block_count", GgufValue::uint32(3));
  refused("blk.2.attn_q.weight: missing, expected [64,64]");
  with_key("llama.block_count", GgufValue::uint32(1));
  refused("blk.1.ffn_down.weight: unexpected");
  with_key("llama.attention.head_count", GgufValue::uint32(0));
  refused("llama.attention.head_count': got 0, expected a number from 1 on");
  with_key("llama.attention.head_count_kv", GgufValue::uint32(3));
  refused("llama.attention.head_count_kv': got 3, expected a divisor of 4");
  with_key("llama.feed_forward_length", GgufValue::uint32(4294967295));
  refused("llama.feed_forward_length': got 4294967295, expected a number from 1 on");
  with_key("llama.feed_forward_length", GgufValue::uint32(64));
  refused("blk.0.ffn_gate.weight: got shape [128,64], expected [64,64]");
  with_key("llama.attention.layer_norm_rms_epsilon", GgufValue::float32(-1));
  refused("layer_norm_rms_epsilon': got -1, expected a number above 0");
  with_key("bitgrad.activation", GgufValue::text("tanh"));
  refused("key 'bitgrad.activation': got tanh, expected one of: swiglu.");
  // Keys of other families.
  for (const char* key : {"attention.sliding_window", "attention.sliding_window_pattern"}) {
    GgufMetadata keys = file.metadata();
    keys.emplace_back(concat("llama.", key), GgufValue::uint32(8));
    write_gguf(bad, items, keys);
    refused(concat("llama.", key, ": 8"));
  }
  items.pop_back();
  write_gguf(bad, items, file.metadata());
  refused("output_norm.weight: missing, expected [64]");
}
