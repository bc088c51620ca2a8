// Folders of Hugging Face whose weights are codes of compressed-tensors: what is written is read again with the same
// codes and scales, all layouts that the package knows are read, and what is not read is refused by name.
#include <filesystem>
#include <fstream>
#include <iterator>

#include "bitgrad/base/json.h"
#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/interop/interop.h"
#include "bitgrad/io/safetensors.h"
#include "interop/hugging_face.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "train/config_support.h"
#include "train/small_gpt.h"

using namespace bitgrad;
using namespace bitgrad::test;
namespace fs = std::filesystem;

namespace {

std::unique_ptr<Learner> learner_of(const std::string& preset, const std::string& rule) {
  const std::string keys =
      "layers: 1, heads: 2, dim: 64" + std::string(preset == "gpt" ? ", context: 12" : ", ffn: 96");
  return converted_decoder(preset, keys, rule);
}
std::string weights(const std::string& text) { return "{layers: \"layers.2.*\", weights: {" + text + "}}"; }
ExportReport write_packed(Learner& learner, const std::string& folder) {
  return export_hugging_face(learner.model(), model_record(learner)->model, nullptr, folder, {.form = "packed"});
}

// The golden llama with up_proj of block 0, [48, 32], as codes.
struct Coded {
  TempDir temp;
  std::string folder = temp.file("model");
  static constexpr const char* kName = "model.layers.0.mlp.up_proj.weight";
  std::vector<int64_t> codes;
  Json config;

  explicit Coded(int bits, int64_t seed = 1) {
    fs::copy(source_path("tests/golden/hugging_face/llama"), folder);
    const int64_t half = int64_t{1} << (bits - 1);
    for (int64_t i = 0; i < 48 * 32; ++i) codes.push_back((i * 7919 + seed) % (2 * half) - half);
    std::ifstream in(folder + "/config.json");
    config = Json::parse(std::string(std::istreambuf_iterator<char>(in), {}));
    config["quantization_config"] = Json::parse(
        R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed",
            "ignore": ["lm_head"], "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4,
            "type": "int", "symmetric": true, "strategy": "channel", "group_size": null, "actorder": null}}}})");
    scheme()["num_bits"] = bits;
  }
  Json& quantization() { return config["quantization_config"]; }
  Json& scheme() { return quantization()["config_groups"]["group_0"]["weights"]; }
  ImportedModel read(const std::vector<SafetensorsItem>& tensors) const {
    std::ofstream(folder + "/config.json") << config.dump();
    const std::string path = folder + "/model.safetensors";
    const SafetensorsFile file =
        SafetensorsFile::read(source_path("tests/golden/hugging_face/llama/model.safetensors"));
    std::vector<SafetensorsItem> items = tensors;
    for (const SafetensorsEntry& e : file.entries())
      if (e.name != kName) items.push_back({e.name, e.dtype, e.shape, file.data(e.name), e.bytes});
    write_safetensors(path, items, {});
    return import_hugging_face(folder);
  }
  template <typename T>
  static SafetensorsItem item(const std::string& end, const char* type, std::vector<int64_t> shape,
                              const std::vector<T>& data) {
    return {kName + end, type, std::move(shape), data.data(), static_cast<int64_t>(data.size() * sizeof(T))};
  }
};

// gate and up are one weight: gate is fp32 there, and codes are then read as values.
void check_values(const ImportedModel& model, const std::vector<double>& expected) {
  for (const auto& [path, tensor] : model.parameters)
    if (path == "layers.2.0.0.1.body.1.weight") {
      const std::vector<double> all = tensor.values();
      REQUIRE(all.size() == 2 * 48 * 32);
      CHECK(std::vector<double>(all.begin() + 48 * 32, all.end()) == expected);
      return;
    }
  FAIL("no up_proj");
}

}  // namespace

