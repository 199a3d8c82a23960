"""What a value is, how it is given, and where it stands: variables, defaults, tests, branches."""

from __future__ import annotations

from typing import Any

import pytest
from script_reading import HEAD, expect, read

LITERAL = {"tp": 2, "tp_source": "literal", "editable": "yes"}
VARIABLE = {"tp": 2, "tp_source": "variable", "editable": "yes"}
DEFAULT = {"tp": 2, "tp_source": "default_expansion", "editable": "conditional"}
UNKNOWN = {"tp": None, "tp_source": "unknown", "editable": "no", "edit": None}
FOLLOWS = {"tp": 4, "editable": "yes", "edit": None}
SERVE = "vllm serve M/x -tp $TP"

FLAGS: dict[str, tuple[str, dict[str, Any]]] = {
    "last one wins": ("vllm serve M/x -tp 2 --max-model-len 4096 -tp 4", {"tp": 4}),
    "prefix": ("vllm serve M/x --tensor-parallel 4", {"tp": 4, "tp_source": "literal"}),
    "underscores": ("vllm serve M/x --tensor_parallel_size=4", {"tp": 4}),
    "binary suffix": ("vllm serve M/x --max-model-len 32K", {"max_model_len": 32768}),
    "decimal suffix": ("vllm serve M/x --max_model_len 32k", {"max_model_len": 32000}),
    "served names": ("vllm serve M/x --served-model-name a b -tp 4", {"model": "M/x", "tp": 4}),
    "json": ('vllm serve M/x -tp 2 --hf-overrides \'{"a": {"b": 1}}\'', LITERAL),
    "quotes": ("vllm serve 'M/x' '--tensor-parallel-size' '2'", LITERAL),
    "continued": ("vllm serve M/x -tp \\\n  2", LITERAL),
    "words adjacent": ("A=a\nB=b\nvllm serve /m/$A/$B-c -tp 2", {"model": "/m/a/b-c", **LITERAL}),
    "unset port and host": ("vllm serve M/x --port $PORT --host $(hostname) -tp 2", LITERAL),
    "config file": ("vllm serve --config a.yaml -tp 2", {"model": None, "tp": 2, "dtype": None}),
    "config file alone": ("vllm serve --config a.yaml", {"tp": None, "tp_source": "config_file"}),
    "not a number": ("vllm serve M/x -tp two", {"tp": None, "tp_source": "literal"}),
    "not UTF-8": ("vllm serve M/x --served-model-name '\udcff' -tp 2", {"tp": 2}),
}

