// The two parts of bench_generate: models with random weights, and models of files beside another program.
#pragma once

#include <string>
#include <vector>

#include "bitgrad/nn/kv_cache.h"
#include "shared/common.h"

namespace bitgrad::bench {

struct GenerateOptions : SharedOptions {
  GenerateOptions() : SharedOptions{.repeat = 7} {}
  int64_t layers = 4, heads = 4, dim = 128, context = 64, vocabulary = 65;  // nanoGPT's small model
  int64_t tokens = 256;
  std::vector<std::string> recipes{"none", "w8a8", "8da4w", "ternary_int8"};
  std::string gguf = {}, model = {}, inputs = {};
  std::vector<std::string> rivals = {};
  int64_t prompt = 128;
  bool read_limit = false;
  KvKind kv = KvKind::kFp32;
};

// Reads a prompt and continues it greedily, with the model of --model or --gguf, in turns with the rivals. Returns the
// exit status.
int bench_files(const GenerateOptions& o);

}  // namespace bitgrad::bench
