// C of networks of integers and of one bit on emulated Cortex-M cores (arm-none-eabi-gcc, qemu-system-arm): codes,
// instructions, bytes of RAM and flash. Instructions are not cycles: flash that waits, and caches, are not counted.
#include <cstdlib>
#include <fstream>

#include "bitgrad/base/text.h"
#include "bitgrad/checkpoint/model_record.h"
#include "bitgrad/export/export.h"
#include "export/c_integer.h"
#include "export/c_writer.h"
#include "support/catch.h"
#include "support/export_nets.h"
#include "support/integer_nets.h"
#include "support/integer_reference.h"
#include "support/subprocess.h"
#include "support/temp_dir.h"
#include "train/small_runs.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

using Codes = IntegerReference::Codes;
constexpr int kSamples = 3;

constexpr const char* kLinkerScript = R"(
MEMORY {
  FLASH (rx) : ORIGIN = 0, LENGTH = 4M
  RAM (rw) : ORIGIN = 0x20000000, LENGTH = 4M
}
SECTIONS {
  .text : { KEEP(*(.vectors)) *(.text*) *(.rodata*) } > FLASH
  .ARM.exidx : { *(.ARM.exidx*) } > FLASH
  .data : { *(.data*) } > RAM AT > FLASH
  .bss : { first_of_bss = .; *(.bss*) *(COMMON) . = ALIGN(4); end_of_bss = .; } > RAM
}
)";

// Prints the codes that differ and the instructions of a sample: the timer of these boards (CMSDK, 25 MHz) counts
// virtual time, with -icount shift=0 a nanosecond an instruction, so a tick is 40 instructions.
constexpr const char* kStart = R"c(
 #include "net.h"
 #include "samples.inc"
static void print(const char *text) {
  register int r0 __asm__("r0") = 4;
  register const char *r1 __asm__("r1") = text;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}
static void number(uint32_t v) {
  char t[12];
  int i = 11;
  t[11] = 0;
  do { t[--i] = (char)('0' + v % 10); v /= 10; } while (v);
  print(t + i);
  print(" ");
}
#define TIMER ((volatile uint32_t *)0x40000000)
extern uint32_t first_of_bss, end_of_bss;
void start(void) {
  uint32_t *p, before, after;
  int i, j, bad = 0;
  static net_output out[net_outputs];
  for (p = &first_of_bss; p < &end_of_bss; ++p) *p = 0;
  TIMER[1] = 0xffffffff;
  TIMER[2] = 0xffffffff;
  TIMER[0] = 1;
  before = TIMER[1];
  for (i = 0; i < SAMPLES; ++i) {
    net_predict(inputs[i], out);
    for (j = 0; j < net_outputs; ++j) bad += out[j] != expected[i][j];
  }
  after = TIMER[1];
  number((uint32_t)bad);
  number((before - after) / SAMPLES * 40);
  {
    register int r0 __asm__("r0") = 0x18;
    register int r1 __asm__("r1") = 0x20026;
    __asm__ volatile("bkpt 0xab" : : "r"(r0), "r"(r1));
  }
  for (;;) {}
}
__attribute__((section(".vectors"), used)) void *const vectors[16] = {(void *)0x20400000, (void *)start};
)c";

std::string text_of(const std::vector<Codes>& rows) {
  std::string out;
  for (const Codes& row : rows) out += concat(out.empty() ? "{" : ",{", joined(row, ","), "}");
  return out;
}

void write_start(const TempDir& temp, const std::string& inputs, const std::string& outputs) {
  std::ofstream(temp.file("samples.inc"))
      << "enum { SAMPLES = " << kSamples << " };\nstatic const net_input inputs[SAMPLES][net_inputs] = {" << inputs
      << "};\nstatic const net_output expected[SAMPLES][net_outputs] = {" << outputs << "};\n";
  std::ofstream(temp.file("start.c")) << kStart;
  std::ofstream(temp.file("link.ld")) << kLinkerScript;
}

void write_program(const TempDir& temp, const inference::Graph& graph, const ExportSpec& spec = {}) {
  (void)c_integer::write_c(graph, temp.file("net.c"), spec, {});
  IntegerNet draws(Shape{1}, OutputRounding::kDouble, 11);
  IntegerReference reference(graph);
  std::vector<Codes> inputs, outputs;
  for (int s = 0; s < kSamples; ++s) {
    Codes x(static_cast<size_t>(graph[1].form.sample.numel()));
    for (int64_t& each : x) each = draws.drawn(-128, 127);
    outputs.push_back(reference.run(x));
    inputs.push_back(std::move(x));
  }
  write_start(temp, text_of(inputs), text_of(outputs));
}

