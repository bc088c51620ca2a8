"""bitgrad: neural networks whose weights are the low-bit weights. Open a trained model, or train from arrays.

    import bitgrad

    model = bitgrad.open("runs/mnist/0001")           # a run folder, a checkpoint or a model file
    scores = model.predict(x)                          # NumPy in, NumPy out; PyTorch in, PyTorch out
    trainer = bitgrad.Trainer("net.yaml", x, y, x_test, y_test)
    result = trainer.run("runs/mine")

Arrays are of NumPy, PyTorch, anything with the buffer protocol or DLPack, or lists of numbers. Their memory is not copied
where it is float32, uint8 or int32 in rows; neither of the two packages is needed. docs/python.md is the guide.
"""

from __future__ import annotations

import builtins
import ctypes
import json
import os
import tempfile
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Sequence, Union

from . import _calls, _native
from ._arrays import Array, Input, like
from ._native import DataError, Error, NonFiniteError, UsageError
from ._progress import Progress
from ._text import Stream, Text, Token

__all__ = [
    "Array", "DataError", "Error", "Evaluation", "Event", "Form", "Learner", "Model", "NonFiniteError", "Output",
    "Result", "Step", "Stream", "Text", "Token", "Trainer", "UsageError", "load_plugin", "open", "set_threads", "threads",
]  # fmt: skip
__version__: str = _native.function("version")().decode().split(" ")[0]

Path = Union[str, "os.PathLike[str]"]
Config = Union[str, "os.PathLike[str]", Mapping[str, Any]]
Overrides = Union[Mapping[str, Any], Sequence[str]]
_TASKS = ("classes", "labels", "values")


@dataclass(frozen=True)
class Form:
    """The input of a model: shape of one sample, dtype ("float32", or "int32" for ids), and how many ids there are."""

    shape: tuple[int, ...]
    dtype: str
    ids: int = 0


@dataclass(frozen=True)
class Output:
    """The outputs of one sample: what they are, and whether softmax or sigmoid of them are probabilities."""

    shape: tuple[int, ...]
    task: str
    probabilities: bool
    names: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Event:
    """What a run tells of itself; kind: "step" or "evaluation". accuracy in percent, -1: targets are values.

    Of an evaluation: split ("test", "valid", "train"), metrics (all that fit the task), best: the best model so far,
    final: of the best model on x_test, where data.valid chose it.
    """

    kind: str
    step: int
    epoch: int
    steps_total: int
    epochs_total: int
    loss: float
    accuracy: float
    learning_rate: float
    samples_per_second: float
    seconds: float
    eta_seconds: float
    split: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    best: bool = False
    final: bool = False


@dataclass(frozen=True)
class Evaluation:
    """accuracy in percent, -1: targets are values. split: "test", "valid" or "train"; metrics: all that fit the task."""

    loss: float
    accuracy: float
    samples: int
    split: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """What a run came to. evaluation: of its last step; None: there was none.

    skipped_windows: those of batch.global samples in which no target counts, without an update.
    """

    evaluation: Evaluation | None
    steps: int
    epochs: int
    seconds: float
    stopped: bool
    state_hash: str
    skipped_windows: int


@dataclass(frozen=True)
class Step:
    """What one microbatch came to. loss: mean; stepped: the optimizer ran; learning_rate: of the next step."""

    loss: float
    correct: int
    samples: int
    step: int
    stepped: bool
    learning_rate: float


