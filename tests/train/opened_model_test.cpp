// Models opened to predict: parameters are unset until their file sets them, nothing is drawn, and nothing of training
// is read or held. LearnerUse, Parameter::leave_unset.
#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "bitgrad/base/memory.h"
#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/infer/generator.h"
#include "bitgrad/infer/predictor.h"
#include "bitgrad/nn/layers.h"
#include "bitgrad/tools/ptq.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/numbers.h"
#include "support/temp_dir.h"
#include "train/checkpoint_parts.h"
#include "train/digits_nets.h"
#include "train/language_networks.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

// A net of the form that `keys` give, trained, and its files.
struct Opened {
  std::string name;
  RunConfig config;
};

std::vector<Opened> small_nets() {
  const auto weights = [](const std::string& keys) { return "quant.weights={" + keys + "}"; };
  const auto int4 = [&](const std::string& name, std::vector<std::string> keys) {
    return Opened{name, small_config(keys, kSmallInt4)};
  };
  const auto norms = [](const std::string& name, std::vector<std::string> keys) {
    keys.insert(keys.end(), {"data.train.size=50", "data.test.size=30", "batch.global=10", "train.stop=8 steps"});
    return Opened{name, digits(keys)};
  };
  return {
      {"signs", small_config()},
      int4("stochastic, bf16 gradients", {}),
      int4("bf16 masters", {weights("dtype: int4, scheme: symmetric, granularity: channel, master: bf16")}),
      int4("no masters", {weights("dtype: int8, scheme: absmax, granularity: channel, master: none")}),
      int4("learned steps", {weights("dtype: int4, scheme: lsq, granularity: channel")}),
      int4("zero points", {weights("dtype: uint4, scheme: affine, granularity: channel")}),
      int4("real offsets in groups", {weights("dtype: uint3, scheme: minmax_offset, granularity: group(5)")}),
      int4("simulated", {weights("dtype: int4, scheme: symmetric, granularity: channel"), "quant.compute=simulated"}),
      norms("recipe", {"quant.recipe=w8a8"}),
      norms("learned steps of inputs", {"quant.recipe=w4a4"}),
      norms("phases", {"quant.phases=[{from: 0 steps, quantization: off}, {from: 4 steps, recipe: w8a8}]"}),
      norms("phase that is off", {"quant.recipe=w8a8", "quant.phases=[{from: 0 steps, quantization: off}]"}),
      int4("frozen layer", {"train.frozen=[layers.0]"})};
}

Tensor samples_of(const Dataset& data, int64_t n) {
  Tensor x = Tensor::empty({n, data.features()}, dtypes::fp32, MemoryKind::kBatch, Device::cpu());
  int32_t label = 0;
  for (int64_t i = 0; i < n; ++i) data.sample(i, x.as<float>() + i * data.features(), &label);
  return x;
}

bool same_bits(const Evaluation& a, const Evaluation& b) {
  return a.loss == b.loss && a.accuracy == b.accuracy && a.samples == b.samples;
}

// Both ways of opening give the same bits, of a checkpoint and of the model converted from it.
void check_both_ways(const Opened& net, const std::string& folder, const std::function<Tensor(const Dataset&)>& input) {
  INFO(net.name);
  const TrainOutcome outcome = run_all(net.config, create_run_folder(net.config, folder));
  const std::string file = folder + "/last.safetensors", model = folder + "/model.safetensors";
  const auto data = open_dataset(net.config, *net.config.data.test);
  const int64_t batch = net.config.train.eval.batch;
  const auto whole = load_evaluator(net.config, *data, file, LearnerUse::kTrain);
  const auto opened = load_evaluator(net.config, *data, file);
  const Tensor x = input(*data);
  const std::vector<float> expected = whole->predict(x).to_vector();
  CHECK(opened->predict(x).to_vector() == expected);
  CHECK(same_bits(evaluate(*opened, *data, batch), evaluate(*whole, *data, batch)));
  CHECK(evaluate(*opened, *data, batch).loss == outcome.evaluation->loss);
  // From the record alone.
  const LossFunction& loss = whole->loss();
  CHECK(load_evaluator(file, loss, batch)->predict(x).to_vector() ==
        load_evaluator(file, loss, batch, LearnerUse::kTrain)->predict(x).to_vector());
  // Converted after either: the same file.
  for (Learner* learner : {whole.get(), opened.get()}) {
    const RunConfig converted = converted_config(net.config, *learner);
    learner->convert();
    save_converted(model + (learner == opened.get() ? "b" : "a"), *learner, read_checkpoint_header(file), converted);
  }
  const bool same_file = text_of(model + "a") == text_of(model + "b");
  CHECK(same_file);
  const RunConfig config = parse_config(read_checkpoint_header(model + "a").config, model);
  const auto again = load_evaluator(config, *data, model + "a");
  CHECK(again->predict(x).to_vector() == whole->predict(x).to_vector());
  CHECK(again->predict(x).to_vector() ==
        load_evaluator(config, *data, model + "a", LearnerUse::kTrain)->predict(x).to_vector());
}

