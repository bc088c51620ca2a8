"""Conversations as ids with labels, by the chat template of a tokenizer of transformers."""

from __future__ import annotations

import json
import os
import re
from typing import Any, Iterable, Iterator

from ._config import Path
from ._native import DataError, UsageError

_IGNORED = -100  # labels of ids that are no targets


def _lines(path: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The conversations of a file of JSON lines, each with the place that errors name."""
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            where = f"[tokenize_chat] {os.fspath(path)}, line {number}"
            if not line.strip():
                continue
            try:
                found = json.loads(line)
            except ValueError as error:
                raise DataError(f"{where}: {error}", 3) from None
            messages = found.get("messages") if isinstance(found, dict) else None
            if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
                raise DataError(f'{where}: got no conversation, expected {{"messages": [{{"role", "content"}}, ...]}}', 3)
            yield where, messages


def _marked(tokenizer: Any, messages: list[dict[str, Any]], template: dict[str, Any]) -> tuple[list[int], list[bool]]:
    """Ids, and which of them the template marks as answers by its tags {% generation %}."""
    found = tokenizer.apply_chat_template(
        messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True, **template)
    return list(found["input_ids"]), [x == 1 for x in found["assistant_masks"]]


def _all(tokenizer: Any, messages: list[dict[str, Any]], template: dict[str, Any]) -> tuple[list[int], list[bool]]:
    found = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True, **template)["input_ids"]
    return list(found), [True] * len(found)


def _found(tokenizer: Any, messages: list[dict[str, Any]], template: dict[str, Any],
           where: str) -> tuple[list[int], list[bool]]:
    """Ids, and which of them are answers with the mark that ends each: what the template adds to the text before."""

    def render(part: list[dict[str, Any]], **more: Any) -> str:
        return str(tokenizer.apply_chat_template(part, tokenize=False, **template, **more)) if part else ""

    text = render(messages)
    spans = []
    for i, message in enumerate(messages):
        if message.get("role") != "assistant":
            continue
        before, through = render(messages[:i], add_generation_prompt=True), render(messages[: i + 1]).rstrip()
        if not (text.startswith(through) and through.startswith(before)):
            raise DataError(f"{where}, message {i}: the template writes it in another way when messages follow, so its "
                            "answers are not found. Mark them in the template by {% generation %}, or use loss_on='all'", 3)
        spans.append((len(before), len(through)))
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    # As transformers marks them: a token with a character of an answer belongs to it.
    answers = [any(begin < last and first < end for first, last in spans) for begin, end in encoded["offset_mapping"]]
    return list(encoded["input_ids"]), answers


def _last_only(answers: list[bool]) -> list[bool]:
    """Those of the last run of answers."""
    end = len(answers) - answers[::-1].index(True) if True in answers else 0
    begin = end
    while begin > 0 and answers[begin - 1]:
        begin -= 1
    return [begin <= i < end for i in range(len(answers))]


def tokenize_chat(files: Path | Iterable[Path], tokenizer: Any, out: Path, *, loss_on: str = "answers",
                  **template: Any) -> dict[str, int]:
    """Writes conversations to `out` (.npz): ids, and labels, which are -100 where an id is no target.

    files: JSON lines {"messages": [{"role", "content"}, ...]}. tokenizer: a fast tokenizer of transformers, or the
    folder of one. loss_on: "answers", "last_answer" or "all". Other keywords go to the template, such as tools=[...].
    Answers are what the template marks by {% generation %}; without these tags, what it adds to the messages before.
    The file is read by `data.train: {format: tokens, stored: npz, file: out.npz, ...}`. Returns the numbers of
    conversations, ids and targets. Needs NumPy and transformers.
    """
    import numpy

    if loss_on not in ("answers", "last_answer", "all"):
        raise UsageError(f"[tokenize_chat] loss_on: got {loss_on!r}, expected answers, last_answer or all")
    if isinstance(tokenizer, (str, os.PathLike)):
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(os.fspath(tokenizer), local_files_only=True)
    text = getattr(tokenizer, "chat_template", None)
    if not isinstance(text, str):
        raise UsageError("[tokenize_chat] tokenizer: got one without a chat_template, expected one with it")
    marks = re.search(r"{%-?\s*generation\s*-?%}", text) is not None
    ids: list[int] = []
    labels: list[int] = []
    conversations = 0
    for path in [files] if isinstance(files, (str, os.PathLike)) else list(files):
        for where, messages in _lines(path):
            if loss_on == "all":
                own, answers = _all(tokenizer, messages, template)
            elif marks:
                own, answers = _marked(tokenizer, messages, template)
            else:
                own, answers = _found(tokenizer, messages, template, where)
            if loss_on == "last_answer":
                answers = _last_only(answers)
            ids += own
            labels += [x if target else _IGNORED for x, target in zip(own, answers)]
            conversations += 1
    if not ids:
        raise DataError("[tokenize_chat] got no conversation, expected lines with one", 3)
    numpy.savez(os.fspath(out), ids=numpy.asarray(ids, numpy.int32), labels=numpy.asarray(labels, numpy.int32))
    return {"conversations": conversations, "ids": len(ids), "targets": sum(x != _IGNORED for x in labels)}
