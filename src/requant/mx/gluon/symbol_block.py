"""``SymbolBlock``: a network from a symbol file, as a block."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from requant.errors import InputError, nearest
from requant.formats.params import split_arg_aux
from requant.lower import needed_nodes
from requant.mx.context import Context
from requant.mx.gluon.hybrid import Graph, HybridBlock
from requant.mx.gluon.parameter import Parameter
from requant.mx.gluon.parameter_dict import ParameterDict, take
from requant.mx.gluon.structure import Form, flatten, regroup
from requant.mx.ndarray.ndarray import NDArray
from requant.mx.ndarray.saving import load as load_arrays
from requant.mx.symbol.create import Group
from requant.mx.symbol.create import load as load_symbol
from requant.mx.symbol.symbol import Symbol
from requant.symbol import infer, tree


class SymbolBlock(HybridBlock):
    """A symbol as a block: call it with NDArrays to run it, or with symbols to build it into a larger one.

    Args:
        outputs: the network, or a list of its outputs.
        inputs: variables that are its inputs, in the order of the call.
        params: values, or parameters to share, by name.
    Raises:
        InputError: an input that is no variable of the network.
    """

    def __init__(
        self,
        outputs: Symbol | Sequence[Symbol],
        inputs: Symbol | Sequence[Symbol],
        params: ParameterDict | Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(prefix=None, params=None)
        shared = params if isinstance(params, ParameterDict) else None
        self._prefix, self._name = "", ""
        self._params = ParameterDict("", shared)
        listed = [outputs] if isinstance(outputs, tree.Symbol) else list(outputs)
        whole = Group(listed)
        self._symbol = Symbol(whole.entries)
        self._form: Form = flatten(outputs, "outputs")[1]
        self._inputs = [n for s in ([inputs] if isinstance(inputs, tree.Symbol) else inputs) for n in s.list_outputs()]
        known = self._symbol.list_inputs()
        for name in self._inputs:
            if name not in known:
                raise InputError(
                    "the network has no input of that name", got=name, next=nearest(name, self._free(known))
                )
        self._make_parameters()
        for name, value in (params or {}).items() if shared is None else ():
            if name in self._params:
                self._params[name].set_data(value.data() if isinstance(value, Parameter) else value)
        names = list(self._params.keys())
        common = next((i for i, c in enumerate(zip(*names)) if len(set(c)) > 1), min(map(len, names), default=0))
        self._reg_params = {n[common:]: p for n, p in self._params.items()}
        self._active = True

    def _make_parameters(self) -> None:
        nodes, cuts = needed_nodes(self._symbol)
        needed = {n.name for n in nodes if n.is_variable}
        cut = {c.variable for c in cuts} - needed
        aux = set(self._symbol.list_auxiliary_states())
        args_types, _, aux_types = infer.infer_type(self._symbol, {})
        types = dict(zip(self._symbol.list_arguments(), args_types))
        types.update(zip(self._symbol.list_auxiliary_states(), aux_types))
        # arguments before auxiliary states, as MXNet lists them
        for node in sorted(self._symbol.variables(), key=lambda n: n.name in aux):
            if node.name in self._inputs or node.name in cut:
                continue
            shape, _ = infer.declaration(node)
            more: dict[str, Any] = {"grad_req": "null"} if node.name in aux else {}
            if self._params.find(node.name) is None:
                self._params.get(node.name, shape=shape, dtype=types[node.name], allow_deferred_init=True, **more)

    def reset_ctx(self, ctx: Context | Sequence[Context]) -> None:
        """Give all parameters these contexts."""
        self.collect_params().reset_ctx(ctx)

    @staticmethod
    def _free(names: list[str]) -> list[str]:
        kinds = ("_weight", "_bias", "_gamma", "_beta", "_mean", "_var")
        return [n for n in names if not n.endswith(kinds)]

    @staticmethod
    def imports(
        symbol_file: str | os.PathLike[str],
        input_names: str | Sequence[str],
        param_file: str | os.PathLike[str] | None = None,
        ctx: Context | Sequence[Context] | None = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
    ) -> SymbolBlock:
        """A block from a symbol file and a parameter file.

        Args:
            input_names: names of the inputs, in the order of the call.
            param_file: left out, parameters are set later.
            allow_missing: whether parameters may be missing in the file. ignore_extra: or be too many.
        Raises:
            FormatError, GraphError: a file is corrupt. InputError: an input name that the network does not have.
            ParameterError: parameters are missing or too many; the message names them.
        """
        names = [input_names] if isinstance(input_names, str) else list(input_names)
        symbol = load_symbol(symbol_file)
        known = symbol.list_inputs()
        for name in names:
            if name not in known:
                raise InputError(
                    "the network has no input of that name",
                    where=os.fspath(symbol_file),
                    got=name,
                    next=nearest(name, SymbolBlock._free(known)),
                )
        block = SymbolBlock(symbol, [Symbol(tree.variable(n).entries) for n in names])
        if param_file is not None:
            block.load_parameters(param_file, ctx, allow_missing, ignore_extra, cast_dtype=True, dtype_source="saved")
        return block

    def load_parameters(
        self,
        filename: str | os.PathLike[str],
        ctx: Context | Sequence[Context] | None = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        cast_dtype: bool = True,
        dtype_source: str = "saved",
    ) -> None:
        """Take the parameters of a file; names may carry ``arg:`` and ``aux:``.

        Raises:
            ParameterError: parameters are missing or too many, unless allowed.
        """
        found = load_arrays(filename)
        if isinstance(found, dict):
            args, aux, bare = split_arg_aux(found)
            values = {**args, **aux, **bare}
            mine = dict(self._params.items())
            if not set(values) & set(mine) and set(values) & set(self._reg_params):
                mine = dict(self._reg_params)
            take(mine, values, os.fspath(filename), ctx, allow_missing, ignore_extra, cast_dtype, dtype_source)
            return
        super().load_parameters(filename, ctx, allow_missing, ignore_extra, cast_dtype, dtype_source)

    load_params = load_parameters

    # -- calling ---------------------------------------------------------------------------------------------------

    def _graph(self, args: tuple[Any, ...]) -> tuple[Graph, list[Any]]:
        flat, _ = flatten(args, self.name)
        found = self._graphs.get(None)
        if found is None:
            found = Graph(list(self._inputs), self._symbol, self._form, dict(self._params.items()))
            self._graphs[None] = found
        return found, flat

    def forward(self, x: Any, *args: Any) -> Any:
        """Run on NDArrays, or compose with symbols.

        Returns:
            An output, or a list if there are several.
        Raises:
            InputError: not one argument for each input. ParameterError: a parameter has no value.
        """
        given = (x, *args)
        if len(given) != len(self._inputs):
            raise InputError("not one argument per input", got=len(given), expected=self._inputs)
        if any(isinstance(a, tree.Symbol) for a in given):
            made = self._symbol(**dict(zip(self._inputs, given)))
            return made if len(made) == 1 and self._form == 0 else regroup(list(made), self._form)
        for name, value in zip(self._inputs, given):
            if not isinstance(value, NDArray):
                raise InputError(
                    "an input must be an NDArray", where=name, got=type(value).__name__, next="mx.nd.array(x)"
                )
        return self._compiled_call(given)

    # -- facts -----------------------------------------------------------------------------------------------------

    def hybridize(self, active: bool = True, backend: str | None = None, clear: bool = True, **kwargs: Any) -> None:
        """Chooses a backend, see ``HybridBlock.hybridize``; a symbol is compiled as a whole anyway."""
        super().hybridize(True, backend, clear and backend is not None, **kwargs)

    def export(self, path: str | os.PathLike[str], epoch: int = 0, remove_amp_cast: bool = True) -> tuple[str, str]:
        """Write ``<path>-symbol.json`` and ``<path>-<epoch>.params``.

        Returns:
            The two names.
        """
        self._graph(tuple(NDArray(np.zeros(1, np.float32)) for _ in self._inputs))
        return super().export(path, epoch, remove_amp_cast)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._inputs)} -> {', '.join(self._symbol.list_outputs())})"
