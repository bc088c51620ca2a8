"""Runs on arrays, and loops of one's own."""

from __future__ import annotations

import ctypes
import json
from typing import Any, Callable, Sequence

from . import _calls, _native, _tables
from ._arrays import Array, Input, like
from ._config import Config, Overrides, Path, config_text, override_texts
from ._native import UsageError
from ._progress import Progress
from ._records import Evaluation, Event, Result, Step


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
    trains: they stay referenced, and must not change. The model keeps the names of the columns of a table of pandas.
    """

    _closer = "trainer_close"
    _instead = "save(path) writes a checkpoint, from which resume(path) continues"

    def __init__(
        self, config: Config, x: Any, y: Any, x_test: Any = None, y_test: Any = None, *, overrides: Overrides | None = None
    ) -> None:
        super().__init__()
        words = override_texts(overrides)
        columns = _tables.columns_of(x, "x")
        self._inputs = [Input(x, "x", floats=True), Input(y, "y")]
        test = [None, None]
        if x_test is not None or y_test is not None:
            if x_test is None or y_test is None:
                raise UsageError("got one of x_test and y_test, expected both or none")
            x_test = _tables.in_order(x_test, columns, "x_test")
            self._inputs += [Input(x_test, "x_test", floats=True), Input(y_test, "y_test")]
            test = [self._inputs[2].pointer, self._inputs[3].pointer]
        _native.call(
            "trainer_create", config_text(config), _native.texts(words, "overrides"), len(words), self._inputs[0].pointer,
            self._inputs[1].pointer, test[0], test[1], ctypes.byref(self._handle),
        )  # fmt: skip
        if columns is not None:
            targets = _tables.target_names(y, columns)
            _native.call(
                "trainer_name_columns", self._handle, _native.texts(columns, "x"), len(columns),
                _native.texts(targets, "y"), len(targets),
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
        self._columns: list[str] | None = None  # of the first table
        words = override_texts(overrides)
        _native.call(
            "learner_create", config_text(config), _native.texts(words, "overrides"), len(words), ctypes.byref(form), outputs,
            epoch_samples, ctypes.byref(self._handle),
        )  # fmt: skip

    def _samples(self, x: Any) -> Input:
        if self._columns is None:
            self._columns = _tables.columns_of(x, "x")
        return Input(_tables.in_order(x, self._columns, "x"), "x", floats=self._floats)

    def _run(self, name: str, x: Any, y: Any, normalize: bool | None) -> Step:
        samples, targets = self._samples(x), Input(y, "y")
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
        samples = self._samples(x)
        stored = samples.is_bytes if normalize is None else normalize
        out = _native.DL()
        _native.call("learner_predict", self._ready(), samples.pointer, int(stored), ctypes.byref(out))
        return like(Array(out), x)

    def save(self, path: Path) -> None:
        """A checkpoint, which bitgrad.open opens."""
        _native.call("learner_save", self._ready(), _native.new_file(path))
