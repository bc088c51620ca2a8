#include "data/npy_array.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/data/npz.h"

namespace bitgrad::data {
namespace {

constexpr int64_t kMostHeaderBytes = int64_t{1} << 16;
constexpr int64_t kMostNpyAxes = 32;  // as in numpy

// Parses the Python literal {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
class HeaderText {
 public:
  HeaderText(std::string_view where, const std::string& what, std::string text, int64_t offset)
      : where_(where), what_(what), text_(std::move(text)), offset_(offset) {}

  struct Fields {
    std::string descr;
    bool has_descr = false, has_order = false, has_shape = false, fortran = false;
    std::vector<int64_t> shape;
  };
  Fields read() {
    Fields fields;
    expect('{');
    while (!take('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr" && !fields.has_descr) {
        fields.has_descr = true;
        if (peek() == '[')
          fail_here("a list, which means records",
                    "a dtype such as '|u1' or '<f4'. Save numpy.lib.recfunctions.structured_to_unstructured(a)");
        fields.descr = quoted();
      } else if (key == "fortran_order" && !fields.has_order) {
        fields.has_order = true;
        fields.fortran = boolean();
      } else if (key == "shape" && !fields.has_shape) {
        fields.has_shape = true;
        fields.shape = tuple();
      } else {
        fail_here(concat("the key '", key, "'"), "descr, fortran_order and shape, once each");
      }
      if (!take(',') && peek() != '}') fail_here(found(), "',' or '}'");
    }
    if (!fields.has_descr || !fields.has_order || !fields.has_shape)
      fail_here("the end of the description", "descr, fortran_order and shape");
    if (peek() != 0) fail_here(found(), "the end of the description");
    return fields;
  }

 private:
  [[noreturn]] void fail_here(const std::string& got, const std::string& expected) const {
    fail_with(ErrorCode::kData, where_, what_, ": header at byte offset ", offset_ + static_cast<int64_t>(at_),
              ": got ", got, ", expected ", expected, '.');
  }
  std::string found() const {
    return at_ >= text_.size() ? std::string("its end") : concat("byte ", int{static_cast<uint8_t>(text_[at_])});
  }
  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c || at_ >= text_.size()) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail_here(found(), concat('\'', c, '\''));
  }
  std::string quoted() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail_here(found(), "a quoted text");
    const size_t end = text_.find(quote, at_ + 1);
    constexpr size_t kLongest = 64;
    if (end == std::string::npos || end - at_ > kLongest) fail_here("a text without end", "a quoted text");
    std::string out = text_.substr(at_ + 1, end - at_ - 1);
    for (const char c : out)
      if (static_cast<uint8_t>(c) < 0x20 || static_cast<uint8_t>(c) > 0x7E) fail_here("a control character", "a text");
    at_ = end + 1;
    return out;
  }
  bool boolean() {
    peek();
    for (const std::string_view word : {"True", "False"})
      if (std::string_view(text_).substr(at_).starts_with(word)) {
        at_ += word.size();
        return word == "True";
      }
    fail_here(found(), "True or False");
  }
  std::vector<int64_t> tuple() {
    std::vector<int64_t> out;
    expect('(');
    while (!take(')')) {
      if (std::ssize(out) == kMostNpyAxes) fail_here("more axes", "at most 32");
      out.push_back(extent());
      if (!take(',') && peek() != ')') fail_here(found(), "',' or ')'");
    }
    return out;
  }
  int64_t extent() {
    constexpr int64_t kMost = int64_t{1} << 60;
    peek();
    const size_t begin = at_;
    int64_t value = 0;
    for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0; ++at_) {
      const int64_t digit = text_[at_] - '0';
      if (value > (kMost - digit) / 10) fail_here("an extent above 2^60", "one that the file holds");
      value = value * 10 + digit;
    }
    if (at_ == begin) fail_here(found(), "a whole number from 0");
    return value;
  }

  const std::string where_, what_, text_;
  const int64_t offset_;
  size_t at_ = 0;
};

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string out;
  for (const int64_t extent : shape) out += concat(out.empty() ? "" : " x ", extent);
  return out.empty() ? "one value without axes" : out;
}

// The number after the letter of the kind: bytes, or characters of 4 bytes.
int64_t width_of(const std::string& descr) {
  constexpr int64_t kMostWidth = int64_t{1} << 30;
  int64_t width = 0;
  for (size_t i = 2; i < descr.size(); ++i) {
    if (std::isdigit(static_cast<unsigned char>(descr[i])) == 0) return 0;
    width = width * 10 + (descr[i] - '0');
    if (width > kMostWidth) return 0;
  }
  return descr.size() > 2 && descr[1] == 'U' ? 4 * width : width;
}

bool is_read(const NpyHeader& h) {
  const bool size = h.width == 1 || h.width == 2 || h.width == 4 || h.width == 8;
  if (h.kind == 'U' || h.kind == 'S') return h.width >= 1;
  if (h.kind == 'b') return h.width == 1;
  return (h.kind == 'u' || h.kind == 'i') ? size : h.kind == 'f' && size && h.width > 1;
}

