"""Expansion as bash does it: a syntax node and the variables in force in, words out.

What cannot be known from the script (command output, unset variables, array task ids) becomes
unknown, never a guess. Called by walk for every command.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from omnipilot_slurm.script import arithmetic
from omnipilot_slurm.script.source import How, Segment, Source, Splice, Word, decode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tree_sitter import Node

#: what one argument node becomes: words, and expansions of unknown length
Words: TypeAlias = "list[Word | Splice]"
_PARAMETER: Final = re.compile(
    r"^\$\{?(?P<mark>[!#](?=[\w@*]))?(?P<name>\w+|[@*#?$!-])(?:\[(?P<index>[^\]]*)\])?"
    r"(?P<op>:?[-=?+]|[%#]{1,2}|//?|\^{1,2}|,{1,2}|:|@|$|\}$)"
)
_GPU_COUNT: Final = re.compile(
    r"nvidia-smi\s+(?:-L|--list-gpus|--query-gpu=[\w.,]+\s+--format=csv,noheader\S*)\s*(?:2>\s*/dev/null\s*)?"
    r"\|\s*(?:wc\s+-l|grep\s+-c\S*\s+\S+)\s*(?:\|\s*(?:xargs|tr\s+-d\s+\S+(?:\s\S+)?))?$"
)
_DEVICE_COUNT: Final = re.compile(
    r"""^(?:echo|printf\s+["']?%s\S*)\s+["']?\$\{?(?:CUDA_VISIBLE_DEVICES|SLURM_JOB_GPUS|SLURM_STEP_GPUS"""
    r"""|GPU_DEVICE_ORDINAL)\}?["']?\s*\|\s*(?:tr\s+["']?,["']?\s+["']?(?:\\n|\s)["']?\s*\|\s*wc\s+-[lw]"""
    r"""|awk\s+-F\s*["']?,["']?\s+["']\{\s*print\s+NF\s*;?\s*\}["']|grep\s+-o\s+["']?,["']?.*)$"""
)
#: names that the shim never sends
_SECRET: Final = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL", re.IGNORECASE)
_ESCAPE: Final = re.compile(rb"\\(.)", re.DOTALL)
_PLAIN: Final = frozenset({"word", "number"})
_MAX_WORDS: Final = 4096


@dataclass(slots=True)
class Scope:
    """The variables, functions and arguments in force at a command.

    `environment` came with the submission; `complete` says that what it lacks was not set there.
    `slurm` holds the SLURM_* values that follow from the request. Arrays are lists of words.
    """

    environment: Mapping[str, str]
    complete: bool
    slurm: Mapping[str, str]
    args: tuple[Word, ...] = ()
    in_function: bool = False
    variables: dict[str, Word | Words] = field(default_factory=dict)
    functions: dict[str, tuple[Source, Node]] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)

    def is_known_unset(self, name: str) -> bool:
        """Return whether a variable without a value here is certain to have none."""
        if name in self.variables or name.isdigit():
            return True
        return self.complete and not _SECRET.search(name)

    def branch(self) -> Scope:
        """Return a copy whose changes stay its own."""
        return replace(
            self,
            variables=dict(self.variables),
            functions=dict(self.functions),
            exported=set(self.exported),
        )


def unknown(
    depends: Iterable[str] = (), *, how: How = How.UNKNOWN, splits: bool = False
) -> Segment:
    """Return a segment whose text cannot be told."""
    return Segment(text=None, how=how, splits=splits, depends=frozenset(depends))


def word_of(node: Node, source: Source, scope: Scope) -> Word:
    """Return a node as exactly one word, as in an assignment (no splitting)."""
    return Word(
        segments=_segments(node, source, scope, quoted=True), end=source.origin(node.end_byte)
    )


def words_of(node: Node, source: Source, scope: Scope) -> Words:
    """Return the words that an argument becomes after expansion and splitting."""
    if node.type in _PLAIN:
        end = node.end_byte
        return [Word(segments=_unescaped(source, node.start_byte, end), end=source.origin(end))]
    array = _array_of(node, source, scope)
    if array is not None:
        return array
    segments = _segments(node, source, scope, quoted=False)
    return _split(segments, source.origin(node.end_byte))


def text_of(node: Node, source: Source) -> str:
    """Return a node's source text."""
    return decode(source.data[node.start_byte : node.end_byte])


def _split(segments: tuple[Segment, ...], end: int | None) -> Words:
    """Split the parts that came unquoted from expansions at white space."""
    words: Words = []
    current: list[Segment] = []
    started = False
    for segment in segments:
        if not segment.splits:
            current.append(segment)
            started = True
        elif segment.text is None:
            if len(segments) == 1 and segment.how is not How.COMPUTED:
                return [Splice(depends=segment.depends)]
            current.append(segment)
            started = True
        else:
            started = _split_segment(segment, words, current, end, started=started)
    if started or current:
        words.append(Word(segments=tuple(current), end=end))
    return words


