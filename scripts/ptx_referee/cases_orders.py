"""Cases of the int8 codes of a gradient in both orders (cuda/kernels/quantize/int8_orders.cu): largest, scales, codes."""
import struct

import numpy as np

from cases import Case, round_up

THREADS, QMAX = 256, np.float32(127)
LARGEST, SCALES, CODES = "largest_kernel<ILb0", "scales_kernel", "int8_codes_turned_kernel<ILb0"


def codes_of(values, scale):
    return np.clip(np.rint(values * (np.float32(1) / scale)), -127, 127).astype(np.int8)


def orders_case(bench, rows, columns):
    x = (bench.rng.normal(size=(rows, columns)) * bench.rng.random((rows, 1))).astype(np.float32)
    fold, fold_at = bench.scales(rows)
    row_stride, column_stride = round_up(columns, 8), round_up(rows, 8)
    row_scales, column_scales, flags = (bench.put(np.zeros(n, np.float32)) for n in (rows, columns, 1))
    row_codes = bench.output(rows, row_stride, np.int8)
    column_codes = bench.output(columns, column_stride, np.int8)
    given = dict(rows=rows, columns=columns, x=bench.put(x), wide=columns % 8 == 0, flags=flags, octets=row_stride // 8,
                 by_row__scales=row_scales, by_row__codes=row_codes, by_row__stride=row_stride, by_column__fold=fold_at,
                 by_column__scales=column_scales, by_column__codes=column_codes, by_column__stride=column_stride)
    bench.launch(bench.make_arguments("orders", **given), -(-rows // 64) * -(-columns // 256), THREADS, kernel=LARGEST)
    for count, scales in ((rows, row_scales), (columns, column_scales)):
        bench.launch(struct.pack("<qQQ", count, scales, flags), -(-count // THREADS), THREADS, kernel=SCALES)
    tiles = -(-rows // 128) * -(-row_stride // 128)
    bench.launch(bench.make_arguments("orders", with_octets=1, **given), tiles, THREADS, kernel=CODES)

    folded = x * fold[:, None]
    by_row, by_column = np.abs(x).max(1) / QMAX, np.abs(folded).max(0) / QMAX
    bench.compare("scales of rows", bench.memory.get(row_scales, np.float32, rows), by_row)
    bench.compare("scales of columns", bench.memory.get(column_scales, np.float32, columns), by_column)
    want = np.zeros((rows, row_stride), np.int8)
    want[:, :columns] = codes_of(x, by_row[:, None])
    bench.compare("codes by row", bench.memory.get(row_codes, np.int8, rows, row_stride), want)
    want = np.zeros((columns, column_stride), np.int8)
    want[:, :rows] = codes_of(folded, by_column[None, :]).T
    bench.compare("codes by column", bench.memory.get(column_codes, np.int8, columns, column_stride), want)
    bench.compare("flags", bench.memory.get(flags, np.uint32, 1), np.zeros(1, np.uint32))


def orders_cases():
    for shape in ((70, 150), (130, 264)):
        yield Case("int8_codes_turned_kernel", "quantize/int8_orders", "90a", shape, orders_case, timings=("late",))
