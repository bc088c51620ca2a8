#!/usr/bin/env python3
"""Compiles kernels for every target and reads what came out: registers, spills, remarks of ptxas, instructions.

    scripts/check_cubins.py [--nvcc PATH] [--archs 80,86,...] [--objects FOLDER] [--jobs N] [--self-test] [--shared] [SOURCE.cu ...]

--objects: read what a build for one target (BITGRAD_CUDA_ARCHS) left there, objects and the logs of ptxas, in place of
compiling again; sources without such an object are compiled.

Without sources: all of cuda/kernels/gemm, and the sweeps of an optimizer step (SOURCES). Needs nvcc only (no
cuobjdump): an instruction of a cubin is 16 bytes, its opcode the low 12 bits. Exit code: the number of broken rules, at most 100; 77 without nvcc (skipped).

Rules, for each kernel and target:
  spill, stack      no spilled registers, no stack frame
  local             no LDL or STL
  call              no CALL but of ptxas' own helpers for divisions, roots, remainders and collectives of 64 bits or
                    diverged lanes.
                    Products that a target lacks (b1 xor on 9.0, b1 and s4 from 10.0 on) compile into such calls too:
                    their helpers have mma in their names
  serialized        no remark C7508 or C7510 .. C7519 (wgmma made synchronous, setmaxnreg ignored)
  tensor core       what the kernel's name promises on this target: wgmma and mma kernels
  empty             wgmma kernels have no body on targets without wgmma
  loop              between the first wait for a stage and the last product of a wgmma kernel no MEMBAR beyond the block and no CCTL
  end               wgmma kernels that store from fragments: instructions from the last wait for products to the last store, for
                    each output of a thread (END)
  issue             products of floats and codes: instructions from the first product to the last, for each product (ISSUE)
  shared            static shared memory is what tests/emulation/cuda/static_shared.inc says, by which the emulated
                    device counts it, and at most 32 KiB (detail::kMostStaticShared of cuda/runtime/runtime.h).
                    --shared prints that file anew
"""
import argparse
import collections
import concurrent.futures
import glob
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ARCHS = ["80", "86", "89", "90a", "100a", "120a"]
FLAGS = ["-std=c++20", "-O3", "--expt-relaxed-constexpr", "-fmad=false", "-prec-div=true", "-prec-sqrt=true", "-ftz=false"]
OPCODES = {0x9F1: "IGMMA", 0xDF1: "IGMMA", 0x9F2: "BGMMA", 0xDF2: "BGMMA", 0x237: "IMMA", 0x23D: "BMMA", 0x23C: "HMMA",
           0x944: "CALL", 0x943: "CALL", 0x983: "LDL", 0x387: "STL",
           0x5A7: "STAGE", 0x9C5: "WAIT", 0x3B5: "STORE", 0x98F: "CCTL", 0x992: "MEMBAR"}
END = {"bits": 10, "bytes": 7}
ISSUE = {"bf16": 7.5, "f32": 6.5}
FLOATS = re.compile(r"^gemm_(bf16|f32)(_t)?_w\d")
EMPTY = 64  # instructions, with padding
HELPER = re.compile(r"__cuda_sm\d+x?_(div|rem|rcp|sqrt|shflsync|warpsync)")
SOURCES = ["cuda/kernels/gemm/*/*.cu", "cuda/kernels/elementwise/update_rows*.cu"]
FUNCTION = 2  # type of a symbol
EM_CUDA = 190  # machine of an ELF file
RESERVED = 1024  # bytes of shared memory that a block of sm_90 and later has beside its own; ptxas counts them
MOST_STATIC = 32 << 10
STATIC_SHARED = os.path.join(ROOT, "tests/emulation/cuda/static_shared.inc")

Kernel = collections.namedtuple("Kernel", "name stack spills registers remarks")


def demangled(name):
    """The last part of an Itanium-mangled function name."""
    text, found = name[len("_ZN"):] if name.startswith("_ZN") else name[len("_Z"):], name
    while (m := re.match(r"\d+", text)) is not None:
        length = int(m.group())
        found, text = text[m.end():m.end() + length], text[m.end() + length:]
        if not name.startswith("_ZN"):
            break
    return found


