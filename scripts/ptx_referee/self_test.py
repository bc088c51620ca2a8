"""Small PTX programs of one warp: instructions against Python's integers, and what must be a fault."""
import numpy as np

import machine
from memory import Fault, GlobalMemory

LANES = 32
ONES64 = (1 << 64) - 1
TEXT = """
.extern .shared .align 16 .b8 s[];
.visible .entry _Z4testv(.param .u64 _Z4testv_param_0) .maxntid 32, 1, 1
{{
 .reg .pred %p<4>; .reg .b64 %a<2>; .reg .b64 %b<2>; .reg .b64 %c<2>; .reg .b64 %d<9>; .reg .b64 %x<4>;
 ld.param.u64 %x0, [_Z4testv_param_0];
 mov.u32 %x1, %tid.x; shl.b64 %x2, %x1, 5; add.s64 %x3, %x0, %x2;
 ld.global.v2.u64 {{%a0, %b0}}, [%x3]; ld.global.u64 %c0, [%x3+16];
 {0}
 st.global.u64 [%x3+24], %d0;
 ret;
}}
"""


def signed(x, bits):
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


def low(x, bits=32):
    return x & ((1 << bits) - 1)


def toward_zero(a, b):
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def pick(word, selector):
    byte = word >> 8 * (selector & 7) & 255
    return (255 if byte >> 7 else 0) if selector & 8 else byte


def permuted(a, b, selectors):
    return sum(pick(low(b) << 32 | low(a), selectors >> 4 * i & 15) << 8 * i for i in range(4))


def dot(a, b, c):
    return low(signed(c, 32) + sum(signed(a >> 8 * i, 8) * (b >> 8 * i & 255) for i in range(4)))


