"""Values that are in host memory between forward and backward, with streams that stand in for an
accelerator's.
"""

import pytest
import torch
from autosp import checkpointing, offload
from autosp.errors import InternalError, Unsupported
from lazy_transfers import lazy_transfers
from parity import check, take_step
from programs import PROGRAMS
from test_checkpointing import blocks, inputs
from test_models import hugging_face, token_inputs
from torch import nn
from torch._inductor.compile_fx import compile_fx
from torch.fx.experimental.proxy_tensor import make_fx

pytestmark = pytest.mark.slow

moved, refused = [], {}  # by the module that was compiled last


class MoveAll(checkpointing.Partitioner):
    """Moves all that the policy keeps. (Compilers pickle it, with its module's name.)"""

    def __call__(self, gm, joint_inputs, *, num_fwd_outputs, **kwargs):
        forward, backward = super().__call__(
            gm, joint_inputs, num_fwd_outputs=num_fwd_outputs, **kwargs
        )
        kept = forward.graph.output_node().args[0][num_fwd_outputs:]
        names = [x.name for x in kept if isinstance(x.meta["val"], torch.Tensor)]
        absences = self.absences(forward, backward, names)
        stay = offload.rewrite(forward, backward, absences, num_fwd_outputs)
        refused.update(stay)
        moved.extend(name for name, _, _ in absences if name not in stay)
        return forward, backward

    def absences(self, forward, backward, names):
        """Copies have the time of three matrix products, the first ones out until the end."""
        products_out, products_in = map(products, (forward, backward))
        result = []
        for i, name in enumerate(names):
            here = names_of(forward).index(name)
            after = [at for at in products_out if at > here][2:3] if i else []
            (host,) = (node for node in backward.graph.nodes if node.name == name)
            use = min((names_of(backward).index(user.name) for user in host.users), default=0)
            before = [at for at in products_in if at < use][-3:-2]
            result.append(
                (
                    name,
                    *(names_of(forward)[at] for at in after or [-1]),
                    *(names_of(backward)[at] for at in before or [use]),
                )
            )
        return result


def names_of(part):
    return [node.name for node in part.graph.nodes]


def products(part):
    return [at for at, node in enumerate(part.graph.nodes) if "mm" in str(node.target)]


def policy_choice(policy, ranks=1):
    return checkpointing.Choice(policy, ranks, device="h100")


def moving(module, policy, compile_with=checkpointing._aot_eager, dynamic=None):
    """The module compiled with all that the policy keeps moved."""
    moved.clear()
    refused.clear()
    partitioner = MoveAll(policy_choice(policy))

    def backend(gm, example_inputs):
        return compile_with(gm, example_inputs, partitioner)

    return torch.compile(module, backend=backend, dynamic=dynamic)


def check_moved(module, inputs, policy, **options):
    """One step with moved values is the step of the module itself; the Transfers."""
    want = take_step(module, module, inputs)
    call = moving(module, policy, **options)
    with lazy_transfers() as transfers:
        check([take_step(module, call, inputs)], want)
    assert len(transfers.sources) == 2 * len(moved) > 0
    assert not any(source() for source in transfers.sources)
    return transfers


@pytest.mark.parametrize("policy", ["off", "sac"])
@pytest.mark.parametrize("name", ["rotary", "modern", "encoder", "eager attention", "shared"])
def test_gradients(name, policy):
    program = PROGRAMS[name]
    check_moved(program.make(), program.inputs(), policy)


@pytest.mark.parametrize("policy", ["off", "sac"])
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_hugging_face(name, policy):
    check_moved(hugging_face(name, "sdpa"), token_inputs(), policy)


@pytest.mark.inductor
@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [None, True])
def test_inductor(dynamic):
    def compile_with(gm, example_inputs, partitioner):
        options = {"custom_partitioner_fn": partitioner} | offload.INDUCTOR_OPTIONS
        return compile_fx(gm, example_inputs, config_patches=options)

    program = PROGRAMS["rotary"]
    transfers = check_moved(
        program.make(), program.inputs(), "sac", compile_with=compile_with, dynamic=dynamic
    )
    assert overlapped(transfers.log) > 0.5


