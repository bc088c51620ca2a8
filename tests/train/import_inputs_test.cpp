// What import keeps of a GGUF file: codes of the table of ids and of the head, and inputs rounded as asked for.
#include <cmath>
#include <filesystem>

#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/dtype/bf16.h"
#include "bitgrad/infer/generator.h"
#include "bitgrad/interop/interop.h"
#include "bitgrad/io/gguf.h"
#include "bitgrad/quant/quantizer.h"
#include "interop/decoder_files.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"
#include "train/small_gpt.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

const std::string kLlamaKeys = "layers: 2, heads: 4, kv_heads: 2, dim: 64, ffn: 128";
const std::string kInt4Rule =
    "{layers: \"layers.2.*\", weights: {dtype: int4, scheme: absmax, granularity: group(32), scale_dtype: fp16}}";
const std::string kUntied = ", head: {linear: {out: 33, bias: false}}";

// The file at `path` with the tensors of these names in other types.
void retype(const std::string& path, const std::map<std::string, std::pair<GgufType, DType>>& types) {
  const GgufFile file = GgufFile::read(path);
  std::vector<GgufItem> items;
  for (const GgufEntry& e : file.entries()) {
    items.push_back({e.name, e.type, e.shape, file.data(e.name)});
    const auto found = types.find(e.name);
    if (found == types.end()) continue;
    const auto [type, dtype] = found->second;
    QuantSpec spec{.dtype = dtype, .scheme = "absmax", .granularity = Granularity::groups(32)};
    if (dtype == dtypes::bint1) spec.scheme = "binary", spec.alpha = true, spec.granularity = Granularity::groups(128);
    spec.scale_dtype = dtypes::fp16;
    const Tensor read = gguf_tensor(file, e.name),
                 values = Tensor::from(read.to_vector(), read.shape(), dtypes::fp32, MemoryKind::kBuffer);
    items.back() = gguf_item(e.name, dtype.is_code() ? quantize_dynamic(spec, values) : values, type);
  }
  write_gguf(path, items, file.metadata());
}

// Writes a decoder to `path` whose table, and head if it has one, are codes.
void write_coded(const std::string& path, const std::string& preset, const std::string& keys, const std::string& rule,
                 std::pair<GgufType, DType> table, std::pair<GgufType, DType> head) {
  const auto learner = converted_decoder(preset, keys, rule);
  export_gguf(learner->model(), model_record(*learner)->model, nullptr, path);
  retype(path, {{"token_embd.weight", table}, {"output.weight", head}});
}

std::unique_ptr<Learner> saved(const ImportedModel& model, const TempDir& temp,
                               ImportInputs inputs = ImportInputs::kAsTrained) {
  save_imported(model, temp.file("m"), inputs);
  return load_evaluator(temp.file("m"), find_loss("softmax_cross_entropy"));
}

Tensor parameter_of(const ImportedModel& model, const std::string& path) {
  for (const auto& [name, tensor] : model.parameters)
    if (name == path) return tensor;
  FAIL("no " << path);
  return {};
}

std::vector<double> logits(Learner& learner) { return learner.predict(ids_tensor(some_ids(24, 3), 2)).elements(); }

// The same model with values in place of codes.
ImportedModel widened(ImportedModel model, const std::vector<std::string>& paths) {
  for (auto& [name, tensor] : model.parameters)
    if (std::find(paths.begin(), paths.end(), name) != paths.end())
      tensor = Tensor::from(tensor.to_vector(), tensor.shape(), dtypes::fp32, MemoryKind::kBuffer);
  return model;
}

void check_same_tensors(const std::string& a, const std::string& b) {
  const GgufFile first = GgufFile::read(a), second = GgufFile::read(b);
  REQUIRE(first.entries().size() == second.entries().size());
  for (const GgufEntry& e : first.entries()) {
    INFO(e.name);
    CHECK(second.entry(e.name).type == e.type);
    CHECK((first.data(e.name) == second.data(e.name)));
  }
}

ImportedLayer layer_of(const std::vector<ImportedLayer>& layers, const std::string& path) {
  for (const ImportedLayer& l : layers)
    if (l.layer == path) return l;
  FAIL("no " << path);
  return {};
}

}  // namespace

