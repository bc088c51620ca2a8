// Checkpoints: safetensors files with everything needed to resume a run bit for bit, or to evaluate it.
//
// Tensors, for each parameter <path> (learned parts are parameters too): <path>.codes (U8 [rows, row_bytes], canonical
// codes, rows byte-aligned), .scale, .zero, .offset and .statistic (quantizer state), .master (F32 or BF16; absent
// without a master), <path>.<family>.<part> (F32, BF16, or I8, U8 [numel], in 4 bits U8 [(numel + 1) / 2], with .unit)
// of the update rule, and buffers under their own paths (F32, BF16, I8, U8, I32, I64). Metadata:
//   bitgrad.tensors    JSON, for each .codes {dtype: the full record, shape, scheme, granularity}
//   bitgrad.state      JSON {step, microbatch, epoch, position, seed, phase, format_version, best, data, ...}
//   bitgrad.config     the resolved configuration, without data.root; empty if no run wrote the file
//   bitgrad.model      input form, layers and their quantization (checkpoint/model_record.h); absent if make_layer did
//                      not make the model
//   bitgrad.tokenizer  the tokenizer (data/tokenizer.h); only for models of text
//   bitgrad.table      how the columns of a table are read (data/table.h); only for models of tables of text
//   bitgrad.origin     what another program's files say about an imported model (interop/model_origin.h)
//   bitgrad.kernels    kernel_table_hash() of the run that saved
//   bitgrad.version    version of the program that saved; not read
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "bitgrad/base/key.h"
#include "bitgrad/config/weight_name.h"
#include "bitgrad/data/dataset.h"
#include "bitgrad/data/table.h"
#include "bitgrad/data/tokenizer.h"
#include "bitgrad/train/learner.h"

