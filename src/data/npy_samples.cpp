// Samples from a single .npy file, without targets.
#include <bit>
#include <cmath>
#include <limits>

#include "bitgrad/base/error.h"
#include "bitgrad/data/samples.h"
#include "data/npy_header.h"

namespace bitgrad {
namespace {

constexpr std::string_view kNpy = "data.npy";

struct NpyElements {
  const std::string& path;
  const data::NpyHeader& header;
  int64_t count;

  [[noreturn]] void refuse(int64_t i, const auto& value, std::string_view expected) const {
    const int64_t each = count / header.shape[0];
    fail_with(ErrorCode::kData, kNpy, path, ": sample ", i / each, ", value ", i % each, " at byte offset ",
              header.bytes + i * header.width, ": got ", value, ", expected ", expected, '.');
  }
  // Little-endian: the header has been checked.
  uint64_t bits(const uint8_t* from, int64_t i) const {
    uint64_t out = 0;
    for (int64_t b = header.width - 1; b >= 0; --b) out = (out << 8) | from[i * header.width + b];
    return out;
  }
  void whole(const uint8_t* from, int32_t* to) const {
    const int shift = static_cast<int>(64 - 8 * header.width);
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t raw = bits(from, i);
      const auto value = static_cast<int64_t>(raw << shift) >> shift;
      const bool fits = header.kind == 'u' ? raw <= uint64_t{std::numeric_limits<int32_t>::max()}
                                           : value == static_cast<int32_t>(value);
      if (!fits && header.kind == 'u') refuse(i, raw, "an id of int32");
      if (!fits) refuse(i, value, "an id of int32");
      to[i] = static_cast<int32_t>(header.kind == 'u' ? static_cast<int64_t>(raw) : value);
    }
  }
  void values(const uint8_t* from, float* to) const {
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t raw = bits(from, i);
      const double value = header.width == 4 ? static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(raw)))
                                             : std::bit_cast<double>(raw);
      to[i] = static_cast<float>(value);
      if (!std::isfinite(to[i])) refuse(i, value, "a finite fp32");
    }
  }
};

}  // namespace

Samples read_npy_samples(const std::string& path, InputFile& file) {
  const std::unique_ptr<data::ByteSource> source = data::file_source(file);
  const data::NpyHeader header = data::read_npy_header(kNpy, path, *source);
  const auto refuse = [&](const auto&... parts) { fail_with(ErrorCode::kData, kNpy, path, ": ", parts...); };
  if (header.shape.empty()) refuse("shape: got one value without axes, expected [n, ...].");
  const bool floats = header.kind == 'f', bytes = header.kind == 'u' && header.width == 1;
  if (floats && header.width != 4 && header.width != 8)
    refuse("descr: got '", header.descr, "', expected '<f4', '<f8', '|u1' or integers. Save a.astype(np.float32).");
  std::vector<int64_t> inner(header.shape.begin() + 1, header.shape.end());
  if (inner.empty()) inner = {1};
  const int64_t elements = Shape(header.shape).numel();
  TrackedBytes raw(elements * header.width, MemoryKind::kDataset);
  const int64_t got = source->read(raw.data(), raw.size());
  if (got < raw.size())
    refuse("truncated: content ends at byte offset ", header.bytes + got, ", expected ", raw.size() - got,
           " more bytes.");
  Samples out{path, StoredAs::kUint8, Shape(std::move(inner)), header.shape[0], {}};
  if (bytes) {
    out.bytes = std::move(raw);
    return out;
  }
  const NpyElements from{path, header, elements};
  out.stored = floats ? StoredAs::kFloat : StoredAs::kInt32;
  out.bytes = TrackedBytes(elements * 4, MemoryKind::kDataset);
  if (floats)
    from.values(raw.data(), reinterpret_cast<float*>(out.bytes.data()));
  else
    from.whole(raw.data(), reinterpret_cast<int32_t*>(out.bytes.data()));
  return out;
}

}  // namespace bitgrad
