"""Cases of the products by wgmma: both operands in shared memory, turns, split k, and weights in layout frag64
(cuda/kernels/gemm/wgmma)."""
import functools

import numpy as np

from cases import UNTOUCHED, Case, draw_bytes, draw_weights, round_up, scaled, to_bf16

WIDE, NARROW, TURNS = (128, 256, 2), (128, 128, 1), (64, 256, 4)  # rows and columns of a tile, blocks of a cluster
SS, RS = "gemm/wgmma/ss", "gemm/wgmma/rs"


def draw_operands(bench, kind, m, n, k):
    """Values of both, their rows of bytes, and the numbers by which sums of bits become those of signs."""
    if kind != "b1":
        a, b = draw_bytes(bench, kind[:2], m, k), draw_bytes(bench, kind[3:], n, k)
        return a, b, a.astype(np.uint8), b.astype(np.uint8), {"plain": 1}
    a, b = (bench.rng.integers(0, 2, (rows, k)) for rows in (m, n))
    rows = [np.packbits(x.astype(np.uint8), axis=1, bitorder="little") for x in (a, b)]
    x_sums, y_sums = (bench.put(x.sum(1).astype(np.int32)) for x in (a, b))
    signs = {"factor": 4, "x__sums": x_sums, "y__sums": y_sums, "x__times": -2, "y__times": -2, "x__base": k}
    return 2 * a - 1, 2 * b - 1, *rows, signs


def launch(bench, form, clusters, bits=8, **numbers):
    rows, columns, cluster = form
    sizes = bench.make_arguments.sizes
    arguments = bench.make_arguments("wgmma", tile_rows=rows, tile_columns=columns, cluster=cluster, **numbers)
    bench.launch(arguments, clusters * cluster, sizes["wgmma.threads"], sizes[f"wgmma.{columns}.{bits}.{rows}"], cluster)


