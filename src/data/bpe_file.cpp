// Reads tokenizer.json of Hugging Face's `tokenizers` library (format version 1.0), byte-level BPE only: GPT-2, Llama
// 3, Qwen. Ignored: truncation, padding and post_processor, which adds special tokens at the ends of a text. Decoding
// concatenates the bytes of the ids: a decoder that does something else is refused.
#include "data/bpe_file.h"

#include <algorithm>
#include <array>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "data/tokenizer_text.h"

namespace bitgrad::data {

std::array<std::string, 256> byte_characters() {
  std::array<std::string, 256> all;
  uint32_t next = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const uint32_t point = itself ? byte : next++;
    std::string& c = all[byte];
    if (point >= 0x80) c += static_cast<char>(0xC0 | (point >> 6));
    c += static_cast<char>(point < 0x80 ? point : 0x80 | (point & 0x3F));
  }
  return all;
}

namespace {

constexpr int64_t kMostGap = 65536;  // limit on ids without a token
constexpr size_t kMostSteps = 64;    // steps of splitting, and of normalizing; files in use have 1 to 6
// The pattern of GPT-2 (openai/gpt-2, src/encoder.py).
constexpr const char* kWords = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

template <typename... Parts>
[[noreturn]] void bad(const Parts&... parts) {
  fail_with(ErrorCode::kData, "tokenizer.json", parts...);
}

bool given(const Json& object, std::string_view name) {
  return object.contains(name) && !object.at(name).is_null() && object.at(name) != Json("");
}
std::string type_of(const Json& object, std::string_view path) {
  if (!object.is_object() || !object.contains("type")) bad(path, ": got no type.");
  return object.at("type").text();
}

class BpeReader {
 public:
  explicit BpeReader(const Json& file) : file_(file) {
    const std::array<std::string, 256> characters = byte_characters();
    for (size_t byte = 0; byte < characters.size(); ++byte)
      byte_of_[characters[byte]] = static_cast<char>(static_cast<uint8_t>(byte));
    parts_.byte_ids.fill(-1);
  }

  BpeParts read() {
    if (!file_.is_object() || !file_.contains("model")) bad("got no member 'model'.");
    const Json& model = file_.at("model");
    check(model);
    vocabulary(model.at("vocab"));
    merges(model.at("merges"));
    if (given(file_, "normalizer")) normalizer(file_.at("normalizer"));
    if (given(file_, "added_tokens")) added(file_.at("added_tokens"));
    if (!given(file_, "pre_tokenizer")) bad("pre_tokenizer: got none, expected ByteLevel.");
    bool bytes = false;
    pre_tokenizer(file_.at("pre_tokenizer"), bytes);
    if (!bytes) bad("pre_tokenizer: got none of type ByteLevel: only byte-level BPE is read.");
    if (given(file_, "decoder")) decoder(file_.at("decoder"));
    if (model.value("ignore_merges", false)) keep_words();
    return std::move(parts_);
  }

 private:
  static void check(const Json& model) {
    const std::string type = model.contains("type") ? model.at("type").text() : "BPE";
    if (type == "Unigram")
      bad("model.type: got Unigram, expected BPE. Take the tokenizer.model of SentencePiece that it was made from.");
    if (type != "BPE") bad("model.type: got ", type, ", expected BPE.");
    for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
      if (given(model, key) && model.at(key) != Json(0.0) && model.at(key) != Json(0))
        bad("model.", key, ": got ", model.at(key).dump(), ", expected none: byte-level BPE.");
    if (model.value("byte_fallback", false))
      bad("model.byte_fallback: got true. Take the tokenizer.model of SentencePiece that it was made from.");
  }

  // The bytes of a token. A token with a character that does not stand for a byte is taken literally.
  std::string bytes_of(const std::string& token) const {
    std::string bytes;
    for (size_t at = 0; at < token.size();) {
      const size_t n = std::max<size_t>(1, utf8_bytes(std::string_view(token).substr(at)));
      const auto found = byte_of_.find(token.substr(at, n));
      if (found == byte_of_.end()) return token;
      bytes += found->second;
      at += n;
    }
    return bytes;
  }

  // The id table may exceed the number of entries in the file by at most kMostGap.
  void place(int64_t id, const std::string& bytes, const std::string& path) {
    const int64_t most = entries_ + kMostGap;
    if (id < 0 || id >= most) bad(path, ": id: got ", id, ", expected 0 .. ", most - 1, " for ", entries_, " tokens.");
    const auto at = static_cast<size_t>(id);
    if (at >= parts_.tokens.size()) {
      parts_.tokens.resize(at + 1);
      parts_.special.resize(at + 1);
    }
    if (!parts_.tokens[at].empty() && parts_.tokens[at] != bytes)
      bad(path, ": id ", id, " is that of '", parts_.tokens[at], "' too.");
    parts_.tokens[at] = bytes;
  }

  void vocabulary(const Json& vocab) {
    if (!vocab.is_object() || vocab.empty()) bad("model.vocab: got no tokens.");
    entries_ = static_cast<int64_t>(vocab.size());
    if (given(file_, "added_tokens")) entries_ += static_cast<int64_t>(file_.at("added_tokens").size());
    for (const auto& [token, id] : vocab.members()) {
      const std::string path = concat("model.vocab: '", token, '\'');
      if (token.empty()) bad("model.vocab: got a token without characters.");
      place(id.get<int64_t>(), bytes_of(token), path);
      ids_[token] = id.get<int32_t>();
      if (const auto byte = byte_of_.find(token); byte != byte_of_.end())
        parts_.byte_ids[static_cast<uint8_t>(byte->second)] = id.get<int32_t>();
    }
  }

