// Ids with labels of their own: bits beside shards, and arrays of an archive.
#include <bit>
#include <cstring>
#include <fstream>

#include "bitgrad/base/rng.h"
#include "bitgrad/data/dataset.h"
#include "data/npy_array.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

void write_bytes(const std::string& path, const void* data, size_t n) {
  std::ofstream(path, std::ios::binary).write(static_cast<const char*>(data), static_cast<std::streamsize>(n));
}

struct Drawn {
  std::vector<uint16_t> ids;
  std::vector<bool> mask;
};
Drawn drawn(size_t n, uint64_t seed) {
  const RandomStream draws{seed, Purpose::kUser, 4, 0};
  Drawn d;
  for (uint64_t i = 0; i < n; ++i) {
    d.ids.push_back(static_cast<uint16_t>(draws.bits32(2 * i) % 500));
    d.mask.push_back(draws.bits32(2 * i + 1) % 3 == 0);
  }
  return d;
}
// As numpy.packbits(mask, bitorder="little").
std::vector<uint8_t> packed(const std::vector<bool>& mask) {
  std::vector<uint8_t> bits((mask.size() + 7) / 8);
  for (size_t i = 0; i < mask.size(); ++i) bits[i / 8] |= static_cast<uint8_t>(mask[i] << i % 8);
  return bits;
}
void write_part(const std::string& name, const Drawn& d) {
  write_bytes(name + ".bin", d.ids.data(), 2 * d.ids.size());
  const std::vector<uint8_t> bits = packed(d.mask);
  write_bytes(name + ".mask", bits.data(), bits.size());
}

DatasetSpec masked_spec(const std::string& file, int64_t context) {
  DatasetSpec spec;
  spec.format = "tokens";
  spec.file = file;
  spec.labels = "mask";
  spec.context = context;
  spec.whole = true;
  spec.keys["stored"] = "uint16";
  spec.keys["vocabulary"] = int64_t{500};
  return spec;
}

template <typename T>
data::NpzArray array_of(const std::string& name, const std::string& descr, const std::vector<T>& values,
                        const std::vector<int64_t>& shape = {}) {
  data::NpzArray a{name, descr, shape.empty() ? std::vector<int64_t>{std::ssize(values)} : shape, {}};
  a.bytes.resize(values.size() * sizeof(T));
  std::memcpy(a.bytes.data(), values.data(), a.bytes.size());
  return a;
}
void write_npz(const std::string& path, const std::vector<data::NpzArray>& arrays) {
  const std::vector<uint8_t> bytes = data::npz_bytes(arrays);
  write_bytes(path, bytes.data(), bytes.size());
}

}  // namespace

TEST_CASE("Bits beside shards say which ids are targets, over the borders of files and in a part of them") {
  const TempDir temp;
  Drawn all = drawn(101, 1);
  const Drawn second = drawn(64, 2), third = drawn(7, 3);
  write_part(temp.file("s_train_0"), all);
  write_part(temp.file("s_train_1"), second);
  write_part(temp.file("s_train_2"), third);
  for (const Drawn* part : {&second, &third}) {
    all.ids.insert(all.ids.end(), part->ids.begin(), part->ids.end());
    all.mask.insert(all.mask.end(), part->mask.begin(), part->mask.end());
  }
  const auto check = [&](const DatasetSpec& spec, size_t first) {
    const auto set = make_dataset(spec);
    CHECK(set->stored().codes == nullptr);
    std::vector<int32_t> x(static_cast<size_t>(spec.context)), target(x);
    for (int64_t s = 0; s < set->size(); ++s) {
      set->example(s, x.data(), target.data());
      for (size_t p = 0; p < x.size(); ++p) {
        const size_t at = first + static_cast<size_t>(s) * x.size() + p;
        CHECK(x[p] == all.ids[at]);
        CHECK(target[p] == (all.mask[at + 1] ? all.ids[at + 1] : kIgnoredClass));
      }
    }
    return set->size();
  };
  DatasetSpec spec = masked_spec(temp.file("s_train_*.bin"), 10);
  CHECK(check(spec, 0) == 17);
  CHECK(make_dataset(spec)->memory_bytes() == 13 + 8 + 1);  // the bits: ids are read from the files
  spec.whole = false;
  spec.split = "test";
  spec.test_fraction = 0.25;
  spec.keys["order"] = "shuffled";
  CHECK(check(spec, 129) == 4);
  CHECK(make_dataset(spec)->memory_bytes() == 13 + 8 + 1);
}

