#include "checkpoint/records.h"

#include "bitgrad/base/text.h"
#include "config/lengths.h"
#include "io/metadata.h"
#include "train/train_state.h"

namespace bitgrad::checkpoint {
namespace {

using detail::whole_member;

// Checks that a record belongs to a tensor of the file, whose byte size matches.
void check_record(const SafetensorsFile& file, const std::string& name, const CodesRecord& record) {
  if (!name.ends_with(detail::kCodesEnd))
    bad(file.path(), concat("the metadata has a record of '", name, "', expected one of codes"));
  for (const int64_t size : record.shape.dims())
    if (size < 1)
      bad(file.path(), concat("record of '", name, "': shape: got ", size, ", expected a whole number from 1"));
  if (!file.contains(name)) bad(file.path(), concat("tensor '", name, "' is missing, the metadata has a record of it"));
  const SafetensorsEntry& e = file.entry(name);
  const auto bits = static_cast<__int128>(record.shape.cols()) * record.dtype.bits();
  const bool fits = e.dtype == "U8" && e.shape.size() == 2 && e.shape[0] == record.shape.rows() &&
                    static_cast<__int128>(e.shape[1]) == (bits + 7) / 8;
  if (!fits)
    bad(file.path(), concat("tensor '", name, "' is ", Shape(e.shape), ' ', e.dtype, ", expected the codes of ",
                            record.shape, ' ', record.dtype, ", which its record describes"));
}

Json state_record(const CheckpointHeader& h) {
  const auto number = [](const std::optional<double>& x) { return x ? Json(*x) : Json(nullptr); };
  Json state{{"format_version", kCheckpointFormat},
             {"step", h.step},
             {"microbatch", h.microbatch},
             {"since_requantize", h.since_requantize},
             {"epoch", h.counters.epoch},
             {"position", h.counters.position},
             {"seed", h.seed},
             {"best", {{"accuracy", h.counters.best_accuracy}, {"epoch", h.counters.best_epoch}}},
             {"last_accuracy", h.counters.last_accuracy}};
  if (h.skipped.windows > 0)
    state["skipped"] = {{"windows", h.skipped.windows}, {"microbatches", h.skipped.microbatches}};
  if (!h.counters.metric.empty())
    state["metric"] = {
        {"name", h.counters.metric}, {"best", number(h.counters.best_value)}, {"last", number(h.counters.last_value)}};
  if (h.counters.early_stop_best)
    state["early_stop"] = {{"best", *h.counters.early_stop_best}, {"waited", h.counters.early_stop_waited}};
  if (h.counters.plateau_best)
    state["plateau"] = {{"best", *h.counters.plateau_best},
                        {"waited", h.counters.plateau_waited},
                        {"steps", Json(h.counters.plateaus)}};
  for (const auto& [path, updates] : h.updates) state["updates"][path] = updates;
  return state;
}

int64_t count_in(const Json& from, const std::string& key) {
  return whole_member(from, key, 0, detail::kMostMicrobatches);
}

void read_plateau(const Json& state, CheckpointHeader& h) {
  if (!state.contains("plateau")) return;
  const Json& plateau = state.at("plateau");
  h.counters.plateau_best = plateau.at("best").get<double>();
  h.counters.plateau_waited = count_in(plateau, "waited");
  int64_t before = -1;
  for (const Json& item : plateau.at("steps")) {
    const auto step = item.get<int64_t>();
    require(step > before && step <= h.step, "checkpoint", "plateau: steps: got ", step,
            ", expected ascending steps of the ", h.step, " done");
    h.counters.plateaus.push_back(before = step);
  }
}

void read_updates(const Json& state, CheckpointHeader& h) {
  if (!state.contains("updates")) return;
  for (const auto& [path, updates] : state.at("updates").members())
    h.updates[path] = count_in(state.at("updates"), path);
}

void read_unreported(const Json& sums, RunCounters& counters) {
  counters.unreported_loss = sums.at("loss").get<double>();
  counters.unreported_correct = count_in(sums, "correct");
  counters.unreported_counted = count_in(sums, "samples");
  counters.unreported_weight =
      sums.contains("weight") ? sums.at("weight").get<double>() : static_cast<double>(counters.unreported_counted);
}

Json data_record(const std::map<std::string, SamplesRecord>& data) {
  Json out = Json::object();
  for (const auto& [section, record] : data)
    out[section] = {{"samples", record.samples}, {"shape", record.shape.dims()}, {"crc32c", int64_t{record.crc32c}}};
  return out;
}

std::map<std::string, SamplesRecord> read_data_record(const Json& record) {
  constexpr size_t kMostSections = 3, kMostAxes = 8;
  const Json::Object& sections = record.members();
  require(sections.size() <= kMostSections, "checkpoint", "data: got ", sections.size(), " sections, expected at most ",
          kMostSections);
  std::map<std::string, SamplesRecord> data;
  for (const auto& [section, of] : sections) {
    std::vector<int64_t> dims;
    for (const Json& size : of.at("shape")) dims.push_back(detail::whole_number(size, "shape", 0, INT64_MAX));
    require(dims.size() <= kMostAxes, "checkpoint", "data: shape: got ", dims.size(), " axes, expected at most ",
            kMostAxes);
    data[section] = {whole_member(of, "samples", 0, INT64_MAX), Shape(std::move(dims)),
                     static_cast<uint32_t>(whole_member(of, "crc32c", 0, UINT32_MAX))};
  }
  return data;
}

const std::string& metadata_text(const SafetensorsFile& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end())
    bad(file.path(), "has no '" + key + "' in its metadata: it is not a bitgrad checkpoint");
  return found->second;
}

// Like reading(), but also catches metadata of an unexpected form.
template <typename F>
auto reading_json(const std::string& path, F&& read) {
  return reading(path, [&] {
    try {
      return read();
    } catch (const JsonError& e) {
      bad(path, std::string("malformed metadata: ") + e.what());
    }
  });
}

}  // namespace

