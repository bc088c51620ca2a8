"""Compiles what the cases need, in a folder: the PTX of kernels by nvcc, and arguments.cpp by the C++ compiler.

Sources that define their kernels from a list (LISTS) are compiled with that list cut down to the kernels asked for, by a
folder that comes first on the include path; the kernels' own text is the project's. Results are kept as long as the contents of
all files that were read, and the command, are the same.
"""
import concurrent.futures
import hashlib
import json
import os
import re
import shutil
import subprocess
import time

from memory import Fault

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
# Roundings as in cuda/CMakeLists.txt.
NVCC_FLAGS = ["-std=c++20", "-O3", "--expt-relaxed-constexpr", "-fmad=false", "-prec-div=true", "-prec-sqrt=true", "-ftz=false"]
INCLUDES = [ROOT, os.path.join(ROOT, "include"), os.path.join(ROOT, "src")]
GEMM = "cuda/kernels/gemm/"
LISTS = [GEMM + "wgmma/ss_kernels.inc", GEMM + "wgmma/rs_kernels.inc", GEMM + "weight_bits.inc"]


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def find_nvcc(given):
    for program in [given] if given else ["nvcc", "/usr/local/cuda/bin/nvcc"]:
        if shutil.which(program):
            return shutil.which(program)
    return None


def only(text, kernels):
    """The lines of a list of wgmma kernels that define these kernels, macros over the widths of weights written out."""
    lines = []
    for line in re.findall(r"BITGRAD_WGMMA_[SR]S\(gemm_[^)]*\)", text):
        for bits in range(1, 8):
            written = line.replace("##bits##", str(bits)).replace(" bits,", f" {bits},")
            if re.search(r"\((\w+),", written)[1] in kernels and written not in lines:
                lines.append(written)
    return "\n".join(lines) + "\n"


def only_bits(text, kernels):
    wanted = {int(m[1]) for m in re.finditer(r"_w(\d)_", " ".join(kernels))}
    return "\n".join(line for line in text.splitlines() if any(line == f"BITGRAD_WEIGHT_BITS({bits})" for bits in wanted)) + "\n"


class Build:
    """A folder of compiled files."""

    def __init__(self, folder, nvcc, cxx, jobs):
        self.folder, self.nvcc, self.cxx, self.jobs = os.path.abspath(folder), nvcc, cxx, jobs
        self.seconds = {}  # of what was compiled in this run

    def name_of(self, source, arch, kernels):
        """Where the PTX of these kernels is, without its ending."""
        key = hashlib.sha256(" ".join(sorted(kernels)).encode()).hexdigest()[:8]
        return os.path.join(self.folder, f"{source.replace('/', '_')}_{arch}_{key}")

    def ptx(self, wanted):
        """Compiles {(source, arch): kernels}; returns the paths of the PTX by (source, arch)."""
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            arguments = pool.submit(self.arguments)
            paths = dict(zip(wanted, pool.map(lambda key: self.compile_ptx(*key, wanted[key]), wanted)))
            return paths, arguments.result()

    def compile_ptx(self, source, arch, kernels):
        name = self.name_of(source, arch, kernels)
        for path in LISTS:
            text = read(os.path.join(ROOT, path))
            cut = only_bits(text, kernels) if path.endswith("weight_bits.inc") else only(text, kernels)
            if not os.path.exists(f"{name}/{path}") or read(f"{name}/{path}") != cut:
                write(f"{name}/{path}", cut)
        include = [f"-I{x}" for x in [name] + INCLUDES]
        self.compile([self.nvcc, *NVCC_FLAGS, "-ccbin", self.cxx, f"-arch=compute_{arch}", "-ptx", *include,
                      os.path.join(ROOT, "cuda/kernels", source + ".cu")], name, ".ptx")
        return name + ".ptx"

    def arguments(self):
        """The program that writes arguments (arguments.cpp)."""
        source = read(os.path.join(ROOT, "cuda/kernels/quantize/int8_orders.cu"))
        structs = re.findall(r"^struct Orders?Call \{.*?^\};", source, re.S | re.M)
        if len(structs) != 2:
            raise Fault("int8_orders.cu has no longer the structs OrderCall and OrdersCall")
        write(os.path.join(self.folder, "orders_call.inc"), "\n".join(structs) + "\n")
        include = [f"-I{x}" for x in INCLUDES + [os.path.join(ROOT, "tests"), self.folder]]
        name = os.path.join(self.folder, "arguments")
        self.compile([self.cxx, "-std=c++20", "-O0", *include, os.path.join(HERE, "arguments.cpp")], name, "")
        return name

    def compile(self, command, name, ending):
        """Runs the command unless its result is there and nothing that it read has changed since."""
        if is_current(name + ".json", command) and os.path.exists(name + ending):
            return
        os.makedirs(self.folder, exist_ok=True)
        begin = time.monotonic()
        done = subprocess.run([*command, "-MD", "-MF", name + ".d", "-o", name + ending], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Fault(f"{' '.join(command)}\n{done.stderr[-3000:]}")
        self.seconds[os.path.basename(name)] = time.monotonic() - begin
        files = re.sub(r"\\\n", " ", read(name + ".d")).split(":", 1)[1].split()
        write(name + ".json", json.dumps({"command": command, "files": {path: digest(path) for path in files}}))


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def is_current(path, command):
    if not os.path.exists(path):
        return False
    known = json.loads(read(path))
    return known["command"] == command and all(os.path.exists(x) and digest(x) == d for x, d in known["files"].items())


class Arguments:
    """Calls of the program that writes arguments."""

    def __init__(self, program):
        self.program = program
        lines = subprocess.run([program, "sizes"], capture_output=True, text=True, check=True).stdout.split()
        self.sizes = dict(zip(lines[::2], map(int, lines[1::2])))

    def __call__(self, kind, **numbers):
        given = [f"{name.replace('__', '.')}={int(number)}" for name, number in numbers.items()]
        return subprocess.run([self.program, kind, *given], capture_output=True, check=True).stdout