def parse_log(log):
    """Kernels of ptxas -v by mangled name."""
    kernels, current = {}, None
    for line in log.splitlines():
        if m := re.search(r"Compiling entry function '(\S+)'", line):
            current = m.group(1)
            kernels.setdefault(current, dict(stack=0, spills=0, registers=0, remarks=[]))
        elif m := re.search(r"Function properties for (\S+)", line):
            current = m.group(1) if m.group(1) in kernels else None
        elif (m := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line)):
            if current:
                kernels[current]["stack"] = int(m.group(1))
                kernels[current]["spills"] = int(m.group(2)) + int(m.group(3))
        elif (m := re.search(r"Used (\d+) registers", line)) and current:
            kernels[current]["registers"] = int(m.group(1))
        if m := re.search(r"\((C75(?:08|1\d))\)", line):
            named = re.search(r"function '(\S+?)'", line)
            owner = named.group(1) if named and named.group(1) in kernels else current
            kernels.setdefault(owner or "?", dict(stack=0, spills=0, registers=0, remarks=[]))
            kernels[owner or "?"]["remarks"].append(m.group(1))
    return {name: Kernel(name, k["stack"], k["spills"], k["registers"], k["remarks"]) for name, k in kernels.items()}


def instructions(data):
    """Kernel of a cubin -> (number of instructions, [(place, opcode of OPCODES)]), and the names of all functions. A MEMBAR of
    the block alone is left out."""
    at, size, count, names_at = struct.unpack_from("<Q", data, 0x28)[0], *struct.unpack_from("<HHH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, at + i * size) for i in range(count)]
    names = data[sections[names_at][4]:sections[names_at][4] + sections[names_at][5]]
    out, functions = {}, set()
    for section in sections:
        if section[1] == 2:  # symbols
            strings = sections[section[6]]
            for i in range(section[4], section[4] + section[5], 24):
                at_name, info = struct.unpack_from("<IB", data, i)
                if info & 15 == FUNCTION:
                    start = strings[4] + at_name
                    functions.add(data[start:data.index(b"\0", start)].decode())
        name = names[section[0]:names.index(b"\0", section[0])].decode()
        if not name.startswith(".text."):
            continue
        code = data[section[4]:section[4] + section[5]]
        words = [struct.unpack_from("<QQ", code, i) for i in range(0, len(code), 16)]
        found = [(i, OPCODES[w & 0xFFF]) for i, (w, more) in enumerate(words)
                 if w & 0xFFF in OPCODES and (OPCODES[w & 0xFFF] != "MEMBAR" or more >> 12 & 7 != 0)]
        out[name[len(".text."):]] = (len(words), found)
    return out, functions


def sections_of(data):
    """Name, offset and size of each section of an ELF file."""
    at, size, count, names_at = struct.unpack_from("<Q", data, 0x28)[0], *struct.unpack_from("<HHH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, at + i * size) for i in range(count)]
    names = data[sections[names_at][4]:sections[names_at][4] + sections[names_at][5]]
    return [(names[s[0]:names.index(b"\0", s[0])].decode(), s[4], s[5]) for s in sections]


def static_shared(data, arch):
    """Kernel of a cubin -> bytes of its static shared arrays."""
    reserved = RESERVED if int(re.match(r"\d+", arch).group()) >= 90 else 0
    found = {name[len(".nv.shared."):]: size - reserved for name, _, size in sections_of(data) if name.startswith(".nv.shared.")}
    return {name: size for name, size in found.items() if size > 0}


def stated_shared():
    with open(STATIC_SHARED, encoding="utf-8") as file:
        return {name: int(size) for name, size in re.findall(r'BITGRAD_STATIC_SHARED\("(\w+)", (\d+)\)', file.read())}


def broken_shared(arch, found, stated, kernels):
    for name in sorted(kernels):
        got = found.get(name, 0)
        if got > MOST_STATIC:
            yield f"{demangled(name)} for sm_{arch}: shared: got {got} static bytes, expected at most {MOST_STATIC}"
        if arch == "90a" and got != stated.get(name, 0):
            yield (f"{demangled(name)} for sm_{arch}: shared: got {got} static bytes, expected {stated.get(name, 0)} "
                   f"({os.path.relpath(STATIC_SHARED, ROOT)}; --shared prints it anew)")


def broken_order(name, found):
    """Rules loop and end of a wgmma kernel."""
    places = collections.defaultdict(list)
    for at, opcode in found:
        places["MMA" if opcode.endswith("GMMA") else opcode].append(at)
    if not places["MMA"]:
        return
    begin = max([at for at in places["STAGE"] if at < places["MMA"][0]], default=places["MMA"][0])
    for opcode in ("MEMBAR", "CCTL"):
        if inside := [at for at in places[opcode] if begin < at < places["MMA"][-1]]:
            yield "loop", f"got {len(inside)} {opcode} among the products, expected none"
    if not re.search(r"_(bf16|f32)_wgmma", name):
        return
    if not places["STORE"] or not places["WAIT"]:
        yield "end", "got no TMA store behind a wait, expected some"
        return
    wait = max((at for at in places["WAIT"] if at < places["STORE"][-1]), default=0)
    outputs, most = (128 if "wgmma256" in name else 64), END["bits" if "_b1_b1_" in name else "bytes"]
    if (got := (places["STORE"][-1] - wait) / outputs) > most:
        yield "end", f"got {got:.1f} instructions an output, expected at most {most}"


def issued(name, found):
    """Instructions for each product of a kernel of floats and codes, or None."""
    places = [at for at, opcode in found if opcode == "HMMA"]
    if not FLOATS.match(name) or len(places) < 2:
        return None
    return (places[-1] - places[0] + 1) / len(places)


def promised(name, arch):
    """The instruction that a kernel's name promises on a target, or None."""
    if "wgmma" in name:
        return None if arch != "90a" else "BGMMA" if "_b1_" in name else "IGMMA"
    if FLOATS.match(name):
        return "HMMA"
    if "_mma" in name:
        bits = re.search(r"_b1|bits|planes", name) is not None
        return None if bits and int(re.match(r"\d+", arch).group()) >= 100 else "BMMA" if bits else "IMMA"
    return None


def broken_rules(arch, kernels, code, functions):
    called = sorted(f for f in functions if f not in kernels and not HELPER.search(f))
    for mangled, kernel in sorted(kernels.items()):
        name = demangled(mangled)
        count, found = code.get(mangled, (0, []))
        seen = collections.Counter(opcode for _, opcode in found)
        def rule(which, fact):
            return f"{name} for sm_{arch}: {which}: {fact}"
        if kernel.spills:
            yield rule("spill", f"got {kernel.spills} bytes, expected none")
        elif kernel.stack:
            yield rule("stack", f"got a frame of {kernel.stack} bytes, expected none")
        if seen["LDL"] + seen["STL"]:
            yield rule("local", f"got {seen['LDL']} LDL and {seen['STL']} STL, expected none")
        if seen["CALL"] and called:
            yield rule("call", f"got {seen['CALL']} CALL beside the functions {', '.join(called)}, expected none")
        for remark in sorted(set(kernel.remarks)):
            yield rule("serialized", f"got remark {remark}, expected none")
        if (want := promised(name, arch)) and not seen[want]:
            yield rule("tensor core", f"got no {want}, expected some")
        most = ISSUE.get(name.split("_")[1])
        if (got := issued(name, found)) is not None and got > most:
            yield rule("issue", f"got {got:.1f} instructions a product, expected at most {most}")
        if "wgmma" in name and arch == "90a":
            for which, fact in broken_order(name, found):
                yield rule(which, fact)
        if "wgmma" in name and arch != "90a" and count > EMPTY:
            yield rule("empty", f"got {count} instructions, expected an empty body")


def flat_name(source):
    return os.path.relpath(source, ROOT).replace(os.sep, "_")


def read(path):
    with open(path, "rb") as file:
        return file.read()


def compiled(nvcc, source, arch, folder):
    """The cubin of a source and what ptxas said, or None and the errors."""
    cubin = os.path.join(folder, flat_name(source) + f".{arch}.cubin")
    command = [nvcc, *FLAGS, "-gencode", f"arch=compute_{arch},code=sm_{arch}", "-cubin", "-Xptxas", "-v",
               f"-I{ROOT}", f"-I{ROOT}/include", f"-I{ROOT}/src", "-o", cubin, source]
    done = subprocess.run(command, capture_output=True, text=True)
    return read(cubin) if done.returncode == 0 else None, done.stdout + done.stderr


def built(path, arch):
    """The same from an object and its log, or None where it holds several targets, another one or compressed code."""
    log = path + ".log"
    if not os.path.exists(path) or not os.path.exists(log):
        return None, ""
    data = read(path)
    cubins = [m.start() for m in re.finditer(b"\x7fELF\x02\x01", data) if struct.unpack_from("<H", data, m.start() + 18)[0] == EM_CUDA]
    said = read(log).decode()
    if len(cubins) != 1 or set(re.findall(r"for 'sm_(\w+)'", said)) != {arch}:
        return None, ""
    return data[cubins[0]:], said


def check(nvcc, source, arch, folder, objects=None):
    """Broken rules, kernels, most registers, and whether the source was compiled for it."""
    place = os.path.join(objects or "", os.path.relpath(source, os.path.join(ROOT, "cuda")) + ".o")
    cubin, said = built(place, arch) if objects else (None, "")
    known = cubin is not None
    if not known:
        cubin, said = compiled(nvcc, source, arch, folder)
    if cubin is None:
        return [f"{os.path.relpath(source, ROOT)} for sm_{arch}: compile:\n{said}"], 0, 0, True
    kernels = parse_log(said)
    broken = list(broken_rules(arch, kernels, *instructions(cubin)))
    broken += broken_shared(arch, static_shared(cubin, arch), stated_shared(), kernels)
    return broken, len(kernels), max([k.registers for k in kernels.values()], default=0), not known


def print_shared(nvcc, sources, folder, pool):
    def of(source):
        cubin = os.path.join(folder, flat_name(source) + ".cubin")
        subprocess.run([nvcc, *FLAGS, "-arch=sm_90a", "-cubin", f"-I{ROOT}", f"-I{ROOT}/include", f"-I{ROOT}/src",
                        "-o", cubin, source], check=True)
        return static_shared(read(cubin), "90a")
    found = {name: size for one in pool.map(of, sources) for name, size in one.items()}
    print("// Generated by scripts/check_cubins.py --shared: BITGRAD_STATIC_SHARED(symbol of a kernel, bytes of its static shared arrays).")
    for name, size in sorted(found.items()):
        print(f'BITGRAD_STATIC_SHARED("{name}", {size})')


SPILLING = """
__global__ void __launch_bounds__(1024, 2) spilling_wgmma(const float* in, float* out) {
  float x[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) x[i] = in[threadIdx.x * 64 + i];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 64; ++i) out[threadIdx.x * 64 + (63 - i) * 3] = x[i] * x[(i * 7 + 5) % 64];
}
__device__ __noinline__ int far_away(int x, int y) { return x / y; }
__global__ void calling_mma(int* out) { out[threadIdx.x] = far_away(out[threadIdx.x], out[0]); }
"""


def self_test(nvcc, folder):
    source = os.path.join(folder, "deliberate.cu")
    with open(source, "w") as file:
        file.write(SPILLING)
    broken, _, _, _ = check(nvcc, source, "90a", folder)
    place, one = os.path.join(folder, "built.o"), ["-gencode", "arch=compute_90a,code=sm_90a"]
    for gencode, want in [(one, "spilling_wgmma"), (one + ["-gencode", "arch=compute_80,code=sm_80"], "")]:
        subprocess.run([os.path.join(ROOT, "scripts/log_ptxas.sh"), place + ".log", nvcc, *FLAGS, *gencode, "-no-compress",
                        "-c", "-o", place, source], check=True)
        cubin, said = built(place, "90a")
        if (cubin is None) != (want == ""):
            sys.exit(f"self-test: of an object for {len(gencode) // 2} targets a cubin was {'not ' if want else ''}read")
        if cubin is not None and list(broken_rules("90a", parse_log(said), *instructions(cubin))) != broken:
            sys.exit("self-test: an object broke other rules than a cubin")
    for want in ["spilling_wgmma for sm_90a: spill: got", "spilling_wgmma for sm_90a: local: got",
                 "spilling_wgmma for sm_90a: tensor core: got no IGMMA", "calling_mma for sm_90a: call: got 1 CALL",
                 "calling_mma for sm_90a: tensor core: got no IMMA"]:
        if not any(want in line for line in broken):
            sys.exit("self-test: expected '" + want + "', got:\n" + "\n".join(broken))
    good = [(100, "STAGE"), (110, "IGMMA"), (120, "WAIT"), (130, "WAIT"), (1000, "STORE"), (1010, "CCTL")]
    for name, found, want in [("gemm_s8_s8_bf16_wgmma256_sm90a", good, []),
                              ("gemm_s8_s8_bf16_wgmma128_sm90a", good, ["end"]),
                              ("gemm_b1_b1_f32_wgmma256_sm90a", good + [(1420, "STORE")], ["end"]),
                              ("gemm_s8_s8_any_wgmma256_sm90a", good[:4], []),
                              ("gemm_s8_s8_f32_wgmma256_sm90a", good[:4], ["end"]),
                              ("gemm_w2_s8_any_wgmma256_sm90a", [*good[:2], (112, "MEMBAR"), (113, "IGMMA"), *good[2:]], ["loop"]),
                              ("gemm_w2_s8_any_wgmma256_sm90a", [good[0], (105, "CCTL"), *good[1:]], ["loop"])]:
        if (got := [which for which, _ in broken_order(name, found)]) != want:
            sys.exit(f"self-test: {name}: got {got}, expected {want}")
    shared = list(broken_shared("90a", {"_Z1fv": 40000, "_Z1gv": 8}, {"_Z1hv": 4}, ["_Z1fv", "_Z1gv", "_Z1hv", "_Z1iv"]))
    if [line.split(":")[0][0] + line.split("got ")[1].split()[0] for line in shared] != ["f40000", "f40000", "g8", "h0"]:
        sys.exit("self-test: wrong sizes of shared memory were not named: " + "\n".join(shared))
    remarks = parse_log("ptxas info    : Compiling entry function 'f' for 'sm_90a'\n"
                        "ptxas info    : (C7513) Potential Performance Loss: wgmma ... in the function 'f'\n")
    if remarks["f"].remarks != ["C7513"]:
        sys.exit("self-test: remark C7513 was not read")
    print("self-test: the rules that were broken on purpose were named")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sources", nargs="*")
    parser.add_argument("--nvcc", default=shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc")
    parser.add_argument("--archs", default=",".join(ARCHS))
    parser.add_argument("--objects", help="folder of a build's objects: build/release/cuda")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--shared", action="store_true")
    args = parser.parse_args()
    if not os.path.exists(args.nvcc):
        print("skipped: no nvcc")
        sys.exit(77)
    sources = args.sources or sorted(f for pattern in SOURCES for f in glob.glob(os.path.join(ROOT, pattern)))
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        if args.self_test:
            return self_test(args.nvcc, folder)
        if args.shared:
            return print_shared(args.nvcc, sources, folder, pool)
        runs = [(source, arch, pool.submit(check, args.nvcc, source, arch, folder, args.objects))
                for source in sources for arch in args.archs.split(",")]
        failures = []
        for source, arch, run in runs:
            broken, kernels, registers, anew = run.result()
            print(f"{os.path.relpath(source, ROOT)} sm_{arch}: {kernels} kernels, at most {registers} registers, "
                  f"{len(broken)} broken rules{'' if anew or not args.objects else ', as built'}", flush=True)
            failures += broken
    for failure in failures:
        print("FAILED", failure)
    sys.exit(min(len(failures), 100))


if __name__ == "__main__":
    main()
