// Checkpoints and model files as arguments of commands.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bitgrad/run/trainer.h"
#include "cli/arguments.h"

namespace bitgrad::cli {

// The model that a command works on, which checkpoint of a folder, and what of its configuration is otherwise.
struct ModelChoice {
  std::string target = {};                // run folder, checkpoint, model file or models/NAME
  std::vector<std::string> plugins = {};  // loaded before it is opened
  std::vector<std::string> overrides = {};
  std::string data = {};  // option --data
  bool best = false, last = false;
  std::string last_option = "--last";  // what the command calls the option
};
inline constexpr const char* kTargetHelp =
    "run folder (its best checkpoint if data.valid chose it, else its last), checkpoint or converted model, or "
    "models/NAME for a shipped one (bitgrad models)";
// Option --plugin and argument `target` of a command.
void add_target(Arguments& args, ModelChoice& choice);
// Options --best and --last of a command; `last`: the name of the latter where --last is taken.
void add_choice_options(Arguments& args, ModelChoice& choice, const std::string& last = "--last");
// Opens it, and says on standard error which checkpoint of a folder was used.
OpenedFile open_target(const ModelChoice& choice);
// The same for a command that computes: kernels are chosen by the costs that were measured on this machine.
OpenedFile open_to_compute(const ModelChoice& choice);

// Option --plugin of a command without a target. load_named_plugins loads the libraries.
void add_plugin_option(Arguments& args, std::vector<std::string>& paths);
void load_named_plugins(const std::vector<std::string>& paths);

// Returns the overrides with data.root set as by option --data; unchanged if `data` is empty. all_overrides: of a
// choice.
std::vector<std::string> with_data_root(std::vector<std::string> overrides, const std::string& data);
std::vector<std::string> all_overrides(const ModelChoice& choice);
inline constexpr const char* kDataHelp =
    "data folder, same as data.root=DIR; else $BITGRAD_DATA, else where the run read it";
// Opens data.test of the file's configuration, else data.valid, else data.train. A file that no run wrote needs an
// override that names one of them.
std::unique_ptr<Dataset> data_of(const OpenedFile& file, const ModelChoice& choice);
// The windows of a text file, by the tokenizer of the model file. stride: between windows; 0: adjacent.
std::unique_ptr<Dataset> text_of(const OpenedFile& file, const std::string& text, int64_t stride);
// Where the best model was: "at epoch 3", or "at step 750" for runs whose length is given in steps.
std::string best_place(const RunCounters& counters, const RunConfig& config);
// The status in a run's summary; empty if it has not ended, or its summary cannot be read.
std::string status_of_run(const std::string& folder);
// "checkpoint runs/a/last.safetensors: mnist, step 100, epoch 2, ..."
std::string describe(const OpenedFile& file);

}  // namespace bitgrad::cli
