"""scripts/gpu_table.py and gpu_peers.py."""
import json
import os
import unittest

from support import HERE, Case, json_lines


class Table(Case):
    def write(self, name, value):
        with open(os.path.join(self.out, name), "w") as file:
            if name.endswith(".jsonl"):
                file.writelines(json.dumps(line) + "\n" for line in value)
            else:
                json.dump(value, file)

    def rows(self):
        done = self.run_script("gpu_table.py", self.out)
        self.assertEqual(done.stderr, "")
        return {r["what"]: r for r in json_lines(os.path.join(self.out, "table.jsonl"))}, done

    @staticmethod
    def product(a, b, us, kernel, shape=(8192, 4096, 4096), product="forward"):
        return dict(a=a, b=b, m=shape[0], n=shape[1], k=shape[2], product=product, kernel=kernel, us=us)

    def test_the_rival_is_the_fastest_bf16_product(self):
        bf16 = self.product("int8", "int8", 300.0, "bf16 x bf16: gemm_bf16_cublaslt")
        self.write("bench_products.json", dict(rows=[bf16, self.product("int8", "int8", 200.0, "gemm_s8_s8_wgmma")]))
        what = "s8 -> bf16 with scales, 8192x4096x4096"
        rows, _ = self.rows()
        self.assertEqual((rows[what]["ratio"], rows[what]["verdict"]), (1.5, "must"))
        torch = self.product("bf16", "bf16", 280.0, "torch.matmul")
        refused = dict(self.product("bf16", "bf16", 0, "torch.matmul compiled"), error="no")
        del refused["us"]
        self.write("peers.jsonl", [torch, refused])
        rows, _ = self.rows()
        self.assertEqual((rows[what]["ratio"], rows[what]["verdict"]), (1.4, "below"))
        self.assertIn("torch.matmul", rows[what]["rival"])

    def test_a_reference_is_no_rival_and_a_library_is_not_ours(self):
        slow = self.product("int8", "int8", 9000.0, "bf16 x bf16: gemm_f32_chain512_simt")
        self.write("bench_products.json", dict(rows=[slow, self.product("int8", "int8", 90.0, "gemm_s8_s8_cublaslt")]))
        rows, done = self.rows()
        self.assertEqual(rows["s8 -> bf16 with scales, 8192x4096x4096"]["verdict"], "missing: no such product")
        self.assertIn("bf16: missing", done.stdout)
        self.write("bench_products.json", dict(rows=[slow, self.product("int8", "int8", 90.0, "gemm_s8_s8_wgmma")]))
        rows, _ = self.rows()
        self.assertEqual(rows["s8 -> bf16 with scales, 8192x4096x4096"]["verdict"],
                         "missing: no cuBLASLt, no torch")

    def test_the_lowest_share_of_a_family_counts(self):
        share = lambda what, x: dict(family="pack", what=what, dtype="int4", layout="frag64", gb_s=1000 * x, copy_share=x)
        self.write("bench_kernels.json", dict(copy_gb_s=1000, rows=[share("a", 0.95), share("b", 0.69), share("c", 0.8)]))
        rows, _ = self.rows()
        row = next(r for what, r in rows.items() if what.startswith("pack"))
        self.assertEqual((row["ratio"], row["verdict"]), (0.69, "below"))
        self.assertIn("690 GB/s b int4 frag64", row["ours"])

    def test_steps_without_torch_stand_beside_three_products(self):
        step = dict(layer="w8a8", shape="8192,4096,4096", ms=0.8, parts=dict(update=0.1, requantize=0.1))
        self.write("bench_steps.json", dict(rows=[step]))
        products = [self.product("int8", "int8", us, "bf16 x bf16: gemm_bf16_cublaslt", shape, kind)
                    for us, shape, kind in ((350.0, (8192, 4096, 4096), "forward"), (360.0, (8192, 4096, 4096), "gx"),
                                            (340.0, (4096, 4096, 8192), "gw"))]
        self.write("bench_products.json", dict(rows=products))
        rows, _ = self.rows()
        row = rows["step 8192,4096,4096, all s8: forward and backward"]
        self.assertAlmostEqual(row["ratio"], 1.05 / 0.6)
        self.assertEqual(row["verdict"], "must")
        self.assertEqual(rows["step 8192,4096,4096, all s8: whole step with Adam"]["verdict"], "missing: no torch")
        self.write("peers.jsonl", [dict(step="8192,4096,4096", kind="adam", variant="torch bf16 eager", ms=1.6),
                                   dict(step="8192,4096,4096", kind="adam", variant="x", error="no")])
        rows, _ = self.rows()
        self.assertAlmostEqual(rows["step 8192,4096,4096, all s8: whole step with Adam"]["ratio"], 2.0)

    def test_the_last_run_of_a_net_counts(self):
        run = dict(train="tfc", epochs=10, published_epochs=1000, published=93.17, bar=92.87)
        self.write("train.jsonl", [dict(run, best=50.0), dict(run, best=92.9)])
        rows, _ = self.rows()
        self.assertEqual(rows["MNIST TFC: best accuracy, 10 of 1000 epochs"]["verdict"], "must")

    def test_a_torn_line_leaves_the_others(self):
        run = dict(train="tfc", epochs=10, published_epochs=1000, published=93.17, bar=92.87, best=92.9)
        for name, line in (("train.jsonl", run), ("peers.jsonl", self.product("bf16", "bf16", 280.0, "torch.matmul"))):
            with open(os.path.join(self.out, name), "w") as file:
                file.write('{"torn": \n' + json.dumps(line) + '\n{"train": "sfc", "ep')
        rows, done = self.rows()
        self.assertEqual(rows["MNIST TFC: best accuracy, 10 of 1000 epochs"]["verdict"], "must")
        self.assertEqual(rows["MNIST SFC: best accuracy"]["verdict"], "missing: not trained")
        self.assertIn("torch.matmul", done.stdout)

    def test_files_that_cannot_be_read_are_missing_results(self):
        for name in ("bench_products.json", "peers.jsonl"):
            with open(os.path.join(self.out, name), "w") as file:
                file.write("{torn")
        _, done = self.rows()
        self.assertEqual(done.returncode, 21)


