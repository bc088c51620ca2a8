# Thin faces of CMake: `make train`, `make test`, `make build`.
.PHONY: setup configure build train test clean
BITGRAD := build/release/bin/bitgrad

setup:
	@scripts/setup.sh

configure: setup
	@cmake --preset release

build: configure
	@cmake --build --preset release

# The library and the program alone.
train: configure
	@cmake --build --preset release --target bitgrad_cli
	@$(BITGRAD) train configs/digits_mlp_w1a1.yaml

test: build
	@ctest --preset release -j 2

clean:
	rm -rf build