GIVEN: dict[str, tuple[str, dict[str, Any]]] = {
    "assigned": ("TP=2\n" + SERVE, {**VARIABLE, "at": "u:a100:4\nTP=|2|\nvllm serve "}),
    "assigned in quotes": ('TP="2"\n' + SERVE, {**VARIABLE, "at": ':a100:4\nTP="|2|"\nvllm serve'}),
    "assigned twice": ("TP=4\nTP=2\n" + SERVE, VARIABLE),
    "through another": (
        "N=2\nTP=$N\n" + SERVE,
        {**VARIABLE, "at": "pu:a100:4\nN=|2|\nTP=$N\nvllm "},
    ),
    "export": ("export MODEL=M/x TP=2\n" + SERVE, VARIABLE),
    "declare": ("declare -i TP=2\n" + SERVE, VARIABLE),
    "readonly": ("readonly TP=2\n" + SERVE, VARIABLE),
    "on one line before": ("MODEL=M/x TP=2\nvllm serve $MODEL -tp $TP", VARIABLE),
    "on the line of the command": ("TP=2; vllm serve M/x -tp ${TP}", VARIABLE),
    "in front of the command": ("TP=2 " + SERVE, UNKNOWN),
    "array": (
        'A=(serve M/x\n  --tensor-parallel-size 2  # two\n  --port 1)\nvllm "${A[@]}"',
        {"tp": 2, "tp_source": "array", "editable": "yes"},
    ),
    "array that grows": (
        'A=(M/x)\nA+=(-tp 2)\nvllm serve "${A[@]}"',
        {"tp": 2, "tp_source": "array", "editable": "yes"},
    ),
    "array without quotes": ('A=("-tp 2" M/x)\nvllm serve ${A[@]}', {"tp": 2, "model": "M/x"}),
    "slice of an array": ('A=(x M/x -tp 2)\nvllm serve "${A[@]:1}"', {"tp": 2, "model": "M/x"}),
    "element": ("T=(1 2)\nvllm serve M/x -tp ${T[1]}", VARIABLE),
    "element by a variable": ("T=(1 2)\nI=1\nvllm serve M/x -tp ${T[$I]}", VARIABLE),
    "element from the end": ("T=(1 2)\nvllm serve M/x -tp ${T[-1]}", VARIABLE),
    "element by the task": ("T=(1 2)\nvllm serve M/x -tp ${T[$SLURM_ARRAY_TASK_ID]}", UNKNOWN),
    "element by a name": ("declare -A T=([a]=2)\nvllm serve M/x -tp ${T[a]}", UNKNOWN),
    "element set by a name": ("T[0]=2\nvllm serve M/x -tp ${T[0]}", UNKNOWN),
    "flags in a string": ('O="--tensor-parallel-size 2 --port 1"\nvllm serve M/x $O', VARIABLE),
    "string that grows": ('O="--port 1"\nO+=" -tp 2"\nvllm serve M/x $O', VARIABLE),
    "lower case": ("M=M/X\nvllm serve ${M,,} -tp 2", {"model": "m/x", **LITERAL}),
    "upper case": ("M=m/x\nvllm serve ${M^^} -tp 2", {"model": "M/X", **LITERAL}),
    "first letter": ("M=m/x\nvllm serve ${M^} -tp 2", {"model": None, "editable": "no"}),
    "without a start": ("M=a/b/c\nvllm serve ${M#*/} -tp 2", {"model": "b/c", **LITERAL}),
    "without the longest start": ("M=a/b/c\nvllm serve ${M##*/} -tp 2", {"model": "c"}),
    "without an end": ("M=a/b/c\nvllm serve ${M%/*} -tp 2", {"model": "a/b"}),
    "without the longest end": ("M=a/b/c\nvllm serve ${M%%/*} -tp 2", {"model": "a"}),
    "nothing to take away": ("M=a/b\nvllm serve ${M%x} -tp 2", {"model": "a/b"}),
    "replaced": ("M=a/b/a\nvllm serve ${M/a/c} -tp 2", {"model": "c/b/a", **LITERAL}),
    "all replaced": ("M=a-b-c\nvllm serve ${M//-//} -tp 2", {"model": "a/b/c", **LITERAL}),
    "a pattern replaced": ("M=a/b\nvllm serve ${M//?/c} -tp 2", {"model": None, "editable": "no"}),
    "by a name in a variable": ("M=a/b\nN=M\nvllm serve ${!N} -tp 2", {"model": None}),
    "alternative": ("A=1\nvllm serve M/x ${A:+-tp 2}", {"tp": 2, "tp_source": "variable"}),
    "alternative of nothing": ("A=\nvllm serve M/x ${A:+-tp 2}", {"tp": 1, "tp_source": "absent"}),
    "alternative of the unset": ("vllm serve M/x ${A:+-tp 2}", {"editable": "conditional"}),
    "ansi quotes": ("vllm serve $'M/x' -tp $'2'", {"model": "M/x", "tp": 2}),
    "ansi quotes with an escape": ("vllm serve $'M\\/x\\t' -tp 2", {"tp": 2}),
    "translated": ('vllm serve $"M/x" -tp 2', {"model": "M/x", "tp": 2}),
    "let": ("let TP=2\n" + SERVE, UNKNOWN),
    "arithmetic command": ("TP=1\n((TP*=2))\n" + SERVE, UNKNOWN),
    "printf -v": ("printf -v TP %s 2\n" + SERVE, UNKNOWN),
    "read": ("read TP <<< 2\n" + SERVE, UNKNOWN),
    "read as an array": (
        'read -ra A <<< "M/x 2"\nvllm serve ${A[0]} -tp ${A[1]}',
        {"model": "M/x", "tp": 2, "tp_source": "variable", "editable": "no"},
    ),
    "the length of what is read": ("read -ra A < f\nvllm serve M/x -tp ${#A[@]}", {"tp": None}),
    "the number of lines": ("mapfile -t A < f\nvllm serve M/x -tp ${#A[@]}", {"tp": None}),
    "unset": ("TP=2\nunset TP\n" + SERVE, UNKNOWN),
    "eval": ('eval "TP=2"\n' + SERVE, {"tp": 2, "editable": "yes"}),
    "counted words": ("G=(a b)\nvllm serve M/x -tp ${#G[@]}", {"tp": 2, "tp_source": "computed"}),
    "calculated": ("vllm serve M/x -tp $((2*2))", {"tp": 4, "tp_source": "computed", "edit": None}),
    "calculated with names": ("number=2\nvllm serve M/x -tp $((number * 2))", {"tp": 4}),
    "calculated with a default": (
        "vllm serve M/x -tp $((${N:-4} / 2))",
        {"tp": 2, "tp_source": "computed", "editable": "no"},
    ),
    "calculated with what is not known": (
        "N=$(cat n)\nvllm serve M/x -tp $((${N:-4} / 2))",
        {"tp": None},
    ),
    "octal numbers": ("vllm serve M/x -tp $((010))", {"tp": None}),
    "powers": ("vllm serve M/x -tp $((2**1))", {"tp": None}),
    "numbers beyond all GPUs": ("vllm serve M/x -tp $((10000000 * 10000000))", {"tp": None}),
    "sums of very many terms": (f"vllm serve M/x -tp $(({'1+' * 40}1))", {"tp": None}),
    "the length of a text": ("X=ab\nvllm serve M/x -tp ${#X}", {"tp": None}),
    "the length of what is not known": ("X=($(ls))\nvllm serve M/x -tp ${#X[@]}", {"tp": None}),
    "the number of hosts": (
        "H=($(scontrol show hostnames))\nvllm serve M/x -tp $((4 / ${#H[@]}))",
        {"tp": None},
    ),
    "the number of arguments that are not seen": (
        "set -- $(ls)\nvllm serve M/x -tp $#",
        {"tp": None},
    ),
    "the number of arguments": ("set -- a b\nvllm serve M/x -tp $#", {"tp": 2, "editable": "no"}),
    "arguments that are set": ("set -- M/x 2\nvllm serve $1 -tp $2", {"model": "M/x", **VARIABLE}),
    "arguments that are shifted": ("set -- a M/x 2\nshift\nvllm serve $1 -tp $2", VARIABLE),
    "arguments shifted by some number": ("set -- M/x 2\nshift $N\nvllm serve M/x -tp $1", UNKNOWN),
    "arguments set behind options": ("set -euo pipefail M/x 2\nvllm serve $1 -tp $2", VARIABLE),
    "options alone set no arguments": (
        "set -- M/x 2\nset -eu -o pipefail +x\nvllm serve $1 -tp $2",
        VARIABLE,
    ),
    "more shifted than there are": (
        "set -- M/x\nshift 5\nvllm serve $1 -tp 2",
        {"model": "M/x", "tp": 2},
    ),
    "an option inside a quoted array": (
        'A=(a b)\nvllm serve M/x -tp 2 "x${A[@]}y"',
        {"tp": 2, "editable": "no"},
    ),
    "alternative of what is not known": (
        "B=$(x)\nvllm serve M/x -tp 2 ${B:+--port 1}",
        {"tp": 2, "editable": "no"},
    ),
    "a program and its text": ("vllm serve M/x -tp $(expr 1 '*' 2)", {"tp": 2}),
    "a program that is not expr": ("vllm serve M/x -tp $(seq 1 2)", {"tp": None}),
    "a value glued to what is not known": ('vllm serve M/x -tp 2"$(x)"', {"tp": None}),
    "calculated with expr": ("vllm serve M/x -tp $(expr 1 + 1)", {"tp": 2, "editable": "no"}),
    "echoed": ("TP=$(echo 2)\n" + SERVE, {"tp": 2, "tp_source": "computed", "editable": "no"}),
    "a text of a heredoc": ("O=$(cat <<E\n--port 1\n-tp 2\nE\n)\nvllm serve M/x $O", VARIABLE),
    "a quoted text of a heredoc": ("O=$(cat <<'E'\n-tp $N\nE\n)\nvllm serve M/x $O", {"tp": None}),
    "a heredoc that is changed": (
        "O=$(cat <<E | tr 4 2\n-tp 4\nE\n)\nvllm serve M/x $O",
        {"tp": None},
    ),
    "words that are echoed": ('O="-tp 2"\nvllm serve M/x $(echo "$O")', {"tp": 2}),
    "printed by a program": ("TP=$(cat tp)\n" + SERVE, {"tp": None, "tp_source": "computed"}),
}

DEFAULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "expansion": ("vllm serve M/x -tp ${TP:-2}", {**DEFAULT, "at": "x -tp ${TP:-|2|}\n"}),
    "expansion of the unset only": ("TP=${TP-2}\n" + SERVE, DEFAULT),
    "expansion in quotes": ('TP="${TP:-"2"}"\n' + SERVE, DEFAULT),
    "assignment": (': "${TP:=2}"\n' + SERVE, DEFAULT),
    "chain": ("TP=${A:-${B:-2}}\n" + SERVE, DEFAULT),
    "required": ("vllm serve M/x -tp ${TP:?}", UNKNOWN),
    "test and assignment": ('[ -z "$TP" ] && TP=2\n' + SERVE, DEFAULT),
    "test or assignment": ('[ -n "$TP" ] || TP=2\n' + SERVE, DEFAULT),
    "double brackets": ("[[ -z $TP ]] && TP=2\n" + SERVE, DEFAULT),
    "the test command": ('test -z "$TP" && TP=2\n' + SERVE, DEFAULT),
    "if": ('if [ -z "$TP" ]; then TP=2; fi\n' + SERVE, DEFAULT),
    "if with a default": ('if [ -z "${TP:-}" ]; then\n TP=2\nfi\n' + SERVE, DEFAULT),
    "if not": ('if ! [ -n "$TP" ]; then TP=2; else echo "$TP"; fi\n' + SERVE, DEFAULT),
    "another variable decides": (
        'TP=2\nif [ -n "$BIG" ]; then TP=4; fi\n' + SERVE,
        {"tp": 2, "tp_source": "variable", "editable": "conditional"},
    ),
    "first argument": (
        "vllm serve M/x -tp ${1:-2}",
        {"tp": 2, "tp_source": "positional_default", "editable": "yes"},
    ),
    "argument or variable": (
        "TP=${1:-${TP:-2}}\n" + SERVE,
        {"tp": 2, "tp_source": "positional_default", "editable": "conditional"},
    ),
    "an option that says nothing of the engine": (
        "vllm serve M/x --port ${PORT:-8000} -tp 2",
        LITERAL,
    ),
    "an option in one word with its value": ("vllm serve M/x --port=$PORT -tp 2", LITERAL),
    "a default in one word with its option": ("vllm serve M/x --port=${PORT:-1} -tp 2", LITERAL),
    "an option in one word with what is computed": (
        "vllm serve M/x --max-model-len=$(cat len) --dtype half -tp 2",
        {"dtype": "half", "max_model_len": None, **LITERAL},
    ),
    "an option of the engine": (
        "vllm serve M/x --max-model-len ${LEN:-4096} -tp 2",
        {"tp": 2, "max_model_len": 4096, "editable": "conditional"},
    ),
    "options that nothing sets": ("vllm serve M/x -tp 2 $EXTRA", {"editable": "conditional"}),
    "an array that nothing sets": ('vllm serve M/x -tp 2 "${EXTRA[@]}"', {"tp": 2}),
    "options of the server that a variable adds to an array": (
        'A=(M/x -tp 2)\n[ -n "$KEY" ] && A+=(--api-key "$KEY")\nvllm serve "${A[@]}"',
        {"tp": 2, "tp_source": "array", "editable": "yes"},
    ),
    "options of the server that a variable adds to a text": (
        'O=\nif [ -n "$KEY" ]; then O="--api-key $KEY"; fi\nvllm serve M/x $O -tp 2',
        LITERAL,
    ),
    "options of the server behind :+": ('vllm serve M/x -tp 2 ${KEY:+--api-key "$KEY"}', LITERAL),
    "options of the engine that a variable adds": (
        'A=(M/x -tp 2)\n[ -n "$L" ] && A+=(--max-model-len "$L")\nvllm serve "${A[@]}"',
        {"tp": 2, "max_model_len": None, "editable": "conditional"},
    ),
    "a degree that a variable adds to an empty array": (
        'A=()\n[ -n "$L" ] && A+=(-tp 4)\nvllm serve M/x "${A[@]}"',
        {"tp": 1, "tp_source": "absent", "editable": "conditional"},
    ),
    "an array that a variable makes a text": (
        'A=()\n[ -n "$L" ] && A="-tp 4"\nvllm serve M/x "${A[@]}"',
        {"tp": 1, "editable": "conditional"},
    ),
    "a launcher that a variable adds": (
        'P=()\n[ -n "$L" ] && P=(nsys profile)\n"${P[@]}" vllm serve M/x -tp 2',
        {"tp": 2, "editable": "conditional"},
    ),
    "words of an array that are joined": (
        'A=(vllm serve M/x)\n[ -n "$L" ] && A+=(--port 1)\nbash -c "${A[*]}"',
        {"tp": 1, "editable": "yes", "at": ' -c "${A[*]}||"\n'},
    ),
    "options of the engine behind :+": (
        "vllm serve M/x -tp 2 ${L:+--max-model-len $L}",
        {"tp": 2, "max_model_len": None, "editable": "conditional"},
    ),
    "options of the engine that a variable adds to a text": (
        'O=\n[ -n "$L" ] && O="--max-model-len $L"\nvllm serve M/x $O -tp 2',
        {"tp": 2, "max_model_len": None, "editable": "conditional"},
    ),
    "a program that a variable adds words to": (
        'C=(vllm serve M/x)\n[ -n "$L" ] && C+=(--port "$L")\n"${C[@]}" -tp 2',
        LITERAL,
    ),
    "words that a variable adds to an evaluated array": (
        'C=(vllm serve M/x)\n[ -n "$L" ] && C+=(--port "$L")\neval "${C[*]} -tp 2"',
        {"tp": 2, "editable": "no"},
    ),
    "a test for being set at all": (
        'if [ -z "${TP+x}" ]; then TP=2; fi\nvllm serve M/x -tp $TP',
        DEFAULT,
    ),
    "options of srun that nothing sets": (
        "srun $OPTIONS vllm serve M/x -tp 2",
        {"tp": 2, "editable": "conditional"},
    ),
    "a launcher that nothing sets": ("$LAUNCHER vllm serve M/x -tp 2", {"editable": "conditional"}),
    "a file of values was sourced": (
        "source serve.conf\nvllm serve M/x -tp ${TP:-2}",
        {**DEFAULT, "editable": "no"},
    ),
    "a file of values after the value": (
        "TP=2\n. ./params.sh\n" + SERVE,
        {**VARIABLE, "editable": "no", "edit": None},
    ),
    "a file of values before the value": ("source .env\nTP=2\n" + SERVE, VARIABLE),
    "a file in a variable": (
        'source "$SETTINGS"\nvllm serve M/x -tp ${TP:-2}',
        {**DEFAULT, "editable": "no"},
    ),
    "an environment was sourced": (
        "source venv/bin/activate\nvllm serve M/x -tp ${TP:-2}",
        DEFAULT,
    ),
    "an environment in a variable": ('. "$VENV"\nvllm serve M/x -tp ${TP:-2}', DEFAULT),
    "names from a file": (
        "export $(grep -v '#' f | xargs)\nvllm serve M/x -tp ${TP:-2}",
        {**DEFAULT, "editable": "no"},
    ),
    "options after a file of values": (
        "source serve.conf\nvllm serve M/x -tp 2 $EXTRA",
        {"tp": 2, "editable": "no"},
    ),
}

