// bitgrad report RUN... [-o FILE]: charts of a run, or of several side by side, on one page.
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/text.h"
#include "bitgrad/train/html_report.h"
#include "command.h"
#include "open_file.h"
#include "output_file.h"
#include "table.h"

namespace bitgrad::cli {
namespace {

struct ReportOptions {
  std::vector<std::string> plugins, runs;
  std::string out;
  bool force = false;
};

int run_report(const ReportOptions& options) {
  load_named_plugins(options.plugins);
  const bool own = options.out.empty();
  require(!own || options.runs.size() == 1, "report", "several runs: got no name for the page, expected -o FILE");
  const std::string path = own ? options.runs[0] + "/report.html" : options.out;
  if (!own) require_writable(path, options.force);
  const std::string page = html_report(options.runs);
  write_file_atomically(path, page);
  std::cout << "wrote " << printable(path) << " (" << size_text(std::ssize(page)) << "). Open it in a browser\n";
  return 0;
}

}  // namespace

Run setup_report(Arguments& args) {
  auto options = std::make_shared<ReportOptions>();
  args.option("runs", options->runs, "run folders; several: side by side").required();
  args.option("-o,--out", options->out, "the page; of one run report.html in its folder");
  args.flag("--force", options->force, "overwrite an existing file");
  add_plugin_option(args, options->plugins);
  return [options] { return run_report(*options); };
}

}  // namespace bitgrad::cli
