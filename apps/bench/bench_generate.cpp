// bench_generate: generation speed in tokens per second of a GPT-2 with random weights, by the precision of its weights
// and of its key-value cache, alternating within one run; medians. One thread is timed by its CPU time. x no cache =
// the time of recomputing all rows for each token / the time with this cache.
//
//   bench_generate [--layers N --heads N --dim N --context N --vocabulary N] [--tokens N] [--recipes LIST]
//                  [--threads N] [--device cpu|cuda] [--repeat R] [--json FILE] [--compare OLD] [--slack S]
//
// With --gguf or --model instead: a model of a file, a prompt and greedy tokens, in turns with rivals:
// llama.cpp as a package of Python, or a program at a path (bench_generate_files.cpp).
//   bench_generate --gguf FILE [--model TARGET] [--rival llama.cpp,./llama_rival] [--prompt N] [--tokens N]
//   [--kv fp32|bf16|int8] [--read-limit] ...
#include <iomanip>
#include <memory>

#include "bench_generate.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/infer/generator.h"
#include "bitgrad/run/trainer.h"
#include "shared/measure.h"

namespace {

using namespace bitgrad;
using namespace bitgrad::bench;

using Options = GenerateOptions;

std::string config_text(const Options& o, const std::string& recipe) {
  return concat(
      "version: 1\nrun: {name: bench, seed: 1}\ndata: {tokenizer: bytes, train: {format: tokens, file: a, context: ",
      o.context, "}}\nmodel: {preset: gpt, keys: {vocabulary: ", o.vocabulary, ", context: ", o.context,
      ", layers: ", o.layers, ", heads: ", o.heads, ", dim: ", o.dim,
      "}}\nquant: {rules: [{layers: \"layers.3.*\", recipe: ", recipe,
      "}]}\nbatch: {global: 1}\noptim: {name: adamw, lr: 1e-3}\ntrain: {stop: 1 steps}\n");
}

struct Way {
  const char* name;
  GeneratorSpec spec;
};
constexpr Way kWays[] = {{"no cache", {.cache = false}},
                         {"fp32", {.kv = KvKind::kFp32}},
                         {"bf16", {.kv = KvKind::kBf16}},
                         {"int8", {.kv = KvKind::kInt8}}};

// Generates `tokens` ids from a single start id, also beyond the context.
class Writer {
 public:
  Writer(Learner& learner, const GeneratorSpec& spec, int64_t tokens) : generator_(learner, spec), tokens_(tokens) {}
  void run() {
    generator_.truncate(0);
    const int32_t begin = 0;
    const std::span<const float> scores = generator_.feed({&begin, 1});
    generate(generator_, scores, nullptr, {.tokens = tokens_, .sampling = {.top_k = 40}});
  }
  int64_t cache_bytes() const { return generator_.cache_bytes(); }

 private:
  Generator generator_;
  int64_t tokens_;
};

void bench_recipe(const Options& o, const std::string& recipe, Json& rows) {
  const RunConfig config = parse_config(config_text(o, recipe), "bench_generate");
  Form in;
  in.sample = {o.context};
  in.dtype = dtypes::int32;
  in.ids = o.vocabulary;
  const std::unique_ptr<Learner> learner = build_learner(config, in, o.vocabulary, 1);
  std::vector<std::unique_ptr<Writer>> writers;
  std::vector<Contestant> all;
  for (const Way& way : kWays) {
    writers.push_back(std::make_unique<Writer>(*learner, way.spec, o.tokens));
    all.push_back({way.name, [writer = writers.back().get()] { writer->run(); }, 1, false, {}});
  }
  measure(all, o.repeat, o.device.is_cpu() ? time_base(o.threads) : TimeBase::kWall);
  for (size_t i = 0; i < all.size(); ++i) {
    const double per_s = 1e9 * static_cast<double>(o.tokens) / all[i].median(),
                 times = all[0].median() / all[i].median();
    rows.push_back({{"recipe", recipe},
                    {"cache", all[i].name},
                    {"tokens_per_s", per_s},
                    {"x_no_cache", times},
                    {"cache_bytes", writers[i]->cache_bytes()}});
    std::cout << "  " << std::left << std::setw(14) << recipe << std::setw(10) << all[i].name << std::right
              << std::fixed << std::setprecision(0) << std::setw(9) << per_s << " tokens/s" << std::setprecision(2)
              << std::setw(8) << times << " x no cache" << std::setw(12) << writers[i]->cache_bytes() << " bytes\n";
  }
}

int run(cli::Arguments& args, int argc, char** argv) {
  Options o;
  args.option("--layers", o.layers).range<int64_t>(1, 256);
  args.option("--heads", o.heads).range<int64_t>(1, 256);
  args.option("--dim", o.dim).range<int64_t>(2, 65536);
  args.option("--context", o.context).range<int64_t>(2, 65536);
  args.option("--vocabulary", o.vocabulary).range<int64_t>(2, 1 << 20);
  args.option("--tokens", o.tokens, "tokens generated per measurement").range<int64_t>(1, 1 << 20);
  args.option("--recipes", o.recipes, "recipes of the linear layers of the blocks").delimiter(',');
  args.option("--gguf", o.gguf, "a model of this file instead, imported; the file of the rival");
  args.option("--inputs", o.inputs, "of --gguf, rounded as by `bitgrad import`: float, int8 or int8_block");
  args.option("--model", o.model, "a run folder or model file instead, such as the one that --gguf was exported from");
  args.option(
          "--rival", o.rivals,
          "programs that run the same file in turns: llama.cpp, the Python package xllamacpp (BITGRAD_PYTHON: its "
          "Python, BITGRAD_BENCH_GENERATE: scripts/bench_generate.py, if not of this folder), and paths of programs "
          "with its arguments and output, such as one of scripts/bench_generate_llama.cpp")
      .delimiter(',');
  args.option("--prompt", o.prompt, "ids of the prompt, with --gguf or --model (128)").range<int64_t>(1, 1 << 20);
  args.choice("--kv", o.kv, {{"fp32", KvKind::kFp32}, {"bf16", KvKind::kBf16}, {"int8", KvKind::kInt8}},
              "dtype of the cache of keys and values, with --gguf or --model");
  args.flag("--read-limit", o.read_limit, "also the share of the speed at which the weights can be read");
  add_threads_option(args, o);
  add_device_option(args, o);
  add_report_options(args, o, "x_no_cache");
  parse(args, argc, argv, o);
  set_num_threads(o.threads);
  const DeviceGuard guard(o.device);
  if (!o.gguf.empty() || !o.model.empty()) return bench_files(o);
  require(o.rivals.empty() && o.inputs.empty() && !o.read_limit && o.prompt == GenerateOptions().prompt &&
              o.kv == KvKind::kFp32,
          "bench_generate", "--rival, --inputs, --kv, --read-limit and --prompt need --gguf or --model");
  Json report = new_report(o.threads);
  report["device"] = device_backend(o.device).describe();
  std::cout << to_string(o.device) << ": " << o.layers << " layers, " << o.heads << " heads, " << o.dim
            << " wide, context " << o.context << ", " << o.vocabulary << " ids; " << o.tokens << " tokens, "
            << o.threads << " threads\n";
  for (const std::string& recipe : o.recipes) bench_recipe(o, recipe, report.at("rows"));
  return finish(report, o, {{"recipe", "cache"}, "x_no_cache"});
}

}  // namespace

int main(int argc, char** argv) {
  return run_main("bench_generate", "tokens a second of a GPT-2 that generates",
                  [&](cli::Arguments& args) { return run(args, argc, argv); });
}