BRANCHES: dict[str, tuple[str, dict[str, Any]]] = {
    "a file decides": ("TP=2\nif [ -d /big ]; then TP=4; fi\n" + SERVE, UNKNOWN),
    "same value in both": (
        "if [ -d x ]; then TP=2; else TP=2; fi\n" + SERVE,
        {"tp": 2, "tp_source": "variable", "editable": "no"},
    ),
    "the script decides": ("S=big\nif [ $S = big ]; then TP=2; else TP=1; fi\n" + SERVE, VARIABLE),
    "and or": ('S=big\n[ "$S" = big ] && TP=2 || TP=1\n' + SERVE, VARIABLE),
    "not equal": ('S=big\nif [ "$S" != small ]; then TP=2; else TP=1; fi\n' + SERVE, VARIABLE),
    "a pattern": ("S=70B\nif [[ $S == *0B ]]; then TP=2; else TP=1; fi\n" + SERVE, VARIABLE),
    "a quoted part of a pattern": (
        'S=big1\nif [[ $S == "big"* ]]; then TP=2; fi\n' + SERVE,
        {"tp": None},
    ),
    "a pattern in a variable": (
        "S=a\nP='*'\nif [[ $S == $P ]]; then TP=2; fi\n" + SERVE,
        {"tp": None},
    ),
    "a pattern of files": ("S=a\nTP=1\nif [ $S = * ]; then TP=2; fi\n" + SERVE, {"tp": None}),
    "a class of letters": ("S=a\nTP=1\nif [[ $S == [^a] ]]; then TP=2; fi\n" + SERVE, {"tp": None}),
    "octal numbers": ("N=010\nTP=1\nif [[ $N -eq 8 ]]; then TP=2; fi\n" + SERVE, {"tp": None}),
    "calculated defaults": (
        "if (( ${N:-4} > 2 )); then TP=2; else TP=1; fi\n" + SERVE,
        {"tp": 2, "editable": "conditional"},
    ),
    "numbers": ("N=3\nif [ $N -gt 2 ]; then TP=2; else TP=1; fi\n" + SERVE, VARIABLE),
    "arithmetic": ("N=3\nif (( N >= 3 )); then TP=2; else TP=1; fi\n" + SERVE, VARIABLE),
    "all of several": ("A=1\nif [ $A = 1 ] && [ -n x ]; then TP=2; fi\n" + SERVE, VARIABLE),
    "one of several": ("A=1\nif [[ $A = 1 || -f x ]]; then TP=2; fi\n" + SERVE, VARIABLE),
    "elif": ("A=2\nif [ $A = 1 ]; then TP=1; elif [ $A = 2 ]; then TP=2; fi\n" + SERVE, VARIABLE),
    "the GPUs of the job": (
        "if [ $SLURM_GPUS_ON_NODE -ge 4 ]; then TP=2; else TP=1; fi\n" + SERVE,
        VARIABLE,
    ),
    "case": ("M=M/x\ncase $M in y*|z) TP=1;; M/*) TP=2;; *) exit 1;; esac\n" + SERVE, VARIABLE),
    "case of a default": (
        "case ${S:-a} in a) TP=2;; *) TP=1;; esac\n" + SERVE,
        {"tp": 2, "editable": "conditional"},
    ),
    "case of a command": ("case $(hostname) in a*) TP=2;; *) TP=1;; esac\n" + SERVE, UNKNOWN),
    "a way that ends": ("if [ -d x ]; then TP=2; else exit 1; fi\n" + SERVE, VARIABLE),
    "a guard": ('[ -z "$X" ] && { echo no >&2; exit 1; }\nTP=2\n' + SERVE, VARIABLE),
    "a loop over one": ("for TP in 2; do :; done\n" + SERVE, UNKNOWN),
    "options of a branch": (
        "[ -f q ] && Q=--enforce-eager\nvllm serve M/x -tp 2 $Q",
        {"tp": 2, "editable": "conditional"},
    ),
    "options of a branch, none before": (
        "Q=\n[ -f q ] && Q=--enforce-eager\nvllm serve M/x -tp 2 $Q",
        LITERAL,
    ),
    "array that a branch extends": (
        'A=(M/x -tp 2)\nif [ -f q ]; then A+=(--dtype half); fi\nvllm serve "${A[@]}"',
        {"tp": 2, "tp_source": "array", "editable": "yes", "dtype": "auto"},
    ),
    "array that branches extend": (
        (
            "A=(M/x -tp 2)\n[ -f q ] && A+=(--dtype half)\n[ -f p ] && A+=(--port 1)\n"
            'vllm serve "${A[@]}"'
        ),
        {"tp": 2, "tp_source": "array", "editable": "yes"},
    ),
    "string that a branch extends": (
        'O="M/x -tp 2"\nif [ -f q ]; then O="$O --dtype half"; fi\nvllm serve $O',
        VARIABLE,
    ),
    "command that a branch extends": (
        'C="vllm serve M/x -tp 2"\n[ -f q ] && C+=" --port 1"\neval "$C"',
        {"tp": 2, "editable": "no"},
    ),
    "degree that a branch adds": ('A=(M/x)\n[ -f q ] && A+=(-tp 2)\nvllm serve "${A[@]}"', UNKNOWN),
    "degree that a branch replaces": ("vllm serve M/x -tp 2 $([ -f q ] && echo -tp 4)", {"tp": 2}),
    "model that a branch adds": (
        'M=\n[ -f q ] && M="--model M/y"\nvllm serve $M -tp 2',
        {"model": None, "tp": 2, "editable": "no"},
    ),
    "too many ways": (
        "".join(f"[ -f q{i} ] && A+=(--port {i})\n" for i in range(12))
        + 'vllm serve M/x "${A[@]}" -tp 2',
        {"model": "M/x", "tp": 2, "editable": "conditional"},
    ),
    "too many values": (
        "case $(hostname) in "
        + "".join(f"a{i}) M=M/x{i};; " for i in range(12))
        + "esac\nvllm serve $M -tp 2",
        {"model": None, "tp": 2, "editable": "no"},
    ),
    "no arguments to parse": (
        "TP=2\nwhile [[ $# -gt 0 ]]; do case $1 in -t) TP=$2; shift 2;; esac; done\n" + SERVE,
        VARIABLE,
    ),
    "no options to get": (
        'TP=2\nwhile getopts "t:" o; do case $o in t) TP=$OPTARG;; esac; done\n' + SERVE,
        VARIABLE,
    ),
    "no arguments to loop over": ('TP=2\nfor a in "$@"; do TP=$a; done\n' + SERVE, VARIABLE),
    "until": ("until curl -s localhost; do sleep 1; done &\nTP=2\n" + SERVE, VARIABLE),
}

