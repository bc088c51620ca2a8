"""What an installed Python package of bitgrad does, without NumPy, when calls are interrupted, closed or ended from outside:
signals are never lost, handles may be closed at any time, the interpreter ends; and configurations as dicts.

    python_calls.py FOLDER
"""

import array
import gc
import logging
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import bitgrad
from bitgrad import _calls, _native

folder = pathlib.Path(sys.argv[1])
part = sys.argv[2] if len(sys.argv) > 2 else ""
values = array.array("f", [(7 * i) % 11 for i in range(200 * 16)])
x, y = memoryview(values).cast("B").cast("f", [200, 16]), [i % 4 for i in range(200)]
config = {
    "version": 1,
    "data": {"train": {"format": "memory"}},
    "model": {"layers": [{"linear": {"out": 8}}, {"relu": {}}, {"linear": {"out": 4}}]},
    "batch": {"global": 20},
    "optim": {"name": "adam", "lr": 0.005, "clip_norm": "none"},
    "schedule": {"name": "cosine", "warmup": "10 steps"},
    "train": {"stop": "20 epochs"},
}
endless = {"train.stop": "1000000 epochs"}


def error_of(call, kind=bitgrad.UsageError):
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError("no error")


def until(condition):
    while not condition():
        time.sleep(0.0005)


if part == "daemon":
    trainer = bitgrad.Trainer(config, x, y, overrides=endless)
    steps = []
    threading.Thread(target=lambda: trainer.run(None, progress=steps.append), daemon=True).start()
    until(lambda: steps)
    sys.exit(0)
if part == "stuck":
    trainer = bitgrad.Trainer(config, x, y, overrides=endless)
    inside = threading.Event()

    def wait(event):
        inside.set()
        time.sleep(3600)

    threading.Thread(target=lambda: trainer.run(None, progress=wait), daemon=True).start()
    inside.wait()
    _calls._GRACE = 0.0
    sys.exit(0)

# Ctrl-C, and other handlers that raise, while the library is at work: the run ends, and resumes to the uninterrupted run's state.
whole = bitgrad.Trainer(config, x, y).run(None, progress=False)


class Alarm(Exception):
    pass


def alarm(number, frame):
    raise Alarm


signal.signal(signal.SIGUSR1, alarm)
signal.signal(signal.SIGINT, signal.default_int_handler)
gc.set_threshold(3)  # often: what a handler raises in a __del__ of a run before must not be lost either
for i in range(48):
    number, kind = ((signal.SIGINT, KeyboardInterrupt), (signal.SIGUSR1, Alarm))[i % 2]
    trainer = bitgrad.Trainer(config, x, y, overrides=endless)

    def fire():
        until(lambda: _calls._at_work)
        for _ in range(i):
            time.sleep(0)
        os.kill(os.getpid(), number)

    threading.Thread(target=fire).start()
    error_of(lambda: trainer.run(None, progress=(False, lambda event: None, "terminal")[i % 3]), kind)
    assert signal.getsignal(number) in (alarm, signal.default_int_handler)
gc.set_threshold(700, 10, 10)


def interrupt_at(step):
    def tell(event):
        if event.step == step:
            os.kill(os.getpid(), signal.SIGINT)

    return tell


error_of(lambda: bitgrad.Trainer(config, x, y).run(folder / "cut", progress=interrupt_at(37)), KeyboardInterrupt)
resumed = bitgrad.Trainer(config, x, y).run(folder / "cut", progress=False, resume=True)
assert resumed.state_hash == whole.state_hash and resumed.steps == whole.steps
assert "no folder" in error_of(lambda: bitgrad.Trainer(config, x, y).run(None, resume=True))


class Raising(logging.Handler):
    """A signal within a line of the log."""

    def emit(self, record):
        os.kill(os.getpid(), signal.SIGINT)


handler = Raising()
logging.getLogger("bitgrad").addHandler(handler)
logging.getLogger("bitgrad").setLevel(logging.DEBUG)
error_of(lambda: bitgrad.Trainer(config, x, y, overrides=endless).run(None, progress=False), KeyboardInterrupt)
logging.getLogger("bitgrad").removeHandler(handler)

# Events, metrics and the rate.
events = []
trainer = bitgrad.Trainer(config, x, y, x, y)


def lower(event):
    events.append(event)
    if event.step == 50:
        trainer.set_learning_rate(0.001)


result = trainer.run(None, progress=lower)
assert [e.split for e in events if e.kind == "evaluation"] == ["test"] * 20
assert events[-1].metrics["accuracy"] == result.evaluation.accuracy and result.evaluation.split == "test"
assert events[-1].metrics["loss"] == result.evaluation.loss and trainer.evaluate() == result.evaluation
rates = {e.step: e.learning_rate for e in events if e.kind == "step"}
assert rates[50] != rates[49] and abs(rates[51] - 0.001) < 1e-9 and rates[51] == rates[200]
assert "finite" in error_of(lambda: trainer.set_learning_rate(float("nan")))

# Closed while used.
trainer.save(folder / "m.safetensors")
for _ in range(10):
    model = bitgrad.open(folder / "m.safetensors")
    started = threading.Barrier(3)

    def predict():
        started.wait()
        try:
            for _ in range(50):
                model.predict(x)
        except bitgrad.UsageError as error:
            assert "closed" in str(error), error

    threads = [threading.Thread(target=predict) for _ in range(2)]
    for thread in threads:
        thread.start()
    started.wait()
    model.close()
    for thread in threads:
        thread.join()
trainer = bitgrad.Trainer(config, x, y, overrides=endless)
results, steps = [], []
thread = threading.Thread(target=lambda: results.append(trainer.run(None, progress=steps.append)))
thread.start()
until(lambda: steps)
assert "another thread is using it" in error_of(trainer.evaluate)
trainer.close()
thread.join()
assert results[0].stopped and "closed" in error_of(trainer.evaluate)
trainer = bitgrad.Trainer(config, x, y, overrides=endless)
assert trainer.run(None, progress=lambda event: trainer.close()).stopped
model = bitgrad.open(folder / "m.safetensors")
assert "of another kind" in error_of(lambda: _native.call("trainer_stop", model._handle))
for name in ("daemon", "stuck"):
    for _ in range(3):
        ended = subprocess.run([sys.executable, __file__, str(folder), name], capture_output=True, text=True)
        assert ended.returncode == 0, (name, ended)

# Out again.
trainer = bitgrad.Trainer(config, x, y)
trainer.save(folder / "out.safetensors")
out = bitgrad.open(folder / "out.safetensors")
out.export(folder / "out.onnx")
out.save(folder / "small.safetensors")
assert (folder / "out.onnx").stat().st_size > 0
assert bitgrad.open(folder / "small.safetensors").predict(x).tolist() == out.predict(x).tolist()

# Doors.
assert "empty list" in error_of(lambda: bitgrad.Trainer(config, [], []))
assert "NUL byte at 4" in error_of(lambda: bitgrad.open(b"runs\0x"))
assert "got bytes, expected YAML text" in error_of(lambda: bitgrad.Trainer(b"version: 1", x, y))
assert "got NoneType, expected YAML text" in error_of(lambda: bitgrad.Trainer(None, x, y))
assert "got object" in error_of(lambda: bitgrad.Trainer({"optim": object()}, x, y))
assert "overrides: got a text" in error_of(lambda: bitgrad.Trainer(config, x, y, overrides="a=b"))
assert "expected a text or a path" in error_of(lambda: bitgrad.open(3))
assert "numpy" not in sys.modules