  int32_t id_of(const std::string& token, size_t merge) const {
    const auto found = ids_.find(token);
    if (found == ids_.end()) bad("model.merges.", merge, ": '", token, "' is not a token of model.vocab.");
    return found->second;
  }
  // Each merge is "a b" or ["a", "b"].
  void merges(const Json& list) {
    size_t most = 0;  // ways to cut the tokens in two
    for (const auto& [token, id] : ids_) most += token.size();
    if (list.size() > most)
      bad("model.merges: got ", list.size(), " merges, expected at most ", most, ", the ways to cut the ", ids_.size(),
          " tokens in two.");
    for (size_t i = 0; i < list.items().size(); ++i) {
      const Json& item = list[i];
      std::string left, right;
      if (item.is_string()) {
        const size_t space = item.text().find(' ');
        if (space == std::string::npos) bad("model.merges.", i, ": got '", item.text(), "', expected two tokens.");
        left = item.text().substr(0, space), right = item.text().substr(space + 1);
      } else {
        if (item.size() != 2) bad("model.merges.", i, ": got ", item.size(), " tokens, expected two.");
        left = item.at(0).text(), right = item.at(1).text();
      }
      const int32_t a = id_of(left, i), b = id_of(right, i);
      parts_.merges.add(a, b, id_of(left + right, i));
    }
  }

  void normalizer(const Json& n) {
    const std::string type = type_of(n, "normalizer");
    if (type == "Sequence") {
      for (const Json& part : n.at("normalizers")) normalizer(part);
    } else if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
      if (parts_.normal_forms.size() >= kMostSteps) bad("normalizer: got more than ", kMostSteps, " steps.");
      parts_.normal_forms.push_back(type);
    } else {
      bad("normalizer: got ", type, ", expected NFC, NFD, NFKC, NFKD or none.");
    }
  }

  void added(const Json& list) {
    for (size_t i = 0; i < list.items().size(); ++i) {
      const Json& item = list[i];
      const std::string path = concat("added_tokens.", i);
      AddedToken token;
      token.text = item.at("content").text();
      if (token.text.empty()) bad(path, ": content: got none.");
      if (item.value("single_word", false)) bad(path, ": single_word: got true, which is not supported.");
      const auto known = ids_.find(token.text);
      const int64_t id = known != ids_.end() ? known->second : item.at("id").get<int64_t>();
      if (known == ids_.end()) place(id, token.text, path);
      token.id = static_cast<int32_t>(id);
      parts_.tokens[static_cast<size_t>(id)] = token.text;
      parts_.special[static_cast<size_t>(id)] = item.value("special", false);
      if (item.value("special", false) && is_end(token.text) && parts_.end_id < 0) parts_.end_id = token.id;
      token.left_strip = item.value("lstrip", false);
      token.right_strip = item.value("rstrip", false);
      const bool normal = item.value("normalized", !item.value("special", false));
      for (const std::string& form : parts_.normal_forms)
        if (normal) token.text = normal_form(token.text, form);
      (normal ? parts_.normal_added : parts_.raw_added).add(std::move(token));
    }
  }
  static bool is_end(std::string_view text) {
    return text == "<|endoftext|>" || text == "<|end_of_text|>" || text == "</s>" || text == "<eos>";
  }

  void pre_tokenizer(const Json& p, bool& bytes) {
    const std::string type = type_of(p, "pre_tokenizer");
    SplitStep step;
    if (type == "Sequence") {
      for (const Json& part : p.at("pretokenizers")) pre_tokenizer(part, bytes);
      return;
    }
    if (bytes)
      bad("pre_tokenizer: got ", type,
          " after ByteLevel, which must come last: it would see the characters that represent "
          "bytes.");
    if (type == "ByteLevel") {
      bytes = true;
      step.prefix_space = p.value("add_prefix_space", true);
      if (p.value("use_regex", true)) step.pattern.emplace_back(kWords);
    } else if (type == "Split") {
      const Json& pattern = p.at("pattern");
      const bool regex = pattern.contains("Regex");
      step.pattern.emplace_back(regex ? pattern.at("Regex").text() : literal_pattern(pattern.at("String").text()));
      const std::string behavior = p.at("behavior").text();
      const bool invert = p.value("invert", false), removed = behavior == "Removed";
      if (!removed && behavior != "Isolated")
        bad("pre_tokenizer: Split: behavior: got ", behavior, ", expected Isolated or Removed.");
      step.keep_matches = !removed || invert;
      step.keep_others = !removed || !invert;
    } else if (type == "Digits") {
      step.pattern.emplace_back(p.value("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)");
    } else {
      bad("pre_tokenizer: got ", type, ", expected ByteLevel, Split, Digits or a Sequence of them.");
    }
    if (parts_.steps.size() >= kMostSteps) bad("pre_tokenizer: got more than ", kMostSteps, " steps.");
    parts_.steps.push_back(std::move(step));
  }

  static void decoder(const Json& d) {
    const std::string type = type_of(d, "decoder");
    if (type == "Sequence")
      for (const Json& part : d.at("decoders")) decoder(part);
    else if (type != "ByteLevel")
      bad("decoder: got ", type, ", expected ByteLevel: the text of ids is their bytes, one after the other.");
  }

  void keep_words() {
    for (const auto& [token, id] : ids_) parts_.words[bytes_of(token)] = id;
  }

  const Json& file_;
  BpeParts parts_;
  int64_t entries_ = 0;
  std::unordered_map<std::string, char> byte_of_;
  std::unordered_map<std::string, int32_t> ids_;  // model.vocab, keyed by the token text in the file
};

}  // namespace

BpeParts read_bpe(const Json& file) { return BpeReader(file).read(); }

}  // namespace bitgrad::data