ALLOCATION: dict[str, tuple[str, dict[str, Any]]] = {
    "the GPUs of the node": ("vllm serve M/x -tp ${SLURM_GPUS_ON_NODE}", FOLLOWS),
    "with a default": ("vllm serve M/x -tp ${SLURM_GPUS_ON_NODE:-1}", FOLLOWS),
    "through another": ("N=$SLURM_GPUS_ON_NODE\nvllm serve M/x --tensor-parallel-size=$N", FOLLOWS),
    "list of nvidia-smi": ("N=$(nvidia-smi -L | wc -l)\nvllm serve M/x -tp $N", FOLLOWS),
    "query of nvidia-smi": (
        "N=$(nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)\nvllm serve M/x -tp $N",
        FOLLOWS,
    ),
    "devices": (
        'N=$(echo $CUDA_VISIBLE_DEVICES | tr "," "\\n" | wc -l)\nvllm serve M/x -tp $N',
        FOLLOWS,
    ),
    "fields of devices": (
        "N=$(awk -F, '{print NF}' <<< \"$CUDA_VISIBLE_DEVICES\")\nvllm serve M/x -tp $N",
        FOLLOWS,
    ),
    "devices in an array": (
        "IFS=',' read -ra G <<< \"$CUDA_VISIBLE_DEVICES\"\nvllm serve M/x -tp ${#G[@]}",
        {**FOLLOWS, "tp_source": "computed"},
    ),
    "devices split at commas": (
        "G=(${CUDA_VISIBLE_DEVICES//,/ })\nvllm serve M/x -tp ${#G[@]}",
        FOLLOWS,
    ),
    "devices printed as words": (
        'G=($(echo $CUDA_VISIBLE_DEVICES | tr "," " "))\nvllm serve M/x -tp ${#G[@]}',
        FOLLOWS,
    ),
    "at most some of them": ("vllm serve M/x -tp $((SLURM_GPUS_ON_NODE > 8 ? 8 : 4))", FOLLOWS),
    "torch": (
        "N=$(python -c 'import torch; print(torch.cuda.device_count())')\nvllm serve M/x -tp $N",
        FOLLOWS,
    ),
    "half of them": ("vllm serve M/x -tp $((SLURM_GPUS_ON_NODE / 2)) -dp 2", {**FOLLOWS, "tp": 2}),
    "devices that the script sets": (
        "export CUDA_VISIBLE_DEVICES=0\nN=$(nvidia-smi -L | wc -l)\nvllm serve M/x -tp $N",
        {"tp": None, "editable": "no"},
    ),
    "not set in this job": (
        "vllm serve M/x -tp $SLURM_GPUS",
        {"tp": None, "tp_source": "slurm_env"},
    ),
    "a default of what is not set": ("vllm serve M/x -tp ${SLURM_GPUS:-2}", DEFAULT),
    "no name of Slurm": ("vllm serve M/x -tp ${SLURM_JOB_GPUS_PER_NODE:-2}", DEFAULT),
    "the nodes": ("vllm serve M/x -tp $SLURM_NNODES", {"tp": 1, "editable": "no"}),
    "the job's number": (
        "vllm serve M/x -tp $SLURM_JOB_ID",
        {"tp": None, "tp_source": "slurm_env"},
    ),
}


