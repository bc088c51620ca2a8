// Ranks of a run: what they must have in common, and what they agree on.
#include <algorithm>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/base/cpu.h"
#include "bitgrad/base/device.h"
#include "bitgrad/base/error.h"
#include "bitgrad/base/log.h"
#include "bitgrad/base/text.h"
#include "bitgrad/base/version.h"
#include "bitgrad/dist/device_link.h"
#include "bitgrad/dist/engines.h"
#include "run/run_parts.h"
#include "train/ranks.h"
#include "train/train_state.h"

namespace bitgrad {
namespace {

// Connects the devices of ranks before the run begins. Ranks that have one card each wait for the memory and the time
// of the other.
void connect_devices(Communicator& ranks, Device device) {
  if (device.is_cpu()) return;  // of all ranks
  if (const std::string shared = shared_card(ranks, device); !shared.empty() && ranks.rank() == 0)
    log(LogLevel::kWarning, concat("[ranks] ", shared,
                                   ": they share its memory and its time. A host needs as many devices as ranks, from "
                                   "device.index on."));
  DeviceLink::between(ranks, device);
}

}  // namespace

RunConfig split_for_ranks(RunConfig config, int64_t ranks) {
  BatchSection& batch = config.batch;
  if (ranks <= 1 || batch.accumulate() != 1 || batch.global % ranks != 0) return config;
  batch.micro = batch.global / ranks;
  config.quant.requantize_every *= ranks;
  log(LogLevel::kWarning, concat("a step of ", batch.global, " samples is split among ", ranks, " ranks: batch.micro: ",
                                 batch.micro, ", quant.requantize_every: ", config.quant.requantize_every,
                                 ". The same run on one rank: batch.micro=", batch.micro, " quant.requantize_every=",
                                 config.quant.requantize_every, " batch.sum=tree quant.observer_update=window"));
  return config;
}

void check_for_ranks(const RunConfig& config, int64_t size) {
  if (size == 1) return;
  const BatchSection& batch = config.batch;
  const int64_t windows = batch.accumulate();
  if (windows % size != 0)
    fail_with(ErrorCode::kUsage, "ranks", size, " ranks share the microbatches of a step, of which batch.global ",
              batch.global, " and batch.micro ", batch.micro, " make ", windows, ": expected a multiple of ", size,
              ". A new run can have batch.micro: ", std::max<int64_t>(1, batch.global / size),
              " and batch.global: ", std::max<int64_t>(1, batch.global / size) * size);
  require(batch.sum != WindowSum::kRunning, "ranks", "batch.sum: running is not for ", size,
          " ranks, which sum their gradients in a tree: expected auto or tree");
  require(config.quant.observer_update != ObserverUpdate::kMicrobatch, "ranks",
          "quant.observer_update: microbatch is not for ", size, " ranks: expected auto or window");
}

// A wire that rounds is no longer the run of any number of ranks, and one that nothing goes through was asked for in
// vain.
void Trainer::warn_of_wire() const {
  const WireFormat wire = config_.ranks.wire;
  if (wire == WireFormat::kExact) return;
  const Optimizer& optimizer = learner_->optimizer();
  const std::vector<Parameter*> parameters = learner_->model().parameters();
  const bool any = std::any_of(parameters.begin(), parameters.end(),
                               [&](const Parameter* p) { return optimizer.shares(*p) != nullptr; });
  log(LogLevel::kWarning, any ? concat("ranks.wire: ", enum_name(wire),
                                       " rounds gradients between ranks: another number of ranks gives other bits")
                              : concat("ranks.wire: ", enum_name(wire), " has no effect as the run begins: ",
                                       "every rank updates all weights (docs/ranks.md)"));
}

void Trainer::set_ranks(std::shared_ptr<Communicator> ranks) {
  require(ranks != nullptr, "Trainer", "no communicator");
  require(!started_, "Trainer", "ranks are set before the run begins");
  if (ranks->size() == 1) return;
  check_for_ranks(config_, ranks->size());
  const BatchSection& batch = config_.batch;
  const int64_t size = ranks->size(), share = batch.accumulate() / size;
  if ((share & (share - 1)) != 0)
    log(LogLevel::kWarning, concat("each rank runs ", share,
                                   " microbatches of a step, not a power of two: another "
                                   "number of ranks gives other bits"));
  learner_->set_communicator(ranks, config_.ranks.wire);
  communicator_ = std::move(ranks);
  warn_of_wire();
  config_.batch.sum = WindowSum::kTree;  // a single rank comes to the same bits with these
  config_.quant.observer_update = ObserverUpdate::kWindow;
  config_yaml_ = to_portable_yaml(config_);
  log(LogLevel::kInfo, concat(size, " ranks x ", share, " microbatches x ", batch.micro, " samples = ", batch.global,
                              " samples a step; this is rank ", communicator_->rank()));
}

void Trainer::Ranks::compare() const {
  if (!t_.communicator_) {
    if (const WireFormat wire = t_.config_.ranks.wire; wire != WireFormat::kExact)
      log(LogLevel::kWarning, concat("ranks.wire: ", enum_name(wire), " has no effect on one rank"));
    return;
  }
  Communicator& ranks = *t_.communicator_;
  t_.learner_->gather_state();  // apart after another call of run
  RunConfig config = t_.config_;
  config.device = {};  // ranks have other devices, and may have other threads
  std::string data;
  for (const auto& [section, record] : t_.samples_) data += concat("data.", section, ": ", to_string(record), '\n');
  const std::vector<std::pair<const char*, std::string>> common = {
      {"version", concat(BITGRAD_VERSION, " (", build_commit(), ')')},
      {"device.kind", t_.config_.device.kind},
      {"configuration", to_portable_yaml(config)},
      {"data", data},
      {"weights and counters at the start", state_hash(*t_.learner_, t_.counters_)},
  };
  for (const auto& [what, own] : common) require_same(ranks, what, own);
  connect_devices(ranks, t_.learner_->device());
  const std::vector<std::string> kernels = gather_texts(ranks, kernel_table_hash());
  if (bits_mode() == BitsMode::kFast &&
      std::any_of(kernels.begin(), kernels.end(), [&](auto& k) { return k != kernels[0]; }))
    log(LogLevel::kWarning,
        "the machines of the ranks have other kernels: another number of ranks does not give the same bits (run.bits: "
        "strict does not depend on the machine)");
}

void Trainer::Ranks::compare_models() const {
  if (!t_.communicator_) return;
  std::vector<std::pair<std::string, uint32_t>> own;
  const auto add = [&](const std::string& name, const Tensor& t) {
    if (!t.defined()) return;
    const Tensor host = t.on_host();
    own.emplace_back(name, crc32c(host.data(), static_cast<size_t>(host.bytes())));
  };
  Module& model = t_.learner_->model();
  for (const Parameter* p : model.parameters()) {
    add(p->path(), p->value().without_quant());
    if (p->has_master() && t_.learner_->optimizer().shares(*p) == nullptr) add(p->path() + " (master)", p->master());
  }
  for (const Module::Buffer& b : model.buffers()) add(b.path, b.tensor);
  std::vector<uint32_t> sums;
  sums.reserve(own.size());
  for (const auto& [name, sum] : own) sums.push_back(sum);
  const std::vector<std::vector<uint32_t>> all = gather_lists(*t_.communicator_, std::span<const uint32_t>(sums));
  for (size_t r = 1; r < all.size(); ++r)
    for (size_t i = 0; i < own.size(); ++i)
      if (all[r].at(i) != all[0].at(i))
        fail_with(
            ErrorCode::kDevice, "ranks", "the models of ranks 0 and ", r, " have come apart by step ",
            t_.learner_->state().step, ", first in ", own[i].first,
            ". Machines with different kernels need run.bits: strict; a layer whose forward pass changes a buffer of "
            "its own cannot train on several ranks");
}

int64_t Trainer::Ranks::largest(int64_t own) const {
  if (!t_.communicator_) return own;
  const std::vector<int64_t> all = gather_values(*t_.communicator_, std::span<const int64_t>(&own, 1));
  return *std::max_element(all.begin(), all.end());
}

int64_t Trainer::Ranks::of_first(int64_t own) const {
  return t_.communicator_ ? gather_values(*t_.communicator_, std::span<const int64_t>(&own, 1))[0] : own;
}

std::string Trainer::Ranks::of_first(const std::string& own) const {
  return t_.communicator_ ? gather_texts(*t_.communicator_, own)[0] : own;
}

Tensor Trainer::Ranks::last_samples(const Tensor& own) const {
  if (!t_.communicator_) return own;
  const int64_t microbatches = std::ssize(t_.learner_->last_results());
  return detail::from_rank(*t_.communicator_, (microbatches - 1) / t_.learner_->train_state().share(), own);
}

void Trainer::Ranks::cancel(const std::exception& error) const {
  if (t_.communicator_) t_.communicator_->cancel(error_for_ranks(error));
}

}  // namespace bitgrad
