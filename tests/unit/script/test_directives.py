"""What a script says in comments: #SBATCH options, #OMNIPILOT words, walltime and memory."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from script_reading import submitted

from omnipilot_slurm.records import Mode
from omnipilot_slurm.script import directives, slurm_options
from omnipilot_slurm.script.directives import Directives

HEADER: dict[str, dict[str, str | None]] = {
    "#SBATCH --partition=gpu": {"partition": "gpu"},
    "#SBATCH --partition gpu": {"partition": "gpu"},
    "#SBATCH\t--partition\tgpu": {"partition": "gpu"},
    "#SBATCH -p gpu -N1 --mem=4G": {"partition": "gpu", "nodes": "1", "mem": "4G"},
    "#SBATCH -p=gpu": {"partition": "gpu"},
    "#SBATCH -pgpu": {"partition": "gpu"},
    "#SBATCH --part gpu": {"partition": "gpu"},
    "#SBATCH --job-name='my job' # -p x": {"job-name": "my job"},
    '#SBATCH --comment="a b" -H': {"comment": "a b", "hold": None},
    "#SBATCH --exclusive -p gpu": {"exclusive": None, "partition": "gpu"},
    "#SBATCH --exclusive=user": {"exclusive": "user"},
    "#SBATCH --requeue --no-kill -p gpu": {"requeue": None, "no-kill": None, "partition": "gpu"},
    "#SBATCH --tasks-per-node=2": {"ntasks-per-node": "2"},
    "#SBATCH -p gpu\n#SBATCH -p cpu": {"partition": "cpu"},
    "# a comment\n\n#SBATCH -p gpu": {"partition": "gpu"},
    "#SBATCH -p gpu\n# -p x\n#SBATCH -N 1": {"partition": "gpu", "nodes": "1"},
    "#SBATCH --job-name=it's": {"job-name": "it's"},
    "#SBATCH -p gpu ignored -N 2": {"partition": "gpu"},
    "#SBATCH -p gpu -- -N 2": {"partition": "gpu"},
    "#SBATCH --unheard-of=1": {"unheard-of": "1"},
    "#SBATCH -y 1": {"y": "1"},
    "#SBATCH -p": {"partition": None},
    "#SBATCH --partition": {"partition": None},
    "#SBATCH -I -I5 -s": {"immediate": "5", "oversubscribe": None},
    "#SBATCH": {},
    "#SBATCH -": {},
    "##SBATCH -p gpu": {},
    "# SBATCH -p gpu": {},
    " #SBATCH -p gpu": {},
    "#SBATCHx -p gpu": {},
    "#sbatch -p gpu": {},
    "echo\n#SBATCH -p gpu": {},
}


@pytest.mark.parametrize("lines", HEADER)
def test_the_header_is_read_as_sbatch_does(lines: str) -> None:
    found = directives.header_of(f"#!/bin/bash\n{lines}\n".encode())
    assert found == directives.Header(HEADER[lines])


@pytest.mark.parametrize("word", ["hetjob", "packjob"])
def test_only_the_first_component_of_a_heterogeneous_job_counts(word: str) -> None:
    script = f"#!/bin/sh\n#SBATCH -G 4\n#SBATCH {word}\n#SBATCH -G 1\n".encode()
    assert directives.header_of(script) == directives.Header({"gpus": "4"}, is_het=True)
    assert submitted(script).het_job_offset == 0


def test_a_long_option_may_be_cut_short_where_it_stays_the_only_one() -> None:
    assert slurm_options.long_name("partit") == "partition"
    assert slurm_options.long_name("tasks-per-n") == "ntasks-per-node"
    assert slurm_options.long_name("gpus-per") == "gpus-per"
    assert slurm_options.long_name("mem") == "mem"


def test_a_submission_holds_what_the_header_asks() -> None:
    lines = (
        "-J name -A acc -q high -p gpu -C a100 -w n1 -x n2 -a 1-4 -t 1:00:00 --reservation=r",
        "-N 1-1 -n 2 -c 8 --mem=16G --mem-per-cpu=1G --cpus-per-gpu=4 --mem-per-gpu=8G -H",
        "--ntasks-per-node=2 --ntasks-per-gpu=1 --comment=c --export=ALL,A=1,B=x=y,C",
    )
    script = "#!/bin/sh\n" + "".join(f"#SBATCH {line}\n" for line in lines)
    found = submitted(script, B="z")
    wanted: dict[str, Any] = {
        "name": "name", "account": "acc", "qos": "high", "partition": "gpu", "features": "a100",
        "req_nodes": "n1", "exc_nodes": "n2", "array": "1-4", "time_limit_min": 60,
        "reservation": "r", "min_nodes": 1, "num_tasks": 2, "cpus_per_task": 8,
        "min_mem_per_node_mib": 16384, "min_mem_per_cpu_mib": 1024, "cpus_per_tres": "4",
        "mem_per_tres": "gpu:8192", "ntasks_per_node": 2, "ntasks_per_gpu": 1, "comment": "c",
        "held": True, "environment": {"A": "1", "B": "z"},
    }  # fmt: skip
    assert {name: getattr(found, name) for name in wanted} == wanted


WALLTIMES = {
    "30": 30, "30:30": 31, "1:00:00": 60, "1:00:01": 61, "1-0": 1440, "1-2": 1560, "1-2:30": 1590,
    "1-00:00:30": 1441, "0:10": 1, " 5 ": 5, "0": 0, "": None, "UNLIMITED": None, "1:2:3:4": None,
    "-1": None, "1.5": None, "9" * 40: None, "1-": None,
}  # fmt: skip


@pytest.mark.parametrize("text", WALLTIMES)
def test_a_walltime_is_read_in_minutes(text: str) -> None:
    assert directives.parse_walltime(text) == WALLTIMES[text]


@given(st.integers(0, 400), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_a_walltime_in_full_is_read_exactly(days: int, hours: int, mins: int, secs: int) -> None:
    found = directives.parse_walltime(f"{days}-{hours:02}:{mins:02}:{secs:02}")
    assert found == days * 1440 + hours * 60 + mins + (secs > 0)


MEMORY = {
    "4000": 4000, "200G": 204800, "200g": 204800, "200GB": 204800, "1T": 1048576, "512M": 512,
    "2048K": 2, "0": None, "": None, "many": None, "1.5G": None, "9" * 40: None,
}  # fmt: skip


@pytest.mark.parametrize("text", MEMORY)
def test_memory_is_read_in_mib(text: str) -> None:
    assert directives.parse_memory(text) == MEMORY[text]


WORDS: dict[str, Directives] = {
    "#OMNIPILOT off": Directives(off=True),
    "# omnipilot: OFF": Directives(off=True),
    "  #OMNIPILOT advise": Directives(mode=Mode.ADVISE),
    "#OMNIPILOT observe # please": Directives(mode=Mode.OBSERVE),
    "#OMNIPILOT auto, isl=512 osl=128": Directives(auto=True, values={"isl": 512, "osl": 128}),
    "#OMNIPILOT auto\n#OMNIPILOT advise": Directives(auto=True, mode=Mode.ADVISE),
    "#OMNIPILOT isl=512\n#OMNIPILOT isl=1024": Directives(values={"isl": 1024}),
    "#OMNIPILOT requests_per_s=0.5 hours=8": Directives(values={"requests_per_s": 0.5, "hours": 8}),
    "#OMNIPILOT concurency=8": Directives(unknown=("concurency=8",)),
    "#OMNIPILOT enforce please": Directives(unknown=("enforce", "please")),
    "#OMNIPILOT isl=0 osl=-1 hours=nan slo_ttft_ms=inf": Directives(
        unknown=("isl=0", "osl=-1", "hours=nan", "slo_ttft_ms=inf")
    ),
    "#OMNIPILOT isl=1e3 osl=many hours=": Directives(unknown=("isl=1e3", "osl=many", "hours=")),
    "#OMNIPILOT=off\r": Directives(off=True),
    "#OMNIPILOT": Directives(),
    "##OMNIPILOT off": Directives(),
    "#OMNIPILOTS off": Directives(),
    "echo '#OMNIPILOT off'": Directives(),
}


@pytest.mark.parametrize("line", WORDS)
def test_omnipilot_words_are_read(line: str) -> None:
    assert directives.omnipilot(f"#!/bin/bash\n{line}\nvllm serve M\n".encode()) == WORDS[line]


COMMENTS: dict[str, Directives] = {
    "omnipilot=off": Directives(off=True),
    "omnipilot:advise": Directives(mode=Mode.ADVISE),
    "for nn; omnipilot=auto+isl=512 rest": Directives(auto=True, values={"isl": 512}),
    "omnipilot=auto,isl=512 osl=64,project=x": Directives(
        auto=True, values={"isl": 512, "osl": 64}
    ),
    "omnipilot=off autopsy": Directives(off=True),
    "OmniPilot: off": Directives(off=True),
    '{"project": "x", "omnipilot": "off"}': Directives(off=True),
    "omnipilot=offline": Directives(unknown=("offline",)),
    "project=omnipilot": Directives(),
    "omnipilot": Directives(),
    "myomnipilot=off": Directives(),
}


@pytest.mark.parametrize("comment", COMMENTS)
def test_words_in_the_comment_of_a_job_are_read(comment: str) -> None:
    assert directives.omnipilot(b"#!/bin/bash\n", comment) == COMMENTS[comment]


def test_the_comment_of_a_job_wins_over_the_script() -> None:
    found = directives.omnipilot(b"#!/bin/bash\n#OMNIPILOT isl=512 observe\n", "omnipilot=isl=64")
    assert found == Directives(mode=Mode.OBSERVE, values={"isl": 64})


@given(st.binary(max_size=200), st.text(max_size=40))
def test_any_bytes_have_a_header(script: bytes, text: str) -> None:
    script = b"#!/bin/sh\n#SBATCH " + text.encode("utf-8", "surrogatepass") + b"\n" + script
    submitted(script)
    directives.omnipilot(b"#OMNIPILOT " + script, text)
    directives.parse_walltime(text)
    directives.parse_memory(text)
