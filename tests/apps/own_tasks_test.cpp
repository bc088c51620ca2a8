// The four tasks of docs/your_data.md, by the configurations that stand there.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "apps/cli.h"
#include "apps/pictures.h"
#include "bitgrad/base/json.h"
#include "bitgrad/data/dataset.h"
#include "support/catch.h"
#include "support/data_folder.h"
#include "support/expect_error.h"
#include "support/paths.h"

using bitgrad::Json;
using namespace bitgrad::test;

namespace {

// The yaml blocks of the page's last part.
std::vector<std::string> configurations() {
  std::istringstream lines(slurp(source_path("docs/your_data.md")));
  std::vector<std::string> out;
  bool part = false, inside = false;
  for (std::string line; std::getline(lines, line);) {
    part = part || line == "## Four tasks";
    if (line.starts_with("```")) {
      inside = part && line == "```yaml";
      if (inside) out.emplace_back();
    } else if (inside) {
      out.back() += line + '\n';
    }
  }
  return out;
}

class Task {
 public:
  explicit Task(size_t number) {
    const std::vector<std::string> all = configurations();
    REQUIRE(all.size() == 4);
    CHECK(std::count(all[number].begin(), all[number].end(), '\n') < 15);
    write("task.yaml", all[number]);
  }
  std::string path(const std::string& name) const { return temp_.file(name); }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary) << text;
  }
  // One thread; the summary of the run.
  Json train(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"train", path("task.yaml"), "-q", "--out", path("run"), "device.threads=1"});
    const ProcessResult r = cli(more);
    INFO(r.err);
    REQUIRE(r.code == 0);
    return Json::parse(slurp(path("run/summary.json")));
  }
  std::string predict(const std::vector<std::string>& inputs, const std::vector<std::string>& more = {"--csv"}) const {
    std::vector<std::string> words{"predict", path("run")};
    words.insert(words.end(), inputs.begin(), inputs.end());
    words.insert(words.end(), more.begin(), more.end());
    const ProcessResult r = cli(words);
    INFO(r.err);
    CHECK(r.code == 0);
    return r.out;
  }

 private:
  TempDir temp_;
};

double metric(const Json& summary, const std::string& name) { return summary.at("metrics").at(name).get<double>(); }

// In [0, 1), the same on every machine.
double draw(uint32_t& state) {
  state = state * 1664525 + 1013904223;
  return (state >> 8) / static_cast<double>(1 << 24);
}

std::string houses() {
  std::string text = "id,area,rooms,city,age,price\n";
  uint32_t state = 7;
  const std::pair<const char*, double> cities[] = {{"\"Lima, Peru\"", 0.0}, {"Oslo", 1.0}, {"Rome", 0.5}};
  for (int i = 0; i < 600; ++i) {
    const double area = 20 + 180 * draw(state), age = 100 * draw(state);
    const int rooms = 1 + static_cast<int>(area / 40);
    const auto& [city, worth] = cities[i % 3];
    const double price = area / 100 + worth + 0.1 * rooms;
    text += bitgrad::concat(i, ',', area, ',', rooms, ',', city, ',', i % 10 == 0 ? "NA" : bitgrad::concat(age), ',',
                            price, '\n');
  }
  return text;
}

std::string sensors() {
  std::string text = "a,b,c,hot,wet,loud\n";
  uint32_t state = 3;
  for (int i = 0; i < 800; ++i) {
    const double a = 2 * draw(state) - 1, b = 2 * draw(state) - 1, c = 2 * draw(state) - 1;
    text +=
        bitgrad::concat(a, ',', b, ',', c, ',', a > 0.2 ? 1 : 0, ',', b > a ? 1 : 0, ',', c * c > 0.3 ? 1 : 0, '\n');
  }
  return text;
}

void write_picture(const Task& task, const std::string& name, const Bytes& rgb) {
  const Bytes file = png(32, 32, 2, rgb);
  task.write(name, {file.begin(), file.end()});
}

constexpr int kClasses = 10;
const char* const kNames[kClasses] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                      "dog",      "frog",       "horse", "ship", "truck"};

