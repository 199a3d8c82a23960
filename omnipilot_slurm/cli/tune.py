"""`omnipilot tune`: weights of utility.yaml that explain better what users chose, as a proposal."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import asdict
from difflib import unified_diff
from typing import TYPE_CHECKING, Final

import click
import numpy as np

from omnipilot_slurm.cli.site_store import (
    opened,
    since_time,
    site_folders,
    store_options,
    store_path,
)
from omnipilot_slurm.cli.yaml_edit import with_values
from omnipilot_slurm.decide.preference import (
    KEYS,
    MIN_FACTOR,
    MIN_PAIRS,
    MIN_USERS,
    Preferred,
    Weighed,
    fit_preferences,
)
from omnipilot_slurm.resources import SITE_FOLDER
from omnipilot_slurm.store.choices import Did, preference_pairs
from omnipilot_slurm.text_table import table
from omnipilot_slurm.utility_file import FILE, SCHEMA_VERSION, load_utility

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from omnipilot_slurm.decide.preference import Preferences
    from omnipilot_slurm.store.choices import Option, PreferencePair

_SHOWN: Final = 10
#: proposals have as many digits as the evidence bears
_DIGITS: Final = 2
_SECTION: Final = "utility"


@click.command()
@click.option(
    "--since",
    default="90d",
    show_default=True,
    help="Choices from then on: a span (12h, 7d, 2w) or a date (2026-11-29).",
)
@store_options
@click.option(
    "--resamples",
    type=click.IntRange(10, 10_000),
    default=400,
    show_default=True,
    help="How often users are drawn again for the intervals.",
)
@click.option("--json", "as_one_json", is_flag=True, help="Print one JSON object.")
def tune(
    since: str, config: Path | None, store: Path | None, resamples: int, *, as_one_json: bool
) -> None:
    """Propose weights of utility.yaml from what users chose against and for what was proposed.

    Prints the evidence and, where there is enough, a diff of the site's utility.yaml. Nothing is
    written: apply it yourself, try it with `omnipilot whatif`, then `omnipilot config check`.
    """
    at = since_time(since, time.time())
    settings = load_utility(site_folders(config))
    current = {key: float(getattr(settings, key)) for key in KEYS}
    with opened(store_path(config, store)) as connection:
        pairs = preference_pairs(connection, at)
    # the same choices give the same proposal
    n_users = len({_user(pair) for pair in pairs})
    drawn = np.random.default_rng(0).integers(0, max(1, n_users), size=(resamples, n_users))
    found = fit_preferences([_preferred(pair) for pair in pairs], current, drawn)
    proposed = {key: float(f"{value:.{_DIGITS}g}") for key, value in found.proposed.items()}
    folder = config or SITE_FOLDER
    diff = list(_diff(folder / FILE, proposed))
    if as_one_json:
        plain = {**asdict(found), "is_enough": found.is_enough, "proposed": proposed, "diff": diff}
        click.echo(json.dumps(plain, ensure_ascii=False))
        return
    click.echo("\n".join(_text(found, pairs)))
    if diff:
        click.echo("\n".join(("", *diff)))


def _user(pair: PreferencePair) -> str:
    return pair.user_name or ""


def _preferred(pair: PreferencePair) -> Preferred:
    return Preferred(user=_user(pair), option=_weighed(pair.preferred), other=_weighed(pair.other))


def _weighed(option: Option) -> Weighed:
    return Weighed(
        terms_usd=option.utility_terms_usd, p_launch=option.p_launch, weights=option.weights
    )


def _text(found: Preferences, pairs: Sequence[PreferencePair]) -> Iterator[str]:
    kinds = Counter(pair.did for pair in pairs)
    listed = ", ".join(f"{did} {kinds[did]}" for did in Did if kinds[did])
    choices, users = _count(found.n_pairs, "choice"), _count(found.n_users, "user")
    yield f"evidence: {choices} of {users}{f' ({listed})' if listed else ''}"
    if pairs:
        yield from ("", *_pairs_text(pairs))
    if not found.is_enough:
        yield ""
        yield (
            f"too little evidence for a proposal: it takes {MIN_PAIRS} choices of {MIN_USERS} users"
        )
        return
    yield ""
    yield from _weights_text(found)
    yield ""
    yield f"explained with the weights in force: {found.n_explained_before} of {found.n_pairs}"
    if not found.proposed:
        yield f"no proposal: no weight differs surely, by a factor of {MIN_FACTOR:g} at least"
        return
    yield f"explained with those proposed:       {found.n_explained_after} of {found.n_pairs}"


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def _weights_text(found: Preferences) -> list[str]:
    rows = [("weight", "in force", "fitted", "95 % interval", "choices it bears on", "")]
    rows += [
        (
            weight.key,
            f"{weight.current:.3g}",
            f"{weight.fitted:.3g}",
            f"{weight.lo:.3g} to {weight.hi:.3g}",
            f"{weight.n_pairs}",
            "proposed" if weight.key in found.proposed else "",
        )
        for weight in found.weights
    ]
    return table(rows, right=(1, 2, 3, 4))


def _pairs_text(pairs: Sequence[PreferencePair]) -> list[str]:
    """Return the latest choices: who did what, the arm preferred and the other one, their worth."""
    heads = ("decision", "user", "did", "preferred", "worth $", "to", "worth $")
    rows: list[tuple[str, ...]] = [heads]
    for pair in pairs[-_SHOWN:]:
        options = (pair.preferred, pair.other)
        cells = [text for option in options for text in (_arm(option), f"{_usd(option):,.2f}")]
        rows.append((pair.decision_id, pair.user_name or "?", str(pair.did), *cells))
    more = len(pairs) - _SHOWN
    return [*table(rows, right=(4, 6)), *([f"and {more} earlier ones"] if more > 0 else [])]


def _arm(option: Option) -> str:
    arm = option.arm
    return (
        f"{arm.get('n_gpus')}x {arm.get('gpu')}, TP {arm.get('tensor_parallel')}"
        f" in {arm.get('partition')}"
    )


def _usd(option: Option) -> float:
    terms = option.utility_terms_usd
    return terms["value"] - sum(terms[name] for name in ("gpu_cost", "slo", "wait", "failure"))


def _diff(path: Path, proposed: Mapping[str, float]) -> Iterator[str]:
    """Yield the change of the site's own file as `diff -u` shows it; nothing without a proposal."""
    if not proposed:
        return
    before = path.read_text(encoding="utf-8") if path.exists() else None
    values = {key: f"{value:g}" for key, value in proposed.items()}
    after = with_values(before, _SECTION, values, schema=SCHEMA_VERSION)
    yield from unified_diff(
        (before or "").splitlines(),
        after.splitlines(),
        fromfile=str(path) if before is not None else "/dev/null",
        tofile=str(path),
        lineterm="",
    )
