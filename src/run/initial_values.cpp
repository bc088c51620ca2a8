#include "run/initial_values.h"

#include <algorithm>
#include <optional>

#include "bitgrad/base/file.h"
#include "bitgrad/base/log.h"
#include "bitgrad/base/text.h"
#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/checkpoint/run_folder.h"
#include "bitgrad/interop/interop.h"
#include "bitgrad/interop/model_origin.h"
#include "bitgrad/run/adapters.h"
#include "interop/hugging_face.h"
#include "run/adapter_files.h"
#include "train/train_state.h"

namespace bitgrad::detail {
namespace {

std::string normalization_text(const DataSection& data) {
  const Normalization& n = data.normalize;
  if (!n.given()) return concat("affine: [", data.affine[0], ", ", data.affine[1], ']');
  return concat("normalize: {mean: [", joined(n.mean), "], std: [", joined(n.std), "]}");
}

// Adapters count by alpha / rank. Of another rank, they have another shape.
void check_adapters(const RunConfig& config, const RunConfig& there, const InitFrom& found, const std::string& file) {
  if (!config.adapters || !there.adapters || config.adapters->adapter.alpha == there.adapters->adapter.alpha) return;
  const auto adapter = std::find_if(found.taken.begin(), found.taken.end(),
                                    [](const std::string& name) { return name.ends_with(".adapter.b"); });
  if (adapter != found.taken.end())
    fail_with(ErrorCode::kData, "init_from", *adapter, " of ", file, " was trained with adapters.alpha ",
              there.adapters->adapter.alpha, ", got ", config.adapters->adapter.alpha,
              ": what it learned would count otherwise. Keep alpha, or begin new adapters: model.ignore: "
              "['*.adapter.*']");
}

// Weights go with the inputs that they were trained on.
void check_inputs(const RunConfig& config, const RunConfig& there, const CheckpointHeader& header, const Dataset* data,
                  const std::string& file) {
  constexpr const char* kAccept = ". model.other_inputs: true accepts that";
  if (config.other_inputs) return;
  const bool values = data == nullptr || data->dtype() == dtypes::fp32;
  const std::string ours = normalization_text(config.data), theirs = normalization_text(there.data);
  require(!values || ours == theirs, "init_from", "inputs are normalized otherwise: got data.", ours, ", the run of ",
          file, " had data.", theirs, ". Its weights expect those inputs", kAccept);
  if (data == nullptr) return;
  try {
    require_same_tokenizer(header, file, *data);
  } catch (const Error& e) {
    throw Error(concat(e.what(), kAccept), e.code());
  }
}

std::string note_of(const InitFrom& found, const std::string& file) {
  std::string note = concat("initial values from ", file, ": ", found.taken.size(), " tensors copied");
  if (!found.fresh.empty()) note += "; newly initialized: " + names_text(found.fresh);
  if (!found.quantization.empty()) note += "; of another precision, not used: " + names_text(found.quantization);
  return note;
}

void warn_of_unused(const InitFrom& found, const std::string& file) {
  std::vector<std::string> unused;
  for (const std::string& name : found.skipped)
    if (std::find(found.quantization.begin(), found.quantization.end(), name) == found.quantization.end())
      unused.push_back(name);
  if (!unused.empty())
    log(LogLevel::kWarning, concat("initial values from ", file, ": this model has no place for ", names_text(unused)));
}

void warn_of_ignored(const InitFrom& found, const std::string& file) {
  if (!found.ignored.empty() || !found.own.empty())
    log(LogLevel::kWarning,
        concat("initial values from ", file, ": model.ignore leaves out ", names_text(found.ignored),
               found.own.empty() ? std::string() : "; own initial values: " + names_text(found.own)));
}

void warn_of_moving(const InitFrom& found, const std::string& file) {
  if (!found.moving.empty())
    log(LogLevel::kWarning,
        concat("initial values from ", file, ": it has the codes of ", names_text(found.moving),
               " without masters, and their scheme makes other codes and scales of these codes' values, so the first "
               "update moves all of them. Start from a checkpoint that has the masters"));
}

// Empty if the file has none, or if `data` have another tokenizer.
std::string initial_origin(const RunConfig& config, const Dataset* data) {
  if (is_weight_file(config.init_from)) {
    const bool folder = file_system().exists(config.init_from + "/config.json");
    if (!folder) return "";
    std::vector<std::string> notes;
    std::string origin = to_text(interop::origin_of_folder(config.init_from, notes));
    for (const std::string& note : notes) log(LogLevel::kInfo, concat(config.init_from, ": ", note));
    return origin;
  }
  const std::string file = checkpoint_of(config.init_from);
  const CheckpointHeader header = read_checkpoint_header(file);
  const auto ours = data == nullptr ? nullptr : data->tokenizer(), theirs = tokenizer_of(header, file);
  const bool other = ours != nullptr && theirs != nullptr && !tokenizer_difference(*ours, *theirs).empty();
  return other ? "" : header.origin;  // the ids of another tokenizer mean nothing here
}

}  // namespace

std::string take_initial_values(const RunConfig& config, const Dataset* data, Learner& learner) {
  Module& model = learner.model();
  const std::optional<ModelRecord> record = model_record(learner);
  const bool foreign = is_weight_file(config.init_from);
  const std::string file = foreign ? config.init_from : checkpoint_of(config.init_from);
  CheckpointHeader header;
  std::optional<RunConfig> there;
  if (!foreign) header = read_checkpoint_header(file);
  if (!header.config.empty())
    there = parse_config(header.config, file, {}, {.plugins = ConfigSource::Plugins::kLoaded});
  if (there) check_inputs(config, *there, header, data, file);
  const WeightMap map{config.rename, config.ignore};
  const InitFrom found = foreign ? init_from_weights(file, model, map) : init_from(file, model, map);
  if (there) check_adapters(config, *there, found, file);
  if (!foreign) warn_of_unused(found, file);  // of another program, what is not used is an error
  warn_of_ignored(found, file);
  warn_of_moving(found, file);
  std::string note = note_of(found, file);
  if (config.adapters && !config.adapters->init_from.empty()) {
    load_adapters(config.adapters->init_from, model, record ? to_text(*record) : std::string());
    note += "; adapters from " + config.adapters->init_from;
  }
  learner.train_state().origin = initial_origin(config, data);
  return note;
}

}  // namespace bitgrad::detail
