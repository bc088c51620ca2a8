// Conversations for language models: tables of roles, which say what stands around each message, and the ids of a
// conversation with those that are targets.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bitgrad/base/key.h"
#include "bitgrad/data/tokenizer.h"

namespace bitgrad {

// What stands before and after the messages of a role; both empty: conversations have no such role.
struct ChatRole {
  std::string before = {}, after = {};
  bool given() const { return !before.empty() || !after.empty(); }
  friend bool operator==(const ChatRole&, const ChatRole&) = default;
};

// Special tokens of a tokenizer are read in these texts alone, never in the contents of messages.
struct ChatTable {
  std::string name = {};             // one of chat_names(), then the rest follows from it; empty: a table of its own
  std::string begin = {}, end = {};  // of a conversation; `end` does not stand before an answer that is to come
  bool trim = false;                 // contents lose the white space at their ends
  ChatRole system = {}, user = {}, assistant = {}, tool = {};
  friend bool operator==(const ChatTable&, const ChatTable&) = default;
};
// The built-in tables (src/data/chat_tables.inc), and none, which has no roles.
std::vector<std::string> chat_names();
// The table of that name, or the table itself if it has none. Throws Error for an unknown name, a name beside other
// members, and a table without user or assistant.
ChatTable resolved(const ChatTable& table);

struct ChatMessage {
  std::string role = {};  // system, user, assistant or tool
  std::string content = {};
};

// Which ids are targets: those of the answers (messages of the assistant, with the mark that ends them and without
// their header), of all text, or of the last answer.
enum class LossOn : uint8_t { kAnswers, kAll, kLastAnswer };
template <>
struct EnumNames<LossOn> {
  static constexpr std::string_view all[] = {"answers", "all", "last_answer"};
};

// A part of a conversation's text.
struct ChatPart {
  std::string text = {};
  bool written = false;  // by an author: special tokens are not read in it
  bool target = false;
};
// The parts front to back. `answer`: ends with the header of an answer that is to come, instead of the table's `end`.
// Throws Error(kData) for a role that the table does not have. `table` is resolved.
std::vector<ChatPart> chat_parts(const ChatTable& table, std::span<const ChatMessage> messages, LossOn loss_on,
                                 bool answer = false);
std::string text_of(std::span<const ChatPart> parts);
// The mark that ends an answer: what stands after it, without white space at its end.
std::string answer_end(const ChatTable& table);

struct ChatIds {
  std::vector<int32_t> ids = {};
  std::vector<uint8_t> targets = {};  // 1 for each id that is a target
};
// Text between special tokens is encoded as one, unless an id would cover what is a target and what is not: then the
// two are encoded apart. Throws Error(kData) for contents that the tokenizer cannot take.
ChatIds encode_chat(const Tokenizer& tokenizer, std::span<const ChatPart> parts);

}  // namespace bitgrad
