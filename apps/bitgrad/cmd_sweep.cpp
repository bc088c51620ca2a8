// bitgrad sweep CONFIG key=a,b,c ...: one run per combination of values, in sequence, each in its own process; then one
// table. Finished runs are not repeated, and interrupted ones are resumed.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/text.h"
#include "bitgrad/base/text_stream.h"
#include "bitgrad/train/plugin.h"
#include "bitgrad/train/run_folder.h"
#include "command.h"
#include "open_file.h"
#include "sweep_grid.h"
#include "table.h"

namespace bitgrad::cli {
namespace {

struct SweepOptions {
  std::string config, list, out, data;
  std::vector<std::string> axes;
  bool dry_run = false, verbose = false;
};

enum class State { kAbsent, kResumable, kFinished, kLost };

struct SweepRun {
  std::vector<std::string> overrides;
  std::string name, folder;
  State state = State::kAbsent;
  Json summary = {};
};

volatile std::sig_atomic_t g_signal = 0;
volatile std::sig_atomic_t g_child = 0;  // the run that trains now; 0: none

// Passes the signal on: the run saves and ends, then the sweep does.
void on_signal(int signal) {
  g_signal = signal;
  if (g_child > 0) kill(static_cast<pid_t>(g_child), signal);
}

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

void pass_signals_on() {
  struct sigaction action {
  }, before{};
  action.sa_handler = on_signal;
  for (const int signal : kSignals) {
    sigaction(signal, nullptr, &before);
    if (signal != SIGHUP || before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);  // nohup stays
  }
}

// Holds the signals back while a child starts, so that none is lost between fork and the first line of on_signal's use
// of it.
class HeldSignals {
 public:
  HeldSignals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : kSignals) sigaddset(&set, signal);
    sigprocmask(SIG_BLOCK, &set, &before_);
  }
  ~HeldSignals() { release(); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;
  void release() const { sigprocmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_ = {};
};

Json summary_of(const std::string& folder) {
  const std::string path = folder + "/summary.json";
  if (!file_system().exists(path)) return Json::object();
  const std::vector<uint8_t> bytes = read_file(path, 1 << 20);
  return Json::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

State state_of(const std::string& folder) {
  if (!file_system().exists(folder)) return State::kAbsent;
  if (summary_of(folder).value("status", std::string()) == "finished" && stale_last(folder).empty())
    return State::kFinished;
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
  std::vector<std::string> words{"bitgrad", "train"};
  if (run.state == State::kResumable) {
    words.insert(words.end(), {"--resume", run.folder});
    for (const Plugin& plugin : loaded_plugins()) words.insert(words.end(), {"--plugin", plugin.path});
  } else {
    words.insert(words.end(), {options.config, "--out", run.folder});
    words.insert(words.end(), run.overrides.begin(), run.overrides.end());
  }
  if (!options.data.empty()) words.insert(words.end(), {"--data", options.data});
  if (!options.verbose) words.push_back("--quiet");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::cout.flush();
  const pid_t parent = getpid();
  const HeldSignals held;
  const pid_t child = fork();
  require(child >= 0, "sweep", "no process can be started");
  if (child == 0) {
    for (const int signal : kSignals) std::signal(signal, SIG_DFL);
    setpgid(0, 0);                     // Ctrl-C reaches the sweep alone, which passes it on once
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // nobody would wait for it
    if (getppid() != parent) _exit(70);
    held.release();
    if (!options.verbose && std::freopen("/dev/null", "w", stdout) == nullptr) _exit(70);
    execv("/proc/self/exe", arguments.data());
    _exit(70);
  }
  g_child = child;
  held.release();
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  g_child = 0;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::string shown(const Json& summary, std::string_view name) {
  return summary.contains(name) && summary.at(name).is_number() ? short_number(summary.at(name).get<double>()) : "-";
}

std::vector<std::vector<std::string>> results(const std::vector<SweepRun>& runs, const std::vector<std::string>& keys) {
  std::vector<std::string> head = keys;
  head.insert(head.end(), {"metric", "best", "last", "steps", "seconds", "status", "folder"});
  std::vector<std::vector<std::string>> table{head};
  for (const SweepRun& run : runs) {
    std::vector<std::string> row;
    for (const std::string& key : keys) row.push_back(value_in(run.overrides, key));
    const Json& s = run.summary;
    row.insert(row.end(),
               {s.value("metric", std::string("-")), shown(s, "best_value"), shown(s, "last_value"), shown(s, "steps"),
                shown(s, "seconds"),
                s.value("status", std::string(state_of(run.folder) == State::kAbsent ? "not started" : "not finished")),
                run.folder});
    table.push_back(row);
  }
  return table;
}

void write_csv(const std::string& path, const std::vector<std::vector<std::string>>& table) {
  std::string text;
  for (const std::vector<std::string>& row : table) {
    for (size_t i = 0; i < row.size(); ++i) {
      std::string cell = row[i];
      for (size_t at = cell.find('"'); at != std::string::npos; at = cell.find('"', at + 2)) cell.insert(at, 1, '"');
      text +=
          concat(i == 0 ? "" : ",", cell.find_first_of(",\"\n") == std::string::npos ? cell : concat('"', cell, '"'));
    }
    text += '\n';
  }
  write_file_atomically(path, text);
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
      const bool stopped = ended == 130 || ended == 75 || ended > 128 || g_signal != 0;
      if (g_signal != 0) code = g_signal == SIGINT ? 130 : 75;
      if (stopped) std::cerr << "stopped. The same command goes on where it ended\n";
      if (stopped) break;
    }
  }
  for (SweepRun& run : runs) run.summary = summary_of(run.folder);  // also of those that this sweep did not reach
  std::vector<std::string> keys;
  for (const SweepRun& run : runs) add_keys(run.overrides, keys);
  const auto table = results(runs, keys);
  print_table(std::cout, table);
  if (!options.dry_run) {
    write_csv(out + "/sweep.csv", table);
    std::cout << "table: " << printable(out) << "/sweep.csv\n";
  }
  return code;
}

}  // namespace

Run setup_sweep(Arguments& args) {
  auto options = std::make_shared<SweepOptions>();
  args.option("config", options->config, "The configuration file.").required();
  args.option("overrides", options->axes,
              "key=a,b,c tries each value, with several keys each combination. key=a sets one value in all runs.");
  args.option("--list", options->list,
              "Take the runs from this file instead of combining values: one a line, as key=value words.");
  args.option("--out", options->out,
              "Folder for the run folders and sweep.csv. Default: <run.dir>/<run.name>-sweep. Runs that are finished "
              "there are not repeated.");
  args.option("--data", options->data, "Folder of the data, as data.root=DIR.");
  args.flag("--dry-run", options->dry_run, "List the runs and start none.");
  args.flag("-v,--verbose", options->verbose, "Show the progress and the result of each run.");
  return [options] { return run_sweep(*options); };
}

}  // namespace bitgrad::cli
