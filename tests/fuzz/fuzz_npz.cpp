// An archive of numpy. An input that begins with 'R': the archive as it is. Else byte 0 says how it is made (bit 0:
// deflated, bit 1: sizes in the 64-bit records), byte 1 how many bytes of it are changed (modulo 8), each named by
// three bytes that follow: how far from the end, and what comes there. Then the members: one byte that chooses the
// name, two of the length, the content. Sizes and checksums are right but for what was changed, so that whatever the
// contents say is read. What is accepted is read to the last sample.
#include <zlib.h>

#include <algorithm>
#include <cmath>

#include "bitgrad/data/dataset.h"
#include "bitgrad/data/npz.h"
#include "fuzz/fuzz.h"

using namespace bitgrad;

namespace {

using Bytes = std::vector<uint8_t>;

void put(Bytes& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<uint8_t>(value >> (8 * i)));
}

// Without the header of zlib, as archives have it.
Bytes deflated(const Bytes& content) {
  z_stream z{};
  fuzz::expect(deflateInit2(&z, 1, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK, "zlib starts");
  Bytes out(deflateBound(&z, content.size()) + 64);
  z.next_in = const_cast<Bytef*>(content.data());
  z.avail_in = static_cast<uInt>(content.size());
  z.next_out = out.data();
  z.avail_out = static_cast<uInt>(out.size());
  fuzz::expect(deflate(&z, Z_FINISH) == Z_STREAM_END, "zlib packs");
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

// What both headers of a member share: method to size, then the lengths of name and extra field.
void put_common(Bytes& out, bool deflate, uint32_t crc, uint64_t packed, uint64_t size, size_t name, int extra) {
  put(out, deflate ? 8 : 0, 2);
  put(out, 0, 4);
  put(out, crc, 4);
  put(out, packed, 4);
  put(out, size, 4);
  put(out, name, 2);
  put(out, static_cast<uint64_t>(extra), 2);
}

struct Zip {
  bool deflate, wide;
  Bytes out = {}, directory = {};
  uint64_t members = 0;

  void add(const std::string& name, const Bytes& content) {
    const Bytes packed = deflate ? deflated(content) : content;
    const auto crc = static_cast<uint32_t>(crc32(0, content.data(), static_cast<uInt>(content.size())));
    const uint64_t at = out.size(), in_64 = 0xFFFFFFFF;
    put(out, 0x04034b50, 4);
    put(out, 45, 4);
    put_common(out, deflate, crc, packed.size(), content.size(), name.size(), 0);
    out.insert(out.end(), name.begin(), name.end());
    out.insert(out.end(), packed.begin(), packed.end());
    put(directory, 0x02014b50, 4);
    put(directory, 45, 4);
    put(directory, 0, 2);
    put_common(directory, deflate, crc, wide ? in_64 : packed.size(), wide ? in_64 : content.size(), name.size(),
               wide ? 28 : 0);
    put(directory, 0, 8);
    put(directory, 0, 2);
    put(directory, wide ? in_64 : at, 4);
    directory.insert(directory.end(), name.begin(), name.end());
    ++members;
    if (!wide) return;
    put(directory, 1, 2);
    put(directory, 24, 2);
    for (const uint64_t value : {uint64_t{content.size()}, uint64_t{packed.size()}, at}) put(directory, value, 8);
  }

  Bytes finish() {
    const uint64_t at = out.size(), in_64 = 0xFFFFFFFF;
    out.insert(out.end(), directory.begin(), directory.end());
    if (wide) {
      const uint64_t end = out.size();
      put(out, 0x06064b50, 4);
      put(out, 44, 8);
      put(out, 45, 4);
      put(out, 0, 8);
      for (const uint64_t value : {members, members, uint64_t{directory.size()}, at}) put(out, value, 8);
      put(out, 0x07064b50, 4);
      put(out, 0, 4);
      put(out, end, 8);
      put(out, 1, 4);
    }
    put(out, 0x06054b50, 4);
    put(out, 0, 4);
    put(out, wide ? 0xFFFF : members, 2);
    put(out, wide ? 0xFFFF : members, 2);
    put(out, wide ? in_64 : directory.size(), 4);
    put(out, wide ? in_64 : at, 4);
    put(out, 0, 2);
    return out;
  }
};

Bytes made_archive(const uint8_t* data, size_t size) {
  Zip zip{(data[0] & 1) != 0, (data[0] & 2) != 0};
  const size_t changes = data[1] % 8;
  size_t at = std::min(2 + changes * 3, size);
  constexpr const char* kNames[] = {"images.npy", "labels.npy", "x.npy", "images"};
  while (at + 3 <= size) {
    const std::string name = kNames[data[at] % 4];
    const size_t length = std::min<size_t>(data[at + 1] | (size_t{data[at + 2]} << 8), size - at - 3);
    zip.add(name, Bytes(data + at + 3, data + at + 3 + length));
    at += 3 + length;
  }
  Bytes archive = zip.finish();
  for (size_t i = 0; i < changes && 2 + i * 3 + 3 <= size; ++i) {
    const uint8_t* const change = data + 2 + i * 3;
    const size_t back = change[0] | (size_t{change[1]} << 8);
    if (back < archive.size()) archive[archive.size() - 1 - back] = change[2];
  }
  return archive;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  fuzz::MemoryFiles disk;
  disk.files["a.npz"] = data[0] == 'R' ? Bytes(data + 1, data + size) : made_archive(data, size);
  // Its arrays one by one, as weights are read.
  std::unique_ptr<NpzFile> arrays;
  if (fuzz::takes([&] { arrays = std::make_unique<NpzFile>("a.npz"); }))
    for (const NpzEntry& entry : arrays->entries())
      if (entry.floats)
        fuzz::takes([&] { fuzz::expect(arrays->floats(entry.name).shape() == entry.shape, "its shape"); });
  DatasetSpec spec;
  spec.format = "npz";
  spec.file = "a.npz";
  std::unique_ptr<Dataset> set;
  if (!fuzz::takes([&] { set = make_dataset(spec); })) return 0;
  std::vector<float> x(static_cast<size_t>(set->features()));
  std::vector<int32_t> labels(static_cast<size_t>(set->target_form().shape.numel()));
  for (int64_t i = 0; i < set->size(); ++i) {
    set->example(i, x.data(), labels.data());
    for (const int32_t label : labels)
      fuzz::expect((label >= 0 && label < set->classes()) || (labels.size() > 1 && label == -100),
                   "a label is one of the classes");
    if (set->stored().form == StoredAs::kUint8)
      fuzz::expect(std::all_of(x.begin(), x.end(), [](float v) { return v >= 0 && v <= 1; }), "pixels lie in [0, 1]");
  }
  return 0;
}
