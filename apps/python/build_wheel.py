#!/usr/bin/env python3
"""Writes the wheel of the Python package: its modules, libbitgrad_c.so, and the libraries that this needs.

    build_wheel.py --library build/release/lib/libbitgrad_c.so --version 0.1.0 --out build/wheel

The standard library alone; nothing is downloaded. A wheel is a ZIP archive (PEP 427). Libraries of the system that every
glibc system with GCC's run-time has (libc, libm, libstdc++, libgcc_s) are left out; the others stand beside
libbitgrad_c.so, which looks there first.
"""

import argparse
import base64
import hashlib
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

SYSTEM = re.compile(r"^(ld-linux.*|linux-vdso.*|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so.*)$")
HERE = Path(__file__).resolve().parent


def needed(library: Path) -> list[Path]:
    """Every library that the loader finds for it, by the name that it is asked for."""
    text = subprocess.run(["ldd", str(library)], check=True, capture_output=True, text=True).stdout
    found = []
    for line in text.splitlines():
        name, _, rest = line.strip().partition(" => ")
        if not rest or SYSTEM.match(name):
            continue
        path = rest.split(" (")[0]
        if path == "not found":
            sys.exit(f"build_wheel: {library} needs {name}, which is not installed")
        found.append(Path(path))
    return found


def metadata(version: str) -> str:
    readme = "Neural networks whose weights are the low-bit weights: open a trained model, or train from arrays.\n"
    return (
        f"Metadata-Version: 2.1\nName: bitgrad\nVersion: {version}\n"
        "Summary: Trains low-bit neural networks whose weights are the low-bit weights\n"
        "Requires-Python: >=3.9\nClassifier: Typing :: Typed\nClassifier: Operating System :: POSIX :: Linux\n"
        f"\n{readme}"
    )


class Wheel:
    def __init__(self, path: Path, info: str) -> None:
        self.path, self.info, self.record = path, info, []
        self.archive = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)

    def add(self, name: str, data: bytes, executable: bool = False) -> None:
        entry = zipfile.ZipInfo(name)  # 1980-01-01: the same bytes from the same files
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = (0o100755 if executable else 0o100644) << 16
        self.archive.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}")

    def finish(self) -> None:
        name = f"{self.info}/RECORD"
        self.record.append(f"{name},,")
        entry = zipfile.ZipInfo(name)
        entry.external_attr = 0o100644 << 16
        self.archive.writestr(entry, "\n".join(self.record) + "\n")
        self.archive.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    tag = "py3-none-" + re.sub(r"[-.]", "_", sysconfig.get_platform())
    info = f"bitgrad-{args.version}.dist-info"
    args.out.mkdir(parents=True, exist_ok=True)
    wheel = Wheel(args.out / f"bitgrad-{args.version}-{tag}.whl", info)
    for path in sorted((HERE / "bitgrad").iterdir()):
        if path.suffix == ".py" or path.name == "py.typed":
            wheel.add(f"bitgrad/{path.name}", path.read_bytes())
    wheel.add(f"bitgrad/lib/{args.library.name}", args.library.read_bytes(), executable=True)
    bundled = needed(args.library)
    for path in bundled:
        wheel.add(f"bitgrad/lib/{path.name}", path.read_bytes(), executable=True)
    wheel.add(f"{info}/METADATA", metadata(args.version).encode())
    wheel.add(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: bitgrad\nRoot-Is-Purelib: false\nTag: {tag}\n".encode())
    wheel.finish()
    print(f"{wheel.path}: {wheel.path.stat().st_size} bytes, with {', '.join(path.name for path in bundled)}")


if __name__ == "__main__":
    main()
