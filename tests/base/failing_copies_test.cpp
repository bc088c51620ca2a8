// Values whose copies run out of memory: every allocation of a copy fails once. Not in a build with sanitizers.
// BITGRAD_ALONE: has an operator new of its own.
#include <cstdlib>
#include <new>

#include "bitgrad/base/json.h"
#include "bitgrad/nn/model_spec.h"
#include "support/catch.h"

namespace {

thread_local long g_left = -1;  // allocations until one fails; negative: none does

}  // namespace

[[gnu::noinline]] void* operator new(size_t bytes) {
  if (g_left >= 0 && g_left-- == 0) throw std::bad_alloc();
  void* const block = std::malloc(bytes);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}
[[gnu::noinline]] void operator delete(void* block) noexcept { std::free(block); }
[[gnu::noinline]] void operator delete(void* block, size_t) noexcept { std::free(block); }

namespace bitgrad {
namespace {

// Runs `copy` with its first, second, ... allocation failing, until it ends well. How many failed.
template <typename F>
int fail_each_allocation(F&& copy) {
  for (int failed = 0;; ++failed) {
    g_left = failed;
    try {
      copy();
      g_left = -1;
      return failed;
    } catch (const std::bad_alloc&) {
      g_left = -1;
    }
  }
}

const std::string kLong(64, 'x');  // beyond what a string holds without memory

}  // namespace

TEST_CASE("a copy of a JSON value that runs out of memory destroys what was made and nothing else") {
  Json inner = Json::object();
  inner["text"] = kLong;
  inner["list"] = std::vector<int64_t>{1, 2, 3};
  Json value = Json::array();
  for (int i = 0; i < 3; ++i) value.push_back(inner);
  Json target = inner;
  CHECK(fail_each_allocation([&] { const Json copy = value; }) >= 10);
  CHECK(fail_each_allocation([&] { target = value; }) >= 10);
  CHECK(target == value);
  CHECK(fail_each_allocation([&] { const Json literal{{"a", kLong}, {"b", {{"c", value}, {"d", 1}}}}; }) > 20);
  CHECK(fail_each_allocation([&] { (void)value.dump(2); }) >= 10);
}

TEST_CASE("a copy of the attributes of a layer that runs out of memory destroys what was made and nothing else") {
  Attributes attributes;
  attributes["first"] = kLong;
  attributes["second"] = kLong;
  CHECK(fail_each_allocation([&] { const Attributes copy = attributes; }) >= 4);
}

}  // namespace bitgrad
