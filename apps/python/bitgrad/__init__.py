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

from . import _native
from ._arrays import Array
from ._chat import tokenize_chat
from ._config import Path
from ._model import Model, open
from ._native import DataError, Error, NonFiniteError, UsageError
from ._records import Evaluation, Event, Form, Output, Result, Step
from ._text import Stream, Text, Token
from ._training import Learner, Trainer

__all__ = [
    "Array", "DataError", "Error", "Evaluation", "Event", "Form", "Learner", "Model", "NonFiniteError", "Output",
    "Result", "Step", "Stream", "Text", "Token", "Trainer", "UsageError", "load_plugin", "open", "set_threads", "threads",
    "tokenize_chat",
]  # fmt: skip
__version__: str = _native.function("version")().decode().split(" ")[0]


def set_threads(threads: int) -> None:
    """Threads of all models and runs of the process, 1 to 1024."""
    _native.call("set_threads", _native.whole_number(threads, "threads", 1, 1024))


def threads() -> int:
    return int(_native.function("threads")())


def load_plugin(path: Path) -> None:
    """A shared library that adds kinds (docs/adding.md), for a library that exports its C++ symbols."""
    _native.call("load_plugin", _native.text(path))
