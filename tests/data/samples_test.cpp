// Samples without targets: idx, npy and csv.
#include "bitgrad/data/samples.h"

#include <cmath>
#include <limits>

#include "bitgrad/base/json.h"
#include "data/npy_array.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/idx_bytes.h"
#include "support/npy_bytes.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

template <typename T>
std::vector<T> elements(const Samples& s) {
  const auto* const from = reinterpret_cast<const T*>(s.bytes.data());
  return {from, from + s.bytes.size() / int64_t{sizeof(T)}};
}
Samples idx(const std::vector<uint8_t>& bytes) { return read_idx_samples("x.idx", *memory_file(bytes)); }
Samples numpy(const NpyBytes& bytes, bool ids = false) { return read_npy_samples("x.npy", *memory_file(bytes), ids); }
Samples csv(const std::string& text, bool ids = false) { return read_csv_samples("x.csv", text, ids); }
template <typename F>
std::string data_error(F&& f) {
  CHECK(error_code_of(f) == static_cast<int>(ErrorCode::kData));
  return error_of(f);
}

}  // namespace

TEST_CASE("idx and npy files give their samples as stored") {
  std::vector<uint8_t> file = idx_header({2, 2, 3});
  for (uint8_t i = 0; i < 12; ++i) file.push_back(i);
  for (const std::vector<uint8_t>& bytes : {file, gzip(file)}) {
    const Samples s = idx(bytes);
    CHECK(s.stored == StoredAs::kUint8);
    CHECK(s.shape == Shape{2, 3});
    CHECK(s.count == 2);
    CHECK(elements<uint8_t>(s) == std::vector<uint8_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  }
  const Samples floats = numpy(npy("<f8", "(2, 2)", bytes_of<double>({1.5, -2, 1e-50, 3.0000000001})));
  CHECK(floats.stored == StoredAs::kFloat);
  CHECK(elements<float>(floats) == std::vector<float>{1.5f, -2.0f, 0.0f, 3.0f});
  const Samples ids = numpy(npy("<i8", "(3,)", bytes_of<int64_t>({-1, 70000, 2147483647})), true);
  CHECK(ids.stored == StoredAs::kInt32);
  CHECK(ids.shape == Shape{1});
  CHECK(elements<int32_t>(ids) == std::vector<int32_t>{-1, 70000, 2147483647});
  CHECK(elements<int32_t>(numpy(npy("<u2", "(1, 2)", bytes_of<uint16_t>({1, 65535})), true)) ==
        std::vector<int32_t>{1, 65535});
  CHECK(elements<int32_t>(numpy(npy("|i1", "(1, 2)", bytes_of<int8_t>({-128, 127})), true)) ==
        std::vector<int32_t>{-128, 127});
  // For a model of values, whole numbers are values.
  const NpyBytes far = npy("<i8", "(1, 2)", bytes_of<int64_t>({3, int64_t{1} << 40}));
  CHECK(elements<float>(numpy(far)) == std::vector<float>{3, 0x1p40f});
  const auto archived = [&](const std::vector<std::pair<std::string, NpyBytes>>& members) {
    return read_npz_samples("x.npz", *memory_file(test::zip(members)), false);
  };
  CHECK(elements<float>(archived({{"y.npy", far}})) == std::vector<float>{3, 0x1p40f});
  CHECK(elements<float>(archived({{"y.npy", {}}, {"images.npy", far}})) == std::vector<float>{3, 0x1p40f});
  CHECK(data_error([&] {
          archived({{"y.npy", far}, {"z.npy", far}});
        }) == "[data.npz] x.npz: got the members y.npy, z.npy, expected one array, or one that is named 'images'.");
}

TEST_CASE("values that samples cannot have are refused with their places") {
  CHECK(data_error([] {
          numpy(npy("<i8", "(2, 1)", bytes_of<int64_t>({0, int64_t{1} << 31})), true);
        }) == "[data.npy] x.npy: sample 1, value 0 at byte offset 136: got 2147483648, expected an id of int32.");
  CHECK(contains(data_error([] { numpy(npy("<u8", "(1,)", bytes_of<uint64_t>({~uint64_t{0}})), true); }),
                 "got 1.84467e+19, expected an id"));
  CHECK(contains(data_error([] {
                   numpy(npy("<f8", "(1, 2)", bytes_of<double>({0, 1e300})));
                 }),
                 "sample 0, value 1 at byte offset 136: got 1e+300, expected a finite fp32."));
  CHECK(contains(data_error([] { numpy(npy("<f2", "(1,)", bytes_of<uint16_t>({0})), true); }),
                 "descr: got '<f2', expected integers: the model reads ids."));
  CHECK(contains(data_error([] { numpy(npy("<f4", "()", bytes_of<float>({0}))); }), "one value without axes"));
  CHECK(contains(data_error([] { idx({1, 2, 3, 4, 5}); }), "Not an idx file"));
  std::vector<uint8_t> infinite = idx_header({1, 1}, 0x0D);
  for (const int byte : {0x7F, 0x80, 0, 0}) infinite.push_back(static_cast<uint8_t>(byte));
  CHECK(contains(data_error([&] { idx(infinite); }), "sample 0, value 0 at offset 12: got inf"));
}

TEST_CASE("a line of csv is a sample, a first line of names and empty lines are skipped") {
  const Samples s = csv("width, height\r\n1, -2.5e-3\r\n\r\n+3,4\n");
  CHECK(s.stored == StoredAs::kFloat);
  CHECK(s.count == 2);
  CHECK(s.shape == Shape{2});
  CHECK(elements<float>(s) == std::vector<float>{1.0f, -2.5e-3f, 3.0f, 4.0f});
  CHECK(elements<int32_t>(csv("7,-1", true)) == std::vector<int32_t>{7, -1});
  CHECK(csv("5").count == 1);
  CHECK(data_error([] { csv("1,2\n\n1,x\n"); }) ==
        "[data.csv] x.csv:3: value 2: got 'x', expected a finite number that fp32 holds.");
  CHECK(data_error([] { csv("1,2\n1\n"); }) ==
        "[data.csv] x.csv:2: got 1 values, expected 2 as in the first line of numbers.");
  CHECK(contains(data_error([] { csv("1,nan"); }), "x.csv:1: value 2: got 'nan'"));
  CHECK(contains(data_error([] { csv("1e999"); }), "got '1e999'"));
  CHECK(contains(data_error([] { csv("1,"); }), "x.csv:1: value 2: got ''"));
  CHECK(contains(data_error([] { csv("1.5", true); }), "got '1.5', expected a whole number: the model expects ids"));
  CHECK(contains(data_error([] { csv("a,b\n\n"); }), "got no line of numbers"));
  CHECK(contains(data_error([] { csv(""); }), "got no line of numbers"));
}

TEST_CASE("stored samples become values as in a data set of the same affine or normalization") {
  const std::vector<uint8_t> bytes{0, 255, 51, 102, 3, 4};
  const SampleView view{"x", StoredAs::kUint8, {1, 1, 3}, 2, bytes.data()};
  std::vector<float> got(3);
  SampleValues({2.0f, -1.0f}).write(view, 1, 1, got.data());
  for (size_t i = 0; i < 3; ++i) CHECK(got[i] == 2.0f * (static_cast<float>(bytes[3 + i]) / 255.0f) + -1.0f);
  const SampleValues channels({1.0f, 0.0f}, {{0.1f, 0.2f, 0.3f}, {0.5f}});
  channels.write(view, 0, 1, got.data());
  CHECK(got[1] == (1.0f - 0.2f) / 0.5f);
  CHECK(got[2] == (51.0f / 255.0f - 0.3f) / 0.5f);
  const std::vector<float> floats{1, 2, 3};
  channels.write({"x", StoredAs::kFloat, {1, 1, 3}, 1, floats.data()}, 0, 1, got.data());
  CHECK(got[2] == (3.0f - 0.3f) / 0.5f);
  CHECK(contains(error_of([&] {
                   channels.write({"x", StoredAs::kUint8, {6}, 1, bytes.data()}, 0, 1, got.data());
                 }),
                 "got samples of [6] (1 channel), expected the 3 channels"));
  CHECK(contains(error_of([] { SampleValues({0.0f, 1.0f}); }), "affine"));
}

TEST_CASE("a file of data is described: form, range, classes, and what normalizes its channels") {
  const TempDir temp;
  const auto described = [&](const std::vector<uint8_t>& bytes) {
    write_file_atomically(temp.file("x"), std::string(bytes.begin(), bytes.end()));
    return describe_data_file(temp.file("x"));
  };
  std::vector<uint8_t> images = idx_header({2, 1, 2, 2});
  images.insert(images.end(), {0, 255, 51, 255, 0, 255, 51, 255});
  CHECK(contains(described(gzip(images)), "format: idx, uint8 [2,1,2,2]\nvalues: 0 .. 255, mean "));
  CHECK(contains(described(images), "data.normalize: {mean: [0.1, 1], std: [0.1, 0]}\n"));
  std::vector<uint8_t> labels = idx_header({4});
  labels.insert(labels.end(), {2, 0, 2, 1});
  CHECK(described(labels) ==
        "format: idx, uint8 [4]\nvalues: 0 .. 2, mean 1.25, std 0.829156\n3 classes: 0 (1) 1 (1) 2 (2)\n");
  CHECK(contains(described(npy("<f4", "(2, 2)", bytes_of<float>({1, 2, 3, 4}))),
                 "format: npy, float [2,2]\nvalues: 1 .. 4, mean 2.5"));
  const std::string table = "a,b\n1,red\nNA,blue\n3,red\n";
  CHECK(described({table.begin(), table.end()}) ==
        "format: csv, 3 rows, 2 columns, separator comma\n"
        "the first line holds the names of the columns: it has no number\n"
        "column 1 a: 1 missing, numbers 1 .. 3, mean 2, std 1\n"
        "column 2 b: 2 names: blue (1) red (2)\n"
        "in a configuration: {format: csv, file: " +
            temp.file("x") + ", target: COLUMN, fill: mean}\n");
  const std::string commas = "a;b\n1,5;red\n2,5;blue\n";
  CHECK(
      contains(described({commas.begin(), commas.end()}), ", target: COLUMN, separator: semicolon, decimal: comma}\n"));
  const std::string prose = "Once upon a time\nthere was, they say, a king\n";
  const std::string text = described({prose.begin(), prose.end()});
  CHECK(
      contains(text, "format: tokens, a text of 2 lines and 45 bytes. Not a table: [data.csv] " + temp.file("x:2: ")));
  CHECK(contains(text, ", context: 64}, with data.tokenizer: chars\n"));
  write_file_atomically(temp.file("x.csv"), prose);  // which says that it is a table
  CHECK(contains(data_error([&] { describe_data_file(temp.file("x.csv")); }), "x.csv:2: got 3 fields"));
  CHECK(contains(data_error([&] { described({'x', 0, 1, 2}); }), "got bytes of no format for data"));
  CHECK(contains(data_error([&] { describe_data_file(temp.file("absent")); }), "no such file or folder"));
}

TEST_CASE("the description of data is also one JSON object") {
  const TempDir temp;
  const auto described = [&](const std::vector<uint8_t>& bytes) {
    write_file_atomically(temp.file("x"), std::string(bytes.begin(), bytes.end()));
    return Json::parse(describe_data_json(temp.file("x")));
  };
  std::vector<uint8_t> images = idx_header({2, 1, 2, 2});
  images.insert(images.end(), {0, 255, 51, 255, 0, 255, 51, 255});
  const Json idx = described(images);
  CHECK(idx.at("format") == "idx");
  CHECK(idx.at("type") == "uint8");
  CHECK(idx.at("shape") == Json({2, 1, 2, 2}));
  CHECK(idx.at("largest") == 255);
  CHECK(idx.at("finite").get<bool>());
  CHECK(idx.at("normalize").at("std") == Json(std::vector<double>{0.1, 0}));
  CHECK_FALSE(idx.contains("classes"));
  std::vector<uint8_t> labels = idx_header({4});
  labels.insert(labels.end(), {2, 0, 2, 1});
  CHECK(described(labels).at("classes") == Json({1, 1, 2}));
  const std::string text = "a,b\n1,red\nNA,blue\n3,red\n";
  const Json table = described({text.begin(), text.end()});
  CHECK(table.at("rows") == 3);
  CHECK(table.at("columns")[0].at("missing") == 1);
  CHECK(table.at("columns")[0].at("mean") == 2);
  CHECK(table.at("columns")[1].at("categories").at("red") == 2);
  const Json nan = described(npy("<f4", "(2,)", bytes_of<float>({1, 2})));
  CHECK(nan.at("format") == "npy");
  const std::vector<uint8_t> archive = data::npz_bytes({{"w", "<f4", {2, 3}, std::vector<uint8_t>(24)}});
  write_file_atomically(temp.file("a.npz"), std::string(archive.begin(), archive.end()));
  CHECK(Json::parse(describe_data_json(temp.file("a.npz"))).at("arrays")[0].at("shape") == Json({2, 3}));
  CHECK(describe_data_file(temp.file("a.npz")) == "format: npz, 1 arrays\nw: <f4 [2,3]\n");
}
