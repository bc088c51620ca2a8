#include "nn/glob.h"

#include "bitgrad/base/error.h"

namespace bitgrad::detail {
namespace {

// The index past the set that begins with '[' at `at`; npos if it is not closed. A ']' right after '[' or '[!' is a
// member of the set.
size_t set_end(std::string_view glob, size_t at) {
  size_t i = at + 1;
  if (i < glob.size() && glob[i] == '!') ++i;
  const size_t close = glob.find(']', i + 1);
  return close == std::string_view::npos ? close : close + 1;
}

bool in_set(std::string_view set, char c) {
  const bool others = set.size() > 1 && set.front() == '!';
  if (others) set.remove_prefix(1);
  bool found = false;
  for (size_t i = 0; i < set.size(); ++i) {
    const bool range = i + 2 < set.size() && set[i + 1] == '-';
    found = found || (range ? set[i] <= c && c <= set[i + 2] : set[i] == c);
    if (range) i += 2;
  }
  return found != others;
}

}  // namespace

void check_glob(std::string_view glob) {
  require(!glob.empty(), "prepare", "the glob of a rule is empty: expected one such as 'layers.3' or 'layers.*'.");
  for (size_t i = 0; i < glob.size();) {
    if (glob[i] != '[') {
      ++i;
      continue;
    }
    const size_t end = set_end(glob, i);
    require(end != std::string_view::npos, "prepare", "the glob '", glob, "' has a '[' without ']'.");
    i = end;
  }
}

bool glob_matches(std::string_view glob, std::string_view text) {
  size_t g = 0, t = 0, star = std::string_view::npos, from = 0;  // position of the last *, and where its text ends
  while (t < text.size()) {
    size_t next = g + 1;
    bool one = g < glob.size() && glob[g] != '*';
    if (one && glob[g] == '[') {
      next = set_end(glob, g);
      one = in_set(glob.substr(g + 1, next - g - 2), text[t]);
    } else if (one) {
      one = glob[g] == '?' || glob[g] == text[t];
    }
    if (one) {
      g = next;
      ++t;
    } else if (g < glob.size() && glob[g] == '*') {
      star = g++;
      from = t;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      t = ++from;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

}  // namespace bitgrad::detail
