// bitgrad generate RUN_DIR_OR_FILE --prompt TEXT | --ids 1,2,3 [options]: a language model continues a text. The text
// is streamed to standard output, and statistics go to standard error. With --chat, the model answers a prompt as a
// turn of a chat, or the lines of standard input, one after the other. Options: bitgrad generate --help.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <iterator>
#include <optional>

#include "bitgrad/base/error.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/text.h"
#include "bitgrad/data/tokenizer.h"
#include "bitgrad/infer/generator.h"
#include "bitgrad/interop/model_origin.h"
#include "chat_turns.h"
#include "command.h"
#include "open_file.h"

namespace bitgrad::cli {
namespace {

constexpr std::string_view kGenerate = "generate";
constexpr const char* kBetween = "\n---------------\n";

struct GenerateOptions {
  std::string prompt, system, roles;
  ModelChoice choice;
  std::vector<int64_t> ids;
  bool has_prompt = false, has_ids = false;
  GenerateSpec spec;
  GeneratorSpec generator;
  int64_t samples = 1, seed = 0;
  bool no_cache = false, json = false, chat = false;
};

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now();
};

// The largest resident memory of this process so far, in bytes.
int64_t peak_bytes() {
  constexpr int64_t kUnit = 1024;  // of Linux
  struct rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * kUnit;
}

// "12.3", the same in every locale.
std::string rounded(double number) {
  TextWriter text;
  text.precision(number < 100 ? 3 : 5);
  text << number;
  return text.str();
}

std::string standard_input() { return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()}; }

class Generating {
 public:
  explicit Generating(const GenerateOptions& o)
      : o_(o),
        file_(open_to_compute(o.choice)),
        tokenizer_(tokenizer_of(file_.header, file_.path)),
        origin_(parse_origin(file_.header.origin, file_.path)),
        load_seconds_(opening_.seconds()) {
    if (o_.chat) begin_chat();
  }

  int run() {
    apply_run_settings(file_.config);
    const DeviceGuard guard(device_of(file_.config));
    const std::vector<int32_t> prompt = chat_ && !o_.has_prompt ? std::vector<int32_t>() : prompt_ids();
    require(tokenizer_ || o_.spec.stop.empty(), kGenerate, "--stop: ", file_.path, " has no tokenizer: it writes ids");
    if (tokenizer_) StreamedText(*tokenizer_, o_.spec.stop);  // rejects empty stop texts
    const Stopwatch loading;
    const std::unique_ptr<Learner> learner = load_file(file_, nullptr);
    file_.tensors.reset();
    Generator generator(*learner, o_.generator);
    load_seconds_ += loading.seconds();
    if (chat_ && !o_.has_prompt) return answer_lines(generator);
    const Stopwatch reading;
    const std::span<const float> fed = generator.feed(prompt);
    const std::vector<float> scores(fed.begin(), fed.end());
    const double prompt_seconds = reading.seconds();
    tell_limits(generator, prompt);
    const Stopwatch writing;
    for (int64_t sample = 0; sample < o_.samples; ++sample) {
      if (sample > 0) generator.truncate(std::ssize(prompt));
      write_sample(generator, prompt, scores, sample);
    }
    finish(generator, prompt, prompt_seconds, writing.seconds());
    return 0;
  }

 private:
  // The table of roles of the model's configuration, or that of --roles.
  void begin_chat() {
    require(tokenizer_ != nullptr, kGenerate, "--chat: ", file_.path, " has no tokenizer, expected a model of text");
    const std::optional<ChatTable>& own = file_.config.data.chat;
    require(own || !o_.roles.empty(), kGenerate, "--chat: ", file_.path,
            " names no table of roles (data.chat). Give one: --roles ", joined(chat_names(), "|"));
    if (own && !o_.roles.empty() && resolved(*own) != resolved(ChatTable{.name = o_.roles}))
      std::cerr << "note: --roles " << o_.roles << " is another table than that of " << file_.path << '\n';
    const ChatTable table = resolved(o_.roles.empty() ? *own : ChatTable{.name = o_.roles});
    require(table.user.given(), kGenerate, "--chat: data.chat is none, expected a table of roles. Give one: --roles");
    chat_.emplace(table, *tokenizer_, o_.system);
    if (!o_.system.empty()) static_cast<void>(chat_->ids());  // rejects a role that the table does not have
  }

