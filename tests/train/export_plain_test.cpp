// Tensors alone: PyTorch reads our values under its names, NumPy our codes, and packed codes are ours.
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/export/export.h"
#include "bitgrad/interop/interop.h"
#include "bitgrad/io/safetensors.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/export_nets.h"
#include "support/subprocess.h"
#include "support/temp_dir.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

void export_to(Trainer& trainer, const std::string& path, const ExportSpec& spec = {}) {
  const std::optional<ModelRecord> record = model_record(trainer.learner());
  choose_export_target(path, "").write({&trainer.learner().model(), &record->model}, path, spec);
}

const Tensor& weight_of(Trainer& trainer, size_t slot) {
  return trainer.learner().model().quantizables().at(slot)->weight().value();
}

template <typename T>
std::vector<T> read_as(const SafetensorsFile& file, const std::string& name) {
  std::vector<T> out(static_cast<size_t>(file.entry(name).bytes) / sizeof(T));
  std::memcpy(out.data(), file.data(name), out.size() * sizeof(T));
  return out;
}

// x of a drawn batch as raw fp32, and what the model makes of it.
void write_batch(Trainer& trainer, const TempDir& temp) {
  const Tensor x = Tensor::empty({20, 784}, dtypes::fp32);
  for (int64_t i = 0; i < x.numel(); ++i) x.as<float>()[i] = static_cast<float>(i * 7919 % 201 - 100) / 100.0f;
  const Tensor y = trainer.learner().predict(x);
  std::ofstream(temp.file("x"), std::ios::binary).write(static_cast<const char*>(x.data()), x.bytes());
  std::ofstream(temp.file("y"), std::ios::binary).write(static_cast<const char*>(y.data()), y.bytes());
}

}  // namespace

TEST_CASE("Packed codes and scales of safetensors are ours") {
  const KeepModes keep;
  const TempDir temp;
  const auto groups = trained(export_net("int4 groups"));
  export_to(*groups, temp.file("m.safetensors"));
  const SafetensorsFile file = SafetensorsFile::read(temp.file("m.safetensors"));
  const Tensor& w = weight_of(*groups, 0);
  CHECK(read_as<int64_t>(file, "0.weight_shape") == std::vector<int64_t>{32, 784});
  CHECK(read_as<float>(file, "0.weight_scale") == w.quant()->scale->to_vector());
  CHECK(file.entry("0.weight_scale").shape == std::vector<int64_t>{32, 49});
  const std::vector<uint32_t> words = read_as<uint32_t>(file, "0.weight_packed");
  const std::vector<double> codes = w.elements();
  REQUIRE(words.size() == 32 * 98);
  for (size_t i = 0; i < codes.size(); ++i)
    REQUIRE(static_cast<int>((words[i / 784 * 98 + i % 784 / 8] >> (4 * (i % 784 % 8))) & 15) - 8 == codes[i]);
  CHECK(file.contains("1.running_var"));

  // Convolutions: [o,h,w,c] here, [o,c,h,w] there.
  const auto conv = trained(export_net("lsq w4a4 conv"));
  export_to(*conv, temp.file("c.safetensors"));
  const SafetensorsFile images = SafetensorsFile::read(temp.file("c.safetensors"));
  const std::string name = "5.body.1.weight";
  CHECK(images.entry(name).shape == std::vector<int64_t>{8, 8, 3, 3});
  const std::vector<int8_t> theirs = read_as<int8_t>(images, name);
  const std::vector<double> ours = weight_of(*conv, 1).elements();
  for (size_t o = 0; o < 8; ++o)
    for (size_t c = 0; c < 8; ++c)
      for (size_t t = 0; t < 9; ++t) REQUIRE(theirs[(o * 8 + c) * 9 + t] == ours[o * 72 + t * 8 + c]);
}

