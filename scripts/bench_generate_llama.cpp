// A rival of bench_generate: one run of llama.cpp by its C interface, so that any build of it can be measured.
//
//   cmake -S llama.cpp -B build -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON
//   cmake --build build --target llama
//   g++ -O2 -std=c++20 scripts/bench_generate_llama.cpp -o llama_rival -I llama.cpp/include
//       -I llama.cpp/ggml/include -L build/bin -lllama -Wl,-rpath,$PWD/build/bin   (one line)
//   bench_generate --gguf MODEL.gguf --rival ./llama_rival
//
// Its arguments are MODEL.gguf PROMPT TOKENS VOCABULARY [THREADS]. The prompt is PROMPT ids below VOCABULARY, then
// TOKENS greedy ones. Prints a JSON object: "engine", and seconds, with one thread those of the processor: "prompt_s"
// of the prompt, "decode_s" of the tokens. The cache is llama.cpp's own, in fp16; no sampler, no texts.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "llama.h"

namespace {

double now(int threads) {
  timespec t;
  clock_gettime(threads > 1 ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "bench_generate_llama: %s\n", what);
  std::exit(1);
}

// Reads the ids and returns the most probable next one.
llama_token next_of(llama_context* context, std::vector<llama_token> ids, int vocabulary) {
  if (llama_decode(context, llama_batch_get_one(ids.data(), static_cast<int32_t>(ids.size()))) != 0)
    fail("llama_decode failed");
  const float* scores = llama_get_logits_ith(context, -1);
  return static_cast<llama_token>(std::max_element(scores, scores + vocabulary) - scores);
}

struct Seconds {
  double prompt, decode;
};
Seconds run(llama_context* context, const std::vector<llama_token>& prompt, int tokens, int vocabulary, int threads) {
  llama_memory_clear(llama_get_memory(context), true);
  const double begin = now(threads);
  llama_token id = next_of(context, prompt, vocabulary);
  const double read = now(threads);
  for (int i = 0; i < tokens; ++i) id = next_of(context, {id}, vocabulary);
  return {read - begin, now(threads) - read};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) fail("expected MODEL.gguf PROMPT TOKENS VOCABULARY [THREADS]");
  const int prompt = std::atoi(argv[2]), tokens = std::atoi(argv[3]), vocabulary = std::atoi(argv[4]);
  const int threads = argc > 5 ? std::atoi(argv[5]) : 1;
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
      },
      nullptr);
  llama_backend_init();
  llama_model_params of_model = llama_model_default_params();
  of_model.n_gpu_layers = 0;  // the processor time of one thread is compared
  llama_model* model = llama_model_load_from_file(argv[1], of_model);
  if (model == nullptr) fail("cannot open the model");
  if (llama_vocab_n_tokens(llama_model_get_vocab(model)) != vocabulary) fail("the model has another vocabulary");
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>(prompt + tokens + 1);
  params.n_batch = static_cast<uint32_t>(std::max(prompt, 1));
  params.n_threads = params.n_threads_batch = threads;
  llama_context* context = llama_init_from_model(model, params);
  if (context == nullptr) fail("cannot make a context");
  std::vector<llama_token> ids;
  for (int i = 0; i < prompt; ++i) ids.push_back(i * 7 % vocabulary);
  run(context, ids, std::min(tokens, 4), vocabulary, threads);  // pages in, and chooses kernels
  const Seconds s = run(context, ids, tokens, vocabulary, threads);
  std::printf("{\"engine\": \"llama.cpp (libllama %s)\", \"prompt_s\": %.9f, \"decode_s\": %.9f}\n", llama_version(),
              s.prompt, s.decode);
}
