// What makes the inputs of a model, stored in its files: the tokenizer of a language model, the plan of a table.
#include "bitgrad/base/error.h"
#include "bitgrad/checkpoint/checkpoint.h"
#include "bitgrad/data/table.h"
#include "bitgrad/data/tokenizer.h"

#include "checkpoint/records.h"
#include "io/metadata.h"

namespace bitgrad {
namespace {

constexpr const char* kTokenizerKey = "bitgrad.tokenizer";
constexpr int kTokenizerDepth = 20;
constexpr const char* kTableKey = "bitgrad.table";

}  // namespace

std::string tokenizer_text(const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return "";
  std::string text = tokenizer_record(*tokenizer).dump();
  detail::parse_metadata(kTokenizerKey, text, kTokenizerDepth);  // throws if the text exceeds the reader's limits
  return text;
}

std::shared_ptr<const Tokenizer> tokenizer_of(const CheckpointHeader& header, const std::string& path) {
  if (header.tokenizer.empty()) return nullptr;
  try {
    return load_tokenizer(detail::parse_metadata(kTokenizerKey, header.tokenizer, kTokenizerDepth));
  } catch (const Error& e) {
    checkpoint::bad(path, concat("its tokenizer cannot be read: ", e.what()));
  }
}

void require_same_tokenizer(const CheckpointHeader& header, const std::string& path, const Dataset& data) {
  const std::shared_ptr<const Tokenizer> of_data = data.tokenizer();
  if (of_data == nullptr || header.tokenizer.empty() || tokenizer_text(of_data.get()) == header.tokenizer) return;
  const std::shared_ptr<const Tokenizer> of_file = tokenizer_of(header, path);
  if (const std::string parts = tokenizer_difference(*of_file, *of_data); !parts.empty())
    fail_with(ErrorCode::kData, "tokenizer", path, " and ", data.name(), " differ: ", parts,
              ". A model reads the ids of the tokenizer that it was trained with.");
}

std::string table_text(const TablePlan* plan) {
  if (plan == nullptr) return "";
  std::string text = table_record(*plan).dump();
  detail::parse_metadata(kTableKey, text);  // throws if the text exceeds the reader's limits
  return text;
}

std::shared_ptr<const TablePlan> table_of(const CheckpointHeader& header, const std::string& path) {
  if (header.table.empty()) return nullptr;
  try {
    return std::make_shared<const TablePlan>(load_table(detail::parse_metadata(kTableKey, header.table)));
  } catch (const Error& e) {
    checkpoint::bad(path, concat("the record of its table cannot be read: ", e.what()));
  }
}

}  // namespace bitgrad
