"""Checkpoints of OpenNMT-py become ours: files written here to its layout, and hostile ones."""

import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import sentencepiece
import torch

from nmt_cli.interchange.files import TextFiles
from nmt_cli.interchange.opennmt.importer import import_opennmt
from nmt_cli.messages.errors import DamagedError, UserError
from nmt_cli.translating.rescorer import Rescorer
from tests.interchange.conftest import trained
from tests.interchange.eole_files import CUT, SPECIALS
from tests.interchange.hostile_pickles import CALLS, assert_refuses_calls, zipped
from tests.interchange.import_command import assert_scores, run_import
from tests.interchange.opennmt_files import OpenNmtModel

PAIRS = [("a b c d e", "u v w"), ("e", "x"), ("b b", "")]
BIAS = ("generator",)
OPTIONS = [
    {"biases": BIAS},
    {"mlp_activation_fn": "gelu", "positions": CUT, "biases": ("attention", *BIAS)},
    {"norm_eps": 1e-2, "share_decoder_embeddings": True, "biases": ("mlp", *BIAS)},
    {"shared": True, "share_embeddings": True, "share_decoder_embeddings": True, "biases": BIAS},
]
SHARED_PAIRS = [("a b c d", "c d"), ("e", "a a e")]
NORM = re.compile(r"(.*layer_norm(_\d)?)\.(weight|bias)")


def same_scores(model, path, pairs=PAIRS):
    assert_scores(path, pairs, [model.theirs.scores(*pair) for pair in pairs])


def imported(checkpoint, *options):
    output = checkpoint.parent / "ours"
    result = run_import(checkpoint, "--output", output, *options, program="opennmt-py")
    assert result.exit_code == 0, result.output
    return output


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(map(str, options)))
def test_it_computes_what_the_plain_formula_computes(tmp_path, options):
    model = OpenNmtModel(**options)
    pairs = SHARED_PAIRS if "shared" in options else PAIRS
    same_scores(model, imported(model.write(tmp_path / "model.pt")), pairs)


def test_older_names_and_options(tmp_path):
    model = OpenNmtModel(norm_eps=1e-6, biases=BIAS)
    content = model.checkpoint
    old = {"weight": "a_2", "bias": "b_2"}
    content["model"] = {
        f"{match[1]}.{old[match[3]]}" if (match := NORM.fullmatch(name)) else name: each
        for name, each in content["model"].items()
    }
    content["generator"] = {f"0.{name}": each for name, each in content["generator"].items()}
    opt = vars(content["opt"])
    for name in ("norm_eps", "num_kv", "position_encoding_type"):
        del opt[name]
    opt |= {"layers": -1, "enc_layers": 2, "dec_layers": 2, "hidden_size": -1}
    opt |= {"enc_hid_size": 12, "dec_hid_size": 12}
    same_scores(model, imported(model.write(tmp_path / "model.pt")))
    name = "encoder.layer_norm"
    content["model"][f"{name}.weight"] = content["model"][f"{name}.a_2"]
    with pytest.raises(UserError, match="with old names beside the same with new names"):
        import_opennmt(model.write(tmp_path / "model.pt"))


def test_weights_may_be_in_files_beside_it(tmp_path):
    model = OpenNmtModel(biases=BIAS)
    content = model.checkpoint
    first, second = content.pop("model"), content.pop("generator")
    path = model.write(tmp_path / "model.pt")
    with pytest.raises(
        UserError, match=r"has no weights, and there are none in model\.safetensors"
    ):
        import_opennmt(path)
    second = {f"generator.{name}": each for name, each in second.items()}
    safetensors.torch.save_file(first, tmp_path / "model.00.safetensors")
    safetensors.torch.save_file(second, tmp_path / "model.01.safetensors")
    same_scores(model, imported(path))
    safetensors.torch.save_file(second, tmp_path / "model.02.safetensors")
    with pytest.raises(
        UserError, match=r"model\.02\.safetensors holds generator\.bias, which another"
    ):
        import_opennmt(path)


