"""Every model keeps the promises of its capabilities. A new model joins by a line in MODELS."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from small import TEXT, small_net
from torch import Tensor, nn

from glassformer.hub.families import FAMILIES, family
from glassformer.hub.folder import load_folder, save_folder
from glassformer.hub.lora import LoraWeights, read_adapter, save_adapter
from glassformer.hub.mapping import export_tensors
from glassformer.nn.net import Net
from glassformer.trace import trace

# Kind -> what a small one of it has beside the common sizes.
MODELS: dict[str, dict[str, Any]] = {
    "gpt2": {},
    "gpt1": {},
    "gpt3": {"layers": 3, "window": 4, "head_width": 5},
    "music": {"reach": 5},
    "transformer": {
        "decoder_layers": 3,
        "source_vocab": 50,
        "pad": 49,
        "layout": "halves",
        "head_bias": True,
        "dropout": 0.0,
    },
    "gpt2-encoder-decoder": {"decoder_layers": 3, "pad": 96},
    "seq2seq": {"decoder_width": 20, "source_vocab": 50, "pad": 49, "bidirectional": True},
    "rnn": {"shape": "tag", "pad": 96, "labels": ("NOUN", "VERB", "ADJ")},
    "gpt2-classifier": {"pad": 96, "labels": ("good", "bad", "neither")},
    "gpt1-classifier": {"pad": 96, "task": "entail", "labels": ("yes", "no")},
    "gpt3-classifier": {"layers": 3, "window": 4, "head_width": 5, "labels": ("yes", "no")},
}
# What a vocabulary of its own can write, for a kind that cannot write any text.
TEXTS = {"music": "SET_VELOCITY<80> NOTE_ON<60> TIME_SHIFT<500> NOTE_OFF<60>"}
SOURCE = 9  # tokens of the source, for a model that reads one
ATTENTION_HAS = {f"attn.{name}" for name in ("q", "k", "v", "scores", "pattern", "mix", "out")}


def models_that(*capabilities: str) -> Callable[..., Any]:
    """Run a test with every model that has these capabilities; none of them means: with every model."""
    able = [kind for kind in MODELS if set(capabilities) <= make(kind).capabilities]
    return pytest.mark.parametrize("model", able, indirect=True)


def make(kind: str, **changes: Any) -> Net:
    return small_net(kind, 7, **MODELS[kind] | changes)


@pytest.fixture
def model(request: pytest.FixtureRequest) -> Net:
    return make(request.param)


def sources(rows: int) -> Tensor:
    """A source for each row, the same for the same row."""
    return torch.randint(0, 49, (3, SOURCE), generator=torch.Generator().manual_seed(1))[:rows]


def run(model: Net, ids: Tensor, cache: Any = None, *, row: int | None = None) -> Tensor:
    """Logits (B, T, V), whether the model reads one text or two; or those of one `row` alone, (1, T, V)."""
    if "source" not in model.capabilities:
        return model(ids) if cache is None else model(ids, cache)
    source = sources(len(ids)) if row is None else sources(3)[row : row + 1]
    return model(source, ids, cache)


def stepper(model: Net) -> Any:
    """What generation steps through: the model, bound to sources if it reads any."""
    return model.given(sources(3).tolist()) if "source" in model.capabilities else model


@pytest.fixture
def ids(model: Net) -> Tensor:
    return torch.randint(0, model.vocab, (3, 12), generator=torch.Generator().manual_seed(0))


def test_every_family_is_held_to_the_contract() -> None:
    """No family without a line here."""
    assert list(MODELS) == list(FAMILIES)


@models_that()
def test_a_model_has_its_parts(model: Net, ids: Tensor) -> None:
    """What other rooms ask for, under one name."""
    assert family(model.kind).config is type(model.config)
    says = len(model.config.labels) if "labels" in model.capabilities else model.vocab
    assert (model.tokens.num_embeddings, model.head.out_features) == (model.vocab, says)
    assert model.device == torch.device("cpu")
    assert model.context is None or model.context >= ids.shape[1]
    for stack in model.stacks:
        blocks = model.get_submodule(f"{stack.prefix}blocks")
        assert isinstance(blocks, nn.ModuleList)
        assert len(blocks) == stack.layers
        for layer in range(stack.layers):
            for part in stack.parts:
                matrix = model.get_submodule(stack.site(layer, f"{part.name}.{part.output}"))
                assert matrix.out_features == model.tokens.embedding_dim
    assert model.capabilities
    assert model.embed(ids).shape == (3, 12, model.tokens.embedding_dim)


@models_that()
def test_sites_have_the_common_names(model: Net, ids: Tensor) -> None:
    """The same value has the same name in every model."""
    with trace(model) as seen:
        run(model, ids)
    assert set(seen) >= {"final", "logits"}
    for stack in model.stacks:
        length = SOURCE if stack.source else 12
        assert seen[f"{stack.prefix}embed"].shape == (3, length, model.tokens.embedding_dim)
        for layer in range(stack.layers):
            assert {stack.site(layer, "in"), stack.site(layer, "out")} <= set(seen)
            neurons = seen[stack.site(layer, "mlp.neurons")]
            assert neurons.shape == (3, length, stack.neurons)


@models_that("attends")
def test_attention_has_the_common_names_and_shapes(model: Net, ids: Tensor) -> None:
    """Heads come third from the right, and a pattern sums to 1."""
    with trace(model) as seen:
        run(model, ids)
    for stack in model.stacks:
        for layer in range(stack.layers):
            assert {stack.site(layer, name) for name in ATTENTION_HAS} <= set(seen)
            pattern = seen[stack.site(layer, "attn.pattern")]
            length = SOURCE if stack.source else 12
            assert pattern.shape == (3, stack.heads, length, length)
            assert torch.allclose(pattern.sum(-1), torch.ones(3, stack.heads, length))
            assert not stack.causal or torch.all(pattern.triu(1) == 0)


@models_that()
def test_reading_changes_no_bit(model: Net, ids: Tensor) -> None:
    """Watched or not, the output is the same."""
    with trace(model):
        watched = run(model, ids)
    assert torch.equal(run(model, ids), watched)


@models_that("writes")
def test_reading_behind_a_cache_changes_no_bit(model: Net, ids: Tensor) -> None:
    """Watched or not, step by step."""
    runs = []
    for watched in (False, True):
        cache = model.new_cache(3, 12)
        steps = []
        for part in ids.split([9, 1, 2], dim=1):
            if watched:
                with trace(model):
                    steps.append(run(model, part, cache))
            else:
                steps.append(run(model, part, cache))
        runs.append(torch.cat(steps, 1))
    assert torch.equal(*runs)


@models_that("attends")
def test_an_edit_of_nothing_changes_nothing(model: Net, ids: Tensor) -> None:
    """The explicit route is within 1e-5 of the fused one."""
    plain = run(model, ids)
    with trace(model, edits={"*blocks.*.attn.pattern": lambda pattern: pattern}):
        explicit = run(model, ids)
    assert (explicit - plain).abs().max() <= 1e-5 * plain.abs().max()


@models_that()
def test_the_stream_is_what_its_parts_make(model: Net, ids: Tensor) -> None:
    """Each part is added; a model that norms its stream names the norm."""
    model = model.double()
    with trace(model) as seen:
        run(model, ids)
    for stack in model.stacks:
        for layer in range(stack.layers):
            before = "in"
            for part in stack.parts:
                site = stack.site(layer, part.after)
                stream = seen[stack.site(layer, before)] + seen[stack.site(layer, f"{part.name}.out")]
                before = part.after
                norm = model.stream_norm(site)
                stream = stream if norm is None else norm(stream)
                assert torch.allclose(stream, seen[site], rtol=0, atol=1e-9 * seen[site].abs().max().item())


@models_that("attends")
def test_parts_add_up_unless_the_stream_is_normed(model: Net, ids: Tensor) -> None:
    """What the parts write is what the stream holds at the end, exactly where there is no norm between."""
    model = model.double()
    with trace(model) as seen:
        run(model, ids)
    stack = model.stacks[-1]
    last = stack.site(stack.layers - 1, "out")
    places = [stack.site(layer, f"{part.name}.out") for layer in range(stack.layers) for part in stack.parts]
    parts = [seen[f"{stack.prefix}embed"], *(seen[site] for site in places)]
    additive = all(model.stream_norm(site) is None for site in seen)
    close = torch.allclose(sum(parts), seen[last], rtol=0, atol=1e-9 * seen[last].abs().max().item())
    assert close == additive


@models_that()
def test_unembedding_the_end_gives_the_logits(model: Net, ids: Tensor) -> None:
    """The last block's output, unembedded, is the model's output; `norm` is a norm or nothing."""
    with trace(model) as seen:
        logits = run(model, ids)
    ends = [stack.site(stack.layers - 1, "out") for stack in model.stacks] or ["final"]
    assert torch.equal(model.unembed(seen[ends[-1]]), logits)
    assert isinstance(model.norm, nn.LayerNorm | nn.Identity)


@models_that("causal")
def test_the_future_cannot_be_seen(model: Net, ids: Tensor) -> None:
    """Changing a token changes nothing before it, and something at it."""
    other = ids.clone()
    other[:, 7] = (other[:, 7] + 1) % model.vocab
    before, after = run(model, ids), run(model, other)
    assert torch.allclose(before[:, :7], after[:, :7], rtol=0, atol=1e-6)
    assert not torch.allclose(before[:, 7], after[:, 7])


@models_that("writes")
def test_step_is_the_last_row_of_forward(model: Net, ids: Tensor) -> None:
    """Generation sees the model's output: float32 NumPy, one row per sequence."""
    logits = stepper(model).step(ids.numpy(), stepper(model).new_cache(3, 12))
    assert isinstance(logits, np.ndarray)
    assert logits.dtype == np.float32
    assert logits.shape == (3, model.vocab)
    np.testing.assert_allclose(logits, run(model, ids)[:, -1].detach().numpy(), rtol=1e-4, atol=1e-4)


