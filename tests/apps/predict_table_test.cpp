// bitgrad check, train, eval and predict of tables of text: one reader, by the plan that the model's file holds.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "apps/cli.h"
#include "bitgrad/base/json.h"
#include "bitgrad/infer/predictor.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"

using bitgrad::Json;
using namespace bitgrad::test;

namespace {

constexpr const char* kNet = R"yaml(version: 1
run: {name: net, seed: 2}
data: {train: {format: csv, file: t.csv, target: kind, ignore: id, fill: "mean"}, test: {format: csv, file: e.csv, target: kind}, affine: [0.5, 1]}
model: {layers: [batch_norm: {}, linear: {out: 8}, relu: {}, linear: {out: 3}]}
batch: {global: 20}
optim: {name: adam, lr: 0.02}
train: {stop: 20 epochs}
)yaml";

void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

// The kind follows from b and the color.
std::string rows(int n) {
  std::string text;
  for (int i = 0; i < n; ++i) {
    const bool red = i % 3 == 0;
    const double b = (i * 7 % 11 - 5) * 0.5;
    text += std::to_string(i) + ',' + std::to_string(b) + ',' + (red ? "red" : "\"dark, blue\"") + ',' +
            (i % 4 == 1 ? "" : std::to_string(i % 5)) + ',' +
            (red     ? "dog"
             : b > 0 ? "cat"
                     : "ant") +
            '\n';
  }
  return text;
}

struct Trained {
  TempDir temp;
  std::string run = temp.file("run");
  Trained() {
    write(temp.file("t.csv"), "id,b,color,c,kind\n" + rows(120));
    write(temp.file("e.csv"), "id,b,color,c,kind\n" + rows(40));
    write(temp.file("net.yaml"), kNet);
    const ProcessResult r = cli({"train", temp.file("net.yaml"), "-q", "--out", run});
    INFO(r.err);
    REQUIRE(r.code == 0);
  }
  ProcessResult predict(const std::string& text, const std::string& name = "x.csv") const {
    write(temp.file(name), text);
    return cli({"predict", run, temp.file(name), "--csv"});
  }
  // Without the column of the file's name.
  std::string answers(const std::string& text, const std::string& name = "x.csv") const {
    const ProcessResult r = predict(text, name);
    INFO(r.err);
    CHECK(r.code == 0);
    std::string out;
    for (size_t at = r.out.find('\n'); at + 1 < r.out.size(); at = r.out.find('\n', at + 1))
      out += r.out.substr(r.out.find(',', at), r.out.find('\n', at + 1) - r.out.find(',', at)) + '\n';
    return out;
  }
};

}  // namespace

TEST_CASE("predict reads a table as training did: by name, with categories, gaps and the target") {
  const Trained t;
  const std::string plain = t.answers("b,color,c\n2.5,\"dark, blue\",1\n-1,red,3\n-2,\"dark, blue\",2\n");
  CHECK(contains(plain, ",0,1,cat,"));
  CHECK(contains(plain, ",1,2,dog,"));
  CHECK(contains(plain, ",2,0,ant,"));
  // Other orders, marks of bytes, line ends of Windows, columns that are not read, quotes.
  CHECK(t.answers("kind,c,extra,color,b\r\ncat,1,9,\"dark, blue\",2.5\r\n?,3,9,red,-1\r\n,2,9,\"dark, blue\",-2\r\n") ==
        plain);
  CHECK(t.answers("\xEF\xBB\xBF\"b\",\"color\",\"c\"\n\"2.5\",\"dark, blue\",\"1\"\n-1,red,3\n-2,\"dark, blue\",2\n") ==
        plain);
  // Without a header: the features, or all columns of the training table.
  CHECK(t.answers("2.5,\"dark, blue\",1\n-1,red,3\n-2,\"dark, blue\",2\n") == plain);
  CHECK(t.answers("7,2.5,\"dark, blue\",1,cat\n8,-1,red,3,\n9,-2,\"dark, blue\",2,ant\n") == plain);
  // The mean of c over its 90 numbers in the training table, which pandas gives as 2.0.
  CHECK(t.answers("b,color,c\n2.5,\"dark, blue\",\n") == t.answers("b,color,c\n2.5,\"dark, blue\",2\n"));
  const ProcessResult extra = t.predict("kind,c,extra,color,b\ncat,1,9,red,2.5\n");
  CHECK(contains(extra.err, "column 1 (kind) is the target and is not read"));
  CHECK(contains(extra.err, "1 column that the training table does not have: not read: extra"));
  const auto model = bitgrad::open_model(t.run);
  std::vector<std::string> notes;
  const bitgrad::Tensor y = model->predict_csv(t.temp.file("x.csv"), &notes);
  CHECK(y.shape() == bitgrad::Shape{1, 3});
  CHECK(notes.size() == 2);
  REQUIRE(model->table() != nullptr);
  CHECK(model->table()->columns[2].categories == std::vector<std::string>{"dark, blue", "red"});
}

