# Thin faces of CMake: `make train`, `make test`, `make build`.
.PHONY: setup build train test clean
BITGRAD := build/release/bin/bitgrad

setup:
	@scripts/setup.sh

build: setup
	@cmake --preset release
	@cmake --build --preset release

train: build
	@$(BITGRAD) train configs/digits_mlp_w1a1.yaml

test: build
	@ctest --preset release -j 2

clean:
	rm -rf build
