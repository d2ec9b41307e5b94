"""What a user may rely on, on simulated ranks: lengths, gradients, dtypes, outputs, several models,
groups and functions. The oracle is always the same model on one device.
"""

import copy
import dataclasses

import autosp
import programs
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from autosp.simulate import run_ranks
from parity import Step, check, check_simulated, run_as_is, take_step
from programs import PROGRAMS, VOCABULARY
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_map

pytestmark = pytest.mark.slow


class Counting:
    """A backend that compiles nothing and counts the graphs."""

    def __init__(self):
        self.graphs = 0

    def __call__(self, graph_module, example_inputs):
        self.graphs += 1
        return graph_module


def on_ranks(ranks, case, model, *args):
    """[case(rank, the rank's own copy of the model, *args)], on simulated ranks."""
    copies = [copy.deepcopy(model) for _ in range(ranks)]
    return run_ranks(ranks, lambda rank: case(rank, copies[rank], *args))


def steps_in_turn(rank, model, batches, dynamic):
    """A step for each batch, and the number of graphs. `dynamic` are the dimensions to mark."""
    backend = Counting()
    compiled = autosp.compile(model, backend=backend)
    steps = []
    for batch in batches:
        for name, dims in dynamic.items():
            torch._dynamo.mark_dynamic(batch[name], dims)
        steps.append(take_step(model, compiled, batch))
    return steps, backend.graphs


def check_in_turn(model, batches, ranks, graphs, dynamic=None):
    wants = [take_step(model, model, batch) for batch in batches]
    # A mark is on the tensor: each rank has its own.
    results = on_ranks(
        ranks,
        lambda rank, model: steps_in_turn(
            rank, model, [tree_map(torch.clone, batch) for batch in batches], dynamic or {}
        ),
        model,
    )
    for i, want in enumerate(wants):
        check([steps[i] for steps, _ in results], want)
    assert [count for _, count in results] == [graphs] * ranks


# ---- Lengths ----


LENGTHS = {
    "pad shift": {},
    "slice shift": {"loss": programs.shifted_slice()},
    "rotary": {"positions": "rotary", "heads": 8, "kv_heads": 4, "width": 32},
    "eager attention": {"style": "eager"},
    "mask bool": {"style": "mask", "inputs": programs.bool_mask},
}


@pytest.mark.parametrize("name", LENGTHS)
def test_a_length_marked_dynamic_is_compiled_once(name):
    made = [programs.lm(n, layers=1, **LENGTHS[name]) for n in (8, 20, 12)]
    batches = [program.inputs() for program in made]
    dynamic = {"ids": 1, "labels": 1} | ({"mask": [2, 3]} if "mask" in batches[0] else {})
    check_in_turn(made[0].make(), batches, 2, 1, dynamic)


def test_twenty_lengths_are_compiled_twice():
    made = [programs.lm(n, layers=1, batch=1) for n in range(4, 44, 2)]
    check_in_turn(made[0].make(), [program.inputs() for program in made], 2, 2)


def test_batches_of_other_sizes():
    made = [programs.lm(8, batch=b, layers=1, loss=programs.shifted_slice()) for b in (2, 3, 5, 4)]
    check_in_turn(made[0].make(), [program.inputs() for program in made], 2, 2)


# ---- Gradients and dtypes ----


@pytest.mark.parametrize("name", ["shared", "modern", "tied", "unequal labels"])
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_unsynchronized_gradients_average_to_one_devices(name, ranks):
    """The parameter `scale` of "shared" is used on tokens and on itself."""
    program = PROGRAMS[name]
    model, inputs = program.make(), program.inputs()

    def case(rank, model):
        compiled = autosp.compile(model, backend=run_as_is, grad_sync=False)
        return take_step(model, compiled, inputs)

    steps = on_ranks(ranks, case, model)
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    means = {name: sum(step.grads[name] for step in steps) / ranks for name in trained}
    means |= {name: grad for name, grad in steps[0].grads.items() if name not in means}
    want = take_step(model, model, inputs)
    check([dataclasses.replace(steps[0], grads=means)], want)
    assert any(not torch.allclose(steps[0].grads[name], want.grads[name]) for name in trained)


def test_two_calls_before_one_backward():
    """The second call has another length, and its loss is scaled."""
    first, second = programs.lm(layers=1), programs.lm(8, seed=1, layers=1)

    def both(call):
        return lambda: (call(**first.inputs())[0] + 3 * call(**second.inputs())[0],)

    def case(rank, model):
        return take_step(model, both(autosp.compile(model, backend=run_as_is)), {})

    model = first.make()
    check(on_ranks(2, case, model), take_step(model, both(model), {}))


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 2e-6), (torch.bfloat16, 0.03)])
@pytest.mark.parametrize("style", ["causal", "eager"])
def test_dtypes(dtype, tolerance, style):
    program = programs.lm(dtype=dtype, style=style, layers=1, ignored=[(0, 0, 9)])
    check_simulated(program.make, program.inputs(), 2, tolerance)


def test_autocast():
    program = programs.lm(dtype=torch.float32, layers=1)

    class Autocast(nn.Module):
        def __init__(self):
            super().__init__()
            self.lm = program.make()

        def forward(self, **inputs):
            with torch.autocast("cpu", torch.bfloat16):
                return self.lm(**inputs)

    check_simulated(Autocast, program.inputs(), 2, 0.03)


# ---- Outputs ----


