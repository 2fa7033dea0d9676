"""MXNet's symbol JSON: text to records and back.

The records say what the file says and nothing more; no operator is known here. `parse` reads every version (0.8 of
2015 to 2.0), `upgrade` applies MXNet's rules for old files, and `dumps` writes the text that MXNet 1.9.1 would write,
byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from requant.errors import FormatError, GraphError, nearest
from requant.formats.sniff import recognize
from requant.formats.symbol_records import UNVERSIONED, VERSION, CountOutputs, Entry, GraphAttr, GraphRecord, NodeRecord
from requant.formats.symbol_upgrade import OpFacts, upgrade
from requant.formats.symbol_writer import dumps

__all__ = [
    "UNVERSIONED",
    "VERSION",
    "CountOutputs",
    "Entry",
    "GraphAttr",
    "GraphRecord",
    "NodeRecord",
    "OpFacts",
    "check_outputs",
    "dumps",
    "parse",
    "upgrade",
]

MAX_DEPTH = 16
MAX_TEXT = 256 << 20
MAX_OUTPUT = 1 << 16

_NODE_KEYS = frozenset(
    ("op", "name", "inputs", "attrs", "attr", "param", "control_deps", "subgraphs", "backward_source_id")
)
_GRAPH_KEYS = frozenset(("nodes", "arg_nodes", "node_row_ptr", "heads", "attrs"))


def _last_wins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A dict ordered by the *last* place of each key: MXNet lets the later of ``attr`` and ``attrs`` win."""
    found = dict(pairs)
    if len(found) != len(pairs):
        found = {}
        for key, value in pairs:
            found.pop(key, None)
            found[key] = value
    return found


