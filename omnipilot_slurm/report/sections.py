"""The parts of the site's report, whatever it is printed on.

In: nothing. Out: the records that site_sections fills, and `as_text`. Called by site_sections, page
and `omnipilot report`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnipilot_slurm.text_table import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BAR_CHARS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A share between 0 and 1, its interval where it has one, and what is written beside it."""

    label: str
    share: float
    lo: float | None = None
    hi: float | None = None
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading, a remark, a table (its heads first; () for none), and bars.

    `mark` is the share that bars are to be compared with.
    """

    title: str
    note: str = ""
    rows: tuple[tuple[str, ...], ...] = ()
    bars: tuple[Bar, ...] = ()
    mark: float | None = None


def as_text(sections: Sequence[Section]) -> str:
    """Return sections as text for a terminal."""
    return "\n\n".join("\n".join(_lines(each)) for each in sections)


def _lines(section: Section) -> Iterator[str]:
    yield section.title
    yield "-" * len(section.title)
    if section.note:
        yield section.note
    if section.rows:
        yield from table(section.rows, right=range(1, len(section.rows[0])))
    if section.bars:
        width = max(len(bar.label) for bar in section.bars)
        for bar in section.bars:
            yield f"{bar.label:{width}s}  [{_drawn(bar, section.mark)}] {bar.text}".rstrip()


def _drawn(bar: Bar, mark: float | None) -> str:
    n = round(bar.share * _BAR_CHARS)
    cells = list("#" * n + "." * (_BAR_CHARS - n))
    if mark is not None:
        cells[min(round(mark * _BAR_CHARS), _BAR_CHARS - 1)] = "|"
    return "".join(cells)
