// Every family of decoders in the programs that know it: models with random weights made by Hugging Face's transformers
// are imported, exported to both formats, imported again, and opened by transformers and llama.cpp. Each has the logits
// of transformers. $BITGRAD_PYTHON: a Python with the packages transformers, torch and xllamacpp; else python3.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <iterator>

#include "apps/python.h"
#include "bitgrad/base/json.h"
#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/data/tokenizer.h"
#include "bitgrad/interop/interop.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

struct FamilyCase {
  std::string name;
  std::string refused = {};  // why there is no GGUF file of it
  double client = 2e-4;      // bound of log-probabilities in llama.cpp; its GELU is a table in fp16, with steps of 5e-4
  std::string family = {};   // of bitgrad, if not `name`
};
const std::vector<FamilyCase>& families() {
  static const std::vector<FamilyCase> all{{"llama"},
                                           {"qwen2"},
                                           {"qwen3"},
                                           {"gemma3", "", 1e-3},
                                           {"gemma2", "", 1e-3},
                                           {"granite"},
                                           {"smollm3"},
                                           {"smollm2", "", 2e-4, "llama"},
                                           {"mistral", "llama.cpp computes none here"},
                                           {"mistral_wide", "", 2e-4, "mistral"},
                                           {"olmo2"},
                                           {"bitnet"},
                                           {"bitnet_relu2", "--client newer", 2e-4, "bitnet"}};
  return all;
}

Json json_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return Json::parse(std::string(std::istreambuf_iterator<char>(in), {}));
}

// [samples][positions][ids], as transformers_logits.py and tiny_models.py write them.
struct Logits {
  std::vector<double> all;
  int64_t vocabulary = 0;
  explicit Logits(const Json& samples) {
    for (const Json& sample : samples)
      for (const Json& row : sample) {
        vocabulary = static_cast<int64_t>(row.size());
        for (const Json& x : row) all.push_back(x.get<double>());
      }
  }
  std::span<const double> row(int64_t i) const {
    return {all.data() + i * vocabulary, static_cast<size_t>(vocabulary)};
  }
  int64_t best(int64_t i) const { return std::max_element(row(i).begin(), row(i).end()) - row(i).begin(); }
};
double farthest(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double apart = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    REQUIRE(std::isfinite(a[i]));
    apart = std::max(apart, std::abs(a[i] - b[i]));
  }
  return apart;
}
std::vector<double> log_softmax(std::span<const double> row) {
  const double top = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const double x : row) sum += std::exp(x - top);
  std::vector<double> out;
  for (const double x : row) out.push_back(x - top - std::log(sum));
  return out;
}

class FamilyRun {
 public:
  FamilyRun(const TempDir& temp, const FamilyCase& of)
      : temp_(temp), of_(of), golden_(json_of(path("") + "/logits.json")), expected_(golden_.at("logits")) {}

  // Whether transformers has no package for it; then nothing was compared.
  bool run() {
    ImportedModel imported = import_hugging_face(path(""));
    CHECK(imported.family == (of_.family.empty() ? of_.name : of_.family));
    imported.tokenizer = make_tokenizer("chars", "abcdefghijklmnopqrstuvwxyz");  // llama.cpp asks for one
    save_imported(imported, path(".bg"));
    const double import_error = compared(path(".bg"));
    exported({"-o", path("_hf"), "--format", "hf"});
    const ImportedModel hf = import_hugging_face(path("_hf"));
    CHECK((hf.spec.layers == imported.spec.layers));
    same_parameters(imported, hf);
    const double client_error = of_.refused.empty() ? by_gguf(imported) : refused_gguf(imported);
    const std::string logits =
        script_output("transformers_logits.py", {path("_ids.json"), path("_hf")}, "transformers or torch");
    if (logits.empty()) return false;
    const Json all = Json::parse(logits);
    const double export_error = farthest(Logits(all.at(0)).all, expected_.all);
    CHECK(export_error < 1e-4);
    std::cout << std::left << std::setw(13) << of_.name << std::setprecision(2) << " import " << import_error
              << ", export " << export_error << ", llama.cpp " << client_error << ", round trips equal\n";
    return true;
  }

  // Before run: what the scripts read.
  void write_ids() const { std::ofstream(path("_ids.json")) << golden_.at("ids").dump(); }

 private:
  std::string path(const std::string& end) const { return temp_.file(of_.name + end); }

