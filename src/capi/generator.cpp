// Texts of a language model, token by token.
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "bitgrad/base/json.h"
#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/infer/generator.h"
#include "bitgrad/interop/model_origin.h"
#include "capi/guard.h"
#include "capi/model.h"

using namespace bitgrad;
using namespace bitgrad::capi;

struct bitgrad_generator {
  std::recursive_mutex busy;
  std::shared_ptr<bitgrad_model> model;
  std::shared_ptr<const Tokenizer> tokenizer;  // nullptr: ids alone
  GenerateSpec spec;
  std::vector<int32_t> prompt;
  std::unique_ptr<Generator> reader;
  int64_t dropped = 0;        // of the prompt
  std::vector<float> scores;  // of what follows the prompt; empty: it is not read yet
  std::unique_ptr<Continuation> writer;
  std::string text, result;  // last returned
};

namespace {

constexpr std::string_view kGenerate = "generate";

// Members of the options, each taken once; what remains is unknown.
class Options {
 public:
  explicit Options(const char* text) {
    if (text == nullptr) return;
    try {
      given_ = Json::parse(text);
    } catch (const JsonError& e) {
      fail(kGenerate, "options: ", e.what());
    }
    require(given_.is_object(), kGenerate, "options: got no JSON object");
  }
  std::optional<Json> take(const char* name) {
    known_ += known_.empty() ? name : concat(", ", name);
    if (!given_.is_object() || !given_.contains(name)) return std::nullopt;
    const Json value = given_.at(name);
    given_.erase(name);
    return value.is_null() ? std::nullopt : std::optional<Json>(value);
  }
  void number(const char* name, double& to) {
    const std::optional<Json> value = take(name);
    if (!value) return;
    require(value->is_number(), kGenerate, name, ": got ", value->dump(), ", expected a number");
    to = value->get<double>();
  }
  template <typename T>
  void whole(const char* name, T& to, int64_t least = 0) {
    const std::optional<Json> value = take(name);
    if (!value) return;
    to = static_cast<T>(number_in(*value, name, least, std::numeric_limits<int64_t>::max()));
  }
  std::vector<Json> list(const char* name) {
    const std::optional<Json> value = take(name);
    if (!value) return {};
    require(value->is_array(), kGenerate, name, ": got ", value->dump(), ", expected a list");
    std::vector<Json> items;
    for (const Json& item : *value) items.push_back(item);
    return items;
  }
  static int64_t number_in(const Json& value, const char* name, int64_t least, int64_t most) {
    int64_t x = least - 1;
    try {
      if (value.is_integer()) x = value.get<int64_t>();
    } catch (const JsonError&) {  // too large
    }
    require(x >= least && x <= most, kGenerate, name, ": got ", value.dump(), ", expected a whole number from ", least,
            " to ", most);
    return x;
  }
  static std::string text_of(const Json& value, const char* name) {
    require(value.is_string(), kGenerate, name, ": got ", value.dump(), ", expected a text");
    return value.text();
  }
  void end() const {
    if (!given_.is_object() || given_.empty()) return;
    fail(kGenerate, "unknown option '", given_.members().front().first, "', expected ", known_);
  }

