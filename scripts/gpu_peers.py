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

from gpu_table import parse_shape

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


def product(torch, m, n, k, dtype, multiply, compiled):
    """multiply(a, b, scales of rows, scales of columns) of operands in turns."""
    def operand(rows):
        if dtype == torch.int8:
            return torch.randint(-127, 128, (rows, k), device="cuda", dtype=dtype)
        return torch.randn(rows, k, device="cuda").to(dtype)

    count = max(1, min(MOST_SETS, CACHE_BYTES // (n * k * (2 if dtype == torch.bfloat16 else 1)) + 1))
    a, b = [operand(m) for _ in range(count)], [operand(n) for _ in range(count)]
    rows, columns = torch.rand(m, 1, device="cuda"), torch.rand(1, n, device="cuda")
    multiply = torch.compile(multiply) if compiled else multiply
    return lambda i: multiply(a[i % count], b[i % count], rows, columns)


def products(torch):
    def scaled(a, b, rows, columns):
        return (torch._int_mm(a, b.t()).float() * rows * columns).bfloat16()

    yield "bf16", "torch.matmul", torch.bfloat16, lambda a, b, *_: torch.matmul(a, b.t())
    yield "int8", "torch._int_mm to int32", torch.int8, lambda a, b, *_: torch._int_mm(a, b.t())
    yield "int8", "torch._int_mm, scales, eager", torch.int8, scaled
    yield "int8", "torch._int_mm, scales, compiled", torch.int8, scaled
    yield ("fp8", "torch._scaled_mm by row and column", torch.float8_e4m3fn,
           lambda a, b, rows, columns: torch._scaled_mm(a, b.t(), scale_a=rows, scale_b=columns, out_dtype=torch.bfloat16))


def training_step(torch, shape, adam, compiled):
    batch, n_in, n_out = shape
    linear = torch.nn.Linear(n_in, n_out, bias=False, device="cuda", dtype=torch.float32 if adam else torch.bfloat16)
    x = torch.randn(batch, n_in, device="cuda").bfloat16().requires_grad_(True)
    gy = torch.randn(batch, n_out, device="cuda").bfloat16()
    forward = torch.compile(linear) if compiled else linear
    optimizer = torch.optim.Adam(linear.parameters(), lr=1e-4, fused=True) if adam else None

    def step(_):
        x.grad = linear.weight.grad = None
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=adam):
            y = forward(x)
        y.backward(gy)
        if adam:
            optimizer.step()

    return step


def measured(torch, make, repeat, unit=1):
    """Microseconds, or why there are none."""
    try:
        return {"us" if unit == 1 else "ms": median_us(torch, make(), repeat) / unit}
    except Exception as error:  # a refusal is a result too
        return dict(error=f"{type(error).__name__}: {error}".splitlines()[0][:200])
    finally:
        torch.cuda.empty_cache()


def lines(torch, args):
    head = dict(peer=f"torch {torch.__version__}", device=torch.cuda.get_device_name(0))
    for m, n, k in args.shape:
        for name, kernel, dtype, multiply in products(torch):
            compiled = kernel.endswith("compiled")
            if compiled and args.no_compile:
                continue
            result = measured(torch, lambda: product(torch, m, n, k, dtype, multiply, compiled), args.repeat)
            yield dict(head, a=name, b=name, m=m, n=n, k=k, product="forward", kernel=kernel, **result)
    for adam in (False, True) if args.step else ():
        for compiled in (False,) if args.no_compile else (False, True):
            result = measured(torch, lambda: training_step(torch, args.step, adam, compiled), args.repeat, 1000)
            yield dict(head, step=",".join(str(n) for n in args.step), kind="adam" if adam else "products",
                       variant=f"torch bf16 {'compiled' if compiled else 'eager'}", **result)


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
