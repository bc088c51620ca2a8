// Flags of a device: what is read with them, in which order, and which error comes out.
#include "kernels/flag.h"

#include <bit>

#include "bitgrad/nn/state.h"
#include "cuda/same_as_cpu.h"
#include "kernels/reduce.h"

using namespace bitgrad;
using namespace bitgrad::kernels;
using namespace bitgrad::test;

namespace {

// A word that is set when x is not finite, with an error of this text.
void check_number(double x, const std::string& text) {
  const Tensor t = Tensor::full(Shape{3}, dtypes::fp32, x);
  const FlagWord flag;
  check_finite(3, t.as<float>(), flag.word());
  flag.check([text] { fail_with(ErrorCode::kNonFinite, "test", text); });
}

}  // namespace

TEST_CASE("Of several checks the first that is not met throws, at once on the CPU and when flags are read elsewhere") {
  for (const Device device : {Device::cpu(), gpu()}) {
    const DeviceGuard guard(device);
    std::string steps;
    const std::string error = error_of([&] {
      check_number(1, "one");
      on_poll([&] { steps += "a"; });
      check_number(NAN, "two");
      on_poll([&] { steps += "b"; });
      check_number(INFINITY, "three");
      poll_errors();
    });
    CHECK(contains(error, "two"));
    CHECK(steps == "a");
    poll_errors();  // the others are forgotten
  }
}

TEST_CASE("Numbers of a device are read with its flags") {
  const DeviceGuard guard(gpu());
  const Tensor x = Tensor::from_elements({4}, dtypes::fp32, std::vector<double>{1, 2, 3, 4});
  float sum = 0;
  const FlagWord word;
  ReduceArgs args;
  args.rows = 1;
  args.cols = args.ldx = 4;
  args.x = x.as<float>();
  args.out = reinterpret_cast<float*>(word.word());
  reduce(args);
  word.read([&](uint32_t bits) { sum = std::bit_cast<float>(bits); });
  CHECK(sum == 0);
  poll_errors();
  CHECK(sum == 10);
}

TEST_CASE("Dropped flags are forgotten, and their words are zero when they are given out again") {
  const DeviceGuard guard(gpu());
  check_number(NAN, "dropped");
  discard_errors();
  uint32_t word = 7;
  const FlagWord flag;
  flag.read([&](uint32_t w) { word = w; });
  poll_errors();
  CHECK(word == 0);
}

TEST_CASE("More words than a device holds at a time are read in between") {
  const DeviceGuard guard(gpu());
  int64_t seen = 0;
  for (int i = 0; i < 5000; ++i) FlagWord().read([&](uint32_t w) { seen += w == 0; });
  poll_errors();
  CHECK(seen == 5000);
}

TEST_CASE("Errors of checks pass the handlers of the scopes in which they were asked for, the inner one first") {
  const DeviceGuard guard(gpu());
  std::string seen;
  {
    const ErrorContext outer([&](const std::exception& e) { seen += concat("outer ", e.what(), "; "); });
    {
      const ErrorContext inner([&](const std::exception& e) {
        seen += concat("inner ", e.what(), "; ");
        throw Error("renamed");
      });
      check_number(NAN, "found");
    }
    check_number(1, "fine");
  }
  CHECK(error_of([] { poll_errors(); }) == "renamed");
  CHECK(seen == "inner [test] found; outer renamed; ");
}

TEST_CASE("Words of the board of a model are known when the flags are read") {
  const DeviceGuard guard(gpu());
  const Tensor x = Tensor::full(Shape{3}, dtypes::fp32, NAN), fine = Tensor::full(Shape{3}, dtypes::fp32, 1);
  FlagBoard board;
  check_finite(3, fine.as<float>(), board.word("a"));
  check_finite(3, x.as<float>(), board.word("b"));
  CHECK(board.raised().empty());
  poll_errors();
  CHECK(board.raised() == std::vector<std::string>{"b"});
  board.clear();
  CHECK(board.raised().empty());
}
