"""What the tests of scripts/gpu_* share: a build folder of programs that only say what the real ones would (fakes/program.py), and a
clock that goes on only where a program hangs."""
import json
import os
import shutil
import subprocess
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SCRIPTS = os.path.join(ROOT, "scripts")
PROGRAMS = ["bitgrad", "bench_gemm", "bench_bandwidth", "bench_step", "tests/test_cuda_gpu"]
TOOLS = ["nvidia-smi", "compute-sanitizer", "ncu"]
DATA = ("mnist/train-images-idx3-ubyte.gz", "cifar-10-batches-bin/data_batch_1.bin")


def fake(path, program="program.py"):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.symlink(os.path.join(HERE, "fakes", program), path)


def json_lines(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.build, self.tools, self.calls = (os.path.join(self.folder, x) for x in ("build", "tools", "calls"))
        for program in PROGRAMS:
            fake(os.path.join(self.build, "bin", program))
        for tool in ("date", "timeout"):
            fake(os.path.join(self.tools, tool), tool)
        self.clock = os.path.join(self.folder, "clock")
        with open(self.clock, "w") as file:
            file.write("1000000\n")
        self.data = os.path.join(self.folder, "data")
        for path in DATA:
            os.makedirs(os.path.dirname(os.path.join(self.data, path)))
            open(os.path.join(self.data, path), "w").close()
        self.out = os.path.join(self.build, "gpu_check")
        os.makedirs(self.out)

    def run_script(self, script, *arguments, modes=None, **environment):
        """Runs a script; `environment` beside that of this process."""
        variables = dict(os.environ, FAKE_CALLS=self.calls, FAKE_CLOCK=self.clock, FAKE_MODES=json.dumps(modes or {}), BITGRAD_DATA=self.data,
                         PYTHONDONTWRITEBYTECODE="1", PATH=self.tools + ":" + os.environ["PATH"])
        for name in [n for n in variables if n.startswith("BITGRAD_GPU_CHECK")]:
            del variables[name]
        variables.update({k: str(v) for k, v in environment.items()})
        return subprocess.run([os.path.join(SCRIPTS, script), *arguments], env=variables, capture_output=True,
                              text=True, cwd=self.folder, timeout=600)

    def check(self, *stages, **named):
        return self.run_script("gpu_check.sh", self.build, *stages, **named)

    def results(self):
        return {line["check"]: line["result"] for line in json_lines(os.path.join(self.out, "checks.jsonl"))}

    def read(self, name):
        with open(os.path.join(self.out, name)) as file:
            return file.read()

    def called(self, program):
        with open(self.calls) as file:
            return [line.strip() for line in file if line.split()[0] == program]