class Model(_native.Handle):
    """A trained model that predicts. Threads may share one; their calls wait for each other."""

    _closer = "model_close"

    def __init__(self, path: Path) -> None:
        super().__init__()
        _native.call("model_open", _native.text(path), ctypes.byref(self._handle))
        form, task, probabilities = _native.Form(), ctypes.c_int32(), ctypes.c_int32()
        _native.call("model_input", self._handle, ctypes.byref(form))
        dtype = "int32" if form.dtype == _native.INT32 else "float32"
        self.input = Form(tuple(form.shape[: form.rank]), dtype, form.ids)
        _native.call(
            "model_output", self._handle, ctypes.byref(form), ctypes.byref(task), ctypes.byref(probabilities)
        )
        shape = tuple(form.shape[: form.rank])
        names = [_native.function("model_class_name")(self._handle, i) for i in range(shape[-1] if shape else 0)]
        known = tuple(name.decode() for name in names if name is not None)
        self.output = Output(shape, _TASKS[task.value], bool(probabilities.value), known or None)
        self.info: dict[str, Any] = json.loads(_native.function("model_describe")(self._handle))

    def predict(self, x: Any, *, normalize: bool | None = None) -> Any:
        """Outputs [n, ...] float32 of samples x [n, ...], as the kind of array that x is.

        uint8 pixels are normalized as the run normalized its data; float32 values are taken as the model reads them.
        normalize: True: float32 values too; False: nothing is.
        """
        samples = Input(x, "x", floats=self.input.ids == 0)
        stored = samples.is_bytes if normalize is None else normalize
        out = _native.DL()
        _native.call("model_predict", self._ready(), samples.pointer, int(stored), ctypes.byref(out))
        return like(Array(out), x)

    def predict_csv(self, path: Path) -> Array:
        """Outputs [n, ...] for the rows of a CSV file, which is read as the table that the model was trained on.

        By the names of its columns, in any order, with categories and missing values; the target may be there.
        """
        out = _native.DL()
        _native.call("model_predict_csv", self._ready(), _native.text(path), ctypes.byref(out))
        return Array(out)

    def top(self, x: Any, k: int = 1, *, normalize: bool | None = None) -> list[list[tuple[int, float]]]:
        """The k best classes of each sample with their probabilities (or scores), best first."""
        if len(self.output.shape) != 1 or self.output.task == "values":
            raise UsageError(f"top: this model gives {self.output.task} {self.output.shape}, not classes of samples")
        k = _native.whole_number(k, "k", 1)
        samples = Input(x, "x", floats=self.input.ids == 0)
        stored = samples.is_bytes if normalize is None else normalize
        out = _native.DL()
        _native.call("model_predict", self._ready(), samples.pointer, int(stored), ctypes.byref(out))
        ranked = []
        for row in Array(out).tolist():
            n = len(row)
            scores = (ctypes.c_double * n)()
            _native.call("model_scores", self._ready(), (ctypes.c_float * n)(*row), n, scores)
            order = sorted(range(n), key=lambda i: (-row[i], i))[:k]
            ranked.append([(i, scores[i]) for i in order])
        return ranked

    def save(self, path: Path) -> None:
        """The model alone, without what trains it, as `bitgrad convert` writes it."""
        _native.call("model_save", self._ready(), _native.new_file(path))

    def export(self, path: Path, format: str | None = None) -> None:
        """A file of another program, as `bitgrad export` writes it: ONNX, GGUF, C, ... by the end of the path."""
        named = None if format is None else _native.text(format, "format")
        target = _native.text(path)
        if os.path.exists(target) and not (os.path.isfile(target) or os.path.isdir(target)):
            raise UsageError(f"path: {os.fspath(path)!r} is a device, a pipe or a socket, expected a file or a folder")
        _native.call("model_export", self._ready(), target, named)

    def save_adapters(self, folder: Path) -> None:
        """The low-rank adapters alone, as `bitgrad adapters` writes them. adapters.init_from of a run attaches them."""
        _native.call("model_save_adapters", self._ready(), _native.text(folder))

    def merge_adapters(self, path: Path, *, to_float: bool = False) -> None:
        """The model with its adapters added to the weights, as `bitgrad merge` writes it.

        to_float: weights with adapters become float32; else they are quantized anew as they were.
        """
        _native.call("model_merge_adapters", self._ready(), _native.text(path), int(to_float))

    def stream(
        self, prompt: str | None = None, *, ids: Sequence[int] | None = None, tokens: int = 256, temperature: float = 1.0,
        top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0, repetition_penalty: float = 1.0, seed: int = 0,
        stop: str | Sequence[str] = (), kv: str = "fp32",
    ) -> Stream:  # fmt: skip
        """An iterator of Token: what a language model writes after a prompt (or ids), as `bitgrad generate` does.

        tokens: at most so many. temperature 0: always the most probable token. top_k 0: of all. stop: the text ends before
        these. kv: "fp32", "bf16", "int8", how keys and values are kept; "none": nothing is. The result is in Stream.result.
        """
        options = {
            "prompt": prompt, "ids": None if ids is None else list(ids), "tokens": tokens, "temperature": temperature,
            "top_k": top_k, "top_p": top_p, "min_p": min_p, "repetition_penalty": repetition_penalty, "seed": seed,
            "stop": [stop] if isinstance(stop, str) else list(stop), "kv": kv,
        }  # fmt: skip
        return Stream(self._ready(), _json(options, "generate").encode())

    def generate(
        self, prompt: str | None = None, *, samples: int | None = None, on_token: Callable[[Token], object] | None = None,
        **options: Any,
    ) -> Text | list[Text]:  # fmt: skip
        """A text that a language model writes after a prompt (or ids); options as in stream.

        samples: a list of so many texts of the same prompt. on_token: a function of each Token, which ends the text by
        returning True.
        """
        if samples is not None and samples < 1:
            raise UsageError(f"samples: got {samples}, expected 1 or more")
        with self.stream(prompt, **options) as stream:
            texts = []
            for sample in range(samples or 1):
                if sample > 0:
                    stream.again()
                for token in stream:
                    if on_token is not None and on_token(token) is True:
                        break
                texts.append(stream.result)
        return texts[0] if samples is None else texts

    def __reduce_ex__(self, _: Any) -> Any:
        """Pickled and copied by the bytes of its model file."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.safetensors")
            self.save(path)
            with builtins.open(path, "rb") as file:
                return _restored, (type(self), file.read(), self.info["file"])

    def __repr__(self) -> str:
        return f"bitgrad.Model({self.info['file']!r}, input={self.input.shape}, output={self.output.shape})"


def _restored(kind: type[Model], data: bytes, name: str) -> Model:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.safetensors")
        with builtins.open(path, "wb") as file:
            file.write(data)
        model = kind(path)
    model.info["file"] = name
    return model


def open(path: Path, *, last: bool = False) -> Model:
    """Opens a run folder (its best checkpoint if data.valid chose it, else its last), a checkpoint or a model file.

    last: the folder's last.safetensors in any case. Model.info["file"] names the file.
    """
    return Model(os.path.join(path, "last.safetensors") if last else path)


def _plain(value: Any) -> Any:
    """Values of a dict that JSON does not know: numbers of NumPy, paths."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"got {type(value).__name__}")


