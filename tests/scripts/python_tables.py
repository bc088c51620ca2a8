"""Tables of pandas in the Python package: a model finds their columns by name, as it does in files. Without pandas a stand-in
with the same few functions takes its place.

    python_tables.py FOLDER PROGRAM
"""

import csv
import json
import logging
import math
import pathlib
import subprocess
import sys

try:
    import numpy as np
except ImportError:
    sys.exit(77)
import bitgrad

try:
    import pandas
except ImportError:
    pandas = None


class Column(list):
    @property
    def dtype(self):
        return np.asarray([math.nan if value is None else value for value in self]).dtype

    def to_list(self):
        return list(self)


class Table:
    """What the package uses of pandas.DataFrame."""

    def __init__(self, columns):
        self.of = {name: Column(values) for name, values in columns.items()}
        self.columns = list(self.of)

    @property
    def dtypes(self):
        return [column.dtype for column in self.of.values()]

    def __getitem__(self, names):
        return self.of[names] if isinstance(names, str) else Table({name: self.of[name] for name in names})

    def __len__(self):
        return len(self.of[self.columns[0]])

    def to_numpy(self, dtype=None, na_value=math.nan):
        columns = [[na_value if value is None else value for value in column] for column in self.of.values()]
        return np.array(columns, dtype=dtype).T


def table_of(columns):
    return pandas.DataFrame(columns) if pandas is not None else Table(columns)


def with_columns(table, **more):
    return table_of({**{name: table[name].to_list() for name in table.columns}, **more})


def without(table, name):
    return table[[column for column in table.columns if column != name]]


def renamed(table, old, new):
    return table_of({new if name == old else name: table[name].to_list() for name in table.columns})


def error_of(call, kind=bitgrad.Error):
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


def check(got, expected):
    assert expected in got, got


lines = []
handler = logging.Handler()
handler.emit = lambda record: lines.append(record.getMessage())
logging.getLogger("bitgrad").addHandler(handler)
folder = pathlib.Path(sys.argv[1])
random = np.random.default_rng(5)

