"""Tables with named columns, such as DataFrames of pandas: their columns are found by name, as those of CSV files."""

from __future__ import annotations

import array
import csv
import io
import logging
import math
from typing import Any, Mapping, Sequence

from ._native import UsageError


def columns_of(x: Any, name: str) -> list[str] | None:
    """The names of a table's columns; None: x has none, as an array, or a column alone."""
    if not hasattr(x, "to_numpy") or not hasattr(x, "columns"):
        return None
    names = [str(column) for column in x.columns]
    for i, column in enumerate(names):
        if column in names[:i]:
            raise UsageError(f"{name}: got two columns {column!r}, expected names that differ")
    return names


def target_names(y: Any, features: Sequence[str]) -> list[str]:
    """The names of a table's columns, or of a column; none where a table could not have them beside those of x.

    So it is for targets that are columns of x too, as in an autoencoder, and for a class at each of several positions.
    """
    names = columns_of(y, "y")
    if names is None:
        return [str(y.name)] if getattr(y, "name", None) not in (None, *features) and hasattr(y, "to_numpy") else []
    positions = len(names) > 1 and all(getattr(dtype, "kind", "O") in "biu" for dtype in y.dtypes)
    return [] if positions or set(names) & set(features) else names


def in_order(x: Any, columns: Sequence[str] | None, name: str) -> Any:
    """A table with its columns in the order of `columns`, found by name; x itself where one of the two has no names."""
    names = columns_of(x, name)
    if columns is None or names is None or names == list(columns):
        return x
    labels = dict(zip(names, x.columns))
    for column in columns:
        if column not in labels:
            raise UsageError(f"{name}: got no column {column!r}, expected {_few(columns)}")
    extra = [column for column in names if column not in set(columns)]
    if extra:
        raise UsageError(f"{name}: got columns that are not in x: {_few(extra)}, expected {_few(columns)}")
    return x[[labels[column] for column in columns]]


def numbers(x: Any, plan: Mapping[str, Any]) -> Any:
    """The features of a table as an array of float32; None where they need more than to be found, as names and gaps do."""
    columns = [column for column in plan["columns"] if column.get("use", "feature") == "feature"]
    names = columns_of(x, "x") or []
    if not plan["header"] or any("categories" in column for column in columns):
        return None
    labels = dict(zip(names, x.columns))
    if set(names) - {column["name"] for column in plan["columns"]} or any(c["name"] not in labels for c in columns):
        return None
    features = x[[labels[column["name"]] for column in columns]]
    if any(getattr(dtype, "kind", "O") not in "biuf" for dtype in features.dtypes):
        return None
    values = features.to_numpy(dtype="float32", na_value=math.nan)
    return None if (values != values).any() else values


def csv_text(x: Any, plan: Mapping[str, Any]) -> bytes:
    """A table as the CSV text that a model with this plan of columns reads."""
    known = {column["name"]: column for column in plan["columns"]}
    used = []
    for name, label in zip(columns_of(x, "x") or [], x.columns):
        column = known.get(name, {}) if plan["header"] else {}
        if column.get("use", "feature") == "feature":
            used.append((name, x[label], set(column.get("categories", ()))))
    out = io.StringIO()
    writer = csv.writer(out, delimiter=plan["separator"], lineterminator="\n")
    if plan["header"]:
        writer.writerow([name for name, _, _ in used])
    cells = [[_text(value, plan["decimal"], names) for value in column.to_list()] for _, column, names in used]
    writer.writerows(zip(*cells))
    return out.getvalue().encode()


def _text(value: Any, decimal: str, names: set[str]) -> str:
    if hasattr(value, "item"):
        value = value.item()
    if value is None or str(value) in ("<NA>", "NaT", "nan"):
        return ""
    if str(value) in names:
        return str(value)
    if isinstance(value, bool) and not names:
        return str(int(value))
    if isinstance(value, float) and names and value.is_integer():  # whole numbers beside gaps
        return str(int(value))
    if isinstance(value, float):
        near = array.array("f", [value])[0]
        return repr(near if math.isfinite(near) else value).replace(".", decimal)
    return str(value)


def warn_about_order(what: str) -> None:
    logging.getLogger("bitgrad").warning("%s: those of the table are taken in their order", what)


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (" ..." if len(names) > 8 else "")
