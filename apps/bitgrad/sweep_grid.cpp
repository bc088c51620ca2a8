#include "sweep_grid.h"

#include <algorithm>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"

namespace bitgrad::cli {
namespace {

constexpr size_t kMostRuns = 10'000;
constexpr int64_t kMaxListBytes = 1 << 20;

// Splits `text` at each `separator` outside brackets and quotes.
std::vector<std::string> cut(const std::string& text, char separator) {
  std::vector<std::string> parts{""};
  int depth = 0;
  char quote = '\0';
  for (const char c : text) {
    if (quote != '\0')
      quote = c == quote ? '\0' : quote;
    else if (c == '"' || c == '\'')
      quote = c;
    else if (c == '[' || c == '{' || c == '(')
      ++depth;
    else if (c == ']' || c == '}' || c == ')')
      --depth;
    if (c == separator && depth <= 0 && quote == '\0')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

// Quotes around a word of a list belong to the list, as in a shell.
std::string unquoted(const std::string& word) {
  std::string out;
  char quote = '\0';
  for (const char c : word) {
    if (quote == '\0' && (c == '"' || c == '\''))
      quote = c;
    else if (c == quote)
      quote = '\0';
    else
      out += c;
  }
  return out;
}

std::string key_of(const std::string& word) {
  const size_t equals = word.find('=');
  return word.starts_with('~') ? word.substr(1) : word.substr(0, equals);
}

void check_word(const std::string& word) {
  require(word.starts_with('~') || (word.find('=') != std::string::npos && word.find('=') > 0), "sweep", "got '", word,
          "', expected key=value, key=a,b,c or ~key");
}

}  // namespace

std::vector<Overrides> grid(const std::vector<std::string>& axes) {
  std::vector<Overrides> runs{{}};
  std::vector<std::string> keys;
  for (const std::string& axis : axes) {
    check_word(axis);
    const std::string key = key_of(axis);
    require(std::find(keys.begin(), keys.end(), key) == keys.end(), "sweep", "key '", key, "' is given twice");
    keys.push_back(key);
    const size_t equals = axis.find('=');
    const bool reset = axis.starts_with('~');
    const std::vector<std::string> values = reset ? std::vector<std::string>{""} : cut(axis.substr(equals + 1), ',');
    require(runs.size() * values.size() <= kMostRuns, "sweep", "got more than ", kMostRuns, " runs");
    std::vector<Overrides> next;
    for (const Overrides& run : runs)
      for (const std::string& value : values) {
        next.push_back(run);
        next.back().push_back(reset ? axis : concat(key, '=', value));
      }
    runs = std::move(next);
  }
  return runs;
}

std::vector<Overrides> listed(const std::string& path, const Overrides& common) {
  const std::vector<uint8_t> bytes = read_file(path, kMaxListBytes);
  TextReader lines(std::string(bytes.begin(), bytes.end()));
  std::vector<Overrides> runs;
  for (std::string line; std::getline(lines, line);) {
    Overrides run = common;
    bool any = false;
    for (const std::string& part : cut(line, ' ')) {
      const std::string word = unquoted(part);
      if (word.empty()) continue;
      if (!any && word.starts_with('#')) break;
      check_word(word);
      run.push_back(word);
      any = true;
    }
    if (any) runs.push_back(run);
  }
  require(!runs.empty(), "sweep", path, " lists no run. Expected key=value words, a run for each line");
  return runs;
}

std::string run_name(const Overrides& overrides, size_t number) {
  constexpr size_t kMax = 80;
  std::string name;
  for (const std::string& word : overrides) {
    const std::string key = key_of(word), value = word.starts_with('~') ? "default" : word.substr(word.find('=') + 1);
    name += concat(name.empty() ? "" : "_", key.substr(key.rfind('.') + 1), '=', value);
  }
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-' && c != '_' && c != '=' && c != '+')
      c = '-';
  if (name.empty()) return "run";
  // The number distinguishes truncated names.
  return name.size() <= kMax ? name : concat(name.substr(0, kMax), '-', number);
}

void add_keys(const Overrides& overrides, std::vector<std::string>& keys) {
  for (const std::string& word : overrides)
    if (std::find(keys.begin(), keys.end(), key_of(word)) == keys.end()) keys.push_back(key_of(word));
}

std::string value_in(const Overrides& overrides, const std::string& key) {
  std::string value;
  for (const std::string& word : overrides)
    if (key_of(word) == key) value = word.starts_with('~') ? "default" : word.substr(word.find('=') + 1);
  return value;
}

}  // namespace bitgrad::cli
