"""Texts of a language model, token by token."""

from __future__ import annotations

import ctypes
import json
from dataclasses import dataclass
from typing import Any, Iterator, NamedTuple

from . import _native


class Token(NamedTuple):
    """An id and the text that it completed, in whole characters. id -1: text that was held back comes last."""

    id: int
    text: str


@dataclass(frozen=True)
class Text:
    """What a model wrote.

    text: None without a tokenizer. ids: those drawn. stop: "tokens", "end_of_text" or "stop"; None: it was left before
    its end. prompt_tokens: ids of the prompt, of which the first `dropped` did not fit the context of the model.
    """

    text: str | None
    ids: tuple[int, ...]
    stop: str | None
    prompt_tokens: int
    dropped: int


class Stream(_native.Handle):
    """An iterator of the tokens of one text; `result` is what was written until now."""

    _closer = "generator_close"
    _instead = "iterate over it, and pickle its result"

    def __init__(self, model: Any, options: bytes) -> None:
        super().__init__()
        _native.call("generator_create", model, options, ctypes.byref(self._handle))

    def __iter__(self) -> Iterator[Token]:
        return self

    def __next__(self) -> Token:
        token = _native.Token()
        while True:
            _native.call("generator_next", self._ready(), ctypes.byref(token))
            if token.text is None:
                raise StopIteration
            text = ctypes.string_at(token.text, token.length).decode()
            if token.id >= 0 or text:  # else a piece of the prompt was read
                return Token(token.id, text)

    @property
    def result(self) -> Text:
        found = _native.function("generator_result")(self._ready())
        if found is None:
            raise _native.UsageError(_native.function("last_error")().decode())
        told = json.loads(found)
        return Text(told["text"], tuple(told["ids"]), told["stop"], told["prompt_tokens"], told["dropped"])

    def again(self) -> None:
        """Begins the next text of the same prompt, which is not read again."""
        _native.call("generator_again", self._ready())