def store_and_compare(bench, sums, bf16, gap, has_bias, run):
    """C with rows of whole pieces of 16 bytes, `gap` elements behind each row, which nobody may touch."""
    m, n = sums.shape
    dtype = np.uint16 if bf16 else np.float32
    ldc = round_up(n + gap, 16 // np.dtype(dtype).itemsize)
    (x, px), (y, py), (bias, pb) = bench.scales(m), bench.scales(n), bench.scales(n)
    c = bench.output(m, ldc, dtype)
    run(c=c, m=m, n=n, ldc=ldc, bf16=bf16, x__scale=px, y__scale=py, bias=pb if has_bias else 0)
    want = scaled(sums, x, y)
    if has_bias:
        want = want + bias[None, :]
    got = bench.memory.get(c, dtype, m, ldc)
    bench.compare("C", got[:, :n], to_bf16(want) if bf16 else want)
    rest = np.ascontiguousarray(got[:, n:]).view(np.uint8)
    bench.compare("behind C", rest, np.full_like(rest, UNTOUCHED))


def shared_case(kind, form, clusters, options, bench, m, n, k):
    """Both operands from shared memory. options: bf16, gap, bias."""
    a, b, a_rows, b_rows, numbers = draw_operands(bench, kind, m, n, k)
    stride = round_up(a_rows.shape[1], 16)
    numbers |= dict(k=k, k_bytes=a_rows.shape[1], a=bench.rows(a_rows, stride), b=bench.rows(b_rows, stride))
    numbers |= {"a__stride": stride, "b__stride": stride}
    bf16, gap, bias = (options.get(name, 0) for name in ("bf16", "gap", "bias"))
    store_and_compare(bench, a @ b.T, bf16, gap, bias, lambda **out: launch(bench, form, clusters, **numbers, **out))


def split_case(kind, parts, clusters, bench, m, n, k):
    """Raw sums of parts of k, added by atomics."""
    a, b, a_rows, b_rows, _ = draw_operands(bench, kind, m, n, k)
    if kind == "b1":
        a, b = (a + 1) // 2, (b + 1) // 2
    stride = round_up(a_rows.shape[1], 16)
    sums = bench.put(np.zeros((m, n), np.int32))
    launch(bench, NARROW, clusters, k=k, k_bytes=a_rows.shape[1], a=bench.rows(a_rows, stride), b=bench.rows(b_rows, stride),
           a__stride=stride, b__stride=stride, plain=1, parts=parts, sums=sums, c=bench.output(m, n, np.float32), m=m, n=n, ldc=n)
    bench.compare("sums", bench.memory.get(sums, np.int32, m, n), (a @ b.T).astype(np.int32))


def frag64(raw, bits):
    """Codes [n, k] in the layout frag64 (src/dtype/layouts/frag64.h): blocks of 64 x 128, parts of 4, 2 and 1 bits from the top of
    the codes down; 16 words a thread, word 4 * step + index of a register of wgmma's A fragment."""
    blocks = -(-raw.shape[0] // 64), -(-raw.shape[1] // 128)
    padded = np.zeros((blocks[0] * 64, blocks[1] * 128), np.uint8)
    padded[:raw.shape[0], :raw.shape[1]] = raw
    codes = padded.reshape(blocks[0], 64, blocks[1], 128).swapaxes(1, 2)
    row, column = np.arange(64)[:, None], np.arange(128)[None, :]
    within = column % 32
    word = 4 * (column // 32) + row % 16 // 8 + 2 * (within // 16)
    thread = row // 16 * 32 + row % 8 * 4 + within % 16 // 4
    out, at, left = np.zeros((*blocks, 1024 * bits), np.uint8), 0, bits
    for part in (4, 2, 1):
        if not bits & part:
            continue
        left -= part
        each = 8 // part  # words that share a byte
        stored = word // each
        place = stored // 4 * 2048 + thread * 16 + stored % 4 * 4 if part == 4 else thread * 8 * part + stored * 4
        value = (codes >> left & (1 << part) - 1) << (word % each * part)
        np.bitwise_or.at(out, (slice(None), slice(None), at + place + within % 4), value.astype(np.uint8))
        at += 1024 * part
    return out


def fragments_case(bits, kind, form, clusters, bf16, bench, m, n, k):
    """Weights from registers: rows of the tile are columns of C."""
    a, (raw, b) = draw_bytes(bench, kind, m, k), draw_weights(bench, bits, n, k)
    stride = round_up(k, 16)
    numbers = dict(frag64=1, a=bench.put(frag64(raw, bits)), b=bench.rows(a.astype(np.uint8), stride), k=k, k_bytes=k, plain=1,
                   signs=bits == 1, shift=0 if bits == 1 else 8 - bits, b__stride=stride)
    store_and_compare(bench, a @ b.T, bf16, 0, 0, lambda **out: launch(bench, form, clusters, bits, **numbers, **out))


def wgmma_cases():
    def shared(kernel, kind, shape, form, clusters=1, **options):
        run = functools.partial(shared_case, kind, form, clusters, options)
        return Case(f"gemm_{kernel}_sm90a", SS, "90a", shape, run, f"{clusters} clusters" if clusters > 1 else "")

    yield shared("s8_s8_bf16_wgmma256", "s8_s8", (300, 296, 700), WIDE, bf16=1, bias=1)
    yield shared("s8_s8_f32_wgmma256", "s8_s8", (300, 268, 150), WIDE, 2, gap=4)
    yield shared("u8_s8_bf16_wgmma128", "u8_s8", (200, 200, 900), NARROW, bf16=1)
    yield shared("b1_b1_bf16_wgmma256", "b1", (300, 296, 5000), WIDE, bf16=1)
    yield shared("b1_b1_f32_wgmma128", "b1", (130, 140, 2048), NARROW)
    for k in (100, 700):
        yield shared("s8_s8_bf16_wgmma256_turns", "s8_s8", (300, 600, k), TURNS, bf16=1)
    for k in (2048, 4096):
        yield shared("b1_b1_bf16_wgmma256_turns", "b1", (300, 600, k), TURNS, bf16=1)
    yield shared("s8_s8_any_wgmma128", "s8_s8", (140, 70, 150), NARROW, bf16=1)
    for kind, kernel, shape, parts, clusters in (("s8_s8", "s8_s8", (150, 140, 1200), 3, 4), ("b1", "b1_b1", (60, 140, 8192), 4, 2)):
        yield Case(f"gemm_{kernel}_split_wgmma128_sm90a", SS, "90a", shape, functools.partial(split_case, kind, parts, clusters),
                   f"{parts} parts")

    def fragments(bits, kind, store, columns, shape, form):
        run = functools.partial(fragments_case, bits, kind, form, 1, int(store == "bf16"))
        return Case(f"gemm_w{bits}_{kind}_{store}_wgmma{columns}_sm90a", RS, "90a", shape, run)
    for bits in (1, 4, 6, 7):
        yield fragments(bits, "s8", "bf16", 256, (140, 152, 300), WIDE)
    yield fragments(3, "s8", "bf16", 256, (140, 104, 700), WIDE)
    yield fragments(2, "u8", "bf16", 256, (300, 304, 200), WIDE)
    for bits in (3, 5):
        yield fragments(bits, "s8", "any", 128, (70, 90, 150), NARROW)
    yield from quick_cases(shared, fragments)


def quick_cases(shared, fragments):
    """The smallest shapes that end within tiles, wrap the ring of stages, and have several tiles a block."""
    yield shared("s8_s8_bf16_wgmma256", "s8_s8", (136, 264, 600), WIDE, bf16=1)
    yield fragments(4, "s8", "bf16", 256, (264, 72, 600), WIDE)
