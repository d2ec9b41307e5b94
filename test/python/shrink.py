"""The smallest program that still fails, found by leaving out a piece at a time."""

import dataclasses

import torch
from generated import Ref, map_refs


def shrink(program, fails, attempts=400):
    """`fails(program)` says whether a smaller program is still one to look at. Deterministic."""
    budget = [attempts]

    def try_(smaller):
        if smaller is None or budget[0] <= 0:
            return False
        budget[0] -= 1
        return fails(smaller)

    changed = True
    while changed and budget[0] > 0:
        changed = False
        for step in (_fewer_outputs, _fewer_calls, _simpler_options):
            for smaller in step(program):
                if try_(smaller):
                    program, changed = smaller, True
                    break
            if changed:
                break
    return program


def writes(call):
    """Whether it changes its first argument."""
    return call.target in ("_operator.setitem", "_operator.iadd") or call.target.endswith("_")


def _fewer_outputs(program):
    for name in program.outputs:
        if len(program.outputs) > 1:
            yield _live(program, outputs=[x for x in program.outputs if x != name])
    # an earlier value in place of one that depends on much
    types = _types(program)
    for name in program.outputs:
        for call in reversed(program.calls):
            if call.name not in program.outputs and isinstance(types[call.name], tuple):
                outputs = [call.name if x == name else x for x in program.outputs]
                smaller = _live(program, outputs=outputs)
                if len(smaller.calls) < len(program.calls):
                    yield smaller


def _fewer_calls(program):
    """A call's readers read another value of its type."""
    types = _types(program)
    for at in reversed(range(len(program.calls))):
        call = program.calls[at]
        if writes(call):
            calls = [_renamed(x, {call.name: call.args[0]}) for x in program.calls if x is not call]
            outputs = [call.args[0] if x == call.name else x for x in program.outputs]
            yield _live(program, calls=calls, outputs=list(dict.fromkeys(outputs)))
        before = [x.name for x in program.inputs] + [x.name for x in program.calls[:at]]
        for other in [x for x in before if types[x] == types[call.name]][:6]:
            rename = {call.name: other}
            calls = [_renamed(x, rename) for x in program.calls if x is not call]
            outputs = [rename.get(x, x) for x in program.outputs]
            if any(x in {i.name for i in program.inputs} for x in outputs):
                continue
            yield _live(program, calls=calls, outputs=list(dict.fromkeys(outputs)))


def _simpler_options(program):
    for name in ("attention", "outputs", "lengths"):
        if name in program.options:
            options = {k: v for k, v in program.options.items() if k != name}
            yield dataclasses.replace(program, options=options)
    for ranks in range(2, program.ranks):
        yield dataclasses.replace(program, options=program.options | {"ranks": ranks})


def _types(program):
    values, _ = program.run()
    return {
        name: (tuple(x.shape), x.dtype) if isinstance(x, torch.Tensor) else name
        for name, x in values.items()
    }


def _renamed(call, rename):
    args, kwargs = map_refs(lambda x: rename.get(x, x), (call.args, call.kwargs))
    return dataclasses.replace(call, args=args, kwargs=kwargs)


def _live(program, calls=None, outputs=None):
    """Without what the outputs don't depend on: writes stay as long as what they write to."""
    calls = program.calls if calls is None else calls
    outputs = program.outputs if outputs is None else outputs
    needed = set(outputs)
    kept = []
    for call in reversed(calls):
        if call.name in needed or (writes(call) and _views(calls, call.args[0]) & needed):
            kept.append(call)
            needed.update(call.refs())
    kept.reverse()
    dims = program.options.get("seq_dims", {})
    inputs = [x for x in program.inputs if x.name in needed or x.name in dims]
    return dataclasses.replace(program, inputs=inputs, calls=kept, outputs=outputs)


def _views(calls, name):
    """The values that a chain of first arguments leads to."""
    made = {call.name: call for call in calls}
    found = set()
    while name in made:
        found.add(name)
        args = made[name].args
        name = args[0] if args and isinstance(args[0], Ref) else None
    return found | ({name} if name else set())