std::string text_of(const Tensor& rows) {
  std::string out;
  for (int64_t s = 0, n = rows.numel() / kSamples; s < kSamples; ++s) {
    out += s == 0 ? "{" : ",{";
    for (int64_t i = 0; i < n; ++i) out += c_target::c_number(rows.as<float>()[s * n + i]) + ',';
    out += '}';
  }
  return out;
}

struct Sizes {
  int64_t flash = 0, ram = 0;
};
// Of net.c alone.
Sizes sizes(const std::string& object) {
  const ProcessResult r = run_program({"arm-none-eabi-size", object});
  REQUIRE(r.code == 0);
  std::istringstream in(r.out.substr(r.out.find('\n') + 1));
  int64_t text = 0, data = 0, bss = 0;
  in >> text >> data >> bss;
  return {text + data, data + bss};
}

struct Core {
  std::string name, cpu, board;
  std::vector<std::string> flags = {};
  int64_t most_instructions = 0;
  bool floats = false;
};

// Codes of the samples, and at most so many instructions, bytes of flash and of RAM.
void check_on(const Core& core, const TempDir& temp, const Sizes& most) {
  INFO(core.name);
  std::vector<std::string> compile{"arm-none-eabi-gcc", "-mcpu=" + core.cpu, "-mthumb",  "-O2", "-std=c99", "-Wall",
                                   "-Wextra",           "-Werror",           "-pedantic"};
  compile.insert(compile.end(), core.flags.begin(), core.flags.end());
  std::vector<std::string> one = compile;
  for (const std::string word : {"-c", "net.c", "-o", "net.o"}) one.push_back(word[0] == 'n' ? temp.file(word) : word);
  const ProcessResult compiled = run_program(one);
  INFO(compiled.err.substr(0, 2000));
  REQUIRE(compiled.code == 0);
  const ProcessResult symbols = run_program({"arm-none-eabi-nm", temp.file("net.o")});
  REQUIRE(symbols.code == 0);
  CHECK(symbols.out.find("net_predict") != std::string::npos);
  if (!core.floats) CHECK(symbols.out.find("__aeabi_f") == std::string::npos);
  CHECK(symbols.out.find("__aeabi_d") == std::string::npos);
  const Sizes found = sizes(temp.file("net.o"));
  CHECK(found.flash <= most.flash);
  CHECK(found.ram <= most.ram);
  const ProcessResult linked =
      run_program({"arm-none-eabi-gcc", "-mcpu=" + core.cpu, "-mthumb", "-O2", "-std=gnu99", "-nostartfiles", "-T",
                   temp.file("link.ld"), temp.file("start.c"), temp.file("net.o"), "-o", temp.file("net.elf")});
  INFO(linked.err.substr(0, 2000));
  REQUIRE(linked.code == 0);
  const ProcessResult ran = run_program({"timeout", "300", "qemu-system-arm", "-M", core.board, "-nographic",
                                         "-semihosting", "-icount", "shift=0", "-kernel", temp.file("net.elf")});
  INFO(ran.out << ran.err);
  std::istringstream in(ran.out + ran.err);
  int64_t bad = -1, instructions = -1;
  in >> bad >> instructions;
  CHECK(bad == 0);
  CHECK((instructions > 0 && instructions <= core.most_instructions));
  WARN(core.name << ": " << instructions << " instructions, flash " << found.flash << ", RAM " << found.ram);
}

bool has_tools() {
  for (const std::string tool : {"arm-none-eabi-gcc", "qemu-system-arm"})
    if (run_program({tool, "--version"}).code != 0) {
      WARN("skipped: no " + tool + ". Debian: gcc-arm-none-eabi, libnewlib-arm-none-eabi, qemu-system-arm");
      return false;
    }
  return true;
}

}  // namespace

TEST_CASE("ResNet-8 of int8 codes runs on Cortex-M3 and M4") {
  if (!has_tools()) return;
  const TempDir temp;
  write_program(temp, small_resnet(OutputRounding::kDouble, dtypes::int8, 32, 16));
  check_on({"Cortex-M3", "cortex-m3", "mps2-an385", {}, 36'000'000}, temp, {85'000, 34'100});
  check_on({"Cortex-M4", "cortex-m4", "mps2-an386", {}, 28'000'000}, temp, {85'000, 35'300});
  check_on({"Cortex-M4, plain C", "cortex-m4", "mps2-an386", {"-DNET_PLAIN"}, 36'000'000}, temp, {85'000, 34'100});
}