class Peers(Case):
    def test_products_and_steps_are_lines_and_a_refusal_is_one_too(self):
        file = os.path.join(self.out, "peers.jsonl")
        done = self.run_script("gpu_peers.py", "--shape", "64,32,16", "--step", "8,16,32", "--json", file,
                               PYTHONPATH=os.path.join(HERE, "fake_torch"))
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = json_lines(file)
        self.assertEqual([json.loads(x) for x in done.stdout.splitlines()], lines)
        by_name = {line.get("kernel") or line["kind"] + " " + line["variant"]: line for line in lines}
        self.assertEqual(by_name["torch.matmul"]["us"], 2000)
        self.assertEqual((by_name["torch.matmul"]["m"], by_name["torch.matmul"]["a"]), (64, "bf16"))
        self.assertEqual(by_name["torch._scaled_mm by row and column"]["error"], "RuntimeError: no fp8")
        self.assertEqual(by_name["products torch bf16 eager"]["ms"], 6)
        self.assertEqual(by_name["adam torch bf16 compiled"]["ms"], 8)
        self.assertEqual(len(lines), 9)

    def test_without_torch_there_is_a_reason(self):
        hide = os.path.join(self.folder, "hide")
        os.makedirs(hide)
        with open(os.path.join(hide, "torch.py"), "w") as file:
            file.write("raise ImportError('hidden')\n")
        done = self.run_script("gpu_peers.py", "--shape", "1,2,3", PYTHONPATH=hide)
        self.assertEqual((done.returncode, done.stdout), (77, "no torch: hidden\n"))

    def test_wrong_shapes_are_refused(self):
        done = self.run_script("gpu_peers.py", "--shape", "1,2")
        self.assertEqual(done.returncode, 2)
        self.assertIn("got '1,2', expected three whole numbers", done.stderr)


if __name__ == "__main__":
    unittest.main()
