// Checkpoints: safetensors files with everything that a run needs to go on bit for bit, or to be evaluated.
//
// Tensors, for each parameter <path> (learned parts are parameters too): <path>.codes (U8 [rows, row_bytes], canonical
// codes, rows on a byte), .scale, .zero, .offset and .statistic (quantizer state), .master (F32 or BF16; absent without
// a master), <path>.<family>.<part> (F32, BF16, or I8, U8 [numel] with .scale) of the update rule, and buffers under
// their own paths (F32, BF16, I8, U8, I32, I64). Metadata:
//   bitgrad.tensors  JSON, for each .codes {dtype: the whole record, shape, scheme, granularity}
//   bitgrad.state    JSON {step, microbatch, epoch, position, seed, phase, format_version, best, ...}
//   bitgrad.config   the resolved configuration, without data.root; empty where no run wrote the file
//   bitgrad.model    the form of the input, the layers and how they are quantized (train/model_record.h); not in files
//                    of models that make_layer did not make
//   bitgrad.tokenizer  what makes ids of texts (data/tokenizer.h); only of models of text
//   bitgrad.kernels  kernel_table_hash() of the run that saved
//   bitgrad.version  of the program that saved; not read
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "bitgrad/data/dataset.h"
#include "bitgrad/data/tokenizer.h"
#include "bitgrad/train/learner.h"

namespace bitgrad {

inline constexpr int kCheckpointFormat = 2;

// Counters of a run beside those of the learner.
struct RunCounters {
  int64_t epoch = 0;          // epochs completed by the loader
  int64_t position = 0;       // samples of the current epoch done
  double best_accuracy = -1;  // percent, of the best model; -1: not evaluated yet, or targets are values
  int64_t best_epoch = 0;
  double last_accuracy = -1;
  // Not part of the state hash.
  double train_seconds = 0;                                // wall time
  double unreported_loss = 0;                              // sums over the samples since the last report of training
  int64_t unreported_correct = 0, unreported_samples = 0;  // samples: elements of the targets that counted
  int64_t metrics_bytes = 0;  // of metrics.jsonl when the file was saved, 0: none or not known; and their CRC32C
  uint32_t metrics_crc = 0;
  // Of the metric that picks the best model, where that is not accuracy; part of the state hash then.
  std::string metric = {};
  std::optional<double> best_value = {}, last_value = {};
  int64_t best_step = 0;  // optimizer step of the best model, 0: not known; not part of the state hash
  // Of train.early_stop: the best value so far, and evaluations since; part of the state hash once there is one.
  std::optional<double> early_stop_best = {};
  int64_t early_stop_waited = 0;
  bool evaluation_due = false;  // at this step, but cut short; not part of the state hash
};

struct CheckpointHeader {
  RunCounters counters = {};
  int64_t step = 0, microbatch = 0, since_requantize = 0;
  uint64_t seed = 0;
  int64_t phase = 0;             // of quantization
  std::string config = {};       // YAML
  std::string model = {};        // what the file says of its model (train/model_record.h); empty: nothing
  std::string tokenizer = {};    // JSON (tokenizer_record); empty: none
  std::string kernel_hash = {};  // of the table of kernels of the run that saved
};

// Writes atomically (temporary name, fsync, rename). The learner must be on a step boundary; a converted one throws
// Error. A tensor that holds NaN or Inf is Error(kNonFinite), and the file that was there stays. tokenizer: of the text
// that the model reads (tokenizer_text), or empty.
void save_checkpoint(const std::string& path, Learner& learner, const RunCounters& counters,
                     const std::string& config_yaml, const std::string& tokenizer = {});
// Reads what is needed before a learner can be built, and registers the dtypes that the file brings along: its
// configuration may name them. Throws Error(kData).
CheckpointHeader read_checkpoint_header(const std::string& path);
// Restores parameters, optimizer, statistics and counters of a learner of the same configuration, which is in the phase
// of the header (Learner::enter_phase). Throws Error(kData) that names the tensor when anything is missing, unknown or
// of another form, Error(kNonFinite) when it holds NaN or Inf; the learner is then unusable.
void load_checkpoint(const std::string& path, Learner& learner);
// The tokenizer as files hold it; empty for nullptr. Error where the record is longer than files of models may hold.
std::string tokenizer_text(const Tokenizer* tokenizer);
// And back; nullptr where the file has none. Error(kData) names `path`, the file of the header.
std::shared_ptr<const Tokenizer> tokenizer_of(const CheckpointHeader& header, const std::string& path);
// Error(kData) that names both where data of one tokenizer meet a model of another.
void require_same_tokenizer(const CheckpointHeader& header, const std::string& path, const Dataset& data);
// The parameters and buffers of a checkpoint alone, into a model of the same form; counters and the optimizer's state
// are left out. Errors as load_checkpoint.
void load_values(const std::string& path, Module& model);

// A model without what trains it: "<path>.codes" with scales, "<path>.value" (F32) of fp32 parameters, and buffers. The
// metadata are those of a checkpoint; bitgrad.kind is "model". A low-bit parameter that has a master is an Error. An
// empty kernel_hash of the header is that of this process.
void save_model(const std::string& path, Module& model, const CheckpointHeader& header);
// Reads it into a converted model of the same form (prepare and convert were run). Errors as load_checkpoint.
void load_model(const std::string& path, Module& model);
// What a file of either kind holds, before a model is built for it. Its configuration is text that anybody may have
// written: layers that it describes must have these shapes, or a small file would make a large model.
struct FileForm {
  std::string path = {}, kind = {};              // kind: "checkpoint" or "model"
  std::map<std::string, Shape> parameters = {};  // by path, whatever their precision
  int64_t bytes = 0;                             // of all tensors
};
// Registers the dtypes that the file brings along. Throws Error(kData) for other files.
FileForm file_form(const std::string& path);
std::string file_kind(const std::string& path);

// [rows, cols] of a parameter of a file of either kind, whatever it is held in. Throws Error(kData).
Shape shape_in_file(const std::string& file, const std::string& parameter);

// What init_from found for the parameters of a model.
struct InitFrom {
  std::vector<std::string> taken = {};    // paths of parameters and buffers
  std::vector<std::string> skipped = {};  // of the file: what this model has no place for
  // Learned parts and observed ranges of this model, which keep their own first values.
  std::vector<std::string> fresh = {};
};
// Takes numbers from a checkpoint or model of another run by their paths: masters where it has them, else the values of
// its codes; and buffers (running statistics). Every weight, bias, norm parameter and buffer of this model must be
// there with its shape, else Error(kData) that names it, and the model is of no further use. Codes are made anew, with
// the draws of `step`. Counters, optimizer and seed stay those of this run. Before the first microbatch.
InitFrom init_from(const std::string& path, Module& model, int64_t step = 0);

// SHA-256 over the sorted (name, dtype, shape, canonical bytes) of masters, codes, scales, optimizer state, running
// statistics and counters. No time, path or number of threads.
std::string state_hash(Learner& learner, const RunCounters& counters);
// Identifies the kernels that this machine chooses from, under the cap: part of "the same bits" in fast mode.
std::string kernel_table_hash();

}  // namespace bitgrad
