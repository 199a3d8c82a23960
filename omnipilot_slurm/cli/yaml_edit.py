"""Numbers of one section of a YAML file set in its text, all else left as it is.

In: the text of a file (or None where there is none), a section and its new values. Out: the new
text. Called by tune, which shows the difference; nothing is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnipilot_slurm.yaml_tree import Pairs, Scalar, read_tree

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnipilot_slurm.yaml_tree import Node


def with_values(text: str | None, section: str, values: Mapping[str, str], *, schema: int) -> str:
    """Return the text with `section: {key: value}` for each value, made anew where there is none.

    A key that stands there is replaced in place; another one is added at the head of the section,
    in the section's own style. The text must be one that strict_yaml reads without faults.
    """
    if text is None or not text.strip():
        text = f"schema: {schema}\n"
    for key, value in values.items():
        text = _with_value(text, section, key, value)
    return text


def _with_value(text: str, section: str, key: str, value: str) -> str:
    tree, _ = read_tree(text.encode(), file="")
    found = tree.pairs.get(section) if isinstance(tree, Pairs) else None
    lines = text.splitlines(keepends=True)
    if found is None:
        return f"{text.rstrip()}\n\n{section}:\n  {key}: {value}\n"
    head, body = found
    pairs = body.pairs if isinstance(body, Pairs) else {}
    if key in pairs:
        return _replaced(lines, pairs[key][1], value)
    at, column = body.line - 1, body.column - 1
    if pairs and lines[at][column] != "{":
        first = next(iter(pairs.values()))[0]
        lines.insert(first.line - 1, f"{' ' * (first.column - 1)}{key}: {value}\n")
    elif pairs:
        lines[at] = f"{lines[at][: column + 1]}{key}: {value}, {lines[at][column + 1 :]}"
    else:
        # nothing stands in the section: `utility: {}`
        lines[head.line - 1] = f"{section}: {{{key}: {value}}}\n"
    return "".join(lines)


def _replaced(lines: list[str], node: Node, value: str) -> str:
    assert isinstance(node, Scalar)
    line = lines[node.line - 1]
    start = node.column - 1
    lines[node.line - 1] = f"{line[:start]}{value}{line[start + len(node.text) :]}"
    return "".join(lines)
