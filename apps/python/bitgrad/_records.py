"""What models and runs tell of themselves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping


@dataclass(frozen=True)
class Form:
    """The input of a model: shape of one sample, dtype ("float32", or "int32" for ids), and how many ids there are."""

    shape: tuple[int, ...]
    dtype: str
    ids: int = 0


@dataclass(frozen=True)
class Output:
    """The outputs of one sample: what they are, and whether softmax or sigmoid of them are probabilities."""

    shape: tuple[int, ...]
    task: str
    probabilities: bool
    names: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Event:
    """What a run tells of itself; kind: "step" or "evaluation". accuracy in percent, -1: targets are values.

    Of an evaluation: split ("test", "valid", "train"), metrics (all that fit the task), best: the best model so far,
    final: of the best model on x_test, where data.valid chose it.
    """

    kind: str
    step: int
    epoch: int
    steps_total: int
    epochs_total: int
    loss: float
    accuracy: float
    learning_rate: float
    samples_per_second: float
    seconds: float
    eta_seconds: float
    split: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    best: bool = False
    final: bool = False


@dataclass(frozen=True)
class Evaluation:
    """accuracy in percent, -1: targets are values. split: "test", "valid" or "train"; metrics: all that fit the task."""

    loss: float
    accuracy: float
    samples: int
    split: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """What a run came to. evaluation: of its last step; None: there was none.

    skipped_windows: those of batch.global samples in which no target counts, without an update.
    """

    evaluation: Evaluation | None
    steps: int
    epochs: int
    seconds: float
    stopped: bool
    state_hash: str
    skipped_windows: int


@dataclass(frozen=True)
class Step:
    """What one microbatch came to. loss: mean; stepped: the optimizer ran; learning_rate: of the next step."""

    loss: float
    correct: int
    samples: int
    step: int
    stepped: bool
    learning_rate: float
