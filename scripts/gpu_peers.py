#!/usr/bin/env python3
"""The rivals of bench_gemm and bench_step that PyTorch brings: products and training steps on the first CUDA device.

    scripts/gpu_peers.py [--shape M,N,K ...] [--step BATCH,IN,OUT] [--repeat R] [--no-compile] [--json FILE]

Products C[M,N] = A[M,K] B[N,K]^T of random operands: bf16; int8 to int32 (torch._int_mm), plain and with scales of rows
and columns to bf16; fp8 e4m3 with such scales (torch._scaled_mm). Steps of a linear layer without bias whose input
wants a gradient and whose output gradient is given: "products" (bf16 weights, no optimizer) and "adam" (fp32 weights
under autocast to bf16, fused Adam). Eager, and compiled where torch.compile works. Times by CUDA events, medians;
operands are taken in turns from more memory than the L2 holds. A variant that PyTorch refuses is a line with `error`.
Prints a JSON line a variant, and appends it to FILE. Exit code 77 without torch or a device.
"""
import argparse
import json
import statistics
import sys

CACHE_BYTES = 64 << 20
MOST_SETS = 16


def median_us(torch, run, repeat):
    """`run(i)` with the i-th operands; some milliseconds a measurement."""
    def timed(count):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for i in range(count):
            run(i)
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / count * 1000

    for _ in range(3):
        timed(1)
    count = max(1, min(2000, int(3000 / max(timed(3), 1e-3))))
    return statistics.median(timed(count) for _ in range(repeat))


def sets(operand_bytes):
    return max(1, min(MOST_SETS, CACHE_BYTES // operand_bytes + 1))


# ---- products -------------------------------------------------------------------------------------------------------------


def bf16_product(torch, m, n, k):
    count = sets(2 * n * k)
    a = [torch.randn(m, k, device="cuda").bfloat16() for _ in range(count)]
    b = [torch.randn(n, k, device="cuda").bfloat16() for _ in range(count)]
    return lambda i: torch.matmul(a[i % count], b[i % count].t())


def int8_operands(torch, m, n, k):
    count = sets(n * k)
    a = [torch.randint(-127, 128, (m, k), device="cuda", dtype=torch.int8) for _ in range(count)]
    b = [torch.randint(-127, 128, (n, k), device="cuda", dtype=torch.int8) for _ in range(count)]
    return count, a, b


def int8_product(torch, m, n, k):
    count, a, b = int8_operands(torch, m, n, k)
    return lambda i: torch._int_mm(a[i % count], b[i % count].t())


def scaled_int8_product(torch, m, n, k, compiled):
    count, a, b = int8_operands(torch, m, n, k)
    rows, columns = torch.rand(m, 1, device="cuda"), torch.rand(1, n, device="cuda")

    def product(x, w):
        return (torch._int_mm(x, w.t()).float() * rows * columns).bfloat16()

    product = torch.compile(product) if compiled else product
    return lambda i: product(a[i % count], b[i % count])


def fp8_product(torch, m, n, k):
    count = sets(n * k)
    a = [torch.randn(m, k, device="cuda").to(torch.float8_e4m3fn) for _ in range(count)]
    b = [torch.randn(n, k, device="cuda").to(torch.float8_e4m3fn) for _ in range(count)]
    rows, columns = torch.rand(m, 1, device="cuda"), torch.rand(1, n, device="cuda")
    return lambda i: torch._scaled_mm(a[i % count], b[i % count].t(), scale_a=rows, scale_b=columns,
                                      out_dtype=torch.bfloat16)


def products(compiler):
    yield "bf16", "torch.matmul", bf16_product
    yield "int8", "torch._int_mm to int32", int8_product
    yield "int8", "torch._int_mm, scales, eager", lambda *a: scaled_int8_product(*a, False)
    if compiler:
        yield "int8", "torch._int_mm, scales, compiled", lambda *a: scaled_int8_product(*a, True)
    yield "fp8", "torch._scaled_mm by row and column", fp8_product


# ---- steps ----------------------------------------------------------------------------------------------------------------


def layer(torch, shape, dtype):
    batch, n_in, n_out = shape
    linear = torch.nn.Linear(n_in, n_out, bias=False, device="cuda", dtype=dtype)
    x = torch.randn(batch, n_in, device="cuda").bfloat16().requires_grad_(True)
    gy = torch.randn(batch, n_out, device="cuda").bfloat16()
    return linear, x, gy


def products_step(torch, shape, compiled):
    linear, x, gy = layer(torch, shape, torch.bfloat16)
    forward = torch.compile(linear) if compiled else linear

    def step(_):
        x.grad = linear.weight.grad = None
        forward(x).backward(gy)

    return step


def adam_step(torch, shape, compiled):
    linear, x, gy = layer(torch, shape, torch.float32)
    forward = torch.compile(linear) if compiled else linear
    optimizer = torch.optim.Adam(linear.parameters(), lr=1e-4, fused=True)

    def step(_):
        x.grad = None
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            y = forward(x)
        y.backward(gy)
        optimizer.step()

    return step


def steps(compiler):
    for kind, make in (("products", products_step), ("adam", adam_step)):
        for compiled in (False, True) if compiler else (False,):
            name = f"torch bf16 {'compiled' if compiled else 'eager'}"
            yield kind, name, lambda torch, shape, make=make, compiled=compiled: make(torch, shape, compiled)


# ---- all ------------------------------------------------------------------------------------------------------------------


def measured(torch, make, repeat):
    """Microseconds, or why there are none."""
    try:
        return dict(us=median_us(torch, make(), repeat))
    except Exception as error:  # a refusal is a result too
        return dict(error=f"{type(error).__name__}: {error}".splitlines()[0][:200])
    finally:
        torch.cuda.empty_cache()


def lines(torch, args):
    head = dict(peer=f"torch {torch.__version__}", device=torch.cuda.get_device_name(0))
    compiler = not args.no_compile
    for m, n, k in args.shape:
        for dtype, name, make in products(compiler):
            result = measured(torch, lambda: make(torch, m, n, k), args.repeat)
            yield dict(head, a=dtype, b=dtype, m=m, n=n, k=k, product="forward", kernel=name, **result)
    for kind, name, make in steps(compiler) if args.step else ():
        result = measured(torch, lambda: make(torch, args.step), args.repeat)
        if "us" in result:
            result = dict(ms=result["us"] / 1000)
        yield dict(head, step=",".join(str(n) for n in args.step), kind=kind, variant=name, **result)


def parse_shape(text):
    parts = text.split(",")
    if len(parts) != 3 or not all(p.isdigit() and int(p) > 0 for p in parts):
        raise argparse.ArgumentTypeError(f"got '{text}', expected three whole numbers from 1, such as 8192,4096,4096")
    return [int(p) for p in parts]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", type=parse_shape, action="append", default=[])
    parser.add_argument("--step", type=parse_shape)
    parser.add_argument("--repeat", type=int, default=31)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--json")
    args = parser.parse_args()
    try:
        import torch
    except ImportError as error:
        print(f"no torch: {error}")
        return 77
    if not torch.cuda.is_available():
        print("torch sees no CUDA device")
        return 77
    torch.manual_seed(1)
    for line in lines(torch, args):
        text = json.dumps(line)
        print(text, flush=True)
        if args.json:
            with open(args.json, "a") as file:
                file.write(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