def test_half_precision_becomes_fp32(tmp_path):
    model = OpenNmtModel(biases=BIAS)
    for part in ("model", "generator"):
        halved = {name: each.half() for name, each in model.checkpoint[part].items()}
        model.checkpoint[part] = halved
    for name, array in model.theirs.tensors.items():
        model.theirs.tensors[name] = array.astype("f2").astype("f4")
    same_scores(model, imported(model.write(tmp_path / "model.pt")))


def test_a_named_sentencepiece_model_cuts_the_text(tmp_path, untried):
    content = trained(tmp_path / "spm", ["the cat sat on the mat", "a dog and the cat"])
    processor = sentencepiece.SentencePieceProcessor(model_proto=content)
    tokens = [*SPECIALS, *processor.id_to_piece(list(range(2, processor.get_piece_size())))]
    options = {"shared": True, "share_embeddings": True, "share_decoder_embeddings": True}
    model = OpenNmtModel(**options, biases=BIAS)
    for key in ("src", "tgt"):
        model.theirs.vocabulary[key] = model.checkpoint["vocab"][key] = tokens
    shapes = {"emb_luts": (len(tokens), 12), "weight": (len(tokens), 12), "bias": (len(tokens),)}
    embeddings, bias = torch.randn(shapes["emb_luts"]), torch.randn(shapes["bias"])
    model.theirs.tensors |= {
        "src_emb.embeddings.weight": embeddings.numpy(), "generator.bias": bias.numpy()
    }  # fmt: skip
    name = "embeddings.make_embedding.emb_luts.0.weight"
    model.checkpoint["model"][f"encoder.{name}"] = embeddings
    model.checkpoint["generator"] = {"bias": bias}
    path = imported(model.write(tmp_path / "model.pt"), "--sentencepiece", tmp_path / "spm.model")
    text = "the cat and a dog"
    pieces = " ".join(processor.encode(text, out_type=str))
    (found,) = Rescorer.load(path, device="cpu", precision="fp32").rescore([(text, text)])
    assert found.token_scores == pytest.approx(model.theirs.scores(pieces, pieces), abs=1e-4)


@pytest.mark.parametrize(
    ("changes", "reasons"),
    [
        (
            {"encoder_type": "brnn", "decoder_type": "transformer_lm", "model_task": "lm"},
            ["its encoder_type is 'brnn'", "decoder_type is 'transformer_lm'", "task is 'lm'"],
        ),
        (
            {"pos_ffn_activation_fn": "silu", "max_relative_positions": -1, "layer_norm": "rms",
             "position_encoding": False, "num_kv": 1, "copy_attn": True, "lora_layers": ["a"]},
            ["pos_ffn_activation_fn is 'silu'", "max_relative_positions is -1", "'rms'",
             "position_encoding is False", "num_kv is 1", "copy_attn is True", "layers is ['a'"],
        ),
        ({"self_attn_type": "average", "parallel_residual": True}, ["self_attn_type is 'average'"]),
        ({"heads": 5}, ["its heads do not divide its hidden_size 12"]),
        ({"heads": "3", "transformer_ff": 10**9}, ["its heads is '3'", "transformer_ff is 10000"]),
        ({"norm_eps": "x", "position_encoding_type": None}, ["norm_eps is 'x'", "type is None"]),
        ({"norm_eps": 3.0}, ["norm_epsilon"]),
        ({"layers": 3}, ["it has 2 layers of the encoder, not 3"]),
        ({"layers": 1}, ["tensors unknown: encoder.transformer.1."]),
        ({"hidden_size": 9_999_999, "heads": 1}, ["has the shape [9, 12], not [9, 9999999]"]),
        ({"share_embeddings": True}, ["both languages share embeddings, but no vocabulary"]),
        ({"encoder_type": torch.ones(3)}, ["its encoder_type is None"]),
    ],
)  # fmt: skip
def test_what_cannot_be_represented_is_refused_with_all_reasons(tmp_path, changes, reasons):
    model = OpenNmtModel(biases=BIAS)
    vars(model.checkpoint["opt"]).update(changes)
    with pytest.raises(UserError) as caught:
        import_opennmt(model.write(tmp_path / "model.pt"))
    message = str(caught.value)
    assert "\n" not in message
    assert [reason for reason in reasons if reason not in message] == []


