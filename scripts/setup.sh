#!/usr/bin/env bash
# Installs with apt what the build lacks (Debian 12 names). Does nothing, and needs no network, when all is there.
# libdnnl-dev only recommends the OpenCL packages, but its CMake files need them.
#   --style   what scripts/check_style.py needs, too
#   --mpi     Open MPI, for training on several machines (docs/ranks.md), too
#   --mpich   MPICH in its place; both can be installed
#   --arm     a compiler and emulator of Cortex-M, for tests of exported C, too
set -euo pipefail
packages=(g++ cmake ninja-build ccache pkg-config git
          libeigen3-dev libdnnl-dev ocl-icd-opencl-dev opencl-headers catch2 libspdlog-dev libcli11-dev libyaml-cpp-dev nlohmann-json3-dev zlib1g-dev libzip-dev libpng-dev libjpeg62-turbo-dev libcurl4-openssl-dev libarchive-dev libpcre2-dev libutf8proc-dev libsentencepiece-dev flatbuffers-compiler libflatbuffers-dev python3-numpy)
for wish in "$@"; do
  case "$wish" in
    --style) packages+=(clang-format-14 clang-tidy-14) ;;
    --mpi) packages+=(libopenmpi-dev openmpi-bin) ;;
    --mpich) packages+=(libmpich-dev mpich) ;;
    --arm) packages+=(gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm) ;;
    *) echo "setup: got '$wish', expected nothing, --style, --mpi, --mpich or --arm" >&2; exit 2 ;;
  esac
done
missing=()
for p in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing+=("$p")
done
[ ${#missing[@]} -eq 0 ] && exit 0
if ! command -v apt-get >/dev/null; then
  echo "setup: these packages are needed and apt-get is not here to install them: ${missing[*]}" >&2
  exit 1
fi
sudo=""
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "setup: run as root, or install by hand: ${missing[*]}" >&2; exit 1; }
  sudo=sudo
fi
echo "setup: installing ${missing[*]}"
$sudo apt-get update -qq
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
