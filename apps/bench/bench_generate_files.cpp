// Generation by models of files: tokens per second of a prompt and of single tokens, by processor time with one thread,
// in turns with rivals in processes of their own (scripts/bench_generate.py, scripts/bench_generate_llama.cpp), and
// beside the time in which the weights are read once.
#include <cstdio>
#include <cstdlib>
#include <iomanip>
#include <memory>

#include "bench_generate.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/dtype/codec.h"
#include "bitgrad/infer/generator.h"
#include "bitgrad/interop/interop.h"
#include "bitgrad/run/build.h"
#include "shared/measure.h"
#include "shared/rival.h"
#include "shared/scratch.h"

namespace bitgrad::bench {
namespace {

constexpr std::string_view kWhere = "bench_generate";

// One measurement.
struct Turn {
  double prompt_ns = 0, decode_ns = 0;
};
struct Speeds {
  std::string who;
  std::vector<double> prompt_ns = {}, decode_ns = {};
  void add(const Turn& turn) {
    prompt_ns.push_back(turn.prompt_ns);
    decode_ns.push_back(turn.decode_ns);
  }
};

std::unique_ptr<Learner> open_model(const GenerateOptions& o) {
  if (!o.model.empty()) return load_file(open_file(o.model), nullptr);
  const Scratch scratch("model.safetensors");
  const ImportInputs inputs =
      o.inputs.empty() ? ImportInputs::kAsTrained : parse_enum<ImportInputs>(o.inputs, kWhere, "--inputs");
  save_imported(import_gguf(o.gguf), scratch.file(), inputs);
  return load_file(open_file(scratch.file()), nullptr);
}

bool has_row_an_id(const Tensor& value, int64_t vocabulary) {
  return value.shape().rank() == 2 && value.rows() == vocabulary;
}

// Bytes of codes and scales that a token reads: of all weights, but for a table of which it reads one row because a
// head of its own makes the scores.
int64_t weight_bytes(Learner& learner, int64_t vocabulary) {
  int64_t bytes = 0, tables = 0;
  for (Parameter* parameter : learner.model().parameters()) tables += has_row_an_id(parameter->value(), vocabulary);
  for (Parameter* parameter : learner.model().parameters()) {
    const Tensor& value = parameter->value();
    if (has_row_an_id(value, vocabulary) && tables-- > 1) continue;
    DType held = value.dtype();  // floats that are held in 16 bits are attached in these
    if (!value.present())
      for (const Tensor& t : value.attached_layouts())
        if (t.dtype() == dtypes::fp16 || t.dtype() == dtypes::bf16) held = t.dtype();
    bytes += value.rows() * row_bytes_file(held, value.cols());
    if (!value.quant() || !value.quant()->scale) continue;
    const Granularity& scales = value.quant()->granularity;
    const int64_t group = scales.kind == Granularity::kGroup ? scales.group : value.cols();
    const Tensor panels = value.in_layout(layouts::vnni64);
    const bool halves =
        panels.defined() && panels.panel_scales().defined() && panels.panel_scales().dtype() == dtypes::fp16;
    bytes += value.rows() * ((value.cols() + group - 1) / group) * (halves ? 2 : 4);
  }
  return bytes;
}

// Keys that a token sees, in all layers together, for all measured tokens, and the number of layers. An attention says
// how many by its products.
std::pair<int64_t, int64_t> keys_seen(Module& model, const GenerateOptions& o) {
  int64_t keys = 0, layers = 0;
  for (const auto& [path, module] : model.modules_at("")) {
    if (module->kind() != "attention") continue;
    const auto macs = [&, layer = module](int64_t rows) {
      Form form;
      form.sample = {rows};
      return layer->macs(form, form);
    };
    keys += (macs(o.prompt + o.tokens) - macs(o.prompt)) / macs(1);
    ++layers;
  }
  return {keys, layers};
}

// Bytes of keys and values that a token reads on the average of the measured ones. Layers have heads of one width. A
// cache of one row has memory for a block of 64, or if it is int8 for at most those of the context (kv_cache.h).
int64_t cache_bytes(Learner& learner, const GenerateOptions& o) {
  Generator generator(learner, GeneratorSpec{.kv = o.kv});
  const int32_t id = 0;
  generator.feed({&id, 1});
  const auto [keys, layers] = keys_seen(learner.model(), o);
  constexpr int64_t kBlock = 64;
  const int64_t rows = o.kv == KvKind::kInt8 ? std::min(kBlock, generator.context()) : kBlock;
  return layers == 0 ? 0 : generator.cache_bytes() / rows / layers * keys / o.tokens;
}

class Ours {
 public:
  Ours(Learner& learner, const GenerateOptions& o)
      : generator_(learner, GeneratorSpec{.kv = o.kv}), tokens_(o.tokens), base_(time_base(o.threads)) {
    require(o.prompt + o.tokens <= generator_.context(), kWhere, "--prompt and --tokens: got ", o.prompt, " and ",
            o.tokens, ", expected at most ", generator_.context(), " together, the context of the model");
    for (int64_t i = 0; i < o.prompt; ++i) prompt_.push_back(static_cast<int32_t>(i * 7 % generator_.vocabulary()));
  }
  Turn run() {
    generator_.truncate(0);
    const double begin = now_ns(base_);
    const std::span<const float> scores = generator_.feed(prompt_);
    const double read = now_ns(base_);
    // `tokens` are fed; the one that is drawn last is not.
    generate(generator_, scores, nullptr, {.tokens = tokens_ + 1, .sampling = {.temperature = 0}});
    return {read - begin, now_ns(base_) - read};
  }
  int64_t vocabulary() const { return generator_.vocabulary(); }

