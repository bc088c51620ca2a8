"""A line of progress: in a notebook, on a terminal, or nowhere."""

from __future__ import annotations

import html
import sys
import time
from typing import Any

_EVERY = 0.1  # seconds between two drawings


def _notebook() -> bool:
    shell = sys.modules.get("IPython")
    found = shell.get_ipython() if shell is not None else None
    return type(found).__name__ in ("ZMQInteractiveShell", "Shell")


class Progress:
    """Draws events of a run; close() leaves the last line."""

    def __init__(self, mode: bool | str) -> None:
        self._mode = mode if isinstance(mode, str) else "auto" if mode else "off"
        if self._mode == "auto":
            self._mode = "notebook" if _notebook() else "terminal" if sys.stderr.isatty() else "off"
        if self._mode not in ("notebook", "terminal", "off"):
            raise ValueError(f"progress: got '{mode}', expected True, False, 'notebook', 'terminal' or a function")
        self._next, self._width = 0.0, 0
        self._line, self._evaluation, self._part = "", "", 0.0
        self._display: Any = None

    def __call__(self, event: Any) -> None:
        if self._mode == "off":
            return
        if event.kind == "evaluation":
            self._evaluation = f" · test loss {event.loss:.4f}"
            if event.accuracy >= 0:
                self._evaluation += f", {event.accuracy:.2f} %"
            self._next = 0.0
        else:
            self._part = event.step / event.steps_total if event.steps_total else 0.0
            self._line = f"step {event.step}/{event.steps_total} · loss {event.loss:.4f}"
            if event.accuracy >= 0:
                self._line += f", {event.accuracy:.1f} %"
            self._line += f" · {event.samples_per_second:,.0f} samples/s · {event.eta_seconds:.0f} s left"
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _EVERY
            self._draw()

    def _draw(self) -> None:
        text = self._line + self._evaluation
        if self._mode == "terminal":
            sys.stderr.write("\r" + text.ljust(self._width))
            sys.stderr.flush()
            self._width = len(text)
            return
        from IPython.display import HTML, display

        shown = HTML(
            f'<progress max="1" value="{self._part:.4f}" style="width:16em"></progress> <code>{html.escape(text)}</code>'
        )
        if self._display is None:
            self._display = display(shown, display_id=True)
        else:
            self._display.update(shown)

    def close(self) -> None:
        if self._mode == "off" or not self._line:
            return
        self._draw()
        if self._mode == "terminal":
            sys.stderr.write("\n")
