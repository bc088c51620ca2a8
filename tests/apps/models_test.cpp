// The models that ship with the program: found by name, equal to their cards.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "apps/cli.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/text.h"
#include "bitgrad/run/trainer.h"
#include "support/catch.h"
#include "support/data_folder.h"
#include "support/expect_error.h"
#include "support/paths.h"

using bitgrad::Json;
using namespace bitgrad::test;

namespace {

std::vector<std::string> zoo_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("models")))
    if (entry.is_directory()) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}
std::string zoo_file(const std::string& name, const std::string& file) {
  return source_path("models/" + name + "/" + file);
}
ProcessResult run_in(const std::string& folder, std::vector<std::string> words, Process::Environment environment = {}) {
  words.insert(words.begin(), kProgram);
  environment.insert(environment.begin(), {"BITGRAD_DATA", ""});
  return run_program(words, environment, folder);
}
void put_file(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

// The training of models/NAME/train.yaml, without what depends on the machine.
std::vector<std::string> training_lines(const bitgrad::RunConfig& config) {
  std::vector<std::string> lines;
  std::istringstream text(bitgrad::to_portable_yaml(config));
  for (std::string line; std::getline(text, line);)
    for (const char* begin : {"batch:", "loss:", "optim:", "schedule:", "  stop:", "  affine:", "  normalize:"})
      if (line.rfind(begin, 0) == 0) lines.push_back(line);
  return lines;
}

// Trains models again by their train.yaml; the metric must be that of the card within half a point.
void check_training(const std::vector<std::string>& names) {
  const TempDir temp;
  for (const std::string& name : names) {
    if (!std::filesystem::exists(data_folder() + "/mnist/train-images-idx3-ubyte.gz")) {
      WARN(name << " skipped: no MNIST in " << data_folder());
      continue;
    }
    const ProcessResult r =
        cli({"train", zoo_file(name, "train.yaml"), "-q", "data.root=" + data_folder(), "--out", temp.file(name)});
    INFO(name << ": " << r.out << r.err);
    REQUIRE(r.code == 0);
    const Json card = Json::parse(slurp(zoo_file(name, "card.json")));
    const Json summary = Json::parse(slurp(temp.file(name) + "/summary.json"));
    CHECK(summary.at("metric") == card.at("metric"));
    // Accuracy is in percent, auc of 0 to 1.
    const double half = card.at("metric").text() == "accuracy" ? 0.5 : 0.005;
    CHECK(summary.at("last_value").get<double>() >= std::stod(card.at("value").text()) - half);
  }
}

}  // namespace

TEST_CASE("models lists every model of models/ with its metric and size, and all of them fit into 700 KB") {
  const ProcessResult list = cli({"models"});
  CHECK(list.code == 0);
  CHECK(cli({"models", "list"}).out == list.out);
  const Json all = Json::parse(cli({"models", "--json"}).out);
  REQUIRE(all.size() == zoo_names().size());
  REQUIRE(all.size() >= 3);
  for (size_t i = 0; i < all.size(); ++i) {
    CHECK(all[i].at("model") == zoo_names()[i]);
    CHECK(contains(list.out, "\n" + zoo_names()[i] + " "));
    CHECK(all[i].at("bytes") ==
          std::to_string(std::filesystem::file_size(zoo_file(zoo_names()[i], "model.safetensors"))));
  }
  uintmax_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(source_path("models")))
    if (entry.is_regular_file()) bytes += entry.file_size();
  CHECK(bytes <= 700'000);
}

TEST_CASE("the card of each model is what models card prints, and its train.yaml is the training of the model file") {
  for (const std::string& name : zoo_names()) {
    INFO(name << ": bitgrad models card " << name << " > models/" << name << "/README.md");
    const ProcessResult card = cli({"models", "card", name});
    CHECK(card.code == 0);
    CHECK(card.out == slurp(zoo_file(name, "README.md")));
    const bitgrad::RunConfig trained = bitgrad::open_file(zoo_file(name, "model.safetensors")).config;
    const bitgrad::RunConfig told = bitgrad::load_config(zoo_file(name, "train.yaml"));
    CHECK(training_lines(told) == training_lines(trained));
    CHECK(training_lines(told).size() >= 4);
    CHECK(told.run.seed == trained.run.seed);
  }
}

