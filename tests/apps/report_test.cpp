// Runs looked at: event files in TensorBoard (pip package tensorboard in $BITGRAD_PYTHON), and pages in Chromium.
#include <cstdlib>

#include "apps/python.h"
#include "bitgrad/base/json.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

// What metrics.jsonl says under a tag.
Json values_of(const std::string& folder, const std::string& event, const std::string& name,
               const std::string& layer = "") {
  const std::string text = text_of(folder + "/metrics.jsonl");
  Json out = Json::array();
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const Json line = Json::parse(text.substr(at, end - at));
    at = end + 1;
    if (line["event"] != event || (!layer.empty() && (line["layer"] != layer || line["part"] != "weight"))) continue;
    if (line.contains(name) && line[name].is_number())
      out.push_back(Json::array({line["step"], static_cast<double>(line[name].get<float>())}));
  }
  return out;
}

// What a browser finds in a page of this width, in the order of `kProbe`; empty: there is no browser.
std::string seen(const std::string& page, const std::string& folder, int width, bool dark) {
  constexpr const char* kHead =
      "<script>var errors=[];addEventListener('error',function(e){errors.push(e.message)});"
      "addEventListener('securitypolicyviolation',function(e){errors.push(e.blockedURI)});</script>";
  constexpr const char* kProbe = R"js(<script>addEventListener('load',function(){
document.querySelectorAll('details').forEach(function(d){d.open=true});
var tips=0,charts=document.querySelectorAll('svg.chart');
charts.forEach(function(c){var b=c.getBoundingClientRect();
c.dispatchEvent(new PointerEvent('pointermove',{clientX:b.left+b.width/2,clientY:b.top+20}));
if(document.querySelector('.tip').textContent.indexOf('step')===0)tips++});
var pictures=0;document.querySelectorAll('img').forEach(function(i){if(i.naturalWidth===28&&i.naturalHeight===28)pictures++});
var wide=0;document.querySelectorAll('section,figure,svg,.tile').forEach(function(e){if(e.getBoundingClientRect().right>innerWidth+1)wide++});
parent.postMessage([document.documentElement.scrollWidth-innerWidth,innerWidth,wide,errors.length+errors.join(),
charts.length-tips,charts.length>8,pictures,document.querySelectorAll('img').length-pictures,
getComputedStyle(document.body).backgroundColor].join('|'),'*');
});</script>)js";
  std::string text = text_of(page);
  text.insert(text.find("<meta charset"), kHead);
  text.insert(text.find("</main>"), kProbe);
  write_file_atomically(folder + "/probed.html", text);
  // In a frame, because a window of Chromium is never narrower than 500 pixels.
  const std::string outer = folder + "/frame.html";
  write_file_atomically(outer, concat(R"(<!DOCTYPE html><meta name="color-scheme" content="light dark"><script>
addEventListener('message',function(e){document.body.setAttribute('data-seen',e.data)})</script><body>
<iframe src="probed.html" style="border:0;height:900px;width:)",
                                      width, "px\"></iframe>"));
  std::vector<std::string> words{"chromium",
                                 "--headless",
                                 "--no-sandbox",
                                 "--disable-gpu",
                                 "--hide-scrollbars",
                                 "--dump-dom",
                                 "--user-data-dir=" + folder + "/browser",
                                 "--window-size=1400,1000"};
  if (dark) words.push_back("--blink-settings=preferredColorScheme=0");
  words.push_back("file://" + outer);
  const ProcessResult run = run_program(words);
  if (run.code == 127) return {};
  INFO(run.err);
  REQUIRE(run.code == 0);
  const size_t begin = run.out.find("data-seen=\"");
  REQUIRE(begin != std::string::npos);
  return run.out.substr(begin + 11, run.out.find('"', begin + 11) - begin - 11);
}

}  // namespace

TEST_CASE("TensorBoard reads the values of metrics.jsonl, of a resumed run too") {
  KeepModes keep;
  TempDir temp;
  const RunConfig config = small_config({"log.tensorboard=true"}, kSmallInt4);
  const std::string folder = create_run_folder(config, temp.file("run"));
  // The checkpoint is of step 4: what came after it is written again.
  run_and_die(config, folder, 7);
  resume_run(folder);
  const std::string out = script_output("tensorboard_values.py", {folder}, "tensorboard");
  if (out.empty()) return;
  const Json tags = Json::parse(out);
  CHECK(tags["train/loss"] == values_of(folder, "train", "loss"));
  CHECK(tags["train/lr"] == values_of(folder, "train", "lr"));
  CHECK(tags["perf/samples_per_s"].size() == tags["train/loss"].size());
  CHECK(tags["test/accuracy"] == values_of(folder, "eval", "accuracy"));
  CHECK(tags["test/loss"] == values_of(folder, "eval", "loss"));
  CHECK(tags["quant/layers.0/weight/sqnr_db"] == values_of(folder, "quant", "sqnr_db", "layers.0"));
  CHECK(tags["test/loss"].size() == 3);
}

TEST_CASE("reports fit a desk and a phone in Chromium, light and dark, without an error of the console") {
  KeepModes keep;
  TempDir temp;
  const RunConfig signs = small_config(), int4 = small_config({}, kSmallInt4);
  run_all(signs, create_run_folder(signs, temp.file("w1a1")));
  run_all(int4, create_run_folder(int4, temp.file("int4")));
  const ProcessResult made = cli({"report", temp.file("w1a1"), temp.file("int4"), "-o", temp.file("both.html")});
  INFO(made.err);
  REQUIRE(made.code == 0);
  // Without a name the page goes into the folder that holds the runs.
  CHECK(contains(cli({"report", temp.file("w1a1"), temp.file("int4")}).out, "wrote " + temp.file("report.html")));
  const std::string desk = seen(temp.file("both.html"), temp.path(), 1280, false);
  if (desk.empty()) {
    WARN("skipped: no chromium");
    return;
  }
  const Json e = Json::parse(text_of(temp.file("w1a1") + "/evaluation.json"));
  const size_t pictures = e["worst"].size() + 16;  // of int4 by cross-entropy: always 16
  CHECK(desk == concat("0|1280|0|0|0|true|", pictures, "|0|rgb(246, 247, 249)"));
  const std::string phone = seen(temp.file("both.html"), temp.path(), 390, true);
  CHECK(phone == concat("0|390|0|0|0|true|", pictures, "|0|rgb(17, 21, 27)"));
}
