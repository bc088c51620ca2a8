"""Arrays in and out without copies: the buffer protocol and DLPack."""

from __future__ import annotations

import array
import ctypes
import logging
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_int64, c_ssize_t, c_void_p, py_object
from typing import Any, Iterator, Sequence

from . import _native
from ._native import DL, FLOAT32, INT32, INT64, MAX_RANK, UINT8, UsageError

_api = ctypes.pythonapi


class _Buffer(Structure):  # Py_buffer, of the stable interface
    _fields_ = [
        ("buf", c_void_p),
        ("obj", c_void_p),
        ("len", c_ssize_t),
        ("itemsize", c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", c_char_p),
        ("shape", POINTER(c_ssize_t)),
        ("strides", POINTER(c_ssize_t)),
        ("suboffsets", POINTER(c_ssize_t)),
        ("internal", c_void_p),
    ]


_RECORDS_RO = 0x0004 | 0x0018  # PyBUF_FORMAT, PyBUF_STRIDES with PyBUF_ND
_get_buffer, _release_buffer = _api.PyObject_GetBuffer, _api.PyBuffer_Release
_get_buffer.argtypes, _get_buffer.restype = [py_object, POINTER(_Buffer), c_int], c_int
_release_buffer.argtypes, _release_buffer.restype = [POINTER(_Buffer)], None

_DLTENSOR = b"dltensor"
_capsule_new, _capsule_get, _capsule_valid = _api.PyCapsule_New, _api.PyCapsule_GetPointer, _api.PyCapsule_IsValid
_DESTRUCTOR = ctypes.PYFUNCTYPE(None, c_void_p)
_capsule_new.argtypes, _capsule_new.restype = [c_void_p, c_char_p, _DESTRUCTOR], py_object
_capsule_get.argtypes, _capsule_get.restype = [py_object, c_char_p], c_void_p
_capsule_valid.argtypes, _capsule_valid.restype = [c_void_p, c_char_p], c_int
_raw_get = ctypes.PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(("PyCapsule_GetPointer", _api))


@_DESTRUCTOR
def _drop_capsule(capsule: int) -> None:
    """A capsule that nobody consumed: its tensor is freed."""
    if _capsule_valid(capsule, _DLTENSOR):
        tensor = ctypes.cast(_raw_get(capsule, _DLTENSOR), DL)
        tensor.contents.deleter(tensor)


class Array:
    """Outputs of a model: fp32 values of any number of axes, in memory of the library.

    `numpy.asarray(a)`, `numpy.from_dlpack(a)` and `torch.from_dlpack(a)` share the memory; `a.tolist()` copies it.
    """

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor
        dl = tensor.contents.dl_tensor
        self.shape: tuple[int, ...] = tuple(dl.shape[i] for i in range(dl.ndim))
        self._address = (dl.data or 0) + dl.byte_offset

    def __del__(self) -> None:
        tensor, self._tensor = getattr(self, "_tensor", None), None
        if tensor:
            tensor.contents.deleter(tensor)

    def __reduce_ex__(self, _: Any) -> Any:
        raise TypeError("a bitgrad.Array cannot be pickled or copied: numpy.array(a) and a.tolist() can")

    def __dlpack__(self, *, stream: Any = None, **_: Any) -> Any:
        shared = DL()
        _native.call("dlpack_share", self._tensor, byref(shared))
        return _capsule_new(ctypes.cast(shared, c_void_p), _DLTENSOR, _drop_capsule)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"version": 3, "typestr": "<f4", "shape": self.shape, "data": (self._address, False)}

    @property
    def dtype(self) -> str:
        return "float32"

    def memoryview(self) -> memoryview:
        """A view of the memory, which it keeps alive."""
        count = self._count()
        memory = (ctypes.c_float * count).from_address(self._address) if count else (ctypes.c_float * 0)()
        memory._owner = self  # type: ignore[attr-defined]
        flat = memoryview(memory).cast("B")
        return flat.cast("f", self.shape) if count else flat.cast("f")

    def tolist(self) -> Any:
        if not self._count():
            return []
        return self.memoryview().tolist()

    def _count(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __repr__(self) -> str:
        return f"bitgrad.Array(shape={self.shape}, dtype=float32)"


class Input:
    """An array of the caller as the library reads it; it keeps the caller's memory alive."""

    def __init__(self, x: Any, name: str, floats: bool = False) -> None:
        """floats: of lists of numbers, those that are whole too."""
        self.array = _native.Array()
        self._buffer: _Buffer | None = None
        if hasattr(x, "to_numpy"):
            x = _of_frame(x, name, floats)
        x = _plain_array(x, name)
        self._keep: Any = x
        self._floats = floats
        if isinstance(x, (list, tuple)):
            if not x:
                raise UsageError(f"{name}: got an empty list, expected at least one sample")
            x = _of_list(x, name, floats)
        if not self._of_buffer(x, name) and not self._of_dlpack(x, name):
            raise UsageError(
                f"{name}: got {type(x).__name__}, expected an array: of NumPy, PyTorch, anything with the buffer "
                "protocol or DLPack, or a list of numbers"
            )

    @property
    def pointer(self) -> Any:
        return byref(self.array)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape[: self.array.rank])

    @property
    def is_bytes(self) -> bool:
        return bool(self.array.dtype == UINT8)

    def _set(self, address: int, dtype: int, shape: Sequence[int], name: str) -> None:
        if not 1 <= len(shape) <= MAX_RANK:
            raise UsageError(f"{name}: got {len(shape)} axes, expected 1 to {MAX_RANK}")
        self.array.data, self.array.dtype, self.array.rank = address, dtype, len(shape)
        self.array.shape[: len(shape)] = list(shape)

    def _of_buffer(self, x: Any, name: str) -> bool:
        buffer = _Buffer()
        try:
            if _get_buffer(x, byref(buffer), _RECORDS_RO) != 0:
                return False
        except (TypeError, BufferError, ValueError):
            return False
        self._buffer, self._keep = buffer, x
        shape = [buffer.shape[i] for i in range(buffer.ndim)]
        dtype = _dtype_of((buffer.format or b"B").decode(), buffer.itemsize)
        step, packed = buffer.itemsize, True
        for i in reversed(range(buffer.ndim)):
            packed = packed and (buffer.strides[i] == step or shape[i] <= 1)
            step *= shape[i]
        if dtype is not None and packed:
            self._set(buffer.buf or 0, dtype, shape, name)
            return True
        self._release()
        kind = (buffer.format or b"B").decode().lstrip("<>=@|!")
        if not hasattr(x, "astype") or kind not in "efdbBhHiIlLqQ?":
            raise UsageError(
                f"{name}: got elements of format '{kind}'{'' if packed else ', not row-major'}, expected float32, uint8, "
                "int32 or int64 in rows"
            )
        wanted = "float32" if kind in "efd" else "uint8" if kind in "B?" else "int64"
        if kind == "?" and self._floats:  # 0 and 1, not pixels
            wanted = "float32"
        if kind == "d":
            _warn_of_merged(x, name)
        return self._of_buffer(x.astype(wanted, order="C"), name)

    def _of_dlpack(self, x: Any, name: str) -> bool:
        if not hasattr(x, "__dlpack__"):
            return False
        x = _plain_tensor(x, self._floats)
        capsule = x.__dlpack__()
        tensor = ctypes.cast(_capsule_get(capsule, _DLTENSOR), DL)
        self._keep = (x, capsule)
        try:
            _native.call("array_of_dlpack", tensor, byref(self.array))
        except UsageError as error:
            raise UsageError(f"{name}: {error}", error.code) from None
        return True

    def _release(self) -> None:
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            _release_buffer(byref(buffer))

    def __del__(self) -> None:
        if getattr(self, "_buffer", None) is not None:
            self._release()


