// The models that ship with the program: a folder NAME for each, with model.safetensors (what `convert` writes),
// train.yaml (the configuration that trained it), card.json (what a person says of it) and README.md (its card).
#pragma once

#include <string>
#include <vector>

namespace bitgrad::cli {

inline constexpr const char *kModelFile = "model.safetensors", *kTrainFile = "train.yaml", *kFactsFile = "card.json",
                            *kCardFile = "README.md";

// card.json: what neither the model file nor train.yaml says.
struct ModelFacts {
  std::string summary = {};  // one line: data, network, bits
  std::string task = {};     // as hubs of models name it, such as image-classification
  std::string data_name = {}, data_id = {}, data_license = {}, data_source = {};
  std::string data_record = {};            // of data.test: to_string(samples_record())
  std::string metric = {}, value = {};     // the digits that `bitgrad models check` compares
  std::vector<std::string> commands = {};  // that made the model file
  std::vector<std::string> limits = {};
};
struct ShippedModel {
  std::string name = {}, folder = {};
  std::string file(const std::string& name_of_file) const { return folder + '/' + name_of_file; }
};

// Where the shipped models are: $BITGRAD_MODELS, else share/bitgrad/models beside the program's folder, of an
// installation and of a build, else bitgrad/models in an absolute CMAKE_INSTALL_DATADIR.
std::string models_folder();
// Their names, sorted; empty if there is no such folder.
std::vector<std::string> shipped_names();
// Throws Error with the known names. `path`: the path that was looked for before, named in that error; empty: none.
ShippedModel shipped_model(const std::string& name, const std::string& path = {});
// Throws Error(kData) naming the file and the member that is missing or of another type.
ModelFacts read_facts(const ShippedModel& model);
// A run folder or file as it was given, or the file of a shipped model for models/NAME (unless such a path exists) and
// for its folder. Throws Error with the known names.
std::string model_path(const std::string& target);

}  // namespace bitgrad::cli
