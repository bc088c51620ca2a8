#include "data/npy_array.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "bitgrad/base/log.h"
#include "bitgrad/base/text.h"
#include "bitgrad/dtype/bf16.h"

namespace bitgrad::data {
namespace {

constexpr int64_t kCharacter = 4;  // bytes of a character of kind U

uint64_t bits_at(const NpyArray& a, int64_t i) {
  uint64_t out = 0;
  std::memcpy(&out, a.raw.data() + i * a.header.width, static_cast<size_t>(a.header.width));
  return out;
}

void swap_bytes(NpyArray& a) {
  const int64_t each = a.header.kind == 'U' ? kCharacter : a.header.width;
  for (uint8_t* at = a.raw.data(); at < a.raw.data() + a.raw.size(); at += each) std::reverse(at, at + each);
}

// Index, in the file, of row-major element i.
int64_t place_of(const NpyHeader& header, int64_t i) {
  if (!header.fortran) return i;
  int64_t place = 0, step = elements_of(header);
  for (size_t axis = header.shape.size(); axis-- > 0; i /= header.shape[axis]) {
    step /= header.shape[axis];
    place += i % header.shape[axis] * step;
  }
  return place;
}

void to_rows(NpyArray& a) {
  TrackedBytes rows(a.raw.size(), MemoryKind::kDataset);
  const auto width = static_cast<size_t>(a.header.width);
  for (int64_t i = 0; i < a.elements(); ++i)
    std::memcpy(rows.data() + i * a.header.width, a.raw.data() + place_of(a.header, i) * a.header.width, width);
  a.raw.swap(rows);
}

void append_utf8(std::string& out, uint32_t c) {
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xC0 | (c >> 6));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12));
    put(0x80 | ((c >> 6) & 0x3F));
  } else {
    put(0xF0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3F));
    put(0x80 | ((c >> 6) & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

}  // namespace

int64_t NpyArray::elements() const { return elements_of(header); }

std::string NpyArray::offset_of(int64_t i) const {
  return concat("at byte offset ", header.bytes + place_of(header, i) * header.width);
}

std::optional<int64_t> NpyArray::integer_at(int64_t i) const {
  const uint64_t bits = bits_at(*this, i);
  if (header.kind == 'f') {
    const double value = number_at(i);
    const bool exact = std::fabs(value) < 0x1p63 && value == std::floor(value);
    return exact ? std::optional(static_cast<int64_t>(value)) : std::nullopt;
  }
  const int shift = static_cast<int>(64 - 8 * header.width);
  if (header.kind == 'i') return static_cast<int64_t>(bits << shift) >> shift;
  if (bits > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
  return static_cast<int64_t>(bits);
}

double NpyArray::number_at(int64_t i) const {
  const uint64_t bits = bits_at(*this, i);
  if (header.kind == 'f' && header.width == 8) return std::bit_cast<double>(bits);
  if (header.kind == 'f' && header.width == 4)
    return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  if (header.kind == 'f') return static_cast<double>(fp16_to_float(static_cast<uint16_t>(bits)));
  const int shift = static_cast<int>(64 - 8 * header.width);
  return header.kind == 'i' ? static_cast<double>(static_cast<int64_t>(bits << shift) >> shift)
                            : static_cast<double>(bits);
}

TrackedBytes NpyArray::floats(MemoryKind kind) const {
  TrackedBytes out(elements() * int64_t{sizeof(float)}, kind);
  auto* const to = reinterpret_cast<float*>(out.data());
  const int64_t each = std::max<int64_t>(1, elements() / std::max<int64_t>(1, header.count()));
  const bool wide = whole() && header.width == 8;  // not by way of double: one rounding
  for (int64_t i = 0; i < elements(); ++i) {
    const uint64_t bits = wide ? bits_at(*this, i) : 0;
    to[i] = !wide                ? static_cast<float>(number_at(i))
            : header.kind == 'i' ? static_cast<float>(static_cast<int64_t>(bits))
                                 : static_cast<float>(bits);
    if (!std::isfinite(to[i]))
      refuse("sample ", i / each, ", value ", i % each, ' ', offset_of(i), ": got ", number_at(i),
             ", expected a finite fp32.");
  }
  return out;
}

std::string NpyArray::text_at(int64_t i) const {
  const uint8_t* const from = raw.data() + i * header.width;
  std::string out;
  if (header.kind == 'S') {
    out.assign(reinterpret_cast<const char*>(from), static_cast<size_t>(header.width));
  } else {
    for (int64_t at = 0; at < header.width; at += kCharacter) {
      uint32_t c = 0;
      std::memcpy(&c, from + at, sizeof c);
      constexpr uint32_t kMost = 0x10FFFF, kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;
      if (c > kMost || (c >= kFirstSurrogate && c <= kLastSurrogate))
        refuse("text ", i, ' ', offset_of(i), ": got a character of code ", c, ", which Unicode does not have.");
      append_utf8(out, c);
    }
  }
  out.resize(out.find_last_not_of('\0') + 1);
  for (std::string_view rest = out; !rest.empty(); rest.remove_prefix(utf8_bytes(rest)))
    if (utf8_bytes(rest) == 0) refuse("text ", i, ' ', offset_of(i), ": got '", printable(out), "', expected UTF-8.");
  return out;
}

NpyArray read_npy_array(std::string_view where, const std::string& what, ByteSource& from, NpyHeader header) {
  NpyArray out{std::string(where), what, std::move(header), {}};
  out.raw = TrackedBytes(out.elements() * out.header.width, MemoryKind::kDataset);
  const int64_t got = from.read(out.raw.data(), out.raw.size());
  if (got < out.raw.size())
    out.refuse("truncated: content ends at byte offset ", out.header.bytes + got, ", expected ", out.raw.size() - got,
               " more bytes.");
  if (out.header.big) swap_bytes(out);
  if (out.header.fortran) to_rows(out);
  return out;
}

namespace {

// Whole numbers 0 .. 255 of pictures, which only uint8 says to be pixels.
void warn_of_pixels(const NpyArray& images) {
  if (!images.whole() || images.bytes() || images.header.kind == 'b' || images.header.shape.size() < 3) return;
  constexpr int64_t kBrightest = 255, kMostOfClasses = 15;
  int64_t brightest = 0;
  for (int64_t i = 0; i < images.elements(); ++i) {
    const std::optional<int64_t> value = images.integer_at(i);
    if (!value || *value < 0 || *value > kBrightest) return;
    brightest = std::max(brightest, *value);
  }
  if (brightest > kMostOfClasses)
    log(LogLevel::kWarning, concat(images.what, ": '", images.header.descr,
                                   "' of 0 .. 255, read as values. If they are pixels, save a.astype(np.uint8): they "
                                   "are then divided by 255"));
}

// Different whole numbers of a feature that are one number in fp32, such as ids above 2^24.
void warn_of_merged(const NpyArray& samples) {
  constexpr int64_t kExact = int64_t{1} << 24;  // fp32 holds every whole number up to here
  constexpr int kNarrow = 4;
  if (samples.header.width < kNarrow || (samples.header.kind == 'f' && samples.header.width == kNarrow)) return;
  const int64_t each = samples.elements() / std::max<int64_t>(1, samples.header.count());
  std::set<int64_t> inexact;  // features
  for (int64_t i = 0; i < samples.elements(); ++i)
    if (const auto value = samples.integer_at(i); value && (*value > kExact || *value < -kExact))
      inexact.insert(i % each);
  for (const int64_t feature : inexact) {
    std::set<int64_t> values;
    for (int64_t i = feature; i < samples.elements(); i += each)
      if (const auto value = samples.integer_at(i)) values.insert(*value);
    int64_t merged = 0, first = 0, second = 0, last = *values.begin();
    for (const int64_t value : values) {
      if (value != last && static_cast<float>(value) == static_cast<float>(last) && merged++ == 0) {
        first = last;
        second = value;
      }
      last = value;
    }
    if (merged == 0) continue;
    log(LogLevel::kWarning,
        concat(samples.what, ": value ", feature, " of each sample: ", merged, " of ", values.size(),
               " different values are equal to their neighbor in fp32, such as ", first, " and ", second,
               ": an id or a time? Leave it out, or subtract what is common"));
    return;  // once for an array
  }
}

// Numbers that are not 0 and become 0 in fp32.
void warn_of_vanishing(const NpyArray& samples) {
  constexpr int kDouble = 8;
  if (samples.header.kind != 'f' || samples.header.width != kDouble) return;
  int64_t count = 0, first = 0;
  for (int64_t i = 0; i < samples.elements(); ++i)
    if (const double x = samples.number_at(i); x != 0 && static_cast<float>(x) == 0 && count++ == 0) first = i;
  if (count > 0)
    log(LogLevel::kWarning, concat(samples.what, ": ", count, " of ", samples.elements(),
                                   " values are too small for fp32 and become 0, such as ", samples.number_at(first),
                                   ". Save them in a larger unit"));
}

}  // namespace

void warn_of_values(const NpyArray& samples) {
  warn_of_pixels(samples);
  warn_of_merged(samples);
  warn_of_vanishing(samples);
}

}  // namespace bitgrad::data