// `each` pictures of every class of a split of CIFAR-10. False where there is no data set.
bool write_cifar(const Task& task, const std::string& split, int each) {
  bitgrad::DatasetSpec spec;
  spec.format = "cifar10";
  spec.root = data_folder();
  spec.path = "cifar-10-batches-bin";
  spec.split = split;
  if (!std::filesystem::exists(data_folder() + "/cifar-10-batches-bin/test_batch.bin")) return false;
  const auto set = make_dataset(spec);
  std::vector<int> written(kClasses);
  for (int64_t i = 0; i < set->size(); ++i) {
    const auto [pixels, label] = sample_of(*set, i);
    int& count = written[static_cast<size_t>(label)];
    if (count++ < each)
      write_picture(task, bitgrad::concat("pictures/", split, '/', kNames[label], '/', count, ".png"), pixels);
  }
  return true;
}

// Stripes: a class is their width and a color, under noise.
void draw_pictures(const Task& task, const std::string& split, int each, uint32_t state) {
  for (int label = 0; label < kClasses; ++label)
    for (int n = 0; n < each; ++n) {
      Bytes rgb;
      const double phase = 6.28 * draw(state), frequency = 0.2 + 0.4 * (label % 5);
      for (int y = 0; y < 32; ++y)
        for (int x = 0; x < 32; ++x)
          for (int c = 0; c < 3; ++c) {
            const double wave = std::sin(frequency * y + phase);
            const double color = (c == 0) == (label < 5) ? 1.0 : 0.4;
            rgb.push_back(static_cast<uint8_t>(128 + 60 * color * wave + 60 * (draw(state) - 0.5)));
          }
      write_picture(task, bitgrad::concat("pictures/", split, '/', kNames[label], '/', n, ".png"), rgb);
    }
}

}  // namespace

TEST_CASE("handwriting in a table reaches 97 % with 2 bits", "[slow]") {
  if (!std::filesystem::exists(data_folder() + "/optdigits/optdigits.tra.gz")) {
    WARN("skipped: needs optdigits under BITGRAD_DATA");
    return;
  }
  const Task task(0);
  const Json summary = task.train({"--data", data_folder()});
  // "Less than a minute": multiplications of all steps, where a thread does two billion of them a second.
  std::istringstream metrics(slurp(task.path("run/metrics.jsonl")));
  Json e;
  for (std::string line; !e.contains("gmacs_per_s") && std::getline(metrics, line);) e = Json::parse(line);
  const double each = 1e9 * e.at("gmacs_per_s").get<double>() / e.at("samples_per_s").get<double>();
  CHECK(each * 32 * summary.at("steps").get<double>() < 60 * 2e9);
  CHECK(summary.at("evaluated").at("split") == "test");
  CHECK(metric(summary, "accuracy") >= 97);
}

TEST_CASE("a table with categories and gaps becomes a regression") {
  const Task task(1);
  task.write("houses.csv", houses());
  const Json summary = task.train();
  CHECK(summary.at("selected_on") == "valid");
  CHECK(metric(summary, "mean_squared_error") < 0.03);  // the variance of the prices is about 0.5
  // By the names of the columns, in another order, with a gap.
  task.write("new.csv", "city,age,area,rooms\nOslo,20,100,3\n\"Lima, Peru\",NA,100,3\n");
  std::istringstream out(task.predict({task.path("new.csv")}));
  std::string head, oslo, lima;
  std::getline(out, head) && std::getline(out, oslo) && std::getline(out, lima);
  CHECK(head == "input,sample,price");
  const auto price = [](const std::string& line) { return std::stod(line.substr(line.rfind(',') + 1)); };
  CHECK(std::fabs(price(oslo) - 2.3) < 0.4);
  CHECK(std::fabs(price(lima) - 1.3) < 0.4);
}

