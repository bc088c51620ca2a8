// Tensors in a safetensors file, in one call each way.
//
//   save_tensors("weights.safetensors", {{"w", w}, {"bias", bias}});
//   const Tensor w = load_tensors("weights.safetensors").at("w");
//
// fp64, fp32, bf16, fp16, int64, int32, and int8 and uint8 without scales, are plain tensors (F64, F32, BF16, F16, I64,
// I32, I8, U8) that every reader of the format knows. Other codes, and all that have quantization parameters, are
// written as in checkpoints (train/checkpoint.h): "<name>.codes" U8 [rows, row_bytes], canonical, rows on a byte;
// "<name>.scale" (F32), ".zero" (I32), ".offset" and ".statistic" (F32), flat; the metadata "bitgrad.tensors" has the
// whole dtype, shape, scheme and granularity.
#pragma once

#include <map>
#include <string>

#include "bitgrad/tensor/tensor.h"

namespace bitgrad {

using NamedTensors = std::map<std::string, Tensor>;

// Writes the tensors in the order of their names, through write_file_atomically: codes, scales and numbers bit for bit,
// NaN too; layouts beside the canonical codes are left out. Tensors of a device are copied to the host. Throws
// Error(kUsage) that names the tensor, before anything is written, for an undefined one, one in a layout of kernels,
// and names that collide; file errors as base/file.h says.
void save_tensors(const std::string& path, const NamedTensors& tensors,
                  const std::map<std::string, std::string>& metadata = {});

// All tensors of a file, on the current device (kind kBuffer). Reads what save_tensors wrote, files of other programs,
// and checkpoints and models of bitgrad ("layers.0.weight" with its scales, "layers.0.weight.master", ..). Dtypes that
// the file brings along are registered. Throws Error(kData) that names the file and the tensor for a dtype that bitgrad
// does not have (BOOL, U32, F8_E4M3, ..), codes that the dtype does not have, and records that do not fit the data.
NamedTensors load_tensors(const std::string& path);

}  // namespace bitgrad
