// report.html, results.csv and evaluation.json of a run folder.
#include "bitgrad/report/report.h"

#include <cmath>
#include <random>

#include "bitgrad/base/json.h"
#include "report/chart.h"
#include "report/text.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/log_lines.h"
#include "support/temp_dir.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

int64_t count(const std::string& text, const std::string& part) {
  int64_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

void put(const TempDir& temp, const std::string& name, const std::string& text) {
  write_file_atomically(temp.file(name), text);
}

constexpr const char* kLine = "{\"event\":\"train\",\"step\":1,\"epoch\":0,\"loss\":1.5}\n";

}  // namespace

TEST_CASE("a thinned curve keeps its ends, its extremes and the order of its steps") {
  std::mt19937 random(7);
  html::Series all;
  for (int i = 0; i < 5000; ++i)
    all.add(i, i % 977 == 3 ? NAN
                            : std::uniform_real_distribution<double>(0, 1)(random) + (i == 1234   ? 9
                                                                                      : i == 4321 ? -9
                                                                                                  : 0));
  const html::Series some = html::thinned(all, 100);
  CHECK(some.x.size() <= 202);
  CHECK(some.x.front() == 0);
  CHECK(some.x.back() == 4999);
  CHECK(*std::max_element(some.y.begin(), some.y.end()) == all.y[1234]);
  CHECK(*std::min_element(some.y.begin(), some.y.end()) == all.y[4321]);
  CHECK(std::is_sorted(some.x.begin(), some.x.end()));
  for (size_t i = 0; i < some.x.size(); ++i) REQUIRE(some.y[i] == all.y[static_cast<size_t>(some.x[i])]);
  CHECK(html::thinned({{1, 2, 3}, {1, INFINITY, 3}}, 100).x == std::vector<double>{1, 3});
}

TEST_CASE("numbers of a page are short, with units") {
  CHECK(html::bytes_text(812) == "812 B");
  CHECK(html::bytes_text(58312536) == "58.3 MB");
  CHECK(html::bytes_text(1260000000) == "1.26 GB");
  CHECK(html::seconds_text(200.4) == "3 min 20 s");
  CHECK(html::tick_text(20000, 10000) == "20k");
  CHECK(html::tick_text(1500000, 500000) == "1.5M");
  CHECK(html::tick_text(0.02, 0.01) == "0.02");
  CHECK(html::number_text(0.06415429) == "0.06415");
  CHECK(html::escaped("<a href=\"x\">&'\x1b") == "&lt;a href=&quot;x&quot;&gt;&amp;&#39;\\x1b");
}

TEST_CASE("texts of a run folder never become markup of its report") {
  const std::string evil = "</pre></script><script>alert(1)</script><img src=x onerror=alert(2)>";
  TempDir temp;
  Json quant{{"event", "quant"}, {"step", 1},  {"layer", evil},   {"part", "weight"},    {"dtype", evil},
             {"scheme", evil},   {"codes", 2}, {"sqnr_db", evil}, {"histogram", {1, 2}}, {"flip_rate", 0.5}};
  Json eval{{"event", "eval"}, {"step", 1}, {"split", evil}, {"loss", 1.0}, {evil, 2.0}};
  put(temp, "metrics.jsonl", kLine + quant.dump() + '\n' + eval.dump() + '\n');
  put(temp, "config.yaml", "version: 1\n# " + evil + '\n');
  put(temp, "summary.json",
      Json{{"status", evil},
           {"error", evil},
           {"metric", evil},
           {"best_value", 1.0},
           {"state_hash", evil},
           {"memory", {{"total_peak", 5}, {evil, 5}}}}
          .dump());
  put(temp, "run.json",
      Json{{"sessions", Json::array({Json{{"command", evil}, {"git", {{"commit", evil}, {"branch", evil}}}}})},
           {"model",
            {{"parameters", 1},
             {"rows", Json::array({Json{{"layer", evil}, {"kind", evil}, {"output", Json::array()}}})}}}}
          .dump());
  Json worst{
      {"sample", 1}, {"class", 0}, {"predicted", 1}, {"picture", "data:image/png;base64,\"><script>alert(1)</script>"}};
  put(temp, "evaluation.json",
      Json{{"split", evil},
           {"classes", 2},
           {"class_names", {evil, evil}},
           {"confusion", Json::array({Json{1, 2}, Json{3, 4}})},
           {"worst", Json::array({worst})},
           {"worst_by", evil}}
          .dump());
  for (const std::vector<std::string>& folders : {std::vector{temp.path()}, std::vector{temp.path(), temp.path()}}) {
    const std::string page = html_report(folders);
    CHECK(count(page, "<script>") == 1);
    CHECK(count(page, "</script>") == 1);
    CHECK(count(page, "<img") == 0);
    CHECK(count(page, "http://") + count(page, "https://") == 0);
    CHECK(contains(page, "&lt;script&gt;alert(1)"));
  }
}

