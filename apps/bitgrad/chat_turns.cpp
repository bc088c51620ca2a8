#include "chat_turns.h"

#include <utility>

namespace bitgrad::cli {

ChatTurns::ChatTurns(ChatTable table, const Tokenizer& tokenizer, const std::string& system)
    : table_(std::move(table)), tokenizer_(tokenizer) {
  if (!system.empty()) add("system", system);
}

std::vector<int32_t> ChatTurns::ids() const {
  return encode_chat(tokenizer_, chat_parts(table_, messages_, LossOn::kAnswers, true)).ids;
}

void ChatTurns::end_answers(GenerateSpec& spec) const {
  int32_t mark = -1;
  tokenizer_.split_special(answer_end(table_), [&](std::string_view, int32_t id) {
    if (mark < 0) mark = id;
  });
  if (mark >= 0)
    spec.end.push_back(mark);
  else
    spec.stop.push_back(answer_end(table_));
}

}  // namespace bitgrad::cli
