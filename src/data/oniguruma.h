// Patterns of tokenizer.json are written for Oniguruma; they are matched by libpcre2, which reads some of them
// otherwise.
#pragma once

#include <string>

namespace bitgrad::data {

// A pattern of PCRE2 (UTF, UCP, multiline, newline LF) that matches what `pattern` does in Oniguruma's own syntax.
// Translated: sets in sets and && (set operations), \s \w \h \b \v and their opposites, POSIX brackets, long names of
// properties, \uHHHH, (?m) (a dot that matches line ends), {,n}, {n}? and {n,m}+ (which repeats). Throws Error(kData)
// that names the construct and its place for one that has no translation.
std::string pcre_of_oniguruma(const std::string& pattern);

}  // namespace bitgrad::data
