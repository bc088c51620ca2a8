// What files are by their first bytes.
#include <string>
#include <string_view>

#include "bitgrad/base/file.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;
using namespace std::string_view_literals;

namespace {

// The beginning of a zip archive: a local header for each name.
std::string zip_of(std::initializer_list<std::string_view> names) {
  std::string out;
  for (const std::string_view name : names) {
    out += "PK\x03\x04"sv;
    out += std::string(22, '\1');
    out += static_cast<char>(name.size());
    out += std::string_view("\0\0\0", 3);
    out += name;
    out += "content";
  }
  return out;
}

std::string named(std::string_view begin) {
  const auto kind = known_file_kind(begin);
  return kind ? kind->name : "";
}

}  // namespace

TEST_CASE("files of other kinds are named by their content") {
  CHECK(named(zip_of({"[Content_Types].xml", "_rels/.rels", "xl/workbook.xml"})) == "a workbook of Excel (.xlsx)");
  CHECK(named(zip_of({"archive/data.pkl"})) == "a checkpoint of PyTorch (.pt, .pth)");
  CHECK(named(zip_of({"x.npy"})) == "an archive of numpy (.npz)");
  CHECK(named(zip_of({"t.csv"})) == "a zip archive");
  CHECK(named("PK\x05\x06") == "a zip archive");
  CHECK(named("PAR1\x15\x04") == "a table in Parquet");
  CHECK(named("\xFF\xFE"
              "a\0"sv) == "a text in UTF-16 (\"Unicode text\" of Excel)");
  CHECK(named("\xFF\xFE\0\0a\0\0\0"sv) == "a text in UTF-32");
  CHECK(named("\x80\x02}q") == "a pickle of Python (.pkl, old .pt)");
  CHECK(named("GGUF\3") == "a model in GGUF");
  CHECK(named(zip_of({"metadata.json", "model.weights.h5"})) == "a model of Keras (.keras)");
  CHECK(named("\x1C\0\0\0TFL3"sv) == "a model in TensorFlow Lite (.tflite)");
  CHECK(named("\x08\x0A\x12\x07pytorch"sv) == "a model in ONNX");
  CHECK(named("\x08\x07:\x10"sv) == "a model in ONNX");
  CHECK(named("\x08\0\0\0"sv).empty());
  CHECK(named(std::string(257, 'a') + std::string("ustar\0", 6)) == "an archive of tar (.tar)");
  CHECK(named("a,b\n1,2\n").empty());
  CHECK(named("").empty());
  // Letters that begin such a file begin texts too.
  for (const char* const text :
       {"ORC,height\n1,2\n", "GIF8 and others\n", "BZh,x\n1,2\n", "PAR1,PAR2\n3,4\n", "P6\n1\n"}) {
    INFO(text);
    CHECK(named(text).empty());
    CHECK(error_of([&] { require_text("x", "t.txt", text); }).empty());
  }
  CHECK(named("  <html>") == "a page of HTML");
}

TEST_CASE("what is to be read as a text is refused if it is of a known kind that is none") {
  const auto refusal = [](std::string_view bytes) { return error_of([&] { require_text("x", "f\n", bytes); }); };
  CHECK(refusal(zip_of({"[Content_Types].xml", "xl/workbook.xml"})) ==
        "[x] f\\n: got a workbook of Excel (.xlsx), expected a text. Save it as CSV in UTF-8 with the program that "
        "made it");
  CHECK(contains(refusal("a\0b\0c\0"sv), "got a text in UTF-16 without a mark, expected UTF-8. Save it as UTF-8"));
  CHECK(refusal("<html>").empty());          // a text
  CHECK(refusal("\3\0\5\0\7\0"sv).empty());  // numbers of 16 bits
  CHECK(refusal("a\0\0\0b"sv).empty());
}

TEST_CASE("a file of another kind than a model is named with what to do") {
  const auto says = [](std::string_view begin, std::string_view part) {
    INFO(why_no_model(begin));
    CHECK(why_no_model(begin).find(part) != std::string::npos);
  };
  says(zip_of({"archive/data.pkl"}),
       "a checkpoint of PyTorch (.pt, .pth), which is never run. In Python: "
       "safetensors.torch.save_file(torch.load('FILE', weights_only=True)");
  says(zip_of({"metadata.json", "config.json", "model.weights.h5"}), "a model of Keras (.keras). Write a table");
  says(zip_of({"[Content_Types].xml", "xl/workbook.xml"}), "a workbook of Excel (.xlsx). A model is a run folder");
  says(zip_of({"t.csv"}), "a zip archive. Unpack it first.");
  says("\x80\x02\x8a\x0al\xfc\x9c\x46", "(.pkl, old .pt), which is never run. In Python: safetensors.torch");
  says("\x80\x04\x95\x0a", "a pickle of Python (.pkl), which is never run.");
  says("(lp0\nI1\naI2\na.", "a pickle of Python (.pkl), which is never run.");
  says("PAR1\x15\x04", "a table in Parquet. A model is a run folder, or a .safetensors file of bitgrad.");
  says("\x1c\0\0\0TFL3"sv, "a model in TensorFlow Lite (.tflite). Save the weights");
  says("\x08\x08\x12\x07pytorch", "a model in ONNX");
  says("version https://git-lfs.github.com/spec/v1\noid", "a git-lfs pointer instead of the file. Fetch the file");
  says("<!DOCTYPE html><html>", "a page of HTML. Fetch the file itself");
  says(" [{\"a\": 1}]", "a text in JSON");
  says("a,b\n1,2\n3,4\n", "a text. A model is");
  CHECK(why_no_model("").empty());
  CHECK(why_no_model("\1\2\3\4\5\6\7\0\1"sv).empty());
  CHECK(why_no_model_file("/nonexistent/m.pt").empty());
}

TEST_CASE("zero bytes are not text") {
  CHECK(why_no_text("a,b\n1,2\n").empty());
  CHECK(why_no_text("a\0,\0b\0"sv) ==
        "it is a text in UTF-16 without a mark. Save it as UTF-8, such as iconv -t UTF-8");
  CHECK(why_no_text("a,b\n1\0x\n"sv) == "it has a zero byte at offset 5: no text but bytes of an unknown kind");
  CHECK(why_no_text(zip_of({"t.csv"})) == "it is a zip archive. Unpack it first");
}
