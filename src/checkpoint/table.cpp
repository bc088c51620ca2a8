// The plan of a table's columns, stored in a model's files.
#include "bitgrad/data/table.h"

#include "bitgrad/base/error.h"
#include "bitgrad/checkpoint/checkpoint.h"
#include "checkpoint/records.h"
#include "io/metadata.h"

namespace bitgrad {
namespace {

constexpr const char* kTableKey = "bitgrad.table";

}  // namespace

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
