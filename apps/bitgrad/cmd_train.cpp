// bitgrad train CONFIG [key=value ...] [--out DIR] | bitgrad train --resume RUN_DIR [--use-config] [--use-data]
//   [train.stop=...]
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <iostream>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/log.h"
#include "bitgrad/base/memory.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/base/text.h"
#include "bitgrad/base/version.h"
#include "bitgrad/checkpoint/run_folder.h"
#include "bitgrad/config/resume.h"
#include "bitgrad/dist/engines.h"
#include "bitgrad/kernels/gemm_costs.h"
#include "bitgrad/nn/layer_table.h"
#include "bitgrad/run/trainer.h"
#include "bitgrad/tools/budget.h"
#include "command.h"
#include "open_file.h"
#include "output.h"
#include "progress.h"
#include "signals.h"
#include "table.h"
#include "train_ranks.h"

namespace bitgrad::cli {
namespace {

struct TrainOptions {
  std::vector<std::string> plugins;
  std::string config, out, resume, data;
  std::vector<std::string> overrides;
  int64_t ranks = 1, rank_timeout = std::chrono::seconds(kRankTimeout).count();
  bool quiet = false, verbose = false, use_config = false, use_data = false;
};

// ---- the state and configuration from which --resume RUN [key=value ...] continues

struct ResumedRun {
  std::string folder = {}, checkpoint = {};
  std::unique_ptr<FileLock> lock = {};
};

RunConfig config_with(const ResumedRun& run, const CheckpointHeader& saved, const std::vector<std::string>& words,
                      bool use_config) {
  return use_config ? run_folder_config(run.folder, words) : resumed_config(run.checkpoint, saved, words);
}

// Locks the folder of a run, then finds its checkpoint. A run that another process is training is distinguished from
// one that ended before it saved. Errors as in lock_run_folder and run_folder_checkpoint.
ResumedRun open_resumed_run(const std::string& folder) {
  ResumedRun run{folder};
  const bool is_run =
      file_system().exists(folder + "/config.yaml") || file_system().exists(folder + "/last.safetensors");
  if (is_run) run.lock = lock_run_folder(folder);
  run.checkpoint = newest_checkpoint(folder);
  return run;
}

// Returns its configuration with `words` (key=value overrides) applied. use_config: starts from config.yaml instead
// of the saved configuration. Throws Error(kUsage) that lists, with both values, the changed keys that a resumed run
// may not change: all but device.*, data.root, train.stop, train.early_stop and paths of data. Reads the header
// first, because the configuration may name dtypes that the file defines.
RunConfig config_of_resumed(const ResumedRun& run, const std::vector<std::string>& words, bool use_config) {
  const CheckpointHeader saved = read_checkpoint_header(run.checkpoint);
  RunConfig before = config_with(run, saved, {}, use_config);
  if (words.empty()) return before;
  RunConfig config = config_with(run, saved, words, use_config);
  std::string refused;
  for (const ConfigDifference& d : config_differences(config, before))
    if (resume_rule(before, d.key) == ResumeRule::kFixed)
      refused += concat(refused.empty() ? "" : "; ", d.key, ": got ", d.a.value_or("nothing"), ", the run has ",
                        d.b.value_or("nothing"));
  require(refused.empty(), "train", "--resume uses the configuration of the run folder: ", refused,
          ". Only device.*, data.root, train.stop and train.early_stop may change, and paths of the same samples "
          "(data.*.file, path, images, labels, targets, mask)");
  return config;
}

// If nothing is left to train and the summary is written, prints so, with how to train longer, and returns true.
bool print_if_finished(Trainer& trainer, const ResumedRun& run) {
  if (!trainer.ended() || status_of_run(run.folder) != "finished") return false;
  if (run.checkpoint != run.folder + "/last.safetensors") return false;  // the run still has to write that
  const RunConfig& config = trainer.config();
  const bool early = trainer.done_microbatches() < trainer.total_microbatches();
  std::cout << "this run is finished: "
            << (early ? std::string("train.early_stop ended it")
                      : concat("train.stop (", config.train.stop, ") is reached"));
  if (const auto best = trainer.best_value()) {
    const bool percent = is_percentage(trainer.best().metric);
    std::cout << " (best " << *best << (percent ? " % " : " ") << best_place(trainer.counters(), config) << ')';
  }
  std::cout << "\nto train longer: bitgrad train --resume " << run.folder
            << (early ? " '~train.early_stop'" : " train.stop='N epochs'") << '\n';
  return true;
}

// Writes the configuration of a run that `words` changed to its config.yaml.
void keep_changed_config(const Trainer& trainer, const ResumedRun& run, const std::vector<std::string>& words) {
  const bool changes = std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    const std::string key = word.substr(0, word.find('='));
    return key.starts_with("train.") || key.starts_with("~train.") ||
           (key != "data.root" && resume_rule(trainer.config(), key) == ResumeRule::kSamplePath);
  });
  if (changes) write_file_atomically(run.folder + "/config.yaml", to_yaml(trainer.config()));
}