def test_wrong_tensors_and_vocabularies_are_refused(tmp_path):
    path = tmp_path / "model.pt"
    changes: list[tuple[dict[str, Any], str]] = [
        ({"generator": None}, "2 tensors missing: generator.weight, generator.bias"),
        ({"generator": {}}, "2 tensors missing: generator.weight"),
        ({"generator": torch.ones(3)}, "holds no tensors by name"),
        ({"model": {"a": 3}}, "holds other things than tensors by name"),
        ({"model": {"a": torch.ones(1).expand(10**12)}}, "is damaged"),
        ({"opt": {"heads": 3}}, "is no checkpoint of OpenNMT-py 3: it has no opt, or no vocab"),
        ({"vocab": [3]}, "is no checkpoint of OpenNMT-py 3: it has no opt, or no vocab"),
        ({"vocab": {}}, "its vocabulary src is not a list of texts"),
        ({"vocab": {"src": ["a"], "tgt": ["\ud800"]}}, "its vocabulary tgt holds half a character"),
        ({"vocab": {"src": ["x" * 99_999] * 9999}}, "its vocabulary src is too large"),
        ({"vocab": {"src": [], "tgt": [], "src_feats": [[1]]}}, "it has source features"),
        ({"vocab": {"src": [], "tgt": [], "decoder_start_token": 3}}, "starts with no token"),
        ({"vocab": {"src": [], "tgt": []}}, "the source vocabulary has no <unk>, <s>, </s>"),
    ]
    for change, reason in changes:
        model = OpenNmtModel(biases=BIAS)
        model.checkpoint |= change
        with pytest.raises((UserError, DamagedError), match=reason) as caught:
            import_opennmt(model.write(path))
        assert "\n" not in str(caught.value)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(UserError, match="is no file; give a checkpoint of OpenNMT-py"):
        import_opennmt(tmp_path)
    with pytest.raises(
        UserError, match="--source-vocabulary x has no use: models of OpenNMT-py have their own"
    ):
        import_opennmt(tmp_path, TextFiles(source_vocabulary=Path("x")))
    torch.save([1], tmp_path / "list.pt")
    with pytest.raises(UserError, match="is no checkpoint of OpenNMT-py 3"):
        import_opennmt(tmp_path / "list.pt")


@pytest.mark.parametrize("name", [*CALLS, "torchtext.data.field.Field"])
def test_pickles_that_call_functions_are_refused(tmp_path, name):
    path = tmp_path / "model.pt"
    assert_refuses_calls(lambda: import_opennmt(path), path, name)


def test_damaged_checkpoints_are_refused_in_one_line(tmp_path):
    path = OpenNmtModel().write(tmp_path / "model.pt")
    content = path.read_bytes()
    hostile = [content[:length] for length in (0, 100, len(content) // 2, len(content) - 30)]
    for pickled in (
        b"", b"\x80\x02K\x05Q.", b"\x80\x05}.", b"\x80\x02R.", b"\x80\x02h\x09.",
        b"\x80\x02cargparse\nNamespace\n(K\x01tR.", b"\x80\x02cargparse\nNamespace\n)\x81K\x01b.",
        b"\x80\x02}(X\x03\x00\x00\x00optcargparse\nNamespace\n)\x81]bu.",
        b"\x80\x02c__builtin__\nset\nK\x01\x85R.",
    ):  # fmt: skip
        zipped(path, pickled)
        hostile.append(path.read_bytes())
    zipped(path, b"\x80\x02}." + b" " * 10_000, zipfile.ZIP_DEFLATED)
    hostile.append(path.read_bytes())
    for data in hostile:
        path.write_bytes(data)
        with pytest.raises((UserError, DamagedError)) as caught:
            import_opennmt(path)
        assert "\n" not in str(caught.value)
