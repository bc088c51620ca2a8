"""Loads, stores, atomics, addresses, and copies of a lane from global to shared memory (cp.async).

PTX ISA, "Data Movement and Conversion Instructions": ld, st, cvta, mapa, cp.async; "Parallel Synchronization and
Communication": atom, red; "Async proxy": fence.proxy.async.
"""
import numpy as np

import ptx
from arithmetic import signed, unsigned
from machine import instruction
from memory import GLOBAL, OFFSET, PARAMETERS, RANK_SHIFT, SHARED, Fault

U64 = np.uint64
MEMORY_TYPE = "[busf](8|16|32|64)"


def check_aligned(addresses, size, what):
    wrong = addresses % U64(size) != 0
    if np.any(wrong):
        raise Fault(f"{what} of {size} bytes at {int(addresses[wrong][0]):#x} is misaligned")


def shared_place(machine, addresses, lanes):
    """Block and offset of addresses in shared memory of the cluster."""
    rank = (unsigned(addresses, 32) >> U64(RANK_SHIFT)).astype(np.int64)
    if np.any(rank > machine.blocks):
        raise Fault("an address in shared memory of a block beyond the cluster")
    return np.where(rank == 0, machine.block[lanes], rank - 1), (addresses & U64(OFFSET)).astype(np.int64)


def words(parts):
    return 4 if "v4" in parts else 2 if "v2" in parts else 1


def items(operand):
    return operand.items if isinstance(operand, ptx.Vector) else (operand,)


@instruction(rf"ld\.(param|global|shared)(\.v[24])?\.{MEMORY_TYPE}")
def load(machine, each, lanes):
    space, size = each.parts[0], each.bits // 8
    count = words(each.parts)
    addresses = machine.address(each.operands[1])
    check_aligned(addresses, size * count, "a load")
    data = load_bytes(machine, space, addresses, lanes, size * count)
    for i, to in enumerate(items(each.operands[0])):
        padded = np.zeros((len(lanes), 8), np.uint8)
        padded[:, :size] = data[:, i * size:(i + 1) * size]
        value = padded.view(U64)[:, 0]
        machine.write(to, signed(value, each.bits) if each.type[0] == "s" else value)


def load_bytes(machine, space, addresses, lanes, size):
    if space == "param":
        at = addresses.astype(np.int64)
        if np.any(at < 0) or np.any(at + size > len(machine.launch.arguments)):
            raise Fault("a load behind the parameters")
        return machine.launch.arguments[at[:, None] + np.arange(size)]
    if space == "global":
        return machine.memory.bytes[machine.memory.offsets(addresses, size, "a load")]
    block, at = shared_place(machine, addresses, lanes)
    machine.shared.check(at, size, "a load")
    return machine.shared.bytes[block[:, None], at[:, None] + np.arange(size)]


@instruction(rf"st\.(global|shared)(\.v[24])?\.{MEMORY_TYPE}")
def store(machine, each, lanes):
    size, count = each.bits // 8, words(each.parts)
    addresses = machine.address(each.operands[0])
    check_aligned(addresses, size * count, "a store")
    values = [np.ascontiguousarray(machine.read(x)).view(np.uint8).reshape(-1, 8)[:, :size] for x in items(each.operands[1])]
    data = np.concatenate(values, axis=1)
    if each.parts[0] == "global":
        machine.memory.bytes[machine.memory.offsets(addresses, size * count, "a store")] = data
        return
    block, at = shared_place(machine, addresses, lanes)
    machine.shared.check(at, size * count, "a store")
    every = at[:, None] + np.arange(size * count)
    machine.shared.bytes[block[:, None], every] = data
    machine.shared.writer[block[:, None], every] = (lanes + 1)[:, None]


@instruction(r"atom\.global\.(add\.[su]32|(max|min)\.[su]32|or\.b32)", r"red\.global\.(add\.[su]32|(max|min)\.[su]32|or\.b32)")
def atomic(machine, each, lanes):
    memory_operand, values = each.operands[-2], machine.read(each.operands[-1])
    addresses = machine.address(memory_operand)
    check_aligned(addresses, 4, "an atomic")
    at = machine.memory.offsets(addresses, 4, "an atomic")[:, 0]
    numbers = machine.memory.bytes
    before = np.zeros(len(lanes), U64)
    for i, (place, value) in enumerate(zip(at, values)):
        before[i] = old = int(numbers[place:place + 4].view(np.uint32)[0])
        new = combine(each.parts[1], old, int(value) & 0xFFFFFFFF, each.type[0] == "s")
        numbers[place:place + 4] = np.array([new], np.uint32).view(np.uint8)
    if each.base == "atom":
        machine.write(each.operands[0], before, 32)


