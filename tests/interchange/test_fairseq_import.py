"""Checkpoints in the layout that fairseq documents become ours; what is not ours is refused."""

import re
import sys
from argparse import Namespace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from nmt_cli.commands.import_model import program_of
from nmt_cli.interchange.fairseq.importer import import_fairseq
from nmt_cli.messages.errors import DamagedError, UserError
from nmt_cli.saved.model_directory import load_model
from nmt_cli.translating.rescorer import Rescorer
from tests.interchange.fairseq_files import (
    TASK,
    WORDS,
    options_with,
    positions,
    random_tensors,
    write_model,
)
from tests.interchange.hostile_pickles import CALLS, assert_refuses_calls
from tests.interchange.import_command import run_import
from tests.interchange.plain_transformer import Options, PlainTransformer
from tests.interchange.test_huggingface_layout import side_of

PRE = {"encoder_normalize_before": True, "decoder_normalize_before": True}
LEARNED = {"encoder_learned_pos": True, "decoder_learned_pos": True}
CROSSED = [
    {"no_scale_embedding": True, "layernorm_embedding": True},
    {**PRE, "share_all_embeddings": True, "activation_fn": "gelu_fast"},
    {**PRE, **LEARNED, "share_decoder_input_output_embed": True, "layernorm_embedding": True},
    {**LEARNED, "activation_fn": "gelu", "no_scale_embedding": True, "decoder_layers": 3},
]


def plain(tensors, options):
    """Return what fairseq computes with these options, from its documentation."""
    named = {f"model.{name}": each.numpy() for name, each in tensors.items()}
    sides = []
    for side in ("encoder", "decoder"):
        table = named.get(f"model.{side}.embed_positions.weight")
        named[f"model.{side}.embed_positions.weight"] = (
            positions(20, 12) if table is None else table[2:]
        )
        norm = None
        if options["layernorm_embedding"]:
            name = f"model.{side}.layernorm_embedding"
            norm = (named[f"{name}.weight"], named[f"{name}.bias"])
        sides.append(side_of(named, side, options[f"{side}_layers"])._replace(embedding_norm=norm))
    heads = (options["encoder_attention_heads"], options["decoder_attention_heads"])
    activation = {"gelu_fast": "gelu_tanh"}.get(options["activation_fn"], options["activation_fn"])
    encoder, decoder = sides
    return PlainTransformer(
        encoder,
        decoder,
        (named["model.decoder.output_projection.weight"], None),
        heads,
        (None, None),
        options["encoder_normalize_before"],
        Options(activation, embedding_scale=1.0 if options["no_scale_embedding"] else None),
    )


@pytest.mark.parametrize("changes", CROSSED, ids=lambda changes: "-".join(changes))
def test_log_probabilities_are_those_of_the_formula(tmp_path, changes):
    options = options_with(**changes)
    path, tensors = write_model(tmp_path / "theirs", options=options)
    result = run_import(path, "--output", tmp_path / "ours", program="fairseq")
    assert result.exit_code == 0, result.output
    assert load_model(tmp_path / "ours").settings.text[:2] == ("aa", "bb")  # as its task says
    of_source = WORDS["target" if options["share_all_embeddings"] else "source"]
    source, target = f"{of_source[3]} {of_source[0]} never {of_source[5]}", "t6 t1 t1 other t0"
    (found,) = Rescorer.load(tmp_path / "ours", device="cpu", precision="fp32").rescore(
        [(source, target)]
    )
    wanted = [4 + 6, 4 + 1, 4 + 1, 3, 4, 2]  # the unknown word and the end
    rows = plain(tensors, options).log_probabilities([7, 4, 3, 9, 2], [2, *wanted[:-1]])
    expected = rows[np.arange(len(wanted)), wanted]
    assert found.token_scores == pytest.approx(expected.tolist(), abs=1e-4)


def as_omegaconf(monkeypatch, value):
    """Return a mapping as omegaconf's objects hold it."""
    classes = {}
    monkeypatch.setitem(sys.modules, "omegaconf", ModuleType("omegaconf"))
    for name, kind in (("dictconfig", "DictConfig"), ("nodes", "AnyNode")):
        module = ModuleType(f"omegaconf.{name}")
        classes[kind] = type(kind, (), {"__module__": module.__name__})
        setattr(module, kind, classes[kind])
        monkeypatch.setitem(sys.modules, module.__name__, module)

    def wrapped(each):
        made = classes["DictConfig" if isinstance(each, dict) else "AnyNode"]()
        if isinstance(each, dict):
            made._content = {key: wrapped(part) for key, part in each.items()}
        else:
            made._val = each
        return made

    return wrapped(value)


def same_model(one, other):
    assert one.architecture == other.architecture
    assert one.pieces == other.pieces
    assert one.weights.keys() == other.weights.keys()
    for name, weight in one.weights.items():
        assert np.array_equal(weight, other.weights[name]), name


