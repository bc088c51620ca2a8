// Models of SentencePiece from texts, by the trainer of its library. Texts are not normalized and keep all blanks, as
// those of Llama; a character without a piece becomes its bytes, so that no text is without ids. Lines are sentences: a
// line end is the byte <0x0A>.
#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "bitgrad/base/error.h"
#include "data/tokenizer_train.h"

#if BITGRAD_WITH_SENTENCEPIECE_TRAIN
#include <sentencepiece_trainer.h>
#endif

namespace bitgrad::data {
namespace {

constexpr std::string_view kWhere = "tokenizer train";

#if BITGRAD_WITH_SENTENCEPIECE_TRAIN

constexpr std::string_view kReserved = "\xe2\x96\x85";  // U+2585, which the trainer takes for unknown characters
constexpr int64_t kBytes = 256;
constexpr std::string_view kOwn[] = {"<unk>", "<s>", "</s>"};

// The lines of texts that have characters, one after the other.
class Lines final : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(const std::vector<std::string>& texts) : texts_(texts) { Next(); }
  bool done() const override { return done_; }
  void Next() override {
    while (text_ < texts_.size()) {
      const std::string_view text = texts_[text_];
      if (at_ >= text.size()) {
        ++text_, at_ = 0;
        continue;
      }
      const size_t end = std::min(text.find('\n', at_), text.size());
      line_ = text.substr(at_, end - at_);
      at_ = end + 1;
      if (!line_.empty() && line_.back() == '\r') line_.pop_back();
      if (line_.empty()) continue;
      if (line_.find(kReserved) == line_.npos && line_.find('\0') == line_.npos) return;
      ++left_out_;
    }
    done_ = true;
  }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }
  int64_t left_out() const { return left_out_; }

 private:
  const std::vector<std::string>& texts_;
  size_t text_ = 0, at_ = 0;
  std::string line_;
  bool done_ = false;
  int64_t left_out_ = 0;
};

// The tokens with commas between them, quoted as in CSV.
std::string listed(const std::vector<std::string>& tokens) {
  std::string out;
  for (const std::string& token : tokens) {
    out += out.empty() ? "\"" : ",\"";
    for (const char c : token) out += c == '"' ? std::string("\"\"") : std::string(1, c);
    out += '"';
  }
  return out;
}

std::string train(const std::string& type, const TokenizerTraining& spec, const std::vector<std::string>& texts,
                  std::vector<std::string>& notes) {
  for (const std::string& token : spec.special)
    require(std::find(std::begin(kOwn), std::end(kOwn), token) == std::end(kOwn), kWhere, "special: got '", token,
            "', which every model of SentencePiece has");
  const int64_t least = kBytes + std::ssize(kOwn) + std::ssize(spec.special) + 1;
  require(spec.vocabulary >= least, kWhere, "vocabulary: got ", spec.vocabulary, ", expected at least ", least, ": ",
          kBytes, " bytes, <unk>, <s>, </s>, ", spec.special.size(), " special tokens, and pieces");
  std::unordered_map<std::string, std::string> keys{{"model_type", type},
                                                    {"vocab_size", std::to_string(spec.vocabulary)},
                                                    {"byte_fallback", "true"},
                                                    {"normalization_rule_name", "identity"},
                                                    {"remove_extra_whitespaces", "false"},
                                                    {"allow_whitespace_only_pieces", "true"},
                                                    {"max_sentence_length", "1073741824"},
                                                    {"num_threads", "1"},
                                                    {"minloglevel", "2"}};
  if (!spec.special.empty()) keys["control_symbols"] = listed(spec.special);
  Lines lines(texts);
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(keys, &lines, &model);
  if (!status.ok()) fail_with(ErrorCode::kData, kWhere, "SentencePiece: ", status.message());
  if (lines.left_out() > 0)
    notes.push_back(concat(lines.left_out(),
                           " lines with U+2585 or a zero byte, which SentencePiece reserves, were "
                           "omitted"));
  return model;
}

#else

std::string train(const std::string&, const TokenizerTraining&, const std::vector<std::string>&,
                  std::vector<std::string>&) {
  fail(kWhere,
       "this program was built without the trainer of SentencePiece. Install libsentencepiece-dev (scripts/setup.sh) "
       "and build it again, or train byte_bpe.");
}

#endif

}  // namespace

std::string train_sentencepiece_bpe(const TokenizerTraining& spec, const std::vector<std::string>& texts,
                                    std::vector<std::string>& notes) {
  return train("bpe", spec, texts, notes);
}
std::string train_sentencepiece_unigram(const TokenizerTraining& spec, const std::vector<std::string>& texts,
                                        std::vector<std::string>& notes) {
  return train("unigram", spec, texts, notes);
}

}  // namespace bitgrad::data