void bad(const std::string& path, const std::string& what) {
  fail_with(ErrorCode::kData, "checkpoint", printable(concat(path, ": ", what)));
}

SavedKind kind_of(const SafetensorsFile& file) {
  const auto found = file.metadata().find("bitgrad.kind");
  if (found == file.metadata().end()) return SavedKind::kCheckpoint;
  if (const auto kind = find_enum<SavedKind>(found->second)) return *kind;
  bad(file.path(), concat("is of an unknown kind, '", found->second, "'"));
}

std::string tensors_text(const std::vector<Parameter*>& parameters) {
  detail::CodesRecords records;
  for (const Parameter* p : parameters)
    if (p->low_bit()) records.emplace_back(p->path() + ".codes", detail::codes_record(p->value()));
  return detail::codes_records_text(records);
}

std::map<std::string, CodesRecord> read_tensors(const SafetensorsFile& file) {
  return reading(file.path(), [&] {
    const detail::CodesRecords records =
        detail::parse_codes_records(metadata_text(file, std::string(detail::kCodesKey)));
    for (const auto& [name, record] : records) check_record(file, name, record);
    return std::map<std::string, CodesRecord>(records.begin(), records.end());
  });
}

CheckpointHeader header_of(Learner& learner, const RunCounters& counters) {
  CheckpointHeader h;
  h.counters = counters;
  h.step = learner.state().step;
  h.microbatch = learner.state().microbatch;
  h.since_requantize = learner.since_requantize();
  h.skipped = learner.skipped();
  h.cut_since_requantize = learner.train_state().cut_window.since_requantize;
  h.seed = learner.state().seed;
  h.phase = learner.phase();
  h.updates = learner.optimizer().own_updates();
  h.origin = learner.train_state().origin;
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
                         {"samples", header.counters.unreported_counted}};
  if (header.counters.unreported_weight != static_cast<double>(header.counters.unreported_counted))
    state["unreported"]["weight"] = header.counters.unreported_weight;
  if (header.counters.evaluation_due) state["evaluation_due"] = true;
  if (header.counters.average) state["average"] = true;
  if (!header.counters.data.empty()) state["data"] = data_record(header.counters.data);
  if (header.cut_since_requantize > 0) state["cut_since_requantize"] = header.cut_since_requantize;
  if (header.counters.best_step > 0) state["best_step"] = header.counters.best_step;
  if (!header.counters.selected_on.empty()) state["selected_on"] = header.counters.selected_on;
  if (header.counters.metrics_bytes > 0)
    state["metrics"] = {{"bytes", header.counters.metrics_bytes}, {"crc32c", header.counters.metrics_crc}};
  return state.dump();
}