def _dtype_of(format: str, size: int) -> int | None:
    if format.startswith((">", "!")) and size > 1:
        return None
    kind = format.lstrip("<=@|")
    if kind == "f":
        return FLOAT32
    if kind == "B":
        return UINT8
    if kind in ("i", "l", "q"):
        return {4: INT32, 8: INT64}.get(size)
    return None


def _plain_tensor(x: Any, floats: bool) -> Any:
    """A tensor of PyTorch as one that DLPack takes, without a copy where it is one already."""
    if getattr(x, "requires_grad", False):
        x = x.detach()
    if hasattr(x, "is_contiguous") and not x.is_contiguous():
        x = x.contiguous()
    dtype = str(getattr(x, "dtype", ""))
    if dtype in ("torch.float64", "torch.float16", "torch.bfloat16") or (dtype == "torch.bool" and floats):
        x = x.float()
    elif dtype in ("torch.int8", "torch.int16", "torch.bool"):
        x = x.long()
    return x


_SAME_FROM = 1 << 24  # fp32 holds every whole number up to here


def _warn_of_merged(x: Any, name: str, columns: Sequence[Any] = ()) -> None:
    """Of an array [n, ...] of NumPy: different whole numbers of a feature that are one in fp32, such as ids."""
    if not x.ndim or not x.size or not (abs(x) > _SAME_FROM).any():
        return
    for feature, cells in enumerate(x.reshape(len(x), -1).T):
        values = sorted({int(value) for value in cells.tolist() if abs(value) < 2**63 and value == int(value)})
        near = array.array("f", values)
        pairs = [i for i in range(1, len(near)) if near[i] == near[i - 1]]
        if pairs:
            logging.getLogger("bitgrad").warning(
                "%s: %s: %d of %d different values are equal to their neighbor in fp32, such as %d and %d: an id or a time? "
                "Leave it out, or subtract what is common",
                name, f"column {columns[feature]!r}" if columns else f"value {feature} of each sample",
                len(pairs), len(values), values[pairs[0] - 1], values[pairs[0]],
            )  # fmt: skip
            return


