#!/usr/bin/env python3
"""Recomputes src/optim/polar_express.inc: the coefficients of Polar Express (Amsel, Persson, Musco, Gower 2025, arXiv
2505.16932, algorithm 1 and section 4), the composition of odd polynomials of degree 5 that is nearest to 1 on the
singular values.

    scripts/polar_express.py            # prints the file
    scripts/polar_express.py --check    # exit status 1 if the file holds other numbers
"""
import argparse
import math
import pathlib
import sys

ITERATIONS, LEAST, CUSHION, SAFETY = 5, 1e-3, 0.02, 1.02
FILE = pathlib.Path(__file__).resolve().parent.parent / "src/optim/polar_express.inc"


def value(abc, x):
    a, b, c = abc
    return a * x + b * x ** 3 + c * x ** 5


def solve(rows):
    """Gauss with pivoting: [coefficients | right side]."""
    n = len(rows)
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(n):
            if r != i:
                f = rows[r][i] / rows[i][i]
                rows[r] = [x - f * y for x, y in zip(rows[r], rows[i])]
    return [rows[i][n] / rows[i][i] for i in range(n)]


def optimal_quintic(low, high):
    """The minimax approximation of 1 on [low, high] by a x + b x^3 + c x^5 (Remez)."""
    if 1 - 5e-6 <= low / high:
        return [x / high ** (2 * i + 1) for i, x in enumerate((15 / 8, -10 / 8, 3 / 8))]
    q, r, error, before = (3 * low + high) / 4, (low + 3 * high) / 4, math.inf, None
    while before is None or abs(before - error) > 1e-15:
        before = error
        points = (low, q, r, high)
        *abc, error = solve([[x, x ** 3, x ** 5, (-1) ** i, 1] for i, x in enumerate(points)])
        a, b, c = abc
        root = math.sqrt(9 * b * b - 20 * a * c)
        q, r = (math.sqrt((-3 * b + s * root) / (10 * c)) for s in (-1, 1))
    return abc


def coefficients():
    low, high, out = LEAST, 1.0, []
    for i in range(ITERATIONS):
        abc = optimal_quintic(max(low, CUSHION * high), high)
        if CUSHION * high > low:  # the errors at both ends become equal again
            by = 2 / (value(abc, low) + value(abc, high))
            abc = [x * by for x in abc]
        if i + 1 < ITERATIONS:  # rounding errors above `high` do not grow
            abc = [x / SAFETY ** (2 * k + 1) for k, x in enumerate(abc)]
        out.append(abc)
        low = value(abc, low)
        high = 2 - low
    return out


HEAD = f"""// a, b, c of the iterations of Polar Express (Amsel et al. 2025, arXiv 2505.16932, algorithm 1) for singular values in
// [{LEAST:g}, 1] and products in low precision: cushion {CUSHION:g}, safety factor {SAFETY:g}; the last ones repeat. Written by
// scripts/polar_express.py.
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the file")
    options = parser.parse_args()
    text = HEAD + "".join("{" + ", ".join(f"{x:.9g}f" for x in abc) + "},\n" for abc in coefficients())
    if not options.check:
        sys.stdout.write(text)
    elif text != FILE.read_text():
        sys.exit(f"polar_express.py: {FILE} holds other numbers, expected\n{text}")


main()
