#include "bitgrad/base/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>
#include <unordered_map>

#include "bitgrad/base/text.h"

namespace bitgrad {
namespace {

using Library = nlohmann::ordered_json;

const char* type_name(const Json& x) {
  if (x.is_null()) return "null";
  if (x.is_bool()) return "a boolean";
  if (x.is_integer()) return "a whole number";
  if (x.is_number()) return "a number";
  if (x.is_string()) return "a string";
  return x.is_array() ? "an array" : "an object";
}

[[noreturn]] void wrong_type(const Json& x, const std::string& expected) {
  throw JsonError("JSON: got " + std::string(type_name(x)) + ", expected " + expected);
}

// Builds the tree from the library's SAX events, so that deeply nested input causes no recursion.
class Builder final : public nlohmann::json_sax<Library> {
 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}
  Json release() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool x) override { return add(x); }
  bool number_integer(number_integer_t x) override { return add(int64_t{x}); }
  bool number_unsigned(number_unsigned_t x) override { return add(uint64_t{x}); }
  bool number_float(number_float_t x, const string_t&) override { return add(x); }
  bool string(string_t& x) override { return add(std::move(x)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    name_ = std::move(name);
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& e) override {
    throw JsonError(e.what());
  }

 private:
  bool add(Json x) {
    place(std::move(x));
    return true;
  }
  bool open(Json x) {
    if (static_cast<int>(open_.size()) >= limits_.depth)
      throw JsonError("more than " + std::to_string(limits_.depth) + " collections inside one another");
    open_.push_back(place(std::move(x)));
    names_.emplace_back();
    return true;
  }
  bool close() {
    open_.pop_back();
    names_.pop_back();
    return true;
  }
  // Pointers to open values stay valid: only the innermost one grows.
  Json* place(Json x) {
    if (++values_ > limits_.values) throw JsonError("more than " + std::to_string(limits_.values) + " values");
    if (open_.empty()) {
      root_ = std::move(x);
      return &root_;
    }
    Json& parent = *open_.back();
    if (parent.is_object()) {
      auto& members = const_cast<Json::Object&>(parent.members());
      const auto [known, is_new] = names_.back().try_emplace(name_, members.size());
      if (is_new) return &members.emplace_back(name_, std::move(x)).second;
      if (limits_.unique_names) throw JsonError("the key '" + printable(name_.substr(0, 80)) + "' twice in one object");
      Json& member = members[known->second].second;
      member = std::move(x);
      return &member;
    }
    parent.push_back(std::move(x));
    return const_cast<Json*>(&parent.items().back());
  }

  const JsonLimits& limits_;
  int64_t values_ = 0;
  Json root_;
  std::vector<Json*> open_;
  std::vector<std::unordered_map<std::string, size_t>> names_;  // for each open object: name -> index of its member
  std::string name_;
};

// Writes a value in the library's format. The library only formats scalars: its own tree would cost as much memory as
// ours, and needs more to be destroyed.
class Writer {
 public:
  Writer(std::string& out, int indent) : out_(out), indent_(indent) {}

  void write(const Json& x) {
    if (x.is_array()) {
      list('[', x.items(), ']', [&](const Json& item) { write(item); });
    } else if (x.is_object()) {
      list('{', x.members(), '}', [&](const auto& member) {
        out_ += Library(member.first).dump();
        out_ += indent_ < 0 ? ":" : ": ";
        write(member.second);
      });
    } else {
      out_ += scalar(x).dump();
    }
  }

 private:
  static Library scalar(const Json& x) {
    if (x.is_null()) return nullptr;
    if (x.is_bool()) return x.get<bool>();
    if (x.is_string()) return x.text();
    if (!x.is_integer()) return x.get<double>();
    if (x < 0) return x.get<int64_t>();
    return x.get<uint64_t>();
  }
  template <typename List, typename F>
  void list(char open, const List& parts, char close, F&& write_part) {
    out_ += open;
    ++depth_;
    bool first = true;
    for (const auto& part : parts) {
      if (!first) out_ += ',';
      first = false;
      new_line();
      write_part(part);
    }
    --depth_;
    if (!first) new_line();
    out_ += close;
  }
  void new_line() {
    if (indent_ < 0) return;
    out_ += '\n';
    out_.append(static_cast<size_t>(indent_ * depth_), ' ');
  }

  std::string& out_;
  int indent_, depth_ = 0;
};

}  // namespace

Json::Json(std::initializer_list<Json> items) {
  const auto is_member = [](const Json& x) { return x.is_array() && x.size() == 2 && x[0].is_string(); };
  if (!std::all_of(items.begin(), items.end(), is_member)) {
    value_ = Array(items);
    return;
  }
  *this = object();
  for (const Json& x : items) (*this)[x[0].text()] = x[1];
}

Json Json::array(Array items) {
  Json out;
  out.value_ = std::move(items);
  return out;
}

Json Json::object() {
  Json out;
  out.value_ = Object();
  return out;
}

