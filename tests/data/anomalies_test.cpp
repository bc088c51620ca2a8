// normal_class: labels become 0 for one class and 1 for the others, and training reads that class alone.
#include <fstream>

#include "bitgrad/data/dataset.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/idx_bytes.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using bitgrad::test::contains;
using bitgrad::test::error_of;

namespace {

void put_bytes(const std::string& path, const std::vector<uint32_t>& dims, const std::vector<uint8_t>& elements,
               uint8_t type = 0x08) {
  std::vector<uint8_t> bytes = test::idx_header(dims, type);
  bytes.insert(bytes.end(), elements.begin(), elements.end());
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
}

// Five pictures of 1 x 2 whose pixels are 10 i and 10 i + 1.
DatasetSpec five_pictures(const test::TempDir& temp, const std::vector<uint8_t>& labels, const std::string& split,
                          int64_t normal) {
  put_bytes(temp.file("images"), {5, 1, 2}, {0, 1, 10, 11, 20, 21, 30, 31, 40, 41});
  put_bytes(temp.file("labels"), {5}, labels);
  DatasetSpec spec;
  spec.format = "idx";
  spec.root = temp.path();
  spec.images = "images";
  spec.labels = "labels";
  spec.split = split;
  spec.affine = {255, 0};
  spec.keys["normal_class"] = normal;
  return spec;
}

// "10 11: 0" for each sample.
std::string samples_of(const Dataset& data) {
  std::string text;
  for (int64_t i = 0; i < data.size(); ++i) {
    float x[2] = {}, target = -1;
    data.example(i, x, &target);
    text += concat(text.empty() ? "" : ", ", x[0], ' ', x[1], ": ", target);
  }
  return text;
}

}  // namespace

TEST_CASE("normal_class: data.train has the samples of the class, other data all, with 1 for anomalies") {
  const test::TempDir temp;
  const auto train = make_dataset(five_pictures(temp, {3, 0, 3, 9, 1}, "train", 3));
  CHECK(train->classes() == 0);
  CHECK(train->target_form() == TargetForm{.shape = Shape{1}, .classes = 0});
  CHECK(samples_of(*train) == "0 1: 0, 20 21: 0");
  const auto tested = make_dataset(five_pictures(temp, {3, 0, 3, 9, 1}, "test", 3));
  CHECK(samples_of(*tested) == "0 1: 0, 10 11: 1, 20 21: 0, 30 31: 1, 40 41: 1");
  const StoredSamples stored = tested->stored();
  CHECK(stored.target_form == StoredAs::kFloat);
  CHECK(static_cast<const float*>(stored.labels)[3] == 1);
  CHECK(train->stored().bytes == 4);
  // All samples are of the class, and the class 0.
  CHECK(samples_of(*make_dataset(five_pictures(temp, {0, 0, 0, 0, 0}, "train", 0))) ==
        "0 1: 0, 10 11: 0, 20 21: 0, 30 31: 0, 40 41: 0");
  CHECK(make_dataset(five_pictures(temp, {3, 0, 3, 9, 1}, "train", -1))->classes() == 10);
}

TEST_CASE("normal_class: errors say what the data have") {
  const test::TempDir temp;
  const auto error = [&](const std::vector<uint8_t>& labels, int64_t normal) {
    return error_of([&] { make_dataset(five_pictures(temp, labels, "train", normal)); });
  };
  CHECK(contains(error({3, 0, 3, 9, 1}, 10), "[data.idx] normal_class: got 10, expected 0 .. 9, or -1 for none"));
  CHECK(contains(error({3, 0, 3, 9, 1}, 2), "normal_class: no sample of "));
  CHECK(contains(error({3, 0, 3, 9, 1}, 2), "has the class 2"));
  DatasetSpec values = five_pictures(temp, {3, 0, 3, 9, 1}, "test", 1);
  values.targets = values.labels;
  values.labels.clear();
  CHECK(contains(error_of([&] { make_dataset(values); }), "which is for labels [n], a class per sample"));
  put_bytes(temp.file("positions"), {5, 2}, {3, 0, 3, 9, 1, 3, 0, 3, 9, 1});
  DatasetSpec positions = five_pictures(temp, {3, 0, 3, 9, 1}, "test", 1);
  positions.labels = "positions";
  CHECK(contains(error_of([&] { make_dataset(positions); }), "has labels of positions"));
}
