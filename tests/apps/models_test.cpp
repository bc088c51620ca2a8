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
  CHECK(r.code == 0);
  const Json all = Json::parse(r.out);
  REQUIRE(all.size() == zoo_names().size());
  for (const Json& one : all) {
    INFO(one.dump());
    if (one.at("measured").is_null()) {
      CHECK(one.at("skipped").text().size() > 10);
      WARN(one.at("model").text() << " skipped: " << one.at("skipped").text());
    } else {
      CHECK(one.at("measured") == one.at("card"));
    }
  }
}

TEST_CASE("a model is skipped with the reason where its data are absent or other ones, and a wrong card is an error") {
  const TempDir temp;
  const ProcessResult none = cli({"models", "check", "tfc_w1a1", "--data", temp.path()});
  CHECK(none.code == 0);
  CHECK(contains(none.out, "tfc_w1a1: skipped: "));
  CHECK(contains(none.out, "t10k-labels"));

  // Three images of the form of MNIST, and a card with their record and a figure of its own.
  std::filesystem::create_directories(temp.file("mnist"));
  put_file(temp.file("mnist/t10k-images-idx3-ubyte.gz"),
           std::string("\0\0\x08\x03\0\0\0\x03\0\0\0\x1c\0\0\0\x1c", 16) + std::string(3 * 784, '\x7f'));
  put_file(temp.file("mnist/t10k-labels-idx1-ubyte.gz"), std::string("\0\0\x08\x01\0\0\0\x03\x01\x02\x03", 11));
  const ProcessResult other = cli({"models", "check", "tfc_w1a1", "--data", temp.path()});
  INFO(other.out << other.err);
  CHECK(other.code == 0);
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
  CHECK(contains(right.out, ": equal"));
  CHECK(contains(with("much").err, "card.json: value: got 'much', expected digits"));
  put_file(zoo + "/mine/card.json", "{\"summary\": \"a\"}");
  const ProcessResult torn = cli({"models", "list"}, {{"BITGRAD_MODELS", zoo}});
  CHECK(torn.code == 3);
  CHECK(contains(torn.err, "mine/card.json: "));
  put_file(zoo + "/mine/card.json", parsed.dump());
  std::filesystem::resize_file(zoo + "/mine/model.safetensors", 5000);
  CHECK(cli({"models", "check", "mine", "--data", temp.path()}, {{"BITGRAD_MODELS", zoo}}).code == 3);
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

TEST_CASE("models trained again by their train.yaml reach the metric of their card within 0.5", "[slow]") {
  const TempDir temp;
  for (const std::string name : {"tfc_w1a1", "larq_cnn_w1a1"}) {
    if (!std::filesystem::exists(data_folder() + "/mnist/train-images-idx3-ubyte.gz")) {
      WARN(name << " skipped: no MNIST in " << data_folder());
      continue;
    }
    const ProcessResult r =
        cli({"train", zoo_file(name, "train.yaml"), "-q", "data.root=" + data_folder(), "--out", temp.file(name)});
    INFO(name << ": " << r.out << r.err);
    REQUIRE(r.code == 0);
    const double accuracy = Json::parse(slurp(temp.file(name) + "/summary.json")).at("last_accuracy").get<double>();
    const double card = std::stod(Json::parse(slurp(zoo_file(name, "card.json"))).at("value").text());
    CHECK(accuracy >= card - 0.5);
  }
}
