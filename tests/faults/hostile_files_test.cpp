// Files made to do harm, as the program meets them: each run has 1 GiB of address space and must end with the exit code
// of a bad file and a text that names it. Ten minutes end what hangs.
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>

#include "apps/cli.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/rng.h"
#include "bitgrad/io/safetensors.h"
#include "io/safetensors_format.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/failing_calls.h"
#include "support/idx_bytes.h"
#include "train/checkpoint_parts.h"

using namespace bitgrad;
using namespace bitgrad::test;
using Bytes = std::vector<uint8_t>;

namespace {

constexpr const char* kConfig = R"yaml(version: 1
run: {name: small, seed: 2}
data: {train: {format: digits, size: 40}}
model:
  layers:
    - linear: {out: 12}
    - relu: {}
    - linear: {out: 10}
quant:
  weights: {dtype: int4, scheme: affine, granularity: channel}
batch: {global: 20, micro: 20}
loss: softmax_cross_entropy
optim: {name: adam, lr: 0.01}
train: {stop: 4 steps}
)yaml";

constexpr const char* kIdxData =
    "data.train={format: idx, images: images, labels: labels}";  // in BITGRAD_DATA or data.root

constexpr const char* kLimits = "ulimit -v 1048576; exec timeout -s KILL 600 env \"$@\"";

// The environment is that of the program alone.
ProcessResult limited(const std::vector<std::string>& arguments, Process::Environment environment = {}) {
  environment.insert(environment.end(), {{"BITGRAD_GEMM_COSTS", "/nonexistent/x"}, {"OMP_NUM_THREADS", "2"}});
  std::vector<std::string> words{"/bin/sh", "-c", kLimits, "sh"};
  for (const auto& [name, value] : environment) words.push_back(name + '=' + value);
  words.push_back(kProgram);
  words.insert(words.end(), arguments.begin(), arguments.end());
  return run_program(words);
}

void check_refused(const std::vector<std::string>& arguments, int code, const std::string& text) {
  const ProcessResult r = limited(arguments);
  INFO(arguments[0] << ": " << r.out << r.err.substr(0, 2000));
  CHECK(r.code == code);
  CHECK(contains(r.err, text));
}

void put(const std::string& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
}
void put(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

// A file that is `bytes` long and takes no room on the disk.
void put_sparse(const std::string& path, const Bytes& front, int64_t bytes) {
  put(path, front);
  std::filesystem::resize_file(path, static_cast<uintmax_t>(bytes));
}

// `head`, then 4 GiB of zeros: one small member again and again.
Bytes bomb(const Bytes& head) {
  Bytes out = gzip(head);
  const Bytes member = gzip(Bytes(size_t{64} << 20, 0), 1);
  for (int i = 0; i < 64; ++i) out.insert(out.end(), member.begin(), member.end());
  return out;
}

// A trained run to forge files from, made once.
const std::string& run_folder() {
  static TempDir temp;
  static const std::string folder = [] {
    put(temp.file("c.yaml"), std::string(kConfig));
    const ProcessResult r = cli({"train", temp.file("c.yaml"), "--out", temp.file("run"), "-q"});
    INFO(r.out << r.err);
    REQUIRE(r.code == 0);
    return temp.file("run");
  }();
  return folder;
}

Parts last_checkpoint() { return Parts(run_folder() + "/last.safetensors"); }

void remove_tensor(Parts& parts, const std::string& name) {
  const auto at = static_cast<std::ptrdiff_t>(parts.find(name));
  parts.items.erase(parts.items.begin() + at);
  parts.bytes.erase(parts.bytes.begin() + at);
}

void edit_record(Parts& parts, const std::function<void(Json&)>& change) {
  parts.edit("bitgrad.tensors", [&](Json& j) { change(j.at("layers.0.weight.codes")); });
}

// Every command that opens a file refuses the forged one with code 3 and this text.
void check_forged(const std::function<void(Parts&)>& change, const std::string& text, int code = 3) {
  TempDir temp;
  Parts parts = last_checkpoint();
  change(parts);
  const std::string file = temp.file("forged");
  parts.write(file);
  check_refused({"eval", file}, code, text);
  check_refused({"inspect", file}, code, text);
  check_refused({"convert", file, "-o", temp.file("out")}, code, text);
  CHECK_FALSE(std::filesystem::exists(temp.file("out")));
}

}  // namespace

