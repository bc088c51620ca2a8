// Tensors to files and back, and files that others wrote or that lie.
#include "bitgrad/base/json.h"
#include "bitgrad/io/safetensors.h"

#include <cstring>
#include <utility>

#include "bitgrad/base/file.h"
#include "bitgrad/dtype/codec.h"
#include "io/metadata.h"
#include "io/safetensors_support.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/numbers.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

Tensor through_file(const Tensor& t) {
  const TempDir dir;
  save_tensors(dir.file("t"), {{"name", t}});
  const NamedTensors all = load_tensors(dir.file("t"));
  REQUIRE(all.size() == 1);
  return all.at("name");
}

bool same_part(const std::shared_ptr<const Tensor>& a, const std::shared_ptr<const Tensor>& b) {
  if (!a || !b) return !a && !b;
  return a->dtype() == b->dtype() && a->shape() == b->shape() && a->elements() == b->elements();
}

// A file with these metadata and codes of two rows of three int4 numbers, whatever they say of each other.
struct Forged {
  std::string record = R"({"w.codes":{"dtype":{"name":"int4","bits":4,"kind":"int","qmin":-8,"qmax":7},"shape":[2,3],)"
                       R"("scheme":"symmetric","granularity":{"kind":1,"axis":0,"group":0,"text":""}}})";
  std::vector<uint8_t> codes{0x21, 0x03, 0xFE, 0x0F};
  std::vector<int64_t> codes_shape{2, 2};
  std::string codes_name = "w.codes";
  std::vector<float> scale{0.5f, 2.0f};

  void write(const std::string& path) const {
    write_safetensors(path,
                      {{codes_name, "U8", codes_shape, codes.data(), static_cast<int64_t>(codes.size())},
                       {"w.scale", "F32", {std::ssize(scale)}, scale.data(), std::ssize(scale) * 4}},
                      {{"bitgrad.tensors", record}});
  }
  Forged& replace(const std::string& what, const std::string& with) {
    const size_t at = record.find(what);
    REQUIRE(at != std::string::npos);
    record.replace(at, what.size(), with);
    return *this;
  }
};

// The error of a forged file; of kind kData, and names the path.
std::string refusal_of(const Forged& forged) {
  const TempDir dir;
  forged.write(dir.file("f"));
  const auto load = [&] { load_tensors(dir.file("f")); };
  const std::string text = error_of(load), start = "[load_tensors] '" + dir.file("f") + "': ";
  if (error_code_of(load) != 3 || text.rfind(start, 0) != 0) return "wrong form: " + text;
  return text.substr(start.size());
}

}  // namespace

TEST_CASE("every number that a dtype has no code for is found, wherever it is, and no code is refused") {
  for (const DType dtype : all_dtypes()) {
    if (!dtype.is_code()) continue;
    INFO(dtype.name());
    const DTypeInfo& info = dtype.info();
    std::vector<uint8_t> good, bad;
    for (unsigned raw = 0; raw < (1u << info.bits); ++raw) {
      const int64_t number = info.kind == DTypeKind::kCodebook ? raw : decode_int(info, raw);
      (number >= info.qmin && number <= info.qmax ? good : bad).push_back(static_cast<uint8_t>(raw));
    }
    for (const int64_t cols : {7, 64, 192, 200}) {
      const Tensor t = Tensor::zeros({3, cols}, dtype);
      std::vector<uint8_t> raw(static_cast<size_t>(cols));
      for (size_t i = 0; i < raw.size(); ++i) raw[i] = good[i * 5 % good.size()];
      const auto put = [&](int64_t row) {
        pack_row_raw(dtype, raw.data(), cols, static_cast<uint8_t*>(t.data()) + row * t.stride());
      };
      for (const int64_t row : {0, 1, 2}) put(row);
      CHECK(detail::wrong_codes(t).empty());
      for (const uint8_t code : bad)
        for (const size_t at : {size_t{0}, raw.size() / 2, raw.size() - 1}) {
          const uint8_t before = std::exchange(raw[at], code);
          put(1);
          const int64_t number = info.kind == DTypeKind::kCodebook ? code : decode_int(info, code);
          CHECK(detail::wrong_codes(t) == concat("row 1: ", number, " is not a code of ", dtype.name()));
          raw[at] = before;
        }
      put(1);
      if (cols * info.bits == t.stride() * 8) continue;
      static_cast<uint8_t*>(t.data())[3 * t.stride() - 1] |= 0x80;
      CHECK(detail::wrong_codes(t) == "row 2: bits after the last code are set");
    }
  }
}

