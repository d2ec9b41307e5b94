"""Real processes over gloo train what one device trains: Hugging Face models, torch's transformers
and plain programs, through compilers.
"""

import os

import gloo_pool
import parity
import programs
import pytest
import torch
from parity import differences, take_step

pytestmark = pytest.mark.gloo

VOCABULARY = 97
# Hugging Face's models compute norms, rotary angles and losses in float32, whatever their weights.
HUGGING_FACE_TOLERANCE = 1e-5


def hugging_face(name, attention, dtype=torch.float64):
    import transformers

    sizes = {"vocab_size": VOCABULARY, "use_cache": False, "attn_implementation": attention}
    llama = {
        "hidden_size": 64,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "max_position_embeddings": 128,
        **sizes,
    }
    gpt = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128, **sizes}
    gpt |= dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    gpt |= dict.fromkeys(("bos_token_id", "eos_token_id"), 0)
    kind, config = {
        "llama": ("Llama", llama),
        "qwen3": ("Qwen3", {"head_dim": 8, **llama}),
        "mistral": ("Mistral", {"sliding_window": 6, **llama}),
        "gpt2": ("GPT2", gpt),
    }[name]
    head = "LMHeadModel" if name == "gpt2" else "ForCausalLM"
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**config)
    return getattr(transformers, kind + head)(config).to(dtype)


def token_inputs(length=16, batch=2, ignored=9):
    generator = torch.Generator().manual_seed(length)
    ids = torch.randint(0, VOCABULARY, (batch, length), generator=generator)
    labels = ids.clone()
    labels[0, :ignored] = -100
    return {"input_ids": ids, "labels": labels}


# ---- One step ----


def one_step(rank, make, inputs, tolerance, options):
    import autosp

    model = make()
    want = take_step(model, model, inputs)
    return differences(take_step(model, autosp.compile(model, **options), inputs), want, tolerance)


def hugging_face_step(rank, name, attention, inputs, backend, dtype):
    return one_step(
        rank,
        lambda: hugging_face(name, attention, dtype),
        inputs,
        HUGGING_FACE_TOLERANCE,
        {"backend": backend},
    )


MODELS = ["llama", "qwen3", "mistral", "gpt2"]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", MODELS)
def test_hugging_face(name, attention):
    args = (name, attention, token_inputs(), "aot_eager", torch.float64)
    assert gloo_pool.run(2, hugging_face_step, *args) == [[]] * 2


@pytest.mark.parametrize(
    "name, attention",
    [("llama", "sdpa"), ("qwen3", "eager"), ("mistral", "sdpa"), ("gpt2", "eager")],
)
def test_hugging_face_on_four_ranks(name, attention):
    args = (name, attention, token_inputs(), "aot_eager", torch.float64)
    assert gloo_pool.run(4, hugging_face_step, *args, timeout_seconds=300) == [[]] * 4


def test_loss_divided_by_a_count_that_the_trainer_passes():
    inputs = {**token_inputs(), "num_items_in_batch": 37}
    args = ("llama", "sdpa", inputs, "aot_eager", torch.float64)
    assert gloo_pool.run(2, hugging_face_step, *args) == [[]] * 2


def test_padding_mask():
    inputs = token_inputs(batch=3)
    inputs["attention_mask"] = (torch.arange(16) < torch.tensor([[16], [11], [5]])).long()
    inputs["labels"] = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
    args = ("llama", "sdpa", inputs, "aot_eager", torch.float64)
    assert gloo_pool.run(2, hugging_face_step, *args) == [[]] * 2


PLAIN = ["unequal labels", "rotary", "mask float", "eager attention", "modern", "encoder"]
PLAIN += ["encoder tokens first", "encoder decoder", "flat", "shared"]


def plain_steps(rank, names):
    return {
        name: one_step(
            rank,
            programs.PROGRAMS[name].make,
            programs.PROGRAMS[name].inputs(),
            programs.PROGRAMS[name].tolerance,
            {"backend": "aot_eager"},
        )
        for name in names
    }


@pytest.mark.parametrize("ranks, names", [(2, PLAIN), (4, PLAIN[:2] + PLAIN[-3:])])
def test_plain_programs(ranks, names):
    results = gloo_pool.run(ranks, plain_steps, names, timeout_seconds=500)
    assert results == [{name: [] for name in names}] * ranks