def _split_segment(
    segment: Segment, words: Words, current: list[Segment], end: int | None, *, started: bool
) -> bool:
    text = segment.text or ""
    for match in re.finditer(r"\s+|\S+", text):
        if match[0].isspace():
            if started or current:
                words.append(Word(segments=tuple(current), end=end))
                current.clear()
                started = False
            continue
        start = None
        if segment.start is not None:
            start = segment.start + len(text[: match.start()].encode("utf-8", "surrogateescape"))
        current.append(replace(segment, text=match[0], start=start, splits=False))
        started = True
    return started


def _segments(node: Node, source: Source, scope: Scope, *, quoted: bool) -> tuple[Segment, ...]:
    match node.type:
        case "raw_string":
            return source.literal(node.start_byte + 1, node.end_byte - 1)
        case "string" | "translated_string":
            return _double_quoted(node, source, scope)
        case "ansi_c_string":
            return _ansi_c(node, source)
        case "simple_expansion" | "expansion":
            return _parameter(node, source, scope, quoted=quoted)
        case "command_substitution":
            return (_command_output(node, source, scope, quoted=quoted),)
        case "arithmetic_expansion":
            return (_arithmetic(text_of(node, source), scope),)
        case "process_substitution":
            return (unknown(),)
        case "concatenation" | "command_name":
            return _children(node, source, scope, quoted=quoted)
        case _ if node.child_count == 0:
            return _unescaped(source, node.start_byte, node.end_byte)
        case _:
            return _children(node, source, scope, quoted=quoted)


def _children(node: Node, source: Source, scope: Scope, *, quoted: bool) -> tuple[Segment, ...]:
    segments: list[Segment] = []
    position = node.start_byte
    for child in node.children:
        if child.start_byte > position:
            segments += _unescaped(source, position, child.start_byte)
        segments += _segments(child, source, scope, quoted=quoted)
        position = child.end_byte
    if node.end_byte > position:
        segments += _unescaped(source, position, node.end_byte)
    return tuple(segments)


def _unescaped(source: Source, start: int, end: int) -> tuple[Segment, ...]:
    """Return unquoted text with its backslashes taken away and continued lines joined."""
    return _without_escapes(source, start, end, special=None)


def _without_escapes(
    source: Source, start: int, end: int, *, special: bytes | None
) -> tuple[Segment, ...]:
    data = source.data
    if data.find(b"\\", start, end) < 0:
        return source.literal(start, end)
    segments: list[Segment] = []
    position = start
    for match in _ESCAPE.finditer(data, start, end):
        char = match[1]
        if special is not None and char not in special and char != b"\n":
            continue
        segments += source.literal(position, match.start())
        position = match.start() + 1 + (char == b"\n")
    segments += source.literal(position, end)
    return tuple(segments)


def _double_quoted(node: Node, source: Source, scope: Scope) -> tuple[Segment, ...]:
    segments: list[Segment] = []
    position = node.start_byte + (2 if node.type == "translated_string" else 1)
    stop = node.end_byte - 1
    for child in node.children:
        if child.type not in ("simple_expansion", "expansion", "command_substitution",
                              "arithmetic_expansion"):  # fmt: skip
            continue
        segments += _without_escapes(source, position, child.start_byte, special=b'"$`\\')
        segments += _segments(child, source, scope, quoted=True)
        position = child.end_byte
    segments += _without_escapes(source, position, stop, special=b'"$`\\')
    return tuple(segments) or (Segment(text=""),)


def _ansi_c(node: Node, source: Source) -> tuple[Segment, ...]:
    body = source.data[node.start_byte + 2 : node.end_byte - 1]
    if b"\\" not in body:
        return source.literal(node.start_byte + 2, node.end_byte - 1)
    plain = {b"n": "\n", b"t": "\t", b"r": "\r", b"\\": "\\", b"'": "'", b'"': '"'}
    pieces: list[str] = []
    position = 0
    for match in _ESCAPE.finditer(body):
        if match[1] not in plain:
            return (unknown(),)
        pieces += (decode(body[position : match.start()]), plain[match[1]])
        position = match.end()
    return (Segment(text="".join(pieces) + decode(body[position:])),)


