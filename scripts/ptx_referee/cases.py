"""Cases: a kernel, a shape, operands drawn for it, and what comes out by int64 sums. Common parts and the list of all."""
import dataclasses
import time
import zlib

import numpy as np

import machine
from memory import Fault, GlobalMemory

UNTOUCHED = 0xEE  # every byte of an output before the launch
TIMINGS = ("late", "early")


@dataclasses.dataclass(frozen=True)
class Case:
    """`run(bench, *shape)` launches the kernel and calls bench.compare."""
    kernel: str
    source: str  # below cuda/kernels, without .cu
    arch: str
    shape: tuple
    run: object
    note: str = ""
    timings: tuple = TIMINGS

    @property
    def name(self):
        return " ".join([self.kernel, "x".join(map(str, self.shape)), *([self.note] if self.note else [])])


@dataclasses.dataclass
class Outcome:
    name: str
    timing: str
    text: str
    equal: bool
    steps: int
    seconds: float


class Bench:
    """What a case works with: its program, memory, arguments and draws."""

    def __init__(self, case, text, arguments, early):
        self.case, self.text, self.make_arguments, self.early = case, text, arguments, early
        self.rng = np.random.default_rng(zlib.crc32(case.name.encode()))
        self.memory, self.steps, self.differences = GlobalMemory(), 0, []
        self.compared = 0

    def put(self, array):
        return self.memory.put(array)

    def output(self, rows, stride, dtype):
        return self.put(np.full(rows * stride * np.dtype(dtype).itemsize, UNTOUCHED, np.uint8))

    def launch(self, arguments, blocks, threads, shared_bytes=0, cluster=1, kernel=None):
        program = machine.load(self.text, kernel or self.case.kernel)
        self.steps += machine.Launch(program, arguments, blocks, threads, shared_bytes, cluster).run(self.memory, self.early)

    def rows(self, codes, stride):
        """Rows of bytes at a stride, with noise behind them."""
        out = self.rng.integers(0, 256, (codes.shape[0], stride), dtype=np.uint8)
        out[:, :codes.shape[1]] = codes
        return self.put(out)

    def scales(self, count):
        values = self.rng.random(count).astype(np.float32)
        return values, self.put(values)

    def compare(self, what, got, want):
        """Bits against bits."""
        self.compared += got.size
        got, want = np.ascontiguousarray(got), np.ascontiguousarray(want)
        if got.dtype != want.dtype or got.shape != want.shape:
            raise ValueError(f"{what}: {got.dtype}{got.shape} against {want.dtype}{want.shape}")
        wrong = np.argwhere(bits_of(got) != bits_of(want))
        if len(wrong):
            at = tuple(int(x) for x in wrong[0])
            self.differences.append(f"{what}{list(at)} is {got[at]}, expected {want[at]}; {len(wrong)} of {got.size} differ")

    def compare_within(self, what, got, want, bound):
        """Floats against doubles, within a bound for each element. NaN is never within."""
        self.compared += got.size
        wrong = np.argwhere(~(np.abs(got - want) <= bound))
        if len(wrong):
            at = tuple(int(x) for x in wrong[0])
            self.differences.append(f"{what}{list(at)} is {got[at]}, expected {want[at]} within {bound[at]:.1e}; "
                                    f"{len(wrong)} of {got.size} differ")


def bits_of(x):
    return x.view(f"u{x.dtype.itemsize}")


def run_case(case, text, arguments, timing):
    """`text`: the PTX. Faults of the kernel are outcomes."""
    begin = time.monotonic()
    bench = Bench(case, text, arguments, timing == "early")
    try:
        case.run(bench, *case.shape)
        if not bench.compared:
            raise ValueError(f"{case.name} compares nothing")
        result, equal = ("; ".join(bench.differences) or "EQUAL"), not bench.differences
    except Fault as fault:
        result, equal = f"FAULT {fault}", False
    return Outcome(case.name, timing, result, equal, bench.steps, time.monotonic() - begin)


# ---- numbers
def round_up(n, to):
    return (n + to - 1) // to * to


def to_bf16(f):
    """Bits of fp32 values rounded to bf16, to nearest even."""
    u = np.ascontiguousarray(f, np.float32).view(np.uint32).astype(np.uint64)
    return ((u + 0x7FFF + (u >> 16 & 1)) >> 16).astype(np.uint16)


def scaled(sums, row_scale, column_scale):
    """float(sum) * (scale of the row * scale of the column), three roundings (docs/numerics.md, section 4)."""
    return sums.astype(np.float32) * (row_scale[:, None] * column_scale[None, :])


BYTES = {"s8": (-128, 128), "u8": (0, 256)}


def draw_bytes(bench, kind, *shape):
    return bench.rng.integers(*BYTES[kind], shape)


def draw_weights(bench, bits, *shape):
    """Raw codes of a width and their values: two's complement; of one bit -1 and 1."""
    raw = bench.rng.integers(0, 1 << bits, shape)
    values = 2 * raw - 1 if bits == 1 else np.where(raw >> (bits - 1) != 0, raw - (1 << bits), raw)
    return raw.astype(np.uint8), values


def packed(raw, bits):
    """Rows of codes one after another, low bits first."""
    each = np.unpackbits(raw[:, :, None], axis=2, bitorder="little")[:, :, :bits]
    return np.packbits(each.reshape(raw.shape[0], -1), axis=1, bitorder="little")
