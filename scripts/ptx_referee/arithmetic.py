"""Integer, logic, comparison, conversion and floating-point instructions of one lane.

PTX ISA, chapter "Instruction Set": "Integer Arithmetic", "Extended-Precision Integer Arithmetic", "Floating Point", "Half
Precision Floating Point", "Comparison and Selection", "Logic and Shift", and of "Data Movement and Conversion" mov, prmt, cvt.
"""
import numpy as np

import ptx
from machine import instruction
from memory import Fault

U64 = np.uint64
INTEGER = "(?:[su](?:16|32|64))"
BITWISE = "(?:b16|b32|b64|pred)"
LOW16 = U64(0xFFFF)


def unsigned(x, bits):
    return x & U64((1 << bits) - 1)


def signed(x, bits):
    """The low bits as two's complement, int64."""
    if bits == 64:
        return x.astype(U64).view(np.int64)
    half = np.int64(1 << (bits - 1))
    return (unsigned(x, bits).astype(np.int64) ^ half) - half


def number(machine, each, operand, type_=None):
    """An operand as its type says: int64 or uint64."""
    type_ = type_ or each.type
    value = machine.read(each.operands[operand])
    return signed(value, ptx.BITS[type_]) if type_[0] == "s" else unsigned(value, ptx.BITS[type_])


def bf16_bits(x):
    """fp64 values that fp32 rounds once, to nearest even in bf16."""
    f = np.asarray(x, np.float64).astype(np.float32)
    u = f.view(np.uint32).astype(U64)
    rounded = (u + U64(0x7FFF) + ((u >> U64(16)) & U64(1))) >> U64(16)
    return np.where(np.isnan(f), U64(0x7FFF), rounded & LOW16)


def bf16_value(bits):
    return ((bits & LOW16) << U64(16)).astype(np.uint32).view(np.float32).astype(np.float64)


@instruction(r"mov\.(b16|u16|s16|b32|u32|s32|f32|b64|u64|s64|pred)")
def mov(machine, each, _):
    to, source = each.operands
    if isinstance(to, ptx.Vector):
        part = each.bits // len(to.items)
        value = machine.read(source)
        for i, item in enumerate(to.items):
            machine.write(item, value >> U64(i * part), part)
    elif isinstance(source, ptx.Vector):
        part = each.bits // len(source.items)
        value = sum(unsigned(machine.read(item), part) << U64(i * part) for i, item in enumerate(source.items))
        machine.write(to, value, each.bits)
    else:
        machine.write(to, machine.read(source), each.bits)


@instruction(rf"(add|sub|min|max)\.{INTEGER}", rf"mul\.lo\.{INTEGER}")
def binary(machine, each, _):
    a, b = number(machine, each, 1), number(machine, each, 2)
    operation = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum}[each.base]
    with np.errstate(over="ignore"):
        machine.write(each.operands[0], operation(a, b), each.bits)


@instruction(r"(neg|abs)\.s(16|32|64)")
def unary(machine, each, _):
    a = number(machine, each, 1)
    machine.write(each.operands[0], -a if each.base == "neg" else np.abs(a), each.bits)


@instruction(rf"mad\.lo\.{INTEGER}")
def mad(machine, each, _):
    with np.errstate(over="ignore"):
        value = number(machine, each, 1) * number(machine, each, 2) + number(machine, each, 3)
    machine.write(each.operands[0], value, each.bits)


@instruction(r"(mul|mad)\.wide\.[su](16|32)")
def wide(machine, each, _):
    value = number(machine, each, 1) * number(machine, each, 2)
    if each.base == "mad":
        value = value.astype(U64) + machine.read(each.operands[3])
    machine.write(each.operands[0], value, 2 * each.bits)


def high_product(a, b):
    """The high 64 bits of products of uint64."""
    low = U64(0xFFFFFFFF)
    a0, a1, b0, b1 = a & low, a >> U64(32), b & low, b >> U64(32)
    middle = a1 * b0 + ((a0 * b0) >> U64(32))
    return a1 * b1 + (middle >> U64(32)) + ((a0 * b1 + (middle & low)) >> U64(32))


@instruction(r"mul\.hi\.[su](32|64)")
def mul_hi(machine, each, _):
    a, b = number(machine, each, 1), number(machine, each, 2)
    if each.bits == 32:
        return machine.write(each.operands[0], (a * b) >> a.dtype.type(32), 32)
    value = high_product(a.view(U64), b.view(U64))
    if each.type[0] == "s":
        value = value - np.where(a < 0, b.view(U64), U64(0)) - np.where(b < 0, a.view(U64), U64(0))
    return machine.write(each.operands[0], value)


