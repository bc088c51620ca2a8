// Byte-pair encoding: merges against the definition, added tokens, and every error of a tokenizer.json.
#include "data/bpe_file.h"

#include "bitgrad/base/rng.h"
#include "bitgrad/data/tokenizer.h"
#include "data/tokenizer_text.h"
#include "data/tokenizers.h"
#include "support/catch.h"
#include "support/expect_error.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

struct Merge {
  int32_t left, right, merged;
};

// The definition: as long as a pair can be merged, the one of the lowest rank, the leftmost of several.
std::vector<int32_t> merged_by_scan(const std::vector<Merge>& merges, std::vector<int32_t> word) {
  for (;;) {
    size_t best = merges.size(), at = 0;
    for (size_t i = 0; i + 1 < word.size(); ++i)
      for (size_t rank = 0; rank < best; ++rank)
        if (merges[rank].left == word[i] && merges[rank].right == word[i + 1]) {
          best = rank;
          at = i;
        }
    if (best == merges.size()) return word;
    word[at] = merges[best].merged;
    word.erase(word.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

// All bytes, "ab" and "abc"; with a part replaced.
std::string file_with(const std::string& from = "", const std::string& to = "") {
  Json vocab = Json::object();
  for (int byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    static int next;
    if (byte == 0) next = 256;
    const int point = itself ? byte : next++;
    std::string c;
    if (point >= 0x80) c += static_cast<char>(0xC0 | (point >> 6));
    c += static_cast<char>(point < 0x80 ? point : 0x80 | (point & 0x3F));
    vocab[c] = byte;
  }
  vocab["ab"] = 256;
  vocab["abc"] = 257;
  std::string text =
      concat(R"({"added_tokens": [{"id": 258, "content": "<eos>", "special": true}], "normalizer": null, )",
             R"("pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "model": {"type": "BPE", )",
             R"("dropout": null, "merges": ["a b", ["ab", "c"]], "vocab": )", vocab.dump(), "}}");
  if (from.empty()) return text;
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}
std::vector<int32_t> ids_of(const std::string& file, const std::string& text) {
  return encode(*data::open_bpe_tokenizer(file), text);
}
std::string error_with(const std::string& from, const std::string& to) {
  return error_of([&] { data::open_bpe_tokenizer(file_with(from, to)); });
}

}  // namespace

TEST_CASE("Merges with a heap are those of a scan") {
  const RandomStream draws{3, Purpose::kUser, 3, 0};
  uint64_t n = 0;
  const auto draw = [&](uint32_t below) { return static_cast<int32_t>(draws.bits32(n++) % below); };
  for (int round = 0; round < 300; ++round) {
    std::vector<Merge> all;
    data::BpeMerges merges;
    const int32_t letters = 1 + draw(4);
    for (int32_t m = 0; m < 1 + draw(12); ++m) {
      const auto ids = static_cast<uint32_t>(letters + m);
      const Merge merge{draw(ids), draw(ids), letters + m};
      all.push_back(merge);
      const bool known = !merges.add(merge.left, merge.right, merge.merged);
      if (known) all.back().left = -2;  // the first of a pair counts, and later ranks stay apart
    }
    std::vector<int32_t> word(static_cast<size_t>(draw(40)));
    for (int32_t& id : word) id = draw(static_cast<uint32_t>(letters));
    const std::vector<int32_t> expected = merged_by_scan(all, word);
    merges.apply(word);
    INFO("round " << round);
    CHECK(word == expected);
  }
}

TEST_CASE("Of added tokens at one place the longest wins, and some consume the white space beside them") {
  data::AddedTokens tokens;
  tokens.add({1, "<a", false, false});
  tokens.add({2, "<a>", false, false});
  tokens.add({3, "[m]", true, true});
  std::string shown;
  const auto show = [&](const std::string& text) {
    shown.clear();
    tokens.split(text, [&](std::string_view part, int32_t id) { shown += concat(id, '(', part, ')'); });
    return shown;
  };
  CHECK(show("x<a><ay<") == "-1(x)2(<a>)1(<a)-1(y<)");
  CHECK(show("u \xe2\x80\x83[m]\xc2\xa0\nv") == "-1(u)3( \xe2\x80\x83[m]\xc2\xa0\n)-1(v)");
  CHECK(show("[m] [m]") == "3([m] )3([m])");
  CHECK(show("").empty());
  CHECK(show("none") == "-1(none)");
}

TEST_CASE("A tokenizer.json is read with its merges, marks and steps") {
  if (contains(error_with("", ""), "was built without")) return;
  CHECK(ids_of(file_with(), "abcab<eos>b") == std::vector<int32_t>{257, 256, 258, 98});
  CHECK(ids_of(file_with(R"("a b", )", ""), "abc") == std::vector<int32_t>{97, 98, 99});
  // Whole words that are tokens: without merges too.
  const std::string whole = file_with(R"("merges": ["a b", ["ab", "c"]])", R"("ignore_merges": true, "merges": [])");
  CHECK(ids_of(whole, "abc abc") == std::vector<int32_t>{257, 32, 97, 98, 99});
  CHECK(ids_of(file_with(R"("add_prefix_space": false)", R"("add_prefix_space": true)"), "ab<eos>ab") ==
        std::vector<int32_t>{32, 256, 258, 32, 256});
  const std::string digits =
      file_with(R"({"type": "ByteLevel", "add_prefix_space": false})",
                R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "behavior": "Removed",
                                        "pattern": {"String": "."}}, {"type": "Digits"}, {"type": "ByteLevel",
                                        "use_regex": false, "add_prefix_space": false}]})");
  CHECK(ids_of(digits, "ab.ab") == std::vector<int32_t>{256, 256});
  const std::string kept = file_with(R"({"type": "ByteLevel", "add_prefix_space": false})",
                                     R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "behavior": "Removed",
                                        "invert": true, "pattern": {"Regex": "a\\S"}}, {"type": "ByteLevel",
                                        "use_regex": false, "add_prefix_space": false}]})");
  CHECK(ids_of(kept, "a xab") == std::vector<int32_t>{256});
}

