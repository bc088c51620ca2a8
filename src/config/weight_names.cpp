#include "config/weight_names.h"

#include <algorithm>
#include <charconv>

#include "bitgrad/base/error.h"
#include "nn/glob.h"

namespace bitgrad {
namespace interop {
namespace {

// Finds the text that each * of a pattern matches, as short as possible. Returns false if the text does not match.
bool captures(std::string_view pattern, std::string_view text, std::vector<std::string>& out) {
  // Iterative; backtracks only to the last star, as is usual for file names.
  size_t p = 0, t = 0, star = std::string_view::npos, star_text = 0;
  std::vector<std::pair<size_t, size_t>> spans;  // matched by the stars so far
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
      spans.emplace_back(t, t);
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p, ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++star_text;
      spans.back().second = t;
    } else {
      return false;
    }
  }
  for (; p < pattern.size() && pattern[p] == '*'; ++p) spans.emplace_back(t, t);
  if (p < pattern.size()) return false;
  for (const auto& [begin, end] : spans) out.emplace_back(text.substr(begin, end - begin));
  return true;
}

}  // namespace

std::optional<std::string> renamed(const WeightName& rule, const std::string& path) {
  std::vector<std::string> found;
  if (!captures(rule.parameter, path, found)) {
    if (rule.parameter.find('*') != std::string::npos || !path.starts_with(rule.parameter + '.')) return std::nullopt;
    return rule.name + path.substr(rule.parameter.size());
  }
  std::string out;
  size_t star = 0;
  for (const char c : rule.name) out += c == '*' ? found.at(star++) : std::string(1, c);
  return out;
}

std::vector<std::string> candidate_names(const std::string& path, const std::optional<std::string>& name) {
  constexpr std::string_view kRoot = "layers.";
  std::vector<std::string> names{name.value_or(path)};
  if (!name && path.starts_with(kRoot)) names.push_back(path.substr(kRoot.size()));
  for (size_t i = 0, n = names.size(); i < n; ++i)
    for (const auto& [ours, theirs] : {std::pair<std::string_view, std::string_view>{".gamma", ".weight"},
                                       {".beta", ".bias"},
                                       {".slope", ".weight"}})
      if (names[i].ends_with(ours))
        names.push_back(names[i].substr(0, names[i].size() - ours.size()) + std::string(theirs));
  return names;
}

IgnoredNames::IgnoredNames(const std::vector<std::string>& globs) : globs_(globs), used_(globs.size()) {
  for (const std::string& glob : globs_) detail::check_glob(glob);
}

bool IgnoredNames::ignored(const std::string& name) {
  bool any = false;
  for (size_t i = 0; i < globs_.size(); ++i)
    if (detail::glob_matches(globs_[i], name)) any = used_[i] = true;
  return any;
}

void IgnoredNames::require_used() const {
  for (size_t i = 0; i < globs_.size(); ++i)
    require(used_[i], "init_from", "model.ignore: '", globs_[i],
            "' matches no name of the file. Globs match the whole name, as layers.3.* does; bitgrad inspect lists the "
            "names");
}

}  // namespace interop

WeightName parse_weight_name(const std::string& parameter, const std::string& value) {
  constexpr std::string_view kRename = "rename";
  WeightName out;
  out.parameter = parameter;
  size_t at = value.find(' ');
  out.name = value.substr(0, at);
  require(!parameter.empty() && !out.name.empty(), kRename, "got '", parameter, "': '", value,
          "', expected a path of the model and a name of the file");
  require(std::count(out.name.begin(), out.name.end(), '*') <= std::count(parameter.begin(), parameter.end(), '*'),
          kRename, "'", parameter, "': '", value, "': got more * in the name than in the path");
  while (at != std::string::npos) {
    const size_t begin = value.find_first_not_of(' ', at);
    if (begin == std::string::npos) break;
    at = value.find(' ', begin);
    const std::string word = value.substr(begin, at == std::string::npos ? at : at - begin);
    if (word == "transpose") {
      out.transpose = true;
    } else if (word == "ohwi") {
      out.ohwi = true;
    } else {
      const char* from = word.data() + std::min<size_t>(4, word.size());
      const char* const end = word.data() + word.size();
      bool good = word.starts_with("chw(") && word.ends_with(')');
      while (good && from < end) {
        int64_t size = 0;
        const auto [next, error] = std::from_chars(from, end, size);
        good = error == std::errc() && next < end && (*next == ',' || *next == ')') && size > 0 && size <= (1 << 30);
        out.chw.push_back(size);
        from = next + 1;
      }
      require(good && out.chw.size() == 3, kRename, "'", parameter, "': got '", word,
              "' after the name, expected transpose, ohwi or chw(c,h,w)");
    }
  }
  return out;
}

std::string value_text(const WeightName& n) {
  std::string out = n.name;
  if (n.transpose) out += " transpose";
  if (n.ohwi) out += " ohwi";
  if (!n.chw.empty()) out += concat(" chw(", n.chw[0], ',', n.chw[1], ',', n.chw[2], ')');
  return out;
}

}  // namespace bitgrad
