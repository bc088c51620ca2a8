// Writes checkpoints, and computes the hash of a state.
#include <algorithm>

#include "bitgrad/base/version.h"
#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/io/sha256.h"
#include "bitgrad/kernels/gemm.h"
#include "bitgrad/kernels/gemm_costs.h"
#include "bitgrad/kernels/kernel.h"

#include "checkpoint/records.h"
#include "train/pieces.h"
#include "train/train_state.h"

namespace bitgrad {
namespace {

// Hashes the cost factors of every GEMM kernel that may run; those not measured are 1.
void hash_measured_costs(Sha256& hash) {
  const std::vector<kernels::GemmCostFactors> measured = kernels::gemm_costs();
  for (const kernels::GemmKernel& kernel : kernels::gemm_kernels()) {
    if (!kernel.granted()) continue;
    const auto same = [&](const kernels::GemmCostFactors& f) { return f.kernel == kernel.name; };
    const auto at = std::find_if(measured.begin(), measured.end(), same);
    const kernels::GemmCostFactors factors = at != measured.end() ? *at : kernels::GemmCostFactors{};
    hash.update(concat(kernel.name, '\n'));
    hash.update(factors.factor.data(), sizeof(factors.factor));
  }
}

}  // namespace

using namespace checkpoint;

void checkpoint::write_pieces(const std::string& path, const Pieces& pieces, const CheckpointHeader& header,
                              std::map<std::string, std::string> metadata) {
  const DeviceGuard cpu(Device::cpu());
  if (const std::string what = useless(pieces); !what.empty())
    fail_with(ErrorCode::kNonFinite, "checkpoint", what, " at optimizer step ", header.step, ". Nothing was saved; ",
              path, " is unchanged.");
  std::vector<SafetensorsItem> items;
  for (const Piece& p : pieces.list) items.push_back({p.name, p.dtype, p.shape, p.data, p.bytes});
  metadata["bitgrad.state"] = state_text(header);
  metadata["bitgrad.config"] = header.config;
  if (!header.model.empty()) metadata["bitgrad.model"] = header.model;
  if (!header.tokenizer.empty()) metadata["bitgrad.tokenizer"] = header.tokenizer;
  if (!header.table.empty()) metadata["bitgrad.table"] = header.table;
  if (!header.origin.empty()) metadata["bitgrad.origin"] = header.origin;
  metadata["bitgrad.kernels"] = header.kernel_hash;
  metadata["bitgrad.version"] = BITGRAD_VERSION;
  write_safetensors(path, items, metadata);
}

void save_checkpoint(const std::string& path, Learner& learner, const RunCounters& counters,
                     const std::string& config_yaml, const std::string& tokenizer, const std::string& table) {
  const DeviceGuard guard(learner.device());
  learner.train_state().check_usable();
  learner.train_state().require_trainable("checkpoint");
  require(!learner.converted(), "checkpoint", path,
          ": the model is converted and no longer trains. Write it with save_model.");
  learner.train_state().require_whole("checkpoint");
  require(learner.window_samples() == 0, "checkpoint", path, ": the window of ",
          learner.train_state().policy.accumulate, " microbatches is open, with ", learner.window_samples(),
          " samples. Save after a microbatch that stepped (StepResult::stepped), or call flush first.");
  CheckpointHeader header = header_of(learner, counters);
  header.config = config_yaml;
  if (const auto record = model_record(learner)) header.model = to_text(*record);
  header.tokenizer = tokenizer;
  header.table = table;
  header.kernel_hash = kernel_table_hash();
  Pieces pieces = collect(learner.train_state());
  for (const auto& [parameter, codes] : learner.train_state().cut_window.codes)
    pieces.add_value(parameter, codes, kWindowPrefix);
  write_pieces(path, pieces, header, {{"bitgrad.tensors", tensors_text(learner.model().parameters())}});
}

std::string state_hash(Learner& learner, const RunCounters& counters) {
  learner.train_state().require_whole("state_hash");
  learner.train_state().require_trainable("state_hash");
  Pieces pieces = collect(learner.train_state());
  std::sort(pieces.list.begin(), pieces.list.end(), [](const Piece& a, const Piece& b) { return a.name < b.name; });
  Sha256 hash;
  for (const Piece& p : pieces.list) {
    hash.update(concat(p.name, ' ', p.dtype, ' ', Shape(p.shape), '\n'));
    hash.update(p.data, static_cast<size_t>(p.bytes));
  }
  hash.update(counters_text(header_of(learner, counters), learner.phases().size() > 1));
  return hash.hex();
}

std::string kernel_table_hash() {
  Sha256 hash;
  for (const KernelInfo& k : all_kernels())
    if (k.available()) hash.update(concat(k.family, ' ', k.name, '\n'));
  hash_measured_costs(hash);
  // The built-in costs, by which float products choose a kernel and so an order of summation, at a small, a medium and
  // a large shape.
  for (const DType b : {dtypes::fp32, dtypes::bint1, dtypes::ternary}) {
    for (const int64_t size : {16, 256, 2048}) {
      kernels::GemmArgs probe;
      probe.m = probe.n = probe.k = probe.ldc = size;
      probe.b.dtype = b;
      probe.b.k_major = true;
      probe.a.stride = probe.b.stride = size * 4;
      for (const kernels::GemmKernel& kernel : kernels::gemm_kernels())
        if (kernel.usable(probe)) hash.update(concat(kernel.name, ' ', kernel.cost(probe), '\n'));
    }
  }
  return hash.hex();
}

// A model without its training state.
void save_model(const std::string& path, Module& model, const CheckpointHeader& header) {
  CheckpointHeader h = header;
  h.cut_since_requantize = 0;  // its codes are not in a model file
  if (h.kernel_hash.empty()) h.kernel_hash = kernel_table_hash();
  write_pieces(path, collect_model(model), h,
               {{"bitgrad.kind", std::string(enum_name(SavedKind::kModel))},
                {"bitgrad.tensors", tensors_text(model.parameters())}});
}

}  // namespace bitgrad