TEST_CASE("codes and scales are the same after a folder of packed codes") {
  struct Case {
    std::string rule, dtype;
    int bits;
  };
  const std::vector<Case> cases{{"dtype: int4, scheme: absmax, granularity: group(32)", "int4", 4},
                                {"dtype: int8, scheme: absmax, granularity: channel", "int8", 8},
                                {"dtype: int3, scheme: absmax, granularity: group(16)", "int4", 4},
                                {"dtype: ternary, scheme: ternary", "int2", 2},
                                {"dtype: bint1, scheme: binary, alpha: channel", "int2", 2},
                                {"dtype: uint2, scheme: affine, granularity: group(32)", "int4", 4},
                                {"dtype: int4, scheme: absmax", "int4", 4}};
  TempDir temp;
  for (const Case& c : cases) {
    INFO(c.rule);
    const auto learner = learner_of("llama", weights(c.rule));
    const ExportReport report = write_packed(*learner, temp.file("m"));
    for (const ExportedTensor& t : report.tensors) CHECK(t.fate == ExportedTensor::Fate::kExact);
    const SafetensorsFile file = SafetensorsFile::read(temp.file("m") + "/model.safetensors");
    CHECK(file.entry("model.layers.0.mlp.down_proj.weight_packed").shape == std::vector<int64_t>{64, 96 * c.bits / 32});
    const ImportedModel read = import_hugging_face(temp.file("m"));
    std::map<std::string, Tensor> known;
    for (const auto& [path, parameter] : learner->model().parameters_at(kModelRoot)) known[path] = parameter->value();
    for (const auto& [path, tensor] : read.parameters) {
      INFO(path);
      CHECK(tensor.values() == known.at(path).values());
      if (known.at(path).dtype().is_code()) CHECK(tensor.dtype().name() == c.dtype);
    }
    save_imported(read, temp.file("again"));
    const auto again = load_evaluator(temp.file("again"), find_loss("softmax_cross_entropy"));
    const Tensor ids = ids_tensor(some_ids(24, 3), 2);
    CHECK(again->predict(ids).elements() == learner->predict(ids).elements());
    fs::remove_all(temp.file("m"));
  }
}

TEST_CASE("weights whose codes do not fit are values beside the others, and a wish that cannot be met is an error") {
  TempDir temp;
  const auto mixed = learner_of("llama",
                                "{layers: \"layers.2.0.0.0.*\", weights: {dtype: nf4, scheme: codebook, granularity: "
                                "group(32)}}, {layers: \"layers.2.0.0.1.*\", weights: {dtype: int4, scheme: absmax}}");
  const ExportReport report = write_packed(*mixed, temp.file("m"));
  std::string reason;
  for (const ExportedTensor& t : report.tensors)
    if (t.name == "model.layers.0.self_attn.q_proj.weight") reason = t.reason;
  CHECK(contains(reason, "not packed: codes of nf4 are levels of a codebook"));
  CHECK(SafetensorsFile::read(temp.file("m") + "/model.safetensors")
            .contains("model.layers.0.mlp.up_proj.weight_packed"));
  const auto floats = learner_of("llama", "");
  CHECK(contains(error_of([&] { write_packed(*floats, temp.file("no")); }), "no weight has codes"));
  const auto gpt = learner_of("gpt", "{layers: \"layers.3.*\", weights: {dtype: int4, scheme: absmax}}");
  CHECK(contains(error_of([&] { write_packed(*gpt, temp.file("no")); }), "the products of gpt2 are not linear layers"));
  CHECK_FALSE(fs::exists(temp.file("no")));
  const auto error = error_of([&] {
    export_hugging_face(mixed->model(), model_record(*mixed)->model, nullptr, temp.file("no"), {.form = "qdq"});
  });
  CHECK(contains(error, "--form: got qdq, expected values or packed"));
}

TEST_CASE("zero points, bytes, scales of groups, of rows and of all, and several groups of layers are read") {
  for (const int bits : {2, 3, 4, 5, 8}) {  // 3 and 5: codes that cross words
    INFO(bits);
    Coded model(bits);
    const std::vector<int32_t> words = interop::packed_rows(model.codes, 48, 32, bits, int64_t{1} << (bits - 1));
    std::vector<float> scales;
    std::vector<int64_t> zeros;
    for (int64_t r = 0; r < 48; ++r) {
      scales.push_back(0.25f * static_cast<float>(r + 1));
      zeros.push_back(r % 4 - 2);
    }
    const std::vector<int32_t> down = interop::packed_rows(zeros, 1, 48, bits, int64_t{1} << (bits - 1));
    std::vector<SafetensorsItem> items{Coded::item("_packed", "I32", {48, bits}, words),
                                       Coded::item("_scale", "F32", {48, 1}, scales)};
    std::vector<double> expected, centred;
    for (size_t i = 0; i < model.codes.size(); ++i) {
      expected.push_back(static_cast<double>(model.codes[i]) * scales[i / 32]);
      centred.push_back(static_cast<double>(model.codes[i] - zeros[i / 32]) * scales[i / 32]);
    }
    check_values(model.read(items), expected);
    model.scheme()["symmetric"] = false;
    items.push_back(Coded::item("_zero_point", "I32", {std::ssize(down), 1}, down));
    check_values(model.read(items), centred);
  }
  Coded bytes(8);
  bytes.quantization()["format"] = "int-quantized";
  bytes.scheme()["strategy"] = "group";
  bytes.scheme()["group_size"] = 16;
  const std::vector<int8_t> codes(bytes.codes.begin(), bytes.codes.end());
  std::vector<uint16_t> scales;  // bf16: 2^0 to 2^7
  for (int i = 0; i < 96; ++i) scales.push_back(static_cast<uint16_t>((127 + i % 8) << 7));
  std::vector<double> expected;
  for (size_t i = 0; i < codes.size(); ++i)
    expected.push_back(static_cast<double>(codes[i]) * static_cast<double>(1 << (i / 16 % 8)));
  const std::vector<SafetensorsItem> items{Coded::item("", "I8", {48, 32}, codes),
                                           Coded::item("_scale", "BF16", {48, 2}, scales)};
  check_values(bytes.read(items), expected);
  // A name counts before a pattern, and a pattern before a class.
  Json other = bytes.quantization()["config_groups"]["group_0"];
  other["targets"] = Json::array({"re:.*up_proj$"});
  bytes.scheme()["group_size"] = 8;
  bytes.quantization()["config_groups"]["group_1"] = other;
  check_values(bytes.read(items), expected);
  for (const char* pattern : {"re:.*mlp\\.(gate|up)_proj", "re:^model.*\\.0\\.mlp.up_proj$", "re:.*(down|up_pro).*"}) {
    bytes.quantization()["config_groups"]["group_1"]["targets"] = Json::array({pattern});
    check_values(bytes.read(items), expected);
  }
  for (const char* pattern : {"re:.*[u]p_proj", "re:.*up_proj+", "re:.*((up)|x)_proj", "re:\\w+"}) {
    bytes.quantization()["config_groups"]["group_1"]["targets"] = Json::array({pattern});
    CHECK(contains(error_of([&] { bytes.read(items); }), "targets: got 're:"));
  }
  bytes.quantization()["config_groups"]["group_1"]["targets"] = Json::array({"re:up_proj"});  // not at the start
  CHECK(contains(error_of([&] { bytes.read(items); }), "weight_scale: got BF16 [48,2], expected"));
}

