// What a run writes can be read again: refused before the first step otherwise. And models that grow while they are
// read.
#include <string>
#include <vector>

#include "bitgrad/base/file.h"
#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/checkpoint/run_folder.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/run/trainer.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

RunConfig table_of(const TempDir& temp, const std::string& text, const std::vector<std::string>& keys = {}) {
  write_file_atomically(temp.file("t.csv"), text);
  RunConfig config = parse_config(
      "version: 1\ndata: {train: {format: csv, file: t.csv, target: k}}\nmodel: {layers: [linear: {out: 2}]}\n"
      "batch: {global: 2}\noptim: {name: adam, lr: 0.01}\ntrain: {stop: 2 steps}\n",
      "t.yaml", keys);
  config.data.root = temp.path();
  return config;
}

std::string nested(int64_t times) {
  return concat("model.layers=[{repeat: {times: ", times, ", layers: [{repeat: {times: ", times,
                ", layers: [{relu: {}}]}}]}}, {linear: {out: 10}}]");
}

}  // namespace

TEST_CASE("Class names that no configuration can hold end a run before its first step, with their place") {
  const KeepModes keep;
  const TempDir temp;
  for (const auto& [name, shown] : {std::pair<std::string, std::string>{"\"a\tb\"", "a\\tb"},
                                    {"\x1b[31mred", "\\x1b[31mred"},
                                    {"\x7f!", "\\x7f!"}}) {
    const RunConfig config = table_of(temp, "f,k\n1,x\n2,x\n3," + name + "\n");
    const std::string error = error_of([&] { Trainer trainer(config); });
    CHECK(
        contains(error, temp.file("t.csv") + ":4: column 2 (k): got '" + shown + "', expected a class name in UTF-8"));
    CHECK(error_code_of([&] { Trainer trainer(config); }) == 3);
  }
  CHECK(contains(error_of([&] { Trainer trainer(table_of(temp, "f,k\n1,x\n2,Caf\xe9\n")); }),
                 temp.file("t.csv") + ":3: got bytes that are not UTF-8 (\\xe9)"));
  const RunConfig good = table_of(temp, "f,k\n1,Caf\xc3\xa9\n2,\"say \"\"x\"\" \\ #\"\n");
  const std::string folder = create_run_folder(good, temp.file("run"));
  run_all(good, folder);
  CHECK(run_folder_config(folder).data.root == temp.path());
  CHECK(contains(to_yaml(parse_config(read_checkpoint_header(folder + "/last.safetensors").config, "x")),
                 "class_names: [\"Caf\xc3\xa9\", \"say \\\"x\\\" \\\\ #\"]"));
}

TEST_CASE("Class names that are together too long for a configuration are an error of the data") {
  const KeepModes keep;
  const TempDir temp;
  std::string text = "f,k\n";
  for (int i = 0; i < 20; ++i) text += concat(i, ',', std::string(60'000, static_cast<char>('a' + i)), '\n');
  const RunConfig config = table_of(temp, text, {"model.layers.0.linear.out=20"});
  CHECK(contains(error_of([&] { Trainer trainer(config); }),
                 "[data.train] its 20 class names cannot be kept in the configuration of the run, and no command could "
                 "open it: "));
  CHECK(error_code_of([&] { Trainer trainer(config); }) == 3);
}

TEST_CASE("A folder of data with a line break is refused, since its name would be read back otherwise") {
  const KeepModes keep;
  const TempDir temp;
  file_system().make_directories(temp.file("a\nb"));
  write_file_atomically(temp.file("a\nb/t.csv"), "f,k\n1,x\n2,y\n");
  RunConfig config = table_of(temp, "f,k\n1,x\n2,y\n");
  config.data.root = temp.file("a\nb");
  CHECK(contains(to_yaml(config), "a\\x0ab"));
  CHECK(contains(error_of([&] { Trainer trainer(config); }),
                 "[config] a run of it could not be opened again: data.root: the text contains a control character"));
}

TEST_CASE("Repeats within repeats are counted before a layer is made, in configurations, records and programs") {
  const KeepModes keep;
  for (const int64_t times : {150, 300, 4096})
    CHECK(
        contains(error_of([&] { small_config({nested(times)}); }),
                 "model.layers.0.repeat: the rounds of repeat expand to more than 40000 layers, the most that a model "
                 "may have"));
  small_config({nested(50)});
  LayerSpec inner{.kind = "repeat", .attributes = {{"times", 4096}}, .lists = {{"layers", {{.kind = "relu"}}}}};
  ModelSpec spec;
  spec.input.sample = {2};
  spec.layers = {{.kind = "repeat", .attributes = {{"times", 4096}}, .lists = {{"layers", {inner}}}}};
  CHECK(contains(error_of([&] { make_model(spec); }), "expand to more than 40000 layers"));
  ModelRecord record;
  record.model = spec;
  const std::string text = to_text(record);
  CHECK(contains(error_of([&] { parse_model_record(text); }), "expand to more than 40000 layers"));
  CHECK(error_code_of([&] { parse_model_record(text); }) == 3);
}
