#include "io/metadata.h"

#include <cstdint>

#include "bitgrad/base/error.h"

namespace bitgrad::detail {
namespace {

constexpr size_t kMostBytes = size_t{16} << 20;

}  // namespace

Json parse_metadata(const std::string& key, const std::string& text, int depth) {
  require(text.size() <= kMostBytes, "metadata", "'", key, "' has ", text.size(), " bytes, at most ", kMostBytes,
          " are read");
  try {
    return Json::parse(text, {.depth = depth, .unique_names = true});
  } catch (const JsonError& e) {
    fail("metadata", "'", key, "' is not JSON: ", e.what());
  }
}

int64_t whole_number(const Json& value, const std::string& key, int64_t min, int64_t max) {
  try {
    const auto x = value.get<int64_t>();
    if (x >= min && x <= max) return x;
  } catch (const JsonError&) {  // another type, or beyond int64
  }
  fail("metadata", "malformed metadata: ", key, ": got ", value.dump().substr(0, 60), ", expected a whole number from ",
       min, " to ", max, min == 0 ? ", none that is negative" : "");
}

int64_t whole_member(const Json& record, const std::string& key, int64_t min, int64_t max) {
  return whole_number(record.at(key), key, min, max);
}

}  // namespace bitgrad::detail
