// Bytes as ids, 0 .. 255: encodes any text, without a vocabulary to store.
#include <algorithm>
#include <array>

#include "bitgrad/base/error.h"
#include "data/tokenizers.h"

namespace bitgrad::data {
namespace {

constexpr std::string_view kKind = "bytes";
constexpr int64_t kAll = 256;

class BytesTokenizer final : public Tokenizer {
 public:
  BytesTokenizer() {
    for (int64_t i = 0; i < kAll; ++i) all_[static_cast<size_t>(i)] = static_cast<char>(static_cast<uint8_t>(i));
  }
  std::string_view kind() const override { return kKind; }
  int64_t vocabulary() const override { return kAll; }
  void encode(std::string_view text, const Sink& sink) const override {
    std::array<int32_t, 4096> run;
    for (size_t at = 0; at < text.size(); at += run.size()) {
      const std::string_view part = text.substr(at, run.size());
      std::transform(part.begin(), part.end(), run.begin(), [](char c) { return static_cast<uint8_t>(c); });
      sink({run.data(), part.size()});
    }
  }
  std::string_view bytes(int32_t id) const override {
    require(id >= 0 && id < kAll, kKind, "id: got ", id, ", expected 0 .. ", kAll - 1);
    return {all_.data() + id, 1};
  }

 private:
  std::array<char, kAll> all_;
};

}  // namespace

TokenizerPointer make_bytes_tokenizer(std::string_view) { return std::make_shared<BytesTokenizer>(); }
TokenizerPointer load_bytes_tokenizer(const Json&) { return std::make_shared<BytesTokenizer>(); }

}  // namespace bitgrad::data