namespace {

std::string optional_metadata(const SafetensorsFile& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  return found == file.metadata().end() ? std::string() : found->second;
}

}  // namespace

CheckpointHeader read_state(const SafetensorsFile& file) {
  return reading_json(file.path(), [&] {
    const Json state = detail::parse_metadata("bitgrad.state", metadata_text(file, "bitgrad.state"));
    const int64_t version = whole_member(state, "format_version", INT64_MIN, INT64_MAX);
    if (version != kCheckpointFormat)
      bad(file.path(), concat("format version ", version, ", this program reads ", kCheckpointFormat));
    const auto count = count_in;
    CheckpointHeader h;
    h.step = count(state, "step");
    h.microbatch = count(state, "microbatch");
    h.since_requantize = count(state, "since_requantize");
    if (state.contains("skipped"))
      h.skipped = {count(state.at("skipped"), "windows"), count(state.at("skipped"), "microbatches")};
    if (state.contains("cut_since_requantize")) h.cut_since_requantize = count(state, "cut_since_requantize");
    require(state.at("seed").is_integer(), "checkpoint", "seed: expected a whole number");
    h.seed = state.at("seed").get<uint64_t>();
    h.counters.epoch = count(state, "epoch");
    h.counters.position = count(state, "position");
    h.counters.best_accuracy = state.at("best").at("accuracy").get<double>();
    h.counters.best_epoch = count(state.at("best"), "epoch");
    if (state.contains("best_step")) h.counters.best_step = count(state, "best_step");
    if (state.contains("selected_on")) h.counters.selected_on = state.at("selected_on").text();
    h.counters.last_accuracy = state.at("last_accuracy").get<double>();
    if (state.contains("metric")) {  // present if another metric than accuracy selects the best model
      const Json& metric = state.at("metric");
      const auto number = [&](const char* key) {
        return metric.at(key).is_null() ? std::optional<double>() : metric.at(key).get<double>();
      };
      h.counters.metric = metric.at("name").text();
      h.counters.best_value = number("best");
      h.counters.last_value = number("last");
    }
    if (state.contains("early_stop")) {
      h.counters.early_stop_best = state.at("early_stop").at("best").get<double>();
      h.counters.early_stop_waited = count(state.at("early_stop"), "waited");
    }
    read_plateau(state, h);
    read_updates(state, h);
    if (state.contains("data")) h.counters.data = read_data_record(state.at("data"));
    if (state.contains("evaluation_due")) h.counters.evaluation_due = state.at("evaluation_due").get<bool>();
    if (state.contains("average")) h.counters.average = state.at("average").get<bool>();
    h.counters.train_seconds = state.at("train_seconds").get<double>();
    read_unreported(state.at("unreported"), h.counters);
    if (state.contains("metrics")) {  // present if metrics.jsonl had bytes
      h.counters.metrics_bytes = whole_member(state.at("metrics"), "bytes", 0, INT64_MAX);
      h.counters.metrics_crc = static_cast<uint32_t>(whole_member(state.at("metrics"), "crc32c", 0, UINT32_MAX));
    }
    h.phase = count(state, "phase");
    h.config = metadata_text(file, "bitgrad.config");
    h.model = optional_metadata(file, "bitgrad.model");
    h.tokenizer = optional_metadata(file, "bitgrad.tokenizer");
    h.table = optional_metadata(file, "bitgrad.table");
    h.origin = optional_metadata(file, "bitgrad.origin");
    h.kernel_hash = metadata_text(file, "bitgrad.kernels");
    return h;
  });
}

}  // namespace bitgrad::checkpoint
