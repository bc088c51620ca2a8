"""Bulk copies (TMA) and mbarriers.

PTX ISA, "Asynchronous Data Copy and Movement": cp.async.bulk, cp.async.bulk.tensor, their groups, "Tensors", "Swizzling
Modes"; "Parallel Synchronization": mbarrier. A tensor is a matrix of bytes, a box some rows of 128 bytes with 128-byte
swizzle (Machine.tensor_map). Stores write whole pieces of 16 bytes at the end of a row, as an H100 does.
"""
import numpy as np

from arithmetic import signed, unsigned
from machine import BLOCKED, WARP, instruction
from memory import GLOBAL, OFFSET, RANK_SHIFT, Fault, Mbarrier
from wgmma import swizzled

ROW_BYTES, PIECE = 128, 16


# ---- mbarriers
def place_of(machine, address, lane):
    """Block and offset of an mbarrier."""
    rank, at = (address & 0xFFFFFFFF) >> RANK_SHIFT, address & OFFSET
    if rank > machine.blocks or at % 8:
        raise Fault(f"an mbarrier at {address:#x}")
    machine.shared.check(np.array([at]), 8, "an mbarrier")
    return int(machine.block[lane]) if rank == 0 else rank - 1, at


def mbarrier_at(machine, key):
    if key not in machine.mbarriers:
        raise Fault(f"the mbarrier at {key[1]} of block {key[0]} was not initialized")
    return machine.mbarriers[key]


def update(machine, key, arrivals=0, expected=0, completed=0):
    """Arrivals and bytes; when the phase ends, those who wait for it go on."""
    mbarrier = mbarrier_at(machine, key)
    if not mbarrier.update(arrivals, expected, completed):
        return
    waiting, mbarrier.waiting = mbarrier.waiting, []
    for lane, parity, to in waiting:
        if mbarrier.phase % 2 == parity:
            mbarrier.waiting.append((lane, parity, to))
            continue
        machine.write(to, np.ones(1, np.uint64), 1, np.array([lane]))
        machine.resume(np.array([lane]))


@instruction(r"mbarrier\.init\.shared::cta\.b64")
def init(machine, each, lanes):
    addresses, counts = machine.address(each.operands[0]), unsigned(machine.read(each.operands[1]), 32)
    for lane, address, count in zip(lanes, addresses, counts):
        machine.mbarriers[place_of(machine, int(address), lane)] = Mbarrier(int(count))


@instruction(r"mbarrier\.arrive(\.expect_tx)?\.shared::(cta|cluster)\.b64")
def arrive(machine, each, lanes):
    addresses = machine.address(each.operands[1])
    expected = machine.read(each.operands[2]) if "expect_tx" in each.parts else np.zeros(len(lanes), np.uint64)
    for lane, address, size in zip(lanes, addresses.copy(), expected.copy()):
        update(machine, place_of(machine, int(address), lane), 1, int(size))


@instruction(r"mbarrier\.try_wait\.parity\.shared::cta\.b64")
def try_wait(machine, each, lanes):
    """True once the phase of this parity has ended. A lane waits as long as it takes."""
    to, addresses, parities = each.operands[0], machine.address(each.operands[1]), machine.read(each.operands[2])
    for lane, address, parity in zip(lanes, addresses.copy(), parities.copy()):
        key = place_of(machine, int(address), lane)
        mbarrier, one = mbarrier_at(machine, key), np.array([lane])
        machine.park(one, f"the mbarrier at {key[1]} of block {key[0]}, parity {int(parity)}")
        if mbarrier.phase % 2 != int(parity):
            machine.write(to, np.ones(1, np.uint64), 1, one)
            machine.resume(one)
        else:
            mbarrier.waiting.append((lane, int(parity), to))
    return BLOCKED