TEST_CASE("every dtype comes back from a file with its shape and numbers") {
  for (const DType d : all_dtypes())
    for (const Shape& shape : {Shape{}, Shape{5}, Shape{3, 65}, Shape{2, 3, 7}, Shape{0, 5}, Shape{5, 0}}) {
      const Tensor t = random_tensor(shape, d, 3), back = through_file(t);
      INFO(t);
      CHECK(back.dtype() == d);
      CHECK(back.shape() == shape);
      CHECK(back.quant() == nullptr);
      CHECK(back.elements() == t.elements());
      CHECK(back.kind() == MemoryKind::kBuffer);
    }
}

TEST_CASE("codes come back with every part of their quantization parameters, views too") {
  for (const DType d : code_dtypes())
    for (const Granularity& g : {Granularity::tensor(), Granularity::channel(0), Granularity::channel(1),
                                 Granularity::token(), Granularity::groups(16), Granularity::groups(2, 0)})
      for (const ZeroKind zero : {ZeroKind::kNone, ZeroKind::kInteger, ZeroKind::kReal}) {
        Tensor t = random_codes({6, 70}, d, 9, g, zero);
        if (zero == ZeroKind::kNone) {
          QuantParams params = *t.quant();
          params.statistic = std::make_shared<const Tensor>(random_tensor(params.scale->shape(), dtypes::fp32, 1));
          t = t.with_quant(std::make_shared<const QuantParams>(params));
        }
        INFO(t.describe());
        for (const Tensor& part : {t, t.row_slice(2, 4)}) {
          const Tensor back = through_file(part);
          CHECK(back.dtype() == d);
          REQUIRE(back.quant() != nullptr);
          CHECK(back.quant()->scheme == "made");
          CHECK(back.quant()->granularity == g);
          CHECK(same_part(back.quant()->scale, part.quant()->scale));
          CHECK(same_part(back.quant()->zero, part.quant()->zero));
          CHECK(same_part(back.quant()->offset, part.quant()->offset));
          CHECK(same_part(back.quant()->statistic, part.quant()->statistic));
          CHECK(back.values() == part.values());
        }
      }
}

TEST_CASE("a dtype that a program registered comes back, and one of another record under its name is refused") {
  DTypeInfo info{.name = "tensors_test_levels", .bits = 2, .kind = DTypeKind::kCodebook};
  info.levels = {-1, -0.25f, 0.25f, 1};
  const DType levels = register_dtype(info);
  const Tensor t = Tensor::from({-1, 1, 0.25f, -0.25f}, {2, 2}, levels);
  CHECK(through_file(t).elements() == t.elements());
  CHECK(contains(refusal_of(Forged().replace(R"("qmin":-8)", R"("qmin":-7)")), "int4"));
}