@instruction(rf"(div|rem)\.{INTEGER}")
def divide(machine, each, _):
    """Rounds toward zero. A division by zero has an unspecified result: a fault."""
    a, b = number(machine, each, 1), number(machine, each, 2)
    if not b.all():
        raise Fault("a division by zero")
    x, y = np.where(a < 0, -a, a).astype(U64), np.where(b < 0, -b, b).astype(U64)
    quotient, rest = x // y, x % y
    value = np.where((a < 0) != (b < 0), -quotient, quotient) if each.base == "div" else np.where(a < 0, -rest, rest)
    machine.write(each.operands[0], value, each.bits)


@instruction(r"(add|sub)\.cc\.[su](32|64)", r"(add|sub)c(\.cc)?\.[su](32|64)")
def with_carry(machine, each, _):
    """.cc writes the carry or borrow, addc and subc read it."""
    a, b = (unsigned(machine.read(each.operands[i]), each.bits) for i in (1, 2))
    carry = machine.carry[machine.index] if each.base.endswith("c") else U64(0)
    if each.base.startswith("add"):
        value = unsigned(a + b + carry, each.bits)
        out = (value < a) | ((value == a) & (carry != 0))
    else:
        value = a - b - carry
        out = (a < b) | ((a == b) & (carry != 0))
    if "cc" in each.parts:
        machine.carry[machine.index] = out
    machine.write(each.operands[0], value, each.bits)


@instruction(rf"(and|or|xor)\.{BITWISE}")
def logic(machine, each, _):
    operation = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[each.base]
    machine.write(each.operands[0], operation(machine.read(each.operands[1]), machine.read(each.operands[2])), each.bits)


@instruction(rf"not\.{BITWISE}")
def invert(machine, each, _):
    machine.write(each.operands[0], ~machine.read(each.operands[1]), each.bits)


@instruction(r"shl\.b(16|32|64)", r"shr\.[bsu](16|32|64)")
def shift(machine, each, _):
    """Amounts are 32-bit numbers; those beyond the width clear, or fill with the sign."""
    amount = unsigned(machine.read(each.operands[2]), 32)
    beyond, within = amount >= U64(each.bits), np.minimum(amount, U64(each.bits - 1))
    if each.type[0] == "s":
        value = signed(machine.read(each.operands[1]), each.bits) >> within.astype(np.int64)
    else:
        a = unsigned(machine.read(each.operands[1]), each.bits)
        value = np.where(beyond, U64(0), a << within if each.base == "shl" else a >> within)
    machine.write(each.operands[0], value, each.bits)


@instruction(r"shf\.[lr]\.wrap\.b32")
def funnel_shift(machine, each, _):
    low, high, amount = (machine.read(each.operands[i]) for i in (1, 2, 3))
    both, amount = unsigned(high, 32) << U64(32) | unsigned(low, 32), amount & U64(31)
    machine.write(each.operands[0], (both << amount) >> U64(32) if each.parts[0] == "l" else both >> amount, 32)


@instruction(r"prmt\.b32")
def permute(machine, each, _):
    """A selector of four bits: one of eight bytes, or with the high bit its sign in all bits."""
    a, b, selectors = (unsigned(machine.read(each.operands[i]), 32) for i in (1, 2, 3))
    both, value = a | b << U64(32), U64(0)
    for i in range(4):
        selector = selectors >> U64(4 * i) & U64(15)
        byte = both >> (selector & U64(7)) * U64(8) & U64(255)
        value = value | np.where(selector >= 8, np.where(byte >= 128, U64(255), U64(0)), byte) << U64(8 * i)
    machine.write(each.operands[0], value, 32)


@instruction(r"bfi\.b(32|64)")
def insert_bits(machine, each, _):
    field, base, begin, length = (machine.read(each.operands[i]) for i in (1, 2, 3, 4))
    begin, length = begin & U64(255), length & U64(255)
    ones = np.where(length >= 64, U64(ptx.EVERY_BIT), (U64(1) << np.minimum(length, U64(63))) - U64(1))
    begin_within = np.minimum(begin, U64(63))
    mask = np.where(begin >= 64, U64(0), ones << begin_within)
    machine.write(each.operands[0], base & ~mask | field << begin_within & mask, each.bits)


