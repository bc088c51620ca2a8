#include <algorithm>
#include <map>
#include <numeric>

#include "bitgrad/base/file.h"
#include "bitgrad/data/dataset.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/idx_bytes.h"

namespace bitgrad {
namespace {

using test::contains;
using test::error_code_of;
using test::error_of;
using test::gzip;
using test::idx_header;
using Bytes = std::vector<uint8_t>;

constexpr int kData = static_cast<int>(ErrorCode::kData);
constexpr int kUsage = static_cast<int>(ErrorCode::kUsage);

// Files in memory, in place of the disk while it lives.
class MemoryFiles final : public FileSystem {
 public:
  MemoryFiles() : old_(set_file_system(this)) {}
  ~MemoryFiles() override { set_file_system(old_); }
  std::map<std::string, Bytes> files;

  Bytes read(const std::string& path) override { return files.at(path); }
  bool exists(const std::string& path) override { return files.contains(path) || is_directory(path); }
  bool is_directory(const std::string& path) override { return path == "root/folder"; }
  std::unique_ptr<OutputFile> create(const std::string&) override { return refuse<std::unique_ptr<OutputFile>>(); }
  std::unique_ptr<OutputFile> open_append(const std::string&) override { return refuse<std::unique_ptr<OutputFile>>(); }
  std::vector<std::string> list(const std::string&) override { return refuse<std::vector<std::string>>(); }
  void make_directories(const std::string&) override { refuse<int>(); }
  void rename(const std::string&, const std::string&) override { refuse<int>(); }
  void remove(const std::string&) override { refuse<int>(); }
  void sync_directory(const std::string&) override { refuse<int>(); }

