"""`omnipilot tune` proposes what users' choices bear out, shows why, and changes nothing itself."""

from __future__ import annotations

import json
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from simulated_choices import CURRENT, choices

from omnipilot_slurm.cli.main import main
from omnipilot_slurm.decide.preference import MIN_PAIRS, MIN_USERS
from omnipilot_slurm.store.choices import Choice, Did, Option, record_choices
from omnipilot_slurm.store.database import open_for_writing
from omnipilot_slurm.store.decisions import Decided, Subject, Words, insert, row_of

if TYPE_CHECKING:
    from pathlib import Path

    from omnipilot_slurm.decide.preference import Preferred, Weighed

NOW = time.time()
ARM = {"partition": "h100", "gpu": "h100", "n_gpus": 2, "tensor_parallel": 2}


def option(weighed: Weighed) -> Option:
    return Option(
        arm=ARM,
        utility_terms_usd=weighed.terms_usd,
        p_launch=weighed.p_launch,
        weights=weighed.weights,
    )


def decided(decision_id: str, user: str) -> Decided:
    words = Words(answer="{}", record="{}", would_be="advise")
    subject = Subject(
        user_name=user,
        account=None,
        partition=None,
        job_name="serve",
        script_sha256="ab" * 32,
        script_bytes=1,
    )
    return Decided(
        id=decision_id,
        at=NOW,
        subject=subject,
        verdict="advise",
        would_be="advise",
        code="worth_more",
        generation=1,
        elapsed_ms=1.0,
        words=words,
    )


def stored(folder: Path, pairs: list[Preferred]) -> Path:
    """Write choices as the daemon does: some accept the proposal, some override it."""
    path = folder / "o.db"
    made = []
    for number, pair in enumerate(pairs):
        accepted = number % 2 == 0
        preferred, other = option(pair.option), option(pair.other)
        made.append(
            Choice(
                decision_id=f"d{number}",
                at=NOW - len(pairs) + number,
                did=Did.ACCEPTED if accepted else Did.OVERRIDDEN,
                proposed=preferred if accepted else other,
                own=other if accepted else preferred,
            )
        )
    with closing(open_for_writing(path)) as connection:
        rows = [row_of(decided(f"d{n}", pair.user)) for n, pair in enumerate(pairs)]
        if rows:
            insert(connection, rows)
        record_choices(connection, made)
    return path


def run(folder: Path, *words: str, capsys: pytest.CaptureFixture[str]) -> str:
    store, site = folder / "o.db", folder / "site"
    site.mkdir(exist_ok=True)
    words = ("--store", str(store), "--config", str(site), "--resamples", "60", *words)
    assert main(["tune", *words]) == 0
    return capsys.readouterr().out


DEAR_WAITS = CURRENT | {"wait_usd_per_hour": 6.0}


def test_a_weight_that_users_act_by_is_proposed_as_a_diff_of_the_sites_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(tmp_path, choices(300, DEAR_WAITS))
    found: dict[str, Any] = json.loads(run(tmp_path, "--json", capsys=capsys))
    assert list(found["proposed"]) == ["wait_usd_per_hour"]
    proposed = found["proposed"]["wait_usd_per_hour"]
    assert 4 < proposed < 9
    assert found["n_explained_after"] > found["n_explained_before"]
    path = tmp_path / "site" / "utility.yaml"
    assert found["diff"] == [
        "--- /dev/null",
        f"+++ {path}",
        "@@ -0,0 +1,4 @@",
        "+schema: 1",
        "+",
        "+utility:",
        f"+  wait_usd_per_hour: {proposed:g}",
    ]
    assert not path.exists()


def test_the_text_shows_evidence_intervals_and_the_diff(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(tmp_path, choices(300, DEAR_WAITS))
    (tmp_path / "site").mkdir()
    own = "schema: 1\nutility:\n  wait_usd_per_hour: 1  # a guess\n"
    (tmp_path / "site" / "utility.yaml").write_text(own)
    lines = run(tmp_path, capsys=capsys).splitlines()
    assert lines[0] == "evidence: 300 choices of 10 users (accepted 150, overridden 150)"
    assert lines[2].split()[:4] == ["decision", "user", "did", "preferred"]
    assert lines[3].split()[:3] == ["d290", "user0", "accepted"]
    assert "and 290 earlier ones" in lines
    (wait,) = (line for line in lines if line.startswith("wait_usd_per_hour"))
    assert wait.endswith("proposed")
    assert "-  wait_usd_per_hour: 1  # a guess" in lines
    assert lines[-1].startswith("+  wait_usd_per_hour: ")
    assert lines[-1].endswith("  # a guess")
    assert (tmp_path / "site" / "utility.yaml").read_text() == own


def test_the_same_choices_give_the_same_proposal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(tmp_path, choices(100, DEAR_WAITS))
    assert run(tmp_path, capsys=capsys) == run(tmp_path, capsys=capsys)


@pytest.mark.parametrize(("n", "n_users"), [(MIN_PAIRS - 1, 10), (60, MIN_USERS - 1)])
def test_too_little_evidence_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], n: int, n_users: int
) -> None:
    stored(tmp_path, choices(n, DEAR_WAITS, n_users=n_users))
    lines = run(tmp_path, capsys=capsys).splitlines()
    assert lines[-1] == "too little evidence for a proposal: it takes 20 choices of 5 users"
    assert json.loads(run(tmp_path, "--json", capsys=capsys))["proposed"] == {}


def test_no_evidence_at_all_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored(tmp_path, [])
    assert run(tmp_path, capsys=capsys).splitlines() == [
        "evidence: 0 choices of 0 users",
        "",
        "too little evidence for a proposal: it takes 20 choices of 5 users",
    ]


def test_choices_that_the_weights_in_force_explain_propose_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(tmp_path, choices(100, CURRENT, noise_usd=60.0, seed=3))
    lines = run(tmp_path, capsys=capsys).splitlines()
    assert lines[-1] == "no proposal: no weight differs surely, by a factor of 1.5 at least"


def test_only_choices_of_the_time_asked_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(tmp_path, choices(100, DEAR_WAITS))
    found = json.loads(run(tmp_path, "--json", "--since", "2100-01-01", capsys=capsys))
    assert found["n_pairs"] == 0
