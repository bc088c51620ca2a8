// The runs of a sweep as lists of overrides.
#pragma once

#include <string>
#include <vector>

namespace bitgrad::cli {

using Overrides = std::vector<std::string>;

// Every combination of the values of "key=a,b,c"; the last key varies fastest. Commas within brackets, braces,
// parentheses and quotes do not separate. Throws Error for a word that is not an override, a duplicate key, and more
// than 10,000 runs.
std::vector<Overrides> grid(const std::vector<std::string>& axes);
// One run per line of a file: its words, separated by blanks outside quotes, are appended to `common`. Empty lines and
// lines that begin with # are skipped.
std::vector<Overrides> listed(const std::string& path, const Overrides& common);
// The folder name of a run, derived from its overrides; `number` counts from 1.
std::string run_name(const Overrides& overrides, size_t number);
// Adds the keys of `overrides` that are not yet in `keys`. value_in: the value of a key, "" if it is not there.
void add_keys(const Overrides& overrides, std::vector<std::string>& keys);
std::string value_in(const Overrides& overrides, const std::string& key);

}  // namespace bitgrad::cli
