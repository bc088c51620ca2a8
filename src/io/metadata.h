// JSON in the metadata of files. Checksums detect accidents, not forgery, so everything that a file says about itself
// is checked against limits before use.
#pragma once

#include <string>

#include "bitgrad/base/json.h"

namespace bitgrad::detail {

// Parses the text under `key`, at most 16 MiB. Throws Error if it is not JSON, nests deeper than `depth`, or repeats a
// key within an object.
Json parse_metadata(const std::string& key, const std::string& text, int depth = 8);

// A whole number in [min, max]; values that would need rounding or wrapping are refused. Errors name `key`.
int64_t whole_number(const Json& value, const std::string& key, int64_t min, int64_t max);
int64_t whole_member(const Json& record, const std::string& key, int64_t min, int64_t max);

}  // namespace bitgrad::detail