TEST_CASE("models check: the metric of each model has the digits of its card") {
  const ProcessResult r = cli({"models", "check", "all", "--json", "--data", data_folder()});
  INFO(r.out << r.err);
  const Json all = Json::parse(r.out);
  REQUIRE(all.size() == zoo_names().size());
  size_t skipped = 0;
  for (const Json& one : all) {
    INFO(one.dump());
    CHECK(one.at("error").is_null());
    if (one.at("measured").is_null()) {
      CHECK(one.at("skipped").text().size() > 10);
      ++skipped;
      WARN(one.at("model").text() << " skipped: " << one.at("skipped").text());
    } else {
      CHECK(one.at("measured") == one.at("card"));
    }
  }
  CHECK(r.code == (skipped == all.size() ? 77 : 0));
}

TEST_CASE("a model is skipped with the reason where its data are absent or other ones, and a wrong card is an error") {
  const TempDir temp;
  const ProcessResult none = cli({"models", "check", "tfc_w1a1", "--data", temp.path()});
  CHECK(none.code == 77);
  CHECK(contains(none.out, "tfc_w1a1: skipped: "));
  CHECK(contains(none.out, "t10k-labels"));
  CHECK(contains(none.err, "nothing was checked: all models were skipped (exit code 77)"));
  const ProcessResult all = cli({"models", "check", "all", "--data", temp.path()});
  CHECK(all.code == 77);
  CHECK(contains(all.out, "\n0 equal, 0 different, 0 damaged, " + std::to_string(zoo_names().size()) + " skipped\n"));

  // Three images of the form of MNIST, and a card with their record and a figure of its own.
  std::filesystem::create_directories(temp.file("mnist"));
  put_file(temp.file("mnist/t10k-images-idx3-ubyte.gz"),
           std::string("\0\0\x08\x03\0\0\0\x03\0\0\0\x1c\0\0\0\x1c", 16) + std::string(3 * 784, '\x7f'));
  put_file(temp.file("mnist/t10k-labels-idx1-ubyte.gz"), std::string("\0\0\x08\x01\0\0\0\x03\x01\x02\x03", 11));
  const ProcessResult other = cli({"models", "check", "tfc_w1a1", "--data", temp.path()});
  INFO(other.out << other.err);
  CHECK(other.code == 77);
  CHECK(contains(other.out, "skipped: these are other test data than the card's: got 3 samples [28,28], CRC32C 0x"));
  const std::string got = other.out.substr(other.out.find("got ") + 4);
  const std::string record = got.substr(0, got.find(", the card's"));

  const std::string zoo = temp.file("zoo");
  std::filesystem::create_directories(zoo);
  std::filesystem::copy(source_path("models/tfc_w1a1"), zoo + "/mine", std::filesystem::copy_options::recursive);
  std::string card = slurp(zoo + "/mine/card.json");
  const Json parsed = Json::parse(card);
  const auto with = [&](const std::string& value) {
    Json changed = parsed;
    changed["data"]["record"] = record;
    changed["value"] = value;
    put_file(zoo + "/mine/card.json", changed.dump());
    return cli({"models", "check", "mine", "--data", temp.path()}, {{"BITGRAD_MODELS", zoo}});
  };
  const ProcessResult wrong = with("99.25");
  CHECK(wrong.code == 3);
  CHECK(contains(wrong.out, "card 99.25: different"));
  CHECK(contains(wrong.err, "the metric differs from the card's: mine"));
  const std::string measured = wrong.out.substr(wrong.out.find("accuracy ") + 9, 5);
  const ProcessResult right = with(measured.substr(0, measured.find(',')));
  INFO(right.out << right.err);
  CHECK(right.code == 0);
  CHECK(contains(right.out, ": equal\n1 equal, 0 different, 0 damaged, 0 skipped\n"));
  CHECK(contains(with("much").out, "card.json: value: got 'much', expected digits"));
  put_file(zoo + "/mine/card.json", parsed.dump());
  std::filesystem::resize_file(zoo + "/mine/model.safetensors", 5000);
  const ProcessResult damaged = cli({"models", "check", "mine", "--data", temp.path()}, {{"BITGRAD_MODELS", zoo}});
  CHECK(damaged.code == 3);
  CHECK(contains(damaged.err, "the model or its data are damaged: mine"));
}

