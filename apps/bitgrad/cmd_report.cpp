// bitgrad report RUN... [-o FILE] [--json]: charts of a run, or of several side by side (those of a sweep's folder
// too), on one page.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/text.h"
#include "bitgrad/report/report.h"
#include "command.h"
#include "open_file.h"
#include "output.h"
#include "output_file.h"
#include "table.h"

namespace bitgrad::cli {
namespace {

struct ReportOptions {
  std::vector<std::string> plugins, runs;
  std::string out;
  bool force = false, json = false;
};

// The run folders that the words name: runs, or folders of runs such as a sweep's. What else a shell's * found there is
// left out, and said.
std::vector<std::string> named_runs(const std::vector<std::string>& words) {
  std::vector<std::string> runs, others;
  for (const std::string& word : words) {
    if (!file_system().exists(word)) fail_with(ErrorCode::kData, "report", '\'', word, "' does not exist");
    if (is_run_folder(word)) {
      runs.push_back(word);
      continue;
    }
    bool any = false;
    for (const std::string& name :
         file_system().is_directory(word) ? file_system().list(word) : std::vector<std::string>()) {
      const std::string inside = concat(word, '/', name);
      const bool run = is_run_folder(inside);
      any = any || run;
      if (run || file_system().exists(inside + "/config.yaml")) (run ? runs : others).push_back(inside);
    }
    if (!any) others.push_back(word);
  }
  const std::string list = joined(others, ", ", printable);
  if (runs.empty())
    fail_with(ErrorCode::kData, "report", list, ": no run is there, expected run folders (which hold metrics.jsonl), ",
              "or a folder of them such as that of a sweep");
  if (!others.empty()) std::cerr << "note: skipped, not started: " << list << '\n';
  return runs;
}

// Where the page goes without -o: into the folder that was named, or that holds all runs.
std::string own_path(const std::vector<std::string>& words, const std::vector<std::string>& runs) {
  if (words.size() == 1) return words[0] + "/report.html";
  const auto parent = [](const std::string& run) {
    return std::filesystem::absolute(run).lexically_normal().parent_path().string();
  };
  const bool together =
      std::all_of(runs.begin(), runs.end(), [&](const auto& r) { return parent(r) == parent(runs[0]); });
  require(together, "report", "several runs of several folders: got no name for the page, expected -o FILE");
  const size_t slash = runs[0].rfind('/');
  return slash == std::string::npos ? "report.html" : runs[0].substr(0, slash) + "/report.html";
}

// Several runs: the table that the page begins with.
void print_runs(std::ostream& out, const std::vector<RunResult>& runs, const std::vector<size_t>& order) {
  std::vector<std::vector<std::string>> table{run_head()};
  for (const size_t i : order) table.push_back(run_cells(runs[i], "no summary"));
  print_table(out, table);
}

int run_report(ReportOptions& options) {
  load_named_plugins(options.plugins);
  for (std::string& word : options.runs)
    while (word.size() > 1 && word.ends_with('/')) word.pop_back();
  const std::vector<std::string> folders = named_runs(options.runs);
  const std::string path = options.out.empty() ? own_path(options.runs, folders) : options.out;
  if (!options.out.empty()) require_writable(path, options.force);
  const std::string page = html_report(folders);
  write_file_atomically(path, page);
  std::vector<RunResult> runs;
  for (const std::string& folder : folders) runs.push_back(read_result(folder));
  std::string why_not;
  const std::vector<size_t> order = best_first(runs, &why_not);
  if (!why_not.empty()) std::cerr << "note: the runs are in the order given: " << why_not << '\n';
  std::ostream& text = text_output(options.json);
  if (runs.size() > 1) print_runs(text, runs, order);
  text << "wrote " << printable(path) << " (" << size_text(std::ssize(page)) << "). Open it in a browser\n";
  if (!options.json) return 0;
  const std::string best = best_folder(runs);
  Json j{{"file", path},
         {"bytes", page.size()},
         {"best", best.empty() ? Json(nullptr) : Json(best)},
         {"runs", Json::array()}};
  for (const size_t i : order) j["runs"].push_back(run_json(runs[i], "no summary"));
  std::cout << j.dump(2) << '\n';
  return 0;
}

}  // namespace

Run setup_report(Arguments& args) {
  auto options = std::make_shared<ReportOptions>();
  args.option("runs", options->runs,
              "run folders, or a folder of runs such as that of a sweep; several are compared, best first")
      .required();
  args.option("-o,--out", options->out, "output file; default: report.html in the folder of the run or runs");
  args.flag("--force", options->force, "overwrite an existing file");
  args.flag("--json", options->json, "one JSON object on standard output: the page, the runs and the best");
  add_plugin_option(args, options->plugins);
  return [options] { return run_report(*options); };
}

}  // namespace bitgrad::cli