@instruction(r"popc\.b(32|64)")
def count_bits(machine, each, _):
    value = np.ascontiguousarray(unsigned(machine.read(each.operands[1]), each.bits))
    machine.write(each.operands[0], np.unpackbits(value.view(np.uint8).reshape(-1, 8), axis=1).sum(1), 32)


@instruction(r"dp4a\.[su]32\.[su]32")
def dot_of_bytes(machine, each, _):
    a, b = machine.read(each.operands[1]), machine.read(each.operands[2])
    value = signed(machine.read(each.operands[3]), 32)
    for i in range(4):
        x, y = (v >> U64(8 * i) & U64(255) for v in (a, b))
        x, y = (signed(v, 8) if kind == "s32" else v.astype(np.int64) for v, kind in zip((x, y), each.parts))
        value = value + x * y
    machine.write(each.operands[0], value, 32)


COMPARE = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}


@instruction(rf"setp\.(eq|ne|lt|le|gt|ge)\.({INTEGER}|b16|b32|b64)")
def compare(machine, each, _):
    machine.write(each.operands[0], COMPARE[each.parts[0]](number(machine, each, 1), number(machine, each, 2)), 1)


@instruction(r"setp\.((eq|ne|lt|le|gt|ge)u?|num|nan)\.f32")
def compare_f32(machine, each, _):
    """A NaN makes ordered comparisons false and unordered ones (ltu, ...) true."""
    a, b = machine.read_f32(each.operands[1]), machine.read_f32(each.operands[2])
    nan, how = np.isnan(a) | np.isnan(b), each.parts[0]
    if how in ("num", "nan"):
        value = nan if how == "nan" else ~nan
    else:
        value = np.where(nan, how.endswith("u"), COMPARE[how[:2]](a, b))
    machine.write(each.operands[0], value, 1)


@instruction(r"selp\.(b16|b32|b64|u32|s32|u64|s64|f32)")
def select(machine, each, _):
    yes, no, condition = (machine.read(each.operands[i]) for i in (1, 2, 3))
    machine.write(each.operands[0], np.where(condition & U64(1) != 0, yes, no), each.bits)


@instruction(r"(add|sub|mul|div)\.rn\.f32")
def binary_f32(machine, each, _):
    operation = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}[each.base]
    with np.errstate(all="ignore"):
        machine.write_f32(each.operands[0], operation(machine.read_f32(each.operands[1]), machine.read_f32(each.operands[2])))


@instruction(r"(neg|abs)\.f32", r"rcp\.rn\.f32")
def unary_f32(machine, each, _):
    a = machine.read_f32(each.operands[1])
    with np.errstate(all="ignore"):
        machine.write_f32(each.operands[0], {"neg": np.negative, "abs": np.abs, "rcp": lambda x: np.float32(1) / x}[each.base](a))


@instruction(r"fma\.rn\.bf16x2")
def fma_bf16x2(machine, each, _):
    value = U64(0)
    for half in (0, 16):
        a, b, c = (bf16_value(machine.read(each.operands[i]) >> U64(half)) for i in (1, 2, 3))
        value = value | bf16_bits(a * b + c) << U64(half)
    machine.write(each.operands[0], value, 32)


@instruction(r"cvt\.[su](16|32|64)\.[su](8|16|32|64)")
def convert_integer(machine, each, _):
    machine.write(each.operands[0], number(machine, each, 1), ptx.BITS[each.parts[0]])


@instruction(r"cvt\.rn\.f32\.[su](16|32|64)")
def convert_to_f32(machine, each, _):
    machine.write_f32(each.operands[0], number(machine, each, 1).astype(np.float32))


@instruction(r"cvt\.(rzi|rni)\.s32\.f32")
def convert_from_f32(machine, each, _):
    """Clamps; NaN becomes 0."""
    a = np.nan_to_num(machine.read_f32(each.operands[1]).astype(np.float64))
    rounded = np.trunc(a) if each.parts[0] == "rzi" else np.rint(a)
    machine.write(each.operands[0], np.clip(rounded, -2.0**31, 2.0**31 - 1).astype(np.int64), 32)


@instruction(r"cvt\.rn\.bf16x2\.f32")
def convert_to_bf16x2(machine, each, _):
    """The first source becomes the upper half."""
    high, low = (bf16_bits(machine.read_f32(each.operands[i])) for i in (1, 2))
    machine.write(each.operands[0], low | high << U64(16), 32)