Json Json::parse(std::string_view text, const JsonLimits& limits) {
  // The library treats a zero byte as the end of input.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos)
    throw JsonError("a byte 0 at " + std::to_string(zero));
  Builder builder(limits);
  if (!Library::sax_parse(text.begin(), text.end(), &builder)) throw JsonError("JSON: unreadable");
  return builder.release();
}

std::string Json::dump(int indent) const {
  try {
    std::string out;
    Writer(out, indent).write(*this);
    return out;
  } catch (const Library::exception& e) {
    throw JsonError(e.what());
  }
}

size_t Json::size() const {
  if (is_null()) return 0;
  if (const auto* a = std::get_if<Array>(&value_)) return a->size();
  if (const auto* o = std::get_if<Object>(&value_)) return o->size();
  return 1;
}

bool Json::contains(std::string_view name) const {
  const auto* const o = std::get_if<Object>(&value_);
  return o != nullptr && std::any_of(o->begin(), o->end(), [&](const auto& m) { return m.first == name; });
}

const Json& Json::at(std::string_view name) const {
  for (const auto& [key, value] : members())
    if (key == name) return value;
  throw JsonError("JSON: no member '" + printable(name) + "'");
}

const Json& Json::at(size_t index) const {
  const Array& a = items();
  if (index >= a.size())
    throw JsonError("JSON: element " + std::to_string(index) + " of an array of " + std::to_string(a.size()));
  return a[index];
}

Json& Json::operator[](std::string_view name) {
  if (is_null()) value_ = Object();
  auto* const o = std::get_if<Object>(&value_);
  if (o == nullptr) wrong_type(*this, "an object");
  for (auto& [key, value] : *o)
    if (key == name) return value;
  return o->emplace_back(std::string(name), Json()).second;
}

void Json::push_back(Json item) {
  if (is_null()) value_ = Array();
  auto* const a = std::get_if<Array>(&value_);
  if (a == nullptr) wrong_type(*this, "an array");
  a->push_back(std::move(item));
}

void Json::erase(std::string_view name) {
  if (auto* const o = std::get_if<Object>(&value_)) std::erase_if(*o, [&](const auto& m) { return m.first == name; });
}

void Json::update(const Json& other) {
  for (const auto& [name, value] : other.members()) (*this)[name] = value;
}

const Json::Array& Json::items() const {
  if (const auto* a = std::get_if<Array>(&value_)) return *a;
  wrong_type(*this, "an array");
}

const Json::Object& Json::members() const {
  if (const auto* o = std::get_if<Object>(&value_)) return *o;
  wrong_type(*this, "an object");
}

const std::string& Json::text() const {
  if (const auto* s = std::get_if<std::string>(&value_)) return *s;
  wrong_type(*this, "a string");
}

bool Json::boolean() const {
  if (const auto* b = std::get_if<bool>(&value_)) return *b;
  wrong_type(*this, "a boolean");
}

double Json::number() const {
  if (const auto* i = std::get_if<int64_t>(&value_)) return static_cast<double>(*i);
  if (const auto* u = std::get_if<uint64_t>(&value_)) return static_cast<double>(*u);
  if (const auto* d = std::get_if<double>(&value_)) return *d;
  wrong_type(*this, "a number");
}

std::pair<uint64_t, bool> Json::integer(bool is_signed, uint64_t largest) const {
  uint64_t magnitude = 0;
  bool negative = false;
  if (const auto* i = std::get_if<int64_t>(&value_)) {
    negative = *i < 0;
    magnitude = negative ? ~static_cast<uint64_t>(*i) + 1 : static_cast<uint64_t>(*i);
  } else if (const auto* u = std::get_if<uint64_t>(&value_)) {
    magnitude = *u;
  } else {
    wrong_type(*this, "a whole number");
  }
  if (magnitude > (negative ? (is_signed ? largest + 1 : 0) : largest))
    throw JsonError("JSON: got " + std::string(negative ? "-" : "") + std::to_string(magnitude) + ", expected " +
                    (is_signed ? "-" + std::to_string(largest + 1) : std::string("0")) + " .. " +
                    std::to_string(largest));
  return {magnitude, negative};
}

bool Json::operator==(const Json& other) const {
  if (is_number() && other.is_number()) {
    if (!is_integer() || !other.is_integer()) return number() == other.number();
    const auto a = integer(true, number() < 0 ? INT64_MAX : UINT64_MAX);
    const auto b = other.integer(true, other.number() < 0 ? INT64_MAX : UINT64_MAX);
    return a == b;
  }
  if (is_object() && other.is_object()) {
    return size() == other.size() && std::all_of(members().begin(), members().end(), [&](const auto& m) {
             return other.contains(m.first) && other.at(m.first) == m.second;
           });
  }
  return value_ == other.value_;
}

std::ostream& operator<<(std::ostream& out, const Json& json) { return out << json.dump(); }

}  // namespace bitgrad
