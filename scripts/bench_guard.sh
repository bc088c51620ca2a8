#!/usr/bin/env bash
# The guard of speed: each fast gemm row at two small shapes against its recorded ratio to oneDNN fp32 in the same run
# (docs/results/guard.json, by CPU family and instruction sets). Fails when a row is below 0.5 of its figure in three
# runs one after the other, so that a lost optimization is seen and a busy machine is not. A machine without figures
# passes. A change that is meant to make a row slower, or to remove one, records new figures:
#
#   scripts/bench_guard.sh             compare
#   scripts/bench_guard.sh --record    measure on a quiet machine and write the figures of this machine into the file
#
# BITGRAD_BENCH: folder of the benchmark binaries (build/release/bin).
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
program="${BITGRAD_BENCH:-$root/build/release/bin}/bench_gemm"
figures="$root/docs/results/guard.json"
if [ ! -x "$program" ]; then
  echo "bench_guard: $program is not built. Build the release preset first (make)." >&2
  exit 1
fi
case "${1:-}" in
  --record) exec "$program" --record "$figures" --repeat 21 ;;
  "") ;;
  *) echo "bench_guard: got '$1', expected nothing or --record" >&2; exit 2 ;;
esac
out="$(mktemp)"
trap 'rm -f "$out"' EXIT
for try in 1 2 3; do
  if "$program" --guard "$figures" --repeat 5 --slack 0.5 >"$out"; then
    tail -1 "$out"
    exit 0
  fi
  echo "bench_guard: try $try of 3 found slower rows:"
  grep -E "LOST|lost$" "$out" || cat "$out"
done
echo "bench_guard: rows are slower than recorded. If that is meant, run scripts/bench_guard.sh --record on a quiet machine." >&2
exit 1
