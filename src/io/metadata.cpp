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

int64_t whole_number(const Json& value, const std::string& key, int64_t least, int64_t most) {
  try {
    const auto x = value.get<int64_t>();
    if (x >= least && x <= most) return x;
  } catch (const JsonError&) {  // another type, or beyond int64
  }
  fail("metadata", "malformed metadata: ", key, ": got ", value.dump().substr(0, 60), ", expected a whole number from ",
       least, " to ", most, least == 0 ? ", none that is negative" : "");
}

int64_t whole_member(const Json& record, const std::string& key, int64_t least, int64_t most) {
  return whole_number(record.at(key), key, least, most);
}

}  // namespace bitgrad::detail
