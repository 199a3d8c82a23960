"""Bash itself is asked: what we are sure of is what it does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

from hypothesis import given, settings
from hypothesis import strategies as st

from omnipilot_slurm.script import arithmetic
from omnipilot_slurm.script.budget import Budget
from omnipilot_slurm.script.frame import Command, Frame
from omnipilot_slurm.script.scope import Scope
from omnipilot_slurm.script.source import Source
from omnipilot_slurm.script.walk import Walker
from omnipilot_slurm.script.words import Word, texts_of

#: a command that prints its words, one line for each call
PRINTER = 'CMD() { printf "CMD"; printf "<%s>" "$@"; printf "\\n"; }\n'


def bash(script: str) -> list[str]:
    """Return the lines that a script prints, with nothing in the environment."""
    program = shutil.which("bash")
    assert program is not None, "bash must be installed"
    found = subprocess.run(
        [program, "-f"],
        input=(PRINTER + script).encode(),
        capture_output=True,
        check=False,
        timeout=20,
        env={"PATH": os.environ["PATH"]},
    )
    return found.stdout.decode().splitlines()


def read(script: str) -> list[tuple[Command, str | None]]:
    """Return the calls of CMD in a script with their line, None where we are not sure of it."""
    calls: list[tuple[Command, str | None]] = []

    def visit(command: Command) -> None:
        words = [word for word in command.words if isinstance(word, Word) or not word.is_blank]
        if words and texts_of(words[:1]) == ["CMD"]:
            is_sure = all(
                isinstance(word, Word) and word.text is not None and word.fixed for word in words
            )
            line = "CMD" + "".join(f"<{text}>" for text in texts_of(words[1:])) if is_sure else None
            calls.append((command, line if line != "CMD" else "CMD<>"))

    budget = Budget()
    scope = Scope(environment={}, complete=True, slurm={}, budget=budget)
    Walker(visit=visit, budget=budget).run(Frame(Source.of_script(script.encode()), scope))
    return calls


VALUES = "A=ab\nB='c d'\nC=/p/q.txt\nN=3\nE=\nARR=(u 'v w')\nunset U\n"
PIECES = st.sampled_from(
    """$A|${A}|"$A"|"${A}/x"|$B|${B:-d e}|"${U:-d e}"|${U}|$U|'$A b'|x|/|-|--k=|.log|_|\\ |"a b"
    |${C##*/}|${C%.*}|a\\$b|${#ARR[@]}|"${ARR[@]}"|${ARR[1]}|${ARR[@]}|$((N*2))|$(($N+1))|"$N"|${N}x
    |$(echo $N)|$(expr $N + 4)|,|\\'|"\\""|:|%|@|+|$E|"$E"|""|''|${E:+z}|${A:+z}|"${A:+$B}"|${B^^}
    |${A,,}|$N$A|"\u00fc"|${U-$N}|$((${U:-4}/2))|${A#a}|${C%/*}|"${B}"'y'|$'t\\tu'|${ARR[-1]}
    |"${ARR[*]}"|"x${U}y"|${N:?}|${C//\\//_}|${B/c/x}|"${B// /}"|${A//b/${N}}|${A/#a/z}
    |${C/\\/}""".replace("\n    ", "").split("|")
)
WORD = st.lists(PIECES, min_size=1, max_size=4).map("".join)
LINE = st.lists(WORD, min_size=1, max_size=4).map(lambda words: "CMD " + " ".join(words))


@settings(deadline=None, max_examples=60)
@given(st.lists(LINE, min_size=1, max_size=12))
def test_words_are_expanded_and_split_as_bash_does(lines: list[str]) -> None:
    script = VALUES + "\n".join(lines) + "\n"
    printed = bash(script)
    found = read(script)
    assert len(printed) == len(found) == len(lines)
    for line, (command, ours), theirs in zip(lines, found, printed, strict=True):
        assert ours in (None, theirs) or command.context.broken, line


NAMES = st.sampled_from(["A", "B", "C", "X"])
VALUE = st.sampled_from(
    ["1", "2", "x", '"$A"', "$B", "${X:-3}", '"a b"', "${C:=4}", "$((1+1))", "", '"${A}y"',
     "$(echo z)", "${ARR[0]}", '"${ARR[*]}"', "$1", "$#"]
)  # fmt: skip
TEST = st.one_of(
    st.tuples(
        st.sampled_from([
            '[ -z "${}" ]', '[ -n "${}" ]', '[ "${}" = 1 ]', "[[ ${} == x* ]]", '[ "${}" != 2 ]',
            'test -z "${}"', "[[ -n ${} && $A == 1 ]]", '! [ -z "${}" ]', "[[ ! -n ${} ]]",
            "[[ ${} = 1 || $B = 2 ]]", '[[ "${}" == "a"* ]]', "[[ ${} == $A ]]",
        ]),
        NAMES,
    ).map(lambda drawn: drawn[0].replace("{}", drawn[1])),
    st.sampled_from(["[ $# -gt 0 ]", "true", "false", "[ -f /none ]", "(( 1 + 1 > ${A:-0}0 ))"]),
)  # fmt: skip
ASSIGNMENT = st.one_of(
    st.tuples(NAMES, st.sampled_from(["=", "+="]), VALUE).map("".join),
    st.tuples(st.just("export "), NAMES, st.just("="), VALUE).map("".join),
    NAMES.map("unset {}".format),
    VALUE.map("ARR+=({})".format),
    st.tuples(VALUE, VALUE).map(lambda drawn: f"ARR=({drawn[0]} {drawn[1]})"),
    st.tuples(VALUE, VALUE).map(lambda drawn: f"set -- {drawn[0]} {drawn[1]}"),
    VALUE.map("read -ra ARR <<< {}''".format),
    st.sampled_from(["IFS=, read -r -a ARR <<< 'p,,q r,'", 'IFS=: read -ra ARR <<< "$A:$B"']),
    st.sampled_from(["shift", ': "${B:=9}"', "A=$B.$C-x", "read X <<< q", "let A=3"]),
)
CALL = st.lists(
    st.sampled_from(
        ['"$A"', "$B", "${C:-d}", '"${ARR[@]}"', "$X", '"$*"', '"$@"', "k", "$1", "$#"]
    ),
    min_size=1,
    max_size=3,
).map(lambda words: "CMD " + " ".join(words))


def compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    body = st.lists(inner, min_size=1, max_size=3).map("\n".join)
    return st.one_of(
        st.tuples(TEST, body).map(lambda d: f"if {d[0]}; then\n{d[1]}\nfi"),
        st.tuples(TEST, body, TEST, body, body).map(
            lambda d: f"if {d[0]}; then\n{d[1]}\nelif {d[2]}; then\n{d[3]}\nelse\n{d[4]}\nfi"
        ),
        st.tuples(NAMES, body, body, body).map(
            lambda d: f'case "${d[0]}" in\n1|2) {d[1]};;\nx*) {d[2]};;\n*) {d[3]};;\nesac'
        ),
        st.tuples(body, VALUE).map(lambda d: f"f() {{\n{d[0]}\n}}\nf {d[1]}"),
        body.map("( {}\n)".format),
        body.map("{{\n{}\n}}".format),
        st.tuples(TEST, inner).map(lambda d: f"{d[0]} && {{ {d[1]}\n}}"),
        st.tuples(TEST, inner).map(lambda d: f"{d[0]} || {{ {d[1]}\n}}"),
        st.tuples(NAMES, VALUE, body).map(lambda d: f"for {d[0]} in {d[1]}; do\n{d[2]}\ndone"),
        st.tuples(TEST, body).map(lambda d: f"while {d[0]}; do\n{d[1]}\nbreak\ndone"),
    )


SIMPLE = ASSIGNMENT | CALL
SCRIPT = st.lists(SIMPLE | st.recursive(SIMPLE, compound, max_leaves=8), min_size=1, max_size=6)


@settings(deadline=None, max_examples=150)
@given(SCRIPT)
def test_commands_that_are_certain_run_with_the_words_we_say(statements: list[str]) -> None:
    script = "\n".join(statements) + '\nCMD end "$A" "$B" "$C" "$X" "${ARR[@]}" "$@"\n'
    printed = bash(script)
    certain = [
        line
        for command, line in read(script)
        if not (command.context.branch or command.context.loop or command.context.broken)
    ]
    position = 0
    for line in certain:
        assert position < len(printed), "more commands than bash runs"
        while line is not None and printed[position] != line:
            position += 1
            assert position < len(printed), f"bash does not run {line}"
        position += 1


TERM = st.integers(0, 30).map(str) | st.sampled_from(["A", "B", "sign", "number", "digits"])
EXPRESSION = st.recursive(
    TERM,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/%"), inner).map(" ".join),
        st.tuples(inner, st.sampled_from("< <= > >= == !=".split()), inner).map(" ".join),
        st.tuples(inner, inner, inner).map(lambda drawn: "{} ? {} : {}".format(*drawn)),
        inner.map("({})".format),
        inner.map("-{}".format),
        inner.map("+{}".format),
    ),
    max_leaves=8,
)


@settings(deadline=None, max_examples=50)
@given(st.lists(EXPRESSION, min_size=1, max_size=10))
def test_arithmetic_is_that_of_bash(expressions: list[str]) -> None:
    values = {"A": 7, "B": 0, "sign": 2, "number": 3, "digits": 4}
    header = "".join(f"{name}={value}\n" for name, value in values.items())
    printed = bash(header + "".join(f"( echo $(({text})) ) || echo none\n" for text in expressions))
    for text, theirs in zip(expressions, printed, strict=True):
        found = arithmetic.evaluate(text, values.get)
        assert found is None or str(found) == theirs, text
        is_simple = re.search(r"--|\+\+|[<>=?]", text) is None
        assert found is not None or theirs == "none" or not is_simple, text