@models_that("writes")
def test_a_step_has_sums_for_its_probabilities(model: Net, ids: Tensor) -> None:
    """A logit minus the sum is a log-probability."""
    logits = stepper(model).step(ids.numpy(), stepper(model).new_cache(3, 12))
    right = torch.from_numpy(logits).double().logsumexp(-1)
    assert stepper(model).log_sums(logits) == pytest.approx(right.tolist(), rel=1e-6)


@models_that("writes")
@pytest.mark.parametrize("chunks", [[1] * 12, [5, 1, 1, 5], [3] * 4])
def test_cache_equals_no_cache(model: Net, ids: Tensor, chunks: list[int]) -> None:
    """Read in any chunks, every position has the logits it has when read at once."""
    model = model.double()
    cache = model.new_cache(3, 12)
    parts = torch.cat([run(model, part, cache) for part in ids.split(chunks, dim=1)], 1)
    whole = run(model, ids)
    assert (parts - whole).abs().max() <= 1e-9 * whole.abs().max()
    recurrent = "recurrent" in model.capabilities
    kept = [tensor for state in cache.states for tensor in state] if recurrent else [cache.keys, cache.values]
    assert model.cache_size(3, 12) == sum(tensor.nbytes for tensor in kept)


@models_that("writes", "attends")
def test_padded_rows_do_not_mix(model: Net, ids: Tensor) -> None:
    """A row behind its padding gives the logits that it gives alone, also in later steps."""
    model = model.double()
    padding = np.array([0, 3, 9])
    cache = model.new_cache(3, 14, padding=padding)
    together = torch.cat(
        [run(model, ids, cache), run(model, ids[:, :1], cache), run(model, ids[:, 1:2], cache)], 1
    )
    for row, void in enumerate(padding):
        alone = run(model, torch.cat([ids[row, void:], ids[row, :2]])[None], row=row)
        assert (together[row, void:] - alone[0]).abs().max() <= 1e-9 * alone.abs().max()