// A run of three epochs of kSmallInt4, with adam: masters, moments, statistics of norms.
class SmallRun {
 public:
  explicit SmallRun(const std::vector<std::string>& keys = {"optim={name: adam, lr: 0.01}"})
      : config(small_config(keys, kSmallInt4)), file(temp.file("run") + "/last.safetensors") {
    run_all(config, create_run_folder(config, temp.file("run")));
    data = open_dataset(config, *config.data.test);
  }
  std::unique_ptr<Learner> open(LearnerUse use = LearnerUse::kPredict) const {
    return load_evaluator(config, *data, file, use);
  }

 private:
  const KeepModes keep_;

 public:
  TempDir temp;
  RunConfig config;
  std::string file;
  std::unique_ptr<Dataset> data;
};

std::string load_error(const SmallRun& run, const std::function<void(Parts&)>& change, int code = 3) {
  Parts parts(run.file);
  change(parts);
  parts.write(run.temp.file("changed"));
  const auto load = [&] { load_evaluator(run.config, *run.data, run.temp.file("changed")); };
  const std::string text = error_of(load);
  if (!text.empty()) {
    CHECK(error_code_of(load) == code);
    CHECK(contains(text, run.temp.file("changed")));
  }
  return text;
}

void drop(Parts& parts, const std::string& name) {
  const size_t at = parts.find(name);
  parts.items.erase(parts.items.begin() + static_cast<int64_t>(at));
  parts.bytes.erase(parts.bytes.begin() + static_cast<int64_t>(at));
}

void add(Parts& parts, const std::string& name, float number) {
  std::vector<uint8_t> bytes(sizeof(number));
  std::memcpy(bytes.data(), &number, sizeof(number));
  parts.bytes.push_back(bytes);
  parts.items.push_back({name, "F32", {1}, nullptr, static_cast<int64_t>(sizeof(number))});
}

// 5 -> 4 -> 3, of low-bit weights and fp32 biases, made to predict.
std::unique_ptr<Learner> unset_learner(const std::string& init = "glorot_uniform",
                                       LearnerUse use = LearnerUse::kPredict) {
  std::vector<LayerSpec> layers{linear_spec(4, dtypes::int4, "symmetric", Granularity::channel(0)),
                                linear_spec(3, dtypes::ternary, "ternary")};
  for (LayerSpec& layer : layers) layer.weight.init = {init};
  return std::make_unique<Learner>(
      make_sequential(layers, kFeatures), find_loss("softmax_cross_entropy"), OptimizerSpec{.name = "adam"},
      RequantPolicy{}, [](int64_t) { return 0.05f; }, 3, use);
}

std::vector<uint8_t> bytes_of(const std::string& path) { return file_system().read(path); }

