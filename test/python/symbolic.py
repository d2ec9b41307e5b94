"""Programs (generated.py) with a symbol for the number of tokens, as Dynamo captures them when a
model is called with several lengths; and the same programs at other lengths.
"""

import dataclasses

import torch
from generated import Module, Ref, map_refs, resolve
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
)


class Symbolic:
    """`graph` reads the length from its first input. `length` is that of the capture; every number
    of that size is taken for it, and so are multiples by the batch in sizes of views.
    """

    def __init__(self, program, length):
        self.program, self.length = program, length
        self._env = ShapeEnv()
        self._mode = FakeTensorMode(shape_env=self._env, allow_non_fake_inputs=True)
        self._graph = torch.fx.Graph()
        self._nodes, self._values, self._sizes = {}, {}, {}
        inputs = {x.name: self._fake(x.name, x.make(program.seed)) for x in program.inputs}
        symbols = [n for x in inputs.values() for n in x.shape if isinstance(n, torch.SymInt)]
        if not symbols:
            raise ValueError("no input has that length")
        self._symbol = symbols[0]
        self._sizes[1] = self._graph.placeholder("length")
        self._sizes[1].meta["example_value"] = self._symbol
        for name, x in inputs.items():
            self._set(name, self._graph.placeholder(name), x)
        with self._mode, enable_python_dispatcher():
            for call in program.calls:
                self._read(call)
        self._graph.output(tuple(self._nodes[name] for name in program.outputs))
        if self._env.replacements:
            raise ValueError("the program works for one length alone")

    @property
    def graph(self):
        return Module(self._graph)

    def holds(self, length):
        """Whether what the capture found out about the length is true of another one."""
        symbol = self._symbol.node.expr
        return all(guard.expr.xreplace({symbol: length}) for guard in self._env.guards)

    def at(self, length):
        """The program at another length."""

        def size(n):
            times = self._times(n)
            return length * times if times else n

        inputs = [
            dataclasses.replace(x, shape=tuple(map(size, x.shape))) for x in self.program.inputs
        ]
        calls = [
            dataclasses.replace(call, **dict(zip(("args", "kwargs"), arguments, strict=True)))
            for call in self.program.calls
            for arguments in [_map_numbers(size, (call.args, call.kwargs))]
        ]
        return dataclasses.replace(self.program, inputs=inputs, calls=calls)

    def _times(self, n):
        """1 for the length itself, more for a multiple of it by the batch."""
        if not isinstance(n, int) or isinstance(n, bool):
            return 0
        batch = self.program.inputs[0].shape[0]
        return {self.length: 1, self.length * batch: batch}.get(n, 0)

    def _fake(self, name, x):
        dims = [DimDynamic.DUCK if n == self.length else DimDynamic.STATIC for n in x.shape]
        context = StatelessSymbolicContext(dims)
        return self._mode.from_tensor(
            x, symbolic_context=context, source=ConstantSource(name), static_shapes=False
        )

    def _set(self, name, node, value):
        node.meta["example_value"] = value
        self._nodes[name], self._values[name] = node, value

    def _read(self, call):
        arguments = call.args, call.kwargs
        values = _map_numbers(self._number, map_refs(self._values.__getitem__, arguments))
        nodes = _map_numbers(self._size_node, map_refs(self._nodes.__getitem__, arguments))
        target = resolve(call.target)
        method = isinstance(target, str)
        args, kwargs = values
        run = getattr(args[0], target) if method else target
        value = run(*args[1:] if method else args, **kwargs)
        op = "call_method" if method else "call_function"
        node = self._graph.create_node(op, target, *nodes, call.name)
        node.stack_trace = f'  File "program.py", line 1, in program\n    {call}\n'
        self._set(call.name, node, value)

    def _number(self, n):
        times = self._times(n)
        return self._symbol * times if times else n

    def _size_node(self, n):
        times = self._times(n)
        if not times:
            return n
        if times not in self._sizes:
            node = self._graph.call_function(resolve("_operator.mul"), (self._sizes[1], times))
            node.meta["example_value"] = self._symbol * times
            self._sizes[times] = node
        return self._sizes[times]


def _map_numbers(function, arg):
    if isinstance(arg, Ref | bool):
        return arg
    if isinstance(arg, int):
        return function(arg)
    if isinstance(arg, tuple | list):
        return type(arg)([_map_numbers(function, x) for x in arg])
    if isinstance(arg, dict):
        return {key: _map_numbers(function, x) for key, x in arg.items()}
    if isinstance(arg, slice):
        return slice(*(_map_numbers(function, x) for x in (arg.start, arg.stop, arg.step)))
    return arg
