#!/bin/sh
# Runs nvcc with -Xptxas -v: log_ptxas.sh LOG NVCC ARGUMENT...
# LOG gets what nvcc writes to stderr (scripts/check_cubins.py reads it); all but ptxas' list of registers is shown as well.
log=$1
shift
status=0
"$@" -Xptxas -v 2> "$log" || status=$?
grep -v '^ptxas info  *: \(Compiling\|Function\|Used\|Compile time\|[0-9]* bytes gmem\)\|^ *[0-9]* bytes stack frame' "$log" >&2
exit "$status"
