// The twins of runs that use what a plugin adds.
#include "train/twins.h"

#include "support/catch.h"

TEST_CASE("a feature of a plugin and another one in one run keep what each of them promises") {
  bitgrad::test::check_pairs(true);
}