class Squares(nn.Module):
    """A loss behind a module."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x).pow(2).mean()


def overlapped(log):
    """The share of the copies that are not waited for at once: a matrix product runs meanwhile."""
    begun, count, products = [], 0, 0
    for what in log:
        if what == "copy":
            begun.append(products)
        elif what == "wait":
            count += products > begun.pop(0)
        else:
            products += 1
    return count / log.count("copy")


def test_copies_overlap_with_products():
    module = Squares(blocks(6))
    transfers = check_moved(module, {"x": inputs()}, "sac")
    assert overlapped(transfers.log) > 0.85  # not of what is needed at once


def test_lengths_that_change():
    module = Squares(blocks())
    call = moving(module, "sac", dynamic=True)
    for length in (8, 24, 16):
        want = take_step(module, module, {"x": inputs(length=length)})
        with lazy_transfers():
            check([take_step(module, call, {"x": inputs(length=length)})], want)


def test_moved_values_are_gone_between_forward_and_backward():
    call = moving(blocks(), "sac")
    with lazy_transfers() as transfers:
        loss = call(inputs()).sum()
        assert len(transfers.sources) == len(moved) >= 6
        assert not any(source() for source in transfers.sources)
        loss.backward()


def test_attention_outputs_move():
    """Outputs of an operator with several, which don't lie in the order of their dimensions."""
    call = moving(blocks(), "sac")
    with lazy_transfers():
        call(inputs()).sum().backward()
    assert sum("getitem" in name for name in moved) == 6  # output and row statistic
    assert not [name for name in refused if "getitem" in name]


def test_a_backward_runs_twice():
    module = blocks()
    call = moving(module, "sac")
    with lazy_transfers():
        loss = call(inputs()).sum()
        loss.backward(retain_graph=True)
        once = [p.grad.clone() for p in module.parameters()]
        loss.backward()
    torch.testing.assert_close([p.grad for p in module.parameters()], [2 * g for g in once])


# ---- What moves, and when ----


def split(function, *args):
    """A graph in the form of a partitioned forward, and a backward that reads all it keeps."""
    forward = make_fx(function, tracing_mode="fake")(*args)
    kept = forward.graph.output_node().args[0][1:]
    graph = torch.fx.Graph()
    saved = [graph.placeholder(node.name) for node in kept]
    for copy, node in zip(saved, kept, strict=True):
        copy.meta["val"] = node.meta["val"]
    used = []
    for node in saved:
        used.append(graph.call_function(torch.ops.aten.neg.default, (node,)))
        used[-1].meta["val"] = node.meta["val"]
    graph.output(tuple(used))
    return forward, torch.fx.GraphModule({}, graph), [node.name for node in kept]


def absent(names):
    return [(name, None, None) for name in names]


def test_what_would_free_nothing_stays():
    def function(x):
        y = x + 1
        z = y * 2
        w = z.sin()
        return z, x.t(), z.t(), w, y.expand(2, 3, 4), y[:, ::2]

    forward, backward, names = split(function, torch.randn(3, 4))
    reasons = offload.rewrite(forward, backward, absent(names), 1)
    of_input, of_output, moved, overlapping, gaps = names
    assert "an input" in reasons[of_input] and "an output" in reasons[of_output]
    assert "overlap" in reasons[overlapping] and "gaps" in reasons[gaps]
    assert moved not in reasons
    (host,) = (x for x in forward.graph.output_node().args[0] if "wait" in x.name)
    assert host.args[2].name == moved


def test_aliases_of_what_stays_stay():
    def function(x):
        y = x + 1
        return x.sum(), y, y.t()

    forward, backward, (y, transposed) = split(function, torch.randn(3, 4))
    reasons = offload.rewrite(forward, backward, absent([transposed]), 1)
    assert reasons == {transposed: f"it is in the memory of a kept value, {y}"}


def test_a_value_that_is_not_kept():
    forward, backward, _ = split(lambda x: (x.sum(), x + 1), torch.randn(3))
    with pytest.raises(InternalError, match="other is to move to the host, but is not kept"):
        offload.rewrite(forward, backward, absent(["other"]), 1)


def test_copies_begin_and_end_at_their_places():
    def function(x):
        a = x + 1
        b = a * 2
        c = b - a
        return c.sum(), a, b

    forward, backward, (a, b) = split(function, torch.randn(3))
    first_use = next(node.name for node in backward.graph.nodes if node.op == "call_function")
    assert not offload.rewrite(forward, backward, [(a, "sub", None), (b, None, first_use)], 1)

    def order(part):
        return [node.name.partition("_")[0] for node in part.graph.nodes][1:-1]

    assert order(forward) == ["add", "offload", "mul", "offload", "sub", "wait", "sum", "wait"]
    assert order(backward) == ["mul", "reload", "wait", "reload", "neg", "wait", "neg"]


def test_choices():
    for choice in ("auto", "off"):
        offload.check(choice, "cpu")
    with pytest.raises(Unsupported, match="are on the CPU"):
        offload.check("all", "cpu")
    with pytest.raises(Unsupported, match="some"):
        offload.check("some", "cuda")
