"""scripts/check_style.py: what it takes for changed, and which subjects it refuses, in repositories made for it."""
import importlib.util
import os
import pathlib
import subprocess
import tempfile
import unittest
from unittest import mock

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/check_style.py"


class CheckStyle(unittest.TestCase):
    def setUp(self):
        spec = importlib.util.spec_from_file_location("check_style", SCRIPT)
        self.style = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.style)
        self.said = []
        self.style.say = self.said.append
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = self.style.ROOT = pathlib.Path(folder.name)
        self.git("init", "-q", "-b", "main")
        environment = {key: value for key, value in os.environ.items() if key != "BITGRAD_BASE"}
        patched = mock.patch.dict(os.environ, environment, clear=True)
        patched.start()
        self.addCleanup(patched.stop)

    def git(self, *arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        return subprocess.run(["git", *identity, *arguments], cwd=self.root, check=True, capture_output=True,
                              text=True).stdout.strip()

    def commit(self, subject, **files):
        for name, text in files.items():
            (self.root / name.replace("_", ".")).write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", subject)
        return self.git("rev-parse", "HEAD")

    def test_changed_lines_of_the_most_recent_files_come_first(self):
        base = self.commit("one", a_cpp="1\n2\n3\n", b_cpp="1\n", c_h="1\n", d_inc="1\n", e_cpp="1\n")
        self.commit("two", a_cpp="1\nnew\n3\nnew\n", b_cpp="1\nold\n", d_inc="2\n")
        self.commit("three", b_cpp="1\nnew\n", e_cpp="")
        (self.root / "c.h").write_text("new\n1\n")
        self.assertEqual(list(self.style.changed_lines(base).items()),
                         [("c.h", [[1, 1]]), ("b.cpp", [[2, 2]]), ("a.cpp", [[2, 2], [4, 4]])])

    def test_the_base_is_given_or_the_fork_or_a_few_commits_ago(self):
        commits = [self.commit(str(i)) for i in range(12)]
        self.assertEqual(self.style.base_commit()[0], commits[-1 - self.style.COMMITS])
        self.git("update-ref", "refs/remotes/origin/main", commits[7])
        self.assertEqual(self.style.base_commit()[0], commits[7])
        with mock.patch.dict(os.environ, BITGRAD_BASE=commits[2]):
            self.assertEqual(self.style.base_commit(), (commits[2], f"BITGRAD_BASE={commits[2]}"))

    def test_long_subjects_are_refused_from_the_script_on(self):
        base = self.commit("a" * 100)
        self.commit("b" * 100)
        (self.root / "scripts").mkdir()
        (self.root / "scripts/check_style.py").write_text("")
        self.commit("c" * 100)
        self.commit("d" * 72)
        self.assertTrue(self.style.check_subjects(base))
        self.commit("e" * 73)
        self.assertFalse(self.style.check_subjects(base))
        self.assertIn("e" * 73, self.said[-2])
        self.assertEqual(self.said[-1], "subjects: 2 commits, 1 to mend")


if __name__ == "__main__":
    unittest.main()
