"""As much of PyTorch as scripts/gpu_peers.py calls, without numbers: each launch of a product takes 2 ms, and
torch._scaled_mm is refused."""
import contextlib

__version__ = "0.fake"
bfloat16, float32, int8, float8_e4m3fn = "bfloat16", "float32", "int8", "float8_e4m3fn"


class Tensor:
    grad = None

    def backward(self, gy):
        launched(2)

    def __mul__(self, other):
        return self

    def _same(self, *args, **named):
        return self

    t = to = float = bfloat16 = requires_grad_ = _same


_launches = [0]


def launched(count=1):
    _launches[0] += count


def randn(*shape, device):
    return Tensor()


rand = randn


def randint(low, high, shape, device, dtype):
    return Tensor()


def matmul(a, b):
    launched()
    return Tensor()


_int_mm = matmul


def _scaled_mm(a, b, scale_a, scale_b, out_dtype):
    raise RuntimeError("no fp8\non this device")


def compile(function):
    return function


def manual_seed(seed):
    pass


def autocast(kind, dtype):
    return contextlib.nullcontext()


class nn:
    class Linear:
        def __init__(self, n_in, n_out, bias, device, dtype):
            self.weight = Tensor()

        def parameters(self):
            return [self.weight]

        def __call__(self, x):
            launched()
            return Tensor()


class optim:
    class Adam:
        def __init__(self, parameters, lr, fused):
            pass

        def zero_grad(self, set_to_none):
            pass

        def step(self):
            launched()


class cuda:
    class Event:
        def __init__(self, enable_timing):
            self.at = 0

        def record(self):
            self.at = _launches[0]

        def elapsed_time(self, end):
            return 2.0 * (end.at - self.at)

    @staticmethod
    def is_available():
        return True

    @staticmethod
    def get_device_name(index):
        return "fake device"

    @staticmethod
    def synchronize():
        pass

    @staticmethod
    def empty_cache():
        pass
