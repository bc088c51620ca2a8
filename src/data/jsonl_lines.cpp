#include <algorithm>
#include <array>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "data/conversations.h"

namespace bitgrad::data {
namespace {

// Members of a line or message that a table of roles cannot say.
constexpr std::string_view kBeyondTables[] = {"tools", "tool_calls", "functions", "function_call"};

struct KindOfLine {
  std::string_view name;
  std::array<std::string_view, 2> members;
};
constexpr KindOfLine kKinds[] = {
    {"messages", {"messages", ""}}, {"prompt and completion", {"prompt", "completion"}}, {"text", {"text", ""}}};

// The kind whose members an object has all of, and those of no other kind; nullptr: none.
const KindOfLine* kind_of(const Json& object) {
  const KindOfLine* found = nullptr;
  for (const KindOfLine& kind : kKinds) {
    if (!object.contains(kind.members[0])) continue;
    if (found != nullptr || (!kind.members[1].empty() && !object.contains(kind.members[1]))) return nullptr;
    found = &kind;
  }
  return found;
}

void refuse_beyond(const Json& object) {
  for (const std::string_view name : kBeyondTables)
    if (object.contains(name) && !object.at(name).is_null() && !object.at(name).empty())
      throw JsonError(concat(name,
                             ": a table of roles has no place for it. Take it out, or write ids and labels with the "
                             "template of the model (format tokens, labels: mask)"));
}

// Of a message: in OpenAI's format, one with the weight 0 is no target.
void refuse_weight(const Json& message) {
  if (!message.contains("weight") || message.at("weight").is_null()) return;
  const Json& weight = message.at("weight");
  if (!weight.is_number() || weight != 1)
    throw JsonError(concat("weight: got ", weight.dump().substr(0, 80),
                           ", expected 1 or none: loss_on says which messages are targets. For others, write ids and "
                           "labels (format tokens, labels: mask)"));
}

}  // namespace

const std::string& text_member(const Json& object, std::string_view name) {
  const Json& value = object.at(name);
  if (!value.is_string()) throw JsonError(concat(name, ": got ", value.dump().substr(0, 80), ", expected a text"));
  return value.text();
}

const Json& messages_member(const Json& object) {
  const Json& messages = object.at("messages");
  if (!messages.is_array() || messages.empty())
    throw JsonError("messages: got none, expected a list of {\"role\", \"content\"}");
  return messages;
}

// `read`: the members that are not ignored.
void JsonlReader::ignore(const Json& object, const std::string& prefix, std::initializer_list<std::string_view> read) {
  for (const auto& [name, value] : object.members())
    if (name.empty() || std::find(read.begin(), read.end(), name) == read.end()) ignored_.insert(prefix + name);
}

LossOn JsonlReader::loss_on(bool texts) const {
  if (texts) return LossOn::kAll;
  return spec_.loss_on.empty() ? LossOn::kAnswers : parse_enum<LossOn>(spec_.loss_on, spec_.where, "loss_on");
}

std::vector<ChatPart> JsonlReader::parts_of_messages(const Json& messages) {
  std::vector<ChatMessage> list;
  for (size_t i = 0; i < messages.size(); ++i) {
    try {
      refuse_beyond(messages[i]);
      refuse_weight(messages[i]);
      list.push_back({text_member(messages[i], "role"), text_member(messages[i], "content")});
      ignore(messages[i], "messages.*.", {"role", "content", "weight"});
    } catch (const JsonError& e) {
      throw JsonError(concat("messages.", i, ": ", e.what()));
    }
  }
  return chat_parts(spec_.chat, list, loss_on(false));
}

std::vector<ChatPart> JsonlReader::parts_of(const Json& object, const std::string& place) {
  const bool table = spec_.chat.user.given();
  if (object.contains("messages")) {
    if (!table)
      fail(spec_.where, place,
           ": the lines hold messages, and data.chat names no table of roles: set data.chat, such as chatml");
    return parts_of_messages(messages_member(object));
  }
  const bool text = object.contains("text");
  if (text && table)
    fail(spec_.where, place, ": data.chat: got ", spec_.chat.name.empty() ? std::string("a table") : spec_.chat.name,
         ", the lines hold texts without roles. Set data.chat: none");
  if (text && !spec_.loss_on.empty() && spec_.loss_on != "all")
    fail(spec_.where, place, ": loss_on: got ", spec_.loss_on, ", the lines hold texts without answers. Expected all");
  if (text) return {{text_member(object, "text"), true, true}};
  const std::string &prompt = text_member(object, "prompt"), &completion = text_member(object, "completion");
  const LossOn loss = loss_on(false);
  if (table) {
    const ChatMessage both[] = {{"user", prompt}, {"assistant", completion}};
    return chat_parts(spec_.chat, both, loss);
  }
  return {{prompt, true, loss == LossOn::kAll}, {completion, true, true}};
}

void JsonlReader::line(std::string_view text, const std::string& place) {
  const Json object = Json::parse(text, kLineLimits);
  if (!object.is_object()) throw JsonError("got " + object.dump().substr(0, 40) + ", expected an object");
  const KindOfLine* const kind = kind_of(object);
  if (kind == nullptr)
    throw JsonError("got members " + joined(object.members(), ", ", &std::pair<std::string, Json>::first) +
                    ", expected either messages, prompt and completion, or text");
  if (lines_++ == 0) kind_ = kind->name, first_place_ = place;
  if (kind_ != kind->name)
    throw JsonError(concat("got ", kind->name, ", ", first_place_, " has ", kind_, ": lines are of one kind"));
  refuse_beyond(object);
  ignore(object, "", {kind->members[0], kind->members[1]});
  ChatIds made = encode_chat(*spec_.tokenizer, parts_of(object, place));
  // A text without roles ends with the token that ends texts, which is a target.
  if (const int32_t end = spec_.tokenizer->end_id(); !spec_.chat.user.given() && end >= 0) {
    made.ids.push_back(end);
    made.targets.push_back(1);
  }
  add(made);
}

void JsonlReader::add(const ChatIds& made) {
  const int64_t beyond = std::ssize(made.ids) - spec_.context;
  if (beyond > 0 && spec_.too_long == TooLong::kError)
    throw JsonError(concat("got ", made.ids.size(), " ids, expected at most ", spec_.context,
                           " (context). too_long: cut or skip accepts longer ones"));
  if (beyond > 0 && spec_.too_long == TooLong::kSkip) {
    ++skipped_;
    return;
  }
  const auto begin = static_cast<std::ptrdiff_t>(std::max<int64_t>(0, beyond));
  std::vector<uint8_t> targets(made.targets.begin() + begin, made.targets.end());
  if (!targets.empty()) targets[0] = 0;  // nothing stands before the first id
  if (std::find(targets.begin(), targets.end(), 1) == targets.end()) {
    ++without_target_;
    return;
  }
  if (beyond > 0) ++cut_, cut_ids_ += beyond;
  all_.ids.insert(all_.ids.end(), made.ids.begin() + begin, made.ids.end());
  all_.targets.insert(all_.targets.end(), targets.begin(), targets.end());
  all_.begins.push_back(std::ssize(all_.ids));
}

void JsonlReader::read(const std::string& path, const std::string& text) {
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view content = std::string_view(text).substr(at, end - at);
    at = end + 1;
    ++number;
    if (content.find_first_not_of(" \t\r") == content.npos) continue;
    const std::string place = concat(printable(path), " line ", number);
    try {
      line(content, place);
    } catch (const JsonError& e) {
      fail_with(ErrorCode::kData, spec_.where, place, ": ", e.what(), '.');
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kData) throw;
      fail_with(ErrorCode::kData, spec_.where, place, ": ", e.what());
    }
  }
}

std::vector<std::string> JsonlReader::notes() const {
  std::vector<std::string> notes;
  const auto note = [&](int64_t count, const auto&... parts) {
    if (count > 0) notes.push_back(concat(count, " of ", lines_, " lines ", parts...));
  };
  note(cut_, "have more ids than context = ", spec_.context, " and lost their first ones, ", cut_ids_,
       " in all (too_long: cut)");
  note(skipped_, "have more ids than context = ", spec_.context, " and are omitted (too_long: skip)");
  note(without_target_, "have no id that is a target and are omitted");
  if (!ignored_.empty()) {
    std::string names;
    for (const std::string& name : ignored_) names += concat(names.empty() ? "" : ", ", printable(name));
    notes.push_back("members of lines that are not read: " + names);
  }
  return notes;
}

}  // namespace bitgrad::data