 private:
  Generator generator_;
  int64_t tokens_;
  TimeBase base_;
  std::vector<int32_t> prompt_;
};

// A rival of --rival: the package of Python, or a program at a path.
class Rival {
 public:
  static constexpr std::string_view kPackage = "llama.cpp";
  explicit Rival(const std::string& name) : speeds{name} {
    require(name == kPackage || name.find('/') != std::string::npos, kWhere, "--rival: got '", name, "', expected ",
            kPackage, " or the path of a program, such as ./llama_rival");
  }
  // A measurement. False: it is not installed.
  bool turn(const GenerateOptions& o, int64_t vocabulary) {
    const std::string command =
        concat(program_, ' ', quoted(o.gguf), ' ', o.prompt, ' ', o.tokens, ' ', vocabulary, ' ', o.threads);
    const std::optional<Json> row = row_of_rival(std::string(kWhere), command);
    if (!row) return false;
    speeds.who = row->at("engine").get<std::string>();
    speeds.add({row->at("prompt_s").get<double>() * 1e9, row->at("decode_s").get<double>() * 1e9});
    return true;
  }

  Speeds speeds;

 private:
  static std::string started(const std::string& name) {
    if (name != kPackage) return quoted(name);
    return concat(program_of("BITGRAD_PYTHON", "python3"), ' ',
                  program_of("BITGRAD_BENCH_GENERATE", "scripts/bench_generate.py"));
  }
  std::string program_ = started(speeds.who);
};

// Bytes per nanosecond at which `bytes` are summed once, the median of `repeat`.
double read_speed(int64_t bytes, int64_t repeat, TimeBase base) {
  Bytes memory(bytes);
  const auto* words = static_cast<const uint64_t*>(memory.data());
  std::vector<double> ns;
  for (int64_t turn = 0; turn < repeat; ++turn) {
    uint64_t sums[8] = {};
    const double begin = now_ns(base);
    for (int64_t i = 0; i + 8 <= bytes / 8; i += 8)
      for (int64_t j = 0; j < 8; ++j) sums[j] += words[i + j];
    ns.push_back(now_ns(base) - begin);
    uint64_t all = 0;
    for (const uint64_t sum : sums) all += sum;
    require(all == 0, kWhere, "memory that was cleared holds ", all);
  }
  return static_cast<double>(bytes) / median(ns);
}

void check(const GenerateOptions& o) {
  require(o.rivals.empty() || !o.gguf.empty(), kWhere, "--rival needs a file for it: --gguf FILE");
  require(o.inputs.empty() || o.model.empty(), kWhere,
          "--inputs is for --gguf: the model of --model rounds its own way");
  require(!o.read_limit || o.threads == 1, kWhere, "--read-limit is measured with one thread: got --threads ",
          o.threads);
  const GenerateOptions drawn;
  require(o.layers == drawn.layers && o.heads == drawn.heads && o.dim == drawn.dim && o.context == drawn.context &&
              o.vocabulary == drawn.vocabulary && o.recipes == drawn.recipes && o.device.is_cpu(),
          kWhere,
          "--layers, --heads, --dim, --context, --vocabulary, --recipes and --device are for models with random "
          "weights, not for --gguf and --model");
}

// Us and the rivals in turns. Rivals that are not installed are dropped, with a note.
void measure_turns(Ours& ours, const GenerateOptions& o, Speeds& we, std::vector<Rival>& rivals) {
  ours.run();
  for (int64_t turn = 0; turn < o.repeat; ++turn) {
    we.add(ours.run());
    std::erase_if(rivals, [&](Rival& rival) {
      if (rival.turn(o, ours.vocabulary())) return false;
      std::cout << "skipped: " << rival.speeds.who
                << (rival.speeds.who == Rival::kPackage
                        ? " needs the Python package xllamacpp (BITGRAD_PYTHON names a Python that has it)\n"
                        : " ended with 77\n");
      return true;
    });
  }
}

// A row of the report, which it also prints.
Json row_of(const std::string& name, const GenerateOptions& o, const Speeds& speeds) {
  const double prompt = 1e9 * static_cast<double>(o.prompt) / median(speeds.prompt_ns);
  const double decode = 1e9 * static_cast<double>(o.tokens) / median(speeds.decode_ns);
  std::cout << "  " << std::left << std::setw(34) << speeds.who << std::right << std::fixed << std::setprecision(1)
            << std::setw(9) << prompt << " prompt tokens/s" << std::setw(9) << decode << " tokens/s"
            << std::setprecision(2);
  return {{"model", name}, {"who", speeds.who}, {"prompt_tokens_per_s", prompt}, {"tokens_per_s", decode}};
}

}  // namespace

int bench_files(const GenerateOptions& o) {
  check(o);
  std::vector<Rival> rivals;
  for (const std::string& name : o.rivals) rivals.emplace_back(name);
  const std::unique_ptr<Learner> learner = open_model(o);
  Ours ours(*learner, o);
  Speeds we{"bitgrad"};
  measure_turns(ours, o, we, rivals);
  Json report = new_report(o.threads);
  report["prompt"] = o.prompt;
  report["tokens"] = o.tokens;
  std::string name = o.model.empty() ? o.gguf : o.model;
  if (!o.inputs.empty()) name += ", inputs " + o.inputs;
  if (o.kv != KvKind::kFp32) name += concat(", cache ", kv_kind_name(o.kv));
  std::cout << name << ": prompt of " << o.prompt << ", " << o.tokens << " tokens, " << o.threads << " threads\n";
  Json row = row_of(name, o, we);
  if (o.read_limit) {
    const int64_t weights = weight_bytes(*learner, ours.vocabulary()), cache = cache_bytes(*learner, o);
    const auto share = [&](int64_t bytes) {
      const double speed = read_speed(bytes, 2 * o.repeat, time_base(o.threads));
      return row.at("tokens_per_s").get<double>() * static_cast<double>(bytes) / (1e9 * speed);
    };
    row["weight_bytes"] = weights;
    row["cache_bytes"] = cache;
    row["of_read_limit"] = share(weights);
    row["of_read_limit_with_cache"] = share(weights + cache);
    std::cout << "  " << row.at("of_read_limit").get<double>() << " of reading " << weights
              << " bytes of weights once, " << row.at("of_read_limit_with_cache").get<double>() << " with " << cache
              << " of keys and values";
  }
  std::cout << '\n';
  report.at("rows").push_back(row);
  for (const Rival& rival : rivals) {
    Json other = row_of(name, o, rival.speeds);
    other["x_rival_prompt"] = median(rival.speeds.prompt_ns) / median(we.prompt_ns);
    other["x_rival"] = median(rival.speeds.decode_ns) / median(we.decode_ns);
    std::cout << "  bitgrad x " << other.at("x_rival_prompt").get<double>() << ' ' << other.at("x_rival").get<double>()
              << '\n';
    report.at("rows").push_back(other);
  }
  return finish(report, o, {{"model", "who"}, "x_rival"});
}

}  // namespace bitgrad::bench
