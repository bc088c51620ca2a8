// bitgrad sweep CONFIG key=a,b,c ...: one run per combination of values, in sequence, each in its own process; then one
// table. Finished runs are not repeated, and interrupted ones are resumed.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <memory>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/text.h"
#include "bitgrad/checkpoint/run_folder.h"
#include "bitgrad/config/plugin.h"
#include "command.h"
#include "open_file.h"
#include "output.h"
#include "signals.h"
#include "table.h"

namespace bitgrad::cli {
namespace {

// ---- the runs of a sweep as lists of overrides

using Overrides = std::vector<std::string>;

constexpr size_t kMostRuns = 10'000;
constexpr int64_t kMaxListBytes = 1 << 20;

// Splits `text` at each `separator` outside brackets and quotes.
std::vector<std::string> cut(const std::string& text, char separator) {
  std::vector<std::string> parts{""};
  int depth = 0;
  char quote = '\0';
  for (const char c : text) {
    if (quote != '\0')
      quote = c == quote ? '\0' : quote;
    else if (c == '"' || c == '\'')
      quote = c;
    else if (c == '[' || c == '{' || c == '(')
      ++depth;
    else if (c == ']' || c == '}' || c == ')')
      --depth;
    if (c == separator && depth <= 0 && quote == '\0')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

// Quotes around a word of a list belong to the list, as in a shell.
std::string unquoted(const std::string& word) {
  std::string out;
  char quote = '\0';
  for (const char c : word) {
    if (quote == '\0' && (c == '"' || c == '\''))
      quote = c;
    else if (c == quote)
      quote = '\0';
    else
      out += c;
  }
  return out;
}

std::string key_of(const std::string& word) {
  const size_t equals = word.find('=');
  return word.starts_with('~') ? word.substr(1) : word.substr(0, equals);
}

void check_word(const std::string& word) {
  require(word.starts_with('~') || (word.find('=') != std::string::npos && word.find('=') > 0), "sweep", "got '", word,
          "', expected key=value, key=a,b,c or ~key");
}

// Every combination of the values of "key=a,b,c"; the last key varies fastest. Commas within brackets, braces,
// parentheses and quotes do not separate.
std::vector<Overrides> grid(const std::vector<std::string>& axes) {
  std::vector<Overrides> runs{{}};
  std::vector<std::string> keys;
  for (const std::string& axis : axes) {
    check_word(axis);
    const std::string key = key_of(axis);
    require(std::find(keys.begin(), keys.end(), key) == keys.end(), "sweep", "key '", key, "' is given twice");
    keys.push_back(key);
    const size_t equals = axis.find('=');
    const bool reset = axis.starts_with('~');
    const std::vector<std::string> values = reset ? std::vector<std::string>{""} : cut(axis.substr(equals + 1), ',');
    require(runs.size() * values.size() <= kMostRuns, "sweep", "got more than ", kMostRuns, " runs");
    std::vector<Overrides> next;
    for (const Overrides& run : runs)
      for (const std::string& value : values) {
        next.push_back(run);
        next.back().push_back(reset ? axis : concat(key, '=', value));
      }
    runs = std::move(next);
  }
  return runs;
}

// One run per line of a file: its words, separated by blanks outside quotes, are appended to `common`. Empty lines and
// lines that begin with # are skipped.
std::vector<Overrides> listed(const std::string& path, const Overrides& common) {
  const std::vector<uint8_t> bytes = read_file(path, kMaxListBytes);
  TextReader lines(std::string(bytes.begin(), bytes.end()));
  std::vector<Overrides> runs;
  for (std::string line; std::getline(lines, line);) {
    Overrides run = common;
    bool any = false;
    for (const std::string& part : cut(line, ' ')) {
      const std::string word = unquoted(part);
      if (word.empty()) continue;
      if (!any && word.starts_with('#')) break;
      check_word(word);
      run.push_back(word);
      any = true;
    }
    if (any) runs.push_back(run);
  }
  require(!runs.empty(), "sweep", path, " lists no run. Expected key=value words, a run for each line");
  return runs;
}

// The folder name of a run, derived from its overrides; `number` counts from 1.
std::string run_name(const Overrides& overrides, size_t number) {
  constexpr size_t kMax = 80;
  std::string name;
  for (const std::string& word : overrides) {
    const std::string key = key_of(word), value = word.starts_with('~') ? "default" : word.substr(word.find('=') + 1);
    name += concat(name.empty() ? "" : "_", key.substr(key.rfind('.') + 1), '=', value);
  }
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-' && c != '_' && c != '=' && c != '+')
      c = '-';
  if (name.empty()) return "run";
  // The number distinguishes truncated names.
  return name.size() <= kMax ? name : concat(name.substr(0, kMax), '-', number);
}

void add_keys(const Overrides& overrides, std::vector<std::string>& keys) {
  for (const std::string& word : overrides)
    if (std::find(keys.begin(), keys.end(), key_of(word)) == keys.end()) keys.push_back(key_of(word));
}

// The value of a key, "" if it is not there.
std::string value_in(const Overrides& overrides, const std::string& key) {
  std::string value;
  for (const std::string& word : overrides)
    if (key_of(word) == key) value = word.starts_with('~') ? "default" : word.substr(word.find('=') + 1);
  return value;
}

// ---- the sweep

struct SweepOptions {
  std::string config, list, out, data;
  std::vector<std::string> axes;
  bool dry_run = false, verbose = false, json = false;
};

enum class State { kAbsent, kResumable, kFinished, kLost };

struct SweepRun {
  std::vector<std::string> overrides;
  std::string name, folder;
  State state = State::kAbsent;
  RunResult result = {};
};

State state_of(const std::string& folder) {
  if (!file_system().exists(folder)) return State::kAbsent;
  const Json summary = read_summary(folder);
  const bool finished = summary.is_object() && summary.value("status", std::string()) == "finished";
  if (finished && stale_last(folder).empty()) return State::kFinished;
  const bool saved =
      file_system().exists(folder + "/last.safetensors") || file_system().exists(folder + "/best.safetensors");
  return saved ? State::kResumable : State::kLost;
}

// Keys that do not affect what a run trains.
bool of_place(const std::string& key) {
  return key.starts_with("run.") || key.starts_with("device.") || key == "data.root";
}

// A finished run counts only if it trained the configuration that is requested now.
void require_same(const SweepRun& run, const RunConfig& wanted) {
  std::string changed;
  RunConfig there = run_folder_config(run.folder);
  if (wanted.data.class_names.empty()) there.data.class_names.clear();  // the run has those of its data
  if (wanted.data.train.classes == 0) there.data.train.classes = 0;
  if (wanted.data.valid && there.data.valid && wanted.data.valid->classes == 0) there.data.valid->classes = 0;
  if (wanted.data.test && there.data.test && wanted.data.test->classes == 0) there.data.test->classes = 0;
  for (const ConfigDifference& d : config_differences(there, wanted))
    if (!of_place(d.key))
      changed += concat("\n  ", d.key, ": ", d.a.value_or("(not set)"), " there, ", d.b.value_or("(not set)"), " now");
  require(changed.empty(), "sweep", run.folder, " holds a run of another configuration:", changed,
          "\nName another folder with --out");
}

// Whether a run that was killed before its first checkpoint and its summary left this folder: nothing of worth is in
// it.
bool is_empty_shell(const std::string& folder) {
  constexpr std::string_view kFiles[] = {"config.yaml",   "config.source.yaml", "run.json",
                                         "metrics.jsonl", "results.csv",        "train.log"};
  if (!file_system().is_directory(folder)) return false;
  const std::vector<std::string> names = file_system().list(folder);
  return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    return bitgrad::detail::is_temporary(name) ||
           std::find(std::begin(kFiles), std::end(kFiles), name) != std::end(kFiles);
  });
}

// Makes room for a run of the same name.
void clear_shell(const std::string& folder) {
  if (!is_empty_shell(folder)) return;
  const auto lock = file_system().lock_directory(folder);
  require(lock != nullptr, "sweep", "another process trains in '", folder, "'. Wait until it ends, or stop it first");
  for (const std::string& name : file_system().list(folder)) file_system().remove(folder + '/' + name);
}

// Selects the first of the folders NAME, NAME.2, ... that is not lost. A run that failed before its first checkpoint is
// left as it is, and a new one starts beside it; one that was killed begins again.
void find_folder(SweepRun& run, const std::string& out) {
  for (int attempt = 1;; ++attempt) {
    run.folder = concat(out, '/', run.name, attempt == 1 ? "" : concat('.', attempt));
    run.state = state_of(run.folder);
    if (run.state == State::kLost && is_empty_shell(run.folder)) run.state = State::kAbsent;
    if (run.state != State::kLost) return;
  }
}

// Returns the exit code of `bitgrad train`, or 128 + the signal that ended it.
int train(const SweepOptions& options, const SweepRun& run) {
  std::vector<std::string> words{"train"};
  if (run.state == State::kResumable) {
    words.insert(words.end(), {"--resume", run.folder});
    for (const Plugin& plugin : loaded_plugins()) words.insert(words.end(), {"--plugin", plugin.path});
  } else {
    words.insert(words.end(), {options.config, "--out", run.folder});
    words.insert(words.end(), run.overrides.begin(), run.overrides.end());
  }
  if (!options.data.empty()) words.insert(words.end(), {"--data", options.data});
  if (!options.verbose) words.push_back("--quiet");
  return run_child(words,
                   options.verbose ? options.json ? ChildOutput::kError : ChildOutput::kOutput : ChildOutput::kNone);
}

std::string without_summary(const SweepRun& run) {
  return state_of(run.folder) == State::kAbsent ? "not started" : "not finished";
}

std::vector<std::vector<std::string>> results(const std::vector<SweepRun>& runs, const std::vector<std::string>& keys) {
  std::vector<std::vector<std::string>> table{keys};
  const std::vector<std::string> head = run_head();
  table[0].insert(table[0].end(), head.begin(), head.end());
  for (const SweepRun& run : runs) {
    std::vector<std::string>& row = table.emplace_back();
    for (const std::string& key : keys) row.push_back(value_in(run.overrides, key));
    const std::vector<std::string> cells = run_cells(run.result, without_summary(run));
    row.insert(row.end(), cells.begin(), cells.end());
  }
  return table;
}

// A number, true or false as such; everything else as the text that was given.
Json as_json(const std::string& value) {
  try {
    Json j = Json::parse(value);
    if (j.is_number() || j.is_bool()) return j;
  } catch (const JsonError&) {
  }
  return value;
}

Json to_json(const std::vector<SweepRun>& runs, const std::vector<std::string>& keys, const std::string& best) {
  Json j{{"best", best.empty() ? Json(nullptr) : Json(best)}, {"runs", Json::array()}};
  for (const SweepRun& run : runs) {
    Json values = Json::object();
    for (const std::string& key : keys)
      if (const std::string value = value_in(run.overrides, key); !value.empty()) values[key] = as_json(value);
    Json item{{"name", run.name}, {"values", values}};
    item.update(run_json(run.result, without_summary(run)));
    j["runs"].push_back(item);
  }
  return j;
}

void write_csv(const std::string& path, const std::vector<std::vector<std::string>>& table) {
  std::string text;
  for (const std::vector<std::string>& row : table) text += joined(row, ",", csv_field) + '\n';
  write_file_atomically(path, text);
}

// The table, its file and the best run; or all of it as JSON.
void show(std::vector<SweepRun>& runs, const SweepOptions& options, const std::string& out) {
  std::vector<std::string> keys;
  std::vector<RunResult> all;
  for (SweepRun& run : runs) {
    run.result = read_result(run.folder);  // also of those that this sweep did not reach
    all.push_back(run.result);
    add_keys(run.overrides, keys);
  }
  const auto table = results(runs, keys);
  if (!options.dry_run) write_csv(out + "/sweep.csv", table);
  const std::string best = best_folder(all);
  std::ostream& text = text_output(options.json);
  print_table(text, table);
  if (!best.empty()) text << "best: " << best << '\n';
  if (!options.dry_run) text << "table: " << printable(out) << "/sweep.csv\n";
  if (options.json) std::cout << to_json(runs, keys, best).dump(2) << '\n';
}

// Plans all runs before one starts, so that errors are reported up front.
std::vector<SweepRun> plan(const SweepOptions& options, const std::string& out) {
  std::vector<SweepRun> runs;
  for (std::vector<std::string>& overrides :
       options.list.empty() ? grid(options.axes) : listed(options.list, options.axes)) {
    SweepRun& run = runs.emplace_back();
    run.name = run_name(overrides, runs.size());
    run.overrides = std::move(overrides);
    const RunConfig config = load_config(options.config, with_data_root(run.overrides, options.data));
    find_folder(run, out);
    if (run.state == State::kFinished || run.state == State::kResumable) require_same(run, config);
  }
  for (size_t i = 0; i < runs.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      require(runs[i].folder != runs[j].folder, "sweep", "two runs have the same overrides: ", runs[i].name);
  return runs;
}

std::unique_ptr<FileLock> lock_sweep(const std::string& out) {
  auto lock = file_system().lock_directory(out);
  require(lock != nullptr, "sweep", "another sweep works in '", out,
          "'. Wait until it ends, stop it, or name another folder with --out");
  return lock;
}

int run_sweep(const SweepOptions& options) {
  const RunConfig base = load_config(options.config, {}, {});
  const std::string out = options.out.empty() ? concat(base.run.dir, '/', base.run.name, "-sweep") : options.out;
  std::unique_ptr<FileLock> lock;
  if (!options.dry_run && file_system().is_directory(out)) lock = lock_sweep(out);  // before what it holds is read
  std::vector<SweepRun> runs = plan(options, out);
  int code = 0;
  if (!options.dry_run) {
    std::error_code wrong;
    std::filesystem::create_directories(out, wrong);
    if (wrong) fail_with(ErrorCode::kMemory, "sweep", "folder '", out, "' cannot be made: ", wrong.message());
    if (!lock) lock = lock_sweep(out);
    pass_signals_on();
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    SweepRun& run = runs[i];
    const char* what = run.state == State::kFinished    ? "finished before"
                       : run.state == State::kResumable ? "resumes"
                                                        : "";
    std::cerr << '[' << i + 1 << '/' << runs.size() << "] " << run.name << (*what != 0 ? ": " : "") << what << '\n';
    if (run.state != State::kFinished && !options.dry_run) {
      if (run.state == State::kAbsent) clear_shell(run.folder);
      const int ended = train(options, run);
      code = code == 0 ? ended : code;
      const bool stopped = ended == 130 || ended == 75 || ended > 128 || passed_signal() != 0;
      if (passed_signal() != 0) code = passed_signal() == SIGINT ? 130 : 75;
      if (stopped) std::cerr << "stopped. The same command goes on where it ended\n";
      if (stopped) break;
    }
  }
  show(runs, options, out);
  return code;
}

}  // namespace

Run setup_sweep(Arguments& args) {
  auto options = std::make_shared<SweepOptions>();
  args.option("config", options->config, "configuration file").required();
  args.option("overrides", options->axes,
              "key=a,b,c tries each value, several keys every combination; key=a sets one value in all runs");
  args.option("--list", options->list,
              "read the runs from this file instead of combining values: one run per line, as key=value arguments");
  args.option("--out", options->out,
              "folder for the run folders and sweep.csv; default: <run.dir>/<run.name>-sweep. Finished runs "
              "are not repeated");
  args.option("--data", options->data, "data folder, same as data.root=DIR");
  args.flag("--dry-run", options->dry_run, "list the runs without starting them");
  args.flag("-v,--verbose", options->verbose, "show the progress and the result of each run");
  args.flag("--json", options->json,
            "one JSON object on standard output: the runs, their values, results and the best");
  return [options] { return run_sweep(*options); };
}

}  // namespace bitgrad::cli
