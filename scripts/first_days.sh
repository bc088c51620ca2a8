#!/usr/bin/env bash
# The first days of three new users, as commands: pictures, language models, tables and Python. Prints each command with
# its seconds and exit status, checks what comes out, and stops at the first that fails.
#   scripts/first_days.sh FOLDER                       # all three
#   scripts/first_days.sh FOLDER pictures|language|tables ...
# FOLDER is made anew for each day; FOLDER/first_days.md is the table of the commands. The program is that of $BUILD
# (build/release), installed into FOLDER/prefix; data are in $BITGRAD_DATA, else ../shared/data. Clients are those of
# $BITGRAD_PYTHON, else python3: numpy, onnxruntime; tokenizers, xllamacpp, torch, transformers, peft; pandas. A part
# whose client or data are absent is skipped with the reason. Exit status 1: a command or a check failed.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { sed -n '2,10s/^# //p' "$0"; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
shift
days=("$@")
[ ${#days[@]} -gt 0 ] || days=(pictures language tables)
for day in "${days[@]}"; do
  [ -f "scripts/first_days/$day.sh" ] || { echo "first_days.sh: got $day, expected pictures, language or tables" >&2; exit 2; }
done
source_dir=$PWD
build=$(cd "${BUILD:-build/release}" && pwd)
data=$(cd "${BITGRAD_DATA:-../shared/data}" && pwd) || { echo "first_days.sh: no data: set BITGRAD_DATA" >&2; exit 2; }
python=${BITGRAD_PYTHON:-python3}
packages=$("$python" -c 'import numpy, pathlib; print(pathlib.Path(numpy.__file__).parents[1])' 2> /dev/null || echo none)
unset BITGRAD_DATA
export LC_ALL=C.UTF-8
table=$folder/first_days.md
total=0

row() { echo "| $day | $1 | $2 | $3 | $4 |" >> "$table"; }
fail() { echo "first_days.sh: $day: $1" >&2; exit 1; }
skip() { echo "skipped: $1"; row "$1" "" skipped ""; }
has() { "$python" -c "import $(echo "$*" | tr ' ' ,)" 2> /dev/null; }  # module...

# Runs a command and prints it with its seconds and exit status. Its output is in $folder/$day/out, its errors in err.
run() {
  local words="$*" began rc=0 seconds
  words=${words//$folder/FOLDER}
  words=${words//$data/DATA}
  words=${words//$build/BUILD}
  words=${words//$source_dir/SOURCE}
  words=${words//PYTHONPATH=$packages/PYTHONPATH=PACKAGES}
  words=${words//"$python"/python}
  words=${words//|/\\|}
  words=${words//$'\n'/ }
  echo "\$ $words"
  began=$(date +%s%N)
  "$@" > out 2> err < /dev/null || rc=$?
  seconds=$(($(date +%s%N) - began))
  total=$((total + seconds / 1000000))
  seconds=$((seconds / 1000000000)).$(printf %02d $((seconds / 10000000 % 100)))
  echo "  $seconds s, exit $rc"
  row "\`$words\`" "$seconds" "$rc" ""
  [ $rc = 0 ] && return
  tail -n 15 out err
  fail "exit $rc of: $words"
}
# result TEXT: what the command before gave, for the table.
result() {
  echo "  $1"
  sed -i "\$s/ [^|]*|\$/ ${1//\//\\/} |/" "$table"
}
# value KEY: of the JSON object that the command before printed.
value() { "$python" -c 'import json, sys; print("%.6g" % json.load(open("out"))[sys.argv[1]])' "$1"; }
# above WHAT GOT LIMIT, equal WHAT A B
above() { result "$1 $2"; awk "BEGIN { exit !($2 > $3) }" || fail "$1: got $2, expected more than $3"; }
equal() { [ "$2" = "$3" ] || fail "$1: got '$2' and '$3', expected the same"; result "$1: equal"; }

: > "$table"
{
  echo "# The first days of three new users"
  echo
  echo "Written by \`scripts/first_days.sh\`: the commands of a day with pictures, one with language models, one with tables and"
  echo "Python, in order. Tree $(git describe --always --dirty 2> /dev/null || echo unknown), $(nproc) cores."
  echo "FOLDER, DATA, BUILD, SOURCE and PACKAGES stand for paths."
  echo
  echo "| day | command | s | exit | result |"
  echo "|---|---|---|---|---|"
} >> "$table"
day=install
cd "$folder"
rm -rf prefix
run cmake --install "$build" --prefix "$folder/prefix"
export PATH=$folder/prefix/bin:$PATH
summary=
for day in "${days[@]}"; do
  rm -rf "${folder:?}/$day"
  mkdir "$folder/$day"
  cd "$folder/$day"
  total=0
  echo "== $day"
  # shellcheck source=/dev/null
  source "$source_dir/scripts/first_days/$day.sh"
  summary="$summary, $day $((total / 1000)) s"
done
{ echo; echo "Together: ${summary#, }."; } >> "$table"
echo "all days passed: ${summary#, }. Table: $table"
