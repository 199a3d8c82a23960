"""Hostile and huge scripts end as unclear after a bounded amount of work, whatever the clock."""

from __future__ import annotations

import tracemalloc

import pytest
from script_reading import HEAD

from omnipilot_slurm.records import Arm, Reason, Script, Submission
from omnipilot_slurm.script import budget, directives, rewrite, serving, tres
from omnipilot_slurm.script.budget import Budget, OverBudgetError
from omnipilot_slurm.script.source import MAX_BYTES, Source

SERVE = "vllm serve M/x -tp 2\n"
#: looks at the clock that reading one script may cost: steps / 32, and those of the parser
MOST_LOOKS = 5_000


class Clock:
    """Counts how often the reader looks at it; it runs out after `n_looks`."""

    def __init__(self, n_looks: int | None = None) -> None:
        self.n_looks = n_looks
        self.looked = 0

    def __call__(self) -> bool:
        self.looked += 1
        return self.n_looks is not None and self.looked > self.n_looks


def find(script: str | bytes, clock: Clock) -> Script:
    data = script.encode() if isinstance(script, str) else script
    submission = Submission(script=data)
    return serving.find(submission, tres.request_of(submission), expired=clock)


def nested(open_: str, close: str, depth: int) -> str:
    return open_ * depth + "x" + close * depth


def quoted_in_itself(depth: int) -> str:
    return "X='vllm serve M/x'\n" + "X=\"bash -c '$X'\"\n" * depth + "$X\n"


#: texts that make parsers, expansions or walks explode
HOSTILE = {
    "arrays in arrays": SERVE + "a=(" * 10_000,
    "here-documents in a line": SERVE + "cat <<A;" * 4_000,
    "tests in tests": SERVE + "[[ ( " * 6_000,
    "pipes": SERVE + "|" * 60_000,
    "redirects": SERVE + "<" * 60_000,
    "arms of no case": SERVE + "a) " * 20_000,
    "loops without a body": SERVE + "for((;;" * 9_000,
    "substitutions that stay open": SERVE + "$(" * 20_000,
    "substitutions in substitutions": SERVE + "echo " + nested("$(", ")", 3_000),
    "defaults that stay open": SERVE + "echo ${a:-" * 8_000,
    "defaults in defaults": SERVE + "echo " + nested("${a:-", "}", 5_000),
    "branches in branches": "if true; then\n" * 3_000 + SERVE + "fi\n" * 3_000,
    "brackets in brackets": nested("(", ")", 9_000),
    "brackets in arithmetic": SERVE + "echo $((" + nested("(", ")", 9_000) + "))",
    "a text that is run in a text, 500 times": quoted_in_itself(500),
    "eval of eval": "eval " * 9_000 + SERVE,
    "eval of itself": "X='eval $X'\neval $X\n" + SERVE,
    "a function that calls itself twice": "f() { f; f; }\nf\n" + SERVE,
    "functions that call each other": "f() { g; g; }\ng() { f; f; }\nf\n" + SERVE,
    "a function that is called 8000 times": f"f() {{ {SERVE}}}\n" + "f\n" * 8_000,
    "a value that triples": "A=x\n" + "A=$A$A$A\n" * 2_000 + SERVE,
    "a value that is put behind itself": "A=x\n" + "A+=$A\n" * 3_000 + SERVE,
    "patterns": f"A={'x' * 500}\n" + "echo ${A##*x*x*x*y}\n" * 1_000 + SERVE,
    "one line": SERVE + "echo " + "word " * 12_900,
    "options of srun": "srun -n1 " + "--gres=gpu:1 " * 4_500 + SERVE,
    "variables of env": "env " + "A=b " * 12_000 + SERVE,
    "an array": "A=(" + "word " * 12_900 + ")\n" + SERVE,
    "many variables in many branches": "".join(f"v{i}=1\n" for i in range(3_000))
    + "[ -f x ] && a=1\n" * 1_500
    + SERVE,
    "many variables and files of values": "".join(f"v{i}=1\n" for i in range(2_000))
    + "source a.conf\n" * 2_000
    + SERVE,
    "one command a line": "a\n" * 32_000,
    "servers": "vllm serve M/x &\n" * 3_000,
    "wrappers": "nohup " * 9_000 + SERVE,
    "here-documents for a shell": f"bash <<E\n{SERVE}E\n" * 2_000,
    "Python in Python's brackets": "python - <<E\nfrom vllm import LLM\nLLM("
    + nested("[", "]", 3_000)
    + ")\nE\n",
}

