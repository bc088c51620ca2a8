// Phases of quantization: a run that was resumed anywhere has the state of the unbroken run, whatever the number of
// threads, and whether updates are fused.
#include "bitgrad/train/checkpoint.h"
#include "support/catch.h"
#include "support/temp_dir.h"
#include "train/phase_runs.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

constexpr int64_t kSteps = 11;
const RunCounters kCounters{1, 2, 50, 1, 50, 1};

std::string hash_of(Learner& learner) { return state_hash(learner, kCounters); }

std::string end_of(PhaseRun run, int threads, bool fused) {
  set_num_threads(threads);
  run.fused = fused;
  const auto learner = phase_learner(run);
  train_some(*learner, kSteps * run.accumulate);
  return hash_of(*learner);
}

std::unique_ptr<Learner> resumed(const PhaseRun& run, const std::string& file) {
  auto learner = phase_learner(run);
  learner->enter_phase(read_checkpoint_header(file).phase);
  load_checkpoint(file, *learner);
  return learner;
}

}  // namespace

TEST_CASE("a run resumed at any step, at boundaries of phases and beside them, has the hash of the unbroken run") {
  const KeepModes keep;
  TempDir temp;
  int mode = 0;
  for (const PhaseRun& run : phase_runs()) {
    set_bits_mode(mode++ % 3 == 0 ? BitsMode::kFast : BitsMode::kStrict);
    const auto full = phase_learner(run);
    std::vector<std::string> hashes;
    std::vector<int64_t> phases;
    for (int64_t step = 0; step <= kSteps; ++step) {
      hashes.push_back(hash_of(*full));
      phases.push_back(full->phase());
      save_checkpoint(temp.file(std::to_string(step)), *full, kCounters, "");
      if (step < kSteps) train_some(*full, run.accumulate);
    }
    // A checkpoint on a boundary is of the phase of the last completed step.
    CHECK(phases.back() == std::ssize(run.phases) - 1);
    for (size_t i = 1; i < run.phases.size(); ++i) {
      CHECK(phases[static_cast<size_t>(run.phases[i].from)] == static_cast<int64_t>(i) - 1);
      CHECK(phases[static_cast<size_t>(run.phases[i].from) + 1] == static_cast<int64_t>(i));
    }
    for (int64_t step = 0; step < kSteps; ++step) {
      INFO(run.name << ", resumed at step " << step);
      const auto learner = resumed(run, temp.file(std::to_string(step)));
      REQUIRE(hash_of(*learner) == hashes[static_cast<size_t>(step)]);
      train_some(*learner, run.accumulate);
      REQUIRE(hash_of(*learner) == hashes[static_cast<size_t>(step) + 1]);
      // What a killed run did after its checkpoint is lost, in whatever phase.
      save_checkpoint(temp.file("again"), *learner, kCounters, "");
      train_some(*learner, 4);
      const auto again = resumed(run, temp.file("again"));
      train_some(*again, (kSteps - step - 1) * run.accumulate);
      REQUIRE(hash_of(*again) == hashes.back());
    }
  }
}

TEST_CASE("phases give one state for one, two and four threads, and with updates inside backward or after it") {
  const KeepModes keep;
  set_bits_mode(BitsMode::kStrict);  // in fast mode a library may make the gradients, as a whole
  for (const PhaseRun& run : phase_runs()) {
    INFO(run.name);
    const std::string one = end_of(run, 1, true);
    CHECK(end_of(run, 2, true) == one);
    CHECK(end_of(run, 4, true) == one);
    CHECK(end_of(run, 1, false) == one);
    CHECK(end_of(run, 2, false) == one);
  }
}

TEST_CASE("evaluations between steps change nothing, and see the phase of the last step") {
  const KeepModes keep;
  for (const PhaseRun& run : phase_runs()) {
    INFO(run.name);
    const auto learner = phase_learner(run);
    const Tensor x = random_tensor({7, kFeatures}, dtypes::fp32, 9);
    for (int64_t step = 0; step < kSteps; ++step) {
      const int64_t phase = learner->phase();
      learner->predict(x);
      CHECK(learner->phase() == phase);
      train_some(*learner, run.accumulate);
    }
    CHECK(hash_of(*learner) == end_of(run, 2, true));
  }
}
