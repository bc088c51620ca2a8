"""scripts/gpu_check.sh, gpu_train.sh and gpu_bundle.sh."""
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import unittest

from support import HERE, PROGRAMS, ROOT, SCRIPTS, TOOLS, Case, fake, json_lines


class Check(Case):
    def test_all_stages_pass_and_the_table_is_whole(self):
        for tool in TOOLS:
            fake(os.path.join(self.tools, tool))
        done = self.check(PYTHONPATH=os.path.join(HERE, "fake_torch"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        results = self.results()
        for name in ("version", "device", "clocks", "tests_fragments", "tests_train", "bench_products", "bench_long", "bench_gx", "bench_gw",
                     "bench_bandwidth", "bench_steps", "bench_nets", "peers", "train_digits_mlp_w1a1",
                     "train_digits_mlp_qat_phases", "mnist_tfc", "mnist_sfc", "mnist_lfc", "mnist_mlp4096",
                     "cifar10_cnv", "cifar10_resnet20", "memcheck_gemm_wgmma", "racecheck_reduce", "table"):
            self.assertEqual(results.get(name), "passed", name)
            self.assertIn(name, done.stdout)
        rows = json_lines(os.path.join(self.out, "table.jsonl"))
        self.assertEqual([r["verdict"] for r in rows if r["must"] is not None], ["aim"] * 21)
        self.assertIn("bench_gemm --device cuda --fast-rows --shape 8192,4096,16384 --dtypes bint1,bint1 --json "
                      + os.path.join(self.out, "bench_long.json"), self.called("bench_gemm"))
        self.assertNotIn("racecheck_gemm_wgmma", results)  # clusters and TMA
        with tarfile.open(self.out + ".tgz") as archive:
            self.assertIn("gpu_check/table.txt", archive.getnames())
        text = self.read("table.txt")
        self.assertIn("bf16: 9163 TFLOP/s, gemm_bf16_cublaslt", text)
        self.assertIn("0 of 21 rows with a must are below it or missing", text)

    def test_failed_and_late_checks_are_counted_and_skipped_ones_are_not(self):
        done = self.check("device", "tests", "train", "bench", BITGRAD_GPU_CHECK_SECONDS=2,
                          modes={"test_cuda_gpu -# [#pack_test]": "hang", "test_cuda_gpu [#pack_test]": "hang", "bench_gemm": 3,
                                 "bench_step": 77})
        self.assertEqual(done.returncode, 5, done.stdout)
        results = self.results()
        self.assertEqual(results["tests_pack"], "no end after 2 s")
        self.assertEqual(results["tests_reduce"], "passed")
        self.assertEqual(results["bench_products"], "failed with 3")
        self.assertEqual(results["bench_steps"], "skipped: why bench_step ended so")
        self.assertEqual(results["bench_bandwidth"], "passed")
        self.assertEqual(results["train_digits_mlp_w1a1"], "passed")
        self.assertIn('why bench_gemm "ended" so', done.stdout)
        self.assertNotIn("clocks", results)

    def test_a_machine_without_a_gpu_fails_the_first_stage(self):
        done = self.check("device", FAKE_DEVICE="cuda    none: no driver")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.results()["device"], "failed with 1")
        self.assertIn("none: no driver", done.stdout)

    def test_what_is_not_there_is_skipped_with_a_reason(self):
        done = self.check("sanitizer", "peers", "tfc", BITGRAD_DATA="/nonexistent")
        self.assertEqual(done.returncode, 0, done.stdout)
        results = self.results()
        if shutil.which("compute-sanitizer") is None:
            self.assertEqual(results["sanitizer"], "skipped: no compute-sanitizer")
        self.assertTrue(results["peers"].startswith("skipped: ") or results["peers"] == "passed")
        self.assertTrue(results["mnist_tfc"].startswith("skipped: no mnist/train-images"), results)

    def test_the_table_fails_by_the_number_of_rows_that_miss_their_must(self):
        done = self.check("table")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.results()["table"], "failed with 21")
        self.assertIn("21 of 21 rows with a must are below it or missing", done.stdout)

    def test_small_runs_take_small_shapes(self):
        done = self.check("bench", "train", "tfc", BITGRAD_GPU_CHECK_SMALL=1)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("--shape 128,64,128", self.called("bench_gemm")[0])
        self.assertIn("train.stop=1 epochs", self.called("bitgrad")[0])

    def test_results_go_where_they_are_asked_to_go_and_are_added_to(self):
        other = os.path.join(self.folder, "else", "where")
        for _ in range(2):
            self.assertEqual(self.check("device", BITGRAD_GPU_CHECK_OUT=other).returncode, 0)
        self.assertEqual([r["check"] for r in json_lines(os.path.join(other, "checks.jsonl"))].count("device"), 2)

    def test_the_first_half_hour_ends_whole_and_finds_the_kernel_of_a_red_file(self):
        for tool in TOOLS:
            fake(os.path.join(self.tools, tool))
        done = self.check("first", PYTHONPATH=os.path.join(HERE, "fake_torch"),
                          modes={"test_cuda_gpu [#reduce_test]~[slow]": 70})
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        results = self.results()
        self.assertEqual(results["tests_reduce"], "failed with 70")
        self.assertEqual(results["memcheck_reduce"], "passed")
        self.assertNotIn("memcheck_pack", results)
        for name in ("device", "tests_fragments", "tests_example", "first_products", "first_long", "stalls_int8", "stalls_bint1",
                     "first_bandwidth", "first_steps", "first_recorded", "first_peers", "bench_products"):
            self.assertEqual(results.get(name), "passed", name)
        self.assertIn("bf16: 9163 TFLOP/s", self.read("table.txt"))
        self.assertIn("--kernel wgmma --shape 8192,4096,4096 --dtypes int8,int8 --dtypes bint1,bint1 --repeat 5",
                      self.called("bench_gemm")[0])

    def test_a_step_of_the_first_half_hour_ends_with_its_time(self):
        with open(os.path.join(SCRIPTS, "gpu_first.sh"), encoding="utf-8") as file:
            script = file.read()
        limits = [int(x) for x in re.findall(r"begin_step (\d+)", script)]
        self.assertLessEqual(sum(limits), 1800)
        done = self.check("first", modes={"bench_gemm": "hang"})
        self.assertNotEqual(done.returncode, 0)
        results = self.results()
        self.assertEqual(results["first_products"], "no end after 240 s")
        self.assertEqual(results["first_long"], "skipped: the time of this step is over")
        self.assertTrue(os.path.exists(self.out + ".tgz"))

    def test_every_file_of_tests_for_a_gpu_is_run(self):
        cuda = os.path.join(ROOT, "tests", "cuda")
        def text(*path):
            with open(os.path.join(*path), encoding="utf-8") as file:
                return file.read()
        emulated = re.compile(r"emulation/cuda/|cuda/device/builtins\.h|BITGRAD_FAKE_CUBLASLT")
        files = {f.removesuffix("_test.cpp") for f in os.listdir(cuda)
                 if f.endswith("_test.cpp") and not emulated.search(text(cuda, f))}
        files |= {f.removesuffix("_test.cpp") for f in os.listdir(os.path.join(cuda, "gpu")) if f.endswith("_test.cpp")}
        listed = re.search(r'test_files="([^"]*)"', text(SCRIPTS, "gpu_first.sh")).group(1).split()
        self.assertEqual(len(listed), len(set(listed)))
        self.assertEqual(set(listed), files)

    def test_cublaslt_beside_the_python3_of_the_path_is_found(self):
        library = os.path.join(self.folder, "env/lib/python3.11/site-packages/nvidia/cu13/lib/libcublasLt.so.13")
        os.makedirs(os.path.dirname(library))
        open(library, "w").close()
        python = os.path.join(self.tools, "python3")
        with open(python, "w") as file:
            file.write(f"#!/bin/sh\nexec {sys.executable} -c \"import sys; sys.prefix = '{self.folder}/env'; exec(sys.argv[1])\" \"$2\"\n")
        os.chmod(python, 0o755)
        show = os.path.join(self.build, "bin", "bitgrad")
        os.remove(show)
        with open(show, "w") as file:
            file.write('#!/bin/sh\necho "$BITGRAD_CUBLASLT"\necho cuda:0\n')
        os.chmod(show, 0o755)
        self.check("device", BITGRAD_CUBLASLT="")
        self.assertIn(library, self.read("device.log"))

    def test_wrong_arguments_end_with_2_before_anything_runs(self):
        done = self.check("device", "speed")
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no stage speed; expected first device tests", done.stderr)
        done = self.run_script("gpu_check.sh", "no_such_folder")
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no folder no_such_folder", done.stderr)
        self.assertFalse(os.path.exists(self.calls))


