// Checkpoints and model files as the commands take them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bitgrad/train/opened_file.h"
#include "bitgrad/train/trainer.h"
#include "cli/arguments.h"

namespace bitgrad::cli {

// Option --plugin of a command: its libraries are loaded by load_named_plugins, before a file is opened.
void add_plugin_option(Arguments& args, std::vector<std::string>& paths);
void load_named_plugins(const std::vector<std::string>& paths);
// The overrides with data.root as option --data gives it; empty: as they are.
std::vector<std::string> with_data_root(std::vector<std::string> overrides, const std::string& data);
inline constexpr const char* kDataHelp =
    "folder of the data, as data.root=DIR; else $BITGRAD_DATA, else where the run read it";
// data.test of its configuration, else data.valid, else data.train; a file that no run wrote needs an override that
// names them.
std::unique_ptr<Dataset> data_of(const OpenedFile& file, const std::vector<std::string>& overrides);
// The windows of a text file, by the tokenizer in the model's file. stride: of the windows; 0: side by side.
std::unique_ptr<Dataset> text_of(const OpenedFile& file, const std::string& text, int64_t stride);
// "at epoch 3", of runs whose length is given in steps "at step 750": where the best model was.
std::string best_place(const RunCounters& counters, const RunConfig& config);
// "checkpoint runs/a/last.safetensors: mnist, step 100, epoch 2, ..."
std::string describe(const OpenedFile& file);

}  // namespace bitgrad::cli