  // What the model does not see, or does not draw.
  void tell_limits(const Generator& generator, const std::vector<int32_t>& prompt) {
    dropped_ = generator.dropped();
    if (dropped_ > 0 && !o_.json)
      std::cerr << "note: the prompt has " << prompt.size() << " tokens, the model's context is " << generator.context()
                << ": it sees the last " << std::ssize(prompt) - dropped_ << ", the first " << dropped_
                << " are dropped\n";
    if (const int64_t drawn = drawn_ids(generator.vocabulary(), tokenizer_.get()); drawn < generator.vocabulary())
      std::cerr << "note: the model has " << generator.vocabulary() << " ids, its tokenizer " << drawn
                << ": the others, " << drawn << " .. " << generator.vocabulary() - 1 << ", are never drawn\n";
  }

  // Each line of standard input is a turn of the user, until it ends.
  int answer_lines(Generator& generator) {
    const bool terminal = isatty(STDIN_FILENO) != 0;
    for (std::string line; (terminal ? std::cerr << "> " << std::flush : std::cerr), std::getline(std::cin, line);) {
      if (line.find_first_not_of(" \t\r") == line.npos) continue;
      chat_->add("user", line);
      const std::vector<int32_t> ids = chat_->ids(), &known = generator.ids();
      const auto same = std::mismatch(ids.begin(), ids.end() - 1, known.begin(), known.end()).first - ids.begin();
      generator.truncate(same);
      const std::span<const float> fed = generator.feed(std::span(ids).subspan(static_cast<size_t>(same)));
      const std::vector<float> scores(fed.begin(), fed.end());
      tell_limits(generator, ids);
      chat_->add("assistant", write_sample(generator, ids, scores, 0));
    }
    return 0;
  }

  std::vector<int32_t> prompt_ids() const {
    if (o_.has_ids) {
      for (const int64_t id : o_.ids)
        require(id >= 0 && id <= INT32_MAX, kGenerate, "--ids: got ", id, ", expected ids from 0 on");
      return {o_.ids.begin(), o_.ids.end()};
    }
    require(tokenizer_ != nullptr, kGenerate, "--prompt: ", file_.path,
            " has no tokenizer: it was not trained on a text of format tokens. Give --ids");
    const std::string text = o_.prompt == "-" ? standard_input() : o_.prompt;
    if (!chat_) return bitgrad::prompt_ids(origin_, *tokenizer_, text, "--prompt");
    ChatTurns turns = *chat_;
    turns.add("user", text);
    return turns.ids();
  }

  // Returns the text that was generated.
  std::string write_sample(Generator& generator, const std::vector<int32_t>& prompt, const std::vector<float>& scores,
                           int64_t sample) {
    GenerateSpec spec = o_.spec;
    spec.sample = sample;
    spec.end = end_ids(origin_, tokenizer_.get());
    if (chat_) chat_->end_answers(spec);
    if (!o_.json) begin_sample(prompt, sample);
    const auto show = [&](int32_t id, std::string_view text) {
      if (o_.json) return;
      if (tokenizer_)
        std::cout << text << std::flush;
      else if (id >= 0)
        std::cout << ',' << id << std::flush;
    };
    const Generated made = generate(generator, scores, tokenizer_.get(), spec, show);
    tokens_ += std::ssize(made.ids);
    if (!o_.json) {
      if (!made.text.ends_with('\n')) std::cout << '\n';
      return made.text;
    }
    samples_.push_back({{"ids", made.ids},
                        {"text", tokenizer_ ? Json(made.text) : Json(nullptr)},
                        {"stop", std::string(stop_reason_name(made.reason))}});
    return made.text;
  }

  void begin_sample(const std::vector<int32_t>& prompt, int64_t sample) const {
    if (sample > 0) std::cout << kBetween;
    if (chat_) return;  // the answer alone
    if (tokenizer_) {
      StreamedText text(*tokenizer_);
      for (const int32_t id : prompt) std::cout << text.add(id);
      std::cout << text.finish() << std::flush;
      return;
    }
    for (size_t i = 0; i < prompt.size(); ++i) std::cout << (i > 0 ? "," : "") << prompt[i];
  }

