"""Values are set in a file's text so that it says them, and all else stays as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnipilot_slurm.cli.yaml_edit import with_values
from omnipilot_slurm.utility_file import load_utility

if TYPE_CHECKING:
    from pathlib import Path

NEW = {"wait_usd_per_hour": "5"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, "schema: 1\n\nutility:\n  wait_usd_per_hour: 5\n"),
        ("schema: 1\n", "schema: 1\n\nutility:\n  wait_usd_per_hour: 5\n"),
        (
            "schema: 1\nutility:\n  wait_usd_per_hour: 1.5  # of 2025\n  kv_knee: 0.8\n",
            "schema: 1\nutility:\n  wait_usd_per_hour: 5  # of 2025\n  kv_knee: 0.8\n",
        ),
        (
            "schema: 1\nutility:\n    # ours\n    kv_knee: 0.8\n",
            "schema: 1\nutility:\n    # ours\n    wait_usd_per_hour: 5\n    kv_knee: 0.8\n",
        ),
        (
            "schema: 1\nutility: {kv_knee: 0.8}  # ours\n",
            "schema: 1\nutility: {wait_usd_per_hour: 5, kv_knee: 0.8}  # ours\n",
        ),
        (
            "schema: 1\nutility: { wait_usd_per_hour: 2, kv_knee: 0.8 }\n",
            "schema: 1\nutility: { wait_usd_per_hour: 5, kv_knee: 0.8 }\n",
        ),
        ("schema: 1\nutility: {}\n", "schema: 1\nutility: {wait_usd_per_hour: 5}\n"),
    ],
)
def test_a_value_is_set_in_the_style_of_the_file(before: str | None, after: str) -> None:
    assert with_values(before, "utility", NEW, schema=1) == after
    assert with_values(after, "utility", NEW, schema=1) == after


KEYS = {
    "value_usd_per_output_token": st.floats(0, 1),
    "slo_miss_usd_per_hour": st.floats(0, 1000),
    "wait_usd_per_hour": st.floats(0, 1000),
    "failed_launch_hours": st.floats(0, 100),
    "kv_knee": st.floats(0.1, 0.9),
}
SETTINGS = st.fixed_dictionaries({}, optional=KEYS)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(own=SETTINGS, new=SETTINGS, flow=st.booleans())
def test_what_is_set_is_read_back_and_what_was_there_stays(
    tmp_path: Path, own: dict[str, float], new: dict[str, float], flow: bool
) -> None:
    pairs = [f"{key}: {value!r}" for key, value in own.items()]
    body = "{" + ", ".join(pairs) + "}" if flow or not pairs else "\n  " + "\n  ".join(pairs)
    text = f"schema: 1\nutility: {body}\n"
    written = {key: f"{value:.2g}" for key, value in new.items()}
    path = tmp_path / "utility.yaml"
    path.write_text(with_values(text, "utility", written, schema=1))
    read = load_utility([tmp_path])
    for key, value in (own | {key: float(text) for key, text in written.items()}).items():
        assert getattr(read, key) == value
