"""``SymbolBlock``: a network from a symbol file, called like a function."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from requant.errors import InputError, ParameterError, nearest
from requant.formats.params import split_arg_aux, write_params
from requant.mx.context import Context
from requant.mx.gluon.parameter import Parameter, ParameterDict
from requant.mx.ndarray.ndarray import NDArray
from requant.mx.ndarray.saving import load as load_arrays
from requant.mx.ndarray.saving import unwrap
from requant.mx.running import Runner
from requant.mx.symbol.create import Group
from requant.mx.symbol.create import load as load_symbol
from requant.mx.symbol.symbol import Symbol
from requant.symbol import tree


class SymbolBlock:
    """A symbol as a block: call it with NDArrays to run it, or with symbols to build it into a larger one.

    Args:
        outputs: the network, or a list of its outputs.
        inputs: variables that are its inputs, in the order of the call.
        params: values by name.
    Raises:
        InputError: an input that is no variable of the network.
    """

    def __init__(
        self,
        outputs: Symbol | Sequence[Symbol],
        inputs: Symbol | Sequence[Symbol],
        params: Mapping[str, Any] | None = None,
    ) -> None:
        given = outputs if isinstance(outputs, tree.Symbol) else Group(list(outputs))
        self._symbol = Symbol(given.entries)
        self._inputs = [n for s in ([inputs] if isinstance(inputs, tree.Symbol) else inputs) for n in s.list_outputs()]
        known = self._symbol.list_inputs()
        for name in self._inputs:
            if name not in known:
                raise InputError(
                    "the network has no input of that name", got=name, next=nearest(name, self._free(known))
                )
        self._runner = Runner(self._symbol, self._inputs)
        self._cut = set(self._runner.cut)
        self._params = ParameterDict()
        for node in self._symbol.variables():
            if node.name not in self._inputs and node.name not in self._cut:
                self._params[node.name] = Parameter(node.name)
        for name, value in (params or {}).items():
            if name in self._params:
                self._params[name].set_data(value.data() if isinstance(value, Parameter) else value)

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
            block.load_parameters(param_file, ctx, allow_missing, ignore_extra)
        return block

    def load_parameters(
        self,
        filename: str | os.PathLike[str],
        ctx: Context | Sequence[Context] | None = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        **kwargs: Any,
    ) -> None:
        """Take the parameters of a file; names may carry ``arg:`` and ``aux:``.

        Raises:
            ParameterError: parameters are missing or too many, unless allowed.
        """
        found = load_arrays(filename)
        if not isinstance(found, dict):
            raise ParameterError("the arrays have no names", where=os.fspath(filename), got=f"{len(found)} arrays")
        args, aux, bare = split_arg_aux(found)
        values = {**args, **aux, **bare}
        for name, parameter in self._params.items():
            if name in values:
                parameter.set_data(values[name])
            elif not allow_missing:
                raise ParameterError(
                    f"parameter {name!r} is missing",
                    where=os.fspath(filename),
                    next=f"allow_missing=True if it is set later; {nearest(name, values)}",
                )
        extra = [n for n in values if n not in self._params]
        if extra and not ignore_extra:
            raise ParameterError(
                "the file has parameters that the network does not have",
                where=os.fspath(filename),
                got=", ".join(extra[:8]),
                next=f"ignore_extra=True leaves them out; {nearest(extra[0], self._params)}",
            )
        if ctx is not None:
            self._params.reset_ctx(ctx)

    load_params = load_parameters

    # -- calling ---------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any) -> Any:
        """Run on NDArrays, or compose with symbols.

        Returns:
            An output, or a list if there are several.
        Raises:
            InputError: not one argument for each input. ParameterError: a parameter has no value.
        """
        if len(args) != len(self._inputs):
            raise InputError("not one argument per input", got=len(args), expected=self._inputs)
        if any(isinstance(a, tree.Symbol) for a in args):
            made = self._symbol(**dict(zip(self._inputs, args)))
            return made if len(made) == 1 else list(made)
        for name, value in zip(self._inputs, args):
            if not isinstance(value, NDArray):
                raise InputError(
                    "an input must be an NDArray", where=name, got=type(value).__name__, next="mx.nd.array(x)"
                )
        arrays = {n: p.data() for n, p in self._params.items()}
        arrays.update(zip(self._inputs, args))
        ctx = args[0].context if args else None
        outputs = [NDArray(o, ctx) for o in self._runner.run(arrays)]
        return outputs[0] if len(outputs) == 1 else outputs

    forward = __call__

    # -- facts and files -------------------------------------------------------------------------------------------

    def collect_params(self, select: str | None = None) -> ParameterDict:
        """Its parameters by name; those that match a regular expression."""
        return self._params if select is None else self._params.select(select)

    @property
    def params(self) -> ParameterDict:
        return self._params

    def hybridize(self, active: bool = True, **kwargs: Any) -> None:
        """Does nothing: a symbol is compiled as a whole already."""

    def cast(self, dtype: object) -> None:
        """Change the type of all parameters; give inputs of that type then."""
        for parameter in self._params.values():
            parameter.cast(dtype)

    def export(self, path: str, epoch: int = 0, remove_amp_cast: bool = True) -> tuple[str, str]:
        """Write ``<path>-symbol.json`` and ``<path>-<epoch>.params``.

        Returns:
            The two names.
        """
        files = f"{path}-symbol.json", f"{path}-{epoch:04d}.params"
        self._symbol.save(files[0], remove_amp_cast=remove_amp_cast)
        aux = set(self._symbol.list_auxiliary_states())
        arrays = {f"{'aux' if n in aux else 'arg'}:{n}": unwrap(p.data()) for n, p in self._params.items()}
        write_params(files[1], arrays)
        return files

    def save_parameters(self, filename: str | os.PathLike[str]) -> None:
        """Write the parameters alone, by bare name."""
        self._params.save(filename)

    def summary(self, *inputs: NDArray) -> None:
        """Print what it consists of."""
        size = sum(int(np.prod(p.shape)) for p in self._params.values() if p.shape is not None)
        print(f"{self!r}\n{len(self._params)} parameters with {size} numbers")

    def __repr__(self) -> str:
        return f"SymbolBlock({', '.join(self._inputs)} -> {', '.join(self._symbol.list_outputs())})"
