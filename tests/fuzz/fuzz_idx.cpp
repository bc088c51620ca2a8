// Two idx files: byte 0 says which of them are packed before they are read (bit 0: labels, bit 1: images), bytes 1 and
// 2 how long the labels are; labels and images follow. What is accepted is read to the last sample.
#include <zlib.h>

#include <algorithm>
#include <cmath>

#include "bitgrad/data/dataset.h"
#include "fuzz/fuzz.h"

using namespace bitgrad;

namespace {

std::vector<uint8_t> gzip(const std::vector<uint8_t>& content) {
  z_stream z{};
  fuzz::expect(deflateInit2(&z, 1, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK, "zlib starts");
  std::vector<uint8_t> out(deflateBound(&z, content.size()) + 64);
  z.next_in = const_cast<Bytef*>(content.data());
  z.avail_in = static_cast<uInt>(content.size());
  z.next_out = out.data();
  z.avail_out = static_cast<uInt>(out.size());
  fuzz::expect(deflate(&z, Z_FINISH) == Z_STREAM_END, "zlib packs");
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const size_t length = std::min<size_t>(data[1] | (size_t{data[2]} << 8), size - 3);
  const std::vector<uint8_t> labels(data + 3, data + 3 + length), images(data + 3 + length, data + size);
  fuzz::MemoryFiles disk;
  disk.files["l"] = (data[0] & 1) != 0 ? gzip(labels) : labels;
  disk.files["i"] = (data[0] & 2) != 0 ? gzip(images) : images;
  DatasetSpec spec;
  spec.format = "idx";
  spec.labels = "l";
  spec.images = "i";
  std::unique_ptr<Dataset> set;
  if (!fuzz::takes([&] { set = make_dataset(spec); })) return 0;
  std::vector<float> x(static_cast<size_t>(set->features()));
  for (int64_t i = 0; i < set->size(); ++i) {
    int32_t label = -1;
    set->sample(i, x.data(), &label);
    fuzz::expect(label >= 0 && label < set->classes(), "a label is one of the classes");
    if (set->stored().form == StoredAs::kUint8)
      fuzz::expect(std::all_of(x.begin(), x.end(), [](float v) { return v >= 0 && v <= 1; }), "pixels lie in [0, 1]");
  }
  return 0;
}
