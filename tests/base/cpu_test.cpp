#include "bitgrad/base/cpu.h"

#include <cstdlib>
#include <string>

#include "support/catch.h"
#include "support/expect_error.h"

namespace bitgrad {
namespace {

struct KeepCap {
  IsaLevel old = isa_cap();
  ~KeepCap() { set_isa_cap(old); }
};

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

TEST_CASE("The four levels parse, and any other text is an error that lists them") {
  CHECK(parse_isa_level("scalar") == IsaLevel::kScalar);
  CHECK(parse_isa_level("avx2") == IsaLevel::kAvx2);
  CHECK(parse_isa_level("avx512") == IsaLevel::kAvx512);
  CHECK(parse_isa_level("amx") == IsaLevel::kAmx);
  for (const char* bad : {"", "AVX2", "avx", "avx512 ", "sse", "scalar\n"}) {
    const std::string text = test::error_of([&] { parse_isa_level(bad); });
    CHECK(test::contains(text, "[BITGRAD_ISA]"));
    CHECK(test::contains(text, "got '" + std::string(bad) + "'"));
    CHECK(test::contains(text, "scalar, avx2, avx512 or amx"));
    CHECK(test::error_code_of([&] { parse_isa_level(bad); }) == 2);
  }
}

TEST_CASE("A cap keeps its level and below, and every change makes a new generation") {
  const KeepCap keep;
  set_isa_cap(IsaLevel::kAmx);
  const IsaMask all = cpu_isa();
  const uint64_t generation = isa_generation();
  set_isa_cap(IsaLevel::kScalar);
  CHECK(cpu_isa() == 0);
  CHECK(isa_cap() == IsaLevel::kScalar);
  CHECK(isa_generation() > generation);
  set_isa_cap(IsaLevel::kAvx2);
  CHECK(cpu_isa() == (all & isa::kAvx2));
  set_isa_cap(IsaLevel::kAvx512);
  CHECK(cpu_isa() == (all & ~isa::kAmx));
  set_isa_cap(IsaLevel::kAmx);
  CHECK(cpu_isa() == all);
}

TEST_CASE("Higher groups never come without the lower ones") {
  const KeepCap keep;
  set_isa_cap(IsaLevel::kAmx);
  const IsaMask all = cpu_isa();
  if ((all & isa::kAvx512) != 0) CHECK((all & isa::kAvx2) != 0);
  if ((all & (isa::kAvx512Vnni | isa::kAvx512Popcnt | isa::kAvx512Bf16 | isa::kAvx512Vbmi | isa::kAmx)) != 0)
    CHECK((all & isa::kAvx512) != 0);
}

TEST_CASE("The cap reaches oneDNN, and lifting it gives back what the user had") {
  const KeepCap keep;
  set_isa_cap(IsaLevel::kAmx);
  const std::string users = variable("ONEDNN_MAX_CPU_ISA"), users_old_name = variable("DNNL_MAX_CPU_ISA");
  if (users.empty() && users_old_name.empty()) {
    set_isa_cap(IsaLevel::kScalar);
    CHECK(variable("ONEDNN_MAX_CPU_ISA") == "SSE41");
    CHECK(variable("DNNL_MAX_CPU_ISA") == "SSE41");
    set_isa_cap(IsaLevel::kAvx2);
    CHECK(variable("ONEDNN_MAX_CPU_ISA") == "AVX2");
    set_isa_cap(IsaLevel::kAvx512);
    CHECK(variable("ONEDNN_MAX_CPU_ISA") == "AVX512_CORE_BF16");
  }
  set_isa_cap(IsaLevel::kAmx);
  CHECK(variable("ONEDNN_MAX_CPU_ISA") == users);
  CHECK(variable("DNNL_MAX_CPU_ISA") == users_old_name);
}

TEST_CASE("Names of groups are listed lowest first") {
  CHECK(isa_names(0) == "scalar");
  CHECK(isa_names(isa::kAvx2) == "avx2");
  CHECK(isa_names(isa::kAvx2 | isa::kAvx512 | isa::kAvx512Vnni | isa::kAvx512Popcnt | isa::kAvx512Bf16 | isa::kAmx) ==
        "avx2 avx512 vnni popcnt bf16 amx");
  CHECK(isa_names(isa::kAvx512Vbmi) == "vbmi");
  CHECK(!cpu_model_name().empty());
  CHECK(cpu_model_name().find('\0') == std::string::npos);
}

}  // namespace
}  // namespace bitgrad