 private:
  template <typename Result>
  Result refuse() {
    throw std::logic_error("a data set only reads");
  }
  FileSystem* old_;
};

Bytes idx(const std::vector<uint32_t>& dims, const Bytes& elements, uint8_t type = 0x08) {
  Bytes out = idx_header(dims, type);
  out.insert(out.end(), elements.begin(), elements.end());
  return out;
}

// Three images of 2 x 4 and their labels.
Bytes image_elements() {
  Bytes pixels(24);
  std::iota(pixels.begin(), pixels.end(), uint8_t{7});
  return pixels;
}
Bytes good_images() { return idx({3, 2, 4}, image_elements()); }
Bytes good_labels() { return idx({3}, {9, 0, 4}); }

DatasetSpec spec_of() {
  DatasetSpec spec;
  spec.format = "idx";
  spec.root = "root";
  spec.images = "i";
  spec.labels = "l";
  spec.affine = {255.0f, 0.0f};
  return spec;
}

// Labels, then pixels, of what is made from the two files.
Bytes read_back(const DatasetSpec& spec = spec_of()) {
  const std::unique_ptr<Dataset> set = make_dataset(spec);
  const size_t features = static_cast<size_t>(set->features());
  Bytes labels;
  Bytes pixels;
  std::vector<float> x(features);
  for (int64_t i = 0; i < set->size(); ++i) {
    int32_t label = -1;
    set->sample(i, x.data(), &label);
    labels.push_back(static_cast<uint8_t>(label));
    for (const float v : x) pixels.push_back(static_cast<uint8_t>(v + 0.5f));
  }
  labels.insert(labels.end(), pixels.begin(), pixels.end());
  return labels;
}

Bytes good_content() {
  Bytes content{9, 0, 4};
  const Bytes pixels = image_elements();
  content.insert(content.end(), pixels.begin(), pixels.end());
  return content;
}

// The message for these two files; it must be a data error.
std::string message(const Bytes& images, const Bytes& labels) {
  MemoryFiles disk;
  disk.files = {{"root/i", images}, {"root/l", labels}};
  CHECK(error_code_of([] { make_dataset(spec_of()); }) == kData);
  return error_of([] { make_dataset(spec_of()); });
}

TEST_CASE("idx files are read plain and gzipped, by content and not by name") {
  const int64_t before = memory_now()[MemoryKind::kDataset];
  for (const bool pack_images : {false, true}) {
    for (const bool pack_labels : {false, true}) {
      MemoryFiles disk;
      disk.files = {{"root/i", pack_images ? gzip(good_images()) : good_images()},
                    {"root/l", pack_labels ? gzip(good_labels()) : good_labels()}};
      const std::unique_ptr<Dataset> set = make_dataset(spec_of());
      CHECK(set->size() == 3);
      CHECK(set->sample_shape() == std::vector<int64_t>{2, 4});
      CHECK(set->features() == 8);
      CHECK(set->classes() == 10);
      CHECK(set->memory_bytes() == 27);
      CHECK(set->name() == "root/i");
      CHECK(memory_now()[MemoryKind::kDataset] == before + 27);
      CHECK(read_back() == good_content());
    }
  }
  CHECK(memory_now()[MemoryKind::kDataset] == before);
}

TEST_CASE("Paths are relative to data.root, absolute ones are unchanged") {
  MemoryFiles disk;
  disk.files = {{"/abs/i", good_images()}, {"root/l", good_labels()}, {"i", good_images()}, {"l", good_labels()}};
  DatasetSpec spec = spec_of();
  spec.images = "/abs/i";
  CHECK(read_back(spec) == good_content());
  spec.root = "root/";
  CHECK(read_back(spec) == good_content());
  spec = spec_of();
  spec.root = "";
  CHECK(read_back(spec) == good_content());
}

TEST_CASE("A gzip file of several members is one content") {
  const Bytes images = good_images();
  Bytes joined;
  for (const auto& [begin, end] :
       std::vector<std::pair<int, int>>{{0, 3}, {3, 3}, {3, 20}, {20, static_cast<int>(images.size())}}) {
    const Bytes member = gzip(Bytes(images.begin() + begin, images.begin() + end));
    joined.insert(joined.end(), member.begin(), member.end());
  }
  MemoryFiles disk;
  disk.files = {{"root/i", joined}, {"root/l", good_labels()}};
  CHECK(read_back() == good_content());
}

TEST_CASE("A missing file names its path, data.root and the same name with or without gz") {
  MemoryFiles disk;
  disk.files = {{"root/l.gz", good_labels()}, {"root/i", good_images()}};
  DatasetSpec spec = spec_of();
  CHECK(error_code_of([&] { make_dataset(spec); }) == kData);
  const std::string text = error_of([&] { make_dataset(spec); });
  CHECK(contains(text, "labels 'root/l': no such file"));
  CHECK(contains(text, "looked up under data.root = 'root'"));
  CHECK(contains(text, "There is 'root/l.gz'."));
  spec.labels = "l.gz";
  spec.images = "i.gz";
  CHECK(contains(error_of([&] { make_dataset(spec); }), "There is 'root/i'."));
  spec.images = "folder";
  CHECK(contains(error_of([&] { make_dataset(spec); }), "got a folder, expected an idx file"));
  CHECK(error_code_of([&] { make_dataset(spec); }) == kData);
}

TEST_CASE("Each field of the header that is wrong is named with path, offset, value and what is allowed") {
  const Bytes pixels = image_elements();
  Bytes bad = good_images();
  bad[1] = 7;
  CHECK(contains(message(bad, good_labels()), "root/i: magic at offset 0: got 0x0007, expected 0x0000"));
  CHECK(contains(message(idx({3, 2, 4}, pixels, 0x0A), good_labels()),
                 "root/i: element type at offset 2: got 0x0a, expected 0x08 (uint8) or 0x09 (int8) or 0x0b (int16) or "
                 "0x0c (int32) or 0x0d (float32) or 0x0e (float64)"));
  CHECK(contains(message(idx({3, 2, 4}, pixels, 0x55), good_labels()), "got 0x55, expected 0x08"));
  CHECK(contains(message(idx({3, 8}, pixels), good_labels()), "dimensions at offset 3: got 2, expected 3 (images)"));
  CHECK(contains(message(good_labels(), good_images()), "root/l: dimensions at offset 3: got 3, expected 1 (labels)"));
  CHECK(contains(message(good_labels(), good_images()), "exchanged?"));
  CHECK(contains(message(idx({0, 2, 4}, {}), good_labels()), "dimension 0 at offset 4: got 0, expected 1 or more"));
  CHECK(contains(message(idx({3, 2, 0}, {}), good_labels()), "dimension 2 at offset 12: got 0"));
  CHECK(contains(message(good_images(), idx({0}, {})), "root/l: dimension 0 at offset 4: got 0"));
  const Bytes inf{0, 0, 0, 0, 0x7F, 0x80, 0, 0, 0, 0, 0, 0};  // big-endian: 0, Inf, 0
  CHECK(contains(message(idx({3, 1}, inf, 0x0D), good_labels()),
                 "root/i: sample 1, value 0 at offset 16: got inf, expected a finite fp32."));
  CHECK(contains(message({}, good_labels()), "root/i: truncated header: got 0 bytes, expected 16"));
  CHECK(contains(message(good_images(), {}), "root/l: truncated header: got 0 bytes, expected 8"));
  CHECK(contains(message(gzip({}), good_labels()), "root/i: truncated header: got 0 bytes"));
}

TEST_CASE("Counts that differ and labels that are too large are named") {
  CHECK(contains(message(good_images(), idx({2}, {1, 2})),
                 "images at offset 4: got 3, expected 2, the number of labels in 'root/l'"));
  CHECK(
      contains(message(good_images(), idx({3}, {1, 2, 10})), "root/l: label 2 at offset 10: got 10, expected 0 .. 9"));
  MemoryFiles disk;
  disk.files = {{"root/i", good_images()}, {"root/l", idx({3}, {255, 0, 4})}};
  DatasetSpec spec = spec_of();
  spec.classes = 256;
  CHECK(read_back(spec)[0] == 255);
  spec.classes = 255;
  CHECK(error_code_of([&] { make_dataset(spec); }) == kData);
  for (const int64_t classes : {int64_t{-1}, int64_t{257}}) {
    spec.classes = classes;
    CHECK(error_code_of([&] { make_dataset(spec); }) == kUsage);
  }
}

TEST_CASE("Sizes that the file cannot hold are refused before memory is asked for") {
  const Bytes pixels = image_elements();
  const std::vector<std::vector<uint32_t>> absurd{{0xFFFFFFFFu, 0xFFFFFFFFu, 0xFFFFFFFFu},
                                                  {0x80000000u, 0x80000000u, 4},
                                                  {0xFFFFFFFFu, 1, 1},
                                                  {3, 0x40000000u, 0x40000000u},
                                                  {3, 2, 90000}};
  for (const std::vector<uint32_t>& dims : absurd) {
    for (const bool packed : {false, true}) {
      reset_memory_peaks();
      const int64_t before = memory_now().total;
      const Bytes file = idx(dims, pixels);
      const std::string text = message(packed ? gzip(file) : file, good_labels());
      CHECK(contains(text, "root/i: elements: got "));
      CHECK(contains(text, "header at offset 4, expected at most "));
      CHECK(memory_at_peak().total - before <= 64);
    }
  }
  // Possible for deflate, but not what the stream holds.
  reset_memory_peaks();
  const int64_t before = memory_now().total;
  CHECK(contains(message(gzip(idx({3, 100, 100}, pixels)), good_labels()),
                 "root/i: truncated: content ends at offset 40"));
  CHECK(memory_at_peak().total - before <= 64);
}

TEST_CASE("Content that is longer than the header says is refused, plain and gzipped") {
  Bytes more = good_images();
  more.push_back(0);
  CHECK(contains(message(more, good_labels()), "root/i: trailing bytes: got more content at offset 40"));
  CHECK(contains(message(gzip(more), good_labels()), "root/i: trailing bytes: got more content at offset 40"));
  more.insert(more.end(), 100000, 0);
  CHECK(contains(message(gzip(more), good_labels()), "root/i: trailing bytes: got more content at offset 40"));
  Bytes after = gzip(good_images());
  const std::string end = std::to_string(after.size());
  after.push_back(0);
  CHECK(contains(message(after, good_labels()), "root/i: bytes after the gzip stream: got 1 at offset " + end));
}

// n zeros behind `head`, packed, a piece at a time.
Bytes packed_zeros(const Bytes& head, int64_t n) {
  z_stream z{};
  REQUIRE(deflateInit2(&z, 1, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  Bytes out, piece(1 << 20), zeros(1 << 20);
  const auto feed = [&](const Bytes& content, size_t count, int flush) {
    z.next_in = const_cast<Bytef*>(content.data());
    z.avail_in = static_cast<uInt>(count);
    do {
      z.next_out = piece.data();
      z.avail_out = static_cast<uInt>(piece.size());
      deflate(&z, flush);
      out.insert(out.end(), piece.data(), z.next_out);
    } while (z.avail_out == 0);
  };
  feed(head, head.size(), Z_NO_FLUSH);
  for (; n > 0; n -= std::ssize(zeros)) feed(zeros, static_cast<size_t>(std::min(n, std::ssize(zeros))), Z_NO_FLUSH);
  feed(zeros, 0, Z_FINISH);
  deflateEnd(&z);
  return out;
}

TEST_CASE("A small gzip file that expands too far is refused before allocation, for any size in its header") {
  constexpr int64_t kSwollen = int64_t{256} << 20;
  const Bytes right = packed_zeros(idx({3, 1 << 14, 1 << 14}, {}), 3 * (kSwollen / 3 + 1));  // not of the exact length
  reset_memory_peaks();
  const int64_t before = memory_now().total;
  const std::string promised = message(right, good_labels());
  CHECK(contains(promised, "root/i: elements: got 3 x 16384 x 16384 in the header at offset 4, expected at most "));
  CHECK(contains(promised, "may inflate to (100 times its length, or 16 MiB)"));
  CHECK(contains(promised, "unpack it first"));
  const Bytes hidden = packed_zeros(good_images(), kSwollen);
  CHECK(contains(message(hidden, good_labels()), "root/i: trailing bytes: got more content at offset 40"));
  CHECK(memory_at_peak().total - before <= 64);
  // Up to 16 MiB any ratio is read.
  MemoryFiles disk;
  disk.files = {{"root/i", packed_zeros(idx({3, 2048, 2048}, {}), 3 * 2048 * 2048)}, {"root/l", good_labels()}};
  CHECK(make_dataset(spec_of())->size() == 3);
}

TEST_CASE("Counts of both headers are compared before the elements of either are read") {
  reset_memory_peaks();
  const int64_t before = memory_now().total;
  const Bytes labels = idx({1 << 20}, Bytes(1 << 20, 200));  // labels out of range too
  CHECK(contains(message(good_images(), labels), "images at offset 4: got 3, expected 1048576"));
  CHECK(memory_at_peak().total == before);
}

TEST_CASE("A file cut at any length is one data error") {
  for (const bool labels : {false, true}) {
    const Bytes plain = labels ? good_labels() : good_images();
    for (const Bytes& whole : {plain, gzip(plain)}) {
      for (size_t length = 0; length < whole.size(); ++length) {
        const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
        const std::string text = labels ? message(good_images(), cut) : message(cut, good_labels());
        INFO("length " << length << " of " << whole.size());
        REQUIRE(contains(text, labels ? "root/l: " : "root/i: "));
      }
    }
  }
}

TEST_CASE("A gzip file with any bit flipped is one data error or the same data") {
  const Bytes whole = gzip(good_images());
  int refused = 0;
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    Bytes bad = whole;
    bad[bit / 8] = static_cast<uint8_t>(bad[bit / 8] ^ (1u << (bit % 8)));
    MemoryFiles disk;
    disk.files = {{"root/i", bad}, {"root/l", good_labels()}};
    INFO("bit " << bit);
    const int code = error_code_of([] { make_dataset(spec_of()); });
    if (code == 0) {
      REQUIRE(read_back() == good_content());
    } else {
      REQUIRE(code == kData);
      ++refused;
    }
  }
  // Time, system and name fields of the header are free; everything else is guarded.
  CHECK(refused > static_cast<int>(whole.size() - 10) * 8 - 1);
}

TEST_CASE("A plain file with any bit of its header flipped is one data error, but for the sign of bytes") {
  constexpr size_t kSigned = 16;  // uint8 (0x08) becomes int8 (0x09), which is as long
  for (const bool labels : {false, true}) {
    const size_t header = labels ? 8 : 16;
    for (size_t bit = 0; bit < header * 8; ++bit) {
      if (bit == kSigned) continue;
      Bytes bad = labels ? good_labels() : good_images();
      bad[bit / 8] = static_cast<uint8_t>(bad[bit / 8] ^ (1u << (bit % 8)));
      INFO("bit " << bit);
      REQUIRE_FALSE((labels ? message(good_images(), bad) : message(bad, good_labels())).empty());
    }
  }
}

TEST_CASE("A wrong checksum and a wrong length of a gzip file are named") {
  Bytes bad = gzip(good_images());
  bad[bad.size() - 8] ^= 1;
  CHECK(contains(message(bad, good_labels()), "incorrect data check"));
  bad = gzip(good_images());
  bad[bad.size() - 4] ^= 1;
  CHECK(contains(message(bad, good_labels()), "incorrect length check"));
  CHECK(contains(message(bad, good_labels()), "root/i: damaged gzip stream at offset "));
}

}  // namespace
}  // namespace bitgrad