// What to save instead; each works in numpy.
std::string_view advice(char kind) {
  if (kind == 'O') return "Save a.astype(np.float32) if they are numbers, a.astype(str) if they are names of classes.";
  if (kind == 'c') return "Save np.stack([a.real, a.imag], axis=-1).";
  if (kind == 'M' || kind == 'm') return "Save a.astype(np.int64).";
  if (kind == 'V') return "If they are bfloat16 or another type of a package: a.astype(np.float32), before np.save.";
  return "Save a.astype(np.float32).";
}

// What a file is that is no .npy, after its first bytes: ", but a zip archive. Unpack it first".
std::string what_instead(std::string text, ByteSource& from) {
  constexpr int64_t kProbed = int64_t{1} << 16;
  const size_t begin = text.size();
  text.resize(begin + static_cast<size_t>(kProbed));
  text.resize(begin + static_cast<size_t>(from.read(reinterpret_cast<uint8_t*>(&text[begin]), kProbed)));
  if (const auto kind = known_file_kind(text)) return concat(", but ", kind->name, ". ", kind->way_out);
  if (text.empty() || std::any_of(text.begin(), text.end(), is_control_byte)) return {};
  return ", but a text. numpy.save(NAME, array) writes .npy; numbers in a text are read by the format csv";
}

}  // namespace

int64_t elements_of(const NpyHeader& header) {
  int64_t count = 1;
  for (const int64_t extent : header.shape) count *= extent;
  return count;
}

NpyHeader read_npy_header(std::string_view where, const std::string& what, ByteSource& from) {
  const auto refuse = [&](const auto&... parts) { fail_with(ErrorCode::kData, where, what, ": ", parts...); };
  constexpr std::string_view kMagic = "\x93NUMPY";
  std::array<uint8_t, 12> head{};
  const int64_t begin = from.read(head.data(), 8);
  if (begin < 8 || std::string_view(reinterpret_cast<const char*>(head.data()), kMagic.size()) != kMagic)
    refuse("magic at byte offset 0: got other bytes, expected \\x93NUMPY. Not an .npy file",
           what_instead({reinterpret_cast<const char*>(head.data()), static_cast<size_t>(begin)}, from), '.');
  const int version = head[6];
  if (version < 1 || version > 3 || head[7] != 0)
    refuse("version at byte offset 6: got ", version, '.', int{head[7]}, ", expected 1.0, 2.0 or 3.0.");
  const int64_t size_bytes = version == 1 ? 2 : 4;
  if (from.read(head.data() + 8, size_bytes) < size_bytes)
    refuse("truncated header: expected its length at byte offset 8.");
  int64_t length = 0;
  for (int64_t i = size_bytes - 1; i >= 0; --i) length = (length << 8) | head[static_cast<size_t>(8 + i)];
  NpyHeader out;
  out.bytes = 8 + size_bytes + length;
  if (length > kMostHeaderBytes || out.bytes > from.size())
    refuse("length of the header at byte offset 8: got ", length, ", expected at most ",
           std::min(kMostHeaderBytes, from.size() - 8 - size_bytes), '.');
  std::string text(static_cast<size_t>(length), '\0');
  if (from.read(reinterpret_cast<uint8_t*>(text.data()), length) < length) refuse("truncated header.");
  const HeaderText::Fields fields = HeaderText(where, what, std::move(text), 8 + size_bytes).read();

  out.descr = fields.descr;
  const char order = fields.descr.empty() ? '\0' : fields.descr[0];
  if (fields.descr.size() >= 2) out.kind = fields.descr[1];
  out.width = width_of(fields.descr);
  const bool ordered = order == '<' || order == '>' || order == '|' || order == '=';
  if (!ordered || !is_read(out))
    refuse("descr: got '", out.descr, "'", out.kind == 'O' ? ": Python objects, which are never read" : "",
           ", expected numbers, bool or texts, such as '|u1', '<f4' or '<U8'. ", advice(out.kind));
  out.big = order == '>' && out.width > 1 && out.kind != 'S';
  out.shape = fields.shape;
  out.fortran = fields.fortran && out.shape.size() > 1;
  if (std::find(out.shape.begin(), out.shape.end(), 0) != out.shape.end())
    refuse("shape: got ", shape_text(out.shape), ", expected no axis of 0. The set is empty.");
  const int64_t room = (from.size() - out.bytes) / out.width;
  int64_t total = 1;
  for (const int64_t extent : out.shape) {
    if (total > room / extent)
      refuse("shape: got ", shape_text(out.shape), " elements of ", out.width, " bytes, expected at most ", room,
             " elements, which is all that follows the header. The header is damaged or the file truncated.");
    total *= extent;
  }
  if (out.bytes + total * out.width != from.size())
    refuse("got ", from.size() - out.bytes, " bytes after the header, expected ", total * out.width, " for ",
           shape_text(out.shape), " elements of ", out.width, " bytes.");
  return out;
}

}  // namespace bitgrad::data

std::string bitgrad::npy_header_bytes(const std::string& descr, const std::string& shape) {
  std::string text = concat("{'descr': '", descr, "', 'fortran_order': False, 'shape': ", shape, ", }");
  constexpr size_t kFixed = 10, kLine = 64;
  while ((kFixed + text.size() + 1) % kLine != 0) text += ' ';
  text += '\n';
  std::string out("\x93NUMPY\x01\x00", 8);
  out += static_cast<char>(text.size() & 0xFF);
  out += static_cast<char>(text.size() >> 8);
  return out + text;
}
