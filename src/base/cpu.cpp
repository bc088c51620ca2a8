// CPU detection by cpuid and xgetbv (Intel SDM vol. 1 chapter 13; vol. 2 CPUID); AMX by arch_prctl (Linux 5.16).
#include "bitgrad/base/cpu.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <optional>

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bitgrad/base/error.h"

namespace bitgrad {
namespace {

struct LevelRecord {
  IsaLevel level;
  std::string_view name;
  IsaMask keeps;
  const char* onednn;  // oneDNN's name for the cap; nullptr: no cap needed
};
constexpr IsaMask kAvx512All =
    isa::kAvx512 | isa::kAvx512Vnni | isa::kAvx512Popcnt | isa::kAvx512Bf16 | isa::kAvx512Vbmi;
constexpr std::array<LevelRecord, 4> kLevels{{
    {IsaLevel::kScalar, "scalar", isa::kScalar, "SSE41"},
    {IsaLevel::kAvx2, "avx2", isa::kAvx2, "AVX2"},
    {IsaLevel::kAvx512, "avx512", isa::kAvx2 | kAvx512All, "AVX512_CORE_BF16"},
    {IsaLevel::kAmx, "amx", isa::kAvx2 | kAvx512All | isa::kAmx, nullptr},
}};
const LevelRecord& record_of(IsaLevel level) { return kLevels[static_cast<size_t>(level)]; }

uint64_t xcr0() {
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

bool all_set(uint64_t word, uint64_t bits) { return (word & bits) == bits; }

IsaMask detect_vectors() {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
  const uint32_t leaf1_c = c;
  if (!all_set(leaf1_c, bit_OSXSAVE) || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
  const uint32_t max_subleaf = a, leaf7_b = b, leaf7_c = c;
  const uint64_t state = xcr0();
  IsaMask mask = 0;
  if (all_set(state, 0x6) && all_set(leaf1_c, bit_FMA | bit_F16C | bit_AVX) && all_set(leaf7_b, bit_AVX2 | bit_BMI2))
    mask |= isa::kAvx2;
  if (mask != 0 && all_set(state, 0xE6) && all_set(leaf7_b, bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL)) {
    mask |= isa::kAvx512;
    if (all_set(leaf7_c, bit_AVX512VNNI)) mask |= isa::kAvx512Vnni;
    if (all_set(leaf7_c, bit_AVX512VPOPCNTDQ)) mask |= isa::kAvx512Popcnt;
    if (all_set(leaf7_c, bit_AVX512VBMI)) mask |= isa::kAvx512Vbmi;
    if (max_subleaf >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && all_set(a, 1u << 5)) mask |= isa::kAvx512Bf16;
  }
  return mask;
}

// The system may withhold tiles that the CPU has, so the system decides.
bool request_amx() {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  constexpr uint32_t kTileInt8Bf16 = (1u << 24) | (1u << 25) | (1u << 22);
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !all_set(d, kTileInt8Bf16)) return false;
  if (!all_set(c, bit_AVX512VBMI | bit_GFNI)) return false;  // our kernels expand codes with these
  constexpr uint64_t kTileState = (1u << 17) | (1u << 18);
  if (!all_set(xcr0(), kTileState)) return false;
  constexpr int kGetPermissions = 0x1022, kAskPermission = 0x1023, kTileData = 18;
  if (syscall(SYS_arch_prctl, kAskPermission, kTileData) != 0) return false;
  uint64_t granted = 0;
  return syscall(SYS_arch_prctl, kGetPermissions, &granted) == 0 && all_set(granted, uint64_t{1} << kTileData);
}

constexpr struct GroupName {
  IsaMask bit;
  std::string_view name;
} kGroupNames[] = {{isa::kAvx2, "avx2"},           {isa::kAvx512, "avx512"},    {isa::kAvx512Vnni, "vnni"},
                   {isa::kAvx512Popcnt, "popcnt"}, {isa::kAvx512Bf16, "bf16"},  {isa::kAmx, "amx"},
                   {isa::kAvx512Vbmi, "vbmi"},     {isa::kSm80Mma, "mma.s8"},   {isa::kB1Mma, "mma.b1"},
                   {isa::kWgmma, "wgmma"},         {isa::kCublasLt, "cublaslt"}};

// The named group and all groups that imply it.
IsaMask group_and_above(std::string_view name) {
  constexpr IsaMask kOfCpu = isa::kAvx2 | kAvx512All | isa::kAmx;
  for (const GroupName& group : kGroupNames) {
    if (group.name != name || (group.bit & kOfCpu) == 0) continue;
    if (group.bit == isa::kAvx2) return kOfCpu;
    if (group.bit == isa::kAvx512) return kAvx512All | isa::kAmx;
    return group.bit == isa::kAvx512Vbmi ? isa::kAvx512Vbmi | isa::kAmx
                                         : group.bit;  // AMX kernels expand codes with VBMI
  }
  fail("BITGRAD_ISA_WITHOUT", "unknown group of instructions: got '", name,
       "', expected a list of avx2, avx512, vnni, popcnt, bf16, vbmi and amx, such as bf16,amx.");
}

// BITGRAD_ISA_WITHOUT: groups treated as absent whatever the cap, so that tests can simulate a machine without them.
IsaMask absent_groups() {
  const char* variable = std::getenv("BITGRAD_ISA_WITHOUT");
  std::string_view rest = variable == nullptr ? "" : variable;
  IsaMask absent = 0;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    absent |= group_and_above(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return absent;
}

// Permission for tiles enlarges every signal frame of the process, so it is requested only under the cap `amx`, which
// is also the default.
IsaMask usable(IsaLevel cap) {
  static const IsaMask absent = absent_groups();
  static const IsaMask vectors = detect_vectors() & ~absent;
  IsaMask mask = vectors;
  if (cap == IsaLevel::kAmx && (vectors & isa::kAvx512) != 0 && (absent & isa::kAmx) == 0) {
    static const bool amx = request_amx();
    if (amx) mask |= isa::kAmx;
  }
  return mask & record_of(cap).keeps;
}

// oneDNN reads ONEDNN_MAX_CPU_ISA, then DNNL_MAX_CPU_ISA, once, at its first use. The levels are in ascending order.
constexpr std::array<const char*, 2> kOneDnnVariables{"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"};
constexpr std::array<std::string_view, 11> kOneDnnLevels{"SSE41",
                                                         "AVX",
                                                         "AVX2",
                                                         "AVX2_VNNI",
                                                         "AVX2_VNNI_2",
                                                         "AVX512_MIC",
                                                         "AVX512_MIC_4OPS",
                                                         "AVX512_CORE",
                                                         "AVX512_CORE_VNNI",
                                                         "AVX512_CORE_BF16",
                                                         "AVX512_CORE_FP16"};

// Index in kOneDnnLevels, or the list's length for a name that is above all levels or unknown (to oneDNN: no cap).
size_t onednn_rank(std::string name) {
  for (char& c : name)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  size_t rank = 0;
  while (rank < kOneDnnLevels.size() && kOneDnnLevels[rank] != name) ++rank;
  return rank;
}

void cap_onednn(IsaLevel cap) {
  using Values = std::array<std::optional<std::string>, kOneDnnVariables.size()>;
  static const Values users = [] {
    Values values;
    for (size_t i = 0; i < values.size(); ++i)
      if (const char* text = std::getenv(kOneDnnVariables[i])) values[i] = text;
    return values;
  }();
  const char* ours = record_of(cap).onednn;
  const std::optional<std::string>& user = users[0] ? users[0] : users[1];
  const bool keep_users = ours == nullptr || (user && onednn_rank(*user) <= onednn_rank(ours));
  for (size_t i = 0; i < users.size(); ++i) {
    if (!keep_users)
      setenv(kOneDnnVariables[i], ours, 1);
    else if (users[i])
      setenv(kOneDnnVariables[i], users[i]->c_str(), 1);
    else
      unsetenv(kOneDnnVariables[i]);
  }
}

struct Cap {
  std::mutex mutex;
  std::atomic<bool> set{false};
  std::atomic<IsaLevel> level{IsaLevel::kAmx};
  std::atomic<IsaMask> mask{0};
  std::atomic<uint64_t> generation{1};
};

Cap& cap() {
  static Cap* const instance = new Cap;
  return *instance;
}

// The caller must hold the lock.
void apply(Cap& c, IsaLevel level) {
  cap_onednn(level);
  c.level = level;
  c.mask = usable(level);
  c.set = true;
}

Cap& ready_cap() {
  Cap& c = cap();
  if (!c.set) {
    const std::lock_guard lock(c.mutex);
    if (!c.set) {
      const char* text = std::getenv("BITGRAD_ISA");
      apply(c, text == nullptr || *text == '\0' ? IsaLevel::kAmx : parse_isa_level(text));
    }
  }
  return c;
}

}  // namespace

IsaMask cpu_isa() { return ready_cap().mask; }

void set_isa_cap(IsaLevel level) {
  Cap& c = cap();
  const std::lock_guard lock(c.mutex);
  apply(c, level);
  ++c.generation;
}

IsaLevel isa_cap() { return ready_cap().level; }

uint64_t isa_generation() { return cap().generation; }

IsaLevel parse_isa_level(std::string_view name) {
  for (const LevelRecord& record : kLevels)
    if (record.name == name) return record.level;
  fail("BITGRAD_ISA", "unknown instruction set level: got '", name, "', expected scalar, avx2, avx512 or amx.");
}

std::string isa_names(IsaMask mask) {
  std::string text;
  for (const GroupName& n : kGroupNames)
    if ((mask & n.bit) != 0) text.append(text.empty() ? "" : " ").append(n.name);
  return text.empty() ? "scalar" : text;
}

std::string cpu_model_name() {
  std::string name;
  uint32_t words[4] = {};
  for (uint32_t leaf = 0x80000002u; leaf <= 0x80000004u; ++leaf)
    if (__get_cpuid(leaf, &words[0], &words[1], &words[2], &words[3]))
      name.append(reinterpret_cast<const char*>(words), sizeof words);
  name.resize(name.find('\0') == std::string::npos ? name.size() : name.find('\0'));
  const size_t first = name.find_first_not_of(' ');
  if (first == std::string::npos) return "unknown CPU";
  return name.substr(first, name.find_last_not_of(' ') - first + 1);
}

namespace {

std::atomic<BitsMode> g_bits_mode{BitsMode::kFast};

}  // namespace

BitsMode bits_mode() { return g_bits_mode.load(std::memory_order_relaxed); }
void set_bits_mode(BitsMode mode) { g_bits_mode.store(mode, std::memory_order_relaxed); }

}  // namespace bitgrad