# Statements on %a0, %b0, %c0 that leave their result in %d0, and the same in Python.
INSTRUCTIONS = [
    ("add.s32 %d0, %a0, %b0;", lambda a, b, c: low(a + b)),
    ("sub.s64 %d0, %a0, %b0;", lambda a, b, c: low(a - b, 64)),
    ("neg.s32 %d0, %a0;", lambda a, b, c: low(-a)),
    ("min.s64 %d0, %a0, %b0;", lambda a, b, c: low(min(signed(a, 64), signed(b, 64)), 64)),
    ("max.u64 %d0, %a0, %b0;", lambda a, b, c: max(a, b)),
    ("mad.lo.s32 %d0, %a0, %b0, %c0;", lambda a, b, c: low(a * b + c)),
    ("mul.lo.s16 %d0, %a0, %b0;", lambda a, b, c: low(a * b, 16)),
    ("mul.wide.s32 %d0, %a0, %b0;", lambda a, b, c: low(signed(a, 32) * signed(b, 32), 64)),
    ("mul.wide.u16 %d0, %a0, %b0;", lambda a, b, c: low(a, 16) * low(b, 16)),
    ("mul.hi.s32 %d0, %a0, %b0;", lambda a, b, c: low(signed(a, 32) * signed(b, 32) >> 32)),
    ("mul.hi.s64 %d0, %a0, %b0;", lambda a, b, c: low(signed(a, 64) * signed(b, 64) >> 64, 64)),
    ("mul.hi.u64 %d0, %a0, %b0;", lambda a, b, c: a * b >> 64),
    ("or.b64 %d1, %b0, 1; div.s32 %d0, %a0, %d1;", lambda a, b, c: low(toward_zero(signed(a, 32), signed(b | 1, 32)))),
    ("or.b64 %d1, %b0, 1; div.s64 %d0, %a0, %d1;", lambda a, b, c: low(toward_zero(signed(a, 64), signed(b | 1, 64)), 64)),
    ("or.b64 %d1, %b0, 1; rem.s32 %d0, %a0, %d1;",
     lambda a, b, c: low(signed(a, 32) - toward_zero(signed(a, 32), signed(b | 1, 32)) * signed(b | 1, 32))),
    ("or.b64 %d1, %b0, 1; div.u64 %d0, %a0, %d1;", lambda a, b, c: a // (b | 1)),
    ("add.cc.s64 %d1, %a0, %a0; addc.cc.s64 %d2, %b0, %c0; addc.s64 %d0, 0, 0;", lambda a, b, c: b + c + (2 * a >> 64) >> 64),
    ("sub.cc.s64 %d1, %a0, %b0; subc.cc.s64 %d2, %b0, %c0; subc.s64 %d0, 0, 0;", lambda a, b, c: low(-(b - c - (a < b) < 0), 64)),
    ("not.b32 %d0, %a0;", lambda a, b, c: low(~a)),
    ("and.b32 %d1, %b0, 63; shl.b32 %d0, %a0, %d1;", lambda a, b, c: low(a << (b & 63))),
    ("and.b32 %d1, %b0, 63; shr.s32 %d0, %a0, %d1;", lambda a, b, c: low(signed(a, 32) >> (b & 63))),
    ("and.b32 %d1, %b0, 127; shr.u64 %d0, %a0, %d1;", lambda a, b, c: a >> (b & 127)),
    ("shf.l.wrap.b32 %d0, %a0, %b0, %c0;", lambda a, b, c: low((low(b) << 32 | low(a)) << (c & 31) >> 32)),
    ("prmt.b32 %d0, %a0, %b0, 0x98C0;", lambda a, b, c: permuted(a, b, 0x98C0)),
    ("bfi.b64 %d0, %a0, %b0, 24, 8;", lambda a, b, c: b & ~(255 << 24) | (a & 255) << 24),
    ("bfi.b64 %d0, %a0, %b0, 0, 64;", lambda a, b, c: a),
    ("bfi.b32 %d0, %a0, %b0, 4, 32;", lambda a, b, c: low(low(b, 4) | a << 4)),
    ("popc.b32 %d0, %a0;", lambda a, b, c: bin(low(a)).count("1")),
    ("dp4a.s32.u32 %d0, %a0, %b0, %c0;", dot),
    ("cvt.s64.s32 %d0, %a0;", lambda a, b, c: low(signed(a, 32), 64)),
    ("cvt.u32.u16 %d0, %a0;", lambda a, b, c: low(a, 16)),
    ("setp.lt.s16 %p0, %a0, %b0; selp.b64 %d0, 7, 9, %p0;", lambda a, b, c: 7 if signed(a, 16) < signed(b, 16) else 9),
    ("setp.ge.u32 %p0, %a0, %b0; mov.u64 %d0, 5; @!%p0 mov.u64 %d0, 6;", lambda a, b, c: 5 if low(a) >= low(b) else 6),
    ("mov.b32 {%d1, %d2}, %a0; mov.b32 %d0, {%d2, %d1};", lambda a, b, c: low(a, 16) << 16 | low(a) >> 16),
    ("st.shared.u32 [s], %a0; ld.shared.s16 %d1, [s]; cvt.s64.s16 %d2, %d1; sub.s64 %d0, %d2, %d1;", lambda a, b, c: 0),
    ("cvt.rn.f32.s32 %d1, %a0; neg.f32 %d2, %d1; setp.eq.f32 %p0, %d1, %d2; selp.b64 %d0, 1, 0, %p0;",
     lambda a, b, c: int(low(a) == 0)),
    ("cvt.rn.f32.s32 %d1, 300; cvt.rn.bf16x2.f32 %d2, %d1, 0f3F800000; mov.u64 %d0, %d2;", lambda a, b, c: 0x43963F80),
]

FAULTS = [
    ("add.sat.s32 %d0, %a0, %b0;", "unknown instruction add.sat.s32"),
    ("mov.u64 %d0, %clock64;", "unknown name %clock64"),
    ("ld.global.u64 %d0, [%x3+4];", "misaligned"),
    ("ld.global.v2.u64 {%d0, %d1}, [%x3+8];", "misaligned"),
    ("ld.global.u64 %d0, [%x0+1048576];", "out of bounds of global"),
    ("st.shared.u64 [s+64], %a0;", "out of bounds of shared"),
    ("ld.param.u64 %d0, [_Z4testv_param_0+8];", "behind the parameters"),
    ("div.s32 %d0, %a0, 0;", "division by zero"),
    ("setp.lt.u32 %p0, %x1, 16; @%p0 bar.sync 0; bra $end; $end: mov.u64 %d0, 0;", "deadlock"),
    ("setp.lt.u32 %p0, %x1, 16; @%p0 redux.sync.add.s32 %d0, %a0, -1;", "deadlock"),
    ("shfl.sync.bfly.b32 %d0, %a0, 1, 31, 65535;", "part of the warp"),
    ("mov.u32 %d1, s; mbarrier.arrive.shared::cta.b64 _, [%d1];", "not initialized"),
    ("mov.u32 %d1, s; mbarrier.init.shared::cta.b64 [%d1], 0;", "count of 0"),
    ("mov.u32 %d1, s; mapa.shared::cluster.u32 %d0, %d1, 1;", "beyond the cluster"),
    ("mov.u32 %d1, s; add.s32 %d1, %d1, 8; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%d2, %d3, %d4, %d5}, [%d1];", "16 bytes"),
    ("cp.async.cg.shared.global [s], [%x0], 16, 32;", "src-size"),
    ("wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.u16 {%d0}, %a0, %b0, 1;", "unknown instruction wgmma"),
]


def draws():
    """Three numbers a lane: edges of widths, and random ones."""
    rng = np.random.default_rng(1)
    edges = [0, 1, ONES64, 1 << 31, (1 << 31) - 1, 1 << 63, (1 << 63) - 1, 0x8000, 0x7FFF, (1 << 32) - 1]
    numbers = [int(x) for x in rng.integers(0, ONES64, 3 * LANES, np.uint64, endpoint=True)]
    for i in range(60):
        numbers[i] = edges[int(rng.integers(len(edges)))]
    return np.array(numbers, np.uint64).reshape(LANES, 3)


def execute(statements):
    memory, table = GlobalMemory(), np.zeros((LANES, 4), np.uint64)
    table[:, :3] = draws()
    at = memory.put(table)
    program = machine.load(TEXT.format(statements), "test")
    machine.Launch(program, at.to_bytes(8, "little"), 1, LANES, shared_bytes=64).run(memory)
    return memory.get(at, np.uint64, LANES, 4)


def run():
    """Prints what is wrong; returns the number of it."""
    wrong = 0
    for statements, expected in INSTRUCTIONS:
        for *inputs, got in execute(statements).tolist():
            if got != expected(*inputs):
                print(f"self-test: {statements} of {[hex(x) for x in inputs]} is {got:#x}, expected {expected(*inputs):#x}")
                wrong += 1
                break
    for statements, text in FAULTS:
        try:
            execute(statements)
            fault = "no fault"
        except Fault as raised:
            fault = str(raised)
        if text not in fault:
            print(f"self-test: {statements} is {fault}, expected {text}")
            wrong += 1
    print(f"ptx_referee: {len(INSTRUCTIONS)} instructions and {len(FAULTS)} faults tested, {wrong} red", flush=True)
    return wrong
