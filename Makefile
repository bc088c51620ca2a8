# Thin faces of CMake: `make train`, `make test`, `make test-all`, `make check LAYER=x`, `make build`, `make wheel`, `make package`.
.PHONY: setup configure build train test test-all check wheel package clean
BITGRAD := build/release/bin/bitgrad
# `make train` compiles kernels for GPUs only where there is one: they take longer than everything else.
CUDA ?= $(if $(wildcard /dev/nvidiactl),AUTO,OFF)

setup:
	@scripts/setup.sh

# The GPUs that `make build` and `make test` compile kernels for, as BITGRAD_CUDA_ARCHS of CMakeLists.txt.
CUDA_ARCHS ?= default
configure: setup
	@cmake --preset release -DBITGRAD_WITH_CUDA=AUTO -DBITGRAD_CUDA_ARCHS=$(CUDA_ARCHS)

build: configure
	@cmake --build --preset release

# The library and the program alone.
train: setup
	@cmake --preset release -DBITGRAD_WITH_CUDA=$(CUDA)
	@cmake --build --preset release --target bitgrad_cli
	@$(BITGRAD) train configs/digits_mlp_w1a1.yaml

test: build
	@ctest --preset release -j 2

# And what takes too long for every change (docs/testing.md).
test-all: build
	@ctest --preset all -j 2

# One layer of src/ with its tests, in the preset for work on the code: make check LAYER=ops
LAYER ?= $(error make check LAYER=<layer>: expected a folder of tests/ such as base, ops, nn or train)
check: setup
	@cmake --preset dev
	@cmake --build --preset dev --target test_$(LAYER)
	@ctest --preset dev -R '^$(LAYER)$$'

# The Python package: build/release/wheel/bitgrad-*.whl.
wheel: configure
	@cmake --build --preset release --target wheel

# Debian packages: build/release/package/*.deb.
package: configure
	@cmake --build --preset release --target bitgrad_cli bitgrad_c
	@cd build/release && cpack -B package

clean:
	rm -rf build