@models_that()
def test_rows_of_a_batch_do_not_mix(model: Net, ids: Tensor) -> None:
    """A row alone and in a batch gives the same."""
    together = run(model, ids)
    for row in range(3):
        alone = run(model, ids[row : row + 1], row=row)
        assert torch.allclose(alone, together[row : row + 1], rtol=1e-4, atol=1e-4)


@models_that()
def test_nothing_of_the_trace_is_stored(model: Net) -> None:
    """The state is weights and nothing else."""
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters(remove_duplicate=False)}


@models_that()
def test_parameters_are_counted_without_a_model(model: Net) -> None:
    """The formula and the state agree, a shared matrix counted once; so for every published size."""
    distinct = {parameter.data_ptr(): parameter.numel() for parameter in model.state_dict().values()}
    assert model.config.parameters == sum(distinct.values())
    for config in family(model.kind).presets.values():
        with torch.device("meta"):
            full = family(model.kind).build(config)
        assert config.parameters == sum(parameter.numel() for parameter in full.parameters())


@models_that()
def test_the_same_seed_gives_the_same_model(model: Net) -> None:
    """And another seed another one."""
    build, config = family(model.kind).build, model.config
    one, same, other = (build(config).initialize(seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["tokens.weight"], other["tokens.weight"])


@models_that("writes")
def test_a_model_learns(model: Net, ids: Tensor) -> None:
    """A few steps on one batch, from fresh weights: the loss falls."""
    net = family(model.kind).build(model.config).initialize(0).train()
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    losses = []
    for _ in range(12):
        logits = run(net, ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.3


@models_that()
def test_names_map_both_ways(model: Net) -> None:
    """Every weight has a name in files, and that name leads back."""
    names = family(model.kind).names
    for name in model.state_dict():
        assert names.ours(names.theirs(name)) == name
    for theirs in export_tensors(family(model.kind), model):
        ours = names.ours(theirs)
        assert ours is not None
        assert names.theirs(ours) == theirs


@models_that()
@pytest.mark.parametrize("changes", [{}, {"tied": False}, {"bias": False}])
def test_a_folder_brings_the_model_back(model: Net, tmp_path: Path, changes: dict[str, Any]) -> None:
    """Configuration, vocabulary and every bit of the weights."""
    if not all(hasattr(model.config, name) for name in changes):
        pytest.skip("it has no such choice")
    text = TEXTS.get(model.kind, TEXT)
    tokenizer = family(model.kind).train_tokenizer([text], 300)
    one = {"source_vocab": 0} if hasattr(model.config, "source_vocab") else {}  # vocabulary for both texts
    net = make(model.kind, vocab=len(tokenizer), **changes, **one)
    save_folder(tmp_path / "m", net, tokenizer=tokenizer)
    back = load_folder(tmp_path / "m")
    assert back.family is family(model.kind)
    assert type(back.model) is type(net)
    assert back.model.config == net.config
    assert all(torch.equal(value, back.model.state_dict()[name]) for name, value in net.state_dict().items())
    assert back.tokenizer is not None
    assert type(back.tokenizer) is type(tokenizer)
    assert back.tokenizer.end == tokenizer.end is not None
    assert back.tokenizer.encode(text) == tokenizer.encode(text)


@models_that()
def test_a_vocabulary_gives_its_text_piece_by_piece(model: Net) -> None:
    """Joined, the pieces of tokens are the text that decoding gives."""
    text = TEXTS.get(model.kind, TEXT[:200])
    tokenizer = family(model.kind).train_tokenizer([text], 300)
    ids = tokenizer.encode(text)
    parts = [tokenizer.bytes_of(id, before) for id, before in zip(ids, [None, *ids], strict=False)]
    assert b"".join(parts).decode() == tokenizer.decode(ids)
    assert tokenizer.encode(tokenizer.decode(ids)) == ids


@models_that()
def test_an_adapter_brings_its_weights_back(model: Net, tmp_path: Path) -> None:
    """LoRA fits the linear layers inside of the blocks, and its names go through the family of the base."""
    found = family(model.kind)
    adaptable = {name for name in model.state_dict() if found.names.is_adaptable(name)}
    linear = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    starts = tuple(f"{stack.prefix}blocks." for stack in model.stacks)
    layers = {name: module for name, module in linear.items() if name.startswith(starts)}
    assert adaptable == {f"{name}.weight" for name in layers}
    if not layers:
        pytest.skip("no layer can be adapted")
    weights = {
        name: LoraWeights(torch.randn(2, layer.in_features), torch.randn(layer.out_features, 2), 0.5)
        for name, layer in layers.items()
    }
    save_adapter(tmp_path / "lora", weights, base="base", family=found)
    back = read_adapter(tmp_path / "lora", family=found)
    assert back.base == "base"
    assert back.weights.keys() == weights.keys()
    assert all(torch.equal(back.weights[name].a, one.a) for name, one in weights.items())
    assert all(torch.equal(back.weights[name].b, one.b) for name, one in weights.items())
