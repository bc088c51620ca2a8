#!/usr/bin/env bash
# The second build of the same sources costs nothing: builds a preset in two clones of HEAD in two folders and counts what ccache
# knew again in the second. Fails below 95 % of hits, or where the second build takes more than 180 s.
#
#   scripts/check_ccache.sh [PRESET [SECONDS]]      default: release 180
#
# The first build fills $CCACHE_DIR (ccache's own default), which takes as long as a build does where nothing is cached.
set -euo pipefail
cd "$(dirname "$0")/.."
preset="${1:-release}" most="${2:-180}"
command -v ccache >/dev/null || { echo "skipped: no ccache"; exit 77; }
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
for clone in first second/elsewhere; do
  git clone -q . "$folder/$clone"
  cmake -S "$folder/$clone" --preset "$preset" >/dev/null
  [ "$clone" = first ] || ccache --zero-stats >/dev/null
  start=$SECONDS
  cmake --build "$folder/$clone/build/$preset" >"$folder/log" || { tail -40 "$folder/log" >&2; exit 1; }
  took=$((SECONDS - start))
  echo "$clone: $took s"
done
count() { ccache --print-stats | awk -v names="$1" 'BEGIN {split(names, n, " "); for (i in n) want[n[i]]} $1 in want {sum += $2} END {print sum + 0}'; }
hits=$(count "direct_cache_hit preprocessed_cache_hit") misses=$(count cache_miss)
echo "ccache: $hits hits, $misses misses in the second clone"
[ $((hits * 100)) -ge $(((hits + misses) * 95)) ] || { echo "check_ccache: expected at least 95 % hits" >&2; exit 1; }
[ "$took" -le "$most" ] || { echo "check_ccache: the second build took $took s, expected at most $most" >&2; exit 1; }
