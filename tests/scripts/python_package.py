"""What an installed Python package of bitgrad does: NumPy and PyTorch arrays in and out, a run with the state of the
program's own, errors, no leaks. Prints the state hash of the run.

    python_package.py CONFIG X.npy Y.npy FOLDER
"""

import pathlib
import sys

import bitgrad

config, x_file, y_file, folder = sys.argv[1:]
folder = pathlib.Path(folder)
assert "numpy" not in sys.modules, "the package itself needs no NumPy"
assert pathlib.Path(bitgrad.__file__).with_name("py.typed").exists()

try:
    import numpy as np
except ImportError:
    sys.exit(77)


def error_of(call, kind=bitgrad.UsageError):
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError("no error")


def resident_bytes():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096


x, y = np.load(x_file), np.load(y_file)
events = []
trainer = bitgrad.Trainer(pathlib.Path(config), x, y, x, y, overrides={"train.stop": "1 epochs"})
result = trainer.run(folder / "run", progress=events.append)
assert result.evaluation.samples == len(x) and not result.stopped and result.epochs == 1
assert [e.kind for e in events].count("step") == result.steps and events[-1].kind == "evaluation"
assert trainer.evaluate() == result.evaluation

model = bitgrad.open(folder / "run")
assert model.input.shape == (784,) and model.output.task == "classes" and model.output.shape == (10,)
scores = model.predict(x)  # bytes, normalized as in training
assert isinstance(scores, np.ndarray) and scores.shape == (len(x), 10) and scores.dtype == np.float32
hits = 100 * float(np.mean(np.argmax(scores, axis=1) == y))
assert abs(hits - result.evaluation.accuracy) < 1e-9, (hits, result.evaluation)
values = np.float32(2) * (x.astype(np.float32) / np.float32(255)) + np.float32(-1)
for same in (values, values.astype(np.float64), np.asfortranarray(values), values.reshape(len(x), 784)):
    assert np.array_equal(model.predict(same), scores)
values.flags.writeable = False
assert np.array_equal(model.predict(values), scores)
plain = model.predict([values[0].ravel().tolist()])
assert isinstance(plain, bitgrad.Array) and plain.tolist() == scores[:1].tolist()
top = model.top(x[:3], 2)
assert [row[0][0] for row in top] == np.argmax(scores[:3], axis=1).tolist() and len(top[0]) == 2

# Outputs share the library's memory, also after the model is closed.
outputs = model.predict(memoryview(values.tobytes()).cast("f", [len(x), 784]))
views = [np.asarray(outputs), np.from_dlpack(outputs)]
assert views[0].ctypes.data == views[1].ctypes.data == outputs._address
try:
    import torch

    tensor = model.predict(torch.from_numpy(np.array(values)))
    assert isinstance(tensor, torch.Tensor) and np.array_equal(tensor.numpy(), scores)
    views.append(torch.from_dlpack(outputs).numpy())
except ImportError:
    pass
model.save(folder / "model.safetensors")
model.export(folder / "model.onnx")
model.close()
del outputs
assert all(np.array_equal(view, scores) for view in views)
assert "closed" in error_of(lambda: model.predict(x))
assert np.array_equal(bitgrad.open(folder / "model.safetensors").predict(x), scores)

# Tables of pandas: columns of numbers; one of names says what to do.
try:
    import pandas

    table = pandas.DataFrame(np.random.default_rng(3).normal(size=(60, 4)), columns=list("abcd"))
    table["whole"], table["yes"] = range(60), table.a > 0
    target = (table.a + table.b > 0).astype(int)
    net = {
        "version": 1, "data": {"train": {"format": "memory"}}, "model": {"layers": [{"linear": {"out": 2}}]},
        "optim": {"name": "adam", "lr": 0.05}, "batch": {"global": 20}, "train": {"stop": "8 epochs"},
    }  # fmt: skip
    of_table = bitgrad.Trainer(net, table, target, table, target)
    found = of_table.run(folder / "table", progress=False).evaluation
    same = bitgrad.Trainer(net, table.to_numpy(dtype="float32"), target.to_numpy(), table, target)
    assert same.run(None, progress=False).evaluation == found
    guess = bitgrad.open(folder / "table").predict(table)
    assert isinstance(guess, np.ndarray) and abs(100 * np.mean(guess.argmax(1) == target) - found.accuracy) < 1e-9
    table["name"] = "x"
    assert "column 'name' holds" in error_of(lambda: bitgrad.Trainer(net, table, target))