def _parameter(node: Node, source: Source, scope: Scope, *, quoted: bool) -> tuple[Segment, ...]:
    """Expand $X, ${X}, ${X:-d} and kin."""
    match = _PARAMETER.match(text_of(node, source))
    if match is None or match["mark"] == "!":
        return (unknown(splits=not quoted),)
    name, operator = match["name"], match["op"].rstrip("}")
    if match["mark"] == "#" or (match["name"] == "#" and not operator):
        return (_length(name, match["index"], scope),)
    value = _value(name, match["index"], scope)
    if operator:
        segments = _operated(node, source, scope, name, operator, value)
    elif value is not None or scope.is_known_unset(name):
        segments = value or ()
    else:
        segments = (unknown({name}),)
    if not quoted:
        segments = tuple(replace(segment, splits=True) for segment in segments)
    return segments


def _operated(
    node: Node,
    source: Source,
    scope: Scope,
    name: str,
    operator: str,
    value: tuple[Segment, ...] | None,
) -> tuple[Segment, ...]:
    """Apply `${X<operator>word}`; `value` None means that X is not set as far as can be told."""
    kind = operator.lstrip(":")
    missing = value is None or (operator.startswith(":") and _is_empty(value))
    if kind in ("-", "="):
        return (
            _default(node, source, scope, name, operator) if missing else _given(name, value, scope)
        )
    if kind == "+":
        return () if missing or value is None else _alternative(node, source, scope, value)
    if kind == "?" and value is not None:
        return value
    depends = frozenset().union(*(segment.depends for segment in value or ()))
    return (unknown(depends, how=How.COMPUTED),)


def _given(name: str, value: tuple[Segment, ...] | None, scope: Scope) -> tuple[Segment, ...]:
    """Return the value of a parameter that makes its default unused."""
    how = How.LITERAL
    if name.isdigit():
        how = _argument_default(scope)
    elif name in scope.environment and name not in scope.variables:
        how = How.DEFAULT_EXPANSION
    return tuple(segment.through(how) for segment in value or ())


def _default(
    node: Node, source: Source, scope: Scope, name: str, operator: str
) -> tuple[Segment, ...]:
    how = _argument_default(scope) if name.isdigit() else How.DEFAULT_EXPANSION
    depends = frozenset() if scope.is_known_unset(name) else frozenset({name})
    default = _word_behind_operator(node, source, scope)
    result = tuple(segment.through(how, depends=depends) for segment in default)
    if operator.endswith("="):
        scope.variables[name] = Word(segments=result)
    return result


def _argument_default(scope: Scope) -> How:
    return How.FUNCTION_ARG if scope.in_function else How.POSITIONAL_DEFAULT


def _alternative(
    node: Node, source: Source, scope: Scope, value: tuple[Segment, ...]
) -> tuple[Segment, ...]:
    if any(segment.text is None for segment in value):
        return (unknown(splits=True),)
    return tuple(s.through(How.VARIABLE) for s in _word_behind_operator(node, source, scope))


def _word_behind_operator(node: Node, source: Source, scope: Scope) -> tuple[Segment, ...]:
    segments: list[Segment] = []
    position: int | None = None
    for index, child in enumerate(node.children):
        if child.type == "}":
            break
        if position is None:
            if node.field_name_for_child(index) == "operator":
                position = child.end_byte
            continue
        segments += _unescaped(source, position, child.start_byte)
        segments += _segments(child, source, scope, quoted=True)
        position = child.end_byte
    if position is not None:
        segments += _unescaped(source, position, node.end_byte - 1)
    return tuple(segment for segment in segments if segment.text != "")


def _is_empty(value: tuple[Segment, ...]) -> bool:
    return all(segment.text == "" for segment in value)


def _value(name: str, index: str | None, scope: Scope) -> tuple[Segment, ...] | None:
    """Return a parameter's value, None when it is not set as far as can be told."""
    if name.isdigit():
        return _positional(int(name), scope)
    if name in "@*":
        return _joined(list(scope.args), How.FUNCTION_ARG if scope.in_function else How.VARIABLE)
    if not name.isidentifier():
        return (unknown(),)
    if name in scope.variables:
        return _assigned(scope.variables[name], index)
    if name in scope.environment and not name.startswith("SLURM_"):
        return (Segment(text=scope.environment[name], how=How.VARIABLE),)
    if name in scope.slurm:
        return (Segment(text=scope.slurm[name], how=How.SLURM_ENV),)
    if name.startswith("SLURM_") or name in _SET_BY_SYSTEM:
        return (unknown(how=How.SLURM_ENV if name.startswith("SLURM_") else How.UNKNOWN),)
    return None


_SET_BY_SYSTEM: Final = frozenset(
    "HOME USER LOGNAME HOSTNAME PWD OLDPWD PATH SHELL TMPDIR SCRATCH WORK RANDOM UID EUID PPID"
    " SECONDS LINENO BASH_SOURCE FUNCNAME BASHPID HOSTTYPE OSTYPE IFS".split()
)