TEST_CASE("gzip files that swell to gigabytes are refused") {
  TempDir temp;
  const std::string config = temp.file("c.yaml");
  put(config, std::string(kConfig));
  const auto train = [&](const Bytes& images, const Bytes& labels, const std::string& text) {
    put(temp.file("images"), images);
    put(temp.file("labels"), labels);
    check_refused({"train", config, kIdxData, "data.root=" + temp.path(), "--out", temp.file("run")}, 3, text);
    CHECK_FALSE(std::filesystem::exists(temp.file("run")));
  };
  Bytes labels = idx_header({65536});
  labels.resize(labels.size() + 65536);
  train(bomb(idx_header({65536, 256, 256})), gzip(labels), "images: elements: got 65536 x 256 x 256");
  Bytes images = idx_header({3, 2, 2});
  images.resize(images.size() + 12);
  Bytes three = idx_header({3});
  three.resize(three.size() + 3);
  train(bomb(images), three, "images: trailing bytes: got more content at offset 28");
  train(images, bomb(three), "labels: trailing bytes: got more content at offset 11");
}

TEST_CASE("sparse files of gigabytes are refused by their size, before they are read") {
  TempDir temp;
  constexpr int64_t kHuge = int64_t{3} << 30;
  const std::string config = temp.file("c.yaml");
  put(config, std::string(kConfig));
  const auto train = [&](const std::string& text) {
    check_refused({"train", config, kIdxData, "data.root=" + temp.path(), "--out", temp.file("run")}, 3, text);
  };
  Bytes labels = idx_header({3}), images = idx_header({3, 2, 2});
  labels.resize(labels.size() + 3);
  images.resize(images.size() + 12);
  put(temp.file("labels"), labels);
  put_sparse(temp.file("images"), {}, kHuge);
  train("images: element type at offset 2: got 0x00");
  put_sparse(temp.file("images"), images, kHuge);
  train("images: trailing bytes");
  put_sparse(temp.file("images"), idx_header({3, 32768, 32768}), kHuge + 16);
  put_sparse(temp.file("labels"), idx_header({2}), 10);
  train("images at offset 4: got 3, expected 2, the number of labels");
  put(temp.file("images"), images);
  put_sparse(temp.file("labels"), labels, kHuge);
  train("labels: trailing bytes");
  put_sparse(temp.file("huge.yaml"), {}, kHuge);
  check_refused({"train", temp.file("huge.yaml")}, 2, "has 3221225472 bytes, at most 1048576 are read");
  put_sparse(temp.file("huge"), {}, kHuge);
  check_refused({"eval", temp.file("huge")}, 3, "'" + temp.file("huge") + "': the header does not begin with '{'");
}

TEST_CASE("pipes, devices and sockets instead of files are refused at once") {
  TempDir temp;
  const std::string pipe = temp.file("pipe"), config = temp.file("c.yaml");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  put(config, std::string(kConfig));
  const std::string what = "'" + pipe + "': it is a pipe, expected a regular file";
  check_refused({"train", pipe}, 2, what);
  check_refused({"train", "/dev/zero"}, 2, "'/dev/zero': it is a device, expected a regular file");
  for (const char* command : {"eval", "inspect"}) check_refused({command, pipe}, 3, what);
  check_refused({"convert", pipe, "-o", temp.file("out")}, 3, what);
  check_refused({"train", config, "model.init_from=" + pipe, "--out", temp.file("run")}, 3, what);
  for (const char* key : {"images", "labels"}) {
    Bytes labels = idx_header({1}), images = idx_header({1, 1, 1});
    labels.push_back(0);
    images.push_back(0);
    put(temp.file("labels"), labels);
    put(temp.file("images"), images);
    std::filesystem::remove(temp.file(key));
    REQUIRE(::mkfifo(temp.file(key).c_str(), 0600) == 0);
    check_refused({"train", config, kIdxData, "data.root=" + temp.path(), "--out", temp.file("run")}, 3,
                  "'" + temp.file(key) + "': it is a pipe");
    std::filesystem::remove(temp.file(key));
  }
  // In a run folder.
  for (const char* name : {"config.yaml", "last.safetensors"}) {
    const std::string folder = temp.file(std::string("run_") + name);
    std::filesystem::copy(run_folder(), folder);
    std::filesystem::remove(folder + '/' + name);
    REQUIRE(::mkfifo((folder + '/' + name).c_str(), 0600) == 0);
    const ProcessResult r = limited({"train", "--resume", folder});
    INFO(r.err);
    // The checkpoint holds the configuration too.
    CHECK(r.code == (name == std::string("config.yaml") ? 0 : 3));
    CHECK(contains(r.err, std::string(name) + "': it is a pipe"));
  }
}

