// Arrays of numpy as data sets: what is read, and what damaged or hostile files come to.
#include <fstream>
#include <limits>
#include <random>

#include "bitgrad/data/dataset.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/npy_bytes.h"
#include "support/one_file.h"
#include "support/temp_dir.h"

namespace bitgrad {
namespace {

using test::bytes_of;
using test::contains;
using test::error_code_of;
using test::error_of;
using test::npy;
using test::npy_raw;
using test::NpyBytes;
using test::zip;
using test::ZipOptions;

constexpr int kNpyData = static_cast<int>(ErrorCode::kData);

class NpyFolder {
 public:
  void write(const std::string& name, const NpyBytes& bytes) const {
    std::ofstream(folder_.file(name), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  std::string path(const std::string& name) const { return folder_.file(name); }
  DatasetSpec spec(const std::string& labels = "l.npy", const std::string& images = "i.npy") const {
    DatasetSpec s;
    s.format = "npy";
    s.root = folder_.path();
    s.images = images;
    s.labels = labels;
    return s;
  }
  DatasetSpec archive(const std::string& file) const {
    DatasetSpec s;
    s.format = "npz";
    s.root = folder_.path();
    s.file = file;
    return s;
  }

 private:
  test::TempDir folder_;
};

std::string npy_error(const DatasetSpec& spec) {
  CHECK(error_code_of([&] { make_dataset(spec); }) == kNpyData);
  return error_of([&] { make_dataset(spec); });
}

NpyBytes ramp(size_t count) {
  NpyBytes out;
  for (size_t i = 0; i < count; ++i) out.push_back(static_cast<uint8_t>(i * 5 + 1));
  return out;
}

std::vector<float> npy_sample(const Dataset& set, int64_t index, int32_t* label) {
  std::vector<float> x(static_cast<size_t>(set.features()));
  set.sample(index, x.data(), label);
  return x;
}

TEST_CASE("npy images of bytes with labels of every integer dtype and header version") {
  const NpyFolder folder;
  const auto check = [&](const NpyBytes& labels) {
    folder.write("l.npy", labels);
    const auto set = make_dataset(folder.spec());
    CHECK(set->size() == 3);
    CHECK(set->classes() == 10);
    CHECK(set->stored().numbers != nullptr);
    for (int64_t i = 0; i < 3; ++i) {
      int32_t label = -1;
      const std::vector<float> x = npy_sample(*set, i, &label);
      CHECK(label == 9 - 4 * i);
      for (int64_t k = 0; k < set->features(); ++k)
        CHECK(x[static_cast<size_t>(k)] ==
              static_cast<float>(ramp(36)[static_cast<size_t>(i * set->features() + k)]) / 255.0f);
    }
    return set->sample_shape();
  };
  for (const int version : {1, 2, 3}) {
    folder.write("i.npy", npy("|u1", "(3, 2, 2, 3)", ramp(36), version));
    CHECK(check(npy("|u1", "(3,)", {9, 5, 1}, version)) == std::vector<int64_t>{2, 2, 3});
  }
  folder.write("i.npy", npy("|u1", "(3, 4, 3)", ramp(36)));
  CHECK(check(npy("|i1", "(3,)", {9, 5, 1})) == std::vector<int64_t>{4, 3});
  check(npy("<i2", "(3,)", bytes_of<int16_t>({9, 5, 1})));
  check(npy("<u2", "(3,)", bytes_of<uint16_t>({9, 5, 1})));
  check(npy("<i4", "(3,)", bytes_of<int32_t>({9, 5, 1})));
  check(npy("<u4", "(3,)", bytes_of<uint32_t>({9, 5, 1})));
  check(npy("<u8", "(3,)", bytes_of<uint64_t>({9, 5, 1})));
  check(npy("<i8", "(3, 1)", bytes_of<int64_t>({9, 5, 1})));  // a column
  check(npy("=i8", "(3,)", bytes_of<int64_t>({9, 5, 1})));
  check(npy_raw("{\"shape\":(3,),\n 'fortran_order':True ,'descr':'|u1'}", {9, 5, 1}));
}

TEST_CASE("npy values, positions and targets have the form of their arrays") {
  const NpyFolder folder;
  folder.write("i.npy", npy("<f4", "(2, 2)", bytes_of<float>({0.5f, -1, 2, 3})));
  folder.write("l.npy", npy("<i8", "(2, 3)", bytes_of<int64_t>({0, -100, 299, 3, 4, 5})));
  DatasetSpec spec = folder.spec();
  spec.classes = 300;
  const auto positions = make_dataset(spec);
  CHECK(positions->target_form() == TargetForm{.shape = {3}, .classes = 300});
  std::vector<float> x(2);
  std::vector<int32_t> classes(3);
  positions->example(0, x.data(), classes.data());
  CHECK(x == std::vector<float>{0.5f, -1});
  CHECK(classes == std::vector<int32_t>{0, -100, 299});
  CHECK(positions->stored().form == StoredAs::kFloat);

  folder.write("l.npy", npy("<i2", "(2, 3)", bytes_of<int16_t>({7, -100, 299, 3, 4, 5})));
  make_dataset(spec)->example(0, x.data(), classes.data());
  CHECK(classes == std::vector<int32_t>{7, -100, 299});

  folder.write("one.npy", npy("<u4", "(2,)", bytes_of<uint32_t>({299, 0})));
  spec.labels = "one.npy";
  int32_t label = -1;
  npy_sample(*make_dataset(spec), 0, &label);
  CHECK(label == 299);

  folder.write("t.npy", npy("<f4", "(2, 1, 2)", bytes_of<float>({1, 2, 3, -4})));
  folder.write("s.npy", npy("<f4", "(2,)", bytes_of<float>({1, 7})));
  spec = folder.spec("");
  spec.targets = "t.npy";
  const auto values = make_dataset(spec);
  CHECK(values->target_form() == TargetForm{.shape = {1, 2}, .classes = 0});
  std::vector<float> target(2);
  values->example(1, x.data(), target.data());
  CHECK(target == std::vector<float>{3, -4});
  spec.targets = spec.images = "s.npy";
  const auto numbers = make_dataset(spec);
  CHECK(numbers->sample_shape() == std::vector<int64_t>{1});
  CHECK(numbers->target_form() == TargetForm{.shape = {1}, .classes = 0});
  spec.affine = {2, 1};
  make_dataset(spec)->example(1, x.data(), target.data());
  CHECK(x[0] == 15.0f);
  CHECK(target[0] == 7.0f);
  spec.limit = 1;
  CHECK(make_dataset(spec)->size() == 1);
}

TEST_CASE("npy values of every number type, byte order and order of memory are those of numpy") {
  const NpyFolder folder;
  folder.write("l.npy", npy("|u1", "(2,)", {1, 0}));
  const auto values = [&](const NpyBytes& bytes) {
    folder.write("i.npy", bytes);
    const auto set = make_dataset(folder.spec());
    CHECK(set->stored().form == StoredAs::kFloat);
    std::vector<float> out;
    int32_t label = -1;
    for (int64_t i = 0; i < 2; ++i)
      for (const float x : npy_sample(*set, i, &label)) out.push_back(x);
    return out;
  };
  const std::vector<float> wanted{0, 1, 2, 3, 4, 5};
  CHECK(values(npy("<f8", "(2, 3)", bytes_of<double>({0, 1, 2, 3, 4, 5}))) == wanted);
  CHECK(values(npy("<f2", "(2, 3)", bytes_of<uint16_t>({0, 0x3C00, 0x4000, 0x4200, 0x4400, 0x4500}))) == wanted);
  CHECK(values(npy("<i8", "(2, 3)", bytes_of<int64_t>({0, 1, 2, 3, 4, 5}))) == wanted);
  CHECK(values(npy("|i1", "(2, 3)", {0, 1, 2, 3, 4, 5})) == wanted);
  CHECK(values(npy(">i2", "(2, 3)", {0, 0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5})) == wanted);
  CHECK(values(npy(">f4", "(2, 1)", {0x3F, 0x80, 0, 0, 0xC0, 0, 0, 0})) == std::vector<float>{1, -2});
  CHECK(values(npy("|b1", "(2, 3)", {0, 1, 1, 0, 0, 1})) == std::vector<float>{0, 1, 1, 0, 0, 1});
  // The memory of numpy.asfortranarray([[0, 1, 2], [3, 4, 5]]), and of such an array of rank 3.
  CHECK(values(npy_raw("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }",
                       bytes_of<float>({0, 3, 1, 4, 2, 5}))) == wanted);
  CHECK(values(npy_raw("{'descr': '<i4', 'fortran_order': True, 'shape': (2, 2, 2), }",
                       bytes_of<int32_t>({0, 4, 2, 6, 1, 5, 3, 7}))) == std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7});
  // Rounded once: by way of double these would be 2^54 and 2^24.
  CHECK(values(npy("<i8", "(2, 1)", bytes_of<int64_t>({(int64_t{1} << 54) + (int64_t{1} << 30) + 1, 16777217}))) ==
        std::vector<float>{0x1.000002p54f, 0x1p24f});
  CHECK(values(npy("<u8", "(2, 1)", bytes_of<uint64_t>({~uint64_t{0}, 7}))) == std::vector<float>{0x1p64f, 7});
}

TEST_CASE("npy labels are whole numbers of any type, or texts that name classes in the order of the training labels") {
  const NpyFolder folder;
  folder.write("i.npy", npy("|u1", "(3, 2, 2)", ramp(12)));
  const auto labels_of = [&](const DatasetSpec& spec) {
    const auto set = make_dataset(spec);
    std::vector<int32_t> out(3);
    for (int64_t i = 0; i < 3; ++i) npy_sample(*set, i, &out[static_cast<size_t>(i)]);
    return out;
  };
  folder.write("l.npy", npy("<f8", "(3,)", bytes_of<double>({2, 0, 1})));
  CHECK(labels_of(folder.spec()) == std::vector<int32_t>{2, 0, 1});
  folder.write("l.npy", npy("|b1", "(3,)", {1, 0, 1}));
  CHECK(labels_of(folder.spec()) == std::vector<int32_t>{1, 0, 1});
  // "tor", "\u00c4", "ab": characters of 4 bytes.
  const NpyBytes names = bytes_of<uint32_t>({'t', 'o', 'r', 0xC4, 0, 0, 'a', 'b', 0});
  folder.write("l.npy", npy("<U3", "(3,)", names));
  CHECK(labels_of(folder.spec()) == std::vector<int32_t>{1, 2, 0});
  CHECK(make_dataset(folder.spec())->class_names() == std::vector<std::string>{"ab", "tor", "\xC3\x84"});
  CHECK(make_dataset(folder.spec())->classes() == 3);
  DatasetSpec spec = folder.spec("test.npy");
  spec.training_labels = "l.npy";
  folder.write("test.npy", npy("|S3", "(3,)", {'t', 'o', 'r', 't', 'o', 'r', 'a', 'b', 0}));
  CHECK(labels_of(spec) == std::vector<int32_t>{1, 1, 0});
  CHECK(make_dataset(spec)->class_names().size() == 3);
  folder.write("test.npy", npy("|S3", "(3,)", {'t', 'o', 'r', 't', 'o', 0, 'a', 'b', 0}));
  CHECK(contains(npy_error(spec), "label 1 at byte offset 131: got 'to', expected one of the 3 names of the training"));
  folder.write("test.npy", npy("|u1", "(3,)", {0, 1, 2}));
  CHECK(contains(npy_error(spec), "descr: got '|u1', the training labels " + folder.path("l.npy") + " have '<U3'"));
  spec = folder.spec();
  spec.classes = 4;
  CHECK(contains(npy_error(spec), "got 3 names of classes, expected the 4 of the key classes."));
}

TEST_CASE("npz archives are read stored and deflated, with sizes of 32 and 64 bits") {
  const NpyFolder folder;
  const NpyBytes images = npy("|u1", "(5, 30, 10, 3)", ramp(4500)),
                 labels = npy("<i8", "(5,)", bytes_of<int64_t>({4, 3, 2, 1, 0}));
  for (const bool deflated : {false, true})
    for (const bool wide : {false, true}) {
      INFO("deflated " << deflated << ", wide " << wide);
      const ZipOptions options{.deflated = deflated, .wide = wide};
      folder.write("a.npz", zip({{"images.npy", images}, {"labels.npy", labels}}, options));
      const auto set = make_dataset(folder.archive("a.npz"));
      CHECK(set->size() == 5);
      CHECK(set->sample_shape() == std::vector<int64_t>{30, 10, 3});
      int32_t label = -1;
      const std::vector<float> x = npy_sample(*set, 4, &label);
      CHECK(label == 0);
      CHECK(x[899] == static_cast<float>(ramp(4500)[4499]) / 255.0f);
      folder.write("b.npz", zip({{"readme.txt", {}}, {"y_test.npy", labels}, {"x_test.npy", images}}, options));
      DatasetSpec spec = folder.archive("b.npz");
      CHECK(contains(npy_error(spec), "b.npz: labels: unknown array 'labels'. Known: y_test, x_test"));
      spec.images = "x_test";
      spec.labels = "y_tset";
      CHECK(contains(npy_error(spec), "Did you mean 'y_test'?"));
      spec.labels = "y_test";
      CHECK(make_dataset(spec)->size() == 5);
    }
}

TEST_CASE("An npy file that cannot be used is named with what was found, what was expected and what to do") {
  const NpyFolder folder;
  folder.write("l.npy", npy("|u1", "(3,)", {9, 5, 1}));
  const auto images = [&](const NpyBytes& bytes) {
    folder.write("i.npy", bytes);
    std::string text = npy_error(folder.spec());
    CHECK(contains(text, "[data.npy] " + folder.path("i.npy") + ": "));
    return text;
  };
  CHECK(
      contains(images(npy("|O", "(3,)", ramp(9))),
               "Python objects, which are never read, expected numbers, bool or texts, such as '|u1', '<f4' or '<U8'. "
               "Save a.astype(np.float32) if they are numbers, a.astype(str) if they are names of classes."));
  CHECK(contains(images(npy("<U7", "(3,)", NpyBytes(84))),
                 "got '<U7', expected numbers. Columns of names are read from"));
  CHECK(contains(images(npy("<c8", "(3, 1)", ramp(24))), "Save np.stack([a.real, a.imag], axis=-1)."));
  CHECK(contains(images(npy("<M8[ns]", "(3, 1)", ramp(24))), "Save a.astype(np.int64)."));
  CHECK(contains(images(npy("<f16", "(3, 1)", ramp(48))), "Save a.astype(np.float32)."));
  CHECK(contains(images(npy("|V2", "(3, 1)", ramp(6))), "If they are bfloat16"));
  CHECK(contains(images(npy("<f8", "(3, 2)", bytes_of<double>({0, 1, 2, 3, 1e39, 5}))),
                 "sample 2, value 0 at byte offset 160: got 1e+39, expected a finite fp32."));
  CHECK(contains(images(npy_raw("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }", ramp(12))),
                 "a list, which means records"));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(contains(images(npy("<f4", "(3, 2)", bytes_of<float>({0, 1, 2, 3, 4, nan}))),
                 "sample 2, value 1 at byte offset 148: got nan, expected a finite fp32."));
  CHECK(contains(images(npy("|u1", "(3,)", ramp(3))), "got 1 axes, expected [n, rows, columns]"));
  CHECK(contains(images(npy("|u1", "(3,)", ramp(3))), "Are images and labels exchanged?"));
  CHECK(contains(images(npy("|u1", "()", ramp(1))), "got one value without axes"));
  CHECK(contains(images(npy("|u1", "(4, 1, 1)", ramp(4))),
                 "got 4 images, expected 3, the first axis of " + folder.path("l.npy")));
  CHECK(contains(images(npy("|u1", "(3, 0, 2)", {})), "shape: got 3 x 0 x 2, expected no axis of 0"));
  CHECK(contains(images(npy("|u1", "(3, 2, 2)", ramp(11))),
                 "shape: got 3 x 2 x 2 elements of 1 bytes, expected at most 11 elements"));
  CHECK(contains(images(npy("|u1", "(3, 2, 2)", ramp(13))), "got 13 bytes after the header, expected 12"));
  CHECK(contains(images(npy("|u1", "(4294967296, 4294967296, 2)", ramp(12))), "which is all that follows the header"));
  CHECK(contains(images(npy("|u1", "(1152921504606846977, 2)", ramp(12))), "an extent above 2^60"));
  CHECK(contains(images(npy("|u1", "(18446744073709551617, 2)", ramp(12))), "an extent above 2^60"));  // 2^64 + 1
  CHECK(contains(images({'P', 'K', 3, 4, 0, 0, 0, 0, 0}),
                 "expected \\x93NUMPY. Not an .npy file, but a zip archive. Unpack it"));
  CHECK(contains(images({0x80, 4, 0x95, 0, 0, 0, 0, 0, 0}), "Not an .npy file, but a pickle of Python (.pkl)"));
  CHECK(contains(images({'1', ' ', '2', '\n', '3', ' ', '4', ' ', '5', '\n'}), "but a text. numpy.save(NAME, array)"));
  CHECK(contains(images({}), "Not an .npy file."));
  NpyBytes version = npy("|u1", "(3, 2, 2)", ramp(12));
  version[6] = 4;
  CHECK(contains(images(version), "version at byte offset 6: got 4.0, expected 1.0, 2.0 or 3.0."));
  version[6] = 2;
  CHECK(contains(images(version), "length of the header at byte offset 8: got"));
  const struct {
    const char* text;
    const char* part;
  } bad[] = {{"{'descr': '|u1', 'fortran_order': False}", "expected descr, fortran_order and shape"},
             {"{'descr': '|u1', 'descr': '|u1'}", "the key 'descr'"},
             {"{'descr': '|u1', 'order': False}", "the key 'order'"},
             {"{'descr': '|u1' 'shape': (3,)}", "expected ',' or '}'"},
             {"{'fortran_order': 1}", "expected True or False"},
             {"{'shape': (3, -1)}", "expected a whole number from 0"},
             {"{'shape': [3]}", "expected '('"},
             {"{'descr': '|u1", "a text without end"},
             {"{'descr': '|u1', 'fortran_order': False, 'shape': (3, 2, 2)} x", "expected the end of the description"},
             {"import os", "expected '{'"}};
  for (const auto& b : bad) {
    INFO(b.text);
    CHECK(contains(images(npy_raw(b.text, ramp(12))), b.part));
  }
  folder.write("i.npy", npy("|u1", "(3, 2, 2)", ramp(12)));
  const auto labels = [&](const NpyBytes& bytes) {
    folder.write("l.npy", bytes);
    return npy_error(folder.spec());
  };
  const auto of_ten = [&](const NpyBytes& bytes) {
    folder.write("l.npy", bytes);
    DatasetSpec spec = folder.spec();
    spec.classes = 10;
    return npy_error(spec);
  };
  CHECK(contains(of_ten(npy("<i4", "(3,)", bytes_of<int32_t>({9, 10, 1}))),
                 "label 1 at byte offset 132: got 10, expected 0 .. 9. If the set has more classes, write "
                 "data.train.classes: 11, and"));
  folder.write("l.npy", npy("<i4", "(3,)", bytes_of<int32_t>({9, 10, 1})));
  CHECK(make_dataset(folder.spec())->classes() == 11);  // counted
  CHECK(contains(labels(npy("<i8", "(3,)", bytes_of<int64_t>({9, -1, 1}))), "got -1, expected 0 .. 9"));
  CHECK(contains(labels(npy("<i8", "(3,)", bytes_of<int64_t>({70000, 70001, 70002}))),
                 "got 70000, expected a class below 65536. Number the classes from 0, as np.unique(a, return_inverse"));
  CHECK(contains(labels(npy("|i1", "(3,)", bytes_of<int8_t>({9, -3, 1}))), "got -3, expected 0 .. 9"));
  CHECK(contains(labels(npy("<u8", "(3,)", bytes_of<uint64_t>({9, std::numeric_limits<uint64_t>::max(), 1}))),
                 "label 1"));
  CHECK(contains(labels(npy("<f4", "(3,)", bytes_of<float>({1, 0.5f, 2}))),
                 "label 1 at byte offset 132: got 0.5, expected 0 .. 2, whole numbers. Values are named by targets"));
  CHECK(contains(labels(npy("|O", "(3,)", ramp(9))), "a.astype(str) if they are names of classes."));
  CHECK(contains(labels(npy("<i8", "(3, 2)", bytes_of<int64_t>({0, 1, 1, 0, 0, 1}))),
                 "got [3, 2] with one 1 in each row: one-hot, expected a class per sample. Save a.argmax(axis=1)."));
  CHECK(
      contains(labels(npy("|S3", "(3,)", {'a', 0, 0, 'b', '\n', 0, 'c', 0, 0})), "label 1 at byte offset 131: got 'b"));
  CHECK(contains(labels(npy("|u1", "(3, 2, 2)", ramp(12))), "Are images and labels exchanged?"));
  folder.write("t.npy", npy("<f4", "(3,)", bytes_of<float>({1, std::numeric_limits<float>::infinity(), 1})));
  DatasetSpec spec = folder.spec("");
  spec.targets = "t.npy";
  CHECK(contains(npy_error(spec), "t.npy: sample 1, value 0 at byte offset 132: got inf, expected a finite fp32."));
  spec.labels = "l.npy";
  CHECK(contains(error_of([&] { make_dataset(spec); }), "got both labels and targets"));
}

TEST_CASE("A damaged archive is named with the member and what does not fit") {
  const NpyFolder folder;
  const NpyBytes images = npy("|u1", "(3, 2, 2)", ramp(12)), labels = npy("|u1", "(3,)", {9, 5, 1});
  const auto broken = [&](const NpyBytes& bytes) {
    folder.write("a.npz", bytes);
    return npy_error(folder.archive("a.npz"));
  };
  const auto with = [&](const ZipOptions& options) {
    return broken(zip({{"images.npy", images}, {"labels.npy", labels}}, options));
  };
  CHECK(contains(with({.crc_off = 1}), "member 'labels.npy': got the checksum"));
  CHECK(contains(with({.deflated = true, .crc_off = 1}), "got the checksum"));
  CHECK(contains(with({.flags = 1}), "it is encrypted"));
  CHECK(contains(with({.method = 12}), "got compression method 12, expected 0 (stored) or 8 (deflated)"));
  CHECK(contains(with({.size_off = 1}), "expected at most 131"));
  CHECK(contains(with({.deflated = true, .size_off = 1}), "got 4 bytes after the header, expected 3"));
  CHECK(contains(with({.deflated = true, .size_off = int64_t{1} << 31}), "If this is the intended file"));
  CHECK(contains(with({.method = 8}), "The archive is damaged."));
  CHECK(contains(broken(labels), "got a file without the end record of a ZIP archive"));
  CHECK(contains(broken({}), "without the end record"));
  NpyBytes cut = zip({{"images.npy", images}, {"labels.npy", labels}});
  cut.erase(cut.begin(), cut.begin() + 100);
  CHECK(contains(broken(cut), "The archive is damaged"));
}

TEST_CASE("No byte of an archive, changed, makes anything but a data set or an error") {
  test::OneFile file;
  DatasetSpec spec;
  spec.format = "npz";
  spec.file = "a.npz";
  int errors = 0, sets = 0;
  for (const bool deflated : {false, true})
    for (const bool wide : {false, true}) {
      const NpyBytes whole =
          zip({{"images.npy", npy("|u1", "(3, 2, 2)", ramp(12))}, {"labels.npy", npy("|u1", "(3,)", {9, 5, 1})}},
              {.deflated = deflated, .wide = wide});
      const auto attempt = [&] {
        try {
          make_dataset(spec);
          ++sets;
        } catch (const Error&) {
          ++errors;
        }
      };
      for (size_t at = 0; at < whole.size(); ++at)
        for (const uint8_t value : {uint8_t(whole[at] ^ 1), uint8_t(whole[at] ^ 0x80), uint8_t(0), uint8_t(255)}) {
          file.bytes = whole;
          file.bytes[at] = value;
          attempt();
        }
      for (size_t length = 0; length < whole.size(); ++length) {
        file.bytes.assign(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
        attempt();
      }
    }
  CHECK(errors > 1000);
  CHECK(sets > 100);  // names of members that are not asked for, dates
}

}  // namespace
}  // namespace bitgrad
