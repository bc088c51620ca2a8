"""Cases of the products by mma.sync: bytes, bits, packed weights, and floats with codes (cuda/kernels/gemm/mma)."""
import functools

import numpy as np

from cases import Case, draw_bytes, draw_weights, packed, round_up, scaled, to_bf16

TILE = 128
SIGNED, UNSIGNED, SIGNS = 0, 1, 2
CODES = {"s8": SIGNED, "u8": UNSIGNED}


def launch(bench, kind, m, n, **numbers):
    """Output fp32 or bf16 [m, n] without a gap; returns its array."""
    bf16 = bool(numbers.get("bf16"))
    dtype = np.uint16 if bf16 else np.float32
    c, sizes = bench.output(m, n, dtype), bench.make_arguments.sizes
    arguments = bench.make_arguments(kind, c=c, m=m, n=n, ldc=n, **numbers)
    bench.launch(arguments, -(-m // TILE) * -(-n // TILE), sizes[f"{kind}.threads"], sizes[kind])
    return bench.memory.get(c, dtype, m, n)


def side(bench, name, codes, bits, form, stride):
    """Numbers of an operand in rows of k, as arguments.cpp names them."""
    return {name: bench.rows(codes, stride), f"{name}__stride": stride, f"{name}__bits": bits, f"{name}__codes": form,
            f"{name}__row_bytes": round_up(codes.shape[1], 8)}


def bytes_case(a_kind, b_kind, gap, bench, m, n, k):
    a, b = draw_bytes(bench, a_kind, m, k), draw_bytes(bench, b_kind, n, k)
    (sa, pa), (sb, pb) = bench.scales(m), bench.scales(n)
    stride = round_up(k, 16) + gap
    got = launch(bench, "mma", m, n, k=k, bf16=1, a__scale=pa, b__scale=pb,
                 **side(bench, "a", a.astype(np.uint8), 8, CODES[a_kind], stride),
                 **side(bench, "b", b.astype(np.uint8), 8, CODES[b_kind], stride))
    bench.compare("C", got, to_bf16(scaled(a @ b.T, sa, sb)))


def turned_case(bench, m, n, k):
    """B is stored [k, n], in whole words or code by code."""
    a, b = draw_bytes(bench, "s8", m, k), draw_bytes(bench, "s8", k, n)
    (sa, pa), (sb, pb) = bench.scales(m), bench.scales(n)
    got = launch(bench, "mma", m, n, k=k, a__scale=pa, b__scale=pb, b__k_major=1, b__words=n % 4 == 0,
                 **side(bench, "a", a.astype(np.uint8), 8, SIGNED, round_up(k, 16)),
                 **side(bench, "b", b.astype(np.uint8), 8, SIGNED, round_up(n, 8)))
    bench.compare("C", got, scaled(a @ b, sa, sb))


def bits_case(signs, bench, m, n, k):
    """Bits behind k of A are noise; B's are zero, as packing leaves them."""
    a, b = (bench.rng.integers(0, 2, (rows, k), dtype=np.uint8) for rows in (m, n))
    pa, pb = (np.packbits(x, axis=1, bitorder="little") for x in (a, b))
    if k % 8:
        pa[:, -1] |= np.uint8(0xFF << k % 8 & 0xFF)
    (sa, a_scale), (sb, b_scale) = bench.scales(m), bench.scales(n)
    stride = round_up(k, 64) // 8
    of_signs = dict(last_weight=4, a__weight=2, b__weight=2, a__shift=-1, b__shift=-1) if signs else {}
    got = launch(bench, "mma", m, n, k=k, a__scale=a_scale, b__scale=b_scale, **of_signs,
                 **{**side(bench, "a", pa, 1, SIGNS, stride), "a__row_bytes": stride},
                 **{**side(bench, "b", pb, 1, SIGNS, stride), "b__row_bytes": stride})
    x, y = (2 * v.astype(np.int64) - 1 if signs else v.astype(np.int64) for v in (a, b))
    bench.compare("C", got, scaled(x @ y.T, sa, sb))


def weights_case(kind, bits, bench, m, n, k):
    a, (raw, b) = draw_bytes(bench, kind, m, k), draw_weights(bench, bits, n, k)
    (sa, pa), (sb, pb), rows = bench.scales(m), bench.scales(n), packed(raw, bits)
    got = launch(bench, "mma", m, n, k=k, a__scale=pa, b__scale=pb,
                 **side(bench, "a", a.astype(np.uint8), 8, CODES[kind], round_up(k, 16)),
                 **side(bench, "b", rows, bits, SIGNS if bits == 1 else SIGNED, round_up(rows.shape[1], 8)))
    bench.compare("C", got, scaled(a @ b.T, sa, sb))


def floats_case(narrow, bits, bench, m, n, k):
    """Within (k + 8) 2^-24 of the sum of magnitudes, the bound of tests/cuda/gemm_floats_test.cpp."""
    a, (raw, b) = bench.rng.normal(size=(m, k)).astype(np.float32), draw_weights(bench, bits, n, k)
    stored = to_bf16(a) if narrow else a
    if narrow:
        a = (stored.astype(np.uint32) << 16).view(np.float32)
    (sb, pb), rows, a_bytes = bench.scales(n), packed(raw, bits), stored.view(np.uint8).reshape(m, -1)
    a_stride, b_stride = round_up(a_bytes.shape[1], 16), round_up(rows.shape[1], 8)
    got = launch(bench, "float", m, n, k=k, a=bench.rows(a_bytes, a_stride), a__stride=a_stride, a__row_bytes=a_bytes.shape[1],
                 b=bench.rows(rows, b_stride), b__stride=b_stride, b__row_bytes=b_stride, narrow=narrow,
                 b__codes=SIGNS if bits == 1 else SIGNED, b__scale=pb)
    exact, scale = a.astype(np.float64), sb[None, :].astype(np.float64)
    bench.compare_within("C", got.astype(np.float64), exact @ b.T * scale, np.abs(exact) @ np.abs(b.T) * scale * (k + 8) * 2.0**-24)


def mma_cases():
    bytes_, weights, floats = "gemm/mma/bytes", "gemm/mma/weights", "gemm/mma/float_rows"

    def case(kernel, source, shape, run, *fixed, note=""):
        return Case(kernel + "_mma_sm80", source, "80", shape, functools.partial(run, *fixed), note)
    for a in CODES:
        for b in CODES:
            yield case(f"gemm_{a}_{b}", bytes_, (130, 70, 333), bytes_case, a, b, 0)
    yield case("gemm_s8_s8", bytes_, (64, 129, 70), bytes_case, "s8", "s8", 8, note="rows on 8 bytes")
    yield case("gemm_s8_s8", bytes_, (70, 132, 150), turned_case, note="B [k, n] in words")
    yield case("gemm_s8_s8", bytes_, (40, 31, 77), turned_case, note="B [k, n] by code")
    yield case("gemm_bits", bytes_, (130, 70, 1500), bits_case, True, note="signs")
    yield case("gemm_bits", bytes_, (33, 65, 333), bits_case, False, note="bits")
    for bits in range(1, 8):
        yield case(f"gemm_s8_w{bits}", weights, (60, 70, 150), weights_case, "s8", bits)
    yield case("gemm_u8_w4", weights, (60, 130, 64), weights_case, "u8", 4)
    for kind, narrow, widths in (("bf16", 1, (1, 3, 4, 8)), ("f32", 0, (1, 4, 8))):
        for bits in widths:
            yield case(f"gemm_{kind}_w{bits}", floats, (50, 60, 100), floats_case, narrow, bits)