class Outputs(nn.Module):
    """Results of every kind in a nest."""

    def __init__(self):
        super().__init__()
        self.lm = programs.lm(layers=1).make()
        self.free = nn.Parameter(torch.ones(3, dtype=torch.float64))

    def forward(self, ids):
        logits = self.lm(ids)
        each = logits.logsumexp(-1)
        return {
            "loss": each.square().mean() + self.free.sum(),
            "tokens": (each, logits.argmax(-1), each.transpose(0, 1)),
            "merged": logits.flatten(0, 1),
            "whole": [each.sum(1), ids, self.free * 2, None, 3],
            "again": each,
        }


@pytest.mark.parametrize("outputs", ["auto", "full"])
def test_outputs_of_every_kind_and_gradients_through_all(outputs):
    ids = programs.lm().inputs()["ids"]
    check_simulated(Outputs, {"ids": ids}, 2, outputs=outputs, cotangents=True)


def test_kinds_of_outputs():
    ids = programs.lm().inputs()["ids"]
    model = Outputs()
    want = model(ids)

    def case(rank, model):
        return {
            kind: autosp.compile(model, backend=run_as_is, outputs=kind)(ids)
            for kind in ("auto", "full", "local")
        }

    results = on_ranks(2, case, model)
    for result in results:
        auto = result["auto"]
        assert [type(x) for x in auto["tokens"]] == [DTensor] * 3
        assert [x.placements[0].dim for x in auto["tokens"]] == [1, 1, 0]
        plain = [auto["loss"], auto["merged"], *auto["whole"][:3]]
        assert not any(isinstance(x, DTensor) for x in plain)
        assert auto["whole"][3:] == [None, 3]
        assert not any(isinstance(x, DTensor) for x in result["full"]["tokens"])
    for i, dim in enumerate([1, 1, 0]):
        parts = [result["local"]["tokens"][i] for result in results]
        torch.testing.assert_close(torch.cat(parts, dim), want["tokens"][i])


# ---- Several modes, models, groups ----


def test_evaluation_and_training_alternate():
    program = programs.lm(layers=1)
    model, inputs = program.make(), program.inputs()
    want, logits = take_step(model, model, inputs), model(inputs["ids"]).detach()

    def case(rank, model):
        compiled = autosp.compile(model, backend=run_as_is)
        steps, evaluated = [], []
        for mode in (torch.no_grad, torch.inference_mode):
            steps.append(take_step(model, compiled.train(), inputs))
            with mode():
                evaluated.append(compiled.eval()(inputs["ids"]).full_tensor())
        return steps, evaluated

    for steps, evaluated in on_ranks(2, case, model):
        check(steps, want)
        for got in evaluated:
            assert not got.requires_grad
            torch.testing.assert_close(got.clone(), logits)


def test_two_models_and_two_groups_in_one_process():
    """One model over all four ranks, and over each half with sequences of its own; another model
    over each half; and the first one compiled once more.
    """
    first, second = programs.lm(layers=1), PROGRAMS["encoder"]
    halves = [programs.lm(seed=1, layers=1).inputs(), programs.lm(12, seed=2, layers=1).inputs()]
    model, other = first.make(), second.make()
    wants = [
        [
            take_step(model, model, first.inputs()),
            take_step(model, model, half),
            take_step(other, other, second.inputs()),
            take_step(model, model, first.inputs()),
        ]
        for half in halves
    ]

    def case(rank, models):
        model, other = models
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "sp"))
        whole = autosp.compile(model, backend=run_as_is)
        half = autosp.compile(model, backend=run_as_is, group=mesh["sp"])
        third = autosp.compile(other, backend=run_as_is, group=mesh["sp"].get_group())
        again = autosp.compile(model, backend=run_as_is)
        return [
            [
                take_step(model, whole, first.inputs()),
                take_step(model, half, halves[rank // 2]),
                take_step(other, third, second.inputs()),
                take_step(model, again, first.inputs()),
            ]
            for _ in range(2)
        ]

    for rank, rounds in enumerate(on_ranks(4, case, (model, other))):
        for steps in rounds:
            for step, want in zip(steps, wants[rank // 2], strict=True):
                check([step], want)


# ---- Functions ----


def test_a_step_with_the_loss_outside_of_the_module():
    program = programs.lm(layers=1)

    def step_of(model):
        def step(ids, labels, scale=1.0):
            logits = model(ids)
            loss = F.cross_entropy(logits.reshape(-1, VOCABULARY), labels.reshape(-1))
            return loss * scale, logits

        return step

    check_function(program.make(), step_of, {**program.inputs(), "scale": 0.5})


def test_a_function_of_two_models_one_of_them_frozen():
    """Direct preference optimisation: pairs of sequences against a reference."""
    models = nn.ModuleList([programs.lm(layers=1, seed=s).make() for s in (0, 1)])

    def step_of(models):
        def likelihoods(model, ids):
            logits = model(ids)[:, :-1].log_softmax(-1)
            return logits.gather(-1, ids[:, 1:, None]).squeeze(-1).sum(1)

        def step(ids):
            ours = likelihoods(models[0], ids)
            with torch.no_grad():
                theirs = likelihoods(models[1], ids)
            better, worse = (ours - theirs).chunk(2)
            return -F.logsigmoid(0.1 * (better - worse)).mean(), better, worse

        return step

    check_function(models, step_of, {"ids": programs.lm(batch=4).inputs()["ids"]})


def check_function(model, step_of, inputs):
    want = take_step(model, step_of(model), inputs)

    def case(rank, model) -> Step:
        return take_step(model, autosp.compile(step_of(model), backend=run_as_is), inputs)

    check(on_ranks(2, case, model), want)
