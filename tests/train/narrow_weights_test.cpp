// Floats of 16 bits in files of other programs stay so in model files and, where they are only read, in memory: with
// the values and the scores of fp32.
#include <algorithm>
#include <cstring>

#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/infer/generator.h"
#include "bitgrad/interop/interop.h"
#include "bitgrad/io/gguf.h"
#include "bitgrad/io/safetensors.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"
#include "tensor/narrow.h"
#include "train/small_gpt.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

const std::string kTied = "layers: 2, heads: 4, kv_heads: 2, dim: 64, ffn: 128";
const std::string kUntied = kTied + ", head: {linear: {out: 33, bias: false}}";
const std::string kInt4Rule =
    "{layers: \"layers.2.*\", weights: {dtype: int4, scheme: absmax, granularity: group(32), scale_dtype: fp16}}";

// A decoder as a GGUF file, whose matrices of floats are of `type`.
void write_decoder(const std::string& path, const std::string& keys, const std::string& rule, GgufType type) {
  const auto learner = converted_decoder("llama", keys, rule);
  export_gguf(learner->model(), model_record(*learner)->model, nullptr, path);
  const GgufFile file = GgufFile::read(path);
  std::vector<GgufItem> items;
  for (const GgufEntry& e : file.entries()) {
    items.push_back({e.name, e.type, e.shape, file.data(e.name)});
    if (e.shape.size() != 2 || (e.type != GgufType::kF32 && e.type != GgufType::kF16)) continue;
    const Tensor read = gguf_tensor(file, e.name);
    items.back() =
        gguf_item(e.name, Tensor::from(read.to_vector(), read.shape(), dtypes::fp32, MemoryKind::kBuffer), type);
  }
  write_gguf(path, items, file.metadata());
}

// The same model in fp32.
ImportedModel widened(ImportedModel model) {
  for (auto& [name, tensor] : model.parameters)
    if (detail::is_narrow(tensor.dtype()))
      tensor = Tensor::from(tensor.to_vector(), tensor.shape(), dtypes::fp32, MemoryKind::kBuffer);
  return model;
}

std::unique_ptr<Learner> opened(const std::string& path) {
  return load_evaluator(path, find_loss("softmax_cross_entropy"));
}

// The scores behind a prompt and behind two single ids.
std::vector<float> scores_of(Learner& learner) {
  Generator generator(learner);
  std::vector<float> all;
  for (const std::vector<int32_t>& ids : {some_ids(9, 3), std::vector<int32_t>{7}, std::vector<int32_t>{2}}) {
    const std::span<const float> scores = generator.feed(ids);
    all.insert(all.end(), scores.begin(), scores.end());
  }
  return all;
}

int64_t held_narrow(Learner& learner) {
  const std::vector<Parameter*> all = learner.model().parameters();
  return std::count_if(all.begin(), all.end(),
                       [](const Parameter* p) { return detail::narrow_of(p->value()).defined(); });
}

// Bytes of values while the model of this file is open and has generated.
int64_t value_bytes(const std::string& path) {
  const MemoryAccount before = memory_now();
  const auto learner = opened(path);
  scores_of(*learner);
  return memory_now()[MemoryKind::kValue] - before[MemoryKind::kValue];
}

int64_t stored_as(const std::string& path, std::string_view dtype) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  return std::count_if(file.entries().begin(), file.entries().end(),
                       [&](const SafetensorsEntry& e) { return e.dtype == dtype; });
}

}  // namespace