# A run on a table: its columns have names in the model's file, and the data have a normalization.
net = {
    "version": 1,
    "data": {"train": {"format": "memory"}, "normalize": {"mean": [0.5], "std": [2.0]}},
    "model": {"layers": [{"linear": {"out": 2}}]},
    "batch": {"global": 20},
    "optim": {"name": "adam", "lr": 0.05},
    "train": {"stop": "8 epochs"},
}
values = random.normal(size=(80, 4))
table = table_of({name: values[:, i].tolist() for i, name in enumerate("abcd")})
table = with_columns(table, yes=[a > 0 for a in table["a"].to_list()])
target = ((values[:, 0] + values[:, 1]) > 0).astype(int)
turned = table[["yes", "d", "c", "b", "a"]]
result = bitgrad.Trainer(net, table, target, turned, target).run(folder / "run", progress=False)
model = bitgrad.open(folder / "run")
assert [column["name"] for column in model.info["table"]["columns"]] == ["a", "b", "c", "d", "yes", "target"]
scores = model.predict(table)
assert abs(100 * np.mean(scores.argmax(1) == target) - result.evaluation.accuracy) < 1e-9
assert np.array_equal(scores, model.predict(turned))
assert np.array_equal(scores, model.predict(table.to_numpy(dtype="float32"), normalize=True))
assert [best[0][0] for best in model.top(turned)] == scores.argmax(1).tolist()
assert not lines, lines
assert np.array_equal(scores, model.predict(with_columns(turned, extra=["x"] * 80, target=target.tolist())))
check(lines.pop(), "1 column that the training table does not have: not read: extra")
with open(folder / "x.csv", "w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(turned.columns)
    writer.writerows(zip(*[[float(value) for value in turned[name].to_list()] for name in turned.columns]))
assert np.array_equal(scores, np.asarray(model.predict_csv(folder / "x.csv")))

check(error_of(lambda: model.predict(without(table, "c"))), "got no column c, expected every feature of the training table")
check(error_of(lambda: model.predict(renamed(table, "c", "C"))), "Is it 'C'?")
gap = with_columns(table, b=[None] + table["b"].to_list()[1:])
check(error_of(lambda: model.predict(gap)), "x (as CSV):2: column 2 (b): got '', expected a value")
check(error_of(lambda: model.predict(table, normalize=False)), "normalize: got False for a table")
other = renamed(table, "c", "C")
check(error_of(lambda: bitgrad.Trainer(net, table, target, other, target)), "x_test: got no column 'c', expected a, b, c, d")
more = with_columns(table, e=[0] * 80)
check(error_of(lambda: bitgrad.Trainer(net, table, target, more, target)), "x_test: got columns that are not in x: e")

# Targets that a table could not have beside its features have names of their own: columns of x again, or positions.
def targets_of(y, **keys):
    fit = bitgrad.Trainer({**net, **keys, "train": {"stop": "1 steps"}}, table, y)
    fit.run(folder / f"targets_{len(list(folder.iterdir()))}", progress=False)
    saved = folder / f"targets_{len(list(folder.iterdir()))}.safetensors"
    fit.save(saved)
    columns = bitgrad.open(saved).info["table"]["columns"]
    return [column["name"] for column in columns if column.get("use") == "target"]


values_of = {"model": {"layers": [{"linear": {"out": 2}}]}, "loss": "mean_squared_error"}
assert targets_of(table_of({"u": [0.5] * 80, "v": [1.5] * 80}), **values_of) == ["u", "v"]
assert targets_of(table[["a", "b"]], **values_of) == ["target 1", "target 2"]
assert targets_of(table_of({"kind": target.tolist()})) == ["kind"]

# A run that is resumed with arrays keeps the names.
half = bitgrad.Trainer(net, table, target)
assert half.run(folder / "half", progress=lambda event: True).stopped
again = bitgrad.Trainer(net, table.to_numpy(dtype="float32"), target)
again.resume(folder / "half")
again.run(folder / "half", progress=False)
assert bitgrad.open(folder / "half").info["table"] == model.info["table"]

# A model of arrays takes columns in their order, and says so once.
plain = bitgrad.Trainer(net, table.to_numpy(dtype="float32"), target)
plain.run(folder / "plain", progress=False)
plain = bitgrad.open(folder / "plain")
assert not lines and np.array_equal(plain.predict(table, normalize=True), scores) and plain.predict(table) is not None
check(lines.pop(), "x: the model knows no names of columns: those of the table are taken in their order")
assert not lines and plain.info["table"] is None

# A loop of one's own: all its tables have the columns of the first.
loop = bitgrad.Learner(net, (5,), 2)
loop.step(table, target)
assert np.array_equal(loop.predict(table), loop.predict(turned))
check(error_of(lambda: loop.predict(without(table, "c"))), "x: got no column 'c', expected a, b, c, d, yes")

# Tables like the CSV file that a model was trained on: categories, gaps, commas, quotes.
source = {
    "b": values[:, 0].tolist(),
    "color": ["red" if i % 3 else 'dark, "blue"; x' for i in range(80)],
    "c": [None if i == 5 else float(i % 4) for i in range(80)],
    "zip": [("01", "2", "3")[i % 3] for i in range(80)],
    "flag": [bool(i % 2) for i in range(80)],
    "kind": ["cat" if b > 0 else "dog" for b in values[:, 0]],
}
net["data"] = {"train": {"format": "csv", "target": "kind", "names": ["zip"], "missing": "mean"}}
for decimal, separator, words in ((".", ",", {}), (",", ";", {"decimal": "comma", "separator": "semicolon"})):
    path = folder / f"{'comma' if words else 'point'}.csv"
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerow(source)
        for row in zip(*source.values()):
            writer.writerow(repr(cell).replace(".", decimal) if isinstance(cell, float) else cell for cell in row)
    run = folder / f"run_{path.stem}"
    net["data"]["train"].update(words, file=str(path))
    (folder / "net.json").write_text(json.dumps(net))
    trained = subprocess.run([sys.argv[2], "train", folder / "net.json", "-q", "--out", run], capture_output=True, text=True)
    assert trained.returncode == 0, trained.stderr
    model = bitgrad.open(run)
    of_file = np.asarray(model.predict_csv(path))
    table = table_of(source)
    assert np.array_equal(model.predict(table), of_file)
    assert np.array_equal(model.predict(table[["kind", "flag", "zip", "c", "color", "b"]]), of_file)
    whole = with_columns(table, zip=[int(code) for code in source["zip"]])
    check(error_of(lambda: model.predict(whole)), "column 4 (zip): got '1', expected one of the 3 values in the training file")