TEST_CASE("the table of ids and the head keep the codes of a GGUF file, tied or not, in each family") {
  struct Case {
    std::string family, preset, keys;
  };
  const std::vector<Case> cases{{"llama", "llama", kLlamaKeys},
                                {"llama", "llama", kLlamaKeys + kUntied},
                                {"qwen2", "llama", kLlamaKeys + ", qkv_bias: true"},
                                {"qwen3", "llama", kLlamaKeys + ", head_dim: 32, qk_norm: head" + kUntied},
                                {"bitnet", "bitnet", kLlamaKeys},
                                {"gpt2", "gpt", "layers: 2, heads: 4, dim: 64, context: 12"}};
  const std::pair<GgufType, DType> kTypes[] = {{GgufType::kQ8_0, dtypes::int8}, {GgufType::kQ4_0, dtypes::int4}};
  TempDir temp;
  for (const Case& c : cases)
    for (const auto& table : kTypes) {
      const bool untied = c.keys.ends_with(kUntied);
      INFO(c.family << (untied ? ", untied " : ", tied ") << gguf_type(table.first).name);
      const auto& head = kTypes[table.first == GgufType::kQ8_0 ? 1 : 0];
      const std::string path = temp.file("m.gguf");
      write_coded(path, c.preset, c.keys, "", table, head);
      const ImportedModel read = import_gguf(path);
      CHECK(read.family == c.family);
      CHECK(read.types.at("layers.0.weight") == gguf_type(table.first).name);
      const Tensor codes = parameter_of(read, "layers.0.weight");
      CHECK(codes.dtype() == table.second);
      CHECK(codes.values() == gguf_tensor(GgufFile::read(path), "token_embd.weight").values());
      const auto learner = saved(read, temp);
      const std::string last = find_decoder(read.spec).paths.head + ".weight";
      for (const auto& [name, parameter] : learner->model().parameters_at(kModelRoot)) {
        if (name == "layers.0.weight") CHECK(parameter->value().dtype() == table.second);
        if (untied && name == last) CHECK(parameter->value().dtype() == head.second);
      }
      const std::vector<double> got = logits(*learner);
      export_gguf(learner->model(), model_record(*learner)->model, nullptr, temp.file("back.gguf"));
      check_same_tensors(path, temp.file("back.gguf"));
      CHECK(got == logits(*saved(widened(read, {"layers.0.weight", last}), temp)));
    }
}

TEST_CASE("the report of an import says the type of each matrix, and what became of it and of its inputs") {
  TempDir temp;
  write_coded(temp.file("m.gguf"), "llama", kLlamaKeys, kInt4Rule, {GgufType::kQ8_0, dtypes::int8}, {});
  retype(temp.file("m.gguf"), {{"blk.0.attn_k.weight", {GgufType::kQ8_0, dtypes::int8}},
                               {"blk.1.ffn_down.weight", {GgufType::kF32, dtypes::fp32}}});
  const ImportedModel read = import_gguf(temp.file("m.gguf"));
  for (const auto& [inputs, text] : {std::pair<ImportInputs, std::string>{ImportInputs::kAsTrained, "fp32"},
                                     {ImportInputs::kFloat, "fp32"},
                                     {ImportInputs::kInt8, "int8 per token"},
                                     {ImportInputs::kInt8Block, "int8 per group(32)"}}) {
    INFO(enum_name(inputs));
    const std::vector<ImportedLayer> layers = save_imported(read, temp.file("m"), inputs);
    const auto row = [&](const std::string& path) {
      const ImportedLayer l = layer_of(layers, path);
      return concat(l.type, ", ", l.weights, ", ", l.inputs);
    };
    CHECK(layers.size() == 10);
    CHECK(row("layers.0") == "Q8_0, int8 per group(32), ");
    CHECK(row("layers.4") == "Q8_0, int8 per group(32), " + text);
    CHECK(row("layers.2.0.0.0.body.1") == "Q4_0 Q8_0, fp32, fp32");  // parts of several types
    CHECK(row("layers.2.0.0.0.body.3") == "Q4_0, int4 per group(32), " + text);
    CHECK(row("layers.2.1.0.1.body.3") == "F32, fp32, fp32");
  }
}