@pytest.mark.parametrize("name", FLAGS)
def test_flags_are_read_as_vllm_reads_them(name: str) -> None:
    body, wanted = FLAGS[name]
    script = (HEAD + body + "\n").encode("utf-8", "surrogateescape")
    found = read(body) if script.isascii() else _read_bytes(script)
    expect(found, {"is_serving": True, **wanted})


def _read_bytes(script: bytes) -> dict[str, Any]:
    from omnipilot_slurm.script import directives, serving, tres
    from omnipilot_slurm.script.detected import detected

    submission, form = directives.submission_of(script)
    request = tres.request_of(submission, node_form=form)
    return detected(serving.find(submission, request), script, request)


@pytest.mark.parametrize("name", GIVEN)
def test_the_way_a_value_is_given_is_told(name: str) -> None:
    body, wanted = GIVEN[name]
    expect(read(body), {"is_serving": True, **wanted})


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_default_counts_unless_the_variable_is_set_at_submission(name: str) -> None:
    body, wanted = DEFAULTS[name]
    expect(read(body), {"is_serving": True, "model": "M/x", **wanted})


@pytest.mark.parametrize("name", BRANCHES)
def test_branches_blur_only_what_they_decide(name: str) -> None:
    body, wanted = BRANCHES[name]
    expect(read(body), {"is_serving": True, **wanted})