TEST_CASE("Inputs after a flatten are in the order of PyTorch, and are read back from it") {
  const KeepModes keep;
  const TempDir temp;
  const std::string layers =
      "[{unsqueeze: {}}, {conv2d: {out: 3, kernel: 3, stride: 9}}, {flatten: {}}, {batch_norm: {}}, {linear: {out: "
      "10}}]";
  const auto codes = trained({"flat", layers, "weights: {dtype: int8, scheme: absmax}"});
  export_to(*codes, temp.file("codes.safetensors"));
  const SafetensorsFile file = SafetensorsFile::read(temp.file("codes.safetensors"));
  const std::vector<int8_t> theirs = read_as<int8_t>(file, "4.weight");
  const std::vector<double> ours = weight_of(*codes, 1).elements();
  REQUIRE(theirs.size() == 270);  // 3 x 3 pixels of 3 channels
  for (size_t o = 0; o < 10; ++o)
    for (size_t c = 0; c < 3; ++c)
      for (size_t t = 0; t < 9; ++t) REQUIRE(theirs[o * 27 + c * 9 + t] == ours[o * 27 + t * 3 + c]);

  const ExportNet floats{"flat", layers, ""};
  const auto values = trained(floats);
  export_to(*values, temp.file("values.safetensors"));
  Trainer fresh(parse_config(yaml_of(floats), "flat.yaml"));
  init_from_weights(temp.file("values.safetensors"), fresh.learner().model());
  const std::vector<Parameter*> read = fresh.learner().model().parameters();
  size_t i = 0;
  for (const Parameter* p : values->learner().model().parameters())
    CHECK(read.at(i++)->value().to_vector() == p->value().to_vector());

  const auto groups = trained({"flat", layers, "weights: {dtype: int4, scheme: symmetric, granularity: group(9)}"});
  CHECK(contains(error_of([&] { export_to(*groups, temp.file("groups.safetensors")); }), "another order"));
}

TEST_CASE("PyTorch computes our outputs from exported values, and NumPy reads our codes") {
  const char* const named = std::getenv("BITGRAD_PYTHON");
  const std::string python = named != nullptr ? named : "python3";
  if (run_program({python, "-c", "import torch, safetensors, numpy"}).code != 0) {
    WARN("skipped: no torch, safetensors, numpy in " + python + ". Set BITGRAD_PYTHON");
    return;
  }
  const KeepModes keep;
  const TempDir temp;
  const auto trainer = trained(export_net("int4 groups"));
  export_to(*trainer, temp.file("m.safetensors"), {.dequantize = true});
  export_to(*trainer, temp.file("m.npz"));
  write_batch(*trainer, temp);
  const Tensor& w = weight_of(*trainer, 0);
  std::vector<int8_t> codes;
  for (const double c : w.elements()) codes.push_back(static_cast<int8_t>(c));
  std::ofstream(temp.file("codes"), std::ios::binary)
      .write(reinterpret_cast<const char*>(codes.data()), static_cast<std::streamsize>(codes.size()));
  const ProcessResult result = run_program({python, "-c", R"py(
import sys, numpy as np, torch
from safetensors.torch import load_file
folder = sys.argv[1] + "/"
net = torch.nn.Sequential(torch.nn.Linear(784, 32, bias=False), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Linear(32, 10)).eval()
net.load_state_dict(load_file(folder + "m.safetensors"))
x = torch.from_numpy(np.fromfile(folder + "x", np.float32).reshape(-1, 784))
ours = torch.from_numpy(np.fromfile(folder + "y", np.float32).reshape(-1, 10))
error = (net(x) - ours).abs().max().item()
assert error <= 1e-5 * (1 + ours.abs().max().item()), error
arrays = np.load(folder + "m.npz")
w = arrays["layers.0.weight"]
assert w.dtype == np.int8 and w.shape == (32, 784) and np.array_equal(w.ravel(), np.fromfile(folder + "codes", np.int8))
assert arrays["layers.0.weight.scale"].shape == (32 * 49,) and "layers.1.running_mean" in arrays.files
)py",
                                            temp.path()});
  INFO(result.err);
  CHECK(result.code == 0);
}

TEST_CASE("The package compressed-tensors unpacks our codes to our values") {
  const char* const named = std::getenv("BITGRAD_PYTHON");
  const std::string python = named != nullptr ? named : "python3";
  if (run_program({python, "-c", "import safetensors.torch, compressed_tensors.compressors.pack_quantized.base"})
          .code != 0) {
    WARN("skipped: no torch, safetensors, compressed-tensors (0.20) in " + python + ". Set BITGRAD_PYTHON");
    return;
  }
  const KeepModes keep;
  const TempDir temp;
  const auto trainer = trained(export_net("int4 groups"));
  export_to(*trainer, temp.file("codes.safetensors"));
  export_to(*trainer, temp.file("values.safetensors"), {.dequantize = true});
  const ProcessResult result = run_program({python, "-c", R"py(
import sys, torch
from safetensors.torch import load_file
from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
codes, values = (load_file(f"{sys.argv[1]}/{name}.safetensors") for name in ("codes", "values"))
scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(num_bits=4, symmetric=True, strategy="group", group_size=16))
part = {name[2:]: tensor for name, tensor in codes.items() if name.startswith("0.")}
got = PackedQuantizationCompressor.decompress(part, scheme)["weight"]
assert torch.equal(got, values["0.weight"])
)py",
                                            temp.path()});
  INFO(result.err);
  CHECK(result.code == 0);
}
