#include <set>
#include <utility>

#include "bitgrad/base/error.h"
#include "bitgrad/base/version.h"
#include "bitgrad/report/html_report.h"
#include "bitgrad/report/run_results.h"
#include "report/sections.h"
#include "report/style.h"
#include "report/text.h"

namespace bitgrad {
namespace html {
namespace {

std::string sections_of(const RunData& run) {
  return curves(run) + quantization(run) + evaluation(run) + layers(run) + memory(run) + configuration(run) +
         environment(run);
}

// The best first. Returns why not, as HTML.
std::string sort_by_best(std::vector<RunData>& runs) {
  std::vector<RunResult> results;
  for (const RunData& run : runs)
    results.push_back(result_of(run.folder, run.summary, run.config ? &*run.config : nullptr));
  std::string why_not;
  std::vector<RunData> sorted;
  for (const size_t i : best_first(results, &why_not)) sorted.push_back(std::move(runs[i]));
  runs = std::move(sorted);
  return why_not.empty() ? "" : note("The runs are in the order given: " + escaped(why_not) + '.');
}

// Distinguishes runs of the same name by their folders.
void name_apart(std::vector<RunData>& runs) {
  std::multiset<std::string> names;
  for (const RunData& run : runs) names.insert(run.name);
  for (RunData& run : runs)
    if (names.count(run.name) > 1) run.name = run.folder;
}

std::string page(const std::string& title, const std::string& body) {
  return concat(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src "
      "'unsafe-inline'; "
      "script-src 'unsafe-inline'\">\n<title>",
      escaped(title), "</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>", kStyle, "</style></head><body><main>\n",
      body, "<footer>bitgrad ", BITGRAD_VERSION,
      " &middot; docs/report.md explains every part of this page</footer>\n</main><script>", kScript,
      "</script></body></html>\n");
}

}  // namespace
}  // namespace html

std::string html_report(const std::vector<std::string>& folders) {
  using namespace html;
  require(!folders.empty(), "report", "needs at least one run folder");
  std::vector<RunData> runs;
  try {
    for (const std::string& folder : folders) runs.push_back(read_run(folder));
    if (runs.size() == 1) {
      const std::string name = runs[0].config ? runs[0].config->run.name : runs[0].name;
      return page(name + " - bitgrad", headline(runs[0]) + sections_of(runs[0]));
    }
    const std::string order = sort_by_best(runs);
    name_apart(runs);
    std::string body = concat("<h1>", runs.size(), " runs</h1>\n<p class=\"sub\"></p>\n", order) + comparison(runs);
    for (size_t i = 0; const RunData& run : runs)
      body += concat("<details class=\"run\" id=\"run", i++, "\"><summary>", escaped(run.name), "</summary>\n",
                     headline(run), sections_of(run), "</details>\n");
    return page(concat(runs.size(), " runs - bitgrad"), body);
  } catch (const JsonError& e) {  // a member of unexpected type in summary.json or run.json
    fail_with(ErrorCode::kData, "report", "a file of ", folders[0], folders.size() > 1 ? " or of the other runs" : "",
              " is not what bitgrad writes: ", e.what());
  }
}

}  // namespace bitgrad