@pytest.mark.parametrize("name", ALLOCATION)
def test_a_degree_may_follow_the_allocation(name: str) -> None:
    body, wanted = ALLOCATION[name]
    expect(read(body), {"is_serving": True, "model": "M/x", **wanted})


def test_values_that_come_with_the_submission_win_over_defaults() -> None:
    found = read('[ -z "$TP" ] && TP=2\nvllm serve ${MODEL:-M/x} -tp $TP', TP="4", MODEL="M/y")
    expect(found, {"model": "M/y", "tp": 4, "editable": "no", "edit": None})


def test_arguments_of_sbatch_are_the_arguments_of_the_script() -> None:
    found = read('vllm serve "$1" -tp ${2:-2} "${@:3}"', args=("M/x", "4", "--dtype", "half"))
    expect(found, {"model": "M/x", "tp": 4, "dtype": "half", "editable": "no"})


def test_arguments_that_a_loop_takes_apart_are_not_followed() -> None:
    body = "TP=2\nwhile [ $# -gt 0 ]; do TP=$1; shift; done\nvllm serve M/x -tp $TP"
    expect(read(body, args=("4",)), UNKNOWN)


def test_variables_of_an_export_directive_come_with_the_job() -> None:
    head = "#!/bin/bash\n#SBATCH -G 4\n#SBATCH --export=ALL,TP=4\n"
    expect(read("vllm serve M/x -tp ${TP:-2}", head=head), {"tp": 4, "editable": "no"})


def test_slurm_variables_of_options_that_were_given_are_known() -> None:
    head = "#!/bin/bash\n#SBATCH --gpus=a100:4\n#SBATCH -n 2\n#SBATCH -c 8\n"
    body = 'vllm serve M/x -tp ${SLURM_NTASKS} --served-model-name "$SLURM_CPUS_PER_TASK"'
    expect(read(body, head=head), {"tp": 2, "tp_source": "slurm_env", "editable": "no"})
    expect(read("vllm serve M/x -tp $SLURM_GPUS", head=head), {"tp": None})
    head = head.replace("a100:4", "4")
    expect(read("vllm serve M/x -tp $SLURM_GPUS", head=head), FOLLOWS)