void write(const std::string& path, const std::vector<uint8_t>& bytes) {
  write_file_atomically(path, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

}  // namespace

TEST_CASE("a model opened to predict has the bits of one opened with all that training needs") {
  const KeepModes keep;
  const TempDir temp;
  int n = 0;
  for (const Opened& net : small_nets())
    check_both_ways(net, temp.file(std::to_string(n++)), [](const Dataset& data) { return samples_of(data, 10); });
}

TEST_CASE("a language model opened to predict has the bits of one opened for training, and generates the same ids") {
  const KeepModes keep;
  const LanguageFolder folder;
  int n = 0;
  for (const LanguageForm& form : language_forms()) {
    const Opened net{form.name, folder.config(kSmallLlama, form.keys)};
    const std::string run = folder.file(std::to_string(n++));
    check_both_ways(net, run, [](const Dataset&) {
      std::vector<double> ids;
      for (int i = 0; i < 24; ++i) ids.push_back((i * 7) % 20);
      return Tensor::from_elements({2, 12}, dtypes::int32, ids);
    });
    std::vector<std::vector<float>> scores;
    for (const LearnerUse use : {LearnerUse::kTrain, LearnerUse::kPredict}) {
      const auto learner = load_file(open_file(run), nullptr, use);
      Generator generator(*learner);
      const std::vector<int32_t> prompt{1, 5, 3, 9};
      std::span<const float> now = generator.feed(prompt);
      for (int i = 0; i < 5; ++i)
        now = generator.feed(std::vector<int32_t>{sample_token(now, generator.ids(), {}, 0, i)});
      scores.emplace_back(now.begin(), now.end());
    }
    CHECK(scores[0] == scores[1]);
  }
}

TEST_CASE("codes of a model that generates exist in one layout, and come back for what reads canonical ones") {
  const KeepModes keep;
  const LanguageFolder folder;
  for (const std::string form : {"quant.recipe=w8a8", "quant.recipe=int4wo", "quant.recipe=ternary_int8"}) {
    INFO(form);
    const RunConfig config = folder.config(kSmallLlama, {form});
    const std::string run = folder.file(form);
    run_all(config, create_run_folder(config, run));
    const auto learner = load_file(open_file(run), nullptr),
               whole = load_file(open_file(run), nullptr, LearnerUse::kTrain);
    Generator generator(*learner), other(*whole);
    const std::vector<Parameter*> mine = learner->model().parameters(), theirs = whole->model().parameters();
    const auto is_absent = [](const Parameter* p) { return p->low_bit() && !p->value().present(); };
    const auto absent = [&] { return std::count_if(mine.begin(), mine.end(), is_absent); };
    const auto kept = absent();
    REQUIRE(kept > 0);
    Parameter& first = **std::find_if(mine.begin(), mine.end(), is_absent);
    for (const Parameter* p : whole->model().parameters()) CHECK((!p->value().defined() || p->value().present()));
    const std::vector<int32_t> prompt{1, 5, 3, 9, 2, 2, 7, 1, 8, 4}, one{3};
    for (const std::vector<int32_t>& ids : {prompt, one, one}) {
      const std::span<const float> a = generator.feed(ids), b = other.feed(ids);
      CHECK(std::vector<float>(a.begin(), a.end()) == std::vector<float>(b.begin(), b.end()));
    }
    CHECK(absent() == kept);
    REQUIRE(mine.size() == theirs.size());
    for (size_t i = 0; i < mine.size(); ++i) {
      const Tensor &a = mine[i]->value(), &b = theirs[i]->value();
      REQUIRE(a.bytes() == b.bytes());
      CHECK(std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())) == 0);
    }
    CHECK(absent() == 0);
    // Other values take the place of the first.
    Tensor changed = first.value().clone(MemoryKind::kWorkspace);
    std::reverse(static_cast<uint8_t*>(changed.data()), static_cast<uint8_t*>(changed.data()) + changed.bytes());
    first.restore({Tensor(), changed});
    CHECK_FALSE(first.value().present());
    CHECK(first.value().attached_layouts().at(0).elements() == changed.elements());
    CHECK(std::memcmp(first.value().data(), changed.data(), static_cast<size_t>(changed.bytes())) == 0);
  }
}

