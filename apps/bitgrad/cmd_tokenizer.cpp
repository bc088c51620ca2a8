// bitgrad tokenizer train FILE... -o OUT [--kind KIND] --vocabulary N [--special TOKEN]... [--split SPLIT] [--force]:
// makes a tokenizer from texts, a tokenizer.json or a .model.
#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/text.h"
#include "bitgrad/data/tokenizer_train.h"

#include "command.h"
#include "output_file.h"

namespace bitgrad::cli {
namespace {

constexpr std::string_view kTrain = "tokenizer train";

struct TokenizerOptions {
  std::string action, out;
  std::vector<std::string> files;
  TokenizerTraining training;
  bool force = false;
};

void check_out(const TokenizerOptions& o) {
  for (const TokenizerTrainer& trainer : tokenizer_trainers())
    if (trainer.name == o.training.kind)
      require(o.out.ends_with(trainer.file_end) && !o.out.ends_with(".tokens.json"), kTrain, "--out: got '", o.out,
              "', expected a name with ", trainer.file_end, " at its end for --kind ", trainer.name,
              trainer.file_end == ".json" ? " (not .tokens.json, a record of bitgrad tokenize)" : "");
  require_writable(o.out, o.force);
  for (const std::string& file : o.files)
    require(file != o.out, kTrain, "--out: got '", o.out, "', which is one of the texts");
}

int run_tokenizer_train(const TokenizerOptions& o) {
  check_out(o);
  std::vector<std::string> texts;
  int64_t bytes = 0;
  for (const std::string& file : o.files) bytes += std::ssize(texts.emplace_back(training_text(file)));
  TrainedTokenizer trained;
  try {
    trained = train_tokenizer(o.training, texts);
  } catch (const Error& e) {
    const bool one = e.code() == ErrorCode::kData && o.files.size() == 1;
    if (!one) throw;
    fail_with(ErrorCode::kData, kTrain, o.files[0], ": ", e.what());
  }
  write_file_atomically(o.out, trained.file);
  for (const std::string& note : trained.notes) std::cerr << "note: " << note << '\n';
  const int32_t end = trained.tokenizer->end_id();
  std::cout << o.training.kind << " of " << trained.tokenizer->vocabulary() << " ids, " << o.training.special.size()
            << " special tokens, from " << bytes << " bytes of text -> " << printable(o.out) << ": "
            << trained.file.size() << " bytes\n"
            << (end < 0 ? std::string("it has no token for the end of a text (--special \"<|endoftext|>\" makes one)")
                        : concat("the end of a text is id ", end))
            << "\nin a configuration: data.tokenizer: " << printable(o.out)
            << "\n(paths that are relative start at data.root)\n";
  return 0;
}

}  // namespace

Run setup_tokenizer(Arguments& args) {
  auto o = std::make_shared<TokenizerOptions>();
  std::vector<std::string> kinds;
  std::string docs;
  for (const TokenizerTrainer& trainer : tokenizer_trainers()) {
    kinds.push_back(trainer.name);
    docs += concat(docs.empty() ? "" : "; ", trainer.name, ": ", trainer.doc);
  }
  args.option("action", o->action, "train: make a tokenizer from texts").required().one_of({"train"});
  args.option("files", o->files,
              "UTF-8 texts, plain or .gz, one document per file; of .jsonl the texts in its lines of JSON")
      .required();
  args.option("-o,--out", o->out, "the file to write, with .json (byte_bpe) or .model at its end").required();
  args.option("--kind", o->training.kind, docs).one_of(kinds);
  args.option("--vocabulary", o->training.vocabulary, "number of ids, with the 256 bytes and the special tokens")
      .range<int64_t>(1, int64_t{1} << 24)
      .required();
  args.option("--special", o->training.special,
              "a text that is one token and never part of another, such as <|endoftext|> or <|im_start|>; repeatable")
      .repeatable();
  args.option("--split", o->training.split,
              "byte_bpe: how texts become words, gpt2 (default) or qwen2 (single digits, line ends apart, NFC)")
      .one_of({"gpt2", "qwen2"});
  args.flag("--force", o->force, "overwrite existing files");
  return [o] { return run_tokenizer_train(*o); };
}

}  // namespace bitgrad::cli