TEST_CASE("inputs in blocks and a scale a token are near floats, in prompts and in steps alike, and go to GGUF again") {
  TempDir temp;
  write_coded(temp.file("m.gguf"), "llama", kLlamaKeys, kInt4Rule, {GgufType::kQ8_0, dtypes::int8}, {});
  const ImportedModel read = import_gguf(temp.file("m.gguf"));
  const std::vector<double> floats = logits(*saved(read, temp));
  double largest = 0;
  for (const double x : floats) largest = std::max(largest, std::abs(x));
  double errors[2] = {};
  int at = 0;
  for (const ImportInputs inputs : {ImportInputs::kInt8Block, ImportInputs::kInt8}) {
    INFO(enum_name(inputs));
    const auto learner = saved(read, temp, inputs);
    const std::vector<double> got = logits(*learner);
    for (size_t i = 0; i < got.size(); ++i) errors[at] = std::max(errors[at], std::abs(got[i] - floats[i]));
    CHECK(errors[at] > 0);
    CHECK(errors[at] < 0.05 * largest);
    ++at;
    // One id at a time, by the kernels of single rows.
    const std::vector<int32_t> ids = some_ids(12, 3);
    Generator generator(*learner);
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::span<const float> scores = generator.feed({&ids[i], 1});
      int64_t wrong = 0;
      for (size_t j = 0; j < 33; ++j) wrong += static_cast<double>(scores[j]) != got[33 * i + j];
      CHECK(wrong == 0);
    }
    export_gguf(learner->model(), model_record(*learner)->model, nullptr, temp.file("back.gguf"));
    check_same_tensors(temp.file("m.gguf"), temp.file("back.gguf"));
  }
}

// Blocks of 128 signs, each with its own scale, some of them below 0: in all matrices, the table and the head.
TEST_CASE("a model in Q1_0 keeps its bits and the scale of each 128 of them, and generates") {
  TempDir temp;
  const std::string path = temp.file("m.gguf"), keys = "layers: 2, heads: 4, kv_heads: 2, dim: 128, ffn: 256";
  write_coded(path, "llama", keys + kUntied, "", {GgufType::kQ1_0, dtypes::bint1}, {GgufType::kQ1_0, dtypes::bint1});
  std::map<std::string, std::pair<GgufType, DType>> all;
  GgufFile file = GgufFile::read(path);
  for (const GgufEntry& e : file.entries())
    if (e.name.starts_with("blk.") && e.shape.size() == 2) all[e.name] = {GgufType::kQ1_0, dtypes::bint1};
  REQUIRE(all.size() == 14);
  retype(path, all);
  file = GgufFile::read(path);
  std::vector<GgufItem> items;
  for (const GgufEntry& e : file.entries()) {
    items.push_back({e.name, e.type, e.shape, file.data(e.name)});
    if (e.type == GgufType::kQ1_0) items.back().data[1] ^= 0x80;  // the sign of the first scale
  }
  write_gguf(path, items, file.metadata());
  file = GgufFile::read(path);

  const ImportedModel read = import_gguf(path);
  const Tensor codes = parameter_of(read, "layers.2.1.0.1.body.3.weight");
  CHECK(codes.dtype() == dtypes::bint1);
  CHECK(codes.quant()->granularity == Granularity::groups(128));
  const std::vector<uint8_t> blocks = file.data("blk.1.ffn_down.weight");
  const std::vector<double> values = codes.values();
  REQUIRE(values.size() == blocks.size() / 18 * 128);
  int64_t wrong = 0, below = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const uint8_t* block = blocks.data() + i / 128 * 18;
    const double scale = fp16_to_float(static_cast<uint16_t>(block[0] | block[1] << 8));
    wrong += values[i] != ((block[2 + i % 128 / 8] >> i % 8 & 1) != 0 ? scale : -scale);
    below += scale < 0;
  }
  CHECK(wrong == 0);
  CHECK(below == 128);

  const std::vector<std::string> paths{"layers.0.weight", find_decoder(read.spec).paths.head + ".weight"};
  CHECK(logits(*saved(read, temp)) == logits(*saved(widened(read, paths), temp)));
  for (const ImportInputs inputs : {ImportInputs::kFloat, ImportInputs::kInt8, ImportInputs::kInt8Block}) {
    INFO(enum_name(inputs));
    const auto learner = saved(read, temp, inputs);
    const std::vector<double> got = logits(*learner);
    const std::vector<int32_t> ids = some_ids(12, 3);
    Generator generator(*learner);
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::span<const float> scores = generator.feed({&ids[i], 1});
      for (size_t j = 0; j < 33; ++j) wrong += static_cast<double>(scores[j]) != got[33 * i + j];
    }
    CHECK(wrong == 0);
    export_gguf(learner->model(), model_record(*learner)->model, nullptr, temp.file("back.gguf"));
    check_same_tensors(path, temp.file("back.gguf"));
  }
  const std::vector<ImportedLayer> layers = save_imported(read, temp.file("m"), ImportInputs::kInt8Block);
  CHECK(layer_of(layers, "layers.2.1.0.1.body.3").weights == "bint1 per group(128)");
  CHECK(layer_of(layers, "layers.2.0.0.0.body.1").inputs == "int8 per group(32)");
  CHECK(layer_of(layers, "layers.2.0.0.0.body.1").type == "Q1_0");
}