TEST_CASE("an opened model holds no master, gradient and moment, and never did") {
  const SmallRun run;
  const MemoryAccount before = memory_now();
  {
    reset_memory_peaks();
    const auto learner = run.open();
    const MemoryAccount now = memory_now(), peak = memory_peak_by_kind();
    for (const MemoryKind kind : {MemoryKind::kMaster, MemoryKind::kGrad, MemoryKind::kOptimizer}) {
      INFO(memory_kind_name(kind));
      CHECK(peak[kind] == before[kind]);
    }
    CHECK(now[MemoryKind::kValue] > before[MemoryKind::kValue]);
    CHECK(now[MemoryKind::kWorkspace] == before[MemoryKind::kWorkspace]);
    for (const Parameter* p : learner->model().parameters()) {
      CHECK(p->read_only());
      CHECK(p->has_values());
      CHECK(p->low_bit() != p->has_master());
      CHECK_FALSE(p->spec().frozen);  // what the run says of it stays
    }
    CHECK(learner->optimizer().state().empty());
  }
  {
    const auto learner = run.open(LearnerUse::kTrain);
    CHECK(memory_now()[MemoryKind::kMaster] > before[MemoryKind::kMaster]);
    CHECK(memory_now()[MemoryKind::kOptimizer] > before[MemoryKind::kOptimizer]);
  }
}

TEST_CASE("the memory of opening a model is that of the model and of its largest tensor at most") {
  const TempDir temp;
  const auto net = [](LearnerUse use) {
    std::vector<LayerSpec> layers(4, linear_spec(512, dtypes::ternary, "ternary", Granularity::channel(0)));
    auto learner = std::make_unique<Learner>(
        make_sequential(layers, 512), find_loss("softmax_cross_entropy"), OptimizerSpec{}, RequantPolicy{},
        [](int64_t) { return 0.0f; }, 3, use);
    learner->convert();
    return learner;
  };
  save_model(temp.file("m"), net(LearnerUse::kTrain)->model(), {});
  const int64_t file = std::ssize(bytes_of(temp.file("m"))), before = memory_now().total;
  reset_memory_peaks();
  const auto learner = net(LearnerUse::kPredict);
  CHECK(memory_now().total == before);
  load_model(temp.file("m"), learner->model());
  CHECK(memory_at_peak().total - before <= file);  // no layouts are planned
}

TEST_CASE("nothing is drawn for an unset parameter") {
  CHECK(contains(error_of([] { unset_learner("no such rule", LearnerUse::kTrain); }), "no such rule"));
  CHECK_NOTHROW(unset_learner("no such rule"));
}

TEST_CASE("an unset parameter that no file sets is an error with its name") {
  const auto learner = unset_learner();
  const Tensor x = random_tensor({2, kFeatures}, dtypes::fp32, 1);
  const std::string unset =
      "parameter 'layers.0.weight' ([4,5] int4) is unset: its model was made for the values of a file, and no file has "
      "set it. Load a checkpoint or a model file that has it";
  CHECK(error_of([&] { learner->predict(x); }) == "[Learner] " + unset);
  CHECK(error_code_of([&] { learner->predict(x); }) == 2);
  CHECK(contains(error_of([&] { learner->evaluate(x, std::vector<int32_t>{0, 1}); }), unset));
  CHECK(error_of([&] { learner->model().parameters()[0]->read(); }) == "[Parameter::read] " + unset);
  // All but one are set.
  std::vector<Parameter*> parameters = learner->model().parameters();
  for (size_t i = 0; i + 1 < parameters.size(); ++i)
    parameters[i]->assign(random_tensor(parameters[i]->shape(), dtypes::fp32, i), 0);
  CHECK(contains(error_of([&] { learner->predict(x); }), "parameter 'layers.1.bias' ([3] fp32) is unset"));
  parameters.back()->assign(random_tensor(parameters.back()->shape(), dtypes::fp32, 9), 0);
  CHECK_NOTHROW(learner->predict(x));
}