TEST_CASE("members of quantization_config that are not read are refused by name") {
  const std::vector<int32_t> words(48 * 4, 0);
  const std::vector<float> scales(48, 1.0f);
  const std::vector<SafetensorsItem> items{Coded::item("_packed", "I32", {48, 4}, words),
                                           Coded::item("_scale", "F32", {48, 1}, scales)};
  const auto refused = [&](auto&& change, const std::string& text) {
    Coded model(4);
    change(model);
    const std::string error = error_of([&] { model.read(items); });
    INFO(error);
    INFO(text);
    CHECK(contains(error, text));
  };
  const auto json = [](const char* text) { return Json::parse(text); };
  for (const char* method : {"gptq", "awq", "bitsandbytes", "fp8", "torchao", "hqq", "mxfp4", "quanto", "\\u202e"})
    refused([&](Coded& m) { m.quantization()["quant_method"] = json(concat('"', method, '"').c_str()); },
            "expected none, compressed-tensors");
  refused([&](Coded& m) { m.quantization()["format"] = "float-quantized"; }, "format: got 'float-quantized'");
  refused([&](Coded& m) { m.quantization()["format"] = "nvfp4-pack-quantized"; }, "'nvfp4-pack-quantized'");
  refused([&](Coded& m) { m.quantization()["quantization_status"] = "frozen"; }, "got 'frozen', expected compressed");
  refused([&](Coded& m) { m.quantization()["kv_cache_scheme"] = json(R"({"num_bits": 8})"); }, "kv_cache_scheme");
  refused([&](Coded& m) { m.quantization()["sparsity_config"] = json(R"({"format": "sparse-24-bitmask"})"); },
          "sparsity_config");
  refused(
      [&](Coded& m) { m.quantization()["config_groups"]["group_0"]["input_activations"] = json(R"({"num_bits": 8})"); },
      "input_activations: got");
  refused([&](Coded& m) { m.quantization()["config_groups"] = json("{}"); }, "config_groups: got none");
  refused([&](Coded& m) { m.quantization()["config_groups"]["group_0"]["targets"] = json("[\"Embedding\"]"); },
          "no target of config_groups names it");
  refused([&](Coded& m) { m.scheme()["type"] = "float"; }, "type: got 'float', expected int");
  refused([&](Coded& m) { m.scheme()["num_bits"] = 16; }, "num_bits: got 16, expected 2 to 8");
  refused([&](Coded& m) { m.scheme()["num_bits"] = 8; }, "weight_packed: got I32 [48,4], expected I32 [48,8]");
  refused([&](Coded& m) { m.scheme()["strategy"] = "block"; }, "strategy: got 'block'");
  refused([&](Coded& m) { m.scheme()["actorder"] = "group"; }, "actorder: got \"group\"");
  refused([&](Coded& m) { m.scheme()["symmetric"] = false; }, "weight_zero_point: missing");
  refused(
      [&](Coded& m) {
        m.scheme()["strategy"] = "group";
        m.scheme()["group_size"] = 5;
      },
      "groups of 5 columns, expected a divisor of 32");
  refused([&](Coded& m) { m.config["quantization_config"] = "int4"; }, "expected an object");
}