class Train(Case):
    def train(self, net, seconds, **named):
        return self.run_script("gpu_train.sh", self.build, net, str(seconds), os.path.join(self.out, "train.jsonl"),
                               **named)

    def line(self):
        return json_lines(os.path.join(self.out, "train.jsonl"))[-1]

    def test_the_published_schedule_where_it_fits(self):
        self.assertEqual(self.train("tfc", 400, FAKE_SECONDS=0.5).returncode, 0)
        self.assertEqual((self.line()["epochs"], self.line()["schedule"]), (1000, "schedule.every=40 epochs"))
        probe, run = self.called("bitgrad")
        self.assertIn("train.stop=2 epochs", probe)
        self.assertIn("train.stop=1000 epochs", run)
        self.assertIn("device.kind=cuda", run)

    def test_as_many_epochs_as_fit_and_a_rate_that_falls_as_far(self):
        self.assertEqual(self.train("lfc", 400, FAKE_SECONDS=6).returncode, 0)
        self.assertEqual(self.line()["epochs"], 120)  # 0.9 * 400 / 3
        self.assertEqual(self.line()["schedule"], "schedule.every=4 epochs")
        self.assertEqual(self.train("mlp4096", 400, FAKE_SECONDS=80).returncode, 0)
        epochs, gamma = self.line()["epochs"], float(self.line()["schedule"].split("=")[1])
        self.assertEqual(epochs, 9)
        self.assertAlmostEqual(gamma ** epochs, 1e-4, delta=1e-8)
        self.assertEqual(self.train("sfc", 400, FAKE_SECONDS=100000).returncode, 0)
        self.assertEqual((self.line()["epochs"], self.line()["schedule"]), (1, "schedule.every=1 epochs"))

    def test_the_bar_is_the_published_accuracy_less_three_tenths(self):
        for best, code, met in (("92.87", 0, True), ("92.86", 1, False)):
            self.assertEqual(self.train("tfc", 100, FAKE_BEST=best).returncode, code)
            self.assertEqual((self.line()["bar"], self.line()["met"]), (92.87, met))

    def test_nets_of_cifar10_read_its_files_and_have_their_own_schedules(self):
        done = self.train("cnv", 400, BITGRAD_DATA="/nonexistent")
        self.assertEqual(done.returncode, 77)
        self.assertIn("no cifar-10-batches-bin/data_batch_1.bin", done.stdout)
        self.assertEqual(self.train("cnv", 400, FAKE_SECONDS=0.5, FAKE_BEST="83.92").returncode, 0)
        self.assertEqual((self.line()["epochs"], self.line()["schedule"]), (1000, "schedule.every=40 epochs"))
        self.assertIn("configs/cifar10_cnv_w1a1.yaml", self.called("bitgrad")[-1])
        self.assertEqual(self.train("resnet20", 400, FAKE_SECONDS=0.5, FAKE_BEST="86.19").returncode, 1)
        self.assertEqual((self.line()["epochs"], self.line()["schedule"]), (400, "schedule.name=cosine"))
        self.assertIn("train.stop=400 epochs", self.called("bitgrad")[-1])

    def test_errors_of_a_run_and_wrong_nets_are_no_results(self):
        self.assertEqual(self.train("tfc", 100, modes={"bitgrad": 6}).returncode, 6)
        done = self.train("vgg", 100)
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no net vgg; expected tfc", done.stderr)
        self.assertFalse(os.path.exists(os.path.join(self.out, "train.jsonl")))

    def test_every_net_has_a_configuration(self):
        for net in ("tfc", "sfc", "lfc", "mlp4096"):
            self.assertTrue(os.path.exists(os.path.join(ROOT, "configs", f"mnist_{net}_w1a1.yaml")), net)
        for net in ("cnv", "resnet20"):
            self.assertTrue(os.path.exists(os.path.join(ROOT, "configs", f"cifar10_{net}_w1a1.yaml")), net)