TEST_CASE("values assigned to an unset model are those of a model that was drawn") {
  const auto drawn = unset_learner("glorot_uniform", LearnerUse::kTrain), unset = unset_learner();
  for (Learner* learner : {drawn.get(), unset.get()})
    for (Parameter* p : learner->model().parameters())
      p->assign(random_tensor(p->shape(), dtypes::fp32, site_id(p->path())), 0);
  const Tensor x = random_tensor({6, kFeatures}, dtypes::fp32, 1);
  CHECK(unset->predict(x).to_vector() == drawn->predict(x).to_vector());
  for (const Parameter* p : unset->model().parameters())
    if (p->low_bit()) CHECK_FALSE(p->has_master());
}

TEST_CASE("a restored tensor of another form is refused by an unset parameter") {
  const auto learner = unset_learner();
  Parameter& weight = *learner->model().parameters()[0];
  const auto refused = [&](const ParameterState& state) { return error_of([&] { weight.restore(state); }); };
  const Tensor other = Tensor::zeros({4, 6}, dtypes::int4), bare = Tensor::zeros({4, 5}, dtypes::int4);
  CHECK(refused({{}, other}) == "[restore] parameter 'layers.0.weight' is [4,5] int4, got [4,6] int4");
  CHECK(refused({{}, bare}) == "[restore] the codes of 'layers.0.weight' have no quantization parameters");
  CHECK(contains(refused({Tensor::zeros({4, 5}, dtypes::fp32), bare}), "is read only and has no master"));
  CHECK(contains(refused({}), "is [4,5] int4, got"));
  CHECK_FALSE(weight.has_values());
}

TEST_CASE("a model opened to predict does not train and is not saved as a checkpoint") {
  const SmallRun run;
  const auto learner = run.open();
  const std::string what = "the model was opened to predict: it has no masters and no state of the optimizer";
  const Tensor x = samples_of(*run.data, 10);
  CHECK(contains(error_of([&] { learner->microbatch(x, std::vector<int32_t>(10, 1)); }), what));
  CHECK(contains(error_of([&] { save_checkpoint(run.temp.file("x"), *learner, {}, ""); }), what));
  CHECK(contains(error_of([&] { state_hash(*learner, {}); }), what));
  CHECK_FALSE(file_system().exists(run.temp.file("x")));
  CHECK_NOTHROW(learner->predict(x));
}

TEST_CASE("runs resume, and begin from a run that was opened meanwhile, with the bits that they had") {
  const KeepModes keep;
  const TempDir temp;
  const RunConfig config = small_config({"optim={name: adam, lr: 0.01}"}, kSmallInt4);
  const std::string whole = run_all(config, create_run_folder(config, temp.file("whole"))).state_hash;
  const std::string cut = create_run_folder(config, temp.file("cut"));
  run_part(config, cut, 7);
  const auto opened = open_model(cut);
  CHECK(resume_run(cut).state_hash == whole);
  const RunConfig next = small_config({"optim={name: adam, lr: 0.01}", "model.init_from=" + cut}, kSmallInt4);
  const TrainOutcome from = run_all(next, create_run_folder(next, temp.file("next")));
  const RunConfig other =
      small_config({"optim={name: adam, lr: 0.01}", "model.init_from=" + temp.file("whole")}, kSmallInt4);
  CHECK(from.state_hash == run_all(other, create_run_folder(other, temp.file("other"))).state_hash);
}

