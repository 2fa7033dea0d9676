"""What a symbol JSON says, as records. They know no operator."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import TypeAlias

#: ``major * 10000 + minor * 100 + patch``, as MXNet writes it.
VERSION = 10901
#: What MXNet takes a file without a version for.
UNVERSIONED = 800

Entry: TypeAlias = tuple[int, int]
#: ``("int", 10901)``: a type (int, str, list_int or list_str) and the value, as MXNet writes graph attributes.
GraphAttr: TypeAlias = tuple[str, int | str | tuple[int, ...] | tuple[str, ...]]
#: The total number of outputs of a node, hidden ones included; None if unknown.
CountOutputs: TypeAlias = Callable[["NodeRecord"], "int | None"]


@dataclasses.dataclass(frozen=True)
class NodeRecord:
    """One node as it stands in the file.

    Args:
        op: operator name, ``"null"`` for a variable.
        name: node name; not necessarily unique.
        attrs: attribute strings, user attributes (``__x__``) included.
        inputs: ``(node id, output index)`` of each input.
        subgraphs: nested graphs (fused nodes, control flow).
        control_deps: ids of nodes that must run before this one.
        input_versions: third number of each input entry; empty if all are 0. MXNet counts there how often a state
            (BatchNorm's moving mean) was written, and ignores it when it loads.
    """

    op: str
    name: str
    attrs: dict[str, str] = dataclasses.field(default_factory=dict)
    inputs: tuple[Entry, ...] = ()
    subgraphs: tuple[GraphRecord, ...] = ()
    control_deps: tuple[int, ...] = ()
    input_versions: tuple[int, ...] = ()

    @property
    def is_variable(self) -> bool:
        return self.op == "null"


@dataclasses.dataclass(frozen=True)
class GraphRecord:
    """A graph as it stands in the file. Every node comes after its inputs.

    Args:
        nodes: all nodes.
        heads: ``(node id, output index)`` of each output.
        arg_nodes: ids of the variables. In a nested graph the k-th one stands for the k-th outer input.
        attrs: ``mxnet_version``, ``is_np_shape`` and the like.
        head_versions: as ``NodeRecord.input_versions``.
    """

    nodes: tuple[NodeRecord, ...]
    heads: tuple[Entry, ...]
    arg_nodes: tuple[int, ...]
    attrs: dict[str, GraphAttr] = dataclasses.field(default_factory=dict)
    head_versions: tuple[int, ...] = ()

    @classmethod
    def build(
        cls, nodes: Iterable[NodeRecord], heads: Iterable[Entry], attrs: dict[str, GraphAttr] | None = None
    ) -> GraphRecord:
        """A graph whose ``arg_nodes`` are its variables in order."""
        listed = tuple(nodes)
        variables = tuple(i for i, node in enumerate(listed) if node.is_variable)
        return cls(listed, tuple(heads), variables, attrs or {})

    @property
    def version(self) -> int:
        """The MXNet version that wrote the file, such as 10901; 800 if it does not say."""
        found = self.attrs.get("mxnet_version", ("int", UNVERSIONED))[1]
        return found if isinstance(found, int) else UNVERSIONED
