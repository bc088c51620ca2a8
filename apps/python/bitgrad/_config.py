"""Configurations and overrides as the texts that the library reads."""

from __future__ import annotations

import json
import os
from typing import Any, Mapping, Sequence, Union

from . import _native
from ._native import UsageError

Path = Union[str, "os.PathLike[str]"]
Config = Union[str, "os.PathLike[str]", Mapping[str, Any]]
Overrides = Union[Mapping[str, Any], Sequence[str]]


def _plain(value: Any) -> Any:
    """Values of a dict that JSON does not know: numbers of NumPy, paths."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"got {type(value).__name__}")


def json_text(value: Any, name: str) -> str:
    try:
        return json.dumps(value, default=_plain)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name}: {error}, expected texts, numbers, booleans, lists and dicts") from None


def config_text(config: Config) -> bytes:
    if isinstance(config, Mapping):
        return json_text(dict(config), "config").encode()
    if isinstance(config, os.PathLike) or (isinstance(config, str) and config.endswith((".yaml", ".yml", ".json"))):
        with open(config, "rb") as file:
            return _native.whole(file.read(), str(config))
    if not isinstance(config, str):
        raise UsageError(f"config: got {type(config).__name__}, expected YAML text, a path that ends in .yaml, or a dict")
    return _native.whole(config.encode(), "config")


def override_texts(overrides: Overrides | None) -> list[str]:
    if overrides is None:
        return []
    if isinstance(overrides, Mapping):
        items = overrides.items()
        return [f"{key}={value if isinstance(value, str) else json_text(value, 'overrides')}" for key, value in items]
    if isinstance(overrides, str):
        raise UsageError(f"overrides: got a text, expected a list of texts such as [{overrides!r}], or a dict")
    return list(overrides)
