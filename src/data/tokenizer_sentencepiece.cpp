// SentencePiece models (Kudo and Richardson 2018, arXiv:1808.06226), by its library. This file is the only user of the
// library.
#include <vector>

#include "bitgrad/base/error.h"
#include "data/base64.h"
#include "data/tokenizers.h"

#if BITGRAD_WITH_SENTENCEPIECE
#include <sentencepiece_processor.h>
#endif

namespace bitgrad::data {

#if BITGRAD_WITH_SENTENCEPIECE
namespace {

constexpr std::string_view kSentencePiece = "sentencepiece";
constexpr std::string_view kSpace = "\xe2\x96\x81";  // U+2581, which represents a space

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(std::string model) : model_(std::move(model)) {
    if (const auto status = processor_.LoadFromSerializedProto(model_); !status.ok())
      fail_with(ErrorCode::kData, kSentencePiece, "is no model of SentencePiece: ", status.message());
    for (int id = 0; id < processor_.GetPieceSize(); ++id) bytes_.push_back(bytes_of(id));
    if (bytes_.empty()) fail_with(ErrorCode::kData, kSentencePiece, "the model has no pieces.");
  }

  std::string_view kind() const override { return kSentencePiece; }
  int64_t vocabulary() const override { return std::ssize(bytes_); }
  bool special(int32_t id) const override { return processor_.IsControl(id); }
  int32_t end_id() const override { return processor_.eos_id(); }
  Json content() const override { return {{"model", base64(model_)}}; }
  std::string_view bytes(int32_t id) const override {
    require(id >= 0 && id < vocabulary(), kSentencePiece, "id: got ", id, ", expected 0 .. ", vocabulary() - 1);
    return bytes_[static_cast<size_t>(id)];
  }
  void encode(std::string_view text, const Sink& sink) const override {
    std::vector<int> ids;
    if (const auto status = processor_.Encode({text.data(), text.size()}, &ids); !status.ok())
      fail_with(ErrorCode::kData, kSentencePiece, status.message());
    if (!ids.empty()) sink(ids);
  }
  // As the library does: removes the space that it adds before a text.
  std::string decode(std::span<const int32_t> ids) const override {
    for (const int32_t id : ids) bytes(id);
    std::string text;
    if (const auto status = processor_.Decode(std::vector<int>(ids.begin(), ids.end()), &text); !status.ok())
      fail_with(ErrorCode::kData, kSentencePiece, status.message());
    return text;
  }

 private:
  std::string bytes_of(int id) const {
    const std::string& piece = processor_.IdToPiece(id);
    if (processor_.IsControl(id)) return "";
    if (processor_.IsUnknown(id)) return " \xe2\x81\x87 ";  // same as the library's decoding
    if (processor_.IsByte(id)) return {static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16))};  // <0x0A>
    std::string bytes;
    for (size_t at = 0; at < piece.size();) {
      const bool space = std::string_view(piece).substr(at).starts_with(kSpace);
      bytes += space ? ' ' : piece[at];
      at += space ? kSpace.size() : 1;
    }
    return bytes;
  }

  std::string model_;
  sentencepiece::SentencePieceProcessor processor_;
  std::vector<std::string> bytes_;
};

}  // namespace

TokenizerPointer open_sentencepiece_tokenizer(std::string_view bytes) {
  return std::make_shared<SentencePieceTokenizer>(std::string(bytes));
}

#else

TokenizerPointer open_sentencepiece_tokenizer(std::string_view) {
  fail("tokenizer",
       "this program was built without SentencePiece. Install libsentencepiece-dev (scripts/setup.sh) and build it "
       "again.");
}

#endif

TokenizerPointer load_sentencepiece_tokenizer(const Json& content) {
  return open_sentencepiece_tokenizer(base64_bytes(content.at("model").text()));
}

}  // namespace bitgrad::data