def combine(operation, old, value, is_signed):
    if operation == "add":
        return (old + value) & 0xFFFFFFFF
    if operation == "or":
        return old | value

    def key(x):
        return (x ^ 0x80000000) - 0x80000000 if is_signed else x
    return (max if operation == "max" else min)(old, value, key=key)


@instruction(r"cvta\.(param|shared|global)\.u64", r"cvta\.to\.(param|shared|global)\.u64")
def convert_address(machine, each, _):
    window = {"param": PARAMETERS, "shared": SHARED, "global": 0}[each.parts[-2]]
    value, window = machine.read(each.operands[1]), U64(window)
    machine.write(each.operands[0], value - window if each.parts[0] == "to" else value + window)


@instruction(r"mapa\.shared::cluster\.u32")
def map_address(machine, each, _):
    """The address of the same place in another block's shared memory."""
    address, rank = machine.read(each.operands[1]), unsigned(machine.read(each.operands[2]), 32)
    if np.any(rank >= machine.blocks):
        raise Fault("mapa beyond the cluster")
    machine.write(each.operands[0], address & U64(OFFSET) | (rank + U64(1)) << U64(RANK_SHIFT), 32)


@instruction(r"fence\.proxy\.async\.shared::cta")
def fence_proxy(machine, _, lanes):
    machine.shared.fence(np.unique(machine.block[lanes]), lanes, len(machine.thread))


# ---- cp.async: groups of each lane
@instruction(r"cp\.async\.ca\.shared\.global", r"cp\.async\.cg\.shared\.global")
def copy(machine, each, lanes):
    """Copies src-size bytes and fills with zeros up to cp-size."""
    size = each.operands[2].value
    if size not in ((16,) if each.parts[1] == "cg" else (4, 8, 16)):
        raise Fault(f"cp.async of {size} bytes")
    to, source = unsigned(machine.address(each.operands[0]), 32), machine.address(each.operands[1]).copy()
    used = unsigned(machine.read(each.operands[3]), 32) if len(each.operands) > 3 else np.full(len(lanes), size, U64)
    check_aligned(to, size, "cp.async")
    check_aligned(source, size, "cp.async")
    if np.any(used > size):
        raise Fault("cp.async: src-size is more than cp-size")
    block, at = shared_place(machine, to, lanes)
    machine.shared.check(at, size, "cp.async")
    from_ = source.astype(np.int64) - GLOBAL
    for place, count in zip(from_, used):
        machine.memory.check(int(place), int(count), "cp.async")
    group = machine.copy_groups[lanes].copy()
    machine.copies.append([lanes.copy(), block, at, from_, used.astype(np.int64), group, size])
    if machine.early:
        land_copies(machine, lambda lanes, group: np.ones(len(lanes), bool))


def land_copies(machine, is_due):
    kept = []
    for *arrays, size in machine.copies:
        now = is_due(arrays[0], arrays[5])
        for lane, block, at, from_, used, _ in zip(*(x[now] for x in arrays)):
            machine.shared.bytes[block, at:at + size] = 0
            machine.shared.bytes[block, at:at + used] = machine.memory.bytes[from_:from_ + used]
            machine.shared.writer[block, at:at + size] = lane + 1
        if not now.all():
            kept.append([x[~now] for x in arrays] + [size])
    machine.copies = kept


@instruction(r"cp\.async\.commit_group")
def commit_copies(machine, _, lanes):
    machine.copy_groups[lanes] += 1


@instruction(r"cp\.async\.wait_group", r"cp\.async\.wait_all")
def wait_for_copies(machine, each, lanes):
    """All but the last N committed groups of the lane are complete; wait_all: those not committed as well."""
    limit = np.full(len(machine.thread), -1)
    kept = each.operands[0].value if each.operands else -1
    limit[lanes] = machine.copy_groups[lanes] - kept
    land_copies(machine, lambda who, group: group < limit[who])
