#!/usr/bin/env python3
"""Writes the wheel of the Python package: its modules, libbitgrad_c.so, and the libraries that this needs.

    build_wheel.py --library build/release/lib/libbitgrad_c.so --version 0.1.0 --out build/wheel

The standard library alone; nothing is downloaded. A wheel is a ZIP archive (PEP 427). Libraries of the system that every
glibc system with GCC's run-time has (libc, libm, libstdc++, libgcc_s) are left out; the others stand beside
libbitgrad_c.so, which looks there first, with their license texts in dist-info/licenses. The tag is manylinux of the
newest symbols of glibc and libstdc++ that are needed (PEP 600), as auditwheel finds it.
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


# libstdc++'s newest symbols in the manylinux policies of auditwheel: GLIBCXX_3.4.N, and the glibc that comes with it.
STDCXX = {19: 17, 24: 24, 25: 28, 26: 30, 28: 31, 29: 34, 30: 35, 32: 38, 33: 39}


def platform_tag(libraries: list[Path]) -> str:
    """manylinux_2_N_ARCH; the plain tag where readelf is missing or a symbol is newer than the list."""
    plain = re.sub(r"[-.]", "_", sysconfig.get_platform())
    glibc, stdcxx = 0, 0
    for path in libraries:
        try:
            run = subprocess.run(["readelf", "-V", "-W", str(path)], check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError):
            print("build_wheel: no readelf, which finds the symbols that are needed: the tag is not manylinux")
            return plain
        glibc = max([glibc, *(int(n) for n in re.findall(r"\bGLIBC_2\.(\d+)", run.stdout))])
        stdcxx = max([stdcxx, *(int(n) for n in re.findall(r"\bGLIBCXX_3\.4\.(\d+)", run.stdout))])
    known = [n for n in STDCXX if n >= stdcxx]
    if not known:
        print(f"build_wheel: GLIBCXX_3.4.{stdcxx} is newer than the list of policies: the tag is not manylinux")
        return plain
    return plain.replace("linux_", f"manylinux_2_{max(glibc, STDCXX[min(known)])}_", 1)


def license_of(path: Path) -> tuple[str, bytes]:
    """The name of the package that a library is of, and its license text."""
    places = []
    for name in (path, path.resolve(), Path(str(path).replace("/usr/lib/", "/lib/", 1))):
        for query, split in ((["dpkg-query", "-S", str(name)], ":"), (["rpm", "-qf", "--qf", "%{NAME}", str(name)], "\n")):
            try:
                run = subprocess.run(query, capture_output=True, text=True)
            except OSError:
                continue
            if run.returncode != 0:
                continue
            package = run.stdout.split(split)[0].strip()
            places = [Path(f"/usr/share/doc/{package}/copyright"), *sorted(Path(f"/usr/share/licenses/{package}").glob("*"))]
            texts = [place.read_bytes() for place in places if place.is_file()]
            if texts:
                return package, b"\n".join(texts)
    sys.exit(f"build_wheel: found no license text of {path.name} (tried {', '.join(map(str, places)) or 'dpkg and rpm'})")


def metadata(version: str, licenses: list[str]) -> str:
    files = "".join(f"License-File: {name}\n" for name in licenses)
    readme = "Neural networks whose weights are the low-bit weights: open a trained model, or train from arrays.\n"
    return (
        f"Metadata-Version: 2.4\nName: bitgrad\nVersion: {version}\n"
        "Summary: Trains low-bit neural networks whose weights are the low-bit weights\n"
        "Requires-Python: >=3.9\nClassifier: Typing :: Typed\nClassifier: Operating System :: POSIX :: Linux\n"
        f"{files}"
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
    bundled = needed(args.library)
    tag = "py3-none-" + platform_tag([args.library, *bundled])
    info = f"bitgrad-{args.version}.dist-info"
    args.out.mkdir(parents=True, exist_ok=True)
    wheel = Wheel(args.out / f"bitgrad-{args.version}-{tag}.whl", info)
    for path in sorted((HERE / "bitgrad").iterdir()):
        if path.suffix == ".py" or path.name == "py.typed":
            wheel.add(f"bitgrad/{path.name}", path.read_bytes())
    wheel.add(f"bitgrad/lib/{args.library.name}", args.library.read_bytes(), executable=True)
    licenses = {"LICENSE": (HERE.parent.parent / "LICENSE").read_bytes()}
    for path in bundled:
        package, text = license_of(path)
        licenses[f"{package}.txt"] = text
        wheel.add(f"bitgrad/lib/{path.name}", path.read_bytes(), executable=True)
    for name, text in sorted(licenses.items()):
        wheel.add(f"{info}/licenses/{name}", text)
    wheel.add(f"{info}/METADATA", metadata(args.version, sorted(licenses)).encode())
    wheel.add(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: bitgrad\nRoot-Is-Purelib: false\nTag: {tag}\n".encode())
    wheel.finish()
    print(f"{wheel.path}: {wheel.path.stat().st_size} bytes, with {', '.join(path.name for path in bundled)}")


if __name__ == "__main__":
    main()
