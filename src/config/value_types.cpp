// The value types: how each reads a scalar. Numbers are decimal; infinities, NaN, hexadecimal, octal and digit
// separators are rejected, and a quoted number is text; a number with a unit, or a word, may be quoted, as in JSON.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "bitgrad/base/key.h"
#include "config/choices.h"
#include "config/merge.h"
#include "config/schema.h"
#include "config/texts.h"

namespace bitgrad::config {
namespace {

using Texts = std::vector<std::string>;

Texts forms_of_init() {
  Texts kinds;
  for (const choices::InitKind& kind : choices::init_kinds())
    kinds.push_back(concat(kind.name, kind.numbers == 2 ? "(a,b)" : kind.numbers == 1 ? "(a)" : ""));
  return kinds;
}
// detail is "steps, epochs" or "steps, epochs; from 0".
Texts units_of(const KeySpec& spec) {
  return split(spec.range.starts_with("steps, epochs") ? "steps,epochs" : "steps", ',');
}
int64_t least_of(const KeySpec& spec) { return spec.range.ends_with("from 0") ? 0 : 1; }

// A number of the key's range, for an example.
std::string within(const KeySpec& spec, std::initializer_list<double> wanted) {
  const NumberRange range = parse_number_range(spec.range);
  for (const double x : wanted)
    if (range.contains(x)) return concat(x);
  return concat(range.lo);
}
// The text for <word> in the texts of a ValueType.
std::string word_of(std::string_view word, const KeySpec& spec) {
  const Texts names = spec.names();
  if (word == "first")
    return !names.empty() ? names.front() : spec.type == Type::kInts ? within(spec, {10, 1}) : "NAME";
  if (word == "whole") return within(spec, {10, 1});
  if (word == "number") return within(spec, {0.01});
  if (word == "dtype") return spec.group == "model" ? "bf16" : "int4";
  if (word == "length") return units_of(spec).size() == 2 ? "10 epochs" : "100 steps";
  if (word == "keys") return joined(keys_of(spec.inner()));
  if (word == "choices") return joined(names);
  if (word == "kinds") return joined(keys_of("layer"));
  if (word == "inits") return joined(forms_of_init());
  if (word == "least") return concat(least_of(spec));
  if (word == "units") return joined(units_of(spec), " or ");
  return word == "unit" ? units_of(spec).back() : bitgrad::detail::word_of(word, spec);
}

std::string got(const KeySpec& spec, const Node& node) {
  return concat("got ", describe(node), ", expected ", expects(spec));
}
std::string out_of(const KeySpec& spec, std::string_view text) {
  if (spec.group.empty() && spec.name == "version") return concat("got ", text, ", this program reads version 1");
  return concat(text, " is out of range ", spec.range);
}
bool scalar(const Node& node) { return node.kind == Node::Kind::kScalar; }
bool plain(const Node& node) { return scalar(node) && !node.quoted; }

std::string read_int_value(const KeySpec& spec, const Node& node, int64_t& value) {
  if (!plain(node)) return got(spec, node);
  const NumberResult result = parse_whole(node.text, value);
  if (result == NumberResult::kNotANumber) return got(spec, node);
  return result == NumberResult::kOk && parse_number_range(spec.range).contains(static_cast<double>(value))
             ? ""
             : out_of(spec, node.text);
}
std::string read_number_value(const KeySpec& spec, const Node& node, double& value) {
  if (!plain(node)) return got(spec, node);
  const NumberResult result = parse_decimal(node.text, value);
  if (result == NumberResult::kNotANumber) return got(spec, node);
  return result == NumberResult::kOk && parse_number_range(spec.range).contains(value) ? "" : out_of(spec, node.text);
}

std::string read_int(const KeySpec& spec, const Node& node, Value& value) {
  return read_int_value(spec, node, value.emplace<int64_t>());
}
std::string read_number(const KeySpec& spec, const Node& node, Value& value) {
  return read_number_value(spec, node, value.emplace<double>());
}
std::string read_number_or_none(const KeySpec& spec, const Node& node, Value& value) {
  auto& out = value.emplace<std::optional<double>>();
  return scalar(node) && node.text == "none" ? "" : read_number_value(spec, node, out.emplace());
}
std::string read_int_or_auto(const KeySpec& spec, const Node& node, Value& value) {
  auto& out = value.emplace<std::optional<int64_t>>();
  return scalar(node) && node.text == "auto" ? "" : read_int_value(spec, node, out.emplace());
}
std::string read_pair(const KeySpec& spec, const Node& node, Value& value) {
  auto& out = value.emplace<std::array<double, 2>>();
  if (node.kind != Node::Kind::kList) return got(spec, node);
  if (node.items.size() != 2) return concat("got a list of ", node.items.size(), ", expected ", expects(spec));
  for (size_t i = 0; i < 2; ++i) {
    std::string wrong = read_number_value(spec, node.items[i], out[i]);
    if (!wrong.empty()) return wrong;
  }
  return "";
}
// Reads each item of a list that must have some; `read` returns what is wrong with one.
template <typename Read>
std::string read_items(const KeySpec& spec, const Node& node, Read read) {
  if (node.kind != Node::Kind::kList) return got(spec, node);
  if (node.items.empty()) return concat("the list is empty, expected ", expects(spec));
  for (const Node& item : node.items)
    if (std::string wrong = read(item); !wrong.empty()) return wrong;
  return "";
}
std::string read_number_list(const KeySpec& spec, const Node& node, Value& value) {
  auto& out = value.emplace<std::vector<double>>();
  return read_items(spec, node, [&](const Node& item) { return read_number_value(spec, item, out.emplace_back()); });
}
std::string read_int_list(const KeySpec& spec, const Node& node, Value& value) {
  auto& out = value.emplace<std::vector<int64_t>>();
  return read_items(spec, node, [&](const Node& item) {
    int64_t number = 0;
    std::string wrong = read_int_value(spec, item, number);
    if (wrong.empty() && std::find(out.begin(), out.end(), number) != out.end())
      return concat(number, " is twice in the list");
    out.push_back(number);
    return wrong;
  });
}
std::string read_ints(const KeySpec& spec, const Node& node, Value& value) {
  if (node.kind != Node::Kind::kList) {
    const Texts& words = spec.choices;
    if (!scalar(node) || std::find(words.begin(), words.end(), node.text) == words.end())
      return read_int(spec, node, value);
    value = node.text;
    return "";
  }
  auto& out = value.emplace<std::vector<int64_t>>();
  if (std::ssize(node.items) != spec.count)
    return concat("got a list of ", node.items.size(), ", expected ", expects(spec));
  for (const Node& item : node.items) {
    std::string wrong = read_int_value(spec, item, out.emplace_back());
    if (!wrong.empty()) return wrong;
  }
  return "";
}
std::string read_bytes(const KeySpec& spec, const Node& node, Value& value) {
  if (!scalar(node)) return got(spec, node);
  int64_t bytes = 0;
  const NumberResult result = parse_bytes(node.text, bytes);
  if (result == NumberResult::kNotANumber) return got(spec, node);
  if (result != NumberResult::kOk || !parse_number_range(spec.range).contains(static_cast<double>(bytes)))
    return out_of(spec, node.text);
  value = bytes;
  return "";
}
std::string read_bool(const KeySpec& spec, const Node& node, Value& value) {
  if (!plain(node) || (node.text != "true" && node.text != "false")) return got(spec, node);
  value = node.text == "true";
  return "";
}
std::string read_text(const KeySpec& spec, const Node& node, Value& value) {
  if (node.kind != Node::Kind::kScalar) return got(spec, node);
  if (node.text.empty()) return "the text is empty";
  const bool control = std::any_of(node.text.begin(), node.text.end(),
                                   [](char c) { return static_cast<uint8_t>(c) < 0x20 || c == 0x7F; });
  if (control) return "the text contains a control character or a line break";
  value = node.text;
  return "";
}
// Line breaks and tabs are part of it, and it may be empty.
std::string read_template(const KeySpec& spec, const Node& node, Value& value) {
  if (node.kind != Node::Kind::kScalar) return got(spec, node);
  const bool control = std::any_of(node.text.begin(), node.text.end(), [](char c) {
    return (static_cast<uint8_t>(c) < 0x20 && c != '\n' && c != '\t' && c != '\r') || c == 0x7F;
  });
  if (control) return "the text contains a control character";
  value = node.text;
  return "";
}
// An item of a list with commas, as in CSV.
std::string listed(const std::string& item) {
  if (!item.empty() && item.find_first_of(",\"\n") == std::string::npos) return item;
  std::string out = "\"";
  for (const char c : item) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
}
// A text, or a list [a, b] or map {a: x} as the text "a,b" or "a=x".
std::string read_texts(const KeySpec& spec, const Node& node, Value& value) {
  if (node.kind == Node::Kind::kScalar) return read_text(spec, node, value);
  std::string all;
  const auto add = [&](const std::string& key, const Node& item) {
    Value text;
    std::string wrong = item.kind != Node::Kind::kScalar ? got(spec, item)
                        : item.text.empty()              ? std::string()
                                                         : read_text(spec, item, text);
    all += concat(all.empty() ? "" : ",", listed(key.empty() ? item.text : concat(key, '=', item.text)));
    return wrong;
  };
  std::string wrong;
  for (const Node& item : node.items)
    if (wrong.empty()) wrong = add("", item);
  for (const Entry& entry : node.entries)
    if (wrong.empty()) wrong = add(entry.key, entry.node);
  value = all;
  return wrong.empty() && all.empty() ? "the list is empty" : wrong;
}
std::string read_text_list(const KeySpec& spec, const Node& node, Value& value) {
  auto& out = value.emplace<std::vector<std::string>>();
  if (node.kind != Node::Kind::kList) return got(spec, node);
  for (const Node& item : node.items) {
    Value text;
    std::string wrong = item.kind == Node::Kind::kScalar ? read_text(spec, item, text) : got(spec, item);
    if (!wrong.empty()) return wrong;
    out.push_back(std::get<std::string>(text));
    if (std::count(out.begin(), out.end(), out.back()) > 1) return concat(describe(item), " is twice in the list");
  }
  return "";
}
// Reads a map as path, name, path, name ...
std::string read_name_map(const KeySpec& spec, const Node& node, Value& value) {
  auto& out = value.emplace<std::vector<std::string>>();
  if (node.kind != Node::Kind::kMap || node.entries.empty()) return got(spec, node);
  for (const Entry& entry : node.entries) {
    if (entry.node.kind != Node::Kind::kScalar) return concat(entry.key, ": ", got(spec, entry.node));
    for (size_t i = 0; i < out.size(); i += 2)
      if (out[i] == entry.key) return concat(entry.key, " is twice in the map");
    try {
      parse_weight_name(entry.key, entry.node.text);
    } catch (const Error& error) {
      return library_text(error.what());
    }
    out.push_back(entry.key);
    out.push_back(entry.node.text);
  }
  return "";
}
std::string read_glob(const KeySpec& spec, const Node& node, Value& value) {
  std::string wrong = read_text(spec, node, value);
  if (wrong.empty()) wrong = glob_fault(node.text);
  return wrong.empty() ? "" : concat(wrong, node.text.empty() ? "" : concat(" in ", describe(node)));
}
std::string read_name(const KeySpec& spec, const Node& node, Value& value) {
  if (node.kind != Node::Kind::kScalar || !is_name(node.text)) return got(spec, node);
  value = node.text;
  return "";
}
std::string read_choice(const KeySpec& spec, const Node& node, Value& value) {
  if (node.kind != Node::Kind::kScalar) return got(spec, node);
  const Texts names = spec.names();
  if (std::find(names.begin(), names.end(), node.text) == names.end()) {
    const std::string hint = nearest(node.text, names);
    return concat("got ", describe(node),
                  hint.empty() ? ", expected " : concat(", did you mean '", hint, "'? Expected "), expects(spec));
  }
  value = node.text;
  return "";
}
std::string read_dtype(const KeySpec& spec, const Node& node, Value& value) {
  std::string wrong = read_choice(spec, node, value);
  if (wrong.empty()) value = parse_dtype(node.text);
  return wrong;
}
std::string read_quantity(const KeySpec& spec, const Node& node, Value& value) {
  if (!scalar(node)) return got(spec, node);
  const Texts words = split(node.text, ' ');
  const Texts units = units_of(spec);
  Quantity quantity;
  const NumberResult result = parse_whole(words[0], quantity.value);
  if (words.size() != 2 || result == NumberResult::kNotANumber) return got(spec, node);
  // "1 epoch" is how most people write one.
  const std::string unit = words[1].ends_with('s') ? words[1] : words[1] + 's';
  if (std::find(units.begin(), units.end(), unit) == units.end()) return got(spec, node);
  if (result != NumberResult::kOk || quantity.value < least_of(spec) || quantity.value > kMostOfAQuantity)
    return concat(words[0], " is out of range [", least_of(spec), ", ", kMostOfAQuantity, ']');
  quantity.unit = unit == "steps" ? Quantity::Unit::kSteps : Quantity::Unit::kEpochs;
  value = quantity;
  return "";
}
std::string read_quantity_list(const KeySpec& spec, const Node& node, Value& value) {
  auto& out = value.emplace<std::vector<Quantity>>();
  return read_items(spec, node, [&](const Node& item) {
    Value one;
    std::string wrong = item.kind == Node::Kind::kScalar ? read_quantity(spec, item, one) : got(spec, item);
    if (!wrong.empty()) return wrong;
    const auto quantity = std::get<Quantity>(one);
    if (!out.empty() && out.back().unit == quantity.unit && quantity.value <= out.back().value)
      return concat("got ", quantity, " after ", out.back(), ", expected ", expects(spec));
    out.push_back(quantity);
    return wrong;
  });
}
std::string read_quantity_or_off(const KeySpec& spec, const Node& node, Value& value) {
  auto& out = value.emplace<std::optional<Quantity>>();
  if (scalar(node) && node.text == "off") return "";
  Value quantity;
  std::string wrong = read_quantity(spec, node, quantity);
  if (wrong.empty()) out = std::get<Quantity>(quantity);
  return wrong;
}
// "channel(1)", "group(32)", "group(0,32)". The default is axis 0 for channel and axis 1 for group.
bool parse_granularity(std::string_view text, Granularity& g, std::string& form) {
  constexpr int64_t kMostOfAGroup = 1'048'576;
  const size_t open = text.find('(');
  const std::string_view name = text.substr(0, open);
  std::vector<int64_t> numbers;
  if (open != std::string_view::npos) {
    if (text.back() != ')') return false;
    for (const std::string& part : split(text.substr(open + 1, text.size() - open - 2), ','))
      if (parse_whole(trimmed(part), numbers.emplace_back()) != NumberResult::kOk || numbers.back() < 0) return false;
  }
  form = name;
  if (name == "tensor" || name == "token") {
    g = name == "token" ? Granularity::token() : Granularity::tensor();
    return numbers.empty();
  }
  if (name == "channel") {
    if (numbers.size() > 1 || (numbers.size() == 1 && numbers[0] > 1)) return false;
    g = Granularity::channel(numbers.empty() ? 0 : numbers[0]);
    if (g.axis == 1) form = "channel(1)";
    return true;
  }
  if (name != "group" || numbers.empty() || numbers.size() > 2 || numbers.back() < 1 || numbers.back() > kMostOfAGroup)
    return false;
  const bool down = numbers.size() == 2 && numbers[0] == 0;
  if (numbers.size() == 2 && numbers[0] > 1) return false;
  g = down ? Granularity::groups(numbers.back(), 0) : Granularity::groups(numbers.back());
  form = down ? "group(0,n)" : "group(n)";
  return true;
}
// detail: the forms that the key accepts, e.g. "tensor, channel, group(n)".
std::string read_granularity(const KeySpec& spec, const Node& node, Value& value) {
  Granularity granularity;
  std::string form;
  if (node.kind != Node::Kind::kScalar || !parse_granularity(node.text, granularity, form)) return got(spec, node);
  for (std::string_view rest = spec.range; !rest.empty();) {
    const size_t end = std::min(rest.find(", "), rest.size());
    if (rest.substr(0, end) == form) {
      value = granularity;
      return "";
    }
    rest.remove_prefix(std::min(end + 2, rest.size()));
  }
  return got(spec, node);
}
std::string read_init(const KeySpec& spec, const Node& node, Value& value) {
  if (node.kind != Node::Kind::kScalar) return got(spec, node);
  const size_t open = node.text.find('(');
  Init init{node.text.substr(0, open)};
  const std::vector<choices::InitKind> kinds = choices::init_kinds();
  const auto kind =
      std::find_if(kinds.begin(), kinds.end(), [&](const choices::InitKind& k) { return k.name == init.name; });
  if (kind == kinds.end() || (kind->numbers == 0) != (open == std::string::npos)) return got(spec, node);
  if (kind->numbers > 0) {
    if (node.text.back() != ')') return got(spec, node);
    const Texts numbers = split(node.text.substr(open + 1, node.text.size() - open - 2), ',');
    if (numbers.size() != static_cast<size_t>(kind->numbers))
      return concat(init.name, " needs ", kind->numbers, " numbers, got ", numbers.size(), " in ", describe(node));
    if (parse_decimal(trimmed(numbers.front()), init.a) != NumberResult::kOk) return got(spec, node);
    if (kind->numbers == 2 && parse_decimal(trimmed(numbers.back()), init.b) != NumberResult::kOk)
      return got(spec, node);
    if (init.name == "uniform" && init.a > init.b) return concat("uniform(a,b) needs a <= b, got ", node.text);
    if (init.name == "normal" && init.b < 0) return concat("normal(mean,sd) needs sd >= 0, got ", node.text);
    if (std::max(std::fabs(init.a), std::fabs(init.b)) > 1e30)
      return concat("numbers of ", node.text, " are out of range [-1e30, 1e30]");
  }
  value = init;
  return "";
}

}  // namespace

std::string filled(std::string_view text, const KeySpec& spec) {
  return bitgrad::detail::filled(text, [&](std::string_view word) { return word_of(word, spec); });
}

const TypeUse& use_of(Type type) {
  static constexpr TypeUse kUses[] = {
#define BITGRAD_KEY_TYPE(symbol, form, read, shown, example) {read, form, shown, example},
#include "bitgrad/base/key_types.inc"
#include "bitgrad/base/text.h"
#undef BITGRAD_KEY_TYPE
  };
  return kUses[static_cast<size_t>(type)];
}

std::string expects(const KeySpec& spec) {
  if (spec.type == Type::kMetrics && keys_of(spec.inner()).empty()) return "a map of metrics that have keys; none has";
  return filled(use_of(spec.type).form, spec);
}

}  // namespace bitgrad::config
