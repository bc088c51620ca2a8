// Tokenizers. 'J': a tokenizer.json; 'R': a record of a file of a model. What is accepted makes ids in range of any
// text that it has tokens for, and is written and read back the same.
#include "bitgrad/data/tokenizer.h"
#include "data/tokenizers.h"
#include "fuzz/fuzz.h"

using namespace bitgrad;

namespace {

constexpr int kDepth = 20;

void use(const Tokenizer& tokenizer, std::string_view text) {
  for (int32_t id = 0; id < tokenizer.vocabulary(); ++id) {
    fuzz::expect(tokenizer.bytes(id).size() <= (size_t{1} << 24), "bytes of every id");
    static_cast<void>(tokenizer.special(id));
  }
  fuzz::expect(tokenizer.end_id() < tokenizer.vocabulary(), "the end is an id");
  const auto again = load_tokenizer(tokenizer_record(tokenizer));
  fuzz::expect(tokenizer_difference(tokenizer, *again).empty(), "a record makes the same tokenizer");
  for (const int32_t id : encode(tokenizer, text)) fuzz::expect(id >= 0 && id < tokenizer.vocabulary(), "ids in range");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  fuzz::takes([&] {
    try {
      if (data[0] == 'J') {
        use(*data::open_bpe_tokenizer(input), input);
      } else {
        use(*load_tokenizer(Json::parse(input, {.depth = kDepth, .unique_names = true})), input);
      }
    } catch (const JsonError& e) {
      fail_with(ErrorCode::kData, "fuzz", e.what());
    }
  });
  return 0;
}
