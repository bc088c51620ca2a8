"""Products of a warpgroup: wgmma.mma_async, its fence and its groups.

PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions": "Register Fragments and Shared Memory Matrix Layouts",
"Matrix Descriptor Format", "Strides", wgmma.fence, wgmma.commit_group, wgmma.wait_group. A product reads its operands, also
those in registers, and writes its sums when its group is waited for: as late as it may.
"""
import re

import numpy as np

import ptx
from arithmetic import signed, unsigned
from machine import WARPGROUP, instruction, registers_of_product
from memory import Fault

U64 = np.uint64
ROWS, STEP_BYTES = 64, 32
SWIZZLE_128 = 1
THREAD = np.arange(WARPGROUP)
KINDS = {"s8": np.int8, "u8": np.uint8}


def swizzled(at):
    """128-byte swizzle: bits 4 to 6 of an address are xored with bits 7 to 9."""
    return at ^ (at >> 7 & 7) << 4


def operand_bytes(machine, block, descriptor, rows):
    """The bytes [rows, 32] of a K-major operand with 128-byte swizzle, by its descriptor."""
    begin, stride = (descriptor & 0x3FFF) << 4, (descriptor >> 32 & 0x3FFF) << 4
    if descriptor >> 62 != SWIZZLE_128 or descriptor >> 49 & 7:
        raise Fault(f"a matrix descriptor of a form that is not known: {descriptor:#x}")
    row, byte = np.arange(rows)[:, None], np.arange(STEP_BYTES)[None, :]
    at = swizzled(begin + row // 8 * stride + row % 8 * 128 + byte)
    machine.shared.check(at, 1, "wgmma")
    machine.shared.check_fenced(block, at, "wgmma")
    return machine.shared.bytes[block][at]


def register_bytes(machine, registers, lanes):
    """The bytes [64, 32] of A in four registers a thread."""
    data = np.zeros((ROWS, STEP_BYTES), np.uint8)
    warp, lane = THREAD // 32, THREAD % 32
    for i, register in enumerate(registers):
        value = machine.read(register, lanes)
        for byte in range(4):
            column = 16 * (i // 2) + 4 * (lane % 4) + byte
            data[16 * warp + lane // 4 + 8 * (i % 2), column] = (value >> U64(8 * byte) & U64(255)).astype(np.uint8)
    return data


def sums_of(a, b, kinds):
    """A B^T in int64. fp32 holds counts of bits, fp64 the sums of 32 products of bytes."""
    if kinds[0] == "b1":
        return (np.unpackbits(a, axis=1).astype(np.float32) @ np.unpackbits(b, axis=1).astype(np.float32).T).astype(np.int64)
    return (a.view(KINDS[kinds[0]]).astype(np.float64) @ b.view(KINDS[kinds[1]]).astype(np.float64).T).astype(np.int64)


def groups_of(machine, lanes):
    return machine.products.setdefault(int(lanes[0]), {"open": [], "done": [], "fenced": False})


def uniform(machine, operand, lanes):
    value = machine.read(operand, lanes)
    if np.any(value != value[0]):
        raise Fault("operands of wgmma differ within the warpgroup")
    return int(value[0])


@instruction(r"wgmma\.mma_async\.sync\.aligned\.m64n\d+k32\.s32\.[su]8\.[su]8",
             r"wgmma\.mma_async\.sync\.aligned\.m64n\d+k256\.s32\.b1\.b1\.and\.popc")
def mma_async(machine, each, lanes):
    def issue(warpgroups):
        for warpgroup in warpgroups:
            groups = groups_of(machine, warpgroup)
            if not groups["fenced"] or machine.unfenced[np.ix_(registers_of_product(each), warpgroup)].any():
                raise Fault("wgmma without wgmma.fence after its registers were written")
            groups["open"].append(later(machine, each, warpgroup))
    return machine.collective(lanes, WARPGROUP, issue)


def later(machine, each, lanes):
    """The product as a function. Descriptors and scale-d are values of its issue."""
    columns = int(re.fullmatch(r"m64n(\d+)k\d+", each.parts[3])[1])
    if columns % 8 or len(each.operands[0].items) != columns // 2:
        raise Fault(f"wgmma with {len(each.operands[0].items)} registers of sums")
    kinds, block = each.parts[5:7], int(machine.block[lanes[0]])
    in_registers = isinstance(each.operands[1], ptx.Vector)
    a = None if in_registers else uniform(machine, each.operands[1], lanes)
    b, adds = uniform(machine, each.operands[2], lanes), uniform(machine, each.operands[3], lanes) & 1
    index = np.array([register.index for register in each.operands[0].items])[:, None]
    i, warp, lane = np.arange(columns // 2)[:, None], THREAD[None, :] // 32, THREAD[None, :] % 32
    row, column = 16 * warp + lane // 4 + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * (lane % 4) + i % 2

    def run():
        x = register_bytes(machine, each.operands[1].items, lanes) if in_registers else operand_bytes(machine, block, a, ROWS)
        sums = sums_of(x, operand_bytes(machine, block, b, columns), kinds)[row, column]
        if adds:
            sums = sums + signed(machine.registers[index, lanes], 32)
        machine.registers[index, lanes] = unsigned(sums.view(U64), 32)
    return run


@instruction(r"wgmma\.fence\.sync\.aligned")
def fence(machine, _, lanes):
    def mark(warpgroups):
        for warpgroup in warpgroups:
            groups_of(machine, warpgroup)["fenced"] = True
            machine.unfenced[:, warpgroup] = False
    return machine.collective(lanes, WARPGROUP, mark)


@instruction(r"wgmma\.commit_group\.sync\.aligned")
def commit(machine, _, lanes):
    def close(warpgroups):
        for warpgroup in warpgroups:
            groups = groups_of(machine, warpgroup)
            groups["done"].append(groups["open"])
            groups["open"] = []
    return machine.collective(lanes, WARPGROUP, close)


@instruction(r"wgmma\.wait_group\.sync\.aligned")
def wait(machine, each, lanes):
    def complete(warpgroups):
        for warpgroup in warpgroups:
            done = groups_of(machine, warpgroup)["done"]
            while len(done) > each.operands[0].value:
                for run in done.pop(0):
                    run()
    return machine.collective(lanes, WARPGROUP, complete)
