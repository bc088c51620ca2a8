// Trees of sums, and sums over ranks that are threads.
#include "bitgrad/dist/communicator.h"

#include <string>

#include "support/catch.h"
#include "support/rank_cases.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

std::string joined(int64_t terms) {
  const auto join = [](const std::string& left, const std::string& right) { return "(" + left + "+" + right + ")"; };
  TreeSum<std::string, decltype(join)> tree(join);
  for (int64_t i = 0; i < terms; ++i) tree.add(std::to_string(i));
  return tree.finish();
}

}  // namespace

TEST_CASE("a tree adds pairs, then pairs of pairs; what is left over joins from the last on") {
  CHECK(joined(1) == "0");
  CHECK(joined(2) == "(0+1)");
  CHECK(joined(3) == "((0+1)+2)");
  CHECK(joined(4) == "((0+1)+(2+3))");
  CHECK(joined(6) == "(((0+1)+(2+3))+(4+5))");
  CHECK(joined(7) == "(((0+1)+(2+3))+((4+5)+6))");
  CHECK(joined(8) == "(((0+1)+(2+3))+((4+5)+(6+7)))");
}

TEST_CASE("the sum over ranks is the tree in the order of ranks, on every rank") { check_sums(ThreadRankMaker()); }

TEST_CASE(
    "sums of many tensors over ranks are those of each, of any sizes and dtypes; counts are added again and again") {
  check_sums_of_many(ThreadRankMaker());
}
