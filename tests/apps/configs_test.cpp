// Every shipped configuration runs for a few steps, and gives a checkpoint that eval reads.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "apps/cli.h"
#include "bitgrad/base/json.h"
#include "support/catch.h"
#include "support/data_folder.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/vector_files.h"

using bitgrad::Json;
using namespace bitgrad::test;

namespace {

// The file that a configuration reads; empty: none.
std::string data_of(const std::string& name) {
  if (name.rfind("mnist", 0) == 0) return "mnist/train-images-idx3-ubyte.gz";
  if (name.rfind("shakespeare", 0) == 0) return "text/tinyshakespeare.txt";
  if (name.rfind("cifar10", 0) == 0) return "cifar-10-batches-bin/data_batch_1.bin";
  if (name.rfind("vectors", 0) == 0) return "vectors/train-x.idx";
  return "";
}

std::vector<std::filesystem::path> shipped() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("configs")))
    if (entry.path().extension() == ".yaml") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

// CIFAR-10's files with records of drawn bytes, for where the data are absent.
void write_cifar(const std::string& root) {
  constexpr int kRecords = 200, kRecord = 3073;
  std::filesystem::create_directory(root + "/cifar-10-batches-bin");
  std::mt19937 random(1);
  for (const std::string file :
       {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"}) {
    std::ofstream out(root + "/cifar-10-batches-bin/" + file + ".bin", std::ios::binary);
    for (int i = 0; i < kRecords * kRecord; ++i)
      out.put(static_cast<char>(i % kRecord == 0 ? random() % 10 : random() % 256));
  }
}

// Overrides that put drawn digits, of the same shape, in the place of MNIST.
std::vector<std::string> digits_instead(const std::string& train, const std::string& test) {
  return {"data.train={format: digits, size: " + train + "}", "data.test={format: digits, size: " + test + "}"};
}

}  // namespace

TEST_CASE("every shipped configuration trains a few steps and is evaluated") {
  REQUIRE(shipped().size() >= 20);
  TempDir temp;
  write_vectors(temp.path(), 300, 120);
  write_cifar(temp.path());
  for (const auto& path : shipped()) {
    const std::string name = path.stem(), folder = temp.file(name);
    const std::string file = data_of(name);
    const bool mnist = name.rfind("mnist", 0) == 0;
    const bool vectors = name.rfind("vectors", 0) == 0;
    const bool cifar = name.rfind("cifar10", 0) == 0;
    const bool drawn = cifar && !std::filesystem::exists(data_folder() + "/" + file);
    const std::string root = vectors || drawn ? temp.path() : data_folder();
    if (!file.empty() && !std::filesystem::exists(root + "/" + file)) {
      WARN(name << " skipped: no " << file << " in " << root << " (set BITGRAD_DATA)");
      continue;
    }
    std::vector<std::string> arguments{kProgram, "train", path, "train.eval.every=3 steps", "--out", folder};
    std::vector<std::string> smaller{"train.stop=3 steps"};
    if (!file.empty())
      smaller.push_back("data.root=" + root);
    else
      smaller.insert(smaller.end(), {"data.train.size=400", "data.test.size=200"});
    if (cifar) smaller.insert(smaller.end(), {"data.train.limit=400", "data.test.limit=200", "batch.global=20"});
    if (contains(slurp(path), "warmup:")) smaller.push_back("schedule.warmup=1 steps");
    // Its context and heads, on fewer windows of a smaller net.
    if (name == "shakespeare_gpt_gpu")
      smaller.insert(smaller.end(), {"model.keys.dim=48", "model.keys.layers=2", "model.keys.recompute=true",
                                     "batch={global: 2, micro: 1}"});
    if (name == "mnist_mlp4096_w1a1")
      smaller.insert(smaller.end(), {"model.layers.2.linear.out=256", "model.layers.6.linear.out=256",
                                     "model.layers.10.linear.out=256"});
    // Reading MNIST again for each would only take time: one plain, one observed, one learned, one without masters. Of
    // the language models two evaluate the whole text.
    const std::set<std::string> evaluated{"mnist_tfc_w1a1", "mnist_mlp_int8_int", "mnist_mlp_lsq_w2a2",
                                          "mnist_mlp_bop_w1a8"};
    const bool gpt = name.rfind("shakespeare_gpt", 0) == 0,
               part = (gpt && name != "shakespeare_gpt_cpu") || name == "shakespeare_mlp_positions_int8";
    if (part || (mnist && evaluated.count(name) == 0)) smaller.push_back("data.test.limit=200");
    // Adapters start from the run of the configuration without them.
    if (name == "shakespeare_gpt_qlora") smaller.push_back("model.init_from=" + temp.file("shakespeare_gpt_cpu"));
    arguments.insert(arguments.end(), smaller.begin(), smaller.end());
    const ProcessResult r = run_program(arguments);
    INFO(name << ": " << r.out << r.err);
    REQUIRE(r.code == 0);
    CHECK(contains(r.out, "3 optimizer steps"));
    if (mnist && evaluated.count(name) == 0) continue;
    std::vector<std::string> evaluate{kProgram, "eval", folder, "--json"};
    if (vectors || drawn) evaluate.insert(evaluate.end(), {"--data", root});
    const ProcessResult e = run_program(evaluate);
    INFO(e.err);
    // Of a text of 111540 characters: each but the first 16, or windows of 64 side by side.
    const bool windows = gpt || name == "shakespeare_mlp_swiglu_int8";
    const int64_t text = windows ? (111540 - 1 + 63) / 64 : 111540 - 16;
    const int64_t samples = mnist ? 10000 : vectors ? 120 : file.empty() || cifar || part ? 200 : text;
    CHECK(Json::parse(e.out).at("samples") == samples);
  }
}

TEST_CASE("configurations of MNIST also run on drawn digits of the same shape") {
  TempDir temp;
  std::vector<std::string> arguments{
      kProgram, "train", source_path("configs/mnist_tfc_w2a2.yaml"), "train.stop=3 steps", "--out", temp.file("run")};
  for (const std::string& o : digits_instead("300", "100")) arguments.push_back(o);
  const ProcessResult r = run_program(arguments);
  INFO(r.err);
  CHECK(r.code == 0);
}

TEST_CASE("strict TFC and SFC: scalar, AVX2 and AVX-512 give one state after 60 steps", "[slow]") {
  TempDir temp;
  for (const std::string net : {"tfc", "sfc"}) {
    std::string first;
    for (const std::string isa : {"scalar", "avx2", "avx512"}) {
      const std::string folder = temp.file(net + isa);
      std::vector<std::string> arguments{kProgram,
                                         "train",
                                         source_path("configs/mnist_") + net + "_w1a1.yaml",
                                         "run.bits=strict",
                                         "train.stop=60 steps",
                                         "train.eval.every=60 steps",
                                         "--out",
                                         folder};
      for (const std::string& o : digits_instead("2000", "200")) arguments.push_back(o);
      const ProcessResult r = run_program(arguments, {{"BITGRAD_ISA", isa}});
      INFO(net << ' ' << isa << ": " << r.err);
      REQUIRE(r.code == 0);
      const std::string hash = Json::parse(slurp(folder + "/summary.json")).at("state_hash").text();
      if (first.empty()) first = hash;
      CHECK(hash == first);
    }
  }
}