def _integer(text: str) -> int:
    if len(text) > 20:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _not_a_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _decode(text: str | bytes, where: str) -> object:
    if len(text) > MAX_TEXT:
        raise FormatError("the symbol file is absurdly large", where=where, got=f"{len(text)} bytes")
    start = text[:64].encode(errors="replace") if isinstance(text, str) else text[:64]
    if not start.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{"):
        what, advice = recognize(start) or ("", "give the symbol JSON that MXNet wrote, usually <name>-symbol.json")
        raise FormatError(
            "this is not a symbol JSON" + (f" but {what}" if what else ""),
            where=where,
            got=repr(start[:16]),
            expected="'{'",
            next=advice,
        )
    try:
        decoded = text.removeprefix("\ufeff") if isinstance(text, str) else text.decode("utf-8-sig")
        # strict=False: MXNet writes control characters as they are
        decoder = json.JSONDecoder(
            object_pairs_hook=_last_wins, parse_int=_integer, parse_constant=_not_a_number, strict=False
        )
        return decoder.decode(decoded)
    except UnicodeDecodeError as fault:
        raise FormatError("the symbol JSON is not UTF-8 text", where=f"{where}, byte {fault.start}") from None
    except json.JSONDecodeError as fault:
        raise FormatError(
            f"the symbol JSON cannot be read: {fault.msg}",
            where=f"{where}, line {fault.lineno}, column {fault.colno}",
            got=repr(fault.doc[fault.pos : fault.pos + 40]),
            next="the file is truncated or corrupt: copy or export it again",
        ) from None
    except (ValueError, RecursionError) as fault:
        what = "it is nested too deeply" if isinstance(fault, RecursionError) else str(fault)
        raise FormatError(f"the symbol JSON cannot be read: {what}", where=where) from None


def _say(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _wrong(what: str, where: str, got: object, expected: str) -> FormatError:
    return FormatError(what, where=where, got=_say(got), expected=expected)


def _text(value: object, what: str, where: str) -> str:
    if not isinstance(value, str):
        raise _wrong(f"{what} is not a string", where, value, "a string")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _wrong(f"{what} is not Unicode text", where, value, "no lone surrogates") from None
    return value


def _list(value: object, what: str, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong(f"{what} is not a list", where, value, "a list")
    return value


def _is_index(value: object, limit: int) -> bool:
    return type(value) is int and 0 <= value < limit


def _ids(value: object, count: int, what: str, where: str) -> tuple[int, ...]:
    listed = _list(value, what, where)
    for number in listed:
        if not _is_index(number, count):
            raise GraphError(
                f"{what} name a node that is not there", where=where, got=_say(number), expected=f"0 to {count - 1}"
            )
    return tuple(listed)


def _entries(value: object, count: int, what: str, where: str) -> tuple[tuple[Entry, ...], tuple[int, ...]]:
    """Entries ``[node, output]`` or ``[node, output, version]``: (pairs, versions, empty if all are 0)."""
    pairs, versions = [], []
    for entry in _list(value, what, where):
        if not isinstance(entry, list) or len(entry) not in (2, 3) or not all(_is_index(n, 1 << 32) for n in entry):
            raise _wrong(f"{what} hold a malformed entry", where, entry, "[node id, output index(, version)]")
        if entry[0] >= count:
            raise GraphError(
                f"{what} name a node that is not there", where=where, got=entry, expected=f"node 0 to {count - 1}"
            )
        if entry[1] >= MAX_OUTPUT:
            raise GraphError(f"{what} name an absurd output", where=where, got=entry, expected=f"below {MAX_OUTPUT}")
        pairs.append((entry[0], entry[1]))
        versions.append(entry[2] if len(entry) == 3 else 0)
    return tuple(pairs), tuple(versions) if any(versions) else ()


def _node_attrs(raw: dict[str, Any], where: str) -> dict[str, str]:
    """``attr`` and ``attrs`` replace each other, the later one wins; ``param`` adds what is not there."""
    param: dict[str, str] = {}
    attrs: dict[str, str] = {}
    for key, value in raw.items():
        if key not in ("attr", "attrs", "param"):
            continue
        if not isinstance(value, dict):
            raise _wrong(f"{key!r} is not an object", where, value, "an object of strings")
        pairs = {_text(k, "an attribute's name", where): _text(v, f"attribute {k!r}", where) for k, v in value.items()}
        if key == "param":
            param = pairs
        else:
            attrs = pairs
    return {**param, **attrs}


def _unknown_keys(raw: dict[str, Any], known: frozenset[str], needed: Sequence[str], where: str) -> None:
    for key in raw:
        if key not in known:
            raise FormatError("unknown key", where=where, got=_say(key), next=nearest(key, sorted(known)))
    for key in needed:
        if key not in raw:
            raise FormatError(
                f"{key!r} is missing",
                where=where,
                got=f"keys {_say(sorted(raw))}",
                next="give the symbol JSON that MXNet wrote, usually <name>-symbol.json",
            )


def _node(raw: object, i: int, count: int, where: str, depth: int) -> NodeRecord:
    here = f"{where}, node {i}"
    if not isinstance(raw, dict):
        raise _wrong("a node is not an object", here, raw, "an object with op, name and inputs")
    if isinstance(raw.get("name"), str):
        here += f" ({_say(raw['name'])})"
    _unknown_keys(raw, _NODE_KEYS, ("op", "name", "inputs"), here)
    inputs, versions = _entries(raw["inputs"], count, "inputs", here)
    nested = enumerate(_list(raw.get("subgraphs", []), "subgraphs", here))
    node = NodeRecord(
        op=_text(raw["op"], "'op'", here),
        name=_text(raw["name"], "'name'", here),
        attrs=_node_attrs(raw, here),
        inputs=inputs,
        subgraphs=tuple(_graph(graph, f"{here}, subgraph {k}", depth + 1) for k, graph in nested),
        control_deps=_ids(raw.get("control_deps", []), count, "control_deps", here),
        input_versions=versions,
    )
    if node.is_variable and inputs:
        raise GraphError("a variable has inputs", where=here, got=_say(inputs), expected="none")
    return node


def _find_cycle(nodes: Sequence[NodeRecord]) -> list[int] | None:
    """Ids of the nodes of one cycle, or None. Without recursion: a file may hold a chain of any length."""
    state = [0] * len(nodes)  # 0 unseen, 1 on the path, 2 done
    for root in range(len(nodes)):
        path = [(root, iter(nodes[root].inputs))] if state[root] == 0 else []
        state[root] = state[root] or 1
        while path:
            node, rest = path[-1]
            step = next(rest, None)
            if step is None:
                state[node] = 2
                path.pop()
            elif state[step[0]] == 1:
                ids = [n for n, _ in path]
                return ids[ids.index(step[0]) :]
            elif state[step[0]] == 0:
                state[step[0]] = 1
                path.append((step[0], iter(nodes[step[0]].inputs)))
    return None


def _check_order(nodes: Sequence[NodeRecord], where: str) -> None:
    for i, node in enumerate(nodes):
        late = [source for source in (*(e[0] for e in node.inputs), *node.control_deps) if source >= i]
        if not late:
            continue
        cycle = _find_cycle(nodes)
        if cycle is not None:
            names = [repr(nodes[n].name) for n in (*cycle[:8], *([cycle[0]] if len(cycle) <= 8 else []))]
            shown = " <- ".join(names) + (f" <- ... ({len(cycle)} nodes)" if len(cycle) > 8 else "")
            raise GraphError("the graph has a cycle", where=where, got=shown, next="export the model again")
        raise GraphError(
            "a node points forward",
            where=f"{where}, node {i} ({_say(node.name)})",
            got=f"input from node {late[0]} ({_say(nodes[late[0]].name)})",
            expected="inputs from earlier nodes only",
            next="sort the nodes so that each one comes after its inputs (MXNet always writes them so)",
        )


def _graph_attrs(raw: object, where: str) -> dict[str, GraphAttr]:
    if not isinstance(raw, dict):
        raise _wrong("'attrs' is not an object", where, raw, "an object")
    found: dict[str, GraphAttr] = {}
    for key, pair in raw.items():
        kind, value = pair if isinstance(pair, list) and len(pair) == 2 else (None, None)
        name = _text(key, "a graph attribute's name", where)
        if kind == "int" and type(value) is int and abs(value) < 1 << 31:
            found[name] = kind, value
        elif kind == "str" and isinstance(value, str):
            found[name] = kind, _text(value, f"graph attribute {key!r}", where)
        elif kind == "list_int" and isinstance(value, list) and all(type(v) is int for v in value):
            found[name] = kind, tuple(value)
        elif kind == "list_str" and isinstance(value, list):
            found[name] = kind, tuple(_text(v, f"graph attribute {key!r}", where) for v in value)
        else:
            raise _wrong(f"graph attribute {key!r} cannot be read", where, pair, "[int|str|list_int|list_str, value]")
    return found


def _graph(raw: object, where: str, depth: int) -> GraphRecord:
    if depth > MAX_DEPTH:
        raise GraphError("subgraphs are nested too deeply", where=where, expected=f"at most {MAX_DEPTH} levels")
    if not isinstance(raw, dict):
        raise _wrong("a graph is not an object", where, raw, "an object with nodes, arg_nodes and heads")
    _unknown_keys(raw, _GRAPH_KEYS, ("nodes", "arg_nodes", "heads"), where)
    listed = _list(raw["nodes"], "'nodes'", where)
    nodes = tuple(_node(node, i, len(listed), where, depth) for i, node in enumerate(listed))
    _check_order(nodes, where)
    heads, versions = _entries(raw["heads"], len(nodes), "heads", where)
    if not heads:
        raise GraphError("the graph has no outputs", where=where, got="heads []", expected="one or more heads")
    arg_nodes = _ids(raw["arg_nodes"], len(nodes), "arg_nodes", where)
    for i in arg_nodes:
        if not nodes[i].is_variable:
            raise GraphError(
                "arg_nodes name a node that is no variable",
                where=where,
                got=f"node {i} ({_say(nodes[i].name)}), op {_say(nodes[i].op)}",
                expected="op 'null'",
            )
    return GraphRecord(nodes, heads, arg_nodes, _graph_attrs(raw.get("attrs", {}), where), versions)


def check_outputs(graph: GraphRecord, outputs: CountOutputs, where: str) -> None:
    """Check that every input and head names an output that its node has, as far as ``outputs`` knows.

    Raises:
        GraphError: one does not.
    """

    def check(entries: Iterable[Entry], here: str) -> None:
        for source, output in entries:
            if source not in counts:
                node = graph.nodes[source]
                counts[source] = 1 if node.is_variable else outputs(node)
            count = counts[source]
            if count is not None and output >= count:
                raise GraphError(
                    "an output is used that its node does not have",
                    where=here,
                    got=f"output {output} of node {source} ({_say(graph.nodes[source].name)})",
                    expected=f"{count} output" + ("s" if count != 1 else ""),
                )

    counts: dict[int, int | None] = {}
    for i, node in enumerate(graph.nodes):
        here = f"{where}, node {i} ({_say(node.name)})"
        check(node.inputs, here)
        for k, nested in enumerate(node.subgraphs):
            check_outputs(nested, outputs, f"{here}, subgraph {k}")
    check(graph.heads, f"{where}, heads")


def parse(
    text: str | bytes,
    where: object = "symbol JSON",
    facts: OpFacts | None = None,
    *,
    outputs: CountOutputs | None = None,
) -> GraphRecord:
    """Read a symbol JSON of any version into records.

    Args:
        text: the file's content.
        where: what to call the file in messages, usually its path.
        facts: if given, MXNet's rules for older files are applied (see `upgrade`); if not, the records say what the
            file says.
        outputs: if given, output indices are checked too (see `check_outputs`).

    Raises:
        FormatError: not JSON, truncated, a wrong type, an unknown or missing key.
        GraphError: a cycle, a forward reference, a node or output that is not there, absurd nesting.
    """
    graph = _graph(_decode(text, str(where)), str(where), 0)
    check_outputs(graph, outputs or (lambda node: None), str(where))
    return graph if facts is None else upgrade(graph, facts, str(where))
