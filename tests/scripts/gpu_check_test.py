"""scripts/gpu_check.sh, gpu_table.py and gpu_peers.py, with programs that only say what the real ones would (fakes/program.py), and a
clock that goes on only where a program hangs.
tests/apps/bench_device_test.cpp runs the script with the real programs on emulated devices."""
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SCRIPTS = os.path.join(ROOT, "scripts")
PROGRAMS = ["bitgrad", "bench_gemm", "bench_generate", "bench_kernels", "bench_step", "tests/test_cuda_gpu", "tests/test_nn_gpu"]
TORCH = """import sys
from unittest.mock import MagicMock
torch = sys.modules["torch"] = MagicMock(__version__="0.fake")
torch.cuda.get_device_name.return_value = "fake device"
torch.cuda.max_memory_allocated.return_value = 1
torch.autograd.Function = type("Function", (), dict(apply=None))
torch.cuda.Event.return_value.elapsed_time.return_value = 300.0  # ms: one launch a measurement
torch._scaled_mm.side_effect = RuntimeError("no fp8\\non this device")
"""


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)


def json_lines(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.build, self.tools, self.calls, self.data, self.torch = (os.path.join(self.folder, x) for x in ("build", "tools", "calls", "data", "torch"))
        for program in PROGRAMS:
            self.fake(os.path.join(self.build, "bin", program))
        for tool in ("date", "timeout"):
            self.fake(os.path.join(self.tools, tool), tool)
        self.clock = os.path.join(self.folder, "clock")
        write(self.clock, "1000000\n")
        write(os.path.join(self.torch, "torch.py"), TORCH)
        for path in ("mnist/train-images-idx3-ubyte.gz", "cifar-10-batches-bin/data_batch_1.bin"):
            write(os.path.join(self.data, path), "")
        self.out = os.path.join(self.build, "gpu_check")
        os.makedirs(self.out)

    @staticmethod
    def fake(path, program="program.py"):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(os.path.join(HERE, "fakes", program), path)

    def run_script(self, script, *arguments, modes=None, **environment):
        variables = {k: v for k, v in os.environ.items() if not k.startswith("BITGRAD_GPU_CHECK")}
        variables.update(FAKE_CALLS=self.calls, FAKE_CLOCK=self.clock, FAKE_MODES=json.dumps(modes or {}), BITGRAD_DATA=self.data,
                         PYTHONDONTWRITEBYTECODE="1", PATH=self.tools + ":" + os.environ["PATH"])
        variables.update({k: str(v) for k, v in environment.items()})
        return subprocess.run([os.path.join(SCRIPTS, script), *arguments], env=variables, capture_output=True, text=True, cwd=self.folder, timeout=600)

    def check(self, *stages, **named):
        return self.run_script("gpu_check.sh", self.build, *stages, **named)

    def results(self):
        return {line["check"]: line["result"] for line in json_lines(os.path.join(self.out, "checks.jsonl"))}

    def called(self, program):
        with open(self.calls) as file:
            return [line.strip() for line in file if line.split()[0] == program]


class Check(Case):
    def test_all_stages_pass_and_the_table_is_whole(self):
        for tool in ("nvidia-smi", "compute-sanitizer"):
            self.fake(os.path.join(self.tools, tool))
        done = self.check(PYTHONPATH=self.torch)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        results = self.results()
        skipped = {name for name, result in results.items() if result == "skipped: not built (target gpu_tests)"}
        self.assertEqual(skipped, {f"layer_{layer}" for layer in ("tensor", "quant", "autograd", "ops", "optim")})
        self.assertEqual({result for name, result in results.items() if name not in skipped}, {"passed"})
        self.assertLessEqual({"version", "device", "clocks", "tests_fragments", "tests_train", "layer_nn", "bench_products", "bench_long", "bench_gx",
                              "bench_gw", "bench_kernels", "bench_steps", "bench_nets", "peers", "train_digits_mlp_w1a1", "mnist_mlp4096",
                              "accuracy_tfc", "cifar10_resnet20", "memcheck_train", "racecheck_unaligned", "table"}, set(results))
        self.assertNotIn("racecheck_train", results)  # clusters and TMA
        rows = json_lines(os.path.join(self.out, "table.jsonl"))
        self.assertEqual([r["verdict"] for r in rows if r["must"] is not None], ["aim"] * 21)
        self.assertIn("--fast-rows --shape 8192,4096,16384 --dtypes bint1,bint1 --json " + os.path.join(self.out, "bench_long.json"),
                      self.called("bench_gemm")[1])
        with tarfile.open(self.out + ".tgz") as archive:
            text = archive.extractfile("gpu_check/table.txt").read().decode()
        self.assertIn("bf16: 9163 TFLOP/s, gemm_bf16_cublaslt", text)
        self.assertIn("0 of 21 rows with a must are below it or missing", text)

    def test_failed_and_late_checks_are_counted_and_skipped_ones_are_not(self):
        done = self.check("device", "tests", "train", "bench", "table", BITGRAD_GPU_CHECK_SECONDS=2,
                          modes={"test_cuda_gpu [#pack_test]": "hang", "bench_gemm": 3, "bench_step": 77})
        self.assertEqual(done.returncode, 6, done.stdout)
        results = self.results()
        self.assertEqual(results["tests_pack"], "no end after 2 s")
        self.assertEqual(results["bench_products"], "failed with 3")
        self.assertEqual(results["bench_steps"], "skipped: why bench_step ended so")
        self.assertEqual(results["table"], "failed with 18")
        for name in ("tests_unaligned", "bench_kernels", "train_digits_mlp_w1a1"):
            self.assertEqual(results[name], "passed", name)
        self.assertIn('why bench_gemm "ended" so', done.stdout)

    def test_what_is_not_there_fails_the_first_stage_or_is_skipped_with_a_reason(self):
        self.assertEqual(self.check("device", FAKE_DEVICE="cuda    none: no driver").returncode, 1)
        self.assertEqual(self.results()["device"], "failed with 1")
        self.assertEqual(self.check("tests", modes={"test_cuda_gpu": 77}).returncode, 0)
        self.assertEqual(self.results()["tests_listed"], "skipped: why test_cuda_gpu ended so")
        write(os.path.join(self.torch, "torch.py"), "raise ImportError('hidden')")
        done = self.check("sanitizer", "peers", "tfc", "cnv", BITGRAD_DATA="/nonexistent", PYTHONPATH=self.torch)
        self.assertEqual(done.returncode, 0, done.stdout)
        results = self.results()
        if shutil.which("compute-sanitizer") is None:
            self.assertEqual(results["memcheck"], "skipped: no compute-sanitizer")
        self.assertEqual(results["peers"], "skipped: no torch: hidden")
        self.assertTrue(results["mnist_tfc"].startswith("skipped: no mnist/train-images"), results)
        self.assertTrue(results["cifar10_cnv"].startswith("skipped: no cifar-10-batches-bin/data_batch_1.bin"), results)

    def test_the_first_half_hour_finds_the_kernel_of_a_red_file_and_ends_in_time(self):
        for tool in ("compute-sanitizer", "ncu", "nsys", "nvidia-smi"):
            self.fake(os.path.join(self.tools, tool))
        done = self.check("first", PYTHONPATH=self.torch, modes={"test_cuda_gpu [#unaligned_test]~[slow]": 70})
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)  # the table has no accuracies
        results = self.results()
        self.assertEqual(results["tests_unaligned"], "failed with 70")
        self.assertEqual(results["memcheck_unaligned"], "passed")
        self.assertNotIn("memcheck_pack", results)
        for name in ("device", "launch_narrow_int8", "launch_turns_bint1", "tests_train", "form_wide_4096", "form_turns_16384", "stalls_int8",
                     "bench_products", "bench_floats", "bench_gx", "bench_kernels", "bench_steps_recorded", "peers", "bench_models", "generate",
                     "timeline", "peers_gpt", "peers_conv", "strict_digits_mlp_w1a1", "train_digits_mlp_w1a1"):
            self.assertEqual(results.get(name), "passed", name)
        self.assertEqual(results["clock"], "skipped: nvidia-smi names none")
        self.assertIn("--repeat 5", self.called("bench_gemm")[-1])
        with open(os.path.join(SCRIPTS, "gpu_check.sh"), encoding="utf-8") as file:
            script = file.read()
        self.assertLessEqual(sum(int(x) for x in re.findall(r"begin_step (\d+)", script)), 1800)
        self.assertNotEqual(self.check("first", modes={"bench_gemm": "hang"}).returncode, 0)
        self.assertEqual(self.results()["launch_narrow_int8"], "no end after 60 s")
        self.assertEqual(self.results()["launch_wide_int8"], "skipped: the time of this step is over")

    def test_the_first_half_hour_times_nothing_after_a_launch_that_failed(self):
        done = self.check("first", modes={"bench_gemm": 6})
        self.assertGreater(done.returncode, 0)
        results = self.results()
        self.assertEqual(results["timing"], "skipped: a first launch failed: times of wrong kernels say nothing")
        self.assertEqual(results["tests_train"], "passed")
        self.assertNotIn("bench_kernels", results)
        with tarfile.open(self.out + ".tgz") as archive:
            self.assertIn("gpu_check/launch_wide_int8.log", archive.getnames())

    def test_counters_that_the_machine_refuses_and_runs_of_other_bits_are_told(self):
        self.fake(os.path.join(self.tools, "ncu"))
        with open(os.path.join(self.build, "bin", "bitgrad")) as file:
            program = file.read()
        os.remove(os.path.join(self.build, "bin", "bitgrad"))
        write(os.path.join(self.build, "bin", "bitgrad"), program.replace('os.environ.get("FAKE_HASH", "5eed")', 'str("kind=cuda" in " ".join(arguments))'))
        os.chmod(os.path.join(self.build, "bin", "bitgrad"), 0o755)
        self.check("first", PYTHONPATH=self.torch, modes={"ncu": "==ERROR== ERR_NVGPUCTRPERM"})
        self.assertEqual(self.results()["stalls"], "skipped: no permission to read performance counters (ERR_NVGPUCTRPERM)")
        self.assertEqual(self.results()["strict_digits_mlp_w1a1"], "failed with 1")

    def test_small_runs_take_small_shapes_and_results_are_added_to(self):
        other = os.path.join(self.folder, "else", "where")
        for _ in range(2):
            self.assertEqual(self.check("device", "bench", "train", "tfc", BITGRAD_GPU_CHECK_SMALL=1, BITGRAD_GPU_CHECK_OUT=other).returncode, 0)
        self.assertEqual([r["check"] for r in json_lines(os.path.join(other, "checks.jsonl"))].count("device"), 2)
        self.assertIn("--shape 128,64,128", self.called("bench_gemm")[0])
        self.assertIn("train.stop=1 epochs", self.called("bitgrad")[-1])

    def test_cublaslt_beside_the_python3_of_the_path_is_found(self):
        library = os.path.join(self.folder, "env/lib/python3.11/site-packages/nvidia/cu13/lib/libcublasLt.so.13")
        write(library, "")
        python, show = os.path.join(self.tools, "python3"), os.path.join(self.build, "bin", "bitgrad")
        os.remove(show)
        write(python, f"#!/bin/sh\nexec {sys.executable} -c \"import sys; sys.prefix = '{self.folder}/env'; exec(sys.argv[1])\" \"$2\"\n")
        write(show, '#!/bin/sh\necho "$BITGRAD_CUBLASLT"\necho cuda:0\n')
        for path in (python, show):
            os.chmod(path, 0o755)
        self.check("device", BITGRAD_CUBLASLT="")
        with open(os.path.join(self.out, "device.log")) as file:
            self.assertIn(library, file.read())

    def test_wrong_arguments_end_with_2_before_anything_runs(self):
        done = self.check("device", "speed")
        self.assertEqual((done.returncode, os.path.exists(self.calls)), (2, False))
        self.assertIn("there is no stage speed; expected first", done.stderr)
        self.assertEqual(self.run_script("gpu_check.sh", "/nonexistent").returncode, 2)
        self.assertEqual(self.run_script("gpu_peers.py", "--shape", "1,2").returncode, 2)

    def test_nets_run_as_many_epochs_as_fit_and_their_rate_falls_as_far(self):
        def line(net, **fakes):
            done = self.check(net, **fakes)
            return done.returncode, json_lines(os.path.join(self.out, "train.jsonl"))[-1]

        code, tfc = line("tfc", FAKE_SECONDS=0.5, FAKE_BEST="92.87")
        self.assertEqual((code, tfc["epochs"], tfc["schedule"], tfc["published"]), (0, 1000, "schedule.every=40 epochs", 93.17))
        self.assertEqual(line("tfc", FAKE_BEST="92.86")[0], 1)
        self.assertEqual(self.results()["accuracy_tfc"], "failed with 1")
        lfc = line("lfc", FAKE_SECONDS=6, BITGRAD_GPU_CHECK_SECONDS=400)[1]
        self.assertEqual(lfc["epochs"], 108)  # 0.9 * 360 / 3
        self.assertEqual(lfc["schedule"], "schedule.every=4 epochs")
        mlp = line("mlp4096", FAKE_SECONDS=80)[1]
        self.assertAlmostEqual(float(mlp["schedule"].split("=")[1]) ** mlp["epochs"], 1e-4, delta=1e-8)
        resnet = line("resnet20", FAKE_SECONDS=0.5, FAKE_BEST="86.19")
        self.assertEqual((resnet[0], resnet[1]["epochs"], resnet[1]["schedule"]), (1, 400, "schedule.name=cosine"))
        self.assertIn("configs/cifar10_resnet20_w1a1.yaml", self.called("bitgrad")[-1])
        count = len(json_lines(os.path.join(self.out, "train.jsonl")))
        self.assertEqual(line("sfc", modes={"bitgrad": 6})[0], 1)
        self.assertEqual(len(json_lines(os.path.join(self.out, "train.jsonl"))), count)
        for name in ("mnist_tfc", "mnist_sfc", "mnist_lfc", "mnist_mlp4096", "cifar10_cnv", "cifar10_resnet20"):
            self.assertTrue(os.path.exists(os.path.join(ROOT, "configs", f"{name}_w1a1.yaml")), name)

    @unittest.skipIf(shutil.which("c++") is None, "no c++")
    def test_a_bundle_holds_the_libraries_that_its_programs_find(self):
        source, step, file = (os.path.join(self.build, x) for x in ("step.cpp", "bin/bench_step", "gpu_bundle.tar.gz"))
        write(source, 'extern "C" const char* zlibVersion(); int main() { return zlibVersion() == nullptr; }\n')
        os.remove(step)
        subprocess.run(["c++", source, "-o", step, "-lz"], check=True)
        done = self.check("bundle")
        self.assertEqual((done.returncode, os.path.exists(file)), (2, False))
        self.assertIn("libz.so.1", done.stdout)
        self.assertIn("do not look for these libraries beside themselves", done.stderr)
        subprocess.run(["c++", source, "-o", step, "-lz", "-Wl,--disable-new-dtags,-rpath,$ORIGIN/../lib"], check=True)
        self.assertEqual(self.check("bundle").returncode, 0)
        with tarfile.open(file) as bundle:
            names = {n.removeprefix("bitgrad_gpu/") for n in bundle.getnames()}
        self.assertLessEqual({f"build/bin/{p}" for p in PROGRAMS} | {"scripts/gpu_check.sh", "configs/mnist_tfc_w1a1.yaml"}, names)
        self.assertEqual({n for n in names if n.startswith("build/lib/")}, {"build/lib/libz.so.1"})


