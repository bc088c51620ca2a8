"""What the Python package says of arrays and arguments that it cannot take as they are: an error that names the value, what
is allowed and the way out, or a warning on what is lost.
"""

import logging
import sys

try:
    import numpy as np
except ImportError:
    sys.exit(77)
import bitgrad

config = {
    "version": 1,
    "data": {"train": {"format": "memory"}},
    "model": {"layers": [{"linear": {"out": 2}}]},
    "batch": {"global": 8},
    "optim": {"name": "adam", "lr": 0.01},
    "train": {"stop": "1 steps"},
}
x = np.arange(160, dtype=np.float32).reshape(40, 4) / 160
y = np.arange(40) % 2


def refusal(call):
    try:
        call()
    except bitgrad.UsageError as error:
        return str(error)
    raise AssertionError("no error")


def train(x, y):
    return bitgrad.Trainer(config, x, y).run(None, progress=False).state_hash


def check(text, part):
    assert part in text, (text, part)


lines = []
handler = logging.Handler()
handler.emit = lambda record: lines.append(record.getMessage())
logging.getLogger("bitgrad").addHandler(handler)
plain = train(x, y)

hidden = np.ma.masked_greater(x, 0.9)
check(refusal(lambda: train(hidden, y)), "x: got a masked array that hides 15 values, expected plain values: x.filled(0)")
check(refusal(lambda: train(x, np.ma.masked_equal(y, 0))), "y: got a masked array that hides 20 values")
assert train(np.ma.masked_greater(x, 5), y) == plain

for dtype in ("float64", "float32", "uint8", "int64"):
    check(
        refusal(lambda: train(x, np.eye(2)[y].astype(dtype))),
        "y: got [40, 2] with one 1 in each row: one-hot, expected a class per sample: y.argmax(axis=1)",
    )
soft = np.eye(2)[y]
soft[3] = 0.25, 0.75
assert train(x, soft)  # probabilities

check(refusal(lambda: train(x.astype("M8[s]"), y)), "x: got elements of datetime64[s], expected numbers. x.astype('int64')")
check(refusal(lambda: train(x.astype("O"), y)), "x: got elements of object, expected numbers. x.astype('float32')")
check(refusal(lambda: train(x, np.array(["a", "b"])[y])), "expected numbers. Names of classes: numpy.unique(y,")
check(refusal(lambda: train(x.astype("c8"), y)), "numpy.stack([x.real, x.imag]")

assert not lines, lines
wide = x.astype("float64")
wide[:, 2] = np.arange(2**24, 2**24 + 40)
train(wide, y)
check(lines.pop(), "x: value 2 of each sample: 19 of 40 different values are equal to their neighbor in fp32, such as 16777216 ")
try:
    import pandas as pd

    train(pd.DataFrame({"a": x[:, 0], "id": range(2**24, 2**24 + 40)}), y)
    check(lines.pop(), "x: column 'id': 19 of 40 different values are equal")
    dates = pd.DataFrame({"t": pd.date_range("2020", periods=40)})
    check(refusal(lambda: train(dates, y)), "expected numbers. Times: (column - column.min()) / pandas.Timedelta(days=1)")
except ImportError:
    pass
assert not lines, lines

trainer = bitgrad.Trainer(config, x, y)
for wrong in ("2", 0, 2.0, None, True, 1025, 2**70):
    check(refusal(lambda: bitgrad.set_threads(wrong)), f"threads: got {wrong!r}, expected a whole number 1 to 1024")
for wrong in ("a", None, True, [1]):
    check(refusal(lambda: trainer.set_learning_rate(wrong)), f"rate: got {wrong!r}, expected a number")
for wrong in ("ab", 3, (0,), (1.5,), ("4",)):
    check(refusal(lambda: bitgrad.Learner(config, wrong, 2)), "input: got ")
check(refusal(lambda: bitgrad.Learner(config, (4,), "2")), "outputs: got '2', expected a whole number 0 or more")
loop = bitgrad.Learner(config, (4,), 2)
check(refusal(lambda: loop.set_learning_rate("a")), "rate: got 'a'")

file = sys.argv[1] + "/model.safetensors"
trainer.save(file)
model = bitgrad.open(file)
for wrong in (-1, 0, 1.5, "a", None):
    check(refusal(lambda: model.top(x, k=wrong)), f"k: got {wrong!r}, expected a whole number 1 or more")
assert len(model.top(x[:1], k=np.int64(2))[0]) == 2
for call in (model.save, model.export, trainer.save, bitgrad.open):
    check(refusal(lambda: call("")), "path: got an empty text, expected a path")
check(refusal(lambda: model.save(sys.argv[1])), "is a folder, expected a file")
check(refusal(lambda: model.export("/dev/null")), "path: '/dev/null' is a device, a pipe or a socket, expected a file or")
check(refusal(lambda: model.export(sys.argv[1] + "/m.onnx", 3)), "format: got int")
