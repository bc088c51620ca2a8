// bitgrad new TASK -o FILE: writes a commented configuration to start from, one for each task of starters.inc.
#include <algorithm>
#include <iostream>
#include <memory>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/text.h"
#include "command.h"
#include "output_file.h"
#include "table.h"

namespace bitgrad::cli {
namespace {

struct Starter {
  const char* task;
  const char* summary;
  const char* text;
};
constexpr Starter kStarters[] = {
#define BITGRAD_STARTER(task, summary, text) {task, summary, text},
#include "starters.inc"
#undef BITGRAD_STARTER
};

void list_starters() {
  std::vector<std::vector<std::string>> table{{"task", "what it trains"}};
  for (const Starter& starter : kStarters) table.push_back({starter.task, starter.summary});
  print_texts(std::cout, table);
  std::cout << "\nbitgrad new TASK -o FILE writes the configuration; bitgrad check FILE reads it\n";
}

const Starter& find_starter(const std::string& task) {
  std::vector<std::string> names;
  for (const Starter& starter : kStarters) {
    if (task == starter.task) return starter;
    names.emplace_back(starter.task);
  }
  fail("new", unknown_name("task", task, names));
}

struct NewOptions {
  std::string task, out;
  bool list = false, force = false;
};

int run_new(const NewOptions& options) {
  if (options.list || options.task.empty()) {
    list_starters();
    return 0;
  }
  const std::string text = find_starter(options.task).text;
  if (options.out.empty()) {
    std::cout << text;
    return 0;
  }
  require_writable(options.out, options.force, {});
  write_file_atomically(options.out, text);
  std::cout << printable(options.out) << " written. Next: bitgrad check " << printable(options.out)
            << ", then bitgrad train " << printable(options.out) << '\n';
  return 0;
}

}  // namespace

Run setup_new(Arguments& args) {
  auto options = std::make_shared<NewOptions>();
  args.option("task", options->task, "task, such as images or text; default: list them").suggest([] {
    std::vector<std::string> names;
    for (const Starter& starter : kStarters) names.emplace_back(starter.task);
    return names;
  });
  args.option("-o,--out", options->out, "output file; default: standard output");
  args.flag("--list", options->list, "list the tasks");
  args.flag("--force", options->force, "overwrite an existing file");
  return [options] { return run_new(*options); };
}

}  // namespace bitgrad::cli
