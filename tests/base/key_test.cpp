// Keys as data: one number or a list of them (Key::Type::kInts).
#include "bitgrad/base/key.h"

#include "support/catch.h"
#include "support/expect_error.h"

namespace bitgrad {
namespace {

const std::vector<Key> kKeys{
    {.name = "size", .type = Key::Type::kInts, .range = "[1, 8]", .standard = "!", .count = 2},
    {.name = "padding", .type = Key::Type::kInts, .range = "[0, 4]", .standard = "0", .choices = {"same"}, .count = 4}};
using List = std::vector<int64_t>;

std::string refusal(const Attributes& given) {
  return test::error_of([&] { completed("pool", kKeys, given); });
}

}  // namespace

TEST_CASE("a key of whole numbers accepts one for all, a list of its length, or one of its names") {
  check_keys("test", "kind 'pool'", kKeys);
  const Attributes one = completed("pool", kKeys, {{"size", 3}});
  CHECK(one.integers("size", 2) == List{3, 3});
  CHECK(one.integers("padding", 4) == List{0, 0, 0, 0});
  CHECK(one.find_text("padding") == nullptr);
  const Attributes lists = completed("pool", kKeys, {{"size", List{2, 8}}, {"padding", List{0, 1, 2, 4}}});
  CHECK(lists.integers("size", 2) == List{2, 8});
  CHECK(lists.integers("padding", 4) == List{0, 1, 2, 4});
  CHECK(concat(lists.values().at("padding")) == "[0, 1, 2, 4]");
  const Attributes word = completed("pool", kKeys, {{"size", 3}, {"padding", "same"}});
  REQUIRE(word.find_text("padding") != nullptr);
  CHECK(*word.find_text("padding") == "same");
  CHECK(test::error_of([&] { (void)word.integers("padding", 4); }) ==
        "[attributes] attribute 'padding': got same, expected a whole number or a list of 4 of them");
  CHECK(test::error_of([&] { (void)lists.integers("size", 3); }) ==
        "[attributes] attribute 'size': got [2, 8], expected a whole number or a list of 3 of them");
}

TEST_CASE("a key of whole numbers refuses other lengths, numbers out of range and other words") {
  const std::string size = "expected a whole number in [1, 8] or a list of 2 of them";
  CHECK(refusal({{"size", List{2}}}) == "[pool] size: got [2], " + size);
  CHECK(refusal({{"size", List{2, 2, 2}}}) == "[pool] size: got [2, 2, 2], " + size);
  CHECK(refusal({{"size", List{2, 9}}}) == "[pool] size: got [2, 9], " + size);
  CHECK(refusal({{"size", List{}}}) == "[pool] size: got [], " + size);
  CHECK(refusal({{"size", 0}}) == "[pool] size: got 0, " + size);
  CHECK(refusal({{"size", 2.0}}) == "[pool] size: got 2, " + size);
  CHECK(refusal({{"size", "same"}}) == "[pool] size: got same, " + size);
  CHECK(refusal({{"size", 2}, {"padding", "valid"}}) ==
        "[pool] padding: got valid, expected a whole number in [0, 4] or a list of 4 of them, or same");
  std::vector<Key> wrong = kKeys;
  wrong[1].standard = "9";
  CHECK(test::error_of([&] { check_keys("test", "kind 'pool'", wrong); }) ==
        "[test] kind 'pool': the default of 'padding': got 9, expected a whole number in [0, 4] or a list of 4 of "
        "them, or same");
  wrong[1] = {.name = "out", .type = Key::Type::kInt, .range = "[1, 8]", .standard = "!"};
  CHECK(test::error_of([&] {
          completed("pool", wrong, {{"size", 2}, {"out", List{1, 2}}});
        }) == "[pool] out: got [1, 2], expected a whole number in [1, 8]");
}

}  // namespace bitgrad