  std::vector<double> predicted(const std::string& file) const {
    const auto learner = load_evaluator(file, find_loss("softmax_cross_entropy"), 1);
    std::vector<double> ids;
    const Json& lists = golden_.at("ids");
    for (const Json& list : lists)
      for (const Json& id : list) ids.push_back(id.get<double>());
    const Shape shape{static_cast<int64_t>(lists.size()), static_cast<int64_t>(lists.at(0).size())};
    return learner->predict(Tensor::from_elements(shape, dtypes::int32, ids)).elements();
  }
  double compared(const std::string& file) const {
    const std::vector<double> ours = predicted(file);
    const double apart = farthest(ours, expected_.all);
    CHECK(apart < 1e-4);
    for (int64_t i = 0; i < std::ssize(ours) / expected_.vocabulary; ++i) {
      const auto row = ours.begin() + i * expected_.vocabulary;
      CHECK(std::max_element(row, row + expected_.vocabulary) - row == expected_.best(i));
    }
    return apart;
  }
  void exported(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"export", path(".bg")});
    const ProcessResult done = cli(arguments);
    INFO(done.err << done.out);
    REQUIRE(done.code == 0);
    CHECK(done.out.find("0 rounded") != std::string::npos);
  }
  // There and back, and in llama.cpp. Numbers of layers are fp32 in the file: the same logits.
  double by_gguf(const ImportedModel& imported) const {
    back_from_gguf(imported, {});
    return client();
  }
  void back_from_gguf(const ImportedModel& imported, const std::vector<std::string>& options) const {
    std::vector<std::string> arguments{"-o", path(".gguf")};
    arguments.insert(arguments.end(), options.begin(), options.end());
    exported(arguments);
    const ImportedModel gguf = import_gguf(path(".gguf"));
    same_parameters(imported, gguf);
    save_imported(gguf, path("_gguf.bg"));
    CHECK(predicted(path("_gguf.bg")) == predicted(path(".bg")));
  }
  double refused_gguf(const ImportedModel& imported) const {
    const ProcessResult done = cli({"export", path(".bg"), "-o", path(".gguf")});
    CHECK(done.code != 0);
    CHECK(contains(done.err, of_.refused));
    if (contains(of_.refused, "newer")) back_from_gguf(imported, {"--client", "newer"});
    return std::nan("");
  }
  static void same_parameters(const ImportedModel& a, const ImportedModel& b) {
    REQUIRE(a.parameters.size() == b.parameters.size());
    for (size_t i = 0; i < a.parameters.size(); ++i) {
      INFO(a.parameters[i].first);
      CHECK(a.parameters[i].first == b.parameters[i].first);
      CHECK(a.parameters[i].second.values() == b.parameters[i].second.values());
    }
  }
  // The largest difference of log-probabilities after prompts of several lengths.
  double client() const {
    const auto ids = golden_.at("ids").at(0).get<std::vector<int32_t>>();
    const std::vector<std::ptrdiff_t> lengths{1, 2, 7, 8, 9, 17, 40};
    Json prompts = Json::array();
    for (const std::ptrdiff_t n : lengths) prompts.push_back(std::vector<int32_t>(ids.begin(), ids.begin() + n));
    std::ofstream(path("_p.json")) << Json{{"prompts", prompts}, {"texts", Json::array()}}.dump();
    const std::string written =
        script_output("llama_cpp_client.py",
                      {path(".gguf"), std::to_string(expected_.vocabulary), "1", path("_p.json")}, "xllamacpp");
    if (written.empty()) return -1;
    const Json answers = Json::parse(written).at("answers");
    const Logits expected(golden_.at("client"));
    double largest = 0;
    for (size_t p = 0; p < lengths.size(); ++p) {
      const std::vector<double> row = log_softmax(expected.row(lengths[p] - 1));
      const Json& got = answers.at(p).at("logprobs").at(0);
      for (size_t id = 0; id < row.size(); ++id)
        largest = std::max(largest, std::abs(got.at(id).get<double>() - row[id]));
    }
    CHECK(largest < of_.client);
    return largest;
  }

  const TempDir& temp_;
  const FamilyCase& of_;
  const Json golden_;
  const Logits expected_;
};

}  // namespace

TEST_CASE("models of every family have the logits of transformers here, there after an export, and in llama.cpp") {
  TempDir temp;
  std::vector<std::string> arguments{temp.path()};
  for (const FamilyCase& family : families()) arguments.push_back(family.name);
  if (run_program({python(), "-c", "import transformers, torch"}).code != 0) {
    WARN("skipped: no transformers or torch in " + python() + ". Set BITGRAD_PYTHON");
    return;
  }
  script_output("tiny_models.py", arguments, "transformers or torch");
  for (const FamilyCase& family : families()) {
    INFO(family.name);
    FamilyRun run(temp, family);
    run.write_ids();
    CHECK(run.run());
  }
}
