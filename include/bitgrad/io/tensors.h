// Saves and loads tensors as safetensors files, one call each way.
//
//   save_tensors("weights.safetensors", {{"w", w}, {"bias", bias}});
//   const Tensor w = load_tensors("weights.safetensors").at("w");
//
// fp64, fp32, bf16, fp16, int64, int32, and int8 and uint8 without scales, are stored as plain tensors (F64, F32, BF16,
// F16, I64, I32, I8, U8) that any reader of the format understands. Other codes, and everything with quantization
// parameters, are stored as in checkpoints (checkpoint/checkpoint.h): "<name>.codes" U8 [rows, row_bytes], canonical,
// rows byte-aligned; "<name>.scale" (F32), ".zero" (I32), ".offset" and ".statistic" (F32), flat. The metadata entry
// "bitgrad.tensors" holds the full dtype, shape, scheme and granularity.
#pragma once

#include <map>
#include <string>

#include "bitgrad/tensor/tensor.h"

namespace bitgrad {

using NamedTensors = std::map<std::string, Tensor>;

// Writes the tensors in order of their names, through write_file_atomically. Codes, scales and floats are stored bit
// for bit, NaN included; layouts other than canonical are not stored. Tensors of a device are copied to the host.
// Throws Error(kUsage) that names the tensor, before anything is written, for an undefined tensor, one in a kernel
// layout, and names that collide; file errors as in base/file.h.
void save_tensors(const std::string& path, const NamedTensors& tensors,
                  const std::map<std::string, std::string>& metadata = {});

// Loads all tensors of a file onto the current device (kind kBuffer). Reads files of save_tensors and of other
// programs, and bitgrad's checkpoints and model files ("layers.0.weight" with its scales, "layers.0.weight.master",
// ...). Registers dtypes that the file defines. Throws Error(kData) that names the file and the tensor for an
// unsupported dtype (BOOL, U32, F8_E4M3, ...), codes that the dtype does not have, and records that do not match the
// data.
NamedTensors load_tensors(const std::string& path);

}  // namespace bitgrad