def _json(value: Any, name: str) -> str:
    try:
        return json.dumps(value, default=_plain)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name}: {error}, expected texts, numbers, booleans, lists and dicts") from None


def _config_text(config: Config) -> bytes:
    if isinstance(config, Mapping):
        return _json(dict(config), "config").encode()
    if isinstance(config, os.PathLike) or (isinstance(config, str) and config.endswith((".yaml", ".yml", ".json"))):
        with builtins.open(config, "rb") as file:
            return _native.whole(file.read(), str(config))
    if not isinstance(config, str):
        raise UsageError(f"config: got {type(config).__name__}, expected YAML text, a path that ends in .yaml, or a dict")
    return _native.whole(config.encode(), "config")


def _override_texts(overrides: Overrides | None) -> list[str]:
    if overrides is None:
        return []
    if isinstance(overrides, Mapping):
        items = overrides.items()
        return [f"{key}={value if isinstance(value, str) else _json(value, 'overrides')}" for key, value in items]
    if isinstance(overrides, str):
        raise UsageError(f"overrides: got a text, expected a list of texts such as [{overrides!r}], or a dict")
    return list(overrides)


def _axes(shape: Any) -> Sequence[int]:
    if isinstance(shape, (str, bytes)) or not hasattr(shape, "__iter__"):
        raise UsageError(f"input: got {shape!r}, expected the shape of a sample, such as (28, 28)")
    return tuple(shape)


def _step_of(raw: Any) -> Step:
    return Step(raw.loss, raw.correct, raw.samples, raw.step, bool(raw.stepped), raw.learning_rate)


