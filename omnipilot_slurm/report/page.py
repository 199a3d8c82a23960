"""The site's report as one HTML page that needs nothing from elsewhere.

In: sections. Out: the text of the page. Called by `omnipilot report`. Everything that comes from
jobs is escaped, there is no script, and the page forbids itself to load anything.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from omnipilot_slurm.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnipilot_slurm.report.sections import Section


def as_html(sections: Sequence[Section], made_at: str) -> str:
    """Return the page.

    Raises: UsageError without jinja2, which a daemon does not need.
    """
    try:
        from jinja2 import Environment, StrictUndefined  # noqa: PLC0415 (an extra, see the error)
    except ImportError as error:
        raise UsageError(
            "--html needs jinja2", hint="pip install 'omnipilot_slurm[report]'"
        ) from error
    source = files("omnipilot_slurm.report").joinpath("page.html").read_text(encoding="utf-8")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(source).render(sections=sections, made_at=made_at)