@pytest.mark.inductor
@pytest.mark.parametrize("name, attention", [("llama", "sdpa"), ("gpt2", "eager")])
def test_inductor(name, attention):
    args = (name, attention, token_inputs(), "inductor", torch.float32)
    assert gloo_pool.run(2, hugging_face_step, *args, timeout_seconds=550) == [[]] * 2


# ---- torch's own entry points ----


def through_torch(rank, how, name, inputs):
    """The backend by its name, twice in a row: another length comes second."""
    model, alone = hugging_face(name, "sdpa"), hugging_face(name, "sdpa")
    options = {"backend": "aot_eager", "outputs": "full"}
    if how == "model.compile":
        model.compile(backend="autosp", fullgraph=True, options=options)
        call = model
    else:
        call = torch.compile(model, backend="autosp", fullgraph=True, options=options)
    return [
        difference
        for batch in inputs
        for difference in differences(
            take_step(model, call, batch),
            take_step(alone, alone, batch),
            HUGGING_FACE_TOLERANCE,
        )
    ]


@pytest.mark.parametrize("how, name", [("model.compile", "llama"), ("torch.compile", "mistral")])
def test_torch_entry_points(how, name):
    batches = [token_inputs(), token_inputs(24)]
    assert gloo_pool.run(2, through_torch, how, name, batches) == [[]] * 2


# ---- Compiler caches ----


def twice_with_caches(rank, directory):
    """Compiles a model, forgets it and compiles it again from what is on disk, where rank 1 has
    lost its files: the differences and how often AOTAutograd's cache was hit in each round.
    """
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(directory, str(rank))
    program = programs.lm(layers=1, dtype=torch.float32)
    rounds = []
    for number in range(2):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        if number == 1 and rank == 1:
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(directory, "empty")
        wrong = one_step(rank, program.make, program.inputs(), 2e-6, {"backend": "inductor"})
        counts = torch._dynamo.utils.counters["aot_autograd"]
        rounds.append((wrong, counts["autograd_cache_hit"], counts["autograd_cache_bypass"]))
    return rounds


@pytest.mark.inductor
def test_one_rank_hits_a_compiler_cache_and_the_other_does_not(tmp_path):
    first, second = gloo_pool.run(2, twice_with_caches, str(tmp_path), timeout_seconds=550)
    assert first == [([], 0, 0), ([], 1, 0)]
    assert second == [([], 0, 0), ([], 0, 0)]


# ---- Several steps ----


def train(model, call, batches, micro_batches=1):
    """Losses of every call."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    losses = []
    for i, batch in enumerate(batches):
        loss = call(**batch)[0]
        losses.append(float(loss))
        (loss / micro_batches).backward()
        if (i + 1) % micro_batches == 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
    return losses


def trained(rank, make, batches, tolerance, micro_batches=1):
    """How the parameters differ from one device's after training, and these parameters."""
    import autosp

    alone, model = make(), make()
    want = train(alone, alone, batches, micro_batches)
    losses = train(model, autosp.compile(model, backend="aot_eager"), batches, micro_batches)
    assert losses == pytest.approx(want, rel=tolerance)
    assert losses[-1] != pytest.approx(losses[0], rel=1e-3)
    states = [{n: p.detach() for n, p in m.named_parameters()} for m in (model, alone)]
    steps = [parity.Step(torch.tensor(0.0), [], state) for state in states]
    return differences(*steps, tolerance), states[0]


def train_plain(rank):
    batches = [programs.lm(seed=seed).inputs() for seed in range(10)]
    return trained(rank, programs.lm(positions="rotary").make, batches, 1e-9)


def train_llama(rank):
    batches = [token_inputs(ignored=step) for step in range(10)]
    return trained(rank, lambda: hugging_face("llama", "sdpa"), batches, HUGGING_FACE_TOLERANCE)


def accumulate(rank):
    """Micro-batches of other lengths and numbers of valid labels."""
    batches = [token_inputs(16, 2, 9), token_inputs(24, 2, 3)] * 2
    return trained(rank, lambda: hugging_face("llama", "sdpa"), batches, 1e-5, micro_batches=2)


@pytest.mark.parametrize("case", [train_plain, train_llama, accumulate])
def test_parameters_stay_together_on_all_ranks_and_with_one_device(case):
    (wrong, first), (also_wrong, second) = gloo_pool.run(2, case, timeout_seconds=300)
    assert wrong == also_wrong == []
    assert all(torch.equal(first[name], second[name]) for name in first)