TEST_CASE("predict reports the column, cell or name of a table that it cannot read") {
  const Trained t;
  const auto error = [&](const std::string& text) {
    const ProcessResult r = t.predict(text);
    CHECK(r.code == 3);
    CHECK(r.out.empty());
    return r.err;
  };
  CHECK(contains(
      error("b,colour,c\n1,red,2\n"),
      "x.csv: got no column color, expected every feature of the training table: b, color, c. Is it 'colour'?"));
  CHECK(contains(
      error("b,color,c\n1,green,2\n"),
      "x.csv:2: column 2 (color): got 'green', expected one of the 2 values in the training file (dark, blue, red)"));
  CHECK(contains(error("b,color,c\n1,red,2\nx,red,2\n"), "x.csv:3: column 1 (b): got 'x', expected a finite number"));
  CHECK(contains(error("1,red\n"), "x.csv: got 2 columns without names"));
  CHECK(contains(error("u,v,w\n1,red,2\n"), "x.csv: got no column b, color, c"));
  CHECK(contains(error(std::string("\xFF\xFE"
                                   "b\0,\0",
                                   6)),
                 "it is a text in UTF-16"));
  CHECK(contains(t.predict("PK\x03\x04").err, "it is a zip archive"));
}

TEST_CASE("eval and converted models read tables by the plan of the model, without the training table") {
  const Trained t;
  const std::string before = cli({"eval", t.run, "--json", "--data", t.temp.path()}).out;
  const std::string small = t.temp.file("small.safetensors");
  REQUIRE(cli({"convert", t.run, "-o", small}).code == 0);
  std::filesystem::remove(t.temp.file("t.csv"));
  const ProcessResult after = cli({"eval", t.run, "--json", "--data", t.temp.path()});
  INFO(after.err);
  CHECK(after.code == 0);
  CHECK(Json::parse(after.out).at("accuracy") == Json::parse(before).at("accuracy"));
  write(t.temp.file("x.csv"), "color,c,b\nred,1,2\n");
  CHECK(contains(cli({"predict", small, t.temp.file("x.csv"), "--csv"}).out, ",2,dog,"));
}

TEST_CASE("check shows how the first line and each column were interpreted") {
  const Trained t;
  const ProcessResult r = cli({"check", t.temp.file("net.yaml"), "--no-memory"});
  INFO(r.err);
  CHECK(contains(r.out, "the first line holds the names of the columns: it has no number\n"));
  CHECK(contains(r.out, "column 1 (id): ignored\n"));
  CHECK(contains(r.out, "column 2 (b): numbers\n"));
  CHECK(contains(r.out, "column 3 (color): 2 names, a feature each (no cell is a number): dark, blue, red\n"));
  CHECK(contains(r.out, "column 4 (c): numbers, 30 missing (become 2)\n"));
  CHECK(contains(r.out, "column 5 (kind): target, classes by name, 3 classes: ant, cat, dog\n"));
  // Lists and maps of YAML.
  CHECK(cli({"check", t.temp.file("net.yaml"), "--no-memory", "data.train.ignore=[id]", "data.train.fill={c: median}"})
            .code == 0);
  CHECK(contains(cli({"check", t.temp.file("net.yaml"), "--no-memory", "data.test.fill=0"}).err,
                 "fill: got '0' for e.csv, data.train has 'mean'"));
}