class Trainer(_native.Handle):
    """A run of a configuration on arrays.

    config: YAML text, a path that ends in .yaml, or a dict; its data sets are the arrays. overrides: {"optim.lr": 0.01}
    or ["optim.lr=0.01"]. y: classes (integers) [n] or [n, positions], or float32 values. The arrays are read while it
    trains: they stay referenced, and must not change.
    """

    _closer = "trainer_close"
    _instead = "save(path) writes a checkpoint, from which resume(path) continues"

    def __init__(
        self, config: Config, x: Any, y: Any, x_test: Any = None, y_test: Any = None, *, overrides: Overrides | None = None
    ) -> None:
        super().__init__()
        words = _override_texts(overrides)
        self._inputs = [Input(x, "x", floats=True), Input(y, "y")]
        test = [None, None]
        if x_test is not None or y_test is not None:
            if x_test is None or y_test is None:
                raise UsageError("got one of x_test and y_test, expected both or none")
            self._inputs += [Input(x_test, "x_test", floats=True), Input(y_test, "y_test")]
            test = [self._inputs[2].pointer, self._inputs[3].pointer]
        _native.call(
            "trainer_create", _config_text(config), _native.texts(words, "overrides"), len(words), self._inputs[0].pointer,
            self._inputs[1].pointer, test[0], test[1], ctypes.byref(self._handle),
        )  # fmt: skip

    def resume(self, source: Path, *, use_data: bool = False) -> None:
        """Continues a saved run, before run(): a run folder, which run() may then continue, or a checkpoint.

        The arrays must hold the values of that run. use_data: if they do not, that is a warning, not an error.
        """
        _native.call("trainer_resume", self._ready(), _native.text(source), int(use_data))

    def run(
        self, folder: Path | None = None, *, progress: bool | str | Callable[[Event], object] = True, resume: bool = False
    ) -> Result:
        """Trains to train.stop. folder: a new run folder, or the resumed one; None: nothing is written.

        resume: continues the run of the folder, as resume(folder) before it does.
        progress: True: a line in a notebook or on a terminal; or a function of an Event, which stops the run by
        returning True. What it raises, or a signal handler such as that of Ctrl-C, ends the run, with its state saved,
        and is raised here.
        """
        if resume:
            if folder is None:
                raise UsageError("resume: got no folder, expected that of the run to continue")
            self.resume(folder)
        draw = None if callable(progress) else Progress(progress)
        tell: Any = progress if callable(progress) else draw
        work = _calls.Call()
        on_event = _native.PROGRESS(work.callback(lambda raw, _: tell(self._event_of(raw.contents))))
        on_poll = _native.POLL(work.callback(lambda _: False))
        out = _native.Result()
        target = None if folder is None else _native.text(folder, "folder")
        _native.call("trainer_set_poll", self._ready(), on_poll, None)
        try:
            _native.call("trainer_run", self._ready(), target, on_event, None, ctypes.byref(out), work=work)
        finally:
            if self._handle:  # not closed by a callback
                _native.function("trainer_set_poll")(self._handle, _native.POLL(), None)
            if draw is not None:
                draw.close()
        found = self._evaluation_of(out) if out.samples > 0 else None
        return Result(
            found, out.steps, out.epochs, out.seconds, bool(out.stopped), out.state_hash.decode(), out.skipped_windows
        )  # fmt: skip

    def _told(self) -> dict[str, Any]:
        """What the library says of the last evaluation."""
        text = _native.function("trainer_evaluation")(self._handle) if self._handle else None
        told = json.loads(text) if text is not None else None
        return told or {"split": "", "metrics": {}}

    def _event_of(self, e: Any) -> Event:
        found: dict[str, Any] = {}
        if e.kind == 1:
            told = self._told()
            found = {key: told[key] for key in ("split", "metrics", "best", "final") if key in told}
        return Event(
            "evaluation" if e.kind == 1 else "step", e.step, e.epoch, e.steps_total, e.epochs_total, e.loss, e.accuracy,
            e.learning_rate, e.samples_per_second, e.seconds, e.eta_seconds, **found,
        )  # fmt: skip

    def _evaluation_of(self, out: Any) -> Evaluation:
        told = self._told()
        return Evaluation(out.loss, out.accuracy, out.samples, told["split"], told["metrics"])

    def stop(self) -> None:
        """Ends the run that another thread is in, after its step, with its state saved."""
        _native.call("trainer_stop", self._ready())

    def set_learning_rate(self, rate: float) -> None:
        """The rate of all following steps instead of the schedule; from a callback too. A resumed run has its schedule."""
        _native.call("trainer_set_learning_rate", self._ready(), _native.real_number(rate, "rate"))

    def evaluate(self) -> Evaluation:
        """On x_test, without it on the part of x that data.valid takes, or on x."""
        out = _native.Result()
        _native.call("trainer_evaluate", self._ready(), ctypes.byref(out))
        return self._evaluation_of(out)

    def save(self, path: Path) -> None:
        """A checkpoint, which bitgrad.open opens."""
        _native.call("trainer_save", self._ready(), _native.new_file(path))