TEST_CASE("data that exist and cannot be read are an error of models check, not a reason to skip") {
  const TempDir temp;
  std::filesystem::create_directories(temp.file("mnist"));
  put_file(temp.file("mnist/t10k-images-idx3-ubyte.gz"), "no images");
  const ProcessResult half = cli({"models", "check", "tfc_w1a1", "--data", temp.path()});
  CHECK(half.code == 77);  // the labels are absent
  put_file(temp.file("mnist/t10k-labels-idx1-ubyte.gz"), std::string("\0\0\x08\x01\0\0\0\x03\x01\x02\x03", 11));
  const ProcessResult one = cli({"models", "check", "tfc_w1a1", "--data", temp.path()});
  INFO(one.out << one.err);
  CHECK(one.code == 3);
  CHECK(contains(one.out, "tfc_w1a1: cannot be checked: "));
  CHECK(contains(one.out, "t10k-images"));
  const ProcessResult all = cli({"models", "check", "all", "--json", "--data", temp.path()});
  CHECK(all.code == 3);
  CHECK(contains(all.err, "damaged: autoencoder_int4, larq_cnn_w1a1, tfc_w1a1"));
  const Json list = Json::parse(all.out);
  REQUIRE(list.size() == zoo_names().size());  // one that is damaged does not end the check of the others
  for (const Json& model : list) CHECK(model.at("error").is_null() != model.at("skipped").is_null());
}

TEST_CASE("a file that a folder of data lacks is a reason to skip") {
  const TempDir temp;
  std::filesystem::create_directories(temp.file("cifar-10-batches-bin"));
  const ProcessResult empty = cli({"models", "check", "cnv_quarter_w1a1", "--data", temp.path()});
  INFO(empty.out << empty.err);
  CHECK(empty.code == 77);
  CHECK(contains(empty.out, "cnv_quarter_w1a1: skipped: "));
  CHECK(contains(empty.out, "test_batch.bin"));
  put_file(temp.file("cifar-10-batches-bin/test_batch.bin"), "no records");
  CHECK(cli({"models", "check", "cnv_quarter_w1a1", "--data", temp.path()}).code == 3);
}

TEST_CASE("a damaged card.json is named, and the other models are listed, checked and used") {
  const TempDir temp;
  const std::string zoo = temp.file("zoo");
  std::filesystem::create_directories(zoo);
  for (const char* name : {"a", "b", "c"})
    std::filesystem::copy(source_path("models/tfc_w1a1"), zoo + "/" + name, std::filesystem::copy_options::recursive);
  const Process::Environment here{{"BITGRAD_MODELS", zoo}};
  CHECK(cli({"models"}, here).code == 0);
  put_file(zoo + "/b/card.json", "{\"summary\": \"a\"}");
  // No models: a file without a card, and a folder with the name of one.
  std::filesystem::create_directories(zoo + "/d/card.json");
  std::filesystem::copy(zoo + "/a/model.safetensors", zoo + "/d/model.safetensors");
  const ProcessResult list = cli({"models", "list"}, here);
  INFO(list.out << list.err);
  CHECK(list.code == 3);
  CHECK(contains(list.out, "\na "));
  CHECK(contains(list.out, "\nc "));
  CHECK(contains(list.out, "b/card.json: "));
  CHECK(contains(list.err, "the card cannot be read: b\n"));
  CHECK(contains(list.out, "bitgrad eval models/a\n"));
  std::filesystem::rename(zoo + "/b", zoo + "/0");
  CHECK(contains(cli({"models"}, here).out, "bitgrad eval models/a\n"));  // not the damaged one, which is first now
  std::filesystem::rename(zoo + "/0", zoo + "/b");
  const ProcessResult json = cli({"models", "--json"}, here);
  CHECK(json.code == 3);
  CHECK(Json::parse(json.out).size() == 3);
  CHECK(cli({"models", "card", "a"}, here).code == 0);
  CHECK(contains(cli({"models", "card", "b"}, here).err, "b/card.json: "));
  CHECK(cli({"inspect", "models/b"}, here).code == 0);
  const ProcessResult checked = cli({"models", "check", "all", "--data", temp.path()}, here);
  CHECK(checked.code == 3);
  CHECK(contains(checked.out, "a: skipped: "));
  CHECK(contains(checked.out, "b: cannot be checked: "));
  CHECK(contains(checked.out, "c: skipped: "));
}

