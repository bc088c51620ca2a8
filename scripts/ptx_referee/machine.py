"""The lanes of a cluster, and the order in which they run.

Lanes at the lowest place of the program run first, all lanes of one place together (a group); a group runs until it reaches
the place of another one, branches or waits. What is asynchronous has adversarial timing, within what the ISA allows:

  late (default)   cp.async lands at wait_group, TMA loads when no lane can run
  early            cp.async and TMA loads land when they are issued
  always           wgmma and TMA stores read their operands and write their results at wait_group

Families of instructions (arithmetic, storage, tensor_cores, wgmma, copies, barriers) register functions by regular expressions
of opcodes with `instruction`. A function gets (machine, instruction, lanes) and returns BLOCKED if it has parked the lanes.
An opcode without a function is a fault when it is reached.
"""
import re

import numpy as np

import ptx
from memory import PARAMETERS, POISON, SHARED_BEGIN, SHARED_END, Fault, SharedMemory

BLOCKED = True
NOWHERE = 1 << 60
MOST_STEPS = 8_000_000
WARP, WARPGROUP = 32, 128

HANDLERS = []


def instruction(*patterns):
    """Registers a function for the opcodes that match one of the patterns as a whole."""
    def register(function):
        HANDLERS.extend((re.compile(pattern), function) for pattern in patterns)
        return function
    return register


def handler_of(op):
    found = [function for pattern, function in HANDLERS if pattern.fullmatch(op)]
    if len(found) > 1:
        raise Fault(f"{op} is executed by {len(found)} functions")
    return found[0] if found else None


def load(text, kernel):
    """A program whose instructions know what executes them."""
    program, known = ptx.Program(text, kernel, SHARED_BEGIN), {}
    for each in program.instructions:
        if each.op not in known:
            known[each.op] = handler_of(each.op)
        each.run = known[each.op]
    program.of_products = {register for each in program.instructions for register in registers_of_product(each)}
    return program


def registers_of_product(each):
    """The registers that a wgmma.mma_async reads or writes while it is on its way."""
    if each.parts[:1] != ("mma_async",):
        return []
    vectors = [operand for operand in each.operands[:2] if isinstance(operand, ptx.Vector)]
    return [register.index for vector in vectors for register in vector.items]


class Launch:
    """How a kernel is launched: blocks of the grid and of a cluster, threads of a block, bytes of dynamic shared memory, and
    the bytes of the arguments."""

    def __init__(self, program, arguments, blocks, threads, shared_bytes=0, cluster=1):
        if program.parameter_bytes != len(arguments):
            raise Fault(f"{program.name} takes {program.parameter_bytes} bytes of arguments, not {len(arguments)}")
        if program.threads not in (None, threads):
            raise Fault(f"{program.name} is launched with {threads} threads, not {program.threads}")
        if blocks % cluster or program.dynamic_at + shared_bytes > SHARED_END:
            raise Fault(f"{program.name}: {blocks} blocks of clusters of {cluster}, {shared_bytes} bytes of shared memory")
        self.program, self.arguments, self.blocks, self.threads = program, np.frombuffer(arguments, np.uint8), blocks, threads
        self.shared_end, self.cluster = program.dynamic_at + shared_bytes, cluster

    def run(self, memory, early=False):
        """Runs every cluster, one after the other; returns the number of steps."""
        return sum(Machine(self, memory, first, early).run() for first in range(0, self.blocks, self.cluster))