TEST_CASE("categories of a target are names of classes, in predictions, resumed runs and sweeps") {
  const Task task(1);
  task.write("houses.csv", houses());
  const std::vector<std::string> classes{"data.train={format: csv, file: houses.csv, target: city, ignore: \"id,age\"}",
                                         "loss=softmax_cross_entropy", "model.layers.3.linear.out=3",
                                         "train.stop=20 epochs"};
  task.train(classes);
  CHECK(contains(slurp(task.path("run/config.yaml")), "class_names: [\"Lima, Peru\", Oslo, Rome]"));
  task.write("new.csv", "area,rooms,price\n100,3,1.3\n100,3,2.3\n");
  const std::string out = task.predict({task.path("new.csv")});
  CHECK(contains(out, "input,sample,class,name,probability\n"));
  CHECK(contains(out, "new.csv,0,0,\"Lima, Peru\","));
  CHECK(contains(out, "new.csv,1,1,Oslo,"));
  CHECK(contains(slurp(task.path("run/evaluation.json")), "\"class_names\":[\"Lima, Peru\","));
  const ProcessResult resumed = cli({"train", "--resume", task.path("run"), "train.stop=21 epochs", "-q"});
  INFO(resumed.err);
  CHECK(resumed.code == 0);
  CHECK_FALSE(contains(resumed.err, "a configuration other than"));
  std::vector<std::string> sweep{"sweep", task.path("task.yaml"), "optim.lr=0.01", "--out", task.path("sweep")};
  sweep.insert(sweep.end(), classes.begin(), classes.end() - 1);
  sweep.push_back("train.stop=1 epochs");
  CHECK(cli(sweep).code == 0);
  const ProcessResult again = cli(sweep);
  INFO(again.err);
  CHECK(again.code == 0);
  // Names of the configuration win.
  const ProcessResult named =
      cli({"check", task.path("task.yaml"), classes[0], classes[1], classes[2], "data.class_names=[only, two]"});
  CHECK(named.code == 2);
  CHECK(contains(named.err, "class_names: got 2 names, data.train ("));
}

TEST_CASE("columns of 0 and 1 become several labels a sample, named by their columns") {
  const Task task(2);
  task.write("sensors.csv", sensors());
  const Json summary = task.train();
  CHECK(metric(summary, "loss") < 0.2);
  task.write("new.csv", "0.9,-0.5,0\n-0.8,0.5,0.9\n");
  const std::string out = task.predict({task.path("new.csv")});
  CHECK(contains(out, "input,sample,labels,class,name,probability\n"));
  CHECK(contains(out, "new.csv,0,hot,"));
  CHECK(contains(out, "new.csv,1,wet loud,"));
}

TEST_CASE("CIFAR-10 trains from folders of PNG files") {
  const Task task(3);
  const bool real = write_cifar(task, "train", 150) && write_cifar(task, "test", 40);
  if (!real) {
    draw_pictures(task, "train", 30, 1);
    draw_pictures(task, "test", 10, 2);
  }
  const ProcessResult info = cli({"data", "info", task.path("pictures/test"), "--json"});
  CHECK(Json::parse(info.out).at("classes").at("frog") == (real ? 40 : 10));
  const ProcessResult check = cli({"check", task.path("task.yaml")});
  if (contains(check.err, "built without libpng")) return;
  const Json summary = task.train();
  CHECK(metric(summary, "accuracy") > (real ? 30 : 80));  // 10 % by chance
  CHECK(contains(slurp(task.path("run/config.yaml")),
                 "class_names: [airplane, automobile, bird, cat, deer, dog, frog, horse, ship, truck]"));
  const std::string picture = task.path("pictures/train/frog/1.png");
  CHECK(contains(task.predict({picture}, {"--csv", "--top", "10"}), ",frog,"));
  CHECK(contains(task.predict({picture}, {"--json", "--top", "10"}), "\"frog\""));
  // The names are those of the run, also where it goes on.
  const ProcessResult resumed = cli({"train", "--resume", task.path("run"), "train.stop=11 epochs", "-q"});
  INFO(resumed.err);
  CHECK(resumed.code == 0);
  CHECK_FALSE(contains(resumed.err, "a configuration other than"));
}
