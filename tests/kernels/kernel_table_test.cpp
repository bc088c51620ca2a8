#include "kernels/kernel_table.h"

#include "support/catch.h"
#include "support/expect_error.h"

namespace bitgrad {

using namespace kernels;
namespace {

using test::error_of;

TEST_CASE("The CPU has a kernel for every line of the table, and its table cannot be replaced") {
  const KernelTable& table = kernel_table();
#define BITGRAD_KERNEL(family, order, result, name, parameters, arguments) \
  INFO(#name);                                                             \
  CHECK(table.name.run != nullptr);
#include "kernels/kernel_table.inc"
#undef BITGRAD_KERNEL
  CHECK(error_of([&] { register_kernel_table(DeviceKind::kCpu, &table); }) ==
        "[register_kernel_table] the kernels of cpu cannot be replaced.");
  CHECK(error_of([&] { register_kernel_table(static_cast<DeviceKind>(9), &table); }) ==
        "[register_kernel_table] the kernels of device kind 9 cannot be replaced.");
}

TEST_CASE("The public function of a line runs the kernel of the current device") {
  const float a[] = {1, -2, 3}, b[] = {10, 20, 30};
  float by_name[3], by_table[3];
  add(3, a, b, by_name);
  kernel_table().add.run(3, a, b, by_table);
  for (int i = 0; i < 3; ++i) CHECK(by_name[i] == by_table[i]);
  CHECK(by_name[1] == 18);
}

}  // namespace
}  // namespace bitgrad