class Bundle(Case):
    # bench_step as a program that needs zlib, and looks for it where `rpath` says.
    def real_program(self, rpath):
        step = os.path.join(self.build, "bin", "bench_step")
        os.remove(step)
        source = os.path.join(self.folder, "step.cpp")
        with open(source, "w") as file:
            file.write("extern \"C\" const char* zlibVersion(); int main() { return zlibVersion() == nullptr; }\n")
        subprocess.run(["c++", source, "-o", step, "-lz", *rpath], check=True)
        return step

    def setUp(self):
        super().setUp()
        if shutil.which("c++") is None:
            self.skipTest("no c++")
        self.ours = ["-Wl,--disable-new-dtags,-rpath,$ORIGIN/../lib"]

    def test_programs_that_do_not_look_beside_themselves_are_refused(self):
        self.real_program([])
        done = self.run_script("gpu_bundle.sh", self.build)
        self.assertEqual(done.returncode, 2)
        self.assertIn("do not look for these beside themselves: ", done.stderr)
        self.assertIn("libz.so.1", done.stderr)

    def test_a_large_archive_is_refused_and_nothing_is_left(self):
        self.real_program(self.ours)
        with open(os.path.join(self.build, "bin", "bench_gemm.new"), "wb") as file:
            file.write(os.urandom(3 << 20))
        os.chmod(file.name, 0o755)
        os.replace(file.name, os.path.join(self.build, "bin", "bench_gemm"))
        file = os.path.join(self.folder, "bundle.tar.gz")
        done = self.run_script("gpu_bundle.sh", self.build, file, BITGRAD_GPU_BUNDLE_MIB=2)
        self.assertEqual(done.returncode, 2)
        self.assertIn("MiB, expected less than 2. Hint: cmake --preset gpu", done.stderr)
        self.assertFalse(os.path.exists(file))
        self.assertEqual(self.run_script("gpu_bundle.sh", self.build, file, BITGRAD_GPU_BUNDLE_MIB=9).returncode, 0)

    def test_mnist_comes_where_it_is_asked_for(self):
        self.real_program(self.ours)
        file = os.path.join(self.folder, "bundle.tar.gz")
        self.assertEqual(self.run_script("gpu_bundle.sh", "--data", self.build, file).returncode, 0)
        with tarfile.open(file) as bundle:
            self.assertIn("bitgrad_gpu/data/mnist/train-images-idx3-ubyte.gz", bundle.getnames())

    def test_programs_come_with_their_libraries_but_the_c_library(self):
        step = self.real_program(self.ours)
        file = os.path.join(self.folder, "bundle.tar.gz")
        done = self.run_script("gpu_bundle.sh", self.build, file)
        self.assertEqual((done.returncode, done.stdout), (0, file + "\n"), done.stderr)
        with tarfile.open(file) as bundle:
            names = {n.removeprefix("bitgrad_gpu/") for n in bundle.getnames()}
        for name in [f"build/bin/{p}" for p in PROGRAMS] + ["scripts/gpu_check.sh", "configs/mnist_tfc_w1a1.yaml"]:
            self.assertIn(name, names)
        linked = {os.path.basename(line.split()[2]) for line in
                  subprocess.run(["ldd", step], capture_output=True, text=True).stdout.splitlines() if " => /" in line}
        carried = {os.path.basename(n) for n in names if n.startswith("build/lib/")}
        self.assertEqual(carried, {n for n in linked if not n.startswith(("libc.", "libm.", "libdl.", "libpthread."))})

    def test_a_build_without_cuda_is_refused(self):
        os.remove(os.path.join(self.build, "bin", "tests", "test_cuda_gpu"))
        done = self.run_script("gpu_bundle.sh", self.build)
        self.assertEqual(done.returncode, 2)
        self.assertIn("tests/test_cuda_gpu. Build with CUDA first", done.stderr)


if __name__ == "__main__":
    unittest.main()