# ---- loads
def single(lanes):
    if len(np.unique(lanes // WARP)) < len(lanes):
        raise Fault("a bulk copy by several lanes of a warp")


def one_by_one(machine, each, lanes, action):
    """Runs action(lane) with that lane alone in machine.lanes."""
    single(lanes)
    for lane in lanes:
        machine.lanes = machine.index = np.array([lane])
        action(int(lane))


def coordinates(machine, operand):
    return [int(signed(machine.read(x), 32)[0]) for x in operand.coordinates.items]


def check_box(machine, at, rows):
    if at % 1024 or not 1 <= rows <= 256:
        raise Fault(f"a swizzled box of {rows} rows at {at}")
    machine.shared.check(np.array([at]), rows * ROW_BYTES, "a box")


def land(machine, load):
    machine.tma_loads.append(load)
    if machine.early:
        while machine.deliver():
            pass


LOAD = r"cp\.async\.bulk\.tensor\.2d\.shared::cluster\.global\.mbarrier::complete_tx::bytes(\.multicast::cluster)?"


@instruction(LOAD)
def load_box(machine, each, lanes):
    """What lies outside of the matrix is filled with zeros; the mbarrier of every receiving block counts the whole box."""
    def issue(lane):
        to, source, mbarrier = each.operands[:3]
        at, bar = machine.one(to.base) + to.offset & OFFSET, machine.one(mbarrier.base) + mbarrier.offset & OFFSET
        matrix = machine.tensor_map(machine.one(source.base))
        column, row = coordinates(machine, source)
        own = int(machine.block[lane])
        blocks = machine.one(each.operands[3]) if each.parts[-1] == "multicast::cluster" else 1 << own
        check_box(machine, at, matrix[4])
        if blocks >> machine.blocks:
            raise Fault("multicast beyond the cluster")
        for block in range(machine.blocks):
            if blocks >> block & 1:
                land(machine, lambda block=block: fill_box(machine, block, at, matrix, column, row, bar))
    one_by_one(machine, each, lanes, issue)


def fill_box(machine, block, at, matrix, column, row, bar):
    data, columns, rows, stride, box = matrix
    if column < 0 or row < 0:
        raise Fault(f"a box at column {column}, row {row}")
    tile, width = np.zeros((box, ROW_BYTES), np.uint8), min(ROW_BYTES, columns - column)
    for r in range(min(box, rows - row) if width > 0 else 0):
        begin = data - GLOBAL + (row + r) * stride + column
        machine.memory.check(begin, width, "a TMA load")
        tile[r, :width] = machine.memory.bytes[begin:begin + width]
    machine.shared.bytes[block, at + swizzled(np.arange(box * ROW_BYTES))] = tile.reshape(-1)
    update(machine, (block, bar), completed=box * ROW_BYTES)


@instruction(r"cp\.async\.bulk\.shared::cluster\.global\.mbarrier::complete_tx::bytes")
def load_bytes(machine, each, lanes):
    def issue(lane):
        to, source, count, mbarrier = each.operands
        at, bar = machine.one(to.base) + to.offset & OFFSET, machine.one(mbarrier.base) + mbarrier.offset & OFFSET
        begin, size, block = machine.one(source.base) + source.offset - GLOBAL, machine.one(count) & 0xFFFFFFFF, int(machine.block[lane])
        if at % 16 or begin % 16 or size % 16:
            raise Fault("a bulk copy that is not on 16 bytes")
        machine.memory.check(begin, size, "a bulk copy")
        machine.shared.check(np.array([at]), size, "a bulk copy")

        def fill():
            machine.shared.bytes[block, at:at + size] = machine.memory.bytes[begin:begin + size]
            update(machine, (block, bar), completed=size)
        land(machine, fill)
    one_by_one(machine, each, lanes, issue)


# ---- stores, in groups of each lane
def groups_of(machine, lane):
    return machine.stores.setdefault(int(lane), {"open": [], "done": []})


@instruction(r"cp\.async\.bulk\.tensor\.2d\.global\.shared::cta\.bulk_group")
def store_box(machine, each, lanes):
    def issue(lane):
        to, source = each.operands
        at, matrix = machine.one(source.base) + source.offset & OFFSET, machine.tensor_map(machine.one(to.base))
        column, row = coordinates(machine, to)
        check_box(machine, at, matrix[4])
        block = int(machine.block[lane])
        groups_of(machine, lane)["open"].append(lambda: write_box(machine, block, at, matrix, column, row))
    one_by_one(machine, each, lanes, issue)


def write_box(machine, block, at, matrix, column, row):
    """The part within the matrix, of which each row is rounded up to pieces of 16 bytes."""
    data, columns, rows, stride, box = matrix
    if column < 0 or row < 0 or column % PIECE:
        raise Fault(f"a stored box at column {column}, row {row}")
    machine.shared.check_fenced(block, slice(at, at + box * ROW_BYTES), "a TMA store")
    width = min(ROW_BYTES, (columns - column + PIECE - 1) // PIECE * PIECE)
    for r in range(min(box, rows - row) if columns > column else 0):
        begin = data - GLOBAL + (row + r) * stride + column
        machine.memory.check(begin, width, "a TMA store")
        machine.memory.bytes[begin:begin + width] = machine.shared.bytes[block, at + swizzled(r * ROW_BYTES + np.arange(width))]


@instruction(r"cp\.async\.bulk\.commit_group")
def commit(machine, _, lanes):
    for lane in lanes:
        groups = groups_of(machine, lane)
        groups["done"].append(groups["open"])
        groups["open"] = []


@instruction(r"cp\.async\.bulk\.wait_group(\.read)?")
def wait(machine, each, lanes):
    """All but the last N groups of the lane have read shared memory. They write as well, in the order of their issue."""
    for lane in lanes:
        done = groups_of(machine, lane)["done"]
        while len(done) > each.operands[0].value:
            for run in done.pop(0):
                run()