TEST_CASE("a configuration is read from standard input where it is named -") {
  TempDir temp;
  put(temp.file("c.yaml"), std::string(kConfig));
  const std::string command =
      "cat '" + temp.file("c.yaml") + "' | '" + kProgram + "' train - --out '" + temp.file("run") + "' -q";
  const ProcessResult r = run_program({"/bin/sh", "-c", command});
  INFO(r.out << r.err);
  CHECK(r.code == 0);
  CHECK(slurp(temp.file("run") + "/config.source.yaml") == kConfig);
  const ProcessResult endless = run_program({"/bin/sh", "-c", "'" + kProgram + "' train - < /dev/zero"});
  CHECK(endless.code == 2);
  CHECK(contains(endless.err, "'standard input' has more bytes, at most 1048576 are read"));
}

TEST_CASE("sizes that a forged file speaks of are held against the file") {
  for (const auto& shape : std::vector<std::vector<int64_t>>{{4, int64_t{1} << 59}, {4, 1 << 27}, {1 << 27, 784}})
    check_forged([&](Parts& p) { edit_record(p, [&](Json& r) { r["shape"] = shape; }); },
                 "tensor 'layers.0.weight.codes' is ");
  check_forged([](Parts& p) { edit_record(p, [](Json& r) { r["granularity"]["axis"] = 7; }); }, "axis: got 7");
  const auto config = [](const std::string& from, const std::string& to) {
    return [=](Parts& p) {
      std::string& text = p.metadata.at("bitgrad.config");
      const size_t at = text.find(from);
      REQUIRE(at != std::string::npos);
      text.replace(at, from.size(), to);
    };
  };
  check_forged(config("out: 12", "out: 20000"), "parameter 'layers.0.weight' is [12,784], the model has [20000,784]");
  check_forged(config("out: 10", "out: 1000000"), "parameter 'layers.2.weight' is [10,12], the model has [1000000,12]");
}

TEST_CASE("metadata made to exhaust memory or to hide a part is refused") {
  check_forged([](Parts& p) { p.metadata["bitgrad.tensors"] = std::string(80'000'000, '['); },
               "'bitgrad.tensors' has 80000000 bytes, at most 16777216 are read");
  check_forged([](Parts& p) { p.metadata["bitgrad.tensors"] = std::string(16'000'000, '['); },
               "'bitgrad.tensors' is not JSON: more than 8 collections inside one another");
  check_forged([](Parts& p) { p.metadata["bitgrad.state"] += std::string("\0{", 2); },
               "'bitgrad.state' is not JSON: a byte 0");
  // A zero byte in the padding of the header, with its checksum made right.
  TempDir temp;
  put(temp.file("named.yaml"), std::string(kConfig));
  Bytes file;
  uint64_t length = 0;
  std::string front;
  for (const char* name : {"padded", "padded1"}) {  // of two lengths in a row at least one is padded
    const std::string folder = temp.file(name);
    REQUIRE(cli({"train", temp.file("named.yaml"), std::string("run.name=") + name, "--out", folder, "-q"}).code == 0);
    file = file_system().read(folder + "/last.safetensors");
    std::memcpy(&length, file.data(), sizeof length);
    front.assign(reinterpret_cast<const char*>(file.data()), 8 + length);
    if (front.back() == ' ') break;
  }
  REQUIRE(front.back() == ' ');
  front.back() = '\0';
  const size_t place = safetensors::header_crc_place(std::string_view(front).substr(8));
  front.replace(8 + place, 8, safetensors::header_crc(front, place));
  std::copy(front.begin(), front.end(), file.begin());
  put(temp.file("nul"), file);
  put(temp.file("c.yaml"), std::string(kConfig));
  const std::string text = "byte " + std::to_string(length - 1) + " of the header is 0";
  check_refused({"eval", temp.file("nul")}, 3, text);
  check_refused({"inspect", temp.file("nul")}, 3, text);
  check_refused({"train", temp.file("c.yaml"), "model.init_from=" + temp.file("nul"), "--out", temp.file("run")}, 3,
                text);
}

