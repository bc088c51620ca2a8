#include "data/tokenizer_text.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bitgrad/base/error.h"
#include "bitgrad/base/text.h"
#include "data/oniguruma_tables.h"

namespace bitgrad::data {
namespace {

using namespace oniguruma;

template <size_t n>
std::string_view find_named(const Named (&table)[n], std::string_view name) {
  for (const auto& [key, value] : table)
    if (key == name) return value;
  return {};
}

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

class Translator {
 public:
  explicit Translator(const std::string& pattern) : in_(pattern) {}

  std::string run() {
    open_group();
    while (at_ < in_.size()) item();
    return std::move(out_);
  }

 private:
  struct Group {
    size_t begin, content;  // in out_
  };
  // The contents of a set between two &&: what PCRE2 writes within brackets, and expressions that match one character.
  struct Operand {
    std::string simple = {};
    std::vector<std::string> others = {};
  };

  char next(size_t ahead = 0) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  bool skip(std::string_view text) {
    if (!std::string_view(in_).substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  std::string_view character() {
    const std::string_view rest = std::string_view(in_).substr(at_);
    const std::string_view c = rest.substr(0, std::max<size_t>(1, utf8_bytes(rest)));
    at_ += c.size();
    return c;
  }
  [[noreturn]] void refuse(size_t place, const std::string& what) const {
    fail_with(ErrorCode::kData, "pattern", "'", in_, "', character ", place + 1, ": ", what, " is not supported.");
  }

  void open_group() { groups_.push_back({out_.size(), out_.size()}); }
  void atom(std::string_view text) {
    atom_ = out_.size();
    out_ += text;
  }

  void item() {
    const char c = next();
    if (c == '\\') return atom(escape());
    if (c == '[') return atom(set());
    if (c == '(') return group();
    if (c == '{') return interval();
    if (c == ')' && groups_.size() > 1) {
      atom_ = groups_.back().begin;
      groups_.pop_back();
    } else if (c != '*' && c != '+' && c != '?' && c != '|') {
      return atom(character());
    }
    out_ += c;
    ++at_;
    if ((c == '*' || c == '+' || c == '?') && (next() == '?' || next() == '+')) out_ += in_[at_++];
  }

  void group() {
    const size_t place = at_;
    const size_t outer = groups_.back().content;
    open_group();
    out_ += in_[at_++];
    groups_.back().content = out_.size();
    if (next() != '?') return;
    if (next(1) == '~' || next(1) == '{' || next(1) == '@') refuse(place, concat("(?", next(1)));
    if (next(1) == '#') {
      at_ = std::min(in_.find(')', at_), in_.size() - 1) + 1;
      out_.resize(groups_.back().begin);
      groups_.pop_back();
      return;
    }
    out_ += in_[at_++];
    if (!is_letter(next()) && next() != '-') return kind_of_group();
    options(place, outer);
  }
  void kind_of_group() {
    if (skip("<=") || skip("<!"))
      out_ += in_.substr(at_ - 2, 2);
    else if (next() == '<')
      while (at_ < in_.size() && next() != '>') out_ += in_[at_++];
    if (at_ < in_.size() && std::string_view(":=!>").find(next()) != std::string_view::npos) out_ += in_[at_++];
    groups_.back().content = out_.size();
  }
  // (?i:...) and (?i). m of Oniguruma is s of PCRE2.
  void options(size_t place, size_t outer) {
    for (; at_ < in_.size() && next() != ':' && next() != ')'; ++at_) {
      if (next() != 'i' && next() != 'm' && next() != '-') refuse(place, concat("the option '", next(), '\''));
      out_ += next() == 'm' ? 's' : next();
    }
    // In the middle of a branch, Oniguruma takes the rest of the group as one branch.
    if (next() == ')') {
      if (groups_.back().begin != outer) refuse(place, "an option that is not at the start of a group");
      groups_.pop_back();
      out_ += in_[at_++];
      groups_.back().content = out_.size();
      return;
    }
    out_ += ':';
    ++at_;
    groups_.back().content = out_.size();
  }

  // {n}, {n,}, {,n}, {n,m}; anything else is literal.
  void interval() {
    size_t end = at_ + 1;
    const size_t low = end;
    while (end < in_.size() && is_digit(in_[end])) ++end;
    const size_t low_end = end;
    const bool comma = end < in_.size() && in_[end] == ',';
    if (comma)
      for (++end; end < in_.size() && is_digit(in_[end]);) ++end;
    const bool count =
        end < in_.size() && in_[end] == '}' && (low_end > low || end > low_end + 1) && atom_ < out_.size();
    if (!count) {
      atom("\\{");
      ++at_;
      return;
    }
    std::string text = in_.substr(at_, end + 1 - at_);
    if (low_end == low) text.insert(1, "0");
    at_ = end + 1;
    const bool again = next() == '+' || (next() == '?' && !comma);
    if (again) {
      out_.insert(atom_, "(?:");
      text += ')';
    }
    out_ += text;
    if (again || next() == '?') out_ += in_[at_++];
  }

  static std::string boundary(bool inside) {
    const std::string word = concat('[', kWordAlone, ']');
    return concat("(?:(?<=", word, inside ? ")(?=" : ")(?!", word, ")|(?<!", word, inside ? ")(?!" : ")(?=", word,
                  "))");
  }

  std::string escape() {
    const size_t place = at_++;
    if (at_ >= in_.size()) return "\\";  // which libpcre2 refuses
    const char c = next();
    bool opposite = false;
    if (std::string_view set = set_escape(opposite); !set.empty()) {
      if (set == kWord) set = kWordAlone;
      return concat(opposite ? "[^" : "[", set, ']');
    }
    if (c == 'O') {
      ++at_;
      return "(?s:.)";
    }
    if (c == 'b' || c == 'B') {
      ++at_;
      return boundary(c == 'B');
    }
    if (c == 'N' && next(1) == '{') refuse(place, "\\N{...}");
    if (c == 'k') {  // a reference by name or number
      ++at_;
      return "\\k";
    }
    return plain_escape(place, kSameEscapes);
  }
  // Escapes of one character, and properties: the same text within sets and outside. at_: behind the backslash.
  std::string plain_escape(size_t place, std::string_view same) {
    const char c = next();
    if (c == 'p' || c == 'P') return property(place);
    if (c == 'v') {
      ++at_;
      return "\\x{b}";
    }
    if (c == 'u' || c == 'x') return number(place);
    if (!is_letter(c) && !is_digit(c)) {
      const std::string_view literal = character();
      return concat(static_cast<uint8_t>(literal[0]) < 0x80 ? "\\" : "", literal);
    }
    if (same.find(c) == std::string_view::npos) refuse(place, concat('\\', c));
    ++at_;
    return {'\\', c};
  }
  std::string number(size_t place) {
    const bool four = in_[at_++] == 'u';
    if (!four && next() == '{') {
      const size_t end = in_.find('}', at_);
      if (end == std::string::npos || end > at_ + 9) refuse(place, "\\x{ without an end");
      const std::string digits = in_.substr(at_ + 1, end - at_ - 1);
      if (digits.empty() || !std::all_of(digits.begin(), digits.end(), is_hex)) refuse(place, "such a \\x{...}");
      at_ = end + 1;
      return concat("\\x{", digits, '}');
    }
    std::string digits;
    while (is_hex(next()) && digits.size() < (four ? 4u : 2u)) digits += in_[at_++];
    if (four ? digits.size() != 4 : digits.empty() || (digits.size() == 2 && digits[0] >= '8'))
      refuse(place, four ? "\\u without four digits" : "\\x of a byte");
    return concat("\\x{", digits, '}');
  }
  struct Property {
    std::string name = {}, plain = {};  // plain: as Oniguruma compares names
    bool opposite = false;
    size_t end = 0;  // in in_, behind it
  };
  // Of \p{...} whose p is at at_.
  Property property_at(size_t place) const {
    if (next(1) != '{') refuse(place, concat('\\', next(), " without {...}"));
    const size_t end = in_.find('}', at_);
    if (end == std::string::npos) refuse(place, "a property without an end");
    Property p;
    p.name = in_.substr(at_ + 2, end - at_ - 2);
    p.end = end + 1;
    const bool opposite = p.name.starts_with('^');
    if (opposite) p.name.erase(0, 1);
    p.opposite = (next() == 'P') != opposite;
    for (const char c : p.name)
      if (is_letter(c) || is_digit(c))
        p.plain += lower(c);
      else if (c != '_' && c != ' ' && c != '-')
        refuse(place, concat("\\p{", p.name, "}"));
    return p;
  }
  std::string property(size_t place) {
    const Property p = property_at(place);
    at_ = p.end;
    std::string name = p.name;
    if (const std::string_view known = find_named(kProperties, p.plain); !known.empty())
      name = known;
    else if (kSameProperties.find(concat(' ', p.plain, ' ')) == std::string_view::npos)
      name = "sc:" + p.plain;
    return concat('\\', p.opposite ? 'P' : 'p', '{', name, '}');
  }
  // The contents of the set that the escape at at_ (behind the backslash) stands for; empty: none, and at_ stays.
  std::string_view set_escape(bool& opposite) {
    const char c = next();
    if (c == 'p' || c == 'P') {
      const Property p = property_at(at_ - 1);
      opposite = p.opposite;
      const std::string_view set = find_named(kSetProperties, p.plain);
      if (!set.empty()) at_ = p.end;
      return set;
    }
    opposite = c != lower(c);
    const std::string_view set = find_named(kSetEscapes, std::string(1, lower(c)));
    if (!set.empty()) ++at_;
    return set;
  }

  // Atomic groups: a character has one way to match a set, and alternatives would be tried again for each of a run.
  static std::string matcher(const Operand& o) {
    const std::string simple = o.simple.empty() ? "" : concat('[', o.simple, ']');
    if (o.others.empty()) return simple.empty() ? "(?!)" : simple;
    std::string text = concat("(?>", simple);
    for (const std::string& other : o.others) text += concat(text == "(?>" ? "" : "|", other);
    return text + ')';
  }

  // An expression that matches one character, for a set that begins at at_.
  std::string set() {
    const size_t place = at_++;
    if (++depth_ > 32) refuse(place, "sets nested too deeply");
    const bool negated = skip("^");
    std::vector<Operand> operands(1);
    for (bool first = true; first || next() != ']'; first = false) {
      if (at_ >= in_.size()) refuse(place, "a set without an end");
      if (skip("&&"))
        operands.emplace_back();
      else
        member(operands.back());
    }
    ++at_;
    --depth_;
    if (operands.size() == 1 && operands[0].others.empty() && negated) return concat("[^", operands[0].simple, ']');
    std::string all;
    if (operands.size() == 1) {
      all = matcher(operands[0]);
    } else {
      for (size_t i = 0; i + 1 < operands.size(); ++i) all += concat("(?=", matcher(operands[i]), ')');
      all = concat("(?>", all, matcher(operands.back()), ')');
    }
    return negated ? concat("(?>(?!", all, ")(?s:.))") : all;
  }

  void add(Operand& to, std::string_view set, bool opposite) {
    if (opposite)
      to.others.push_back(concat("[^", set, ']'));
    else
      to.simple += set;
  }
  bool posix(Operand& to) {
    if (next(1) != ':') return false;
    const size_t end = in_.find(":]", at_ + 2);
    if (end == std::string::npos) return false;
    std::string name = in_.substr(at_ + 2, end - at_ - 2);
    const bool opposite = name.starts_with('^');
    if (opposite) name.erase(0, 1);
    const std::string_view known = find_named(kPosix, name);
    if (known.empty()) {
      if (name.size() < 8 && std::all_of(name.begin(), name.end(), is_letter)) refuse(at_, concat("[:", name, ":]"));
      return false;
    }
    at_ = end + 2;
    add(to, known, opposite);
    return true;
  }
  void member(Operand& to) {
    const size_t place = at_;
    if (next() == '[') {
      if (!posix(to)) to.others.push_back(set());
      return;
    }
    if (next() == '\\') {
      bool opposite = false;
      ++at_;
      if (const std::string_view known = set_escape(opposite); !known.empty()) return add(to, known, opposite);
      --at_;
    }
    const std::string from = one(place);
    to.simple += from;
    if (from.starts_with("\\p") || from.starts_with("\\P")) return;
    if (next() != '-' || next(1) == ']' || next(1) == '\0' || next(1) == '[' || (next(1) == '&' && next(2) == '&'))
      return;
    ++at_;
    const std::string until = one(at_);
    if (until.starts_with("\\p") || until.starts_with("\\P")) refuse(place, "a range that ends with a property");
    to.simple += concat('-', until);
  }
  // One character of a set as PCRE2 writes it.
  std::string one(size_t place) {
    if (next() != '\\') {
      const std::string_view c = character();
      return concat(c.size() == 1 && std::string_view("[]^-&").find(c[0]) != std::string_view::npos ? "\\" : "", c);
    }
    ++at_;
    if (at_ >= in_.size()) refuse(place, "a set without an end");
    if (next() == 'b') {
      ++at_;
      return "\\x{8}";
    }
    if (std::string_view("swhdSWHD").find(next()) != std::string_view::npos)
      refuse(place, "a range that ends with a set");
    return plain_escape(place, kSameInSets);
  }

  const std::string& in_;
  size_t at_ = 0, atom_ = std::string::npos;
  int depth_ = 0;
  std::string out_;
  std::vector<Group> groups_;
};

}  // namespace

std::string pcre_of_oniguruma(const std::string& pattern) { return Translator(pattern).run(); }

}  // namespace bitgrad::data