except ImportError:
    pass

# A loop of one's own.
loop = bitgrad.Learner(config, (784,), 10, epoch_samples=len(x))
first = loop.step(x[:100], y[:100])
for _ in range(20):
    last = loop.step(x[:100], y[:100])
assert last.step == 21 and last.stepped and loop.evaluate(x[:100], y[:100]).correct > first.correct
loop.save(folder / "loop.safetensors")
assert np.array_equal(bitgrad.open(folder / "loop.safetensors").predict(x[:100]), loop.predict(x[:100]))

assert "expected an array" in error_of(lambda: loop.step("x", y))
assert "got integers" in error_of(lambda: bitgrad.open(folder / "run").predict(x.astype(int)))
assert "modell" in error_of(lambda: bitgrad.Trainer("version: 1\nmodell: {}", x, y))
assert error_of(lambda: bitgrad.open(folder / "none"), bitgrad.DataError)
assert "different lengths" in error_of(lambda: loop.predict([[1, 2], [3]]))


def interrupt(event):
    raise KeyboardInterrupt


stopped = bitgrad.Trainer(config, x, y)
error_of(lambda: stopped.run(progress=interrupt), KeyboardInterrupt)
assert stopped.evaluate().samples == len(x)

# A run that was stopped in its folder goes on there, on the same arrays alone.
words = {"train.stop": "1 epochs", "train.ema": 0.9}
half = bitgrad.Trainer(config, x, y, x, y, overrides=words).run(folder / "half", progress=lambda event: True)
assert half.stopped and half.steps < result.steps
resumed = bitgrad.Trainer(config, x, y, x, y, overrides=words)
assert "holds the average" in error_of(lambda: resumed.resume(folder / "half/average.safetensors"), bitgrad.DataError)
other = bitgrad.Trainer(config, 255 - x, y, x, y, overrides=words)
assert "was trained on other samples. data.train" in error_of(lambda: other.resume(folder / "half"), bitgrad.DataError)
resumed.resume(folder / "half")
whole = bitgrad.Trainer(config, x, y, x, y, overrides=words).run()
assert resumed.run(folder / "half").state_hash == whole.state_hash

# Windows in which no target counts, and weights that grow without bound.
weights = [0] + [1] * 9
words = ["train.stop=1 epochs", "batch={global: 1}", "loss={softmax_cross_entropy: {weights: %s}}" % weights]
words.append("model={layers: [{linear: {out: 10}}]}")
uneven = bitgrad.Trainer(config, x, y, overrides=words).run()
assert uneven.skipped_windows == int(np.sum(y == 0)) > 0 and uneven.steps == int(np.sum(y != 0))
words[1:3] = ["batch={global: 20}", "optim={name: sgd, lr: 1000, weight_decay: 1000}"]
grown = error_of(lambda: bitgrad.Trainer(config, x, y, overrides=words).run(), bitgrad.NonFiniteError)
assert "optimizer step" in grown, grown

model = bitgrad.open(folder / "run")
few = x[:8]
for _ in range(100):
    model.predict(few)
before = resident_bytes()
for _ in range(1000):
    model.predict(few)
grown = resident_bytes() - before
assert grown < 1 << 20, f"1,000 calls of predict left {grown} bytes"
print(result.state_hash)
