"""Memory of a launch: windows of addresses, global arrays, the shared memory of a cluster, and mbarriers.

PTX ISA, "State Spaces", "Generic Addressing" and "mbarrier". Addresses are 64-bit numbers; the windows of parameters and of
global memory lie high, so that an address of the wrong window is seen. Shared memory of the block itself begins at 0 and that
of block r of the cluster, as `mapa` gives it, at (r + 1) << 24.
"""
import numpy as np

PARAMETERS, SHARED, GLOBAL = 1 << 40, 2 << 40, 3 << 40
SHARED_BEGIN = 1024  # of each block the system keeps 1 KiB on 9.0
SHARED_END = SHARED_BEGIN + 232448
RANK_SHIFT = 24
OFFSET = (1 << RANK_SHIFT) - 1
POISON = 0xA5  # of memory and registers that nobody has written
GAP = 512  # bytes between arrays of global memory, which nobody may touch


class Fault(Exception):
    """The kernel does what the PTX ISA does not allow, or what the referee does not know."""


class GlobalMemory:
    """Arrays of the device. Bytes outside of them may be neither read nor written."""

    def __init__(self):
        self.bytes = np.full(1 << 20, POISON, np.uint8)
        self.valid = np.zeros(1 << 20, bool)
        self.top = GAP

    def put(self, data):
        """Adds an array; returns its address, a multiple of 512."""
        data = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else np.ascontiguousarray(data).view(np.uint8).reshape(-1)
        at, end = self.top, self.top + len(data)
        while end + 8 * GAP > len(self.bytes):
            self.bytes = np.concatenate([self.bytes, np.full(len(self.bytes), POISON, np.uint8)])
            self.valid = np.concatenate([self.valid, np.zeros(len(self.valid), bool)])
        self.bytes[at:end] = data
        self.valid[at:end] = True
        self.top = (end + 2 * GAP - 1) // GAP * GAP
        return GLOBAL + at

    def get(self, address, dtype, *shape):
        at, size = address - GLOBAL, int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self.bytes[at:at + size].view(dtype).reshape(shape).copy()

    def offsets(self, addresses, size, what):
        """Offsets of the bytes [n, size] of accesses; a fault if one is outside of every array."""
        at = addresses.astype(np.int64) - GLOBAL
        every = at[:, None] + np.arange(size)
        if at.size and (at.min() < 0 or at.max() + size > len(self.valid) or not self.valid[every].all()):
            raise Fault(f"{what} out of bounds of global memory")
        return every

    def check(self, at, size, what):
        """One range of bytes, by its offset."""
        if size and (at < 0 or at + size > len(self.valid) or not self.valid[at:at + size].all()):
            raise Fault(f"{what} out of bounds of global memory")


class SharedMemory:
    """Shared memory of the blocks of a cluster, and who wrote each byte through the generic proxy.

    PTX ISA, "Async proxy": what wgmma and TMA read must not have been written by ordinary stores since the writer's last
    fence.proxy.async. writer[block, byte] is 1 + the lane, 0 if no fence is owed.
    """

    def __init__(self, blocks, end):
        self.bytes = np.full((blocks, SHARED_END), POISON, np.uint8)
        self.writer = np.zeros((blocks, SHARED_END), np.int32)
        self.end = end

    def check(self, at, size, what):
        if np.any(at < SHARED_BEGIN) or np.any(at + size > self.end):
            raise Fault(f"{what} out of bounds of shared memory")

    def check_fenced(self, block, at, what):
        """`at`: offsets, or a slice."""
        if self.writer[block][at].any():
            raise Fault(f"{what} reads shared memory that generic stores wrote without fence.proxy.async")

    def fence(self, blocks, lanes, lane_count):
        """fence.proxy.async by these lanes."""
        fenced = np.zeros(lane_count + 1, bool)
        fenced[lanes + 1] = True
        for block in blocks:
            self.writer[block, fenced[self.writer[block]]] = 0


class Mbarrier:
    """PTX ISA, "mbarrier": a phase ends when no arrivals and no bytes are pending."""

    def __init__(self, count):
        if not 1 <= count < 1 << 20:
            raise Fault(f"mbarrier.init with a count of {count}")
        self.count = self.pending = count
        self.bytes = self.phase = 0
        self.waiting = []  # (lane, parity, ...): see copies.try_wait

    def update(self, arrivals, expected, completed):
        """Returns whether the phase ended."""
        self.pending -= arrivals
        self.bytes += expected - completed
        if self.pending < 0:
            raise Fault("mbarrier: more arrivals than its count")
        if self.pending or self.bytes:
            return False
        self.pending = self.count
        self.phase += 1
        return True
