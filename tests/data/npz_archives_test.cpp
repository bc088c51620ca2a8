// Archives of numpy that contradict themselves, and files that change while they are read.
#include <algorithm>
#include <cstring>
#include <random>

#include "bitgrad/data/dataset.h"
#include "data/npy_array.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/npy_bytes.h"
#include "support/one_file.h"

namespace bitgrad {
namespace {

using test::contains;
using test::error_code_of;
using test::error_of;
using test::npy;
using test::NpyBytes;
using test::OneFile;
using test::zip;

DatasetSpec npz_spec() {
  DatasetSpec spec;
  spec.format = "npz";
  spec.file = "a.npz";
  return spec;
}

TEST_CASE("Members that come twice, overlap or claim too much are refused before memory is asked for") {
  OneFile file;
  const NpyBytes images = npy("|u1", "(3, 2, 2)", NpyBytes(12, 7)), labels = npy("|u1", "(3,)", {9, 5, 1});
  const auto broken = [&](const NpyBytes& bytes) {
    file.bytes = bytes;
    CHECK(error_code_of([] { make_dataset(npz_spec()); }) == static_cast<int>(ErrorCode::kData));
    return error_of([] { make_dataset(npz_spec()); });
  };
  CHECK(contains(broken(zip({{"labels.npy", labels}, {"images.npy", images}, {"labels.npy", labels}})),
                 "a.npz: got two members 'labels.npy', expected one array of the name labels gives."));
  CHECK(contains(broken(zip({{"images.npy", images}, {"labels.npy", labels}, {"images.npy", labels}})),
                 "got two members 'images.npy'"));
  file.bytes = zip({{"x.npy", images}, {"images.npy", images}, {"labels.npy", labels}, {"x.npy", labels}});
  CHECK(make_dataset(npz_spec())->size() == 3);  // the name is asked for by nobody

  // The directory of `whole` with the offset of entry 1 replaced by that of entry 0.
  NpyBytes overlapped = zip({{"images.npy", images}, {"labels.npy", labels}});
  const NpyBytes entry{'P', 'K', 1, 2};
  const auto second = std::find_end(overlapped.begin(), overlapped.end(), entry.begin(), entry.end());
  std::fill_n(second + 42, 4, uint8_t{0});
  CHECK(contains(broken(overlapped), "a.npz array 'labels': shape: got 3 x 2 x 2 elements"));

  // What a directory says of zeros that pack well: neither is inflated.
  const NpyBytes zeros(size_t{1} << 22, 0);
  for (const bool wide : {false, true}) {
    const std::string text = broken(zip({{"labels.npy", labels}, {"images.npy", zeros}}, {.wide = wide, .method = 8}));
    CHECK(contains(text, "The archive is damaged."));
    const std::string bomb = broken(
        zip({{"labels.npy", labels}, {"images.npy", zeros}}, {.deflated = true, .wide = wide, .size_off = 1 << 30}));
    CHECK(contains(bomb, "expected at most"));
    CHECK(contains(bomb, "If this is the intended file, write it with numpy's savez."));
  }
}

TEST_CASE("A deflated array of a file that shrinks while it is read is an error, not a wait") {
  // Of its full size; bytes [from, to) cannot be read.
  class Shrunk final : public InputFile {
   public:
    Shrunk(NpyBytes bytes, int64_t from, int64_t to) : bytes_(std::move(bytes)), from_(from), to_(to) {}
    int64_t size() const override { return std::ssize(bytes_); }
    size_t read_at(int64_t offset, void* to, size_t bytes) override {
      if (offset >= from_ && offset < to_) return 0;
      const size_t n = std::min(bytes, bytes_.size() - static_cast<size_t>(offset));
      std::memcpy(to, bytes_.data() + offset, n);
      return n;
    }

   private:
    const NpyBytes bytes_;
    const int64_t from_, to_;
  };
  const NpyBytes content = npy("|u1", "(300, 20, 20)", NpyBytes(120000));
  NpyBytes noise = content;
  std::mt19937 random(3);
  for (size_t i = 128; i < noise.size(); ++i) noise[i] = static_cast<uint8_t>(random());
  for (const bool deflated : {false, true}) {
    const NpyBytes whole = zip({{"a.npy", noise}}, {.deflated = deflated});
    Shrunk file(whole, 60000, 90000);
    const std::string text = error_of([&] {
      const auto source = data::ZipArchive("data.npz", "a.npz", file).open(0);
      NpyBytes got(static_cast<size_t>(source->size()));
      for (int64_t at = 0; at < source->size(); at += 1 << 14)
        source->read(got.data() + at, std::min<int64_t>(1 << 14, source->size() - at));
    });
    INFO("deflated " << deflated << ": " << text);
    CHECK(contains(text, "[data.npz] a.npz: member 'a.npy': "));
    CHECK(contains(text, "The archive is damaged."));
    if (deflated) CHECK(contains(text, "the file became shorter while it was read"));
  }
}

}  // namespace
}  // namespace bitgrad