// ---- what a run prints and logs

spdlog::level::level_enum level_of(LogLevel level) {
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                                   spdlog::level::err};
  return kLevels[static_cast<int>(level)];
}

// Log lines from before the run folder exists.
using EarlyLines = std::vector<std::pair<LogLevel, std::string>>;

void show(LogLevel level, std::string_view text, bool verbose, Progress& progress) {
  if (level == LogLevel::kWarning) progress.warn(std::string(text));
  if (level == LogLevel::kInfo && verbose) progress.line(std::string(text));
}

// Until open_log, shows log lines on the screen and keeps them.
void keep_log(EarlyLines& lines, bool verbose, Progress& progress) {
  set_log_sink([&lines, verbose, &progress](LogLevel level, std::string_view text) {
    lines.emplace_back(level, text);
    show(level, text, verbose, progress);
  });
}

// Sends log lines, including the earlier ones, to <folder>/train.log. Warnings also go to the screen, and with
// `verbose` so do info lines.
void open_log(const std::string& folder, const EarlyLines& before, bool verbose, Progress& progress) {
  std::shared_ptr<spdlog::logger> logger;
  const std::string path = folder + "/train.log";
  file_system().open_append(path)->close();  // refuses what spdlog would follow: a link out of the folder, a pipe
  try {
    logger = spdlog::basic_logger_mt("train", path);
  } catch (const spdlog::spdlog_ex& e) {
    fail_with(ErrorCode::kMemory, "train", "the log cannot be written: ", e.what());
  }
  logger->flush_on(spdlog::level::info);
  logger->set_error_handler([said = false, &progress](const std::string& why) mutable {
    if (!std::exchange(said, true)) progress.warn(concat("lines of train.log are lost: ", why));
  });
  for (const auto& [level, text] : before) logger->log(level_of(level), "{}", text);
  set_log_sink([logger, verbose, &progress](LogLevel level, std::string_view text) {
    logger->log(level_of(level), "{}", text);
    show(level, text, verbose, progress);
  });
}

// A checkpoint exists, so the run can be resumed: prints how.
void print_resume_hint(const TrainOutcome& outcome, const std::string& folder) {
  std::cout << "stopped and saved at step " << outcome.optimizer_steps << ". Resume with: bitgrad train --resume "
            << printable(folder) << '\n';
}

