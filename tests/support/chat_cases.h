// Conversations as chat templates render them (tests/scripts/chat_templates.py), against the tables of roles.
#pragma once

#include <numeric>

#include "bitgrad/base/json.h"
#include "bitgrad/data/chat.h"
#include "support/catch.h"
#include "support/expect_error.h"

namespace bitgrad::test {

inline std::vector<ChatMessage> messages_of(const Json& list) {
  std::vector<ChatMessage> messages;
  for (const Json& message : list) messages.push_back({message.at("role").text(), message.at("content").text()});
  return messages;
}

// Begin and end of each run of targets, in bytes of the text.
inline Json target_spans(const std::vector<ChatPart>& parts) {
  Json spans = Json::array();
  size_t at = 0;
  bool inside = false;
  for (const ChatPart& part : parts) {
    if (part.target && !inside) spans.push_back(Json::array({at, at}));
    at += part.text.size();
    if (part.target) spans.items().back().items()[1] = at;
    inside = part.target;
  }
  return spans;
}

inline void check_chat_case(const Json& c) {
  const ChatTable table = resolved(ChatTable{.name = c.at("table").text()});
  const std::vector<ChatMessage> messages = messages_of(c.at("messages"));
  INFO(c.dump());
  const std::vector<ChatPart> parts = chat_parts(table, messages, LossOn::kAnswers);
  CHECK(text_of(parts) == c.at("text").text());
  CHECK(text_of(chat_parts(table, messages, LossOn::kAnswers, true)) == c.at("prompt").text());
  CHECK(target_spans(parts) == c.at("targets"));
  // By bytes, each byte is an id.
  const ChatIds bytes = encode_chat(*make_tokenizer("bytes", ""), parts);
  int64_t targets = 0;
  for (const Json& span : c.at("targets")) targets += span.at(1).get<int64_t>() - span.at(0).get<int64_t>();
  CHECK(bytes.ids.size() == c.at("text").text().size());
  CHECK(std::accumulate(bytes.targets.begin(), bytes.targets.end(), int64_t{0}) == targets);
}

}  // namespace bitgrad::test
