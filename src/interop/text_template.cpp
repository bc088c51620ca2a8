#include "interop/text_template.h"

namespace bitgrad::interop {
namespace {

bool has(const Json& file, const char* key) {
  return file.is_object() && file.contains(key) && !file.at(key).is_null();
}

// The template of one text: its parts are "A", which is the text, and names of special_tokens.
TextTemplate of_parts(const Json& processor) {
  TextTemplate out;
  bool text = false;
  for (const Json& part : processor.at("single")) {
    if (part.contains("Sequence")) {
      text = true;
      continue;
    }
    const std::string& name = part.at("SpecialToken").at("id").text();
    for (const Json& id : processor.at("special_tokens").at(name).at("ids"))
      (text ? out.after : out.before).push_back(id);
  }
  return out;
}

// Each processor of a sequence adds around what those before it made.
void add(const Json& processor, TextTemplate& out) {
  const std::string type = processor.value("type", "");
  TextTemplate own;
  if (type == "Sequence")
    for (const Json& part : processor.at("processors")) add(part, out);
  else if (type == "TemplateProcessing")
    own = of_parts(processor);
  else if (type == "BertProcessing" || type == "RobertaProcessing")
    own = {{processor.at("cls").at(size_t{1})}, {processor.at("sep").at(size_t{1})}};
  out.before.insert(out.before.begin(), own.before.begin(), own.before.end());
  out.after.insert(out.after.end(), own.after.begin(), own.after.end());
}

}  // namespace

TextTemplate text_template(const Json& tokenizer) {
  TextTemplate out;
  if (has(tokenizer, "post_processor")) add(tokenizer.at("post_processor"), out);
  return out;
}

Json id_of_token(const Json& tokenizer, const Json& tokenizer_config, const std::string& text) {
  if (has(tokenizer, "added_tokens"))
    for (const Json& token : tokenizer.at("added_tokens"))
      if (token.at("content") == Json(text)) return token.at("id");
  if (has(tokenizer, "model") && has(tokenizer.at("model"), "vocab")) {
    const Json& vocab = tokenizer.at("model").at("vocab");
    if (vocab.is_object() && vocab.contains(text)) return vocab.at(text);
    if (vocab.is_array())  // Unigram: pieces with their scores
      for (size_t id = 0; id < vocab.size(); ++id)
        if (vocab.at(id).at(size_t{0}) == Json(text)) return Json(id);
  }
  if (has(tokenizer_config, "added_tokens_decoder"))
    for (const auto& [id, token] : tokenizer_config.at("added_tokens_decoder").members())
      if (has(token, "content") && token.at("content") == Json(text)) return Json::parse(id);
  return nullptr;
}

std::string token_of_id(const Json& tokenizer, int32_t id) {
  if (has(tokenizer, "added_tokens"))
    for (const Json& token : tokenizer.at("added_tokens"))
      if (token.at("id") == Json(id)) return token.at("content").text();
  if (has(tokenizer, "model") && has(tokenizer.at("model"), "vocab") && tokenizer.at("model").at("vocab").is_object())
    for (const auto& [token, number] : tokenizer.at("model").at("vocab").members())
      if (number == Json(id)) return token;
  return {};
}

}  // namespace bitgrad::interop