TEST_CASE("numbers of a forged file that no run has are refused, and none is counted up to") {
  check_forged([](Parts& p) { p.edit("bitgrad.state", [](Json& s) { s["step"] = int64_t{1} << 62; }); }, "step: got");
  check_forged(
      [](Parts& p) {
        Bytes& scale = p.bytes[p.find("layers.0.weight.scale")];
        const float nan = std::numeric_limits<float>::quiet_NaN();
        std::memcpy(scale.data(), &nan, sizeof nan);
      },
      "'layers.0.weight.scale' holds NaN or Inf", 5);
  check_forged(
      [](Parts& p) {
        Bytes& zero = p.bytes[p.find("layers.0.weight.zero")];
        const int32_t large = std::numeric_limits<int32_t>::min();
        std::memcpy(zero.data(), &large, sizeof large);
      },
      "which is not a zero point of int4");
  // The largest step that a file may speak of: evaluated at once, not gone on with.
  TempDir temp;
  std::filesystem::copy(run_folder(), temp.file("run"));
  Parts parts = last_checkpoint();
  parts.edit("bitgrad.state", [](Json& s) { s["step"] = s["microbatch"] = int64_t{1} << 53; });
  parts.write(temp.file("run") + "/last.safetensors");
  CHECK(limited({"eval", temp.file("run")}).code == 0);
  check_refused({"train", "--resume", temp.file("run")}, 3, "microbatch 9007199254740992 is past the 4 of the run");
}

TEST_CASE("init_from refuses a forged group, and accepts codes without a scale unchanged") {
  TempDir temp;
  put(temp.file("c.yaml"), std::string(kConfig));
  Parts parts = last_checkpoint();
  for (const char* name : {"layers.0.weight.master", "layers.0.weight.scale", "layers.0.weight.zero"})
    remove_tensor(parts, name);
  const auto init = [&](int64_t group) {
    edit_record(parts, [&](Json& r) { r["granularity"] = {{"kind", 3}, {"axis", -1}, {"group", group}}; });
    parts.write(temp.file("forged"));
    return limited({"train", temp.file("c.yaml"), "model.init_from=" + temp.file("forged"), "--out",
                    temp.file("run" + std::to_string(group)), "-q"});
  };
  const ProcessResult r = init(std::numeric_limits<int64_t>::max());
  INFO(r.err);
  CHECK(r.code == 3);
  CHECK(contains(r.err, "group: got 9223372036854775807"));
  const ProcessResult taken = init(1 << 20);
  INFO(taken.err);
  CHECK(taken.code == 0);
}

TEST_CASE("twenty-four thousand layers are built and trained with work that grows as their number does") {
  TempDir temp;
  const std::string counts = temp.file("counts");
  const auto counted = [&](int number) {
    std::string config = kConfig, layers;
    for (int i = 0; i < number; ++i) layers += "    - linear: {out: 2}\n";
    config.insert(config.find("    - linear: {out: 12}"), layers);
    config.replace(config.find("quant:"), config.find("batch:") - config.find("quant:"), "");
    put(temp.file("c.yaml"), config);
    const ProcessResult r = limited({"train", temp.file("c.yaml"), "--out", temp.file(std::to_string(number)), "-q"},
                                    with_failing_calls({{"FAULT_COUNT", counts}}));
    INFO(r.out << r.err.substr(0, 2000));
    REQUIRE(r.code == 0);
    return counts_in(counts);
  };
  const CallCounts few = counted(3'000), many = counted(24'000);
  // 8 times the layers: 64 times the work where each looks at all others.
  CHECK(many.allocations < 10 * few.allocations);
  CHECK(many.bytes < 10 * few.bytes);
  CHECK(many.comparisons < 12 * few.comparisons);
}
