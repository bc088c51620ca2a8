#include <new>
#include <string>
#include <utility>
#include <vector>

#include "bitgrad/base/text.h"
#include "bitgrad/dist/engines.h"

namespace bitgrad {
namespace {

// The first lines in which two texts differ.
std::pair<std::string, std::string> first_difference(const std::string& a, const std::string& b) {
  TextReader x(a), y(b);
  std::string left, right;
  do {
    left = right = "";
    const bool more = static_cast<bool>(std::getline(x, left)) | static_cast<bool>(std::getline(y, right));
    if (!more) break;
  } while (left == right);
  return {left, right};
}

}  // namespace

Error error_for_ranks(const std::exception& error) {
  if (const auto* const known = dynamic_cast<const Error*>(&error)) return *known;
  const bool memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  return Error(memory ? "out of memory" : error.what(), memory ? ErrorCode::kMemory : ErrorCode::kBug);
}

std::vector<std::string> gather_texts(Communicator& ranks, const std::string& own) {
  std::vector<std::string> texts;
  for (const std::vector<char>& text : gather_lists(ranks, std::span<const char>(own)))
    texts.emplace_back(text.begin(), text.end());
  return texts;
}

void require_same(Communicator& ranks, std::string_view what, const std::string& own) {
  const std::vector<std::string> all = gather_texts(ranks, own);
  for (size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    const auto [first, second] = first_difference(all[0], all[r]);
    fail_with(ErrorCode::kUsage, "ranks", "ranks 0 and ", r, " differ in ", what, ": \"", printable(first), "\" and \"",
              printable(second), "\": expected the same on all");
  }
}

}  // namespace bitgrad
