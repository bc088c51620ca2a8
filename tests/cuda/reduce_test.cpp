// Family reduce on a device: more partial results than one block joins, in the order of docs/numerics.md section 8.
#include "kernels/reduce.h"

#include <cmath>

#include "both.h"

namespace bitgrad::test {

using namespace kernels;

TEST_CASE("Sums of more chunks than one block joins, on the device", "[slow]") {
  // 2049 and more batches of 32 chunks would be 67 million numbers; columns have a partial result a chunk.
  constexpr int64_t kRows = 2048 * 1024 + 5;
  std::vector<float> numbers = some_numbers(kRows, 1);
  for (float& v : numbers) v = std::abs(v) > 1e30f ? v * 1e-35f : v;
  CHECK(differing_on_device([&](Outcome& out) {
          const Placed<float> x(numbers), result(std::vector<float>(1, -9.0f));
          ReduceArgs args;
          args.axis = ReduceAxis::kColumns;
          args.rows = kRows;
          args.cols = args.ldx = 1;
          args.x = x.data();
          args.out = result.data();
          reduce(args);
          out.add(result);
        }) == 0);
}

}  // namespace bitgrad::test
