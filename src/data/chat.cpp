#include "bitgrad/data/chat.h"

#include <algorithm>
#include <set>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "data/tokenizer_text.h"

namespace bitgrad {
namespace {

constexpr std::string_view kChat = "data.chat";
constexpr std::string_view kNone = "none";
constexpr std::string_view kAssistant = "assistant";

const std::vector<ChatTable>& chat_tables() {
  static const std::vector<ChatTable> all{
#define BITGRAD_CHAT(name, ...) {#name, __VA_ARGS__},
#include "data/chat_tables.inc"
#undef BITGRAD_CHAT
  };
  return all;
}

struct RoleMember {
  std::string_view name;
  ChatRole ChatTable::*role;
};
constexpr RoleMember kRoles[] = {{"system", &ChatTable::system},
                                 {"user", &ChatTable::user},
                                 {kAssistant, &ChatTable::assistant},
                                 {"tool", &ChatTable::tool}};

const ChatRole& role_of(const ChatTable& table, const std::string& name) {
  std::string known;
  for (const RoleMember& member : kRoles) {
    const ChatRole& role = table.*member.role;
    if (member.name == name && role.given()) return role;
    if (role.given()) known += concat(known.empty() ? "" : ", ", member.name);
  }
  fail_with(ErrorCode::kData, kChat, "role: got '", printable(name), "', ",
            table.name.empty() ? std::string("the table") : table.name, " has ", known.empty() ? "none" : known, '.');
}

}  // namespace

std::vector<std::string> chat_names() {
  std::vector<std::string> names;
  for (const ChatTable& table : chat_tables()) names.push_back(table.name);
  names.emplace_back(kNone);
  return names;
}

ChatTable resolved(const ChatTable& table) {
  if (!table.name.empty()) {
    for (const ChatTable& known : chat_tables())
      if (known.name == table.name && table == known) return known;  // it is resolved already
    require(table == ChatTable{.name = table.name}, kChat, "got the name ", table.name,
            " beside begin, end, trim or roles, expected either a name or a table");
    if (table.name == kNone) return table;
    for (const ChatTable& known : chat_tables())
      if (known.name == table.name) return known;
    fail(kChat, unknown_name("table of roles", table.name, chat_names()));
  }
  require(table.user.given() && table.assistant.given(), kChat, "got a table without ",
          table.user.given() ? kAssistant : std::string_view("user"),
          ", expected user: {before, after} and assistant: {before, after}");
  require(!answer_end(table).empty(), kChat,
          "assistant.after: got white space, expected a mark that ends an answer, such as <|im_end|>");
  return table;
}

std::string answer_end(const ChatTable& table) {
  const std::string& after = table.assistant.after;
  return after.substr(0, after.find_last_not_of(" \t\r\n") + 1);
}

std::vector<ChatPart> chat_parts(const ChatTable& table, std::span<const ChatMessage> messages, LossOn loss_on,
                                 bool answer) {
  const bool all = loss_on == LossOn::kAll;
  size_t last = messages.size();
  for (size_t i = 0; i < messages.size(); ++i)
    if (messages[i].role == kAssistant) last = i;
  std::vector<ChatPart> parts;
  const auto add = [&](std::string_view text, bool written, bool target) {
    if (!text.empty()) parts.push_back({std::string(text), written, target});
  };
  add(table.begin, false, all);
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    const ChatRole& role = role_of(table, message.role);
    const bool target = all || (message.role == kAssistant && (loss_on == LossOn::kAnswers || i == last));
    const std::string mark = role.after.substr(0, role.after.find_last_not_of(" \t\r\n") + 1);
    add(role.before, false, all);
    add(table.trim ? data::without_outer_spaces(message.content) : message.content, true, target);
    add(mark, false, target);
    add(std::string_view(role.after).substr(mark.size()), false, all);
  }
  if (answer)
    add(table.assistant.before, false, false);
  else
    add(table.end, false, all);
  return parts;
}

std::string text_of(std::span<const ChatPart> parts) {
  std::string text;
  for (const ChatPart& part : parts) text += part.text;
  return text;
}