int finish(Trainer& trainer, const TrainOutcome& outcome, const std::string& folder) {
  if (outcome.stopped != StopRequest::kNone) {
    print_resume_hint(outcome, folder);
    return exit_code(outcome.stopped);
  }
  ensure(outcome.evaluation.has_value(), "train", "a finished run was not evaluated");
  const Evaluation& e = *outcome.evaluation;
  const bool percent = is_percentage(outcome.metric);
  const auto shown = [&](double value) { return concat(value, percent ? " %" : ""); };
  const std::string& split = outcome.evaluated;
  std::cout << outcome.metric << (outcome.packed ? " on the packed weights: " : ": ")
            << shown(value_of(e.metrics, outcome.metric).value()) << " of " << e.samples
            << (split == "train" ? " training samples, the first ones (data.test is not set)"
                                 : concat(' ', split == "valid" ? "validation" : "test", " samples"));
  if (const auto best = trainer.best_value())
    std::cout << " (best " << shown(*best) << ' ' << best_place(outcome.counters, trainer.config())
              << (split == outcome.selected_on ? "" : concat(" on data.", outcome.selected_on))
              << (outcome.form_since.value_or(0) > 0 ? concat(", since step ", *outcome.form_since) : "") << ')';
  if (outcome.ended_by != "train.stop") std::cout << "\nended early: " << outcome.ended;
  if (outcome.selected_on == "test")
    std::cout << "\nthe best model was chosen on these test samples: set data.valid to choose it on others";
  std::cout << '\n' << outcome.optimizer_steps << " optimizer steps in " << outcome.seconds << " s\n";
  print_memory(std::cout, memory_at_peak());
  std::cout << "run folder: " << printable(folder) << '\n';
  return 0;
}

// The overrides of a resumed run. It has no CONFIG, so the first override may be in its place.
std::vector<std::string> words_of_resumed(const TrainOptions& options) {
  std::vector<std::string> words = options.overrides;
  if (!options.config.empty()) words.insert(words.begin(), options.config);
  for (const std::string& word : words)
    require(word.starts_with('~') || word.find('=') != std::string::npos, "train",
            "--resume uses the configuration of the run folder: got ", word,
            ", expected no CONFIG and only overrides such as train.stop='8 epochs'");
  return with_data_root(words, options.data);
}

// The device, its instruction set and the threads, for the log.
std::string machine_of(Device device) {
  const std::string cpu = concat(cpu_model_name(), ", isa ", isa_names(cpu_isa()), ", threads ", num_threads());
  const DeviceGuard guard(device);
  return device.is_cpu() ? cpu : concat(to_string(device), ' ', device_backend(device).describe(), ", host ", cpu);
}

void report_start(Trainer& trainer, const BudgetPlan& budget, const std::string& folder, bool measured, bool resuming,
                  bool verbose, Progress& progress) {
  const RunConfig& config = trainer.config();
  const Device device = trainer.learner().device();
  log(LogLevel::kInfo, concat("bitgrad ", BITGRAD_VERSION, " (", build_commit(), "), ", machine_of(device), ", bits ",
                              config.run.bits, ", costs ", measured ? kernels::gemm_costs_path() : "as shipped",
                              resuming ? ", resumed" : "", " at step ", trainer.learner().state().step));
  progress.line(
      concat("training ", config.run.name,
             device.is_cpu() ? concat(" with ", num_threads(), " threads") : concat(" on ", to_string(device)),
             " (bits: ", config.run.bits, ") in ", folder));
  if (!budget.table.empty()) progress.line(budget.table);
  TextWriter table;
  print_layer_table(table, trainer.learner().model());
  TextReader lines(table.str());
  for (std::string line; std::getline(lines, line);) {
    log(LogLevel::kInfo, line);
    if (!verbose) progress.line(line);  // otherwise the log shows it
  }
}

// The callbacks by which a run reports to the screen and the log and polls for signals. The arguments outlive the
// run.
TrainHooks hooks_of(Trainer& trainer, bool verbose, Progress& progress) {
  TrainHooks hooks;
  hooks.on_tick = [&](const TrainEvent& e) { progress.tick(e); };
  hooks.on_eval = [&](const EvalEvent& e) {
    progress.evaluated(e);
    log(LogLevel::kInfo, concat("epoch ", e.epoch, " step ", e.step, ' ', e.split,
                                e.accuracy >= 0 ? concat(" accuracy ", e.accuracy) : "", " loss ", e.loss,
                                e.metric == "accuracy" || e.metric == "loss" ? "" : concat(' ', e.metric, ' ', e.value),
                                average_text(e)));
  };
  hooks.on_phase = [&progress, verbose](const std::string& phase) {
    if (!verbose) progress.line(phase);
  };
  hooks.on_checkpoint = [&](const std::string& path) {
    log(LogLevel::kInfo, "saved " + path);
    set_last_saved_step(trainer.learner().state().step);
  };
  hooks.stop_requested = stop_request;
  hooks.cut_evaluation = [] { return stop_request() != StopRequest::kNone; };
  return hooks;
}