TEST_CASE("Anything but a valid byte-level BPE is an error at its member") {
  if (contains(error_with("", ""), "was built without")) return;
  const auto check = [](const std::string& from, const std::string& to, const std::string& part) {
    const std::string error = error_with(from, to);
    INFO(error);
    CHECK(contains(error, part));
  };
  const std::string bpe = R"("type": "BPE")";
  check(bpe, R"("type": "WordPiece")", "[tokenizer.json] model.type: got WordPiece, expected BPE.");
  check(bpe, R"("type": "Unigram")", "got Unigram, expected BPE. Take the tokenizer.model of SentencePiece");
  check(R"("dropout": null)", R"("dropout": 0.1)", "model.dropout: got 0.1, expected none: byte-level BPE.");
  check(R"("dropout": null)", R"("end_of_word_suffix": "</w>")", "model.end_of_word_suffix: got \"</w>\"");
  check(R"("dropout": null)", R"("byte_fallback": true)", "model.byte_fallback: got true");
  check("\"a b\"", "\"ab\"", "model.merges.0: got 'ab', expected two tokens.");
  check("\"a b\"", "\"a xx\"", "model.merges.0: 'xx' is not a token of model.vocab.");
  check("\"a b\"", "\"b b\"", "model.merges.0: 'bb' is not a token of model.vocab.");
  check("[\"ab\", \"c\"]", "[\"ab\"]", "model.merges.1: got 1 tokens, expected two.");
  check("\"abc\":257", "\"abc\":4000000", "id: got 4000000, expected 0 .. 65794 for 259 tokens.");
  check("\"abc\":257", "\"abc\":-1", "id: got -1, expected 0 ..");
  check("\"abc\":257", "\"abc\":256", "id 256 is that of 'ab' too.");
  check("\"abc\":257", "\"\":257", "got a token without characters");
  check("\"id\": 258", "\"id\": 99999", "added_tokens.0: id: got 99999");
  check("\"content\": \"<eos>\"", "\"content\": \"\"", "added_tokens.0: content: got none.");
  check("\"special\": true", "\"single_word\": true", "added_tokens.0: single_word: got true");
  check("\"normalizer\": null", R"("normalizer": {"type": "Lowercase"})", "normalizer: got Lowercase, expected NFC");
  check("\"normalizer\": null", R"("normalizer": {})", "normalizer: got no type.");
  check(R"("type": "ByteLevel")", R"("type": "Whitespace")", "pre_tokenizer: got Whitespace, expected ByteLevel");
  // What follows ByteLevel would cut the characters that stand for bytes.
  for (const char* step : {R"({"type": "Digits"})", R"({"type": "ByteLevel"})",
                           R"({"type": "Split", "pattern": {"String": "a"}, "behavior": "Isolated"})"})
    check(R"({"type": "ByteLevel", "add_prefix_space": false})",
          concat(R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, )", step, "]}"),
          "after ByteLevel, which must come last");
  // Decoders that would give another text than the bytes of the ids.
  for (const char* type : {"WordPiece", "Metaspace", "ByteFallback", "Strip", "Replace", "BPEDecoder", "CTC"}) {
    check(R"("normalizer": null)", concat(R"("decoder": {"type": ")", type, "\"}"),
          concat("decoder: got ", type, ", expected ByteLevel"));
    check(R"("normalizer": null)",
          concat(R"("decoder": {"type": "Sequence", "decoders": [{"type": "ByteLevel"}, {"type": ")", type, "\"}]}"),
          concat("decoder: got ", type, ", expected ByteLevel"));
  }
  check(R"({"type": "ByteLevel", "add_prefix_space": false})", "null", "pre_tokenizer: got none, expected ByteLevel.");
  check(R"("type": "ByteLevel")", R"("type": "Digits")", "got none of type ByteLevel: only byte-level BPE is read.");
  check(R"("type": "ByteLevel")", R"("type": "Split", "behavior": "MergedWithNext", "pattern": {"Regex": "a"})",
        "behavior: got MergedWithNext, expected Isolated or Removed.");
  check(R"("type": "ByteLevel")", R"("type": "Split", "behavior": "Isolated", "pattern": {"Regex": "(a"})",
        "[pattern] '(a' is not a regular expression that libpcre2 compiles: missing closing parenthesis");
  check(R"("type": "ByteLevel")", R"("type": "Split", "behavior": "Isolated", "pattern": {"Regex": "[^\\Q]"})",
        "character 3: \\Q is not supported");
  const std::string step = R"({"type": "Digits"}, )";
  std::string steps;
  for (int i = 0; i < 64; ++i) steps += step;
  const std::string last = R"({"type": "ByteLevel", "add_prefix_space": false})";
  check(last, R"({"type": "Sequence", "pretokenizers": [)" + steps + last + "]}",
        "pre_tokenizer: got more than 64 steps.");
  std::string forms = R"({"type": "NFC"})";
  for (int i = 0; i < 64; ++i) forms += R"(, {"type": "NFC"})";
  check("\"normalizer\": null", R"("normalizer": {"type": "Sequence", "normalizers": [)" + forms + "]}",
        "normalizer: got more than 64 steps.");
  std::string merges = R"("a b")";
  for (int i = 0; i < 1000; ++i) merges += R"(, "a b")";
  check("\"a b\"", merges, "model.merges: got 1002 merges, expected at most");
  const auto without = data::open_bpe_tokenizer(file_with("\"z\":122,", ""));
  CHECK(contains(error_of([&] { encode(*without, "az"); }), "byte 122 of the word 'az' has no token"));
}
