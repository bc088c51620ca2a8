"""scripts/bench_ranks.sh where it cannot run, and the table of scripts/bench_ranks.py."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts")


def run(*line, **environment):
    return subprocess.run(line, capture_output=True, text=True, env=dict(os.environ, **environment))


class BenchRanks(unittest.TestCase):
    def test_skips_without_root_or_programs(self):
        with tempfile.TemporaryDirectory() as folder:
            for tool in ("bash", "dirname", "id"):
                os.symlink(shutil.which(tool), os.path.join(folder, tool))
            result = run(os.path.join(folder, "bash"), os.path.join(SCRIPTS, "bench_ranks.sh"), PATH=folder)
        self.assertEqual(result.returncode, 77, result.stderr)
        self.assertRegex(result.stdout, "^skipped: (needs root for network namespaces|ip is not installed)\n$")

    def test_refuses_unknown_options(self):
        for words in (["--speed", "1"], ["--turns"]):
            result = run("bash", os.path.join(SCRIPTS, "bench_ranks.sh"), *words)
            self.assertEqual(result.returncode, 2)
            self.assertIn("expected", result.stderr)

    def test_table_has_medians_and_ratios_of_the_same_turn(self):
        rows = []
        for ours, rival in ((2.0, 4.0), (3.0, 2.0), (1.0, 4.0)):
            for who, rest in (("int4 exact", ours), ("ddp", rival)):
                rows.append(dict(link="1gbit", who=who, step_s=rest + 1, forward_backward_s=1.0, rest_s=rest,
                                 interface_bytes_a_weight=4.01))
        rows[0]["bytes_a_weight"] = 4.0
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f:
            f.write("".join(json.dumps(row) + "\n" for row in rows))
            f.flush()
            result = run(sys.executable, os.path.join(SCRIPTS, "bench_ranks.py"), "table", f.name)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.splitlines()[2:], [
            "| 1gbit | int4 exact | 3 | 3.000 | 1.000 | 2.000 | 0.60 (0.40 to 1.33) | 0.50 (0.25 to 1.50) | 4.000 | 4.010 |",
            "| 1gbit | ddp | 3 | 5.000 | 1.000 | 4.000 | 1 | 1 | - | 4.010 |"])


if __name__ == "__main__":
    unittest.main()