// [cpu]: only weights on the CPU are held in fewer bits.
TEST_CASE("floats of 16 bits of a GGUF file are held so, and give the scores of fp32 bit for bit", "[cpu]") {
  struct Case {
    std::string keys, rule;
    int64_t narrow;  // matrices of floats
  };
  const std::vector<Case> cases{{kTied, kInt4Rule, 1}, {kUntied, kInt4Rule, 2}, {kTied, "", 9}};
  TempDir temp;
  for (const Case& c : cases)
    for (const auto& [type, dtype] : {std::pair{GgufType::kF16, "F16"}, {GgufType::kBF16, "BF16"}}) {
      INFO(c.keys << ' ' << c.rule << ' ' << dtype);
      write_decoder(temp.file("m.gguf"), c.keys, c.rule, type);
      const ImportedModel read = import_gguf(temp.file("m.gguf"));
      save_imported(read, temp.file("narrow"));
      save_imported(widened(read), temp.file("wide"));
      CHECK(stored_as(temp.file("narrow"), dtype) == c.narrow);
      CHECK(stored_as(temp.file("wide"), dtype) == 0);

      const auto narrow = opened(temp.file("narrow")), wide = opened(temp.file("wide"));
      CHECK(held_narrow(*narrow) == c.narrow);
      CHECK(held_narrow(*wide) == 0);
      CHECK(scores_of(*narrow) == scores_of(*wide));
      CHECK(narrow->predict(ids_tensor(some_ids(24, 3), 2)).elements() ==
            wide->predict(ids_tensor(some_ids(24, 3), 2)).elements());
      CHECK(held_narrow(*narrow) == c.narrow);

      int64_t numbers = 0;
      for (const Parameter* p : narrow->model().parameters())
        if (detail::narrow_of(p->value()).defined()) numbers += p->shape().numel();
      CHECK(value_bytes(temp.file("wide")) - value_bytes(temp.file("narrow")) == 2 * numbers);

      // A file of the opened model is the same again, and what reads fp32 gets it.
      save_model(temp.file("again"), narrow->model(), CheckpointHeader{});
      CHECK(stored_as(temp.file("again"), dtype) == c.narrow);
      const std::vector<Parameter*> mine = narrow->model().parameters(), theirs = wide->model().parameters();
      REQUIRE(mine.size() == theirs.size());
      for (size_t i = 0; i < mine.size(); ++i) {
        const Tensor &a = mine[i]->value(), &b = theirs[i]->value();
        REQUIRE(a.bytes() == b.bytes());
        CHECK(std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())) == 0);
      }
      CHECK(held_narrow(*narrow) == 0);
      CHECK(scores_of(*narrow) == scores_of(*wide));
    }
}

TEST_CASE("weights that are restored after they were held in 16 bits have the new values", "[cpu]") {
  TempDir temp;
  write_decoder(temp.file("m.gguf"), kTied, kInt4Rule, GgufType::kF16);
  save_imported(import_gguf(temp.file("m.gguf")), temp.file("m"));
  const auto learner = opened(temp.file("m"));
  Parameter* const table = learner->model().parameters().at(0);
  REQUIRE(detail::narrow_of(table->value()).defined());
  const std::vector<float> before = scores_of(*learner);
  const Tensor twice = Tensor::from(table->value().to_vector(), table->shape(), dtypes::fp32);
  for (int64_t i = 0; i < twice.numel(); ++i) twice.as<float>()[i] *= 2;
  table->restore({twice, {}});
  CHECK(table->value().to_vector() == twice.to_vector());
  CHECK_FALSE(scores_of(*learner) == before);
}

TEST_CASE("a run that starts from floats of 16 bits trains fp32 values equal to them", "[cpu]") {
  TempDir temp;
  write_decoder(temp.file("m.gguf"), kTied, kInt4Rule, GgufType::kF16);
  save_imported(import_gguf(temp.file("m.gguf")), temp.file("m"));
  const auto narrow = opened(temp.file("m"));
  const OpenedFile file = open_file(temp.file("m"));
  const auto trains = load_file(file, nullptr, LearnerUse::kTrain);
  CHECK(held_narrow(*trains) == 0);
  CHECK(trains->model().parameters().at(0)->value().to_vector() ==
        narrow->model().parameters().at(0)->value().to_vector());
}

TEST_CASE("a file whose 16-bit floats hold an Inf is refused by name", "[cpu]") {
  TempDir temp;
  write_decoder(temp.file("m.gguf"), kTied, kInt4Rule, GgufType::kF16);
  ImportedModel read = import_gguf(temp.file("m.gguf"));
  for (auto& [name, tensor] : read.parameters)
    if (name == "layers.0.weight") tensor.as<uint16_t>()[5] = 0x7C00;
  const std::string error = error_of([&] {
    save_imported(read, temp.file("m"));
    opened(temp.file("m"));
  });
  INFO(error);
  CHECK(contains(error, "layers.0.weight"));
}
