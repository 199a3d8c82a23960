"""Prometheus' text exposition format: a scrape in, its samples out.

In: the text of /metrics. Out: `Scrape`. Pure. Called by server_metrics. Samples of several engines
of one server (data parallelism) are told apart by labels and added up here.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from omnipilot_slurm.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_SAMPLE: Final = re.compile(
    r"(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})?[ \t]+(?P<value>[^ \t]+)"
    r"(?:[ \t]+-?\d+)?[ \t]*"
)
_LABEL: Final = re.compile(r'\s*([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPES: Final = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of a scrape."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Scrape:
    """Samples by metric name."""

    samples: Mapping[str, Sequence[Sample]]

    def total(self, *names: str) -> float | None:
        """Return the sum over all labels of the first name that is there; None: none is."""
        found = self._first(names)
        return None if found is None else math.fsum(each.value for each in found)

    def highest(self, *names: str) -> float | None:
        """Return the highest value of the first name that is there; None: none is."""
        found = self._first(names)
        return None if found is None else max(each.value for each in found)

    def label(self, name: str, label: str) -> str | None:
        """Return a label of a metric's first sample."""
        found = self._first((name,))
        return None if found is None else found[0].labels.get(label)

    def buckets(self, name: str) -> dict[float, float]:
        """Return the cumulative counts of a histogram by upper bound, {} where there is none."""
        counts: dict[float, float] = {}
        for sample in self.samples.get(f"{name}_bucket", ()):
            bound = float(sample.labels.get("le", "inf").replace("+", ""))
            counts[bound] = counts.get(bound, 0.0) + sample.value
        return counts

    def _first(self, names: Sequence[str]) -> Sequence[Sample] | None:
        """Return the samples, not-a-numbers left out, of the first name that has some."""
        for name in names:
            found = [each for each in self.samples.get(name, ()) if not math.isnan(each.value)]
            if found:
                return found
        return None


def read_exposition(text: str) -> Scrape:
    """Return the samples of a scrape.

    Raises: DataError with the line that is none of the format.
    """
    samples: dict[str, list[Sample]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        found = _SAMPLE.fullmatch(line)
        if found is None:
            raise DataError(f"line {number}: must be `name{{labels}} value`, was {line[:80]!r}")
        labels = dict(_labels(found["labels"] or "", number))
        samples.setdefault(found["name"], []).append(Sample(labels, _value(found["value"], number)))
    return Scrape(samples)


def _labels(text: str, number: int) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        found = _LABEL.match(text, at)
        if found is None:
            raise DataError(f'line {number}: labels must be name="value", were {text[:80]!r}')
        yield found[1], re.sub(r"\\.", lambda each: _ESCAPES.get(each[0], each[0]), found[2])
        at = found.end()


def _value(text: str, number: int) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise DataError(f"line {number}: value must be a number, was {text!r}") from error
