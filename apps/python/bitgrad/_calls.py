"""Calls at work: what signal handlers raise meanwhile is not lost, and the interpreter ends after them.

ctypes prints and drops what leaves a callback, and CPython runs the handlers of signals (Ctrl-C) where the next Python
function begins, which is a callback. Handlers therefore keep what they raise in frames of callbacks; the run ends, and
the call raises it.
"""

from __future__ import annotations

import _signal  # without frames of Python, in which a handler would raise
import os
import signal
import threading
import time
from types import FrameType
from typing import Any, Callable

_GRACE = 1.0  # seconds that callbacks get at the end of the interpreter

_kept: list[BaseException] = []  # raised by signal handlers; of the main thread
_depth = 0  # of calls of the main thread
_at_work: set[Call] = set()
_ending = _ended = False
_frames: set[Any] = set()  # code in whose frames handlers may not raise


def _in_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident


def _drops(frame: FrameType) -> bool:
    """Whether what is raised in it goes nowhere: in a callback, or in a __del__ that the collector runs anywhere."""
    if frame.f_code in _frames:
        return True
    caller: FrameType | None = frame
    while caller is not None and caller.f_code.co_name != "__del__":
        caller = caller.f_back
    return caller is not None


def _keeping(old: Any) -> Any:
    def handler(number: int, frame: FrameType | None) -> None:
        if frame is None or not _drops(frame):
            old(number, frame)
            return
        try:
            old(number, frame)
        except BaseException as error:
            _kept.append(error)

    handler._bitgrad_old = old  # type: ignore[attr-defined]
    return handler


def _hold_signals() -> None:
    for number in _HANDLED:
        old = _signal.getsignal(number)
        if callable(old):
            _signal.signal(number, _keeping(old))


def _release_signals() -> None:
    for number in _HANDLED:
        old = getattr(_signal.getsignal(number), "_bitgrad_old", None)
        if old is not None:  # else a callback set another
            _signal.signal(number, old)


_HANDLED = [int(getattr(signal, "SIG" + name)) for name in "INT TERM ALRM HUP QUIT USR1 USR2".split()]


class Call:
    """One call of the library that may take long, or call back."""

    def __init__(self) -> None:
        self.raised: list[BaseException] = []
        self.inside = False  # in a function of the program

    def stops(self) -> bool:
        return bool(self.raised or _ending or (_kept and _in_main_thread()))

    def callback(self, tell: Callable[..., object]) -> Callable[..., int]:
        """tell as a callback that returns 1 to stop: if tell returns True or raises, or a signal handler did."""

        def back(*arguments: Any) -> int:
            try:
                if self.stops():
                    return 1
                self.inside = True
                return int(tell(*arguments) is True)
            except BaseException as error:
                self.raised.append(error)
                return 1
            finally:
                self.inside = False
                while _ended:  # the library is not entered again
                    self.inside = True
                    time.sleep(3600)

        _frames.add(back.__code__)
        return back

    def run(self, function: Callable[..., int], arguments: tuple[Any, ...]) -> int:
        """Its code; raises what was raised meanwhile."""
        global _depth
        main = False
        try:
            main = _in_main_thread()
            if main:
                _depth += 1
                if _depth == 1:
                    _kept.clear()
                    _hold_signals()
            _at_work.add(self)
            if _ending:
                raise RuntimeError("bitgrad: the interpreter ends")
            code = function(*arguments)
        finally:
            _at_work.discard(self)
            if main:
                _depth -= 1
                if _depth == 0:
                    _release_signals()
        errors, self.raised = self.raised, []
        if main:
            errors += _kept
            errors.sort(key=lambda error: isinstance(error, Exception))  # first Ctrl-C and what else ends a program
            if _depth == 0:
                _kept.clear()
        if errors:
            try:
                raise errors[0]
            finally:
                del errors  # its frames hold handles, which the collector would close later, anywhere
        return code


_frames.update(f.__code__ for f in (Call.run, Call.stops, _hold_signals, _release_signals, _in_main_thread))


def keep(error: BaseException) -> None:
    """An exception in a callback that has no call to tell; printed where no call of the main thread is at work."""
    if _depth == 0 or not _in_main_thread():
        raise error
    _kept.append(error)


def guard(code: Any) -> None:
    _frames.add(code)


def end() -> None:
    """Runs of other threads stop at their next step. A callback that does not return is left where it is."""
    global _ending, _ended
    _ending = True
    until = time.monotonic() + _GRACE
    while any(not call.inside or time.monotonic() < until for call in list(_at_work)):
        time.sleep(0.002)
    _ended = True
    while any(not call.inside for call in list(_at_work)):
        time.sleep(0.002)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_at_work.clear)
