// The turns of a chat with a language model, as ids by a table of roles.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bitgrad/data/chat.h"
#include "bitgrad/infer/generator.h"

namespace bitgrad::cli {

class ChatTurns {
 public:
  // `table` is resolved and has roles. `system`: text of the system; empty: none.
  ChatTurns(ChatTable table, const Tokenizer& tokenizer, const std::string& system);
  void add(const std::string& role, const std::string& content) { messages_.push_back({role, content}); }
  // The ids up to the header of the answer that is to come.
  std::vector<int32_t> ids() const;
  // Makes a text end where an answer does: at the token of its mark, or at its text where the tokenizer has none.
  void end_answers(GenerateSpec& spec) const;

 private:
  ChatTable table_;
  const Tokenizer& tokenizer_;
  std::vector<ChatMessage> messages_;
};

}  // namespace bitgrad::cli