#: texts that are long, or grow, and can be read nevertheless
LARGE = {
    "commands": SERVE + 'echo hello $WORLD "and $you" | tee x.log\n' * 1_500,
    "one word": SERVE + "echo " + "w" * 64_000,
    "empty lines": "\n" * 60_000 + SERVE,
    "comments": "# OMNIPILOT x\n" * 4_000 + SERVE,
    "branches": "if [ -f x ]; then A=1; else A=2; fi\n" * 1_500 + SERVE,
    "arms": "case $A in " + "a) B=1;; " * 5_000 + "esac\n" + SERVE,
    "options that branches add": "[ -f a ] && O+=(--x)\n" * 1_000 + SERVE,
    "Python": "python - <<'E'\n" + "x = [1, 2, 3]\n" * 4_400 + "E\n" + SERVE,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_costs_a_bounded_amount_of_work(name: str) -> None:
    clock = Clock()
    found = find(HEAD + HOSTILE[name], clock)
    assert clock.looked < MOST_LOOKS
    assert found.is_serving is not False or "vllm serve" not in HOSTILE[name]


@pytest.mark.parametrize("name", LARGE)
def test_large_scripts_are_read(name: str) -> None:
    clock = Clock()
    found = find(HEAD + LARGE[name], clock)
    assert (found.is_serving, found.launches[0].tp) == (True, 2)
    assert clock.looked < MOST_LOOKS


@pytest.mark.parametrize("name", [*HOSTILE, *LARGE])
@pytest.mark.parametrize("n_looks", [0, 1, 20, 300])
def test_the_clock_ends_the_reading_at_once(name: str, n_looks: int) -> None:
    script = HEAD + (HOSTILE.get(name) or LARGE[name])
    clock = Clock(n_looks)
    found = find(script, clock)
    assert clock.looked <= n_looks + 1
    if clock.looked > n_looks:
        assert (found.is_serving, found.kind) == (None, "opaque")
        assert found.why == "too large or too deep to be read in time"


@pytest.mark.parametrize(
    "growth", ["A=$A$A$A", "A+=$A", 'A=("${A[@]}" "${A[@]}")', 'A+=("${A[@]}")', 'A="$A $A"']
)
def test_values_that_double_stay_small(growth: str) -> None:
    clock = Clock()
    find(f"{HEAD}A=x\n" + f"{growth}\n" * 200 + 'vllm serve M/x $A "${A[@]}"\n', clock)
    assert clock.looked < MOST_LOOKS


def test_a_script_longer_than_64_kib_is_not_read() -> None:
    clock = Clock()
    found = find(HEAD + SERVE + "#" * MAX_BYTES, clock)
    assert (found.is_serving, found.why) == (None, "longer than 65536 bytes")
    assert clock.looked == 0


def test_a_script_of_64_kib_is_read() -> None:
    script = HEAD + SERVE
    assert find(script + "#" * (MAX_BYTES - len(script)), Clock()).is_serving is True


def test_a_rewrite_that_takes_too_long_changes_nothing() -> None:
    submission = Submission(script=(HEAD + SERVE).encode(), tres_per_node="gpu:4")
    request = tres.request_of(submission)
    (launch,) = serving.find(submission, request).launches
    arm = Arm(partition=None, gpu="x", gres_type=None, n_gpus=1, tensor_parallel=1)
    whole = Clock()
    assert not isinstance(rewrite.rewrite(submission, launch, arm, expired=whole), Reason)
    for n_looks in range(whole.looked):
        found = rewrite.rewrite(submission, launch, arm, expired=Clock(n_looks))
        assert isinstance(found, Reason)


@pytest.mark.parametrize("text", ["\n" * 60_000, "# OMNIPILOT" + " " * 60_000, " \t" * 30_000])
def test_directives_are_found_in_one_pass(text: str) -> None:
    assert directives.omnipilot(text.encode()) == directives.Directives()


def test_steps_and_depth_end_a_budget() -> None:
    spent = Budget()
    spent.spend(budget.MAX_STEPS)
    with pytest.raises(OverBudgetError):
        spent.spend(32)
    deep = Budget()
    for _ in range(budget.MAX_DEPTH):
        deep.enter()
    with pytest.raises(OverBudgetError):
        deep.enter()


def test_a_parse_reads_its_text_only_a_few_times() -> None:
    for text in (b"|" * 60_000, b"a) " * 20_000):
        clock = Clock()
        with pytest.raises(OverBudgetError):
            Source.of_script(text).parse(Budget(clock))
        assert clock.looked < 6 * 16 + 8 + 1500 + 2


def test_text_handed_to_the_parser_does_not_stay_in_memory():
    script = "#!/bin/bash\n" + "python a.py\n" * 4000 + SERVE
    find(script, Clock())
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(10):
            Source.of_script(script.encode()).parse(Budget())
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # ten copies of the text would be 480 KB
    assert after - before < 100_000
