#!/usr/bin/env bash
# Opens our files with the programs of others: makes their environments (scripts/clients.txt), runs the tests that need
# them, and writes docs/results/clients.md.
#   scripts/clients.sh FOLDER             # small clients: install, test
#   scripts/clients.sh FOLDER --install   # small clients: install
#   scripts/clients.sh FOLDER --torch     # PyTorch and its family too
#   scripts/clients.sh FOLDER --table     # also all versions of ONNX Runtime and OpenVINO, and the table
# FOLDER keeps the environments; a second call only runs the tests. The programs of the tests are those of $BUILD
# (build/release). Exit status 1: a test failed, a cell of the table is wrong, or a test was skipped for want of a client.
# 77: skipped, the packages cannot be installed here.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { sed -n '2,10s/^# //p' "$0"; exit 2; }
folder=$1
shift
install=no torch=no table=no
for word in "$@"; do
  case $word in
    --install) install=yes ;;
    --torch) torch=yes ;;
    --table) table=yes ;;
    *) echo "clients.sh: got $word, expected --install, --torch or --table" >&2; exit 2 ;;
  esac
done
if [ $install$torch = yesyes ] || [ $install$table = yesyes ]; then
  echo "clients.sh: --install is for the small clients, expected neither --torch nor --table beside it" >&2
  exit 2
fi
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
test_of() {  # group program file
  local log=$folder/$3.log
  if ! BITGRAD_PYTHON=$folder/$1/bin/python BITGRAD_GEMM_COSTS=/nonexistent/gemm_costs.txt \
      "$build/bin/tests/$2" -# "[#$3]" > "$log" 2>&1 < /dev/null; then
    echo "$3: failed, see $log"
    return 1
  fi
  # Of another place: qonnx wants an old onnx, an environment of its own, by hand; compilers for Cortex-M (setup.sh --arm).
  if grep 'skipped: no' "$log" | grep -vEm1 'qonnx|arm-none-eabi-gcc|qemu-system-arm' > "$folder/$3.skipped"; then
    echo "$3: $(cat "$folder/$3.skipped")"
    return 1
  fi
  echo "$3: passed$(grep -oE 'skipped: no (numpy, )?[a-z-]+' "$log" | sort -u | sed 's/^/, /' | tr -d '\n')"
}
tests_of() {  # group; all at once, since each waits for one program of another
  local running=()
  while read -r group program file; do
    [ "$group" = "$1" ] || continue
    test_of "$1" "$program" "$file" &
    running+=($!)
  done < <(of_group test)
  for one in "${running[@]}"; do wait "$one" || status=1; done
}

mapfile -t small < <(of_group small)
environment small "${small[@]}"
[ $install = no ] || exit 0
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
