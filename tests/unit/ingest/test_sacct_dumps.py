"""What sacct of 22.05 and 24.11 printed is read alike from both formats, whatever its texts."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacct_job_for_tests import JOB

from omnipilot_slurm.errors import DataError
from omnipilot_slurm.ingest.sacct_job import (
    SacctJob,
    exit_of,
    gpus_of,
    log_of,
    minutes_of,
    state_of,
    time_of,
)
from omnipilot_slurm.ingest.sacct_json import Document
from omnipilot_slurm.ingest.sacct_table import Fault, Skipped, Table

FIXTURES = Path(__file__).parents[2] / "fixtures" / "slurm"
HEADER = (
    "JobID|JobIDRaw|User|Partition|ReqTRES|AllocTRES|NNodes|Submit|Eligible|Start|End|TimelimitRaw|"
    "State|ExitCode|NodeList|AdminComment|JobName"
)
GPUS = "billing=4,cpu=8,gres/gpu:h100=4,gres/gpu=4,node=1"
CELLS = {
    "JobID": "4711",
    "JobIDRaw": "4711",
    "User": "alice",
    "Partition": "gpu",
    "ReqTRES": "gres/gpu=4",
    "AllocTRES": GPUS,
    "NNodes": "1",
    "Submit": "1800000000",
    "Eligible": "1800000001",
    "Start": "1800000060",
    "End": "1800003660",
    "TimelimitRaw": "120",
    "State": "COMPLETED",
    "ExitCode": "0:0",
    "NodeList": "n1",
    "AdminComment": "",
    "JobName": "serve",
}


def read(text: str | bytes, delimiter: str = "|") -> list[SacctJob | Skipped | Fault]:
    data = text if isinstance(text, bytes) else text.encode()
    lines = iter(io.BytesIO(data))
    table = Table(delimiter=delimiter)
    table.header(next(lines))
    rows = list(table.rows(lines))
    if not any(isinstance(row, Fault) and "cut off" in row.why for row in rows):
        assert table.n_bytes == len(data)
    return rows


def dump(*rows: dict[str, str]) -> str:
    return "\n".join([HEADER, *("|".join((CELLS | row).values()) for row in rows), ""])


def jobs(rows: list[SacctJob | Skipped | Fault]) -> list[SacctJob]:
    return [row for row in rows if isinstance(row, SacctJob)]


@pytest.mark.parametrize("version", ["22.05", "24.11"])
def test_both_formats_of_one_accounting_are_the_same_jobs(version: str) -> None:
    folder = FIXTURES / version
    table = read((folder / "sacct.txt").read_bytes())
    document = Document()
    with (folder / "sacct.json").open("rb") as stream:
        listed = list(document.rows(stream))
    assert document.n_bytes == (folder / "sacct.json").stat().st_size
    assert [row for row in [*table, *listed] if isinstance(row, Fault)] == []
    untold = {"exit_code": 0, "signal": 0} if version == "22.05" else {}
    # a name with delimiters is told apart from a command line with them by JSON alone
    told = [
        {job.job_id: job._replace(**untold, log="", name="") for job in jobs(rows)}
        for rows in (table, listed)
    ]
    assert told[0] == told[1]
    assert {"2", "3", "4_0", "4_3", "6", "7", "8", "9", "10"} <= told[0].keys()


@pytest.mark.parametrize("version", ["22.05", "24.11"])
def test_a_dump_holds_jobs_of_every_kind(version: str) -> None:
    rows = read((FIXTURES / version / "sacct.txt").read_bytes())
    by_id = {job.job_id: job for job in jobs(rows)}
    assert (by_id["2"].n_gpus, by_id["2"].gres_type) == (2, "a100")
    assert by_id["1"].started_at is None, "it was refused, and never ran"
    assert by_id["1"].gres_type == "h200"
    assert (by_id["6"].state, by_id["6"].exit_code) == ("FAILED", 3)
    assert by_id["7"].signal == 9
    assert by_id["4_3"].raw_id == "4"
    assert rows.count(Skipped.STEP) >= 10
    assert all(job.submitted_at <= (job.started_at or 1e12) for job in by_id.values())


def test_names_and_logs_are_read_of_24_11() -> None:
    with (FIXTURES / "24.11" / "sacct.json").open("rb") as stream:
        by_id = {job.job_id: job for job in jobs(list(Document().rows(stream)))}
    assert by_id["2"].name == "name|with|pipes é 漢"
    assert by_id["3"].name == "two\nlines"
    assert by_id["10"].log == "/home/alice/out-10.txt"
    assert by_id["4_1"].log == "/home/alice/slurm-4_1.out"


def test_a_plain_row_is_a_job() -> None:
    assert read(dump({})) == [JOB]


TEXTS = st.text(st.characters(exclude_characters="\r\0", exclude_categories=["Cs"]), max_size=40)


@given(name=TEXTS.filter(lambda text: not re.match(r"\n*\d", text.partition("\n")[2])))
def test_a_name_in_the_last_field_may_hold_delimiters_and_line_ends(name: str) -> None:
    rows = read(dump({"JobName": name}, {"JobID": "4712"}))
    assert [job._replace(name="") for job in jobs(rows)] == [
        JOB._replace(name=""),
        JOB._replace(name="", job_id="4712"),
    ]
    assert jobs(rows)[0].name == name.partition("\n")[0]


@given(comment=TEXTS.filter(lambda text: not re.search(r"\n\d", text)))
def test_a_comment_amid_the_fields_may_hold_line_ends(comment: str) -> None:
    comment = comment.replace("|", "/")
    rows = read(dump({"AdminComment": comment}, {"JobID": "4712"}))
    assert rows == [JOB._replace(admin_comment=comment), JOB._replace(job_id="4712")]


def test_delimiters_stand_in_the_text_field_where_the_others_then_read() -> None:
    header = "JobID|JobName|Partition|AllocTRES|Submit|Start|End|State"
    row = f"4711|a|b|c|gpu|{GPUS}|1800000000|1800000060|1800003660|COMPLETED"
    (job,) = jobs(read(f"{header}\n{row}\n"))
    assert (job.name, job.partition) == ("a|b|c", "gpu")


def test_bytes_that_are_no_text_cost_no_row() -> None:
    data = dump({"JobName": "x"}).encode().replace(b"|x\n", b"|\xff\xfe\n")
    assert [job.job_id for job in jobs(read(data))] == ["4711"]


@pytest.mark.parametrize(
    ("change", "skipped"),
    [
        ({"JobID": "4711.batch"}, Skipped.STEP),
        ({"JobID": "4711.extern"}, Skipped.STEP),
        ({"JobID": "4711_3.0"}, Skipped.STEP),
        ({"State": "PENDING", "Start": "Unknown", "End": "Unknown"}, Skipped.NOT_STARTED),
        ({"AllocTRES": "cpu=4", "ReqTRES": "cpu=4"}, Skipped.NO_GPUS),
    ],
)
def test_rows_of_no_interest_are_counted_by_kind(change: dict[str, str], skipped: Skipped) -> None:
    assert read(dump(change)) == [skipped]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"JobID": "4711_[5-9%2]", "Start": "None", "AllocTRES": ""}, {"job_id": "4711_[5-9%2]"}),
        ({"JobID": "4711+1"}, {"job_id": "4711+1"}),
        ({"State": "CANCELLED by 1000"}, {"state": "CANCELLED"}),
        ({"State": "OUT_OF_MEMORY", "ExitCode": "0:125"}, {"signal": 125}),
        ({"TimelimitRaw": "UNLIMITED"}, {"time_limit_min": None}),
        ({"Partition": "gpu,long"}, {"partition": "gpu"}),
        ({"NodeList": "None assigned"}, {"started_at": None}),
        ({"State": "RUNNING", "End": "Unknown"}, {"ended_at": None}),
    ],
)
def test_odd_jobs_are_jobs(change: dict[str, str], expected: dict[str, object]) -> None:
    (job,) = jobs(read(dump(change)))
    assert {name: getattr(job, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"State": "??"}, "job 4711: State must be one of Slurm's, was '??'"),
        ({"Submit": "Unknown"}, "job 4711: Submit must be a time, was 'Unknown'"),
        (
            {"Start": "yesterday"},
            "job 4711: a time must be as 2026-01-31T14:05:00 or Unix seconds, was 'yesterday'",
        ),
        (
            {"Start": "2026-01-31"},
            "job 4711: a time must be as 2026-01-31T14:05:00 or Unix seconds, was '2026-01-31'",
        ),
        (
            {"End": "1800000050"},
            "job 4711: End must not be before Start or Submit, was 1800000050",
        ),
        (
            {"End": "1990000000"},
            "job 4711: must end within 1000 days of its submission, ended at 1990000000",
        ),
    ],
)
def test_a_bad_row_is_told_and_costs_no_other(change: dict[str, str], why: str) -> None:
    rows = read(dump({"JobID": "1"}, change, {"JobID": "2"}))
    assert [job.job_id for job in jobs(rows)] == ["1", "2"]
    assert rows[1] == Fault(3, why)
    assert str(rows[1]) == f"3: {why}"


def test_a_row_that_lost_its_end_is_told_and_costs_no_other() -> None:
    text = dump({}, {"JobID": "2"}).replace("|serve\n2|", "\n2|", 1)
    rows = read(text)
    assert rows[1:] == [JOB._replace(job_id="2")]
    start = "4711|4711|alice|gpu|gres/gpu=4|billing=4,cpu=8,gres/gpu:h100"
    assert rows[0] == Fault(2, f"must have 17 fields, has 16: {start!r}")


def test_a_dump_that_is_still_being_written_ends_before_its_last_row() -> None:
    assert read(dump({}, {"JobID": "2"})[:-20]) == [
        JOB,
        Fault(3, "is cut off in the middle of a row"),
    ]


def test_a_dump_without_a_field_that_is_needed_is_refused() -> None:
    with pytest.raises(DataError) as caught:
        read("1|COMPLETED\n")
    assert (
        str(caught.value) == "the first line must be sacct's header and begin with JobID, was '1'"
    )
    with pytest.raises(DataError) as caught:
        read("JobID|State|Submit|Partition\n")
    assert str(caught.value) == "the first line must be sacct's header, lacks start, end, alloctres"
    assert caught.value.hint == "`omnipilot ingest sacct --help` shows how such a dump is made"


# JSON


def listed(text: str) -> list[SacctJob | Skipped | Fault]:
    return list(Document().rows(io.BytesIO(text.encode())))


@pytest.fixture
def one_job() -> dict[str, object]:
    with (FIXTURES / "24.11" / "sacct.json").open() as stream:
        return next(job for job in json.load(stream)["jobs"] if job["job_id"] == 14)


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_json_is_read_in_pieces_of_any_size(
    block: int, one_job: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnipilot_slurm.ingest.sacct_json._BLOCK", block)
    one_job["name"] = "é漢"
    text = json.dumps({"meta": {}, "jobs": [one_job, one_job], "errors": []}, ensure_ascii=False)
    document = Document()
    rows = list(document.rows(io.BytesIO(text.encode())))
    assert [job.name for job in jobs(rows)] == ["é漢"] * 2
    assert document.n_bytes == len(text.encode())


def test_reading_json_goes_on_where_it_was_broken_off(one_job: dict[str, object]) -> None:
    data = json.dumps(
        {"jobs": [one_job | {"job_id": i, "array": {"job_id": 0}} for i in (1, 2, 3)]}
    )
    first = Document()
    rows = first.rows(io.BytesIO(data.encode()))
    assert [next(rows).job_id, next(rows).job_id] == ["1", "2"]  # type: ignore[union-attr]
    stream = io.BytesIO(data.encode())
    stream.seek(first.n_bytes)
    second = Document(n_bytes=first.n_bytes)
    assert [job.job_id for job in jobs(list(second.rows(stream)))] == ["3"]
    assert second.n_bytes == len(data)


def test_json_of_another_schema_is_told_job_by_job(one_job: dict[str, object]) -> None:
    bad = {"job_id": 9, "state": {"current": "COMPLETED"}}
    rows = listed(json.dumps({"jobs": [bad, one_job]}))
    assert rows[0] == Fault(1, "job 9: is not of Slurm's schema: KeyError('time')")
    assert len(jobs(rows)) == 1


def test_json_that_is_cut_off_ends_with_a_fault(one_job: dict[str, object]) -> None:
    rows = listed(json.dumps({"jobs": [one_job, one_job]})[:-40])
    assert rows[1:] == [Fault(2, "the file is cut off in the middle of a job")]


def test_json_without_jobs_is_refused() -> None:
    with pytest.raises(DataError) as caught:
        listed('{"meta": {}}')
    assert str(caught.value) == "must be what `sacct --json` prints, has no list `jobs`"
    with pytest.raises(DataError, match="an element of `jobs` must be an object, begins with '4'"):
        listed('{"jobs": [4]}')


# words


def test_times_are_read_in_this_machines_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert time_of("1800000000") == 1800000000.0
    assert time_of("None") is time_of("Unknown") is time_of("") is None
    noon = time_of("2026-01-31T12:00:00")
    assert noon is not None
    assert time_of("2026-01-31T12:34:56") == noon + 34 * 60 + 56


@pytest.mark.parametrize(
    ("tres", "gpus"),
    [
        ("cpu=8,gres/gpu=4", (None, 4)),
        ("gres/gpu:a100=2,gres/gpu=2", ("a100", 2)),
        ("gres/gpu:a100=2", ("a100", 2)),
        ("gres/gpu:a100=1,gres/gpu:h100=1,gres/gpu=2", (None, 2)),
        ("cpu=8,gres/gpumem=10", (None, 0)),
        ("", (None, 0)),
    ],
)
def test_gpus_of_tres(tres: str, gpus: tuple[str | None, int]) -> None:
    assert gpus_of(tres, "") == gpus
    assert gpus_of("", tres) == gpus


def test_limits_exits_and_states() -> None:
    assert minutes_of("1-02:30:00") == 1590.0
    assert minutes_of("00:30:30") == 30.5
    assert minutes_of("90") == 90.0
    assert minutes_of("Partition_Limit") is None
    assert (exit_of("3:9"), exit_of("")) == ((3, 9), (0, 0))
    assert state_of("NODE_FAIL") == "NODE_FAIL"


@pytest.mark.parametrize(
    ("line", "log"),
    [
        ("sbatch -o out-%j.txt job.sh", "/home/a/out-%j.txt"),
        ("sbatch --output=/scratch/%x.log job.sh", "/scratch/%x.log"),
        ("sbatch job.sh", "/home/a/slurm-%j.out"),
    ],
)
def test_before_24_05_the_command_line_says_where_output_went(line: str, log: str) -> None:
    assert log_of("", "/home/a", line, is_array=False) == log
    assert log_of("/x", "/home/a", line, is_array=False) == "/x"
    assert log_of("", "", line, is_array=True) == ""
