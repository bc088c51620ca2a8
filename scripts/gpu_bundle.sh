#!/bin/sh
# Packs a build for a machine with a GPU: programs, the libraries that they need beside the C library and the driver's,
# configurations and scripts. Unpacked anywhere: scripts/gpu_check.sh build.
#
#   scripts/gpu_bundle.sh [--data] [BUILD_FOLDER [FILE.tar.gz]]     default: build/gpu, BUILD_FOLDER/gpu_bundle.tar.gz
#
# The build is that of `cmake --preset gpu`: one shared library, without oneDNN, Eigen and what `data fetch` needs, whose programs
# look for libraries beside themselves ($ORIGIN), so nothing else of that machine sees them. --data: with $BITGRAD_DATA/mnist. An archive of more than 60 MiB
# (BITGRAD_GPU_BUNDLE_MIB) is refused. The C library there must be as new as the one here.
data=
if [ "$1" = --data ]; then
  data=${BITGRAD_DATA:?gpu_bundle.sh: --data needs BITGRAD_DATA}/mnist
  [ -d "$data" ] || { echo "gpu_bundle.sh: there is no folder $data." >&2; exit 2; }
  shift
fi
build=${1:-build/gpu}
file=${2:-$build/gpu_bundle.tar.gz}
most=${BITGRAD_GPU_BUNDLE_MIB:-60}
root=$(cd "$(dirname "$0")/.." && pwd)
programs="bitgrad bench_gemm bench_step bench_kernels tests/test_cuda_gpu"
for program in $programs; do
  [ -x "$build/bin/$program" ] || { echo "gpu_bundle.sh: there is no $build/bin/$program. Build with CUDA first (cmake --preset gpu)." >&2; exit 2; }
done
folder=$(mktemp -d) || exit 2
trap 'rm -rf "$folder"' EXIT
top=$folder/bitgrad_gpu
mkdir -p "$top/build/bin/tests" "$top/build/lib" || exit 2
for program in $programs; do
  cp "$build/bin/$program" "$top/build/bin/$program" || exit 2
done
needed() { # libraries of the programs in a folder, and where they are found
  for program in $programs; do ldd "$1/$program" 2> /dev/null; done | awk '$2 == "=>" {print $1, $3}' | sort -u |
    grep -v -E '^(libc|libm|libdl|librt|libpthread|libresolv|ld-linux[^/ ]*)\.so'
}
needed "$build/bin" > "$folder/here.txt"
while read -r name library; do
  [ -f "$library" ] || { echo "gpu_bundle.sh: $name was not found." >&2; exit 2; }
  cp -L "$library" "$top/build/lib/$name" || exit 2
done < "$folder/here.txt" || exit 2
# Only smaller; where there is no strip, they are larger.
strip "$top"/build/bin/* "$top"/build/bin/tests/* "$top"/build/lib/* 2> /dev/null
# What the programs find now must be what was carried.
elsewhere=$(needed "$top/build/bin" | awk -v lib="$top/build/" 'index($2, lib) != 1 && index($2, "/../lib/") == 0 {print $1}' | sort -u | tr '\n' ' ')
if [ -n "$elsewhere" ]; then
  echo "gpu_bundle.sh: the programs do not look for these beside themselves: ${elsewhere}Hint: build with cmake --preset gpu, which sets the rpath." >&2
  exit 2
fi
if [ -n "$data" ]; then mkdir -p "$top/data" && cp -RL "$data" "$top/data/mnist" || exit 2; fi
cp -R "$root/scripts" "$root/configs" "$top/" && tar -C "$folder" -czf "$folder/bundle.tar.gz" bitgrad_gpu || exit 2
mib=$(($(wc -c < "$folder/bundle.tar.gz") / 1048576))
if [ "$mib" -ge "$most" ]; then
  echo "gpu_bundle.sh: the archive has $mib MiB, expected less than $most. Hint: cmake --preset gpu builds without oneDNN, for one target." >&2
  exit 2
fi
mv "$folder/bundle.tar.gz" "$file" && echo "$file"