TEST_CASE("floats are plain tensors to other readers, and codes are U8 with a record") {
  const TempDir dir;
  const Tensor w = Tensor::from({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor codes = random_codes({3, 5}, dtypes::int4, 1, Granularity::channel(0));
  save_tensors(dir.file("t"), {{"w", w}, {"codes", codes}}, {{"note", "of the author"}});
  const SafetensorsFile file = SafetensorsFile::read(dir.file("t"));
  CHECK(file.has_checksums());
  CHECK(file.metadata().at("note") == "of the author");
  REQUIRE(file.entries().size() == 3);
  CHECK(file.entry("w").dtype == "F32");
  CHECK(file.entry("w").shape == std::vector<int64_t>{2, 3});
  CHECK(std::memcmp(file.data("w"), w.data(), 24) == 0);
  CHECK(file.entry("codes.codes").dtype == "U8");
  CHECK(file.entry("codes.codes").shape == std::vector<int64_t>{3, 3});
  CHECK(file.entry("codes.scale").shape == std::vector<int64_t>{3});
  const auto record = Json::parse(file.metadata().at("bitgrad.tensors")).at("codes.codes");
  CHECK(record.at("dtype").at("name") == "int4");
  CHECK(record.at("shape") == std::vector<int>{3, 5});
  // Without codes there is nothing of ours but the checksums.
  save_tensors(dir.file("plain"), {{"w", w}});
  CHECK(SafetensorsFile::read(dir.file("plain")).metadata().size() == 2);
}

TEST_CASE("files of other programs are read, and a dtype that bitgrad does not have is named") {
  const TempDir dir;
  const auto put = [&](const std::string& json, const std::string& data) {
    const std::vector<uint8_t> bytes = file_of(json, data);
    write_file_atomically(dir.file("other"), [&](OutputFile& file) { file.write(bytes.data(), bytes.size()); });
  };
  const float numbers[2] = {1.5f, -2.0f};
  const std::string data(reinterpret_cast<const char*>(numbers), 8);
  put(R"({"fc.weight":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}})", data);
  const Tensor w = load_tensors(dir.file("other")).at("fc.weight");
  CHECK(w.shape() == Shape{2, 1});
  CHECK(w.to_vector() == std::vector<float>{1.5f, -2.0f});
  put(R"({"mask":{"dtype":"BOOL","shape":[8],"data_offsets":[0,8]}})", data);
  const auto load = [&] { load_tensors(dir.file("other")); };
  CHECK(error_code_of(load) == 3);
  CHECK(error_of(load) == "[load_tensors] '" + dir.file("other") +
                              "': tensor 'mask' is [8] BOOL, expected one of F64, F32, BF16, F16, I64, I32, I8, U8");
  CHECK(error_code_of([&] { load_tensors(dir.file("absent")); }) == 3);
}

TEST_CASE("what cannot be saved is refused by name before anything is written") {
  const TempDir dir;
  const Tensor f = Tensor::from({1}, {1}), codes = random_codes({2, 3}, dtypes::int4, 1);
  const auto refused = [&](const NamedTensors& tensors, const std::map<std::string, std::string>& metadata = {}) {
    const auto save = [&] { save_tensors(dir.file("t"), tensors, metadata); };
    CHECK(error_code_of(save) == 2);
    CHECK_FALSE(file_system().exists(dir.file("t")));
    return error_of(save);
  };
  CHECK(refused({{"w", Tensor()}}) == "[save_tensors] tensor 'w' is undefined");
  CHECK(contains(
      refused({{"w", Tensor::empty_layout({64, 64}, dtypes::bint1, layouts::transposed, MemoryKind::kBuffer)}}),
      "tensor 'w' ([64,64] bint1) is in layout transposed, expected canonical"));
  CHECK(refused({{"w", codes}, {"w.scale", f}}) ==
        "[save_tensors] the name 'w.scale' belongs to a part of 'w' ([2,3] int4). Rename one of the two");
  CHECK_NOTHROW(save_tensors(dir.file("fine"), {{"w", f}, {"w.scale", f}}));
  CHECK(contains(refused({{"w", f}}, {{"bitgrad.tensors", "{}"}}), "the metadata key bitgrad.tensors"));
}

TEST_CASE("records and codes that do not fit are refused before they are used") {
  const TempDir dir;
  Forged().write(dir.file("fine"));
  CHECK(load_tensors(dir.file("fine")).at("w").to_vector() == std::vector<float>{0.5f, 1, 1.5f, -4, -2, -2});
  CHECK(contains(refusal_of(Forged().replace("[2,3]", "[2,5]")), "tensor 'w.codes' is [2,2] U8, expected [2,3] U8"));
  CHECK(contains(refusal_of(Forged().replace("[2,3]", "[4611686018427387904,4]")), "passes 2^62"));
  CHECK(contains(refusal_of(Forged().replace("[2,3]", "[1,4611686018427387903]")), "columns, expected at most"));
  CHECK(contains(refusal_of(Forged().replace("w.codes", "v.codes")),
                 "the metadata 'bitgrad.tensors' describes 'v.codes', which is not a tensor of codes in the file"));
  CHECK(contains(refusal_of(Forged().replace(R"("kind":1,"axis":0,"group":0)", R"("kind":3,"axis":1,"group":0)")),
                 "group: got 0, expected a whole number from 1 to 2147483648"));
  CHECK(contains(refusal_of(Forged().replace(R"("kind":1,"axis":0,"group":0)",
                                             R"("kind":3,"axis":1,"group":9223372036854775807)")),
                 "group: got 9223372036854775807, expected a whole number from 1"));
  CHECK(contains(refusal_of(Forged().replace(R"("kind":1)", R"("kind":7)")),
                 "kind of the granularity: got 7, expected a whole number from 0 to 3"));
  CHECK(contains(refusal_of(Forged().replace(R"("shape")", R"("shapes")")), "malformed metadata"));
  CHECK(contains(refusal_of(Forged().replace(R"("name":"int4")", R"("name":"fp32")")), "fp32"));
  Forged scales, bits, range;
  scales.scale.push_back(1);
  CHECK(contains(refusal_of(scales), "tensor 'w.scale' is [3] F32, expected [2] F32"));
  bits.codes[1] = 0x13;
  CHECK(contains(refusal_of(bits), "tensor 'w.codes', row 0: bits after the last code are set"));
  range.replace(R"("name":"int4","bits":4,"kind":"int","qmin":-8,"qmax":7)",
                R"("name":"tensors_test_few","bits":4,"kind":"int","qmin":-3,"qmax":3)");
  range.codes[0] = 0x24;
  CHECK(contains(refusal_of(range), "tensor 'w.codes', row 0: 4 is not a code of tensors_test_few"));
}
