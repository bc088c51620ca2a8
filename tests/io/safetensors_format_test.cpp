// What the reader takes from other programs, and what it refuses.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "bitgrad/io/safetensors.h"
#include "io/safetensors_support.h"
#include "support/catch.h"
#include "support/temp_dir.h"

namespace bitgrad {
namespace {

using test::contains;
using test::error_code_of;
using test::error_of;
using test::file_of;
using test::refusal;
using test::TempDir;

TEST_CASE("Files of other programs load: any order of the text, white space, no metadata") {
  const std::string json =
      R"( {"b" : {"shape":[2],"data_offsets":[1,5],"dtype":"F16"}, "a":{"dtype":"U8","shape":[1,1],"data_offsets":[0,1]}}  )";
  const SafetensorsFile file = SafetensorsFile::parse(file_of(json.substr(1), "\x01\x02\x03\x04\x05"), "p");
  CHECK(!file.has_checksums());
  CHECK(file.metadata().empty());
  CHECK(file.entries()[0].name == "a");
  CHECK(file.entries()[1].name == "b");
  CHECK(*file.data("b") == 2);
  CHECK(contains(refusal(json, "\x01\x02\x03\x04\x05"), "does not begin with '{'"));
  CHECK(refusal("{}", "").empty());
  CHECK(refusal(R"({"__metadata__":{"format":"pt"}})", "").empty());
  CHECK(refusal(R"({"a":{"dtype":"F4","shape":[3,2],"data_offsets":[0,3]}})", "abc").empty());
}

TEST_CASE("Headers that are not in the format are refused with what and where") {
  struct Case {
    const char* json;
    const char* says;
  };
  const Case cases[] = {
      {R"([])", "does not begin with '{'"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})", "not valid JSON near its byte"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}} x)", "not valid JSON near its byte"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},})", "not valid JSON"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]} /* c */})", "not valid JSON"},
      {"{\"a\xFF\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", "not valid JSON"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}})",
       "at 'a': the name occurs twice"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\u0061":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}})",
       "at 'a': the name occurs twice"},
      {R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       "at 'a', key 'dtype': the key occurs twice"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})", "at 'a', key 'x': unknown key"},
      {R"({"__metadata__":{"k":"1","k":"2"}})", "at '__metadata__', key 'k': the key occurs twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", "the name occurs twice"},
      {R"({"__metadata__":{"k":1}})", "key 'k': an unexpected number"},
      {R"({"__metadata__":{"k":{"x":"y"}}})", "an object instead of a value"},
      {R"({"__metadata__":{"k":["y"]}})", "an unexpected list"},
      {R"({"__metadata__":"text"})", "an unexpected string"},
      {R"({"a":null})", "null instead of a value"},
      {R"({"a":true})", "an unexpected boolean"},
      {R"({"a":[[[[1]]]]})", "an unexpected list"},
      {R"({"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})", "an unexpected list"},
      {R"({"a":{"dtype":"U8","shape":[{}],"data_offsets":[0,1]}})", "an object instead of a value"},
      {R"({"a":{"dtype":"U8","shape":["1"],"data_offsets":[0,1]}})", "an unexpected string"},
      {R"({"a":{"dtype":8,"shape":[1],"data_offsets":[0,1]}})", "key 'dtype': an unexpected number"},
      {R"({"a":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})", "key 'shape': an unexpected number"},
      {R"({"a":{"dtype":"U8","shape":[1]}})", "missing"},
      {R"({"a":{}})", "missing"},
      {R"({"a":{"dtype":"INT3","shape":[1],"data_offsets":[0,1]}})", "unknown dtype: got 'INT3', expected one of BOOL"},
      {R"({"a":{"dtype":"u8","shape":[1],"data_offsets":[0,1]}})", "unknown dtype: got 'u8'"},
      {R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", "key 'shape': a number is negative"},
      {R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", "not whole"},
      {R"({"a":{"dtype":"U8","shape":[1e0],"data_offsets":[0,1]}})", "not whole"},
      {R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,1]}})", "a number is too large"},
      {R"({"a":{"dtype":"U8","shape":[99999999999999999999999],"data_offsets":[0,1]}})", "not whole"},
      {R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,1]}})", "too many elements"},
      {R"({"a":{"dtype":"U8","shape":[4294967296,0,4294967296],"data_offsets":[0,0]}})", "too many elements"},
      {R"({"a":{"dtype":"F4","shape":[1],"data_offsets":[0,1]}})", "whole bytes"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", "data_offsets: got 1 numbers, expected 2"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}})", "got 3 numbers"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", "the end is before the begin"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,1]}})", "do not fit dtype and shape: got 1, expected 4"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "the tensors need 2 bytes of data, the file has 1"},
      {R"({})", "the tensors need 0 bytes of data, the file has 1"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       "a hole before tensor 'a': it begins at 1, expected 0"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       "an overlap at tensor 'b'"},
      {R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[9,9]},"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       "a hole before tensor 'a'"},
      {R"({"__metadata__":{"bitgrad.crc32c":"00000000"},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       "one is missing"},
      {R"({"__metadata__":{"bitgrad.header_crc32c":"00000000"},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       "one is missing"},
      {R"({"__metadata__":{"bitgrad.crc32c":"0","bitgrad.header_crc32c":"0"},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       "not in its form"},
      {R"({"__metadata__":{"bitgrad.crc32c":"00000000","bitgrad.header_crc32c":"00000000"},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       "the checksum of the header"},
  };
  for (const Case& c : cases) {
    const std::string text = refusal(c.json, "x");
    INFO(c.json << " -> " << text);
    CHECK(contains(text, c.says));
    CHECK(!contains(text, "wrong form"));
  }
}

TEST_CASE("Absurd lengths, depths and ranks are refused at once") {
  std::vector<uint8_t> bytes(8, 0xFF);
  CHECK(contains(refusal(bytes), "the header is too long"));
  bytes = {0x01, 0xE1, 0xF5, 0x05, 0, 0, 0, 0};  // 100,000,001
  CHECK(contains(refusal(bytes), "the header is too long"));
  const std::string archive("PK\x03\x04\x00\x00\x08\x08", 8), pickle("\x80\x02\x8a\x0al\xfc\x9c\x46", 8);
  CHECK(contains(refusal(std::vector<uint8_t>(archive.begin(), archive.end())),
                 "got another kind of file, expected safetensors: it is a zip archive. Unpack it first."));
  CHECK(contains(refusal(std::vector<uint8_t>(pickle.begin(), pickle.end())),
                 "a pickle of Python (.pkl, old .pt), which"));
  const std::string onnx("\x08\x0A\x12\x07pytorch", 11), keras("\x89HDF\r\n\x1A\n\0\0", 10);
  CHECK(contains(
      refusal(std::vector<uint8_t>(onnx.begin(), onnx.end())),
      "expected safetensors: it is a model in ONNX. Save its weights, in Python: safetensors.numpy.save_file("));
  CHECK(contains(refusal(std::vector<uint8_t>(keras.begin(), keras.end())), "numpy.savez(NAME, **{w.path: w.numpy()"));
  // A header of 640 bytes begins as a pickle of Python does: 0x80, 0x02.
  const std::string entry = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  CHECK(refusal(entry + std::string(640 - entry.size(), ' '), "x").empty());
  bytes[0] = 0;
  CHECK(contains(refusal(bytes), "ends inside the header"));
  CHECK(contains(refusal("{\"a\":" + std::string(1000000, '['), ""), "an unexpected list"));
  std::string shape = "1";
  for (int i = 0; i < 40; ++i) shape += ",1";
  CHECK(contains(refusal("{\"a\":{\"dtype\":\"U8\",\"shape\":[" + shape + "],\"data_offsets\":[0,1]}}", "x"),
                 "longer than"));
  CHECK(contains(refusal("", ""), "does not begin"));
}

TEST_CASE("A zero byte in the header is refused at any place, with its place") {
  // The parser takes one as the end of the text: what follows would be in the file and never be read.
  using namespace std::string_literals;
  for (const std::string& json : {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})"s + "\0"s + R"(,"b":1})"s,
                                  R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}} )"s + "\0"s,
                                  "{\0\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}"s}) {
    const std::string text = refusal(json, "x");
    CHECK(contains(text, concat("byte ", json.find('\0'), " of the header is 0")));
  }
}

TEST_CASE("Of a file whose header is wrong the data are never read") {
  TempDir temp;
  const auto write = [&](const std::string& name, const std::vector<uint8_t>& front, int64_t bytes) {
    std::ofstream(temp.file(name), std::ios::binary)
        .write(reinterpret_cast<const char*>(front.data()), std::ssize(front));
    std::filesystem::resize_file(temp.file(name), static_cast<uintmax_t>(bytes));  // a hole: takes no room on the disk
    return temp.file(name);
  };
  constexpr int64_t kHuge = int64_t{3} << 40;  // nobody has so much memory
  const std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  const auto zeros = [&] { SafetensorsFile::read(write("zeros", {}, kHuge)); };
  CHECK(contains(error_of(zeros), "does not begin with '{'"));
  CHECK(error_code_of(zeros) == 3);
  const auto longer = [&] { SafetensorsFile::read(write("longer", file_of(header, "x"), kHuge)); };
  CHECK(contains(error_of(longer), "the tensors need 1 bytes of data, the file has"));
  CHECK(error_code_of(longer) == 3);
}

}  // namespace
}  // namespace bitgrad