TEST_CASE("BitNet's ternary weights have int8 inputs a token unless floats are asked for") {
  TempDir temp;
  write_coded(temp.file("m.gguf"), "bitnet", "layers: 1, heads: 4, kv_heads: 2, dim: 256, ffn: 256", "",
              {GgufType::kQ8_0, dtypes::int8}, {});
  const ImportedModel read = import_gguf(temp.file("m.gguf"));
  CHECK(layer_of(save_imported(read, temp.file("m")), "layers.2.0.0.0.body.1").inputs == "int8 per token");
  const auto floats = save_imported(read, temp.file("m"), ImportInputs::kFloat);
  CHECK(layer_of(floats, "layers.2.0.0.0.body.1").inputs == "fp32");
  const auto blocks = save_imported(read, temp.file("m"), ImportInputs::kInt8Block);
  const ImportedLayer ternary = layer_of(blocks, "layers.2.0.0.0.body.1");
  CHECK(ternary.type == "TQ2_0");
  CHECK(ternary.inputs == "int8 per group(256)");
  CHECK(layer_of(blocks, "layers.4").inputs == "int8 per group(32)");
}

TEST_CASE("inputs that cannot be rounded are errors, and nothing is written") {
  TempDir temp;
  write_coded(temp.file("m.gguf"), "llama", kLlamaKeys, "", {GgufType::kF32, dtypes::fp32}, {});
  ImportedModel read = import_gguf(temp.file("m.gguf"));
  for (const ImportInputs inputs : {ImportInputs::kInt8, ImportInputs::kInt8Block})
    CHECK(contains(
        error_of([&] { save_imported(read, temp.file("m"), inputs); }),
        concat("inputs ", enum_name(inputs),
               ": got no weights of integer codes, expected some: inputs of weights that are floats are not rounded")));
  const auto with_codes = [&](const QuantSpec& spec) {
    for (auto& [name, tensor] : read.parameters)
      if (name == "layers.2.1.0.1.body.3.weight") {
        const std::vector<float> values = tensor.to_vector();
        tensor = quantize_dynamic(spec, Tensor::from(values, tensor.shape(), dtypes::fp32, MemoryKind::kBuffer));
      }
  };
  with_codes({.dtype = dtypes::int4, .scheme = "absmax", .granularity = Granularity::groups(48)});
  const std::string error = error_of([&] { save_imported(read, temp.file("m"), ImportInputs::kInt8Block); });
  CHECK(contains(error,
                 "inputs int8_block: got weights that do not fit:\n  layers.2.1.0.1.body.3.weight (F32): scales "
                 "per group(48) and blocks of 32 inputs cut each other"));
  CHECK(contains(error, "Use inputs int8, one scale for each token, or float."));
  CHECK_FALSE(std::filesystem::exists(temp.file("m")));
  save_imported(read, temp.file("m"), ImportInputs::kInt8);
  with_codes({.dtype = dtypes::int4, .scheme = "absmax", .granularity = Granularity::groups(16)});
  save_imported(read, temp.file("m"), ImportInputs::kInt8Block);
}

TEST_CASE("configurations of runs refuse inputs in blocks, which imports alone have") {
  const std::string error =
      error_of([&] { gpt_learner({in_blocks("activations: {dtype: int8, scheme: absmax, granularity: group(32)}")}); });
  CHECK(contains(error, "got 'group(32)', expected one of tensor, token, channel(1)"));
}