class Machine:
    """One cluster of blocks. Arrays over lanes: block b has lanes b * threads .. (b + 1) * threads - 1."""

    def __init__(self, launch, memory, first_block, early):
        self.launch, self.program, self.memory, self.early = launch, launch.program, memory, early
        self.threads, self.blocks, self.first_block = launch.threads, launch.cluster, first_block
        n = self.threads * self.blocks
        self.thread = np.tile(np.arange(self.threads), self.blocks)
        self.block = np.repeat(np.arange(self.blocks), self.threads)
        self.registers = np.full((len(self.program.registers), n), int.from_bytes([POISON] * 8, "little"), np.uint64)
        self.carry = np.zeros(n, np.uint64)
        self.unfenced = np.zeros(self.registers.shape, bool)  # registers of wgmma written since the lane's last wgmma.fence
        self.pc = np.zeros(n, np.int64)
        self.running, self.dead = np.ones(n, bool), np.zeros(n, bool)
        self.wait = [None] * n  # what a parked lane waits for
        self.shared = SharedMemory(self.blocks, launch.shared_end)
        self.mbarriers = {}  # by (block, offset)
        self.named = {}  # named barriers, by (block, number): lanes that have arrived and the count
        self.cluster_arrivals = np.zeros(n, np.int64)
        self.tma_loads = []  # those on their way, as functions
        self.copies, self.copy_groups = [], np.zeros(n, np.int64)  # cp.async
        self.stores = {}  # by lane, bulk groups
        self.products = {}  # by the first lane of a warpgroup, wgmma groups
        self.steps = 0
        self.lanes = self.index = None  # of the group that runs; index: a slice where the lanes are adjacent
        self.here = 0  # the place of the instruction that runs

    # ---- operands
    def read(self, operand, lanes=None):
        """Values of an operand as uint64, one a lane. `lanes` may have any shape; without, the group that runs."""
        index = self.index if lanes is None else lanes
        if isinstance(operand, ptx.Register):
            return self.registers[operand.index][index]
        shape = self.lanes.shape if lanes is None else lanes.shape
        if isinstance(operand, ptx.Immediate):
            return np.full(shape, operand.value, np.uint64)
        if isinstance(operand, ptx.Symbol):
            known = self.program.shared if operand.name in self.program.shared else self.program.parameters
            return np.full(shape, known[operand.name] + operand.offset, np.uint64)
        if isinstance(operand, ptx.Special):
            return np.broadcast_to(self.special(operand.name, index), shape).astype(np.uint64)
        raise Fault(f"{operand} is no value")

    def special(self, name, index):
        """PTX ISA, "Special Registers". Grids have one dimension."""
        name, _, axis = name.partition(".")
        if name in ("tid", "ctaid"):
            first = self.thread[index] if name == "tid" else self.first_block + self.block[index]
            return first if axis == "x" else 0
        if name in ("ntid", "nctaid"):
            return (self.threads if name == "ntid" else self.launch.blocks) if axis == "x" else 1
        return self.thread[index] % WARP if name == "laneid" else self.block[index]  # cluster_ctarank

    def write(self, operand, values, bits=64, lanes=None):
        if operand is ptx.SINK:
            return
        if not isinstance(operand, ptx.Register):
            raise Fault(f"{operand} cannot be written")
        if values.dtype != np.uint64:
            values = values.astype(np.int64).view(np.uint64)
        if bits < 64:
            values = values & np.uint64((1 << bits) - 1)
        index = self.index if lanes is None else lanes
        self.registers[operand.index, index] = values
        if operand.index in self.program.of_products:
            self.unfenced[operand.index, index] = True

    def read_f32(self, operand, lanes=None):
        return self.read(operand, lanes).astype(np.uint32).view(np.float32)

    def write_f32(self, operand, values, lanes=None):
        self.write(operand, np.asarray(values, np.float32).view(np.uint32).astype(np.uint64), 32, lanes)

    def address(self, operand, lanes=None):
        return self.read(operand.base, lanes) + np.uint64(operand.offset & ptx.EVERY_BIT)

    def one(self, operand):
        """The value of an operand for the single lane that runs."""
        return int(self.read(operand)[0])

    def tensor_map(self, address):
        """The record that arguments.cpp stores in place of the driver's: address, bytes of a row, rows, stride, rows of a box."""
        at = address - PARAMETERS
        if at % 64 or not 0 <= at < len(self.launch.arguments):
            raise Fault(f"a tensor map at {address:#x}")
        return [int(x) for x in self.launch.arguments[at:at + 40].view(np.int64)]

    # ---- order
    def run(self):
        while True:
            if self.running.any():
                self.run_group()
            elif self.dead.all():
                break
            elif not self.deliver():
                raise Fault(self.deadlock())
        if any(groups["open"] or groups["done"] for groups in self.stores.values()):
            raise Fault("the block ends with TMA stores that nobody waited for")
        return self.steps

    def run_group(self):
        pcs = np.where(self.running, self.pc, NOWHERE)
        pc = int(pcs.min())
        group = np.nonzero(pcs == pc)[0]
        others = pcs[pcs != pc]
        end = min(int(others.min()) if len(others) else NOWHERE, len(self.program.instructions))
        while True:
            each = self.program.instructions[pc]
            self.steps += 1
            if self.steps > MOST_STEPS:
                raise Fault(f"no end after {MOST_STEPS} steps")
            lanes = group
            if each.guard is not None:
                lanes = group[(self.registers[each.guard[0]][group] & np.uint64(1)).astype(bool) ^ each.guard[1]]
            if each.base == "bra":
                self.pc[group] = pc + 1
                self.pc[lanes] = each.target
                return
            if each.base in ("ret", "exit"):
                self.pc[group] = pc + 1
                self.finish(lanes)
                return
            if len(lanes) and self.execute(each, lanes, pc):
                return
            pc += 1
            self.pc[group] = pc
            if pc >= end:
                break
        if pc >= len(self.program.instructions):
            self.finish(group)

    def execute(self, each, lanes, pc):
        if each.run is None:
            raise Fault(f"unknown instruction {each.op}: {each.text}")
        self.lanes, self.here = lanes, pc
        adjacent = lanes[-1] - lanes[0] + 1 == len(lanes)
        self.index = slice(lanes[0], lanes[-1] + 1) if adjacent else lanes
        try:
            return each.run(self, each, lanes)
        except Fault as fault:
            raise Fault(f"{fault} (instruction {pc}: {each.text[:120]}, lanes {lanes[0]} ..)") from None

    def finish(self, lanes):
        self.dead[lanes] = True
        self.running[lanes] = False
        self.release_cluster()

    def park(self, lanes, reason):
        """The lanes wait at the instruction that runs."""
        self.pc[lanes] = self.here
        self.running[lanes] = False
        for lane in lanes:
            self.wait[lane] = reason
        return BLOCKED

    def resume(self, lanes):
        """Parked lanes go on behind their instruction."""
        self.pc[lanes] += 1
        self.running[lanes] = True
        for lane in np.atleast_1d(lanes):
            self.wait[lane] = None

    def deliver(self):
        """One TMA load lands."""
        if not self.tma_loads:
            return False
        self.tma_loads.pop(0)()
        return True

    def deadlock(self):
        stuck = {}
        for lane in np.nonzero(~self.dead)[0]:
            stuck.setdefault((int(self.pc[lane]), str(self.wait[lane])), []).append(int(lane))
        places = [f"{self.program.instructions[pc].op} at {pc} waits for {wait}, {len(lanes)} lanes from {lanes[0]}"
                  for (pc, wait), lanes in list(stuck.items())[:6]]
        return "deadlock: " + "; ".join(places)

    def release_cluster(self):
        """barrier.cluster.wait ends when every lane that has not exited has arrived."""
        alive = ~self.dead
        if not alive.any():
            return
        least = self.cluster_arrivals[alive].min()
        waiting = [lane for lane in np.nonzero(alive & ~self.running)[0]
                   if self.wait[lane] == "barrier.cluster" and least >= self.cluster_arrivals[lane]]
        if waiting:
            self.resume(np.array(waiting))

    def collective(self, lanes, size, action):
        """All lanes of a warp or warpgroup execute the instruction together (.sync.aligned); others wait for the rest of
        theirs. action(groups) gets the lanes [groups, size]."""
        if len(lanes) % size == 0:
            groups = lanes.reshape(-1, size)
            if np.all(groups[:, 0] % size == 0) and np.all(groups[:, -1] - groups[:, 0] == size - 1):
                action(groups)
                return None
        reason = f"the rest of its {size} lanes"
        self.park(lanes, reason)
        for first in np.unique(lanes // size) * size:
            group = np.arange(first, first + size)
            if not self.running[group].any() and np.all(self.pc[group] == self.here) and not self.dead[group].any() \
                    and all(self.wait[lane] == reason for lane in group):
                action(group[None, :])
                self.resume(group)
        return BLOCKED
