"""Models that predict and write texts."""

from __future__ import annotations

import builtins
import ctypes
import json
import os
import tempfile
from typing import Any, Callable, Mapping, Sequence

from . import _native, _tables
from ._arrays import Array, Input, like
from ._config import Path, json_text
from ._native import UsageError
from ._records import Form, Output
from ._text import Stream, Text, Token

_TASKS = ("classes", "labels", "values")


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
        self._told_of_columns = False

    def predict(self, x: Any, *, normalize: bool | None = None) -> Any:
        """Outputs [n, ...] float32 of samples x [n, ...], as the kind of array that x is.

        uint8 pixels are normalized as the run normalized its data; float32 values are taken as the model reads them.
        normalize: True: float32 values too; False: nothing is. A table of pandas is read as predict_csv reads one, where
        the model knows the names of its columns: by name, and normalized as the run normalized its data.
        """
        return like(self._outputs(x, normalize), x)

    def _outputs(self, x: Any, normalize: bool | None) -> Array:
        if _tables.columns_of(x, "x") is not None:
            plan = self.info["table"]
            if plan is not None:
                return self._of_table(x, plan, normalize)
            if not self._told_of_columns:
                _tables.warn_about_order("x: the model knows no names of columns")
            self._told_of_columns = True
        samples = Input(x, "x", floats=self.input.ids == 0)
        stored = samples.is_bytes if normalize is None else normalize
        return self._called("model_predict", samples.pointer, int(stored))

    def _of_table(self, x: Any, plan: Mapping[str, Any], normalize: bool | None) -> Array:
        if normalize is False:
            raise UsageError("normalize: got False for a table, which is read as the run read its data: x.to_numpy()")
        values = _tables.numbers(x, plan)
        if values is not None:
            samples = Input(values, "x", floats=True)
            return self._called("model_predict", samples.pointer, 1)
        text = _tables.csv_text(x, plan)
        out = self._called("model_predict_table", text, len(text))
        if len(out) != len(x):
            raise UsageError(f"x: got {len(x)} rows, of which the first looks like names: give it the columns of the model")
        return out

    def _called(self, name: str, *arguments: Any) -> Array:
        out = _native.DL()
        _native.call(name, self._ready(), *arguments, ctypes.byref(out))
        return Array(out)

    def predict_csv(self, path: Path) -> Array:
        """Outputs [n, ...] for the rows of a CSV file, which is read as the table that the model was trained on.

        By the names of its columns, in any order, with categories and missing values; the target may be there.
        """
        return self._called("model_predict_csv", _native.text(path))

    def top(self, x: Any, k: int = 1, *, normalize: bool | None = None) -> list[list[tuple[int, float]]]:
        """The k best classes of each sample with their probabilities (or scores), best first."""
        if len(self.output.shape) != 1 or self.output.task == "values":
            raise UsageError(f"top: this model gives {self.output.task} {self.output.shape}, not classes of samples")
        k = _native.whole_number(k, "k", 1)
        ranked = []
        for row in self._outputs(x, normalize).tolist():
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
        return Stream(self._ready(), json_text(options, "generate").encode())

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