_OF_TIMES = "{0}.astype('int64') counts units of time: subtract the first, so that float32 holds them"
_OF_NAMES = "Names of classes: numpy.unique({0}, return_inverse=True)[1]"
_INSTEAD = {  # by the kind of a dtype
    "M": _OF_TIMES,
    "m": _OF_TIMES,
    "O": "{0}.astype('float32') if they are numbers. " + _OF_NAMES,
    "c": "numpy.stack([{0}.real, {0}.imag], axis=-1)",
    "U": _OF_NAMES,
    "S": _OF_NAMES,
}


def _plain_array(x: Any, name: str) -> Any:
    """An array of NumPy that hides nothing and holds numbers; other objects as they are."""
    if hasattr(x, "filled") and hasattr(x, "mask"):
        hidden = int(x.mask.sum())
        if hidden:
            raise UsageError(
                f"{name}: got a masked array that hides {hidden} values, expected plain values: {name}.filled(0) puts a "
                "number in their place"
            )
        x = x.filled()
    kind = getattr(getattr(x, "dtype", None), "kind", None)
    if isinstance(kind, str) and kind not in "biuf":
        instead = _INSTEAD.get(kind, "{0}.astype('float32')")
        if kind in "US" and name.startswith("x"):
            instead = "Names: a column of 0 and 1 for each of them"
        instead = instead.format(name)
        raise UsageError(f"{name}: got elements of {x.dtype}, expected numbers. {instead}")
    return x


def _of_frame(x: Any, name: str, floats: bool) -> Any:
    """A table or column of pandas (or another package) as an array of NumPy: numbers and booleans are its values."""
    columns = list(zip(x.columns, x.dtypes)) if hasattr(x, "columns") else [(getattr(x, "name", None), x.dtype)]
    kinds = [getattr(dtype, "kind", "O") for _, dtype in columns]
    for (column, dtype), kind in zip(columns, kinds):
        if kind not in "biuf":
            what = f"{name}: column {column!r} holds {dtype}, expected numbers"
            if name.startswith("y"):
                raise UsageError(f"{what}. Classes of names: y.astype('category').cat.codes")
            if kind in "mM":
                raise UsageError(f"{what}. Times: (column - column.min()) / pandas.Timedelta(days=1), or leave it out")
            raise UsageError(f"{what}. Columns of names: pandas.get_dummies(x, dtype='float32')")
    whole = not floats and all(kind in "iub" for kind in kinds)
    if not whole:
        wide = all(str(dtype) in ("int32", "int64", "uint32", "uint64") for _, dtype in columns)  # as integers
        _warn_of_merged(x.to_numpy(dtype=None if wide else "float64"), name, [column for column, _ in columns])
    return x.to_numpy(dtype="int64" if whole else "float32")


def _of_list(x: Any, name: str, floats: bool) -> Any:
    """Nested lists of numbers, as a memoryview of float32, or of int64 where all are whole."""
    shape: list[int] = []
    level = x
    while isinstance(level, (list, tuple)):
        shape.append(len(level))
        level = level[0] if level else None
    flat: list[Any] = []

    def collect(part: Any, depth: int) -> None:
        if depth == len(shape):
            if isinstance(part, bool) or not isinstance(part, (int, float)):
                raise UsageError(f"{name}: got {type(part).__name__} in a list, expected numbers")
            flat.append(part)
            return
        if not isinstance(part, (list, tuple)) or len(part) != shape[depth]:
            raise UsageError(f"{name}: the lists have different lengths, expected {shape[depth]} at depth {depth}")
        for item in part:
            collect(item, depth + 1)

    collect(x, 0)
    whole = not floats and all(isinstance(value, int) for value in flat)
    values = array.array("q" if whole else "f", flat)
    if not flat:
        return memoryview(values)
    return memoryview(values).cast("B").cast(values.typecode, shape)


def like(outputs: Array, x: Any) -> Any:
    """Outputs as the kind of array that the caller gave: NumPy, PyTorch, else as they are."""
    module = type(x).__module__.split(".")[0]
    if module == "numpy" or hasattr(x, "to_numpy"):
        import numpy

        return numpy.asarray(outputs)
    if module == "torch":
        import torch

        return torch.from_dlpack(outputs)
    return outputs
