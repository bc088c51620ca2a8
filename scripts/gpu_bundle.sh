#!/bin/sh
# Packs a build for a machine with a GPU: programs, the libraries that they need beside the C library and the driver's,
# configurations and scripts. Unpacked anywhere: scripts/gpu_check.sh build.
#
#   scripts/gpu_bundle.sh [BUILD_FOLDER [FILE.tar.gz]]     default: build/release, BUILD_FOLDER/gpu_bundle.tar.gz
#
# The C library there must be as new as the one here.
build=${1:-build/release}
file=${2:-$build/gpu_bundle.tar.gz}
root=$(cd "$(dirname "$0")/.." && pwd)
for program in bitgrad bench_gemm bench_step bench_bandwidth tests/test_cuda_gpu; do
  [ -x "$build/bin/$program" ] || { echo "gpu_bundle.sh: there is no $build/bin/$program. Build with CUDA first." >&2; exit 2; }
done
folder=$(mktemp -d) || exit 2
trap 'rm -rf "$folder"' EXIT
top=$folder/bitgrad_gpu
mkdir -p "$top/build/bin/tests" "$top/build/lib" || exit 2
for program in bitgrad bench_gemm bench_step bench_bandwidth tests/test_cuda_gpu; do
  cp "$build/bin/$program" "$top/build/bin/$program" || exit 2
done
find "$top/build/bin" -type f -exec ldd {} + | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u | grep -v -E '/(libc|libm|libdl|librt|libpthread|libresolv|ld-linux[^/]*)\.so' | while read -r library; do
  cp -L "$library" "$top/build/lib/"
done
strip "$top"/build/bin/* "$top"/build/bin/tests/* 2> /dev/null # only smaller; where there is no strip, they are larger
cp -R "$root/scripts" "$root/configs" "$top/" && tar -C "$folder" -czf "$file" bitgrad_gpu && echo "$file"