TEST_CASE("a damaged line of the metrics is an error with its number, an incomplete last one is skipped") {
  TempDir temp;
  CHECK(contains(error_of([&] { html_report({temp.path()}); }), "has no metrics.jsonl: it is not a run folder"));
  put(temp, "metrics.jsonl", std::string(kLine) + "{\"event\":\"tra\n" + kLine);
  CHECK(contains(error_of([&] { html_report({temp.path()}); }),
                 "metrics.jsonl:2: got '{\"event\":\"tra', expected a JSON object with event and step"));
  put(temp, "metrics.jsonl", std::string(kLine) + "{\"event\":\"tra");
  CHECK(contains(html_report({temp.path()}), "The last line of metrics.jsonl is incomplete and was skipped."));
  put(temp, "summary.json", "{");
  CHECK(contains(error_of([&] { html_report({temp.path()}); }), "summary.json is damaged"));
  put(temp, "summary.json", "{\"status\":5}");
  CHECK(error_code_of([&] { html_report({temp.path()}); }) == static_cast<int>(ErrorCode::kData));
}

TEST_CASE("curves of strange numbers are drawn too") {
  const auto drawn = [](const html::Series& s) {
    return html::chart_html({.title = "t", .lines = {{"l", &s}}, .may_be_log = true});
  };
  html::Series back;
  for (int i = 0; i < 600; ++i) back.add(i % 2 == 0 ? 5 : -1e300, i);
  for (const html::Series& s :
       {back, html::Series{{1, 2}, {1e20, 1e20 * (1 + 1e-15)}}, html::Series{{1, 2}, {-1e308, 1e308}},
        html::Series{{1, 2}, {1e-300, 1e300}}, html::Series{{0}, {0}}, html::Series{{3}, {-2}}}) {
    const std::string figure = drawn(s);
    CHECK(contains(figure, "<polyline"));
    CHECK(figure.size() < 60'000);
  }
  CHECK(drawn({{1}, {NAN}}).empty());
}

TEST_CASE("sections without data give the reason") {
  TempDir temp;
  put(temp, "metrics.jsonl", "");
  const std::string page = html_report({temp.path()});
  for (const char* why : {"No summary.json", "holds no line yet", "Nothing was evaluated", "No run.json",
                          "No report yet", "No config.yaml"})
    CHECK(contains(page, why));
}

TEST_CASE("a report of a thousand epochs and forty layers stays below a megabyte") {
  TempDir temp;
  std::string lines;
  for (int epoch = 1; epoch <= 1000; ++epoch) {
    for (int i = 1; i <= 3; ++i)
      lines += concat("{\"event\":\"train\",\"step\":", (epoch - 1) * 600 + i * 200, ",\"epoch\":", epoch,
                      ",\"loss\":", 1.0 / (epoch + 0.37 * i), ",\"accuracy\":", 90.123 + i,
                      ",\"lr\":0.02,\"samples_per_s\":", 81340.4 + epoch, "}\n");
    lines += concat("{\"event\":\"eval\",\"split\":\"test\",\"epoch\":", epoch, ",\"step\":", epoch * 600,
                    ",\"loss\":", 1.1 / epoch, ",\"accuracy\":", 97.25 + epoch % 7, ",\"top5_accuracy\":99.5}\n");
    for (int layer = 0; layer < (epoch % 25 == 0 ? 40 : 4); ++layer)
      lines +=
          concat("{\"event\":\"quant\",\"step\":", epoch * 600, ",\"epoch\":", epoch, ",\"layer\":\"layers.", layer,
                 "\",\"part\":\"weight\",\"dtype\":\"int4\",\"codes\":16,\"sqnr_db\":", 20 + layer + 1.0 / epoch,
                 ",\"entropy\":", 3.5 + 0.1 / epoch, ",\"saturated\":", 0.01 / epoch, ",\"flip_rate\":", 0.3 / epoch,
                 ",\"oscillating\":", 0.1 / epoch, ",\"histogram\":[1,2,3,4,5,6,7,8,9,8,7,6,5,4,3,2]}\n");
  }
  put(temp, "metrics.jsonl", lines);
  const std::string page = html_report({temp.path()});
  CHECK(page.size() < 1'000'000);
  CHECK(contains(page, "the 6 lowest of 40"));
}

TEST_CASE("a run leaves a report, what its best model gets wrong, and a table of results") {
  KeepModes keep;
  TempDir temp;
  const std::string names = "data.class_names=[zero,one,two,three,four,five,six,seven,eight,nine]";
  const RunConfig config = small_config({names, "run.bits=strict"});
  const TrainOutcome whole = run_all(config, create_run_folder(config, temp.file("whole")));
  const Json e = Json::parse(text_of(temp.file("whole") + "/evaluation.json"));
  const auto matrix = e["confusion"].get<std::vector<std::vector<int64_t>>>();
  int64_t total = 0, hits = 0;
  for (size_t i = 0; i < 10; ++i)
    for (size_t k = 0; k < 10; ++k) {
      total += matrix[i][k];
      if (i == k) hits += matrix[i][k];
    }
  CHECK(total == 30);
  CHECK(100.0 * static_cast<double>(hits) / 30 == whole.counters.best_accuracy);
  CHECK(e["step"] == whole.counters.best_step);
  CHECK(e["worst"].items().size() == std::min<size_t>(16, static_cast<size_t>(30 - hits)));
  CHECK(e["worst_by"] == "margin");
  CHECK(contains(e["worst"][0]["picture"].text(), "data:image/png;base64,iVBORw0KGgo"));
  const std::string page = text_of(temp.file("whole") + "/report.html");
  for (const char* part :
       {"Confusion matrix", "SQNR of weights", "seven", "bint1 binary", "state hash", "flips of weights"})
    CHECK(contains(page, part));

  // Stopped in the middle and resumed: the same rows, the same counts.
  run_part(config, create_run_folder(config, temp.file("part")), 7);
  resume_run(temp.file("part"));
  const auto column = [](const std::string& csv) {  // all but speeds
    std::string text;
    for (size_t at = 0; at < csv.size();) {
      const size_t end = csv.find('\n', at);
      const std::string line = csv.substr(at, end - at);
      text += line.substr(0, line.rfind(',', line.rfind(',') - 1)) + '\n';
      at = end + 1;
    }
    return text;
  };
  const std::string csv = text_of(temp.file("whole") + "/results.csv");
  CHECK(
      csv.starts_with("step,epoch,split,loss,accuracy,top5_accuracy,train_loss,train_accuracy,lr,samples_per_s,tokens_"
                      "per_s\n5,1,test,"));
  CHECK(count(csv, "\n") == 4);
  CHECK(column(text_of(temp.file("part") + "/results.csv")) == column(csv));
  CHECK(text_of(temp.file("part") + "/evaluation.json") == text_of(temp.file("whole") + "/evaluation.json"));
  CHECK(Json::parse(text_of(temp.file("part") + "/run.json"))["sessions"].size() == 2);

  // Without: none of the files, and the same bits.
  const RunConfig without = small_config({names, "run.bits=strict", "log.report=false"});
  const TrainOutcome bare = run_all(without, create_run_folder(without, temp.file("bare")));
  CHECK(bare.state_hash == whole.state_hash);
  for (const char* name : {"/report.html", "/evaluation.json", "/run.json"})
    CHECK_FALSE(file_system().exists(temp.file("bare") + name));
}

TEST_CASE("a report that cannot be written does not harm the run") {
  KeepModes keep;
  TempDir temp;
  create_run_folder(small_config(), temp.file("run"));
  file_system().make_directories(temp.file("run/report.html"));
  LogLines log;
  const TrainOutcome outcome = run_all(small_config(), temp.file("run"));
  CHECK(outcome.stopped == StopRequest::kNone);
  CHECK(file_system().exists(temp.file("run/last.safetensors")));
  REQUIRE(log.warnings.size() == 1);
  CHECK(contains(log.warnings[0], "report.html is not written: "));
}