def test_options_may_be_in_args_or_in_a_configuration(tmp_path, monkeypatch):
    path, tensors = write_model(tmp_path / "new")
    expected = import_fairseq(path)
    path, _ = write_model(tmp_path / "other")
    options = options_with(task="translation", source_lang="aa", target_lang="bb")
    torch.save({"args": Namespace(**options), "cfg": None, "model": tensors}, path)
    same_model(import_fairseq(path), expected)
    names = {key: key.split("_", 1) for key in options if key.startswith(("encoder", "decoder"))}
    nested = {key: value for key, value in options.items() if key not in names}
    for key, (section, name) in names.items():
        nested.setdefault(section, {})[name] = options[key]
    nested["decoder"]["input_dim"] = "${model.decoder.embed_dim}"
    cfg = as_omegaconf(monkeypatch, {"model": nested, "task": TASK})
    torch.save({"args": None, "cfg": cfg, "model": tensors}, path)
    same_model(import_fairseq(path.parent), expected)


def test_old_names_and_what_sinusoids_leave_are_known(tmp_path):
    path, tensors = write_model(tmp_path / "new")
    expected = import_fairseq(path)
    path, _ = write_model(tmp_path / "other")
    old = dict(tensors)
    for name in [each for each in tensors if "q_proj" in each]:
        parts = [old.pop(name.replace("q_proj", f"{letter}_proj")) for letter in "qkv"]
        old[name.replace("q_proj.", "in_proj_")] = torch.cat(parts)
    places = {"encoder": ("self_attn", "final"), "decoder": ("self_attn", "encoder_attn", "final")}
    for side, names in places.items():
        for place, norm in enumerate(names):
            for part in ("weight", "bias"):
                new = f"{side}.layers.0.{norm}_layer_norm.{part}"
                old[f"{side}.layers.0.layer_norms.{place}.{part}"] = old.pop(new)
        old[f"{side}.embed_positions._float_tensor"] = torch.zeros(1)
        old[f"{side}.embed_positions.weights"] = torch.zeros(9, 12)
        del old[f"{side}.version"]
    old["decoder.embed_out"] = old.pop("decoder.output_projection.weight")
    write_model(path.parent, tensors=old)
    same_model(import_fairseq(path), expected)
    write_model(
        path.parent, tensors={**old, "decoder.output_projection.weight": old["decoder.embed_out"]}
    )
    with pytest.raises(UserError, match=r"1 tensor unknown: decoder\.embed_out"):
        import_fairseq(path)


def test_halves_become_fp32_and_zero_biases_are_left_out(tmp_path):
    tensors = random_tensors(options_with(), [13, 11])
    for name, each in tensors.items():
        if "attn" in name and name.endswith("proj.bias"):
            each.zero_()
    path, _ = write_model(tmp_path, tensors={name: each.half() for name, each in tensors.items()})
    found = import_fairseq(path)
    assert not found.architecture.attention_biases
    assert not [name for name in found.weights if "attention" in name and name.endswith("bias")
                and "norm" not in name]  # fmt: skip
    output = found.weights["output_weight"]
    assert output.dtype == np.float32
    rows = tensors["decoder.output_projection.weight"].half().float().numpy()
    assert np.array_equal(output[:5, 0], rows[[3, 0, 2, 1, 4], 0])


def test_all_reasons_are_listed_at_once(tmp_path):
    options = options_with(
        arch="lightconv", activation_fn="swish", cross_self_attention=True, encoder_layers="2\n",
        adaptive_softmax_cutoff=[10], encoder_normalize_before=True, decoder_embed_dim=10,
        encoder_learned_pos=True, decoder_attention_heads=5,
    )  # fmt: skip
    tensors = random_tensors(options_with(), [13, 11])
    path, _ = write_model(
        tmp_path, options=options, tensors=tensors, task={**TASK, "_name": "denoising"}
    )
    with pytest.raises(UserError) as caught:
        import_fairseq(path)
    assert str(caught.value) == (
        f"{path} cannot be imported: its adaptive_softmax_cutoff is [10]; its cross_self_attention "
        "is True; its architecture is 'lightconv', which is not fairseq's transformer; its task is "
        "'denoising', not translation; its activation_fn is 'swish'; only one of its sides has its "
        "norms before the layers; its encoder_layers is '2\\n'; its heads do not divide its "
        "encoder_embed_dim 12; its decoder_embed_dim is 10, its encoder_embed_dim 12; only one of "
        "its sides has learned positions."
    )


def test_old_models_without_norms_after_the_layers_are_refused(tmp_path):
    options = options_with(**PRE)
    tensors = random_tensors(options, [13, 11])
    tensors["decoder.version"] = torch.tensor([2.0])
    del tensors["encoder.version"]
    path, _ = write_model(tmp_path, options=options, tensors=tensors)
    with pytest.raises(UserError, match="its encoder has the version 1, and so no norm after") as e:
        import_fairseq(path)
    assert "its decoder has the version 2, and so no norm after the layers" in str(e.value)