TEST_CASE("what the model needs is missed and named, and what only training needs is not read") {
  const SmallRun run;
  const std::string weight = "layers.0.weight";
  CHECK(load_error(run, [](Parts&) {}).empty());
  CHECK(contains(load_error(run, [&](Parts& p) { drop(p, "layers.1.running_mean"); }),
                 "'layers.1.running_mean' is missing"));
  CHECK(contains(load_error(run, [&](Parts& p) { drop(p, weight + ".scale"); }), "'layers.0.weight.scale' is missing"));
  CHECK(
      contains(load_error(run, [&](Parts& p) { drop(p, weight + ".master"); }), "'layers.0.weight.master' is missing"));
  CHECK(contains(load_error(run, [&](Parts& p) { drop(p, "layers.0.bias.master"); }), "layers.0.bias"));
  CHECK(contains(load_error(run, [](Parts& p) { add(p, "layers.9.weight.master", 1); }),
                 "tensor 'layers.9.weight.master' does not belong to this model"));
  CHECK(contains(load_error(run, [&](Parts& p) { add(p, weight + ".offset", 1); }),
                 "tensor 'layers.0.weight.offset' does not belong to this model"));
  CHECK(contains(load_error(run, [&](Parts& p) { add(p, "layers.0.bias.codes", 1); }), "layers.0.bias.codes"));
  // Codes that the dtype does not have, and scales that are no numbers.
  CHECK(contains(load_error(
                     run, [&](Parts& p) { p.bytes[p.find(weight + ".scale")].assign(4 * 12, 0xFF); }, 5),
                 "'layers.0.weight.scale' holds NaN or Inf"));
  // Moments and masters are of no use here. Training finds what is wrong with them.
  const auto damage = [&](Parts& p) {
    std::vector<uint8_t>& master = p.bytes[p.find(weight + ".master")];
    std::fill(master.begin(), master.end(), uint8_t{0xFF});
  };
  CHECK(load_error(run, damage).empty());
  CHECK(contains(error_of([&] { load_evaluator(run.config, *run.data, run.temp.file("changed"), LearnerUse::kTrain); }),
                 "'layers.0.weight.master' holds NaN or Inf"));
  const auto without_moments = [&](Parts& p) {
    while (std::any_of(p.items.begin(), p.items.end(), [](const auto& i) { return contains(i.name, ".adam."); }))
      drop(p, std::find_if(p.items.begin(), p.items.end(), [](const auto& i) {
                return contains(i.name, ".adam.");
              })->name);
  };
  CHECK(load_error(run, without_moments).empty());
}

TEST_CASE("a damaged byte anywhere, also in what is not read, and a file cut anywhere are found when it is opened") {
  const SmallRun run;
  const std::vector<uint8_t> good = bytes_of(run.file);
  const SafetensorsFile file = SafetensorsFile::open(run.file);
  const auto data = static_cast<int64_t>(good.size()) - (file.entries().back().offset + file.entries().back().bytes);
  const std::string path = run.temp.file("damaged");
  const auto both = [&] {
    const auto load = [&] { load_evaluator(run.config, *run.data, path); };
    const std::string text = error_of(load);
    CHECK(error_code_of(load) == 3);
    CHECK(error_of([&] { open_file(path); }) == text);
    CHECK(error_of([&] { open_model(path); }) == text);
    CHECK(error_of([&] { load_evaluator(path, find_loss("softmax_cross_entropy")); }) == text);
    return text;
  };
  for (const SafetensorsEntry& e : file.entries()) {
    if (e.bytes == 0) continue;
    INFO(e.name);
    std::vector<uint8_t> bytes = good;
    bytes[static_cast<size_t>(data + e.offset + e.bytes / 2)] ^= 4;
    write(path, bytes);
    CHECK(contains(both(), "'" + path + "': the checksum of the data (from byte "));
  }
  for (const size_t size : {size_t{0}, size_t{5}, size_t{9}, size_t{900}, static_cast<size_t>(data), good.size() - 1}) {
    INFO(size);
    write(path, {good.begin(), good.begin() + static_cast<int64_t>(size)});
    const std::string text = both();
    INFO(text);
    CHECK(contains(text, "'" + path + "': the "));
  }
}

TEST_CASE("an opened file stays the one that was opened when a run replaces it") {
  const SmallRun run;
  const Tensor x = samples_of(*run.data, 10);
  const std::vector<float> expected = run.open()->predict(x).to_vector();
  OpenedFile file = open_file(run.file);
  Parts parts(run.file);
  std::vector<uint8_t>& scales = parts.bytes[parts.find("layers.0.weight.scale")];
  std::fill(scales.begin(), scales.end(), uint8_t{0x3F});
  parts.write(run.file);
  CHECK(load_file(file, nullptr)->predict(x).to_vector() == expected);
  file.tensors.reset();
  CHECK(load_file(file, nullptr)->predict(x).to_vector() != expected);
}
