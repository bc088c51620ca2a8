#!/usr/bin/env bash
# Opens our files with the programs of others: makes their environments (scripts/clients.txt), runs the tests that need
# them, and writes docs/results/clients.md.
#   scripts/clients.sh FOLDER             # small clients: install, test
#   scripts/clients.sh FOLDER --torch     # PyTorch and its family too
#   scripts/clients.sh FOLDER --table     # also all versions of ONNX Runtime and OpenVINO, and the table
# FOLDER keeps the environments; a second call only runs the tests. The programs of the tests are those of $BUILD
# (build/release). Exit status 1: a test failed, a cell of the table is wrong, or a test was skipped for want of a client.
# 77: skipped, the packages cannot be installed here.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { sed -n '2,9s/^# //p' "$0"; exit 2; }
folder=$1
shift
torch=no table=no
for word in "$@"; do
  case $word in
    --torch) torch=yes ;;
    --table) table=yes ;;
    *) echo "clients.sh: got $word, expected --torch or --table" >&2; exit 2 ;;
  esac
done
build=${BUILD:-build/release}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

environment() {  # name package...
  local at=$folder/$1
  shift
  [ "$(cat "$at/packages" 2>/dev/null)" = "$*" ] && return
  echo "installing into $at: $*"
  rm -rf "$at"
  if ! { python3 -m venv "$at" && "$at/bin/pip" install --quiet --disable-pip-version-check "$@"; }; then
    echo "clients.sh: skipped: cannot install $*"
    exit 77
  fi
  echo "$*" > "$at/packages"
}

of_group() { sed -n "s/^$1 //p" scripts/clients.txt; }

status=0
tests_of() {  # group
  while read -r group program file; do
    [ "$group" = "$1" ] || continue
    local log=$folder/$file.log
    if BITGRAD_PYTHON=$folder/$1/bin/python BITGRAD_GEMM_COSTS=/nonexistent/gemm_costs.txt \
        "$build/bin/tests/$program" -# "[#$file]" > "$log" 2>&1 < /dev/null; then
      if grep 'skipped: no' "$log" | grep -qv qonnx; then  # qonnx wants an old onnx: an environment of its own, by hand
        echo "$file: $(grep 'skipped: no' "$log" | grep -vm1 qonnx)"
        status=1
      else
        echo "$file: passed"
      fi
    else
      echo "$file: failed, see $log"
      status=1
    fi
  done < <(of_group test)
}

mapfile -t small < <(of_group small)
environment small "${small[@]}"
tests_of small
if [ $torch = yes ]; then
  mapfile -t packages < <(of_group torch)
  environment torch "${packages[@]}"
  tests_of torch
fi
if [ $table = yes ]; then
  mapfile -t versions < <(of_group ort)
  for version in "${versions[@]}"; do environment "ort_$version" "onnxruntime==$version" numpy; done
  mapfile -t openvino < <(of_group openvino)
  for version in "${openvino[@]}"; do environment "openvino_$version" "openvino==$version" numpy; done
  "$folder/small/bin/python" scripts/clients_table.py --bitgrad "$build/bin/bitgrad" --folder "$folder" \
    --ort "${versions[@]}" --openvino "${openvino[@]}" --out docs/results/clients.md || status=1
fi
exit $status
