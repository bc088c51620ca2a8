#!/bin/bash
# Compiles an exported C file for an emulated Cortex-M and compares its outputs with those of this machine's compiler:
#   scripts/run_on_cortex.sh NET.c [cortex-m3|cortex-m4|cortex-m7] [SAMPLES]
# Prints instructions of a sample (not cycles), flash and RAM. Needs what `scripts/setup.sh --arm` installs. $CFLAGS:
# more flags of both compilers, such as -DNET_PLAIN.
set -euo pipefail
usage() { echo "run_on_cortex: $1. Usage: scripts/run_on_cortex.sh NET.c [cortex-m3|cortex-m4|cortex-m7] [SAMPLES]" >&2; exit 2; }
[ $# -ge 1 ] && [ $# -le 3 ] || usage "got $# arguments"
net=$1 cpu=${2:-cortex-m4} samples=${3:-20}
case "$cpu" in
  cortex-m3) board=mps2-an385 ;;
  cortex-m4) board=mps2-an386 ;;
  cortex-m7) board=mps2-an500 ;;
  *) usage "got core '$cpu', expected cortex-m3, cortex-m4 or cortex-m7" ;;
esac
[[ $net == *.c ]] || usage "got '$net', expected the .c file that bitgrad export wrote"
[[ $samples =~ ^[1-9][0-9]{0,4}$ ]] || usage "got '$samples' samples, expected 1 to 99999"
for file in "$net" "${net%.c}.h"; do
  [ -f "$file" ] || { echo "run_on_cortex: no file $file" >&2; exit 2; }
done
read -r -a cc <<<"${CC:-cc}"
for tool in arm-none-eabi-gcc arm-none-eabi-size qemu-system-arm "${cc[0]}"; do
  command -v "$tool" >/dev/null || { echo "run_on_cortex: no $tool. scripts/setup.sh --arm installs what is needed" >&2; exit 2; }
done
stem=$(basename "$net" .c)
name=${stem//[^A-Za-z0-9]/_}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/link.ld" <<'LD'
MEMORY { FLASH (rx) : ORIGIN = 0, LENGTH = 4M
         RAM (rw) : ORIGIN = 0x20000000, LENGTH = 4M }
SECTIONS {
  .text : { KEEP(*(.vectors)) *(.text*) *(.rodata*) } > FLASH
  .ARM.exidx : { *(.ARM.exidx*) } > FLASH
  .data : { *(.data*) } > RAM AT > FLASH
  .bss : { first_of_bss = .; *(.bss*) *(COMMON) . = ALIGN(4); end_of_bss = .; } > RAM
}
LD
# The timer of these boards has 25 MHz; with -icount shift=0 an instruction lasts a nanosecond, so a tick is 40.
cat >"$work/main.c" <<C
#include "$stem.h"
#define INPUTS ${name}_inputs
#define OUTPUTS ${name}_outputs
#define PREDICT ${name}_predict
#define SAMPLES $samples
typedef ${name}_input input;
typedef ${name}_output output;
C
cat >>"$work/main.c" <<'C'
static input in[INPUTS];
static output out[OUTPUTS];
#ifdef __arm__
#define TIMER ((volatile uint32_t *)0x40000000)
#define NOW() TIMER[1]
#else
#define NOW() 0U
#endif
static uint32_t run(uint64_t *ticks) {
  uint32_t state = 1, sum = 2166136261U, before;
  int s;
  unsigned i;
  *ticks = 0;
  for (s = 0; s < SAMPLES; ++s) {
    for (i = 0; i < INPUTS; ++i) {
      state = state * 1664525U + 1013904223U;
      in[i] = (input)(int8_t)(uint8_t)(state >> 24);
    }
    before = NOW();
    PREDICT(in, out);
    *ticks += (uint32_t)(before - NOW());
    for (i = 0; i < sizeof out; ++i) sum = (sum ^ ((const uint8_t *)out)[i]) * 16777619U;
  }
  return sum;
}
#ifdef __arm__
static void print(uint32_t v) {
  char t[12];
  int i = 11;
  register int r0 __asm__("r0") = 4; /* write text */
  register const char *r1 __asm__("r1");
  t[11] = 0, t[--i] = ' ';
  do { t[--i] = (char)('0' + v % 10); v /= 10; } while (v);
  r1 = t + i;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}
extern uint32_t first_of_bss, end_of_bss;
void start(void) {
  uint32_t *p, sum;
  uint64_t ticks;
  for (p = &first_of_bss; p < &end_of_bss; ++p) *p = 0;
  TIMER[1] = 0xffffffff;
  TIMER[2] = 0xffffffff;
  TIMER[0] = 1;
  sum = run(&ticks);
  print(sum);
  print((uint32_t)(ticks * 40 / SAMPLES));
  {
    register int r0 __asm__("r0") = 0x18; /* end */
    register int r1 __asm__("r1") = 0x20026;
    __asm__ volatile("bkpt 0xab" : : "r"(r0), "r"(r1));
  }
  for (;;) {}
}
__attribute__((section(".vectors"), used)) void *const vectors[16] = {(void *)0x20400000, (void *)start};
#else
#include <stdio.h>
int main(void) {
  uint64_t ticks;
  printf("%lu\n", (unsigned long)run(&ticks));
  return 0;
}
#endif
C

folder=$(cd "$(dirname "$net")" && pwd)
read -r -a flags <<<"${CFLAGS:-}"
"${cc[@]}" -std=c99 -O2 -ffp-contract=off "${flags[@]}" -I "$folder" "$work/main.c" "$net" -o "$work/host"
expected=$("$work/host")
arm=(arm-none-eabi-gcc "-mcpu=$cpu" -mthumb -O2 "${flags[@]}" -I "$folder")
"${arm[@]}" -std=c99 -c "$net" -o "$work/net.o"
"${arm[@]}" -std=gnu99 -nostartfiles -T "$work/link.ld" "$work/main.c" "$work/net.o" -o "$work/net.elf"
said=$(timeout 600 qemu-system-arm -M "$board" -nographic -semihosting -icount shift=0 -kernel "$work/net.elf" 2>&1) ||
  { echo "run_on_cortex: qemu-system-arm ended with $?: $said" >&2; exit 1; }
# Among what qemu itself says: both are written to its standard error.
[[ $said =~ ([0-9]+)\ ([0-9]+)\ $ ]] || { echo "run_on_cortex: qemu-system-arm wrote '$said', expected two numbers" >&2; exit 1; }
sum=${BASH_REMATCH[1]} instructions=${BASH_REMATCH[2]}
if [ "$sum" != "$expected" ]; then
  echo "run_on_cortex: outputs of $samples random samples on $cpu differ from those of ${cc[*]} here: sums $sum and $expected" >&2
  exit 1
fi
read -r text data bss _ < <(arm-none-eabi-size "$work/net.o" | tail -1)
echo "$cpu (emulated): outputs of $samples random samples equal those of ${cc[*]} here"
echo "instructions of a sample: $instructions; flash: $((text + data)) bytes, code included; RAM: $((data + bss)) bytes"