def _positional(number: int, scope: Scope) -> tuple[Segment, ...] | None:
    if number == 0:
        return (unknown(),)
    if number > len(scope.args):
        return None
    how = How.FUNCTION_ARG if scope.in_function else How.VARIABLE
    return tuple(segment.through(how) for segment in scope.args[number - 1].segments)


def _assigned(value: Word | Words, index: str | None) -> tuple[Segment, ...]:
    if isinstance(value, Word):
        return tuple(segment.through(How.VARIABLE) for segment in value.segments)
    if index in ("@", "*"):
        return _joined(value, How.ARRAY)
    position = int(index) if (index or "0").isdigit() else None
    if position is None or any(isinstance(item, Splice) for item in value[: position + 1]):
        return (unknown(),)
    if position >= len(value):
        return ()
    item = value[position]
    assert isinstance(item, Word)
    return tuple(segment.through(How.VARIABLE) for segment in item.segments)


def _joined(words: Words, how: How) -> tuple[Segment, ...]:
    segments: list[Segment] = []
    for word in words:
        if segments:
            segments.append(Segment(text=" "))
        if isinstance(word, Splice):
            segments.append(unknown(word.depends))
        else:
            segments += (segment.through(how) for segment in word.segments)
    return tuple(segments)


def _length(name: str, index: str | None, scope: Scope) -> Segment:
    if name in ("@", "#"):
        return Segment(text=str(len(scope.args)), how=How.COMPUTED)
    value = scope.variables.get(name)
    if isinstance(value, list) and index in ("@", "*"):
        if not any(isinstance(item, Splice) for item in value):
            return Segment(text=str(len(value)), how=How.COMPUTED)
    return unknown(how=How.COMPUTED)


def _array_of(node: Node, source: Source, scope: Scope) -> Words | None:
    """Return the words of "${ARRAY[@]}" and "$@" standing alone, None for anything else."""
    inner = node
    while inner.type in ("string", "command_name") and inner.named_child_count == 1:
        if inner.type == "string" and inner.child_count != 3:  # noqa: PLR2004 - quote, expansion, quote
            return None
        inner = inner.named_children[0]
    if inner.type not in ("expansion", "simple_expansion"):
        return None
    match = _PARAMETER.match(text_of(inner, source))
    if match is None or match["mark"] or match["op"].rstrip("}"):
        return None
    if match["name"] in "@*":
        how = How.FUNCTION_ARG if scope.in_function else How.VARIABLE
        return [_through(word, how) for word in scope.args]
    value = scope.variables.get(match["name"])
    if match["index"] not in ("@", "*"):
        return None
    if isinstance(value, list):
        return [w if isinstance(w, Splice) else _through(w, How.ARRAY) for w in value[:_MAX_WORDS]]
    return [_through(value, How.ARRAY)] if value is not None else [Splice()]


def _through(word: Word, how: How) -> Word:
    return replace(
        word, segments=tuple(segment.through(how) for segment in word.segments), end=None
    )


def _command_output(node: Node, source: Source, scope: Scope, *, quoted: bool) -> Segment:
    """Return what `$(...)` prints where that is the number of the job's GPUs, else unknown."""
    text = text_of(node, source).strip("`").removeprefix("$(").removesuffix(")").strip()
    if _GPU_COUNT.match(text) or _DEVICE_COUNT.match(text):
        n_gpus = scope.slurm.get("SLURM_GPUS_ON_NODE")
        if n_gpus is not None and "CUDA_VISIBLE_DEVICES" not in scope.variables:
            return Segment(text=n_gpus, how=How.SLURM_ENV)
    if match := re.match(r"^(?:expr\s+|echo\s+\$\(\()(?P<expression>[^|;&]+?)(?:\)\))?$", text):
        return _arithmetic(f"$(({match['expression']}))", scope)
    return unknown(how=How.COMPUTED, splits=not quoted)


def _arithmetic(text: str, scope: Scope) -> Segment:
    """Evaluate `$(( ... ))` over whole numbers that are known."""
    depends: set[str] = set()

    def number(name: str) -> int | None:
        value = _value(name, None, scope)
        if value is None:
            return 0 if scope.is_known_unset(name) else None
        depends.update(*(segment.depends for segment in value))
        known = Word(segments=value).text
        return int(known) if known is not None and re.fullmatch(r"\d{1,9}", known) else None

    expression = text.removeprefix("$((").removesuffix("))").removeprefix("$[").removesuffix("]")
    result = arithmetic.evaluate(expression, number)
    if result is None:
        return unknown(depends, how=How.COMPUTED)
    return Segment(text=str(result), how=How.COMPUTED, depends=frozenset(depends))