TEST_CASE("texts of card.json are quoted in the front matter of a card and escaped in its markdown") {
  const TempDir temp;
  const std::string zoo = temp.file("zoo");
  std::filesystem::create_directories(zoo);
  const std::string folder = zoo + "/a: b";
  std::filesystem::copy(source_path("models/tfc_w1a1"), folder, std::filesystem::copy_options::recursive);
  Json card = Json::parse(slurp(folder + "/card.json"));
  card["summary"] = "# no heading\n<script>, `code`";
  card["task"] = "yes";
  card["metric"] = "accuracy";
  card["data"]["name"] = "a \"quoted\" | piped\nname";
  card["data"]["id"] = "x], y: [z";
  card["data"]["license"] = "- a | b";
  card["commands"] = std::vector<std::string>{"echo '```'", "echo \"$x\" | cat > y"};
  card["limits"] = std::vector<std::string>{"1. no list", "- none either\nand one line", "`models check` skips a | b"};
  put_file(folder + "/card.json", card.dump());
  const ProcessResult r = cli({"models", "card", "a: b"}, {{"BITGRAD_MODELS", zoo}});
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  for (const char* line : {
           "\npipeline_tag: \"yes\"\ndatasets: [\"x], y: [z\"]\nmetrics: [accuracy]\n",
           "\n  - name: \"a: b\"\n",
           "\n      - task: {type: \"yes\"}\n",
           "\n        dataset: {name: \"a \\\"quoted\\\" | piped\\nname\", type: \"x], y: [z\", split: test}\n",
           "\n# a: b\n\n\\# no heading &lt;script>, `code`\n\n",
           "\n| data | a \"quoted\" \\| piped name; license: - a \\| b; from ",
           "\n## Made by\n\n````sh\necho '```'\necho \"$x\" | cat > y\n````\n",
           "\n- 1\\. no list\n- \\- none either and one line\n- `models check` skips a | b\n",
       })
    CHECK(contains(r.out, line));
}

TEST_CASE("models/NAME is a model file for every command, from any folder") {
  const TempDir temp;
  const ProcessResult inspected = run_in(temp.path(), {"inspect", "models/tfc_w1a1"});
  INFO(inspected.err);
  CHECK(inspected.code == 0);
  CHECK(contains(inspected.out, "bint1"));
  CHECK(run_in(source_path(), {"inspect", "models/tfc_w1a1"}).code == 0);
  CHECK(run_in(source_path(), {"inspect", "models/tfc_w1a1/"}).code == 0);
  // Both are opened; the data are absent.
  const std::string file = zoo_file("tfc_w1a1", "model.safetensors");
  CHECK(contains(run_in(temp.path(), {"diff", "models/tfc_w1a1", file}).err, "t10k-labels"));
  CHECK(run_in(temp.path(), {"export", "models/tfc_w1a1", "-o", temp.file("tfc.onnx")}).code == 0);
  put_file(temp.file("image.csv"), bitgrad::joined(std::vector<int>(784, 7), ",") + "\n");
  const ProcessResult predicted = run_in(temp.path(), {"predict", "models/tfc_w1a1", "image.csv", "--pixels"});
  INFO(predicted.err);
  CHECK(predicted.code == 0);
  if (std::filesystem::exists(source_path("models/chargpt_ternary"))) {
    const ProcessResult text =
        run_in(temp.path(), {"generate", "models/chargpt_ternary", "--prompt", "ROMEO:", "--tokens", "20"});
    INFO(text.err);
    CHECK(text.code == 0);
    CHECK(contains(text.out, "ROMEO:"));
  }
  // A path that exists is that path.
  std::filesystem::create_directories(temp.file("models"));
  put_file(temp.file("models/tfc_w1a1"), "no model");
  CHECK(run_in(temp.path(), {"inspect", "models/tfc_w1a1"}).code == 3);
}

