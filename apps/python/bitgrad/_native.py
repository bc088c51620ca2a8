"""The C interface (bitgrad/c.h) by ctypes: structs, signatures, errors."""

from __future__ import annotations

import atexit
import ctypes
import logging
import operator
import os
from ctypes import POINTER, Structure, byref, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_uint8
from ctypes import c_uint16, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Sequence

from . import _calls

ABI_VERSION = 1
MAX_RANK = 8
FLOAT32, UINT8, INT32, INT64 = 0, 1, 2, 3
AS_IS, STORED = 0, 1


class Error(Exception):
    """What the library refuses. `code` is the exit code that the program has for it (docs/configuration.md)."""

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.code = code


class UsageError(Error, ValueError):
    """A wrong argument, shape, dtype or configuration."""


class DataError(Error, OSError):
    """A file or data set that cannot be used."""

    def __str__(self) -> str:
        return str(self.args[0])


class NonFiniteError(Error, ArithmeticError):
    """NaN or Inf where none may be."""


class Array(Structure):
    _fields_ = [("data", c_void_p), ("dtype", c_int32), ("rank", c_int32), ("shape", c_int64 * MAX_RANK)]


class Form(Structure):
    _fields_ = [("dtype", c_int32), ("rank", c_int32), ("shape", c_int64 * MAX_RANK), ("ids", c_int64)]


class Event(Structure):
    _fields_ = [
        ("kind", c_int32),
        ("step", c_int64),
        ("epoch", c_int64),
        ("steps_total", c_int64),
        ("epochs_total", c_int64),
        ("loss", c_double),
        ("accuracy", c_double),
        ("learning_rate", c_double),
        ("samples_per_second", c_double),
        ("seconds", c_double),
        ("eta_seconds", c_double),
    ]


class Result(Structure):
    _fields_ = [
        ("loss", c_double),
        ("accuracy", c_double),
        ("samples", c_int64),
        ("steps", c_int64),
        ("epochs", c_int64),
        ("skipped_windows", c_int64),
        ("seconds", c_double),
        ("stopped", c_int32),
        ("state_hash", c_char * 65),
    ]


class Step(Structure):
    _fields_ = [
        ("loss", c_double),
        ("correct", c_int64),
        ("samples", c_int64),
        ("step", c_int64),
        ("stepped", c_int32),
        ("learning_rate", c_double),
    ]


class Token(Structure):
    _fields_ = [("id", c_int64), ("text", c_void_p), ("length", c_int64)]


class DLDevice(Structure):
    _fields_ = [("device_type", c_int32), ("device_id", c_int32)]


