// Language models in strict mode end on the (emulated) device with the state of the CPU, and go from one to the other
// in the middle of a run; documents, dropout on attention and blocks that run again are those of the CPU.
#include "bitgrad/ops/attention.h"
#include "cuda/same_as_cpu.h"
#include "train/language_networks.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

// 4 steps on the CPU, on the device, and there from a checkpoint of the CPU.
void check_model(const char* model, const LanguageForm& form) {
  INFO(form.name);
  const KeepModes keep;
  gpu();
  const LanguageFolder text;
  std::vector<std::string> keys = form.keys;
  keys.push_back("train.stop=4 steps");
  const RunConfig on_cpu = text.config(model, keys);
  const TrainOutcome uninterrupted = run_all(on_cpu);
  keys.push_back("device.kind=cuda");
  for (const bool recompute : {false, true}) {
    const TrainOutcome cuda = run_all(text.config(model, keys, recompute));
    CHECK(cuda.state_hash == uninterrupted.state_hash);
    CHECK(cuda.evaluation->loss == uninterrupted.evaluation->loss);
  }
  const std::string folder = create_run_folder(on_cpu, text.file("run"));
  run_part(on_cpu, folder, 3 * on_cpu.batch.accumulate());
  Trainer trainer(text.config(model, keys));
  trainer.resume(run_folder_checkpoint(folder));
  CHECK(trainer.run("").state_hash == uninterrupted.state_hash);
}

}  // namespace

TEST_CASE("A language model ends on a device with the state of the CPU, also from its checkpoint") {
  check_model(kSmallLlama, language_forms().front());
}

TEST_CASE("Every language model in every form ends on a device with the state of the CPU", "[slow]") {
  for (const char* model : {kSmallGptModel, kSmallLlama})
    for (const LanguageForm& form : language_forms()) check_model(model, form);
}

TEST_CASE("Language models whose windows are copied, and whose steps are one by one, have the same state on a device") {
  const KeepModes keep;
  gpu();
  const LanguageFolder text;
  const std::string uninterrupted = run_all(text.config(kSmallGptModel, {"train.stop=4 steps"})).state_hash;
  for (const char* how : {"device.resident_data=false", "device.graph=false"})
    CHECK(run_all(text.config(kSmallGptModel, {"train.stop=4 steps", "device.kind=cuda", how}, true)).state_hash ==
          uninterrupted);
}

TEST_CASE("attention in documents and with dropout is that of the CPU, on the device, with its gradients") {
  const Tensor ids = Tensor::from_elements({2, 70}, dtypes::int32, [] {
    std::vector<double> x(140);
    for (size_t i = 0; i < x.size(); ++i) x[i] = i % 31 == 7 || i == 66 ? 0 : 1;
    return x;
  }());
  for (const double dropout : {0.0, 0.3})
    for (const bool apart : {false, true}) {
      const Tensor x = host_numbers({2, 70, 32}, 1);
      CHECK(device_difference([&] {
              AttentionOptions options{.heads = 4, .kv_heads = 2, .dropout = dropout};
              options.stream = {3, Purpose::kDropout, 5, 2};
              if (apart) options.starts = document_starts(here(ids), 0);
              AccumulateSink sink;
              Tape tape;
              const Var y = attention(tape.leaf(here(x), &sink, dtypes::fp32), options);
              tape.backward({y}, {here(host_numbers(y.shape(), 5))});
              return Results{apart ? options.starts : Tensor(), y.value(), sink.grad()};
            }) == "");
    }
  const Tensor bad = Tensor::from_elements({1, 2}, dtypes::int32, std::vector<double>{0, 2});
  const TwoErrors errors = errors_of([&] {
    AttentionOptions options{.heads = 1, .kv_heads = 1};
    options.starts = here(bad);
    attention(here(host_numbers({1, 2, 6}, 1)), options);
  });
  CHECK(contains(errors.on_cpu, "[attention] starts: got one that is negative, past its row"));
  CHECK(errors.on_gpu == errors.on_cpu);
}