class Table(Case):
    def rows(self, **files):
        for name, value in files.items():
            text = "".join(json.dumps(line) + "\n" for line in value) if name in ("train", "peers") else json.dumps(value)
            write(os.path.join(self.out, name + (".jsonl" if name in ("train", "peers") else ".json")), text)
        done = self.run_script("gpu_table.py", self.out)
        self.assertEqual(done.stderr, "")
        return {r["what"]: r for r in json_lines(os.path.join(self.out, "table.jsonl"))}, done

    @staticmethod
    def product(a, b, us, kernel, shape=(8192, 4096, 4096), product="forward"):
        return dict(a=a, b=b, m=shape[0], n=shape[1], k=shape[2], product=product, kernel=kernel, us=us)

    def test_the_rival_is_the_fastest_bf16_product_of_a_library_and_ours_is_none_of_them(self):
        what = "s8 -> bf16 with scales, 8192x4096x4096"
        slow, library = self.product("int8", "int8", 9000.0, "bf16 x bf16: gemm_f32_chain512_simt"), self.product("int8", "int8", 90.0, "gemm_s8_s8_cublaslt")
        rows, done = self.rows(bench_products=dict(rows=[slow, library]))
        self.assertEqual(rows[what]["verdict"], "missing: no such product")
        self.assertIn("bf16: missing", done.stdout)
        ours = self.product("int8", "int8", 200.0, "gemm_s8_s8_wgmma")
        self.assertEqual(self.rows(bench_products=dict(rows=[slow, ours]))[0][what]["verdict"], "missing: no cuBLASLt, no torch")
        bf16 = self.product("int8", "int8", 300.0, "bf16 x bf16: gemm_bf16_cublaslt")
        rows, _ = self.rows(bench_products=dict(rows=[bf16, ours]))
        self.assertEqual((rows[what]["ratio"], rows[what]["verdict"]), (1.5, "must"))
        refused = dict(self.product("bf16", "bf16", 0, "torch.matmul compiled"), error="no")
        del refused["us"]
        rows, _ = self.rows(peers=[self.product("bf16", "bf16", 280.0, "torch.matmul"), refused])
        self.assertEqual((rows[what]["ratio"], rows[what]["verdict"]), (1.4, "below"))
        self.assertIn("torch.matmul", rows[what]["rival"])

    def test_the_lowest_share_of_a_family_counts(self):
        share = lambda what, x: dict(family="pack", what=what, dtype="int4", layout="frag64", gb_s=1000 * x, copy_share=x)
        rows, _ = self.rows(bench_kernels=dict(copy_gb_s=1000, rows=[share("a", 0.95), share("b", 0.69), share("c", 0.8)]))
        row = next(r for what, r in rows.items() if what.startswith("pack"))
        self.assertEqual((row["ratio"], row["verdict"]), (0.69, "below"))
        self.assertIn("690 GB/s b int4 frag64", row["ours"])

    def test_steps_without_torch_stand_beside_three_products(self):
        step = dict(layer="w8a8", shape="8192,4096,4096", ms=0.8, parts=dict(update=0.1, requantize=0.1))
        products = [self.product("int8", "int8", us, "bf16 x bf16: gemm_bf16_cublaslt", shape, kind)
                    for us, shape, kind in ((350.0, (8192, 4096, 4096), "forward"), (360.0, (8192, 4096, 4096), "gx"), (340.0, (4096, 4096, 8192), "gw"))]
        rows, _ = self.rows(bench_steps=dict(rows=[step]), bench_products=dict(rows=products))
        row = rows["step 8192,4096,4096, all s8: forward and backward"]
        self.assertAlmostEqual(row["ratio"], 1.05 / 0.6)
        self.assertEqual(row["verdict"], "must")
        adam = "step 8192,4096,4096, all s8: whole step with Adam"
        self.assertEqual(rows[adam]["verdict"], "missing: no torch")
        torch = dict(step="8192,4096,4096", kind="adam", variant="torch bf16 eager")
        rows, _ = self.rows(peers=[dict(torch, ms=1.6), dict(torch, variant="x", error="no")])
        self.assertAlmostEqual(rows[adam]["ratio"], 2.0)

    def test_the_last_run_of_a_net_counts_and_torn_files_are_missing_results(self):
        run = dict(train="tfc", epochs=10, published_epochs=1000, published=93.17)
        self.rows(train=[dict(run, best=50.0), dict(run, best=92.87)])
        for name in ("train.jsonl", "bench_products.json", "peers.jsonl"):
            with open(os.path.join(self.out, name), "a") as file:
                file.write('{"train": "sfc", "ep')
        rows, done = self.rows()
        self.assertEqual(rows["MNIST TFC: best accuracy, 10 of 1000 epochs"]["verdict"], "must")
        self.assertEqual(rows["MNIST SFC: best accuracy"]["verdict"], "missing: not trained")
        self.assertEqual(done.returncode, 20)

    def test_peers_are_lines_and_a_refusal_is_one_too(self):
        file = os.path.join(self.out, "peers.jsonl")
        done = self.run_script("gpu_peers.py", "--shape", "64,32,16", "--step", "8,16,32", "--json", file, PYTHONPATH=self.torch)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = json_lines(file)
        self.assertEqual([json.loads(x) for x in done.stdout.splitlines()], lines)
        by_name = {line.get("kernel") or line["kind"] + " " + line["variant"]: line for line in lines}
        self.assertEqual(by_name["torch.matmul"], dict(peer="torch 0.fake", device="fake device", a="bf16", b="bf16", m=64, n=32, k=16,
                                                       product="forward", kernel="torch.matmul", us=300000.0))
        self.assertEqual(by_name["torch._scaled_mm by row and column"]["error"], "RuntimeError: no fp8")
        self.assertEqual(by_name["adam torch bf16 compiled"]["ms"], 300.0)
        self.assertEqual(len(lines), 9)


if __name__ == "__main__":
    unittest.main()