bool holds_checkpoint(const std::string& folder) {
  return file_system().exists(folder + "/last.safetensors") || file_system().exists(folder + "/best.safetensors");
}

// A run that was killed before its first checkpoint cannot be resumed: its folder gets another name.
void put_aside(const std::string& folder) {
  if (!file_system().exists(folder + "/config.yaml")) return;
  const auto lock = lock_run_folder(folder);
  std::string name;
  for (int n = 1; name.empty() || file_system().exists(name); ++n) name = concat(folder, ".unsaved-", n);
  file_system().rename(folder, name);
  log(LogLevel::kWarning, concat(folder, " holds no checkpoint: it is now ", name, ", and the run begins anew"));
}

// --resume auto: resumes the folder of --out if it holds a checkpoint, with the configuration there; else begins a run.
TrainOptions with_folder(TrainOptions options) {
  if (options.resume != "auto") return options;
  require(!options.out.empty() && !options.config.empty(), "train",
          "--resume auto needs CONFIG and --out DIR: the folder that is resumed if it holds a checkpoint, else made");
  options.resume.clear();
  if (holds_checkpoint(options.out)) {
    options.resume = std::exchange(options.out, "");
    options.config.clear();
  } else {
    put_aside(options.out);
    options.plugins.clear();
    options.use_config = options.use_data = false;
  }
  return options;
}

void check_options(const TrainOptions& options) {
  const bool resuming = !options.resume.empty();
  require(resuming || !options.config.empty(), "train", "needs a configuration file, or --resume RUN_DIR");
  require(!resuming || options.out.empty(), "train",
          "--out and --resume exclude each other: a resumed run continues in its own folder");
  require(resuming || !options.use_config, "train",
          "--use-config needs --resume: a new run uses the configuration that is passed");
  require(resuming || !options.use_data, "train", "--use-data needs --resume: a new run uses the current data");
  require(resuming || options.plugins.empty(), "train",
          "--plugin needs --resume: a new run lists its plugins in the configuration, or by plugins=[PATH]");
}

std::chrono::milliseconds timeout_of(const TrainOptions& options) {
  constexpr int64_t kMost = 1000000;
  require(options.rank_timeout >= 1 && options.rank_timeout <= kMost, "train", "--rank-timeout: got ",
          options.rank_timeout, ", expected 1 .. ", kMost, " s");
  return std::chrono::seconds(options.rank_timeout);
}

// Trains as the only rank of this process, or the first one.
int train_first(const TrainOptions& given, FirstRank& first, bool measured, EarlyLines& early, Progress& progress) {
  const TrainOptions options = with_folder(given);
  check_options(options);
  const bool resuming = !options.resume.empty();
  const std::vector<std::string> words = resuming ? words_of_resumed(options) : std::vector<std::string>{};
  ResumedRun resumed;
  if (resuming) resumed = open_resumed_run(options.resume);
  std::unique_ptr<FileLock> lock = std::move(resumed.lock);
  if (resuming) open_log(options.resume, early, options.verbose, progress);  // so that warnings of resuming are logged
  const RunConfig config = resuming ? config_of_resumed(resumed, words, options.use_config)
                                    : load_config(options.config, with_data_root(options.overrides, options.data));
  if (resuming && !given.config.empty() && given.resume == "auto")
    progress.line(concat("resuming ", options.resume, " with its own configuration: ", given.config, " is not read"));
  BudgetPlan budget;
  const int64_t ranks = first.ranks() ? first.ranks()->size() : options.ranks;
  const RunConfig resolved = split_for_ranks(resolve_budget(config, &budget), resuming ? 1 : ranks);
  first.tell(resolved, resumed.checkpoint, options.use_data);
  Trainer trainer(resolved);
  if (first.ranks()) trainer.set_ranks(first.ranks());
  ThreadRanks others(trainer, resolved, options.ranks, timeout_of(options), resumed.checkpoint, options.use_data);
  if (resuming) {
    trainer.resume(resumed.checkpoint, options.use_data);
    if (print_if_finished(trainer, resumed)) return 0;
    keep_changed_config(trainer, resumed, words);
    set_last_saved_step(trainer.learner().state().step);
  } else {
    trainer.start();
  }
  std::string folder = options.resume;
  if (!resuming) {
    RunFolder made = start_run_folder(trainer.config(), options.out);
    folder = std::move(made.path);
    lock = std::move(made.lock);
    open_log(folder, early, options.verbose, progress);
  }
  report_start(trainer, budget, folder, measured, resuming, options.verbose, progress);
  others.run();
  first.begin();
  const TrainOutcome outcome = trainer.run(folder, hooks_of(trainer, options.verbose, progress));
  log(LogLevel::kInfo, concat("ended at step ", outcome.optimizer_steps, ", state ", outcome.state_hash));
  progress.erase();  // a step after Ctrl-C may have drawn it again
  const int code = finish(trainer, outcome, folder);
  flush_or_drop_output();
  return code;
}