namespace bitgrad {

inline constexpr int kCheckpointFormat = 2;

// Counters of a run, in addition to the learner's.
struct RunCounters {
  int64_t epoch = 0;          // completed by the loader
  int64_t position = 0;       // samples consumed of the current epoch
  double best_accuracy = -1;  // percent, of the best model; -1: not evaluated yet, or targets are values
  int64_t best_epoch = 0;
  double last_accuracy = -1;
  // The following are not part of the state hash.
  double train_seconds = 0;                                // wall time
  double unreported_loss = 0, unreported_weight = 0;       // sums over the samples since the last training report
  int64_t unreported_correct = 0, unreported_counted = 0;  // counted: target elements that count
  int64_t metrics_bytes = 0;  // size of metrics.jsonl at the time of saving, and its CRC32C; 0: none or unknown
  uint32_t metrics_crc = 0;
  // Value of the metric that selects the best model, if that is not accuracy; part of the state hash in that case.
  std::string metric = {};
  std::optional<double> best_value = {}, last_value = {};
  int64_t best_step = 0;         // optimizer step of the best model; 0: none; not part of the state hash
  std::string selected_on = {};  // section that selects the best model: "valid", "test"; not part of the state hash
  // State of train.early_stop: best value so far, evaluations since. Part of the state hash once a value exists.
  std::optional<double> early_stop_best = {};
  int64_t early_stop_waited = 0;
  // State of schedule plateau: best value so far, evaluations since, and the steps at which the rate was cut. Part of
  // the state hash once a value exists.
  std::optional<double> plateau_best = {};
  int64_t plateau_waited = 0;
  std::vector<int64_t> plateaus = {};
  bool evaluation_due = false;  // due at this step but cut short; not part of the state hash
  bool average = false;         // the values are averages (train.ema); not part of the state hash
  // The samples of data.train, data.valid and data.test, by "train", "valid" and "test"; not part of the state hash.
  std::map<std::string, SamplesRecord> data = {};
};

struct CheckpointHeader {
  RunCounters counters = {};
  int64_t step = 0, microbatch = 0, since_requantize = 0;
  Learner::Skipped skipped = {};  // windows in which nothing counted
  uint64_t seed = 0;
  std::map<std::string, int64_t> updates = {};  // Optimizer::own_updates
  int64_t phase = 0;                            // quantization phase
  // Microbatches since the requantization before the one that ended the run; 0: that was due (Learner::cut_window).
  int64_t cut_since_requantize = 0;
  std::string config = {};       // YAML
  std::string model = {};        // model record (checkpoint/model_record.h); empty: none
  std::string tokenizer = {};    // JSON (tokenizer_record); empty: none
  std::string table = {};        // JSON (table_record); empty: none
  std::string origin = {};       // JSON (interop/model_origin.h); empty: none
  std::string kernel_hash = {};  // kernel_table_hash() of the run that saved
};

// Writes atomically (temporary name, fsync, rename). `tokenizer` is that of the model's text (tokenizer_text), `table`
// the plan of its table (table_text), or empty. Throws Error if the learner is not on a step boundary or is converted,
// and Error(kNonFinite) if a tensor holds NaN or Inf; an existing file is kept then.
void save_checkpoint(const std::string& path, Learner& learner, const RunCounters& counters,
                     const std::string& config_yaml, const std::string& tokenizer = {}, const std::string& table = {});
// Reads what is needed to build a learner, and registers dtypes that the file defines, since its configuration may name
// them. All of the file is verified in one pass, and nothing but its header is kept. Throws Error(kData) for a damaged
// file and for one that is no checkpoint or model of bitgrad.
CheckpointHeader read_checkpoint_header(const std::string& path);
// Puts a learner into the phase of a checkpoint before it is loaded. Throws Error(kData) if there is no such phase.
void enter_phase_of(const CheckpointHeader& header, const std::string& file, Learner& learner);

// Restores parameters, optimizer state, statistics and counters into a learner with the same configuration, which must
// be in the header's phase (Learner::enter_phase). Throws Error(kData) that names the tensor if one is missing, unknown
// or has another form, and Error(kNonFinite) if one holds NaN or Inf; the learner is unusable then.
// A learner made to predict (LearnerUse::kPredict) takes codes, scales, fp32 parameters, statistics and counters. The
// rest is not read; that it is whole follows from the checksum of the file, which is verified in any case.
void load_checkpoint(const std::string& path, Learner& learner);
// Serializes a tokenizer for files; returns "" for nullptr. Throws Error if the record exceeds the limit of model
// files.
std::string tokenizer_text(const Tokenizer* tokenizer);
// Restores the tokenizer of a header, or returns nullptr if it has none. Throws Error(kData) that names `path`, the
// header's file.
std::shared_ptr<const Tokenizer> tokenizer_of(const CheckpointHeader& header, const std::string& path);
// Serializes the plan of a table for files; returns "" for nullptr. Throws Error if the record exceeds the limit of
// model files.
std::string table_text(const TablePlan* plan);
// Restores the plan of a header, or returns nullptr if it has none. Throws Error(kData) that names `path`, the header's
// file.
std::shared_ptr<const TablePlan> table_of(const CheckpointHeader& header, const std::string& path);
// Throws Error(kData) that names both sides if the data and the model have different tokenizers.
void require_same_tokenizer(const CheckpointHeader& header, const std::string& path, const Dataset& data);
// Loads only the parameters and buffers of a checkpoint into a model of the same form; counters and optimizer state are
// ignored. Errors as in load_checkpoint.
void load_values(const std::string& path, Module& model);

// Writes an inference model (no masters, no optimizer state): "<path>.codes" with scales, "<path>.value" (F32) of fp32
// parameters, and buffers. The metadata are those of a checkpoint, plus bitgrad.kind "model". If header.kernel_hash is
// empty, that of this process is used. Throws Error if a low-bit parameter still has a master.
void save_model(const std::string& path, Module& model, const CheckpointHeader& header);
// Loads it into a converted model of the same form (after prepare and convert). Errors as in load_checkpoint.
void load_model(const std::string& path, Module& model);
// What a file that bitgrad writes holds of a model; the names are values of bitgrad.kind, which checkpoints do not
// have.
enum class SavedKind : uint8_t {
  kCheckpoint,
  kModel,  // an inference model
  kPart,   // some parameters and buffers, beside adapters
};
template <>
struct EnumNames<SavedKind> {
  static constexpr std::string_view all[] = {"checkpoint", "model", "part"};
};
// Contents of a file of either kind, read before a model is built for it. Its configuration is untrusted text: the
// layers it describes must have these shapes, so that a small file cannot allocate a large model.
struct FileForm {
  std::string path = {};
  SavedKind kind = SavedKind::kCheckpoint;
  std::map<std::string, Shape> parameters = {};  // by path, regardless of precision
  int64_t bytes = 0;                             // total of all tensors
};
// Verifies the file as read_checkpoint_header does. Registers dtypes that the file defines. Throws Error(kData) for any
// other file.
FileForm file_form(const std::string& path);
SavedKind file_kind(const std::string& path);

// Outcome of init_from for a model.
struct InitFrom {
  std::vector<std::string> taken = {};    // parameters and buffers taken from the file
  std::vector<std::string> skipped = {};  // names of the file that this model does not use
  // Those of `skipped` that only quantize: learned parts and observed ranges of a precision that this model lacks.
  std::vector<std::string> quantization = {};
  // Learned parts, observed ranges and adapters of this model that keep their own initial values.
  std::vector<std::string> fresh = {};
  // Weights whose codes the file has without masters, by a scheme that makes other codes of these codes' values: the
  // first update moves them.
  std::vector<std::string> moving = {};
  std::vector<std::string> ignored = {};  // names of the file that WeightMap::ignore leaves out
  std::vector<std::string> own = {};      // what would have been read from them and keeps its own initial value
};
// Initializes a model from another run's checkpoint or model file, matching by path as `map` changes it: masters if
// present, otherwise dequantized codes; and buffers (running statistics). What has the precision that it has in the
// file is taken bit for bit: codes, scales and learned parts of a weight, learned parts and observed ranges of an input
// (docs/numerics.md section 9); other codes are made with the draws of `step`, and other learned parts and ranges begin
// anew. Every weight, bias, norm parameter and buffer of this model must be in the file with its shape, unless
// map.ignore leaves it out; otherwise throws Error(kData) that names it, and the model is unusable. Throws Error for a
// rule that matches nothing or gives an order of elements. Counters, optimizer and seed remain those of this run. Call
// before the first microbatch.
InitFrom init_from(const std::string& path, Module& model, const WeightMap& map = {}, int64_t step = 0);

// SHA-256 over the sorted (name, dtype, shape, canonical bytes) of masters, codes, scales, optimizer state, running
// statistics and counters. Independent of time, paths and thread count.
std::string state_hash(Learner& learner, const RunCounters& counters);
// Identifies the set of kernels available on this machine under the ISA cap; part of "the same bits" in fast mode.
std::string kernel_table_hash();

}  // namespace bitgrad
