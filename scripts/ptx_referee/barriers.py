"""Barriers of warps, blocks and clusters, and what the lanes of a warp exchange.

PTX ISA, "Parallel Synchronization and Communication Instructions": bar, barrier.cluster, redux; "Data Movement": shfl;
"Miscellaneous": setmaxnreg. Fences order memory between lanes, which run one after the other here.
"""
import numpy as np

import ptx
from arithmetic import signed, unsigned
from machine import BLOCKED, WARP, WARPGROUP, instruction
from memory import Fault

EVERY_LANE = 0xFFFFFFFF


@instruction(r"bar\.sync", r"barrier\.sync(\.aligned)?")
def sync(machine, each, lanes):
    """bar.sync name, count: as many lanes as `count` says, of one block."""
    names = machine.read(each.operands[0])
    counted = len(each.operands) > 1
    counts = machine.read(each.operands[1]) if counted else np.full(len(lanes), machine.threads)
    machine.park(lanes, "bar.sync")
    for lane, name, count in zip(lanes, names, counts):
        name, count = int(name), int(count)
        if name > 15 or count % WARP or not 0 < count <= machine.threads:
            raise Fault(f"bar.sync {name}, {count}")
        waiting = machine.named.setdefault((machine.block[lane], name), ([], count))
        if waiting[1] != count:
            raise Fault(f"bar.sync {name} with two counts, {waiting[1]} and {count}")
        waiting[0].append(lane)
    for key, (waiting, count) in list(machine.named.items()):
        if len(waiting) > count:
            raise Fault(f"bar.sync {key[1]} with more lanes than its count of {count}")
        if len(waiting) == count:
            del machine.named[key]
            machine.resume(np.array(waiting))
    return BLOCKED


@instruction(r"bar\.warp\.sync")
def sync_warp(machine, each, lanes):
    check_whole_warp(machine.read(each.operands[0]))
    return machine.collective(lanes, WARP, lambda groups: None)


def check_whole_warp(mask):
    if np.any(unsigned(mask, 32) != EVERY_LANE):
        raise Fault("a mask of a part of the warp")


@instruction(r"barrier\.cluster\.arrive\.aligned")
def arrive_cluster(machine, _, lanes):
    machine.cluster_arrivals[lanes] += 1
    machine.release_cluster()


@instruction(r"barrier\.cluster\.wait\.aligned")
def wait_cluster(machine, _, lanes):
    machine.park(lanes, "barrier.cluster")
    machine.release_cluster()
    return BLOCKED


@instruction(r"shfl\.sync\.(up|down|bfly|idx)\.b32")
def shuffle(machine, each, lanes):
    """The source lane of each lane, within its segment; p says whether there is one."""
    check_whole_warp(machine.read(each.operands[4]))
    to, in_range = (each.operands[0].first, each.operands[0].second) if isinstance(each.operands[0], ptx.Pair) \
        else (each.operands[0], ptx.SINK)

    def exchange(groups):
        value = machine.read(each.operands[1], groups)
        b = (machine.read(each.operands[2], groups) & np.uint64(31)).astype(np.int64)
        c = machine.read(each.operands[3], groups).astype(np.int64)
        lane, clamp, mask = np.arange(WARP), c & 31, c >> 8 & 31
        most, least = lane & mask | clamp & ~mask, lane & mask
        mode = each.parts[1]
        source = {"up": lane - b, "down": lane + b, "bfly": lane ^ b, "idx": least | b & ~mask}[mode]
        inside = source >= most if mode == "up" else source <= most
        machine.write(to, np.take_along_axis(value, np.where(inside, source, lane), axis=1), 32, groups)
        machine.write(in_range, inside, 1, groups)
    return machine.collective(lanes, WARP, exchange)


@instruction(r"redux\.sync\.(add|min|max)\.s32")
def reduce(machine, each, lanes):
    check_whole_warp(machine.read(each.operands[2]))

    def combine(groups):
        value = signed(machine.read(each.operands[1], groups), 32)
        value = {"add": np.sum, "min": np.min, "max": np.max}[each.parts[1]](value, axis=1, keepdims=True)
        machine.write(each.operands[0], np.broadcast_to(value, groups.shape), 32, groups)
    return machine.collective(lanes, WARP, combine)


@instruction(r"setmaxnreg\.(inc|dec)\.sync\.aligned\.u32")
def set_registers(machine, each, lanes):
    count = each.operands[0].value
    if count % 8 or not 24 <= count <= 256:
        raise Fault(f"setmaxnreg {count}")
    return machine.collective(lanes, WARPGROUP, lambda groups: None)


@instruction(r"prefetch\.tensormap")
def prefetch_map(machine, each, _):
    machine.tensor_map(int(machine.address(each.operands[0])[0]))


@instruction(r"fence\.mbarrier_init\.release\.cluster")
def fence(_machine, _each, _lanes):
    pass
