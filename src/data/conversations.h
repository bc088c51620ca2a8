// Conversations and texts as ids with targets: read from lines of JSON, and packed into windows.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/base/json.h"
#include "bitgrad/data/chat.h"
#include "bitgrad/data/dataset.h"

namespace bitgrad::data {

// Of one line of JSON.
inline constexpr JsonLimits kLineLimits{.depth = 16, .values = 1'000'000};
// The member `name` of an object. Throws JsonError if it is missing or no text.
const std::string& text_member(const Json& object, std::string_view name);
// The member messages, a list with at least one element. Throws JsonError if it is something else.
const Json& messages_member(const Json& object);

// Ids of several conversations, one after the other.
struct Conversations {
  std::vector<int32_t> ids = {};
  std::vector<uint8_t> targets = {};  // 1 for each id that is a target
  std::vector<int64_t> begins = {0};  // of each conversation, then the size of ids
  int64_t size() const { return std::ssize(begins) - 1; }
  int64_t length(int64_t i) const { return begins[static_cast<size_t>(i) + 1] - begins[static_cast<size_t>(i)]; }
};

// What to do with a conversation of more ids than a window.
enum class TooLong : uint8_t { kCut, kSkip, kError };

struct JsonlReading {
  std::string_view where = {};  // prefix of messages
  const Tokenizer* tokenizer = nullptr;
  ChatTable chat = {};       // resolved; of the name none: lines hold no messages
  std::string loss_on = {};  // answers, all, last_answer; empty: answers, of texts all
  int64_t context = 0;
  TooLong too_long = TooLong::kCut;
};
// Reads lines of JSON objects, each {"messages": [{"role", "content"}, ...]}, {"prompt", "completion"} or {"text"},
// all of one kind.
class JsonlReader {
 public:
  explicit JsonlReader(JsonlReading spec) : spec_(std::move(spec)) {}
  // Throws Error(kData) with path and line for what is no such line, a role that the table does not have, or contents
  // that the tokenizer cannot take.
  void read(const std::string& path, const std::string& text);
  const Conversations& read_so_far() const { return all_; }
  // What was cut or left out.
  std::vector<std::string> notes() const;

 private:
  void line(std::string_view text, const std::string& place);
  void ignore(const Json& object, const std::string& prefix, std::initializer_list<std::string_view> read);
  std::vector<ChatPart> parts_of(const Json& object, const std::string& place);
  std::vector<ChatPart> parts_of_messages(const Json& messages);
  void add(const ChatIds& made);
  LossOn loss_on(bool texts) const;

  JsonlReading spec_;
  Conversations all_;
  std::string kind_, first_place_;  // of the first line
  std::set<std::string> ignored_;
  int64_t cut_ = 0, cut_ids_ = 0, skipped_ = 0, without_target_ = 0, lines_ = 0;
};

// Windows of `context` ids, each of whole conversations.
struct Packing {
  std::string name = {};
  int64_t context = 0, vocabulary = 0;
  bool pack = true;      // several conversations in a window, kept apart by `end`
  bool shuffled = true;  // windows take the conversations in an order drawn once, and are permuted in each epoch
  int32_t end = 0;       // stands behind each conversation but the last of a full window, and fills windows
  std::shared_ptr<const Tokenizer> tokenizer = {};
  std::vector<std::string> notes = {};
};
// Puts each conversation into the first window that has room for it. A conversation has at least one id and at most
// `context`. Says by `log` how full the windows are.
std::unique_ptr<Dataset> packed_dataset(const Conversations& all, Packing packing);

}  // namespace bitgrad::data
