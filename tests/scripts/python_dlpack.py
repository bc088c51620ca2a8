"""A consumer of DLPack by ctypes alone, without NumPy: what bitgrad.Array gives out, and who frees it.

    python_dlpack.py FOLDER
"""

import ctypes
import gc
import pathlib
import sys
from ctypes import c_char_p, c_int, c_void_p, py_object

import bitgrad
from bitgrad import _native

api = ctypes.pythonapi
get_pointer, get_name, set_name = api.PyCapsule_GetPointer, api.PyCapsule_GetName, api.PyCapsule_SetName
get_pointer.argtypes, get_pointer.restype = [py_object, c_char_p], c_void_p
get_name.argtypes, get_name.restype = [py_object], c_char_p
set_name.argtypes, set_name.restype = [py_object, c_char_p], c_int
USED = b"used_dltensor"  # lives as long as the capsules

freed = []


class Counted:
    """A tensor whose deleter is counted, then called."""

    def __init__(self, tensor):
        self.own = _native.DELETER(ctypes.cast(tensor.contents.deleter, c_void_p).value)  # no view of the field
        self.counting = _native.DELETER(self.call)
        tensor.contents.deleter = self.counting

    def call(self, tensor):
        freed.append(ctypes.cast(tensor, c_void_p).value)
        self.own(tensor)


def tensor_of(capsule):
    return ctypes.cast(get_pointer(capsule, b"dltensor"), _native.DL)


config = "version: 1\nmodel: {layers: [{linear: {out: 3}}]}\noptim: {name: sgd, lr: 0.1}\ntrain: {stop: 1 steps}\n"
learner = bitgrad.Learner(config, (4,), 3)
y = learner.predict([[1, 2, 3, 4], [5, 6, 7, 8]])
assert y.__dlpack_device__() == (1, 0)
capsule = y.__dlpack__()
assert type(capsule).__name__ == "PyCapsule" and get_name(capsule) == b"dltensor"
tensor = tensor_of(capsule)
dl = tensor.contents.dl_tensor
assert (dl.device.device_type, dl.device.device_id) == (1, 0) and dl.byte_offset == 0
assert (dl.dtype.code, dl.dtype.bits, dl.dtype.lanes) == (2, 32, 1)  # kDLFloat
assert dl.ndim == 2 and [dl.shape[i] for i in range(2)] == [2, 3] == list(y.shape)
assert not dl.strides or [dl.strides[i] for i in range(2)] == [3, 1]
assert dl.data == y._address and list(ctypes.cast(dl.data, ctypes.POINTER(ctypes.c_float))[:6]) == sum(y.tolist(), [])

# A capsule that nobody took: freed with it, once.
counted = [Counted(tensor)]
address = ctypes.cast(tensor, c_void_p).value
del capsule
gc.collect()
assert freed == [address]

# A consumed one is renamed: the consumer frees it, once, and the memory lives until then.
capsule = y.__dlpack__()
tensor = tensor_of(capsule)
counted.append(Counted(tensor))
values = y.tolist()
assert set_name(capsule, USED) == 0
del capsule, y
gc.collect()
assert len(freed) == 1
learner.close()
taken = tensor.contents.dl_tensor
assert list(ctypes.cast(taken.data, ctypes.POINTER(ctypes.c_float))[:6]) == sum(values, [])
tensor.contents.deleter(tensor)
assert len(freed) == 2


class Producer:
    """Another package's tensor: its capsule goes to bitgrad, which borrows it."""

    def __init__(self, array, strides=None):
        self.capsules, self.array, self.strides = 0, array, strides

    def __dlpack__(self, **_):
        self.capsules += 1
        capsule = self.array.__dlpack__()
        tensor = tensor_of(capsule)
        counted.append(Counted(tensor))
        if self.strides:
            tensor.contents.dl_tensor.strides = self.strides
        return capsule

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


learner = bitgrad.Learner(config, (3,), 3)
array = bitgrad.Learner(config, (4,), 3).predict([[1, 2, 3, 4], [5, 6, 7, 8]])
producer = Producer(array)
assert learner.predict(producer).tolist() == learner.predict(array).tolist() == learner.predict(array.tolist()).tolist()
gc.collect()
assert producer.capsules == 1 and len(freed) == 3 and len(set(map(id, counted))) == 3
turned = Producer(array, (ctypes.c_int64 * 2)(1, 2))
try:
    learner.predict(turned)
    raise AssertionError("no error")
except bitgrad.UsageError as error:
    assert "row" in str(error), error
gc.collect()
assert len(freed) == 4
assert "numpy" not in sys.modules and pathlib.Path(sys.argv[1]).is_dir()