namespace {

using Ids = std::vector<int32_t>;

class ChatEncoding {
 public:
  ChatEncoding(const Tokenizer& tokenizer, std::span<const ChatPart> parts) : tokenizer_(tokenizer), parts_(parts) {}

  ChatIds run() {
    for (const ChatPart& part : parts_)
      if (!part.written)
        tokenizer_.split_special(part.text, [&](std::string_view, int32_t id) {
          if (id >= 0) marks_.insert(id);
        });
    for (const ChatPart& part : parts_) {
      if (part.written) {
        add(part.text, part.target);
        continue;
      }
      tokenizer_.split_special(part.text, [&](std::string_view text, int32_t id) {
        if (id < 0) return add(text, part.target);
        flush();
        out_.ids.push_back(id);
        out_.targets.push_back(part.target);
      });
    }
    flush();
    return std::move(out_);
  }

 private:
  struct Run {
    std::string text;
    bool target;
  };

  void add(std::string_view text, bool target) {
    if (!runs_.empty() && runs_.back().target == target)
      runs_.back().text += text;
    else
      runs_.push_back({std::string(text), target});
  }

  // Ids of a text in which no mark of the templates is read, even where the tokenizer knows it as an ordinary token:
  // it is cut within the mark.
  Ids plain(std::string_view text) const {
    std::set<size_t> cuts;
    while (true) {
      const Ids ids = pieces(text, cuts);
      std::set<int32_t> read;  // the marks among them
      for (const int32_t id : ids)
        if (marks_.contains(id)) read.insert(id);
      if (read.empty()) return ids;
      const size_t before = cuts.size();
      for (const int32_t id : read) cut_within(tokenizer_.bytes(id), text, cuts);
      if (cuts.size() == before)
        fail_with(ErrorCode::kData, kChat, "a message holds the mark '", printable(tokenizer_.bytes(*read.begin())),
                  "', which the tokenizer cannot write as text.");
    }
  }

  Ids pieces(std::string_view text, const std::set<size_t>& cuts) const {
    Ids ids;
    const auto add_ids = [&](std::span<const int32_t> run) { ids.insert(ids.end(), run.begin(), run.end()); };
    size_t begin = 0;
    for (const size_t cut : cuts) {
      tokenizer_.encode_plain(text.substr(begin, cut - begin), add_ids);
      begin = cut;
    }
    tokenizer_.encode_plain(text.substr(begin), add_ids);
    return ids;
  }

  // Cuts every occurrence of a mark behind its first character.
  static void cut_within(std::string_view mark, std::string_view text, std::set<size_t>& cuts) {
    const size_t first = mark.empty() ? 0 : std::max<size_t>(1, utf8_bytes(mark));
    if (first == mark.size())
      fail_with(ErrorCode::kData, kChat, "a message holds the mark '", printable(mark),
                "', a single character, which cannot be cut to be read as text. Expected marks of several characters, "
                "or special tokens of the tokenizer.");
    for (size_t at = text.find(mark); at != text.npos; at = text.find(mark, at + first)) cuts.insert(at + first);
  }

  // The text so far, and its ids. Those of a longer text begin with them, or it is cut here.
  void flush() {
    std::string text;
    Ids ids;
    const auto keep = [&](const Ids& of, size_t from, bool target) {
      out_.ids.insert(out_.ids.end(), of.begin() + static_cast<std::ptrdiff_t>(from), of.end());
      out_.targets.insert(out_.targets.end(), of.size() - from, target);
    };
    for (const Run& run : runs_) {
      Ids longer = plain(text + run.text);
      if (longer.size() >= ids.size() && std::equal(ids.begin(), ids.end(), longer.begin())) {
        keep(longer, ids.size(), run.target);
        text += run.text;
        ids = std::move(longer);
      } else {
        ids = plain(text = run.text);
        keep(ids, 0, run.target);
      }
    }
    runs_.clear();
  }

  const Tokenizer& tokenizer_;
  std::span<const ChatPart> parts_;
  std::set<int32_t> marks_;  // special tokens of the templates
  std::vector<Run> runs_;
  ChatIds out_;
};

}  // namespace

ChatIds encode_chat(const Tokenizer& tokenizer, std::span<const ChatPart> parts) {
  return ChatEncoding(tokenizer, parts).run();
}

}  // namespace bitgrad