TEST_CASE("ResNet-8 that keeps rows in rings needs 28,500 bytes on Cortex-M4") {
  if (!has_tools()) return;
  const TempDir temp;
  write_program(temp, small_resnet(OutputRounding::kDouble, dtypes::int8, 32, 16), {.stream = true});
  check_on({"Cortex-M4", "cortex-m4", "mps2-an386", {}, 28'500'000}, temp, {85'000, 28'500});
}

TEST_CASE("ResNet-8 of 4-bit weights holds two of them in a byte") {
  if (!has_tools()) return;
  const TempDir temp;
  write_program(temp, small_resnet(OutputRounding::kDouble, dtypes::int4, 32, 16));
  check_on({"Cortex-M3", "cortex-m3", "mps2-an385", {}, 36'000'000}, temp, {47'000, 34'100});
  check_on({"Cortex-M4", "cortex-m4", "mps2-an386", {}, 28'500'000}, temp, {47'000, 35'300});
}

TEST_CASE("DS-CNN of int8 codes runs on Cortex-M3 and M4, its depthwise convolutions four channels at once") {
  if (!has_tools()) return;
  const TempDir temp;
  write_program(temp, ds_cnn(OutputRounding::kDouble));
  check_on({"Cortex-M3", "cortex-m3", "mps2-an385", {}, 12'000'000}, temp, {33'000, 16'200});
  check_on({"Cortex-M4", "cortex-m4", "mps2-an386", {}, 9'000'000}, temp, {33'000, 16'400});
}

TEST_CASE("Every operation of integers gives its codes on Cortex-M4") {
  if (!has_tools()) return;
  const TempDir temp;
  for (const auto rule : {OutputRounding::kDouble, OutputRounding::kSingle, OutputRounding::kFloat}) {
    write_program(temp, odd_network(rule, dtypes::int4));
    check_on({"odd network, " + std::string(enum_name(rule)), "cortex-m4", "mps2-an386", {}, 4'000'000}, temp,
             {16'000, 4'000});
  }
}

// [cpu]: the samples are written from host memory.
TEST_CASE("A convolutional network of one bit runs on Cortex-M3 and M4 by counting bits of whole windows", "[cpu]") {
  if (!has_tools()) return;
  const KeepModes keep;
  const TempDir temp;
  const std::string q = "{batch_norm: {}}, {quantize: {}}, ";
  const auto conv = [&](int out) { return concat("{conv2d: {out: ", out, ", kernel: 3, bias: false}}, ") + q; };
  const std::string pool = "{max_pool: {size: 2}}, ";
  const auto trainer =
      trained({"cnv",
               "[{unsqueeze: {}}, {quantize: {dtype: int8, scheme: fixed, scale: 0.0078125}}, " + conv(16) + conv(16) +
                   pool + conv(32) + conv(32) + pool + conv(64) + "{flatten: {}}, {linear: {out: 128, bias: false}}, " +
                   q + "{linear: {out: 10, bias: false}}, {tensor_norm: {}}]",
               kBinaryWeights + ", activations: {dtype: bint1, scheme: binary}"});
  set_bits_mode(BitsMode::kStrict);
  const std::optional<ModelRecord> record = model_record(trainer->learner());
  const std::string path = temp.file("net.c");
  (void)choose_export_target(path, "").write({&trainer->learner().model(), &record->model}, path, {});
  IntegerNet draws(Shape{1}, OutputRounding::kDouble, 11);
  Tensor x = Tensor::empty(Shape{kSamples, 28, 28}, dtypes::fp32);
  for (int64_t i = 0; i < x.numel(); ++i) x.as<float>()[i] = static_cast<float>(draws.drawn(-300, 300)) / 256.0f;
  write_start(temp, text_of(x), text_of(trainer->learner().predict(x).clone(MemoryKind::kBuffer)));
  check_on({"Cortex-M3", "cortex-m3", "mps2-an385", {}, 2'000'000, true}, temp, {20'000, 10'000});
  check_on({"Cortex-M4", "cortex-m4", "mps2-an386", {}, 2'000'000, true}, temp, {20'000, 10'000});
}
