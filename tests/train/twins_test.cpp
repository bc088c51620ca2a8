#include "train/twins.h"

#include "support/catch.h"

TEST_CASE("every two features in one run keep what each of them promises") { bitgrad::test::check_pairs(false); }
