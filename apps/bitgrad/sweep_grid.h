// The runs of a sweep as lists of overrides.
#pragma once

#include <string>
#include <vector>

namespace bitgrad::cli {

using Overrides = std::vector<std::string>;

// Every combination of the values of "key=a,b,c"; the last key varies fastest. Commas within brackets, braces,
// parentheses and quotes separate nothing. Throws Error for a word that is no override, a key given twice and more than
// 10,000 runs.
std::vector<Overrides> grid(const std::vector<std::string>& axes);
// A run for each line of a file: its words, separated by blanks outside quotes, added to `common`. Empty lines and
// those that begin with # are passed over.
std::vector<Overrides> listed(const std::string& path, const Overrides& common);
// The name of a run's folder, from its overrides; `number` counts from 1.
std::string run_name(const Overrides& overrides, size_t number);
// Adds the keys of overrides that are not there yet; the value of one, "" for a key that is not there.
void add_keys(const Overrides& overrides, std::vector<std::string>& keys);
std::string value_in(const Overrides& overrides, const std::string& key);

}  // namespace bitgrad::cli