def test_every_tensor_is_used_and_none_is_missing(tmp_path):
    options = options_with(share_decoder_input_output_embed=True)
    tensors = random_tensors(options, [13, 12])
    del tensors["encoder.layers.1.fc2.bias"]
    tensors["decoder.layers.0.self_attn.out_proj.bias"] = torch.zeros(3)
    tensors["decoder.layers.1.fc1.bias"] = torch.zeros(7)
    tensors["encoder.embed_tokens.weight"][0, 0] = torch.nan
    tensors["decoder.output_projection.weight"] = torch.ones(11, 12)
    path, _ = write_model(tmp_path, options=options, tensors=tensors)
    with pytest.raises(UserError) as caught:
        import_fairseq(path)
    message = str(caught.value)
    assert "\n" not in message
    for reason in (
        "1 tensor missing: encoder.layers.1.fc2.bias",
        "1 tensor unknown: decoder.layers.1.fc1.bias",
        "self_attn.out_proj.bias has the shape [3], not [12]",
        "encoder.embed_tokens.weight holds a number that is not finite",
        "the target vocabulary has 11 pieces with its 4 marks, decoder.embed_tokens.weight 12 rows",
        "output_projection.weight is not decoder.embed_tokens.weight, as its options say",
    ):
        assert reason in message, message


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"encoder_layers": 10**7}, "it has 2 layers of the encoder, not 10,000,000"),
        ({"encoder_layers": 10**9}, "its encoder_layers is 1000000000"),
        ({"encoder_ffn_embed_dim": 10**7}, "has the shape [5, 12], not [10000000, 12]"),
        (
            {f"{side}_{name}": 10**7 for side, name in
             (("encoder", "embed_dim"), ("decoder", "embed_dim"), ("decoder", "output_dim"))},
            "its heads do not divide",
        ),
        ({"encoder_ffn_embed_dim": 4, "decoder_ffn_embed_dim": 4}, "; 4 more tensors of another"),
        ({"activation_fn": ["relu"]}, "its activation_fn is ['relu']"),
        ({"arch": "x\n" * 999}, "its architecture is 'x\\nx\\n"),
        (LEARNED, "2 tensors missing: encoder.embed_positions.weight, decoder.embed_positions"),
    ],
)  # fmt: skip
def test_values_that_do_not_fit_are_refused(tmp_path, changes, reason):
    tensors = random_tensors(options_with(), [13, 11])
    path, _ = write_model(tmp_path, options=options_with(**changes), tensors=tensors)
    with pytest.raises(UserError, match=re.escape(reason)) as caught:
        import_fairseq(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("name", CALLS)
def test_pickles_that_call_functions_are_refused(tmp_path, name):
    path = tmp_path / "checkpoint.pt"
    assert_refuses_calls(lambda: import_fairseq(path), path, name)


def test_hostile_files_are_refused_in_one_line(tmp_path):
    path, tensors = write_model(tmp_path)
    content = path.read_bytes()
    hostile = [content[:length] for length in (0, 100, 5000, len(content) - 30)]
    cycle = options_with()
    cycle |= {"encoder": cycle, "activation_fn": cycle}
    cfg: dict[str, Any] = {"model": Namespace(**options_with()), "task": TASK}
    contents: list[Any] = [
        [],
        {"args": 3, "model": tensors},
        {"cfg": cfg},
        {"cfg": cfg, "model": [1]},
        {"cfg": cfg, "model": {"encoder.version": Namespace()}},
        {"cfg": cfg, "model": {**tensors, "x": torch.ones(1).expand(10**12)}},
        {"cfg": cfg, "model": {**tensors, "encoder.version": torch.tensor([3])}},
        {"cfg": {**cfg, "model": cycle}, "model": tensors},
        {"args": Namespace(**cycle), "model": tensors},
    ]
    for each in contents:
        torch.save(each, path)
        hostile.append(path.read_bytes())
    for data in hostile:
        path.write_bytes(data)
        with pytest.raises((UserError, DamagedError)) as caught:
            import_fairseq(path)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 1000


def test_checkpoints_of_fairseq_are_recognized(tmp_path):
    path, tensors = write_model(tmp_path)
    assert program_of(path) == program_of(tmp_path) == "fairseq"
    content = path.read_bytes()
    torch.save({"model": tensors}, path, _use_new_zipfile_serialization=False)
    for data in (path.read_bytes(), content[:-100]):  # refused with a reason of their own
        path.write_bytes(data)
        assert program_of(tmp_path) == "fairseq"
        with pytest.raises(UserError, match=r"before torch 1\.6, or is damaged"):
            import_fairseq(path)
    start, _, end = content.rpartition(b"data.pkl")
    others = [b"", start + b"data\xffpkl" + end]
    torch.save({"model": {"generator.weight": tensors["encoder.version"]}}, path)
    for data in (*others, path.read_bytes()):
        path.write_bytes(data)
        with pytest.raises(UserError, match="is not recognized as a model"):
            program_of(tmp_path)


def test_a_folder_holds_one_checkpoint(tmp_path):
    with pytest.raises(UserError, match=r"must hold one checkpoint \*\.pt, but holds none"):
        import_fairseq(tmp_path)
    for name in ("checkpoint_best.pt", "checkpoint_last.pt"):
        (tmp_path / name).touch()
    with pytest.raises(UserError, match=r"holds checkpoint_best\.pt, checkpoint_last\.pt; name "):
        import_fairseq(tmp_path)
