// JSON in the metadata of files. Checksums find accidents; whoever forges a file makes them right, so nothing that a
// file says of itself is used before it is held against limits.
#pragma once

#include <string>

#include "bitgrad/base/json.h"

namespace bitgrad::detail {

// The text under `key`, of at most 16 MiB. Throws Error for what is no JSON, has more than `depth` collections inside
// one another, or a key twice.
Json parse_metadata(const std::string& key, const std::string& text, int depth = 8);

// A whole number in [least, most]; what would be rounded or wrapped is refused. Throws Error that names `key`.
int64_t whole_number(const Json& value, const std::string& key, int64_t min, int64_t max);
int64_t whole_member(const Json& record, const std::string& key, int64_t min, int64_t max);

}  // namespace bitgrad::detail
