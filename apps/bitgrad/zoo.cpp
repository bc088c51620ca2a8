#include "zoo.h"

#include <cstdlib>
#include <filesystem>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/program.h"
#include "bitgrad/base/text.h"

namespace bitgrad::cli {
namespace {

constexpr const char* kVariable = "BITGRAD_MODELS";
constexpr std::string_view kPrefix = "models/";
constexpr int64_t kLongestFacts = int64_t{1} << 20;  // of card.json

bool is_file(const std::string& path) { return file_system().exists(path) && !file_system().is_directory(path); }

bool holds_model(const std::string& folder) {
  return is_file(folder + '/' + kFactsFile) && is_file(folder + '/' + kModelFile);
}

std::string known_text(const std::vector<std::string>& names) {
  if (names.empty())
    return concat("no models are installed at ", models_folder(), "; ", kVariable, " names another folder");
  return "Known: " + joined(names);
}

}  // namespace

std::string models_folder() {
  if (const char* const given = std::getenv(kVariable); given != nullptr && *given != '\0') return given;
  // An absolute share folder replaces what is before it. Only a build then has one beside the folder of its program.
  const std::filesystem::path above = std::filesystem::path(program_folder()) / "..", share = BITGRAD_SHARE_FOLDER;
  const std::filesystem::path of_build = (above / "share/bitgrad/models").lexically_normal();
  if (share.is_absolute() && file_system().is_directory(of_build)) return of_build;
  return (above / share / "bitgrad/models").lexically_normal();
}

std::vector<std::string> shipped_names() {
  const std::string folder = models_folder();
  std::vector<std::string> names;
  if (!file_system().is_directory(folder)) return names;
  for (const std::string& name : file_system().list(folder))
    if (holds_model(concat(folder, '/', name))) names.push_back(name);
  return names;
}

ShippedModel shipped_model(const std::string& name, const std::string& path) {
  const std::vector<std::string> names = shipped_names();
  for (const std::string& known : names)
    if (known == name) return {name, concat(models_folder(), '/', name)};
  const std::string near = nearest_name(name, names);
  fail("models", "no shipped model is called '", name, "'",
       path.empty() ? "" : concat(", and ", path, " does not exist"), ". ",
       near.empty() ? "" : concat("Did you mean '", near, "'? "), known_text(names));
}

ModelFacts read_facts(const ShippedModel& model) {
  const std::string path = model.file(kFactsFile);
  const std::vector<uint8_t> bytes = read_file(path, kLongestFacts);
  try {
    const Json j = Json::parse(std::string(bytes.begin(), bytes.end()));
    const Json& data = j.at("data");
    ModelFacts facts{.summary = j.at("summary").text(),
                     .task = j.at("task").text(),
                     .data_name = data.at("name").text(),
                     .data_id = data.at("id").text(),
                     .data_license = data.at("license").text(),
                     .data_source = data.at("source").text(),
                     .data_record = data.at("record").text(),
                     .metric = j.at("metric").text(),
                     .value = j.at("value").text(),
                     .commands = j.at("commands").get<std::vector<std::string>>(),
                     .limits = j.at("limits").get<std::vector<std::string>>()};
    double number = 0;
    if (parse_decimal(facts.value, number) != NumberResult::kOk)
      throw JsonError(concat("value: got '", facts.value, "', expected digits such as \"93.02\""));
    return facts;
  } catch (const JsonError& error) {
    fail_with(ErrorCode::kData, "models", path, ": ", error.what());
  }
}

std::string model_path(const std::string& target) {
  std::string path = target;
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  if (file_system().exists(path)) {
    const bool shipped = file_system().is_directory(path) && holds_model(path);
    return shipped ? concat(path, '/', kModelFile) : target;
  }
  const std::string name = path.starts_with(kPrefix) ? path.substr(kPrefix.size()) : "";
  if (name.empty() || name.find('/') != std::string::npos) return target;
  return shipped_model(name, path).file(kModelFile);
}

}  // namespace bitgrad::cli
