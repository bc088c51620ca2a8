// What an export is asked for, and what it wrote of each tensor and layer and lost.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/tensor/shape.h"

namespace bitgrad {

struct ExportSpec {
  std::string family = {};  // empty: chosen by the model's structure
  bool dry_run = false;     // only report; write nothing
  // onnx. "integer": products of codes as integer sums, exactly ours. "qdq": float ops between QuantizeLinear and
  // DequantizeLinear, as accelerator compilers expect. Empty: integer.
  // hf. "values": fp32. "packed": integer codes as compressed-tensors packs them. Empty: values.
  std::string form = {};
  bool dequantize = false;  // safetensors, npz: fp32 values instead of codes and scales
  // onnx, c: inputs are bytes, which the file scales as data.affine or data.normalize says.
  bool with_normalization = false;
  int opset = 0;            // onnx: 21 to 28; 0: 21. 2-bit codes have their own type from 25 on
  std::string origin = {};  // gguf, hf: the model's (interop/model_origin.h); empty: none. export_file sets it
};
// How one tensor of an exported file was written.
struct ExportedTensor {
  enum class Fate : uint8_t {
    kExact,    // codes and scales, or floats, are stored exactly
    kRounded,  // floats or scales are rounded: see `error`
    kZeros,    // absent in the model but required by the file
    kRefused,  // the file cannot hold it: see `reason`
  };
  std::string name = {};       // in the file
  std::string parameter = {};  // path in the model; empty for kZeros
  Shape shape = {};            // as in the file, rows first
  std::string type = {};       // "Q4_0", "F32", ...
  Fate fate = Fate::kExact;
  double error = 0;         // largest difference of a value, relative to the tensor's largest value
  std::string reason = {};  // for kRounded and kRefused
};
// How the computation of one layer was exported, for targets that run a graph.
struct ExportedLayer {
  std::string layer = {};      // path
  std::string operation = {};  // e.g. "MatMulInteger int8 x int4"
  ExportedTensor::Fate fate = ExportedTensor::Fate::kExact;
  double error = 0;         // kRounded: bound on the result; `reason` says of what
  std::string reason = {};  // for kRounded and kRefused
};
struct ExportReport {
  std::string family = {};  // "gpt2", "llama", "qwen2", "bitnet"; for graphs the form, "integer" or "qdq"
  std::vector<ExportedTensor> tensors = {};
  std::vector<ExportedLayer> layers = {};
  // What a program that uses the file has to know, by name: "runs in", "input", "classes", "memory", "tokenizer". One
  // line each.
  std::vector<std::pair<std::string, std::string>> facts = {};
  int64_t flash_bytes = -1, ram_bytes = -1;  // c: of constants and of buffers; -1: not known
  bool refused() const;                      // whether any tensor or layer is kRefused
};

}  // namespace bitgrad