class Learner(_native.Handle):
    """A loop of one's own: a configuration's model and optimizer, fed with one microbatch at a time.

    input: shape of one sample; ids: it takes ids 0 .. ids - 1 (found from an embedding where 0). epoch_samples: of an
    epoch, for lengths of the configuration that are given in epochs.
    """

    _closer = "learner_close"
    _instead = "save(path) writes a checkpoint"

    def __init__(
        self, config: Config, input: Sequence[int], outputs: int = 0, *, epoch_samples: int = 1, dtype: str = "float32",
        ids: int = 0, overrides: Overrides | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if dtype not in ("float32", "int32"):
            raise UsageError(f"dtype: got '{dtype}', expected float32, or int32 for ids")
        form = _native.Form()
        form.dtype = _native.INT32 if dtype == "int32" else _native.FLOAT32
        input = [_native.whole_number(size, "input", 1) for size in _axes(input)]
        form.rank, form.ids = len(input), _native.whole_number(ids, "ids", 0)
        outputs = _native.whole_number(outputs, "outputs", 0)
        epoch_samples = _native.whole_number(epoch_samples, "epoch_samples", 1)
        if not 1 <= len(input) <= _native.MAX_RANK:
            raise UsageError(f"input: got {len(input)} axes, expected 1 to {_native.MAX_RANK}")
        form.shape[: len(input)] = input
        self._floats = dtype == "float32"
        words = _override_texts(overrides)
        _native.call(
            "learner_create", _config_text(config), _native.texts(words, "overrides"), len(words), ctypes.byref(form), outputs,
            epoch_samples, ctypes.byref(self._handle),
        )  # fmt: skip

    def _run(self, name: str, x: Any, y: Any, normalize: bool | None) -> Step:
        samples, targets = Input(x, "x", floats=self._floats), Input(y, "y")
        stored = samples.is_bytes if normalize is None else normalize
        out = _native.Step()
        _native.call(name, self._ready(), samples.pointer, targets.pointer, int(stored), ctypes.byref(out))
        return _step_of(out)

    def set_learning_rate(self, rate: float) -> None:
        """The rate of all following steps, instead of the schedule."""
        _native.call("learner_set_learning_rate", self._ready(), _native.real_number(rate, "rate"))

    def step(self, x: Any, y: Any, *, normalize: bool | None = None) -> Step:
        """One microbatch: forward and backward; at the end of a window of batch.global samples the optimizer steps."""
        return self._run("learner_step", x, y, normalize)

    def evaluate(self, x: Any, y: Any, *, normalize: bool | None = None) -> Step:
        """Loss and hits, without training."""
        return self._run("learner_evaluate", x, y, normalize)

    def predict(self, x: Any, *, normalize: bool | None = None) -> Any:
        """Outputs, as Model.predict."""
        samples = Input(x, "x", floats=self._floats)
        stored = samples.is_bytes if normalize is None else normalize
        out = _native.DL()
        _native.call("learner_predict", self._ready(), samples.pointer, int(stored), ctypes.byref(out))
        return like(Array(out), x)

    def save(self, path: Path) -> None:
        """A checkpoint, which bitgrad.open opens."""
        _native.call("learner_save", self._ready(), _native.new_file(path))


def set_threads(threads: int) -> None:
    """Threads of all models and runs of the process, 1 to 1024."""
    _native.call("set_threads", _native.whole_number(threads, "threads", 1, 1024))


def threads() -> int:
    return int(_native.function("threads")())


def load_plugin(path: Path) -> None:
    """A shared library that adds kinds (docs/adding.md), for a library that exports its C++ symbols."""
    _native.call("load_plugin", _native.text(path))