  void finish(const Generator& generator, const std::vector<int32_t>& prompt, double prompt_seconds, double seconds) {
    const std::string kv = generator.cached() ? std::string(kv_kind_name(o_.generator.kv)) : "none";
    const auto rate = [](int64_t n, double s) { return s > 0 ? static_cast<double>(n) / s : 0.0; };
    const double tokens_per_s = rate(tokens_, seconds), prompt_per_s = rate(std::ssize(prompt), prompt_seconds);
    if (!o_.json) {
      std::cerr << tokens_ << " tokens, " << rounded(tokens_per_s) << " tokens/s; prompt of " << prompt.size() << ", "
                << rounded(prompt_per_s) << " tokens/s; cache " << kv << ", " << generator.cache_bytes() << " bytes\n";
      return;
    }
    std::cout << Json{{"prompt", prompt},
                      {"dropped", dropped_},
                      {"samples", samples_},
                      {"tokens_per_s", tokens_per_s},
                      {"prompt_tokens_per_s", prompt_per_s},
                      {"cache", {{"kind", kv}, {"bytes", generator.cache_bytes()}}},
                      {"load_s", load_seconds_},
                      {"peak_bytes", peak_bytes()}}
                     .dump()
              << '\n';
  }

  const GenerateOptions o_;
  const Stopwatch opening_;
  OpenedFile file_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const ModelOrigin origin_;
  double load_seconds_;
  std::optional<ChatTurns> chat_;
  Json samples_ = Json::array();
  int64_t tokens_ = 0, dropped_ = 0;
};

int run_generate(GenerateOptions& o) {
  require(o.has_prompt != o.has_ids || (o.chat && !o.has_ids), kGenerate,
          "expected either --prompt TEXT or --ids 1,2,3");
  require(o.chat || (o.system.empty() && o.roles.empty()), kGenerate, o.system.empty() ? "--roles" : "--system",
          " is of --chat");
  require(!o.chat || o.has_prompt || (!o.json && o.samples == 1), kGenerate,
          "--json and --samples need a --prompt: lines of standard input are answered once each, as text");
  o.spec.sampling.seed = static_cast<uint64_t>(o.seed);
  o.generator.cache = !o.no_cache;
  check_sampling(o.spec.sampling);
  return Generating(o).run();
}

}  // namespace

Run setup_generate(Arguments& args) {
  auto o = std::make_shared<GenerateOptions>();
  SamplingSpec& sampling = o->spec.sampling;
  add_target(args, o->choice);
  add_choice_options(args, o->choice);
  args.option("overrides", o->choice.overrides, "key=value of the configuration, such as device.threads=1");
  const Argument prompt = args.option("--prompt", o->prompt, "prompt to continue; - reads standard input");
  const Argument ids =
      args.option("--ids", o->ids, "prompt as token ids, such as 1,2,3").delimiter(',').excludes(prompt);
  args.flag(
          "--chat", o->chat,
          "answer the prompt, or each line of standard input without one, as a turn of a chat by the model's table of "
          "roles (data.chat); the answer stops at its end mark")
      .excludes(ids);
  args.option("--system", o->system, "--chat: text of the system before the first turn");
  args.option("--roles", o->roles, "--chat: a built-in table of roles, for a model whose file names none")
      .one_of(chat_names());
  args.option("--tokens", o->spec.tokens, "maximum number of tokens").range<int64_t>(0, int64_t{1} << 40);
  args.option("--temperature", sampling.temperature, "softmax temperature; 0: greedy decoding");
  args.option("--top-k", sampling.top_k, "sample from the k most likely tokens; 0: all");
  args.option("--top-p", sampling.top_p, "sample from the most likely tokens whose probabilities add up to p");
  args.option("--min-p", sampling.min_p, "sample from tokens with at least this fraction of the largest probability");
  args.option("--repetition-penalty", sampling.repetition_penalty, "penalty of tokens that occurred before; 1: none");
  args.option("--seed", o->seed, "random seed").range<int64_t>(0, INT64_MAX);
  args.option("--samples", o->samples, "number of texts to generate from the prompt")
      .range<int64_t>(1, int64_t{1} << 20);
  args.option("--stop", o->spec.stop, "stop before this text; repeatable").repeatable();
  const Argument kv =
      args.choice("--kv", o->generator.kv, {{"fp32", KvKind::kFp32}, {"bf16", KvKind::kBf16}, {"int8", KvKind::kInt8}},
                  "dtype of the KV cache");
  args.flag("--no-cache", o->no_cache, "recompute all positions for each token; same tokens as --kv fp32").excludes(kv);
  args.flag("--json", o->json, "one JSON object on standard output");
  return [o, prompt, ids] {
    o->has_prompt = prompt.count() > 0;
    o->has_ids = ids.count() > 0;
    return run_generate(*o);
  };
}

}  // namespace bitgrad::cli
