#include "train/checkpoint/records.h"

#include <nlohmann/json.hpp>

namespace bitgrad::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

Json state_record(const CheckpointHeader& h) {
  return {{"format_version", kCheckpointFormat},
          {"step", h.step},
          {"microbatch", h.microbatch},
          {"since_requantize", h.since_requantize},
          {"epoch", h.counters.epoch},
          {"position", h.counters.position},
          {"seed", h.seed},
          {"best", {{"accuracy", h.counters.best_accuracy}, {"epoch", h.counters.best_epoch}}},
          {"last_accuracy", h.counters.last_accuracy}};
}

const std::string& metadata_text(const SafetensorsFile& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end())
    bad(file.path(), "has no '" + key + "' in its metadata: it is not a bitgrad checkpoint");
  return found->second;
}

Json metadata_json(const SafetensorsFile& file, const std::string& key) {
  try {
    return Json::parse(metadata_text(file, key));
  } catch (const nlohmann::json::exception& e) {
    bad(file.path(), "'" + key + "' is not JSON: " + e.what());
  }
}

// As reading(), also for metadata of another form than expected.
template <typename F>
auto reading_json(const std::string& path, F&& read) {
  return reading(path, [&] {
    try {
      return read();
    } catch (const nlohmann::json::exception& e) {
      bad(path, std::string("malformed metadata: ") + e.what());
    }
  });
}

}  // namespace

void bad(const std::string& path, const std::string& what) {
  fail_with(ErrorCode::kData, "checkpoint", path, ": ", what);
}

std::string kind_of(const SafetensorsFile& file) {
  const auto found = file.metadata().find("bitgrad.kind");
  const std::string kind(found != file.metadata().end() ? found->second : kCheckpointKind);
  if (kind != kModelKind && kind != kCheckpointKind) bad(file.path(), "is of an unknown kind, '" + kind + "'");
  return kind;
}

std::string tensors_text(Module& model) {
  detail::CodesRecords records;
  for (Parameter* p : model.parameters())
    if (p->low_bit()) records.emplace_back(p->path() + ".codes", detail::codes_record(p->value()));
  return detail::codes_records_text(records);
}

std::map<std::string, CodesRecord> read_tensors(const SafetensorsFile& file) {
  return reading(file.path(), [&] {
    const detail::CodesRecords records =
        detail::parse_codes_records(metadata_text(file, std::string(detail::kCodesKey)));
    return std::map<std::string, CodesRecord>(records.begin(), records.end());
  });
}

CheckpointHeader header_of(Learner& learner, const RunCounters& counters) {
  CheckpointHeader h;
  h.counters = counters;
  h.step = learner.state().step;
  h.microbatch = learner.state().microbatch;
  h.since_requantize = learner.since_requantize();
  h.seed = learner.state().seed;
  h.phase = learner.phase();
  return h;
}

std::string counters_text(const CheckpointHeader& header, bool phases) {
  Json state = state_record(header);
  if (phases) state["phase"] = header.phase;
  return state.dump();
}

std::string state_text(const CheckpointHeader& header) {
  Json state = state_record(header);
  state["phase"] = header.phase;
  state["train_seconds"] = header.counters.train_seconds;
  state["unreported"] = {{"loss", header.counters.unreported_loss},
                         {"correct", header.counters.unreported_correct},
                         {"samples", header.counters.unreported_samples}};
  if (header.counters.metrics_bytes > 0)
    state["metrics"] = {{"bytes", header.counters.metrics_bytes}, {"crc32c", header.counters.metrics_crc}};
  return state.dump();
}

CheckpointHeader read_state(const SafetensorsFile& file) {
  return reading_json(file.path(), [&] {
    const Json state = metadata_json(file, "bitgrad.state");
    const int version = state.at("format_version").get<int>();
    if (version != kCheckpointFormat)
      bad(file.path(), concat("format version ", version, ", this program reads ", kCheckpointFormat));
    CheckpointHeader h;
    h.step = state.at("step").get<int64_t>();
    h.microbatch = state.at("microbatch").get<int64_t>();
    h.since_requantize = state.at("since_requantize").get<int64_t>();
    h.seed = state.at("seed").get<uint64_t>();
    h.counters.epoch = state.at("epoch").get<int64_t>();
    h.counters.position = state.at("position").get<int64_t>();
    h.counters.best_accuracy = state.at("best").at("accuracy").get<double>();
    h.counters.best_epoch = state.at("best").at("epoch").get<int64_t>();
    h.counters.last_accuracy = state.at("last_accuracy").get<double>();
    h.counters.train_seconds = state.at("train_seconds").get<double>();
    if (state.contains("unreported")) {  // not in files of older programs
      const Json& sums = state.at("unreported");
      h.counters.unreported_loss = sums.at("loss").get<double>();
      h.counters.unreported_correct = sums.at("correct").get<int64_t>();
      h.counters.unreported_samples = sums.at("samples").get<int64_t>();
    }
    if (state.contains("metrics")) {  // nor this
      h.counters.metrics_bytes = state.at("metrics").at("bytes").get<int64_t>();
      h.counters.metrics_crc = state.at("metrics").at("crc32c").get<uint32_t>();
    }
    h.phase = state.value("phase", int64_t{0});  // files of older programs have none
    for (const int64_t counter : {h.step, h.microbatch, h.since_requantize, h.phase, h.counters.epoch,
                                  h.counters.position, h.counters.best_epoch, h.counters.unreported_correct,
                                  h.counters.unreported_samples, h.counters.metrics_bytes})
      if (counter < 0) bad(file.path(), "a counter is negative");
    const auto text = [&](const char* key) {
      const auto found = file.metadata().find(key);
      if (found == file.metadata().end()) bad(file.path(), std::string("has no '") + key + "' in its metadata");
      return found->second;
    };
    h.config = text("bitgrad.config");
    h.kernel_hash = text("bitgrad.kernels");
    return h;
  });
}

}  // namespace bitgrad::checkpoint