 private:
  Json given_ = nullptr;
  std::string known_;
};

KvKind kv_of(const std::string& name) {
  for (const KvKind kind : {KvKind::kFp32, KvKind::kBf16, KvKind::kInt8})
    if (name == kv_kind_name(kind)) return kind;
  fail(kGenerate, "kv: got '", name, "', expected fp32, bf16, int8 or none");
}

GeneratorSpec cache_of(Options& options) {
  const std::optional<Json> kv = options.take("kv");
  const std::string name = kv ? Options::text_of(*kv, "kv") : "fp32";
  if (name == "none") return {.cache = false};
  return {.cache = true, .kv = kv_of(name)};
}

void take_prompt(Options& options, bitgrad_generator& g) {
  const OpenedFile& file = g.model->predictor->file();
  const ModelOrigin origin = parse_origin(file.header.origin, file.path);
  const std::optional<Json> prompt = options.take("prompt");
  const std::vector<Json> ids = options.list("ids");
  require(prompt.has_value() == ids.empty(), kGenerate, "expected either a prompt or ids");
  for (const Json& id : ids)
    g.prompt.push_back(static_cast<int32_t>(Options::number_in(id, "ids", 0, std::numeric_limits<int32_t>::max())));
  require(!prompt || g.tokenizer != nullptr, kGenerate, "prompt: ", file.path,
          " has no tokenizer: it was not trained on a text of format tokens. Give ids");
  if (prompt) g.prompt = prompt_ids(origin, *g.tokenizer, Options::text_of(*prompt, "prompt"), "prompt");
  g.spec.end = end_ids(origin, g.tokenizer.get());
}

void take_options(const char* text, bitgrad_generator& g) {
  Options options(text);
  take_prompt(options, g);
  SamplingSpec& sampling = g.spec.sampling;
  options.whole("tokens", g.spec.tokens);
  options.number("temperature", sampling.temperature);
  options.whole("top_k", sampling.top_k);
  options.number("top_p", sampling.top_p);
  options.number("min_p", sampling.min_p);
  options.number("repetition_penalty", sampling.repetition_penalty);
  options.whole("seed", sampling.seed);
  for (const Json& stop : options.list("stop")) g.spec.stop.push_back(Options::text_of(stop, "stop"));
  const GeneratorSpec cache = cache_of(options);
  options.end();
  check_sampling(sampling);
  g.model->predictor->with_learner([&](Learner& learner) {
    g.reader = std::make_unique<Generator>(learner, cache);
    g.reader->append(g.prompt);
  });
}

// Reads a piece of the prompt; true: all of it is read.
bool read_prompt(bitgrad_generator& g) {
  if (!g.scores.empty()) return true;
  if (!g.reader->read()) return false;
  g.scores.assign(g.reader->scores().begin(), g.reader->scores().end());
  g.dropped = g.reader->dropped();
  return true;
}

void write_next(bitgrad_generator& g, bitgrad_token& out) {
  out = {-1, "", 0};
  if (!read_prompt(g)) return;
  if (g.writer == nullptr) g.writer = std::make_unique<Continuation>(*g.reader, g.scores, g.tokenizer.get(), g.spec);
  int32_t id = -1;
  const bool more = g.writer->next(id, g.text);
  out = more ? bitgrad_token{id, g.text.c_str(), std::ssize(g.text)} : bitgrad_token{-1, nullptr, 0};
}

}  // namespace

int bitgrad_generator_create(bitgrad_model* model, const char* options, bitgrad_generator** out) {
  return guarded([&] {
    given(out, "out") = nullptr;
    auto g = std::make_shared<bitgrad_generator>();
    g->model = handles<bitgrad_model>().get(model, "model");
    const OpenedFile& file = g->model->predictor->file();
    g->tokenizer = tokenizer_of(file.header, file.path);
    take_options(options, *g);
    *out = handles<bitgrad_generator>().add(std::move(g));
  });
}
void bitgrad_generator_close(bitgrad_generator* generator) { handles<bitgrad_generator>().remove(generator); }

int bitgrad_generator_next(bitgrad_generator* generator, bitgrad_token* out) {
  return alone(generator, "generator", [&](bitgrad_generator& g) {
    given(out, "out") = {-1, nullptr, 0};
    g.model->predictor->with_learner([&](Learner&) { write_next(g, *out); });
  });
}
int bitgrad_generator_again(bitgrad_generator* generator) {
  return alone(generator, "generator", [&](bitgrad_generator& g) {
    g.writer.reset();
    if (!g.scores.empty()) g.reader->truncate(std::ssize(g.prompt));
    ++g.spec.sample;
  });
}
const char* bitgrad_generator_result(bitgrad_generator* generator) {
  const char* text = nullptr;
  const int code = alone(generator, "generator", [&](bitgrad_generator& g) {
    const Generated made = g.writer ? g.writer->made() : Generated{};
    const bool ended = g.writer && g.writer->ended();
    const Json j{{"ids", made.ids},
                 {"text", g.tokenizer ? Json(made.text) : Json(nullptr)},
                 {"stop", ended ? Json(std::string(stop_reason_name(made.reason))) : Json(nullptr)},
                 {"prompt_tokens", g.prompt.size()},
                 {"dropped", g.dropped}};
    g.result = j.dump();
    text = g.result.c_str();
  });
  return code == BITGRAD_OK ? text : nullptr;
}