TEST_CASE("a wrong name of a model gives the known ones, and get copies the folder of one") {
  const ProcessResult wrong = cli({"eval", "models/tfc_w1a2"});
  CHECK(wrong.code == 2);
  CHECK(contains(wrong.err,
                 "no shipped model is called 'tfc_w1a2', and models/tfc_w1a2 does not exist. Did you mean "
                 "'tfc_w1a1'? Known: "));
  for (const std::string& name : zoo_names()) CHECK(contains(wrong.err, name));
  for (const char* action : {"get", "card", "check"}) {
    CHECK(contains(cli({"models", action, "nothing"}).err, "no shipped model is called 'nothing'. Known: "));
    CHECK(contains(cli({"models", action}).err, std::string(action) + " needs a name. Known: "));
  }
  CHECK(contains(cli({"models", "list", "tfc_w1a1"}).err, "list: got the name 'tfc_w1a1', expected none"));
  CHECK(cli({"models", "tfc_w1a1"}).code == 2);
  CHECK(contains(cli({"models", "card", "tfc_w1a1", "--json"}).err, "--json is of list and check only"));
  CHECK(contains(cli({"models", "check", "tfc_w1a1", "-o", "x"}).err, "-o is of get only"));
  const ProcessResult nowhere = cli({"models", "card", "tfc_w1a1"}, {{"BITGRAD_MODELS", "/nonexistent"}});
  CHECK(contains(nowhere.err, "no models are installed at /nonexistent; BITGRAD_MODELS names another folder"));
  CHECK(contains(cli({"models"}, {{"BITGRAD_MODELS", "/nonexistent"}}).out, "no models are installed at /nonexistent"));
  CHECK(cli({"models", "--json"}, {{"BITGRAD_MODELS", "/nonexistent"}}).out == "[]\n");

  const TempDir temp;
  const ProcessResult got = run_in(temp.path(), {"models", "get", "tfc_w1a1"});
  INFO(got.err);
  CHECK(got.code == 0);
  CHECK(slurp(temp.file("tfc_w1a1/model.safetensors")) == slurp(zoo_file("tfc_w1a1", "model.safetensors")));
  CHECK(contains(run_in(temp.path(), {"models", "get", "tfc_w1a1"}).err, "exists"));
  CHECK(run_in(temp.path(), {"models", "get", "tfc_w1a1", "--force"}).code == 0);
  CHECK(run_in(temp.path(), {"inspect", "tfc_w1a1"}).code == 0);
}

TEST_CASE("get copies sub-folders, refuses circles of links and a folder inside the model's own") {
  const TempDir temp;
  const std::string zoo = temp.file("zoo"), model = zoo + "/mine";
  std::filesystem::create_directories(zoo);
  std::filesystem::copy(source_path("models/tfc_w1a1"), model, std::filesystem::copy_options::recursive);
  std::filesystem::create_directories(model + "/examples/deep/empty");
  put_file(model + "/examples/deep/digit.csv", "1,2\n");
  const Process::Environment here{{"BITGRAD_MODELS", zoo}};
  const ProcessResult got = run_in(temp.path(), {"models", "get", "mine"}, here);
  INFO(got.out << got.err);
  REQUIRE(got.code == 0);
  CHECK(slurp(temp.file("mine/examples/deep/digit.csv")) == "1,2\n");
  CHECK(std::filesystem::is_directory(temp.file("mine/examples/deep/empty")));
  CHECK(slurp(temp.file("mine/card.json")) == slurp(model + "/card.json"));

  const ProcessResult inside = cli({"models", "get", "mine", "-o", model + "/examples/../copy"}, here);
  CHECK(inside.code == 2);
  CHECK(contains(inside.err, "is inside "));
  CHECK_FALSE(std::filesystem::exists(model + "/copy"));
  std::filesystem::create_directory_symlink(model, model + "/examples/again");
  const ProcessResult circle = cli({"models", "get", "mine", "-o", temp.file("circle")}, here);
  CHECK(circle.code == 2);
  CHECK(contains(circle.err, "got folders more than 16 deep. Do links form a circle?"));
}

TEST_CASE("C files of models compile without a warning, from their own inputs and from bytes") {
  const TempDir temp;
  for (const std::string more : {"", "--with-normalization"}) {
    std::vector<std::string> command{"cc",        "-std=c99", "-Wall", "-Wextra", "-Werror",
                                     "-pedantic", "-shared",  "-fPIC", "-o",      temp.file("all.so")};
    for (const std::string name :
         {"autoencoder_int4", "cnv_quarter_w1a1", "larq_cnn_w1a1", "resnet8_int8", "tfc_w1a1"}) {
      const std::string file = temp.file(name + (more.empty() ? ".c" : "_of_bytes.c"));
      std::vector<std::string> words{"export", zoo_file(name, "model.safetensors"), "-o", file};
      if (!more.empty()) words.push_back(more);
      const ProcessResult r = cli(words);
      if (!more.empty() && contains(r.err, "--with-normalization: ")) continue;  // inputs that are no bytes
      INFO(r.err);
      CHECK(r.code == 0);
      command.push_back(file);
    }
    CHECK(command.size() >= 10 + 3);
    CHECK(run_program(command).err == "");
  }
}

TEST_CASE("a model trained again by its train.yaml reaches the metric of its card", "[slow]") {
  check_training({"autoencoder_int4"});
}
TEST_CASE("binary models trained again by their train.yaml reach the metric of their card", "[.training]") {
  check_training({"tfc_w1a1", "larq_cnn_w1a1"});
}