TEST_CASE("Masks that do not fit their ids are reported") {
  const TempDir temp;
  const Drawn d = drawn(21, 1);
  write_part(temp.file("a"), d);
  DatasetSpec spec = masked_spec(temp.file("a.bin"), 4);
  const auto open = [&] { make_dataset(spec); };
  CHECK(make_dataset(spec)->size() == 5);
  std::vector<uint8_t> bits = packed(d.mask);
  bits[2] |= 0x80;
  write_bytes(temp.file("a.mask"), bits.data(), bits.size());
  CHECK(error_code_of(open) == 3);
  CHECK(contains(error_of(open), "a.mask: got bits of 1 behind the last of the 21 ids"));
  write_bytes(temp.file("a.mask"), bits.data(), 2);
  CHECK(contains(error_of(open),
                 "a.mask: got 2 bytes, expected 3: a bit for each of the 21 ids of " + temp.file("a.bin")));
  std::filesystem::remove(temp.file("a.mask"));
  CHECK(contains(error_of(open), "a.mask': no such file, expected the bits of the ids"));
  spec.labels = "maks";
  CHECK(contains(error_of(open), "labels: got 'maks', expected mask"));
  spec.labels = "mask";
  spec.keys["mask"] = "other.bin";
  CHECK(contains(error_of(open), "got labels: mask and mask: other.bin, expected one of them"));
  spec.keys = {{"stored", "text"}};
  spec.tokenizer = "bytes";
  CHECK(contains(error_of(open), "labels: mask is for stored ids"));
}

TEST_CASE("Labels of an archive are targets of any id, or none") {
  const TempDir temp;
  std::vector<int32_t> ids;
  std::vector<int64_t> labels;
  for (int i = 0; i < 30; ++i) ids.push_back(i * 7 % 50), labels.push_back(i % 3 == 0 ? -100 : i * 11 % 50);
  write_npz(temp.file("a.npz"), {array_of("ids", "<i4", ids), array_of("labels", "<i8", labels)});
  DatasetSpec spec = masked_spec(temp.file("a.npz"), 4);
  spec.labels.clear();
  spec.keys["stored"] = "npz";
  spec.keys["vocabulary"] = int64_t{50};
  const auto set = make_dataset(spec);
  REQUIRE(set->size() == 7);
  CHECK(set->memory_bytes() == int64_t{30} * (4 + 4));
  std::vector<int32_t> x(4), target(4);
  for (int64_t s = 0; s < 7; ++s) {
    set->example(s, x.data(), target.data());
    for (size_t p = 0; p < 4; ++p) {
      const size_t at = static_cast<size_t>(s) * 4 + p;
      CHECK(x[p] == ids[at]);
      CHECK(target[p] == labels[at + 1]);
    }
  }
  const auto error = [&](const std::vector<data::NpzArray>& arrays) {
    write_npz(temp.file("a.npz"), arrays);
    const auto open = [&] { make_dataset(spec); };
    CHECK(error_code_of(open) == 3);
    return error_of(open);
  };
  CHECK(contains(error({array_of("ids", "<i4", ids)}), "got no array 'labels', expected arrays ids and labels"));
  labels[4] = 50;
  CHECK(contains(error({array_of("ids", "<i4", ids), array_of("labels", "<i8", labels)}),
                 "array 'labels': element 4: got 50, expected 0 .. 49 (vocabulary), or -100"));
  labels[4] = -1;
  CHECK(contains(error({array_of("ids", "<i4", ids), array_of("labels", "<i8", labels)}), "element 4: got -1"));
  labels.pop_back();
  labels[4] = 1;
  CHECK(contains(error({array_of("ids", "<i4", ids), array_of("labels", "<i8", labels)}), "got 30 ids and 29 labels"));
  ids[2] = -100;
  CHECK(contains(error({array_of("ids", "<i4", ids), array_of("labels", "<i8", labels)}),
                 "array 'ids': element 2: got -100, expected 0 .. 49 (vocabulary)."));
  ids[2] = 2;
  CHECK(contains(error({array_of("ids", "<i4", ids, {15, 2}), array_of("labels", "<i8", labels)}),
                 "array 'ids': got 2 axes, expected one"));
  spec.labels = "mask";
  CHECK(contains(error_of([&] { make_dataset(spec); }), "labels: an .npz archive has the array labels"));
}
