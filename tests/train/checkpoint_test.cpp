#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/base/json.h"

#include <functional>
#include <limits>
#include <set>

#include "bitgrad/base/file.h"
#include "bitgrad/io/safetensors.h"
#include "bitgrad/kernels/gemm_costs.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/faulty_file_system.h"
#include "support/one_file.h"
#include "support/temp_dir.h"
#include "train/checkpoint_parts.h"
#include "train/small_learner.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

std::vector<uint8_t> bytes_of(const std::string& path) { return file_system().read(path); }
void put(const std::string& path, const std::vector<uint8_t>& bytes) {
  write_file_atomically(path, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

}  // namespace

TEST_CASE("a checkpoint gives a fresh learner the very state, and training goes on alike") {
  TempDir temp;
  const auto learner = small_learner();
  train_some(*learner, 5);
  save_checkpoint(temp.file("c"), *learner, kCounters, "the: config");
  const auto fresh = small_learner();
  CHECK(state_hash(*fresh, kCounters) != state_hash(*learner, kCounters));
  load_checkpoint(temp.file("c"), *fresh);
  CHECK(state_hash(*fresh, kCounters) == state_hash(*learner, kCounters));
  CHECK(fresh->state().step == 5);
  CHECK(fresh->state().microbatch == 5);
  CHECK(fresh->optimizer().steps() == 5);
  train_some(*learner, 3);
  train_some(*fresh, 3);
  CHECK(state_hash(*fresh, kCounters) == state_hash(*learner, kCounters));

  const CheckpointHeader header = read_checkpoint_header(temp.file("c"));
  CHECK(header.step == 5);
  CHECK(header.seed == 3);
  CHECK(header.config == "the: config");
  CHECK(header.counters.epoch == 2);
  CHECK(header.counters.position == 30);
  CHECK(header.counters.best_accuracy == 87.5);
  CHECK(header.counters.best_epoch == 1);
  CHECK(header.counters.last_accuracy == 80.25);
  CHECK(header.counters.train_seconds == 12.5);
  CHECK(header.kernel_hash == kernel_table_hash());
}

TEST_CASE("codes in a file have no padding beyond the byte, and a 1-bit weight is 1/32 of its master") {
  TempDir temp;
  LayerSpec wide = linear_spec(32, dtypes::bint1, "binary");
  OptimizerSpec sgd;
  Learner learner(
      make_sequential({wide}, 256), find_loss("squared_hinge"), sgd, RequantPolicy{}, [](int64_t) { return 0.1f; }, 1);
  save_checkpoint(temp.file("c"), learner, kCounters, "");
  const SafetensorsFile file = SafetensorsFile::read(temp.file("c"));
  CHECK(file.entry("layers.0.weight.codes").bytes * 32 == file.entry("layers.0.weight.master").bytes);
  CHECK(file.entry("layers.0.weight.codes").shape == std::vector<int64_t>{32, 32});
  CHECK(file.entry("layers.0.weight.codes").dtype == "U8");
}

TEST_CASE("the state hash sees every tensor and counter, and not the seconds") {
  const auto learner = small_learner();
  train_some(*learner, 2);
  const std::string base = state_hash(*learner, kCounters);
  CHECK(state_hash(*learner, kCounters) == base);
  const auto other = [&](const std::function<void(RunCounters&)>& change) {
    RunCounters c = kCounters;
    change(c);
    return state_hash(*learner, c);
  };
  CHECK(other([](RunCounters& c) { c.train_seconds = 1; }) == base);
  CHECK(other([](RunCounters& c) { ++c.epoch; }) != base);
  CHECK(other([](RunCounters& c) { ++c.position; }) != base);
  CHECK(other([](RunCounters& c) { c.best_accuracy += 0.5; }) != base);
  CHECK(other([](RunCounters& c) { c.last_accuracy += 0.5; }) != base);
  std::vector<Tensor> floats;
  for (Parameter* p : learner->model().parameters()) floats.push_back(p->master());
  for (const auto& s : learner->optimizer().state()) floats.push_back(s.tensor);
  for (const auto& b : learner->model().buffers()) floats.push_back(b.tensor);
  for (const Tensor& t : floats) {
    float& last = t.as<float>()[t.numel() - 1];
    const float old = last;
    last = -old - 1.0f;
    CHECK(state_hash(*learner, kCounters) != base);
    last = old;
  }
  ++learner->state().step;
  CHECK(state_hash(*learner, kCounters) != base);
  --learner->state().step;
  CHECK(state_hash(*learner, kCounters) == base);
}

TEST_CASE("a file cut anywhere is one clear error") {
  TempDir temp;
  const auto learner = small_learner();
  train_some(*learner, 1);
  save_checkpoint(temp.file("c"), *learner, kCounters, "version: 1");
  const std::vector<uint8_t> whole = bytes_of(temp.file("c"));
  REQUIRE(whole.size() < 20000);
  OneFile file;
  for (size_t n = 0; n < whole.size(); ++n) {
    file.bytes.assign(whole.begin(), whole.begin() + static_cast<int64_t>(n));
    if (error_code_of([&] { load_checkpoint("cut", *learner); }) != 3) FAIL("cut to " << n << " bytes");
  }
  file.bytes = whole;
  CHECK_NOTHROW(load_checkpoint("whole", *learner));
}

TEST_CASE("any flipped bit is one clear error") {
  TempDir temp;
  const auto learner = small_learner();
  train_some(*learner, 1);
  save_checkpoint(temp.file("c"), *learner, kCounters, "version: 1");
  const std::vector<uint8_t> whole = bytes_of(temp.file("c"));
  OneFile file;
  for (size_t i = 0; i < whole.size(); ++i) {
    file.bytes = whole;
    file.bytes[i] ^= static_cast<uint8_t>(1u << (i * 5 % 8));
    if (error_code_of([&] { load_checkpoint("flipped", *learner); }) != 3) FAIL("byte " << i << ", bit " << i * 5 % 8);
    if (i % 16 == 0 && error_code_of([&] { read_checkpoint_header("flipped"); }) != 3) FAIL("header, byte " << i);
  }
}

TEST_CASE("a checkpoint that was rewritten without change loads") {
  CHECK(error_after([](Parts&) {}).empty());
}

TEST_CASE("every missing tensor is named") {
  TempDir temp;
  const auto learner = small_learner();
  save_checkpoint(temp.file("c"), *learner, kCounters, "");
  const Parts parts(temp.file("c"));
  bool offset = false, zero = false;
  for (size_t i = 0; i < parts.items.size(); ++i) {
    const std::string name = parts.items[i].name;
    const std::string text = error_after([&](Parts& p) {
      p.items.erase(p.items.begin() + static_cast<int64_t>(i));
      p.bytes.erase(p.bytes.begin() + static_cast<int64_t>(i));
    });
    INFO(text);
    CHECK(contains(text, "'" + name + "' is missing"));
    offset = offset || contains(name, ".offset");
    zero = zero || contains(name, ".zero");
  }
  CHECK(offset);
  CHECK(zero);
}

TEST_CASE("a tensor that belongs nowhere, or has another form, is named") {
  const std::string extra = error_after([](Parts& p) {
    p.items.push_back({"layers.9.weight.master", "F32", {1}, nullptr, 4});
    p.bytes.emplace_back(4, 0);
  });
  CHECK(contains(extra, "'layers.9.weight.master' does not belong to this model"));
  for (const std::string name : {"layers.0.weight.master", "layers.0.weight.codes", "layers.0.weight.scale",
                                 "layers.0.weight.adam.m", "layers.1.running_mean"}) {
    const std::string shape =
        error_after([&](Parts& p) { p.items[p.find(name)].shape.insert(p.items[p.find(name)].shape.begin(), 1); });
    INFO(shape);
    CHECK(contains(shape, "'" + name + "'"));
    CHECK(contains(shape, "expected"));
  }
  const std::string dtype = error_after([](Parts& p) { p.items[p.find("layers.0.weight.master")].dtype = "I32"; });
  CHECK(contains(dtype, "I32"));
  CHECK(contains(dtype, "F32"));
}

TEST_CASE("records that do not fit the model are refused") {
  const auto weight = [](Json& j) -> Json& { return j.at("layers.0.weight.codes"); };
  const auto edited = [&](const std::function<void(Json&)>& change) {
    return error_after([&](Parts& p) { p.edit("bitgrad.tensors", [&](Json& j) { change(weight(j)); }); });
  };
  CHECK(contains(edited([](Json& r) { r["scheme"] = "symmetric"; }), "symmetric"));
  CHECK(contains(edited([](Json& r) {
                   r["granularity"] = {{"kind", 3}, {"axis", -1}, {"group", 0}, {"text", ""}};
                 }),
                 "layers.0.weight"));
  CHECK(contains(edited([](Json& r) { r["granularity"]["kind"] = 9; }), "granularity"));
  CHECK(contains(edited([](Json& r) { r["shape"] = {5, 4}; }), "[5,4]"));
  CHECK_FALSE(edited([](Json& r) { r["shape"] = {-4, 5}; }).empty());
  CHECK(contains(edited([](Json& r) { r["shape"] = "x"; }), "malformed"));
  CHECK(contains(edited([](Json& r) { r.erase("dtype"); }), "dtype"));
  CHECK(contains(edited([](Json& r) { r["dtype"]["qmax"] = 6; }), "int4"));
  CHECK_FALSE(edited([](Json& r) { r["dtype"]["kind"] = "imaginary"; }).empty());
  CHECK(contains(
      error_after([](Parts& p) { p.edit("bitgrad.tensors", [](Json& j) { j.erase("layers.0.weight.codes"); }); }),
      "no record"));
}

TEST_CASE("counters that cannot be are refused") {
  const auto edited = [](const std::function<void(Json&)>& change) {
    return error_after([&](Parts& p) { p.edit("bitgrad.state", change); });
  };
  for (const int version : {1, 3})
    CHECK(contains(edited([&](Json& s) { s["format_version"] = version; }),
                   concat("format version ", version, ", this program reads 2")));
  CHECK(contains(edited([](Json& s) { s["seed"] = 4; }), "seed 4"));
  for (const char* key : {"step", "microbatch", "since_requantize", "phase", "epoch", "position"})
    CHECK(contains(edited([&](Json& s) { s[key] = -1; }), "negative"));
  CHECK(contains(edited([](Json& s) { s["phase"] = 1; }),
                 "was saved in phase 1 of quantization, the model is in phase 0"));
  CHECK(contains(edited([](Json& s) { s["best"]["epoch"] = -1; }), "negative"));
  CHECK(contains(edited([](Json& s) { s["step"] = "many"; }), "malformed"));
  for (const char* key : {"format_version", "step", "microbatch", "epoch", "position", "seed", "best", "last_accuracy",
                          "phase", "train_seconds", "unreported"})
    CHECK(contains(edited([&](Json& s) { s.erase(key); }), key));
  for (const char* key : {"bitgrad.tensors", "bitgrad.state", "bitgrad.config", "bitgrad.kernels"})
    CHECK(contains(error_after([&](Parts& p) { p.metadata.erase(key); }), key));
  CHECK_FALSE(error_after([](Parts& p) { p.metadata["bitgrad.state"] = "{"; }).empty());
  CHECK_FALSE(error_after([](Parts& p) { p.metadata["bitgrad.tensors"] = "[]"; }).empty());
}

TEST_CASE("codes out of range and bits behind the last code are refused") {
  // 3 x 3 uint3: 9 bits a row in 2 bytes; 3 x 3 bint1: 3 bits a row.
  CHECK(contains(error_after([](Parts& p) { p.bytes[p.find("layers.4.weight.codes")][0] |= 0x80; }),
                 "after the last code"));
  TempDir temp;
  const auto learner = small_learner(dtypes::ternary, "ternary");
  save_checkpoint(temp.file("a"), *learner, kCounters, "");
  Parts parts(temp.file("a"));
  uint8_t& first = parts.bytes[parts.find("layers.4.weight.codes")][0];
  first = static_cast<uint8_t>((first & ~3u) | 2u);  // raw 10 never occurs in ternary
  parts.write(temp.file("b"));
  const std::string text = error_of([&] { load_checkpoint(temp.file("b"), *learner); });
  CHECK(contains(text, "-2 is not a code of ternary"));
}

TEST_CASE("a dtype that only the file knows is registered when its header is read") {
  TempDir temp;
  const DType made = register_dtype(
      {.name = "checkpoint_test_a", .bits = 2, .kind = DTypeKind::kCodebook, .levels = {-1.5f, -0.5f, 0.5f, 1.5f}});
  const auto learner = small_learner(made, "codebook");
  train_some(*learner, 2);
  save_checkpoint(temp.file("a"), *learner, kCounters, "");
  Parts parts(temp.file("a"));
  parts.edit("bitgrad.tensors",
             [](Json& j) { j.at("layers.4.weight.codes").at("dtype")["name"] = "checkpoint_test_b"; });
  parts.write(temp.file("b"));
  REQUIRE_FALSE(find_dtype("checkpoint_test_b"));
  read_checkpoint_header(temp.file("b"));
  const auto found = find_dtype("checkpoint_test_b");
  REQUIRE(found);
  CHECK(found->info().levels == made.info().levels);
  // A model that names it takes the weights.
  const auto fresh = small_learner(*found, "codebook");
  load_checkpoint(temp.file("b"), *fresh);
  CHECK(fresh->model().parameters().back()->path() == learner->model().parameters().back()->path());
  for (size_t i = 0; i < fresh->model().parameters().size(); ++i)
    CHECK(fresh->model().parameters()[i]->value().values() == learner->model().parameters()[i]->value().values());
  // The same name with other levels is an error.
  parts.edit("bitgrad.tensors", [](Json& j) { j.at("layers.4.weight.codes").at("dtype")["levels"][0] = -2.0; });
  parts.write(temp.file("c"));
  CHECK(error_code_of([&] { read_checkpoint_header(temp.file("c")); }) == 3);
  CHECK(contains(error_of([&] { read_checkpoint_header(temp.file("c")); }), "checkpoint_test_b"));
}

TEST_CASE("a file of another program is distinguished") {
  TempDir temp;
  const float number = 1;
  write_safetensors(temp.file("x"), {{"w", "F32", {1}, &number, 4}}, {});
  CHECK(contains(error_of([&] { read_checkpoint_header(temp.file("x")); }), "not a bitgrad checkpoint"));
  CHECK(error_code_of([&] { read_checkpoint_header(temp.file("x")); }) == 3);
  CHECK(error_code_of([&] { read_checkpoint_header(temp.file("absent")); }) == 3);
}

TEST_CASE("for every failing file call during a save, the old checkpoint or the new one is whole") {
  TempDir temp;
  const auto learner = small_learner();
  train_some(*learner, 1);
  const std::string path = temp.file("last.safetensors");
  save_checkpoint(path, *learner, kCounters, "old");
  const std::vector<uint8_t> old = bytes_of(path);
  train_some(*learner, 1);
  int calls = 0;
  {
    FaultyFileSystem faulty(-1, FaultyFileSystem::When::kBefore, false);
    save_checkpoint(temp.file("other"), *learner, kCounters, "new");
    calls = faulty.calls();
  }
  const std::vector<uint8_t> renewed = bytes_of(temp.file("other"));
  file_system().remove(temp.file("other"));
  REQUIRE(calls >= 5);
  for (int i = 0; i < calls; ++i)
    for (const auto when :
         {FaultyFileSystem::When::kBefore, FaultyFileSystem::When::kAfter, FaultyFileSystem::When::kHalfWritten}) {
      INFO("call " << i << ", way " << static_cast<int>(when));
      put(path, old);
      {
        FaultyFileSystem faulty(i, when, false);
        CHECK(error_code_of([&] { save_checkpoint(path, *learner, kCounters, "new"); }) == 4);
      }
      const std::vector<uint8_t> now = bytes_of(path);
      CHECK((now == old || now == renewed));
      if (i + 2 < calls) CHECK(now == old);
      CHECK(file_system().list(temp.path()) == std::vector<std::string>{"last.safetensors"});
    }
}

TEST_CASE("a state that is not finite is not saved, and the file before it stays") {
  TempDir temp;
  const auto learner = small_learner();
  train_some(*learner, 2);
  save_checkpoint(temp.file("c"), *learner, kCounters, "the: config");
  for (const auto& buffer : learner->model().buffers())
    buffer.tensor.as<float>()[0] = std::numeric_limits<float>::infinity();
  const std::string text = error_of([&] { save_checkpoint(temp.file("c"), *learner, kCounters, "the: config"); });
  CHECK(contains(text, "'layers.1.running_mean' holds NaN or Inf at optimizer step 2. Nothing was saved"));
  CHECK(read_checkpoint_header(temp.file("c")).step == 2);
}

TEST_CASE("a checkpoint inside a window is refused") {
  TempDir temp;
  const auto learner = small_learner(dtypes::bint1, "binary", 3, 2, 2);
  train_some(*learner, 1);
  const auto save = [&] { save_checkpoint(temp.file("c"), *learner, kCounters, ""); };
  CHECK(error_code_of(save) == 2);
  CHECK(error_of(save) == "[checkpoint] " + temp.file("c") +
                              ": the window of 2 microbatches is open, with 6 samples. Save after a microbatch that "
                              "stepped (StepResult::stepped), or call flush first.");
  CHECK_FALSE(file_system().exists(temp.file("c")));
}

TEST_CASE("the hash of kernels is moved by each factor on the cost of each row that may run") {
  struct ShippedCosts {
    ShippedCosts() { set_gemm_costs({}); }
    ~ShippedCosts() { set_gemm_costs({}); }
  };
  const ShippedCosts shipped;
  const std::string before = kernel_table_hash();
  std::set<std::string> hashes{before};
  size_t tables = 0;
  for (const GemmKernel& kernel : gemm_kernels()) {
    if ((kernel.needs & ~cpu_isa()) != 0) continue;
    for (int size = 0; size < kGemmCostClasses; ++size, ++tables) {
      GemmCostFactors factors;
      factors.kernel = kernel.name;
      factors.factor[static_cast<size_t>(size)] = 1.0001;
      set_gemm_costs({factors});
      hashes.insert(kernel_table_hash());
    }
  }
  CHECK(hashes.size() == 1 + tables);
  GemmCostFactors absent, unmoved;
  absent.kernel = "gemm_of_another_build";
  absent.factor.fill(2);
  unmoved.kernel = gemm_kernels()[0].name;
  set_gemm_costs({absent, unmoved});
  CHECK(kernel_table_hash() == before);
}
