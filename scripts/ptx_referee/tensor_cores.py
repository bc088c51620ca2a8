"""Products of a warp: mma.sync, and what loads and stores its fragments, ldmatrix and stmatrix.

PTX ISA, "Warp-Level Matrix Instructions": "Matrix Fragments for mma.m16n8k16", "mma.m16n8k32", "mma.m16n8k256", ldmatrix,
stmatrix. With g = lane / 4 and q = lane % 4, element i of a fragment is at these rows and columns (`FRAGMENTS`).
"""
import numpy as np

from arithmetic import bf16_value, signed, unsigned
from machine import WARP, instruction
from memory import Fault
from storage import shared_place

U64 = np.uint64
LANE = np.arange(WARP)[:, None]
G, Q = LANE // 4, LANE % 4


def fragments(bits, k):
    """Places of A's, B's elements for elements of `bits` bits; a register holds 32 / bits of them."""
    each = 32 // bits
    i = np.arange(4 * each)[None, :]
    second_row = (i // each) % 2 == 1  # registers 1 and 3
    a = (G + 8 * second_row, Q * each + i % each + np.where(i < 2 * each, 0, k // 2))
    j = np.arange(2 * each)[None, :]
    b = (Q * each + j % each + np.where(j < each, 0, k // 2), np.broadcast_to(G, (WARP, 2 * each)))
    return a, b


FRAGMENTS = {"m16n8k16": fragments(16, 16), "m16n8k32": fragments(8, 32), "m16n8k256": fragments(1, 256)}
SHAPE_K = {"m16n8k16": 16, "m16n8k32": 32, "m16n8k256": 256}
D_ROW, D_COLUMN = G + 8 * (np.arange(4)[None, :] // 2), Q * 2 + np.arange(4)[None, :] % 2


def elements(machine, operand, groups, kind):
    """The elements in a lane's registers [groups, lanes, elements], as fp64, which holds all of these kinds exactly."""
    bits = {"b1": 1, "s8": 8, "u8": 8, "bf16": 16}[kind]
    registers = np.stack([unsigned(machine.read(x, groups), 32) for x in operand.items], axis=-1)
    shifts = (np.arange(32 // bits) * bits).astype(U64)
    raw = (registers[..., None] >> shifts) & U64((1 << bits) - 1)
    raw = raw.reshape(*groups.shape, -1)
    if kind == "bf16":
        return bf16_value(raw)
    return (signed(raw, 8) if kind == "s8" else raw).astype(np.float64)


def product(machine, groups, each, kinds):
    """A B of a warp, [groups, 16, 8] in fp64."""
    shape = each.parts[2]
    (a_row, a_column), (b_row, b_column) = FRAGMENTS[shape]
    a, b = np.zeros((len(groups), 16, SHAPE_K[shape])), np.zeros((len(groups), SHAPE_K[shape], 8))
    a[:, a_row, a_column] = elements(machine, each.operands[1], groups, kinds[0])
    b[:, b_row, b_column] = elements(machine, each.operands[2], groups, kinds[1])
    return (a @ b)[:, D_ROW, D_COLUMN]


@instruction(r"mma\.sync\.aligned\.m16n8k32\.row\.col\.s32\.[su]8\.[su]8\.s32",
             r"mma\.sync\.aligned\.m16n8k256\.row\.col\.s32\.b1\.b1\.s32\.and\.popc")
def mma_integer(machine, each, lanes):
    """Sums wrap around in 32 bits (no .satfinite)."""
    def multiply(groups):
        sums = product(machine, groups, each, each.parts[6:8]).astype(np.int64)
        old = [signed(machine.read(x, groups), 32) for x in each.operands[3].items]
        for i, to in enumerate(each.operands[0].items):
            machine.write(to, old[i] + sums[..., i], 32, groups)
    return machine.collective(lanes, WARP, multiply)


@instruction(r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.bf16\.bf16\.f32")
def mma_bf16(machine, each, lanes):
    """Products and their sum in fp64, one rounding to fp32: the ISA leaves order and precision open, so results are compared
    within a bound."""
    def multiply(groups):
        sums = product(machine, groups, each, each.parts[6:8])
        old = [machine.read_f32(x, groups).astype(np.float64) for x in each.operands[3].items]
        for i, to in enumerate(each.operands[0].items):
            machine.write_f32(to, (old[i] + sums[..., i]).astype(np.float32), groups)
    return machine.collective(lanes, WARP, multiply)


def row_places(machine, operand, groups):
    """Lane 8 i + r gives the address of row r of matrix i. Returns blocks [groups] and offsets [groups, matrix, row]."""
    block, at = shared_place(machine, machine.address(operand, groups), groups)
    if np.any(at % 16):
        raise Fault("ldmatrix or stmatrix: a row is not on 16 bytes")
    machine.shared.check(at, 16, "ldmatrix or stmatrix")
    return block[:, 0], at.reshape(-1, 4, 8)


@instruction(r"ldmatrix\.sync\.aligned\.m8n8\.x4\.shared\.b16")
def ldmatrix(machine, each, lanes):
    """Lane l gets the word l % 4 of row l / 4 of each matrix."""
    def load(groups):
        block, rows = row_places(machine, each.operands[1], groups)
        lane = np.arange(WARP)
        for i, to in enumerate(each.operands[0].items):
            at = rows[:, i, lane // 4] + lane % 4 * 4
            data = machine.shared.bytes[block[:, None, None], at[..., None] + np.arange(4)]
            machine.write(to, np.ascontiguousarray(data).view(np.uint32)[..., 0].astype(U64), 32, groups)
    return machine.collective(lanes, WARP, load)


@instruction(r"stmatrix\.sync\.aligned\.m8n8\.x4(\.trans)?\.shared\.b16")
def stmatrix(machine, each, lanes):
    """Lane l has elements (l / 4, 2 (l % 4)) and the next one of each matrix; .trans: of the transposed matrix."""
    def store(groups):
        block, rows = row_places(machine, each.operands[0], groups)
        lane = np.arange(WARP)
        for i, source in enumerate(each.operands[1].items):
            value = machine.read(source, groups)
            for half in (0, 1):
                row, column = lane // 4, lane % 4 * 2 + half
                if "trans" in each.parts:
                    row, column = column, row
                at = rows[:, i, row] + column * 2
                for byte in (0, 1):
                    data = value >> U64(16 * half + 8 * byte) & U64(255)
                    machine.shared.bytes[block[:, None], at + byte] = data.astype(np.uint8)
                    machine.shared.writer[block[:, None], at + byte] = groups + 1
    return machine.collective(lanes, WARP, store)
