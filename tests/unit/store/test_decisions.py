"""A decision is read as it was written, once, in order, without its secrets."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnipilot_slurm.errors import StoreError
from omnipilot_slurm.records import Edit, Outcome, Shared, Verdict
from omnipilot_slurm.store.database import open_for_writing
from omnipilot_slurm.store.decisions import (
    Decided,
    Row,
    Subject,
    by_id,
    delete_before,
    insert,
    row_of,
    since,
    summary,
    words_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SUBJECT = Subject(
    user_name="alice",
    account="nlp",
    partition="a100",
    job_name="serve",
    script_sha256="ab" * 32,
    script_bytes=120,
)
REWRITE = Outcome(
    verdict=Verdict.REWRITE,
    messages=("70B does not fit",),
    fields={"partition": "h100", "gres": "gpu:h100:2"},
    env={"SLURM_GPUS": "2"},
    edits=(Edit(start=3, end=4, old=b"1", new=b"2"),),
    tag=True,
    code="oom",
    record={"would_be": "rewrite", "arms": [{"gpu": "h100", "p_launch": 0.9}]},
)


def decided(
    decision_id: str, *, at: float = 1000.0, outcome: Outcome = REWRITE, repeats: str | None = None
) -> Decided:
    words = words_of(outcome)
    return Decided(
        id=decision_id,
        at=at,
        subject=SUBJECT,
        verdict=str(outcome.verdict),
        would_be=words.would_be,
        code=outcome.code,
        generation=4,
        elapsed_ms=1.25,
        words=words if repeats is None else repeats,
    )


def row(
    decision_id: str, *, at: float = 1000.0, outcome: Outcome = REWRITE, repeats: str | None = None
) -> Row:
    return row_of(decided(decision_id, at=at, outcome=outcome, repeats=repeats))


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = open_for_writing(tmp_path / "o.db")
    yield connection
    connection.close()


def test_a_decision_is_read_as_it_was_written(connection: sqlite3.Connection) -> None:
    assert insert(connection, [row("k3f9")]) == 1
    stored = by_id(connection, "k3f9")
    assert stored is not None
    assert (stored.id, stored.at, stored.verdict, stored.code) == ("k3f9", 1000.0, "rewrite", "oom")
    assert (stored.user_name, stored.account, stored.partition, stored.job_name) == (
        "alice",
        "nlp",
        "a100",
        "serve",
    )
    assert (stored.script_sha256, stored.script_bytes) == ("ab" * 32, 120)
    assert (stored.generation, stored.repeats, stored.elapsed_ms) == (4, None, 1.25)
    assert stored.answer == {
        "messages": ["70B does not fit"],
        "fields": {"partition": "h100", "gres": "gpu:h100:2"},
        "env": {"SLURM_GPUS": "2"},
        "edits": [{"start": 3, "end": 4, "old": "1", "new": "2"}],
    }
    assert stored.would_be == "rewrite"
    assert stored.record == REWRITE.record


TEXTS = st.text(max_size=12) | st.binary(max_size=8).map(
    lambda raw: raw.decode("utf-8", "surrogateescape")
)


@given(user=TEXTS, messages=st.lists(TEXTS, max_size=3), record=st.dictionaries(TEXTS, TEXTS))
def test_whatever_a_user_wrote_a_row_is_made_of_it(
    user: str, messages: list[str], record: dict[str, str]
) -> None:
    outcome = Outcome(verdict=Verdict.ADVISE, messages=tuple(messages), record=record)
    subject = Subject(
        user_name=user,
        account=user,
        partition=None,
        job_name=user,
        script_sha256="",
        script_bytes=0,
    )
    words = words_of(outcome)
    values = row_of(replace(decided("a"), subject=subject, words=words, would_be=words.would_be))
    scratch = sqlite3.connect(":memory:")
    scratch.execute(f"SELECT {', '.join('?' * len(values))}", values)
    scratch.close()


def test_secrets_are_not_written(connection: sqlite3.Connection) -> None:
    secret = "Zq8vT2mN5xK1pL7w"
    outcome = Outcome(
        verdict=Verdict.ADVISE,
        messages=(f"vllm serve m --api-key {secret}",),
        record={"launch": ["--api-key", secret], "env": {"HF_TOKEN": secret}},
    )
    insert(connection, [row("k3f9", outcome=outcome)])
    dump = "\n".join(connection.iterdump())
    assert "k3f9" in dump
    assert secret not in dump


def test_a_decision_that_repeats_another_is_read_with_that_ones_words(
    connection: sqlite3.Connection,
) -> None:
    insert(connection, [row("a"), row("b", at=2000.0, repeats="a")])
    first, again = since(connection, 0.0)
    assert (again.id, again.at, again.repeats) == ("b", 2000.0, "a")
    assert (again.answer, again.record) == (first.answer, REWRITE.record)
    assert connection.execute("SELECT answer, record FROM decisions WHERE id = 'b'").fetchall() == [
        (None, None)
    ]


def test_a_decision_that_repeats_one_no_longer_stored_has_no_words(
    connection: sqlite3.Connection,
) -> None:
    insert(connection, [row("b", repeats="a")])
    stored = by_id(connection, "b")
    assert (stored.verdict, stored.answer, stored.record) == ("rewrite", None, None)


def test_reasons_that_are_worked_out_late_are_stored_the_same(
    connection: sqlite3.Connection,
) -> None:
    late = replace(REWRITE, record=lambda: REWRITE.record)
    insert(connection, [row("a", outcome=late)])
    assert by_id(connection, "a").record == REWRITE.record


@pytest.mark.parametrize("record", [{"would_be": "advise"}, {}])
@pytest.mark.parametrize("n_arms", [0, 1, 3])
def test_arms_that_decisions_share_are_stored_as_any_others(record, n_arms) -> None:
    arms = [{"gpu": f"h{n}", "blocked": "--api-key sk-12345678", "kv": [n, None]} for n in range(3)]
    arms = arms[:n_arms]
    plain = words_of(Outcome(verdict=Verdict.ADVISE, record=record | {"arms": arms}))
    shared = [Shared(arm) for arm in arms]
    for _ in range(2):
        again = words_of(Outcome(verdict=Verdict.ADVISE, record=record | {"arms": shared}))
        assert json.loads(again.record) == json.loads(plain.record)
        assert "sk-1234" not in again.record


def test_a_batch_that_comes_again_is_stored_once(connection: sqlite3.Connection) -> None:
    rows = [row("a"), row("b")]
    assert insert(connection, rows) == 2
    assert insert(connection, [*rows, row("c")]) == 1
    assert [stored.id for stored in since(connection, 0.0)] == ["a", "b", "c"]


def test_a_batch_with_a_bad_row_is_not_stored_at_all(connection: sqlite3.Connection) -> None:
    name, _, *rest = row("b")
    with pytest.raises(sqlite3.IntegrityError):
        insert(connection, [row("a"), (name, "not a time", *rest)])
    assert list(since(connection, 0.0)) == []


def test_decisions_come_in_the_order_of_arrival_though_the_clock_went_back(
    connection: sqlite3.Connection,
) -> None:
    insert(connection, [row("a", at=5000.0), row("b", at=1000.0)])
    assert [stored.id for stored in since(connection, 0.0)] == ["a", "b"]
    assert [stored.id for stored in since(connection, 2000.0)] == ["a"]


def test_a_decision_cannot_be_changed(connection: sqlite3.Connection) -> None:
    insert(connection, [row("a")])
    with pytest.raises(sqlite3.IntegrityError, match="decisions are append-only"):
        connection.execute("UPDATE decisions SET verdict = 'pass'")


def test_the_oldest_are_deleted_first_and_only_as_many_as_allowed(
    connection: sqlite3.Connection,
) -> None:
    insert(connection, [row(str(n), at=float(n)) for n in range(10)])
    assert delete_before(connection, 6.0, limit=4) == 4
    assert [stored.id for stored in since(connection, 0.0)] == ["4", "5", "6", "7", "8", "9"]
    assert delete_before(connection, 6.0, limit=4) == 2


def test_an_id_that_is_not_there_is_none(connection: sqlite3.Connection) -> None:
    assert by_id(connection, "nope") is None


def test_a_summary_counts_by_verdict_code_and_partition(connection: sqlite3.Connection) -> None:
    passed = Outcome(verdict=Verdict.PASS)
    insert(
        connection,
        [
            row("a", at=1.0),
            row("b", at=2.0, outcome=passed),
            row("c", at=3.0, outcome=passed),
        ],
    )
    counted = summary(connection, 2.0)
    assert (counted.n, counted.first_at, counted.last_at) == (2, 2.0, 3.0)
    assert counted.by_verdict == {"pass": 2}
    assert summary(connection).by_verdict == {"pass": 2, "rewrite": 1}
    assert summary(connection).by_would_be == {"": 2, "rewrite": 1}
    assert summary(connection).by_code == {"": 2, "oom": 1}
    assert summary(connection).by_partition == {"a100": 3}


def test_an_empty_table_has_an_empty_summary(connection: sqlite3.Connection) -> None:
    assert summary(connection).n == 0
    assert summary(connection).by_verdict == {}


def test_a_table_that_cannot_be_read_is_a_store_error() -> None:
    empty = sqlite3.connect(":memory:")
    with pytest.raises(StoreError) as caught:
        summary(empty)
    assert str(caught.value) == "decisions cannot be read: no such table: decisions"
    empty.close()
