"""Tests that the script alone decides, and those that it does not."""

from __future__ import annotations

import pytest
from script_reading import read

VARIABLES = 'A=ab\nN=3\nE=\nH=$(hostname)\nARR=(x y)\nset -- one "two words"\n'
#: tests by what is told of them; None: they stay open
TESTS: dict[bool | None, list[str]] = {
    True: [
        '[ -z "$E" ]', '[ -n "$A" ]', "[ -n $A ]", '[ "$A" ]', "[ $A ]", "[[ $A ]]", "[ -n $E ]",
        "[ -z $E ]", "[[ $E != ab ]]", "[[ $2 = two* ]]", '[ "$A" = ab ]', '[ "$A" == "ab" ]',
        "[ ab = $A ]", "[[ $A == a* ]]", "[[ $A = ?b ]]", "[[ $A == [ab]b ]]", '[[ $A == "$A" ]]',
        "[ $N -eq 3 ]", "[ $N -lt 4 ]", "[ $N -gt -1 ]", "[[ $N -ge 3 ]]", "(( N > 2 ))",
        "(( N != 2 ))", "(( N <= $N ))", "(( N > 1 && N < 9 ))", "((N*2>=6))", "! [ -z $A ]",
        "[ ! -z $A ]", "[[ $A == ab && $N == 3 ]]", "[[ $A == x || $N == 3 ]]",
        "[[ $A = x || $N = 3 ]]", "[[ $H = x || $A = ab ]]", "[[ ( $A == ab ) ]]",
        "[ $A = ab ] && [ $N = 3 ]", "[ $A = x ] || [ $N = 3 ]", '[ "$A" = ab -a "$N" = 3 ]',
        '[ -z "$A" -o "$N" -gt 2 ]', "[[ $A = ab && ( $N = 2 || $N = 3 ) ]]",
        "[[ ! $A = x && $N = 3 ]]", '[ ! "$A" = x ]', "[[ $A = x || $N = 2 || $E = '' ]]", "true",
        ":", "A=x", 'test -n "$A"', "test $A", "test ! -z $A", "test $A = ab", "test $N -ge 3",
        "test 1 = 1 -a 2 = 2", "[ $# -eq 2 ]", '[ "$1" = one ]', '[ "$2" = "two words" ]',
        '[ -z "$3" ]', '[ "$*" = "one two words" ]', "[ ${#ARR[@]} -eq 2 ]", "[ ${ARR[1]} = y ]",
        '[ "${ARR[*]}" = "x y" ]',
    ],
    False: [
        '[ -z "$A" ]', '[ "$E" ]', "[[ -n $E ]]", "[ $E = ab ]", "[ $E != ab ]", "[ $A != ab ]",
        "[[ $A == b* ]]", "[[ $A == [!a]b ]]", "[[ $A == 'a*' ]]", "[ $N -ne 3 ]", "[ $N -le 2 ]",
        "(( N == 2 ))", "(( N > 5 || (N < 2) ))", "[[ ! $A == ab ]]", "! true",
        "[[ $A == ab && $N == 4 ]]", "[[ $A = x || $N = 4 ]]", "[[ $A = x && $H = x ]]",
        '[ -z "$A" -o -z "$N" ]', "[[ -z $H && $A = x ]]", "[[ $A = x && ( $H = y || $N = 3 ) ]]",
        "false", 'test -z "$A"', "test ! $A", 'test "$E"', "test $A != ab",
    ],
    None: [
        "[ $2 = x ]", "[ -n $H ]", "[ ]", "[[ -v A ]]", "[ -f /etc/passwd ]", '[ -z "$H" ]',
        "[ $H ]", '[ "$A" = "$H" ]', '[ "$H" = ab ]', "[[ $A == a+(b) ]]", "[[ $A == a\\* ]]",
        "[[ $A =~ ^a ]]", "[[ $A == $H* ]]", "[[ $A < b ]]", "[ $A = a* ]", "[ $A -eq 3 ]",
        "[ $N -eq $H ]", "[ $H -eq 3 ]", "[ $N -nt x ]", "(( N ))", "(( N & 1 ))", "(( H > 1 ))",
        "(( N > 1 && H ))", "[[ $A = ab && $H = x ]]", "[ $A = ab ] && [ $H = 3 ]",
        "[ $A = x = y ]", "[ $A -o ]", "[ -z ]", "hostname", "grep -q x f",
        "test $N -lt x", "test -f x", "test $H = x", "test", "[ ${#A} -eq 2 ]",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("truth", "test"), [(truth, t) for truth in TESTS for t in TESTS[truth]])
def test_it_is_decided_or_stays_open(truth: bool | None, test: str) -> None:
    body = f"{VARIABLES}TP=1\nif {test}; then TP=2; fi\nvllm serve M/x -tp $TP"
    assert read(body)["tp"] == {True: 2, False: 1, None: None}[truth]


def test_bash_agrees() -> None:
    from test_as_bash_does import bash

    for truth in (True, False):
        lines = (f"( if {test}; then echo True; else echo False; fi )\n" for test in TESTS[truth])
        assert bash(VARIABLES + "".join(lines)) == [str(truth)] * len(TESTS[truth])


ARMS = {
    "case $A in ab) TP=2;; esac": 2,
    "case $A in x|a*) TP=2;; *) TP=4;; esac": 2,
    "case $A in x) TP=4;; y) TP=8;; *) TP=2;; esac": 2,
    "case $A in x) TP=4;; esac": 1,
    'case "$A" in "a"*) TP=2;; esac': None,
    'case $A in "$A") TP=2;; esac': 2,
    "case $H in ab) TP=2;; esac": None,
    "case $A in $H) TP=2;; *) TP=4;; esac": None,
    "case $A in\n# a comment\nab)\n  TP=2\n  ;;\nesac": 2,
    "case $1-$2 in one-*) TP=2;; esac": 2,
}


@pytest.mark.parametrize("case", ARMS)
def test_the_arm_of_a_case_that_runs(case: str) -> None:
    assert read(f"{VARIABLES}TP=1\n{case}\nvllm serve M/x -tp $TP")["tp"] == ARMS[case]