TEST_CASE("an exported model of a table describes its inputs") {
  const Trained t;
  const ProcessResult r = cli({"export", t.run, "-o", t.temp.file("m.c")});
  INFO(r.err);
  REQUIRE(r.code == 0);
  CHECK(contains(r.out, "features: [\"b\",\"color=dark, blue\",\"color=red\",\"c\"]\n"));
  CHECK(contains(r.out, "missing: {\"b\":"));
  CHECK(contains(r.out, ",\"c\":2"));
  CHECK(contains(r.out, "0.5 * x + 1, x: the number of the table."));
  std::ifstream header(t.temp.file("m.h"));
  const std::string text{std::istreambuf_iterator<char>(header), {}};
  CHECK(contains(text, "features: [\"b\""));
}

TEST_CASE("weights of others that come in with a configuration know the classes and the table of its data") {
  const Trained t;
  REQUIRE(cli({"export", t.run, "-o", t.temp.file("w.safetensors")}).code == 0);
  const std::string model = t.temp.file("m.safetensors");
  const ProcessResult r =
      cli({"import", t.temp.file("w.safetensors"), "--config", t.temp.file("net.yaml"), "-o", model});
  INFO(r.err);
  REQUIRE(r.code == 0);
  const std::string row = "kind,c,color,b\n?,3,red,-1\n";
  const std::string expected = t.answers(row);
  CHECK(contains(expected, "dog"));
  const ProcessResult got = cli({"predict", model, t.temp.file("x.csv"), "--csv"});
  INFO(got.err);
  CHECK(contains(got.out, expected));
}

TEST_CASE("import names the program that wrote a file it cannot read") {
  const Trained t;
  write(t.temp.file("m.onnx"), "\x08\x0A\x12\x07pytorch");
  const ProcessResult r =
      cli({"import", t.temp.file("m.onnx"), "--config", t.temp.file("net.yaml"), "-o", t.temp.file("m.safetensors")});
  CHECK(r.code == 2);
  CHECK(contains(r.err, "It is a model in ONNX. Save its weights, in Python: safetensors.numpy.save_file("));
}

TEST_CASE("predict has the word of training on the header: header: no reads a first line of 0,1 as a sample") {
  const TempDir temp;
  std::string table = "0,1,2\n";
  for (int i = 0; i < 60; ++i)
    table += std::to_string(i % 7) + ',' + std::to_string(i % 5) + ',' + std::to_string(i % 3) + '\n';
  write(temp.file("t.csv"), table);
  write(temp.file("x.csv"), "0,1\n3,4\n");
  for (const bool said : {true, false}) {
    write(temp.file("net.yaml"), std::string("version: 1\ndata: {train: {format: csv, file: t.csv, target: 3") +
                                     (said ? ", header: no" : "") +
                                     "}}\nmodel: {layers: [linear: {out: 3}]}\nbatch: {global: 20}\n"
                                     "optim: {name: adam, lr: 0.02}\ntrain: {stop: 1 epochs}\n");
    const std::string run = temp.file(said ? "said" : "guessed");
    REQUIRE(cli({"train", temp.file("net.yaml"), "-q", "--out", run}).code == 0);
    std::vector<std::string> notes;
    const bitgrad::Tensor y = bitgrad::open_model(run)->predict_csv(temp.file("x.csv"), &notes);
    CHECK(y.shape()[0] == (said ? 2 : 1));  // guessed: the names 0 and 1 of the training table
    CHECK(notes.empty());
  }
}