int run_train(const TrainOptions& options) {
  load_named_plugins(options.plugins);
  install_signal_handlers();
  Progress progress(options.quiet);
  EarlyLines early;
  keep_log(early, options.verbose, progress);
  const bool measured = kernels::load_gemm_costs(kernels::gemm_costs_path());
  const auto launched =
      launched_ranks({.timeout = timeout_of(options), .stop = [] { return stop_request() != StopRequest::kNone; }});
  require(!launched || options.ranks == 1, "train", "--ranks: got ", options.ranks, ", and a launcher has started ",
          launched ? launched->size() : 1, " processes, each of which is one rank. Leave --ranks out");
  if (launched) set_num_threads(static_cast<int>(std::max<int64_t>(1, launched->info().cores)));
  if (launched && launched->rank() > 0) return train_as_other_rank(launched);
  FirstRank first(launched);
  try {
    return train_first(options, first, measured, early, progress);
  } catch (const std::exception& error) {
    first.cancel(error);
    throw;
  }
}

}  // namespace

Run setup_train(Arguments& args) {
  auto options = std::make_shared<TrainOptions>();
  args.option("config", options->config, "YAML file (docs/configuration.md); - reads standard input");
  args.option("overrides", options->overrides,
              "key=value, such as optim.lr=0.01 or model.layers.1.dropout.p=0.1; with --resume: only device.*, "
              "data.root, paths of the data, train.stop and train.early_stop");
  args.option("--out", options->out,
              "folder for this run, which must be empty or not exist; default: runs/NAME/0001, 0002, ...");
  args.option("--resume", options->resume,
              "resume this run folder with the configuration in its checkpoint; auto: resume the folder of --out if it "
              "holds a checkpoint, else begin a run there (needs CONFIG)");
  args.option("--data", options->data, "data folder, same as data.root=DIR");
  add_plugin_option(args, options->plugins);
  args.flag("--use-config", options->use_config, "with --resume: use the current config.yaml, even if it was edited");
  args.flag("--use-data", options->use_data,
            "with --resume: use the current data, even if they changed; the run is then not reproducible bit for bit");
  args.option("--ranks", options->ranks,
              "train with this many ranks, threads that share the microbatches of a step (docs/ranks.md)");
  args.option("--rank-timeout", options->rank_timeout,
              "seconds after which a rank that others wait for counts as lost, and all end; default: 600");
  const Argument quiet = args.flag("-q,--quiet", options->quiet, "print warnings and the result only");
  args.flag("-v,--verbose", options->verbose, "also print the lines of train.log").excludes(quiet);
  return [options] {
    struct SinkGuard {
      ~SinkGuard() { set_log_sink(nullptr); }
    } guard;
    return run_train(*options);
  };
}

}  // namespace bitgrad::cli