class DLDataType(Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class DLTensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device", DLDevice),
        ("ndim", c_int32),
        ("dtype", DLDataType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class DLManagedTensor(Structure):
    pass


DELETER = ctypes.CFUNCTYPE(None, POINTER(DLManagedTensor))
DLManagedTensor._fields_ = [("dl_tensor", DLTensor), ("manager_ctx", c_void_p), ("deleter", DELETER)]
DL = POINTER(DLManagedTensor)
PROGRESS = ctypes.CFUNCTYPE(c_int, POINTER(Event), c_void_p)
POLL = ctypes.CFUNCTYPE(c_int, c_void_p)
LOG = ctypes.CFUNCTYPE(None, c_int32, c_char_p, c_void_p)

_HANDLE, _OUT = c_void_p, POINTER(c_void_p)
_TEXTS = POINTER(c_char_p)
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "abi_version": (c_int32, []),
    "version": (c_char_p, []),
    "last_error": (c_char_p, []),
    "array_of_dlpack": (c_int, [DL, POINTER(Array)]),
    "dlpack_share": (c_int, [DL, POINTER(DL)]),
    "model_open": (c_int, [c_char_p, _OUT]),
    "model_close": (None, [_HANDLE]),
    "model_input": (c_int, [_HANDLE, POINTER(Form)]),
    "model_output": (c_int, [_HANDLE, POINTER(Form), POINTER(c_int32), POINTER(c_int32)]),
    "model_class_name": (c_char_p, [_HANDLE, c_int64]),
    "model_describe": (c_char_p, [_HANDLE]),
    "model_predict": (c_int, [_HANDLE, POINTER(Array), c_int32, POINTER(DL)]),
    "model_predict_csv": (c_int, [_HANDLE, c_char_p, POINTER(DL)]),
    "model_predict_table": (c_int, [_HANDLE, c_char_p, c_int64, POINTER(DL)]),
    "model_scores": (c_int, [_HANDLE, POINTER(c_float), c_int64, POINTER(c_double)]),
    "model_save": (c_int, [_HANDLE, c_char_p]),
    "model_export": (c_int, [_HANDLE, c_char_p, c_char_p]),
    "model_save_adapters": (c_int, [_HANDLE, c_char_p]),
    "model_merge_adapters": (c_int, [_HANDLE, c_char_p, c_int32]),
    "generator_create": (c_int, [_HANDLE, c_char_p, _OUT]),
    "generator_close": (None, [_HANDLE]),
    "generator_next": (c_int, [_HANDLE, POINTER(Token)]),
    "generator_again": (c_int, [_HANDLE]),
    "generator_result": (c_char_p, [_HANDLE]),
    "trainer_create": (
        c_int,
        [c_char_p, _TEXTS, c_int32, POINTER(Array), POINTER(Array), POINTER(Array), POINTER(Array), _OUT],
    ),
    "trainer_close": (None, [_HANDLE]),
    "trainer_resume": (c_int, [_HANDLE, c_char_p, c_int32]),
    "trainer_name_columns": (c_int, [_HANDLE, _TEXTS, c_int32, _TEXTS, c_int32]),
    "trainer_run": (c_int, [_HANDLE, c_char_p, PROGRESS, c_void_p, POINTER(Result)]),
    "trainer_stop": (c_int, [_HANDLE]),
    "trainer_set_poll": (c_int, [_HANDLE, POLL, c_void_p]),
    "trainer_set_learning_rate": (c_int, [_HANDLE, c_double]),
    "trainer_evaluation": (c_char_p, [_HANDLE]),
    "trainer_evaluate": (c_int, [_HANDLE, POINTER(Result)]),
    "trainer_save": (c_int, [_HANDLE, c_char_p]),
    "learner_create": (c_int, [c_char_p, _TEXTS, c_int32, POINTER(Form), c_int64, c_int64, _OUT]),
    "learner_close": (None, [_HANDLE]),
    "learner_set_learning_rate": (c_int, [_HANDLE, c_double]),
    "learner_step": (c_int, [_HANDLE, POINTER(Array), POINTER(Array), c_int32, POINTER(Step)]),
    "learner_evaluate": (c_int, [_HANDLE, POINTER(Array), POINTER(Array), c_int32, POINTER(Step)]),
    "learner_predict": (c_int, [_HANDLE, POINTER(Array), c_int32, POINTER(DL)]),
    "learner_save": (c_int, [_HANDLE, c_char_p]),
    "set_threads": (c_int, [c_int32]),
    "threads": (c_int32, []),
    "set_log": (None, [LOG, c_void_p]),
    "load_plugin": (c_int, [c_char_p]),
}


def _open_library() -> ctypes.CDLL:
    named = os.environ.get("BITGRAD_LIBRARY")
    path = Path(named) if named else Path(__file__).parent / "lib" / "libbitgrad_c.so"
    if not path.is_file():  # a pipe would never open
        raise ImportError(f"{path} is no file: build the wheel (make wheel), or name the library in BITGRAD_LIBRARY")
    loaded = ctypes.CDLL(str(path))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(loaded, "bitgrad_" + name)
        function.restype, function.argtypes = result, arguments
    found = loaded.bitgrad_abi_version()
    if found != ABI_VERSION:
        raise ImportError(f"{path} has version {found} of the C interface, this package needs {ABI_VERSION}")
    return loaded


_library = _open_library()
_BY_CODE = {2: UsageError, 3: DataError, 5: NonFiniteError}


def function(name: str) -> Any:
    return getattr(_library, "bitgrad_" + name)


def call(name: str, *arguments: Any, work: _calls.Call | None = None) -> None:
    """Calls a function that returns a code; an error becomes an exception, and so does what callbacks of `work` raise."""
    code = (work or _calls.Call()).run(function(name), arguments)
    if code == 0:
        return
    message = function("last_error")().decode("utf-8", "replace")
    if code == 4:
        raise MemoryError(message)
    raise _BY_CODE.get(code, Error)(message, code)


def whole(data: bytes, name: str) -> bytes:
    """data, which C reads to its first NUL byte."""
    if b"\0" in data:
        raise UsageError(f"{name}: got a NUL byte at {data.index(0)}")
    return data


def whole_number(value: Any, name: str, least: int, most: int | None = None) -> int:
    allowed = f"expected a whole number {f'{least} or more' if most is None else f'{least} to {most}'}"
    try:
        number = operator.index(value)
    except TypeError:
        raise UsageError(f"{name}: got {value!r}, {allowed}") from None
    if isinstance(value, bool) or number < least or number > (2**63 - 1 if most is None else most):
        raise UsageError(f"{name}: got {value!r}, {allowed}")
    return number


def real_number(value: Any, name: str) -> float:
    try:
        if not isinstance(value, (str, bytes, bytearray, bool)):
            return float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise UsageError(f"{name}: got {value!r}, expected a number")


def text(value: str | os.PathLike[str], name: str = "path") -> bytes:
    if isinstance(value, (str, bytes)) and not value:
        raise UsageError(f"{name}: got an empty text, expected a {'path' if name == 'path' else name}")
    try:
        return whole(os.fsencode(value), name)
    except TypeError:
        raise UsageError(f"{name}: got {type(value).__name__}, expected a text or a path") from None


def new_file(path: str | os.PathLike[str]) -> bytes:
    target = text(path)
    if os.path.isdir(target):
        raise UsageError(f"path: {os.fspath(path)!r} is a folder, expected a file")
    return target


def texts(values: Sequence[str], name: str) -> Any:
    for value in values:
        if not isinstance(value, str):
            raise UsageError(f"{name}: got {type(value).__name__}, expected texts such as 'optim.lr=0.01'")
    return (c_char_p * max(len(values), 1))(*[whole(value.encode(), name) for value in values])


class Handle:
    """A handle of the library, closed once: by close(), at the end of `with`, or with the object.

    close() may come while another thread uses it, or in a callback: calls at work go on, a run ends at its next step.
    """

    _closer = ""
    _instead = ""  # what to do where it cannot be pickled or copied

    def __init__(self) -> None:
        self._handle = c_void_p()

    def __reduce_ex__(self, _: Any) -> Any:
        raise TypeError(f"a bitgrad.{type(self).__name__} cannot be pickled or copied: {self._instead}")

    def _ready(self) -> c_void_p:
        if not self._handle:
            raise UsageError(f"this {type(self).__name__} is closed")
        return self._handle

    def close(self) -> None:
        """Frees what the library holds for it. Arrays that it returned stay good."""
        handle, self._handle = getattr(self, "_handle", c_void_p()), c_void_p()
        if handle:
            function(self._closer)(handle)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # the interpreter ends
            pass


_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)


def _log(level: int, line: bytes, _: Any) -> None:
    try:
        logging.getLogger("bitgrad").log(_LEVELS[min(max(level, 0), 3)], line.decode("utf-8", "replace"))
    except BaseException as error:
        _calls.keep(error)


_calls.guard(_log.__code__)
_LOG = LOG(_log)
function("set_log")(_LOG, None)
atexit.register(lambda: function("set_log")(LOG(), None))  # after end()
atexit.register(_calls.end)
