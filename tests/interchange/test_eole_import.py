"""Folders of eole become ours: files written here to its layout, and damaged ones."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from nmt_cli.corpus.tokenizers import sentencepiece_tokenizer
from nmt_cli.interchange.files import TextFiles
from nmt_cli.interchange.opennmt.eole import import_eole
from nmt_cli.messages.errors import DamagedError, UserError
from nmt_cli.saved.model_directory import load_model
from nmt_cli.translating.rescorer import Rescorer
from tests.interchange.conftest import trained
from tests.interchange.eole_files import CUT, SPECIALS, EoleModel
from tests.interchange.import_command import assert_scores, run_import

PAIRS = [("a b c d e", "u v w"), ("e", "x"), ("b b", "")]
OPTIONS = [
    {},
    {"mlp_activation_fn": "silu", "norm_eps": 1e-2, "biases": ("mlp", "generator")},
    {"mlp_activation_fn": "gelu", "positions": CUT, "biases": ("attention", "generator")},
    {"mlp_activation_fn": "gelu-tanh", "positions": "Learned", "head_dim": 5},
    {"positions": CUT, "share_decoder_embeddings": True, "head_dim": 2, "biases": ("attention",)},
    {"shared": True, "share_embeddings": True, "share_decoder_embeddings": True},
    {"shared": True, "share_embeddings": True, "positions": CUT, "biases": ("mlp",)},
]


def imported(folder, *options):
    result = run_import(folder, "--output", folder.parent / "ours", *options, program="eole")
    assert result.exit_code == 0, result.output
    return folder.parent / "ours"


def same_scores(model, path, pairs=PAIRS):
    assert_scores(path, pairs, [model.scores(*pair) for pair in pairs])


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(map(str, options)))
def test_it_computes_what_the_plain_formula_computes(tmp_path, options):
    model = EoleModel(**options)
    pairs = [("a b c d", "c d"), ("e", "a a e")] if "shared" in options else PAIRS
    same_scores(model, imported(model.write(tmp_path / "theirs")), pairs)


def test_options_of_a_side_come_before_those_of_the_model(tmp_path):
    model = EoleModel(heads=2)
    folder = model.write(tmp_path / "theirs")
    section = {"encoder_type": "transformer", "heads": 2}
    model.config["model"] |= {"architecture": "custom", "heads": 3, "encoder": section,
                              "decoder": {"decoder_type": "transformer", "heads": 2}}  # fmt: skip
    assert model.write(folder)
    found = import_eole(folder).architecture
    assert (found.num_heads, found.decoder_num_heads, found.num_layers) == (2, None, 2)


def test_positions_may_be_left_out_and_weights_come_in_parts(tmp_path):
    model = EoleModel(positions=CUT)
    parts: list[dict[str, np.ndarray]] = [{}, {}]
    for number, (name, array) in enumerate(model.tensors.items()):
        if not name.endswith("pe.pe"):
            parts[number % 2][name] = array
    folder = model.write(tmp_path / "theirs")
    for number, part in enumerate(parts):
        safetensors.numpy.save_file(part, folder / f"model.{number:02}.safetensors")
    same_scores(model, imported(folder))
    safetensors.numpy.save_file(parts[1], folder / "model.02.safetensors")
    with pytest.raises(UserError, match=r"02\.safetensors holds .*, which another part holds, too"):
        import_eole(folder)


def test_pieces_of_subword_nmt_are_joined(tmp_path):
    model = EoleModel()
    found = import_eole(model.write(tmp_path / "theirs"))
    assert found.joiner is None
    model.vocabulary["tgt"][-1] = "un@@"
    path = imported(model.write(tmp_path / "theirs"))
    tokenizer = load_model(path).tokenizer
    assert tokenizer.decode(tokenizer.encode("un@@ v u", "target")) == "unv u"


def test_learned_positions_of_unlike_numbers_are_refused(tmp_path):
    model = EoleModel(positions="Learned")
    model.tensors["tgt_emb.pe.weight"] = model.tensors["tgt_emb.pe.weight"][1:].copy()
    with pytest.raises(UserError, match="its sides have unlike numbers of positions"):
        import_eole(model.write(tmp_path / "theirs"))


def test_matrices_that_are_one_may_be_stored_twice(tmp_path):
    model = EoleModel(share_decoder_embeddings=True)
    model.tensors["generator.weight"] = model.tensors["tgt_emb.embeddings.weight"].copy()
    folder = model.write(tmp_path / "theirs")
    assert import_eole(folder).architecture.tied_embeddings == "decoder"
    model.tensors["generator.weight"][1] += 1
    reason = r"generator\.weight is not tgt_emb\.embeddings\.weight, as its options say"
    with pytest.raises(UserError, match=reason):
        import_eole(model.write(folder))


def test_what_the_decoder_starts_with_and_other_marks(tmp_path):
    model = EoleModel()
    model.vocabulary["tgt"][:4] = ["[START]", "<pad>", "[END]", "[UNK]"]
    model.vocabulary["src"].remove("<s>")
    model.tensors["src_emb.embeddings.weight"] = model.tensors["src_emb.embeddings.weight"][1:]
    model.vocabulary["src"][:3] = ["[UNK]", "<pad>", "[END]"]
    model.vocabulary["decoder_start_token"] = "[START]"
    model.vocabulary["specials"] = {"unk_token": "[UNK]", "eos_token": "[END]", "bos_token": None}
    path = imported(model.write(tmp_path / "theirs"))
    assert not import_eole(tmp_path / "theirs").weights["source_embedding.weight"][1].any()
    model.vocabulary["tgt"][2] = "</s>"
    same_scores(model, path)
    assert load_model(path).tokenizer.pieces([0, 1, 2, 3]) == ["<unk>", "<s>", "</s>", "<pad>"]
    model.vocabulary["tgt"][2] = model.vocabulary["decoder_start_token"] = "[END]"
    with pytest.raises(UserError, match="the target vocabulary has no <s>"):
        import_eole(model.write(tmp_path / "theirs"))
    model.vocabulary |= {"decoder_start_token": "", "specials": {"unk_token": None}}
    with pytest.raises(UserError, match="names no token as unk_token, decoder_start_token"):
        import_eole(model.write(tmp_path / "theirs"))


def sentencepiece_model(tmp_path):
    """A SentencePiece model, and a model of eole with its pieces."""
    content = trained(tmp_path / "spm", ["the cat sat on the mat", "a dog and the cat"])
    path = tmp_path / "spm.model"
    processor = sentencepiece_tokenizer.load_processor(content, "x")
    pieces = processor.id_to_piece(list(range(2, processor.get_piece_size())))
    model = EoleModel(shared=True, share_embeddings=True, share_decoder_embeddings=True)
    model.vocabulary |= {side: [*SPECIALS, *pieces] for side in ("src", "tgt")}
    shape = (len(SPECIALS) + len(pieces), 12)
    model.tensors["src_emb.embeddings.weight"] = model.random.normal(0, 0.5, shape).astype("f")
    return path, model, processor


@pytest.mark.usefixtures("untried")
def test_sentencepiece_models_are_named_or_in_the_folder(tmp_path):
    path, model, processor = sentencepiece_model(tmp_path)
    folder = model.write(tmp_path / "theirs")
    text = "the cat and a dog"
    pieces = " ".join(processor.encode(text, out_type=str))
    expected = model.scores(pieces, pieces)
    model.config |= {"data": {"one": {"transforms": ["sentencepiece"]}}}
    model.config["transforms_configs"] = {
        "sentencepiece": {"src_subword_model": "${MODEL_PATH}/own.model"}
    }
    for options in (("--sentencepiece", path), ("--force",)):
        found = Rescorer.load(imported(folder, *options), device="cpu", precision="fp32")
        (scores,) = found.rescore([(text, text)])
        assert scores.token_scores == pytest.approx(expected, abs=1e-4)
        model.write(folder)
        (folder / "own.model").write_bytes(path.read_bytes())
    del model.config["data"]
    assert import_eole(model.write(folder)).sentencepiece is None  # it was not used
    (folder / "own.model").unlink()
    assert load_model(imported(folder, "--force")).tokenizer.encode(pieces)  # text in pieces


def test_a_sentencepiece_model_of_the_target_alone_is_refused(tmp_path):
    files = TextFiles(target_sentencepiece=Path("x"))
    with pytest.raises(UserError, match="--target-sentencepiece x needs --sentencepiece"):
        import_eole(EoleModel().write(tmp_path / "theirs"), files)


@pytest.mark.parametrize("name", ["../spm.model", "a/b", "/etc/passwd"])
def test_files_elsewhere_are_not_read(tmp_path, name):
    _, model, _ = sentencepiece_model(tmp_path)
    value = f"${{MODEL_PATH}}/{name}"
    model.config["transforms"] = ["sentencepiece"]
    model.config["transforms_configs"] = {"sentencepiece": {"src_subword_model": value}}
    with pytest.raises(UserError, match=f"src_subword_model '{re.escape(value)}' is not a file in"):
        import_eole(model.write(tmp_path / "theirs"))


@pytest.mark.parametrize("option", ["source_vocabulary", "target_vocabulary"])
def test_other_vocabularies_have_no_use(tmp_path, option):
    with pytest.raises(UserError, match=f"--{option.replace('_', '-')} x has no use"):
        import_eole(tmp_path, TextFiles(**{option: Path("x")}))


@pytest.mark.parametrize(
    ("changes", "reasons"),
    [
        ({"architecture": "rnn"}, ["its architecture is 'rnn', not transformer"]),
        (
            {"encoder": {"encoder_type": "brnn"}, "mlp_activation_fn": "gated-silu"},
            ["its encoder is 'brnn', not transformer", "has mlp_activation_fn 'gated-silu'"],
        ),
        (
            {"layer_norm": "rms", "parallel_residual": True, "sliding_window": 8,
             "embeddings": {"position_encoding_type": "Rotary", "normalize": True}},
            ["its encoder has layer_norm 'rms'", "its decoder has layer_norm 'rms'",
             "its encoder has parallel_residual True", "its decoder has sliding_window 8",
             "its position_encoding_type is 'Rotary'", "(normalize)"],
        ),
        (
            {"heads_kv": 1, "head_dim": 0, "attn_scaling": 9, "decoder": {"norm_eps": 0.5}},
            ["its encoder has heads_kv 1, not as many as heads", "has head_dim 0",
             "has attn_scaling 9", "its encoder and decoder differ in norm_eps"],
        ),
        ({"heads": 5}, ["its heads do not divide its hidden_size 12"]),
        (
            {"decoder": {"head_dim": 9}},
            ["its encoder and decoder differ in head_dim"],
        ),
        (
            {"layers": 10**9, "hidden_size": "x" * 999, "heads": True, "norm_eps": []},
            ["its encoder has layers 1000000000", f"has hidden_size '{'x' * 59}...",
             "its decoder has heads True", "its encoder has norm_eps []"],
        ),
        ({"encoder": {"encoder_layer_style": "postnorm"}}, ["encoder_layer_style 'postnorm'"]),
        ({"layers": 3}, ["it has 2 layers of the encoder, not 3", "of the decoder, not 3"]),
        ({"layers": 1}, ["26 tensors unknown: "]),
        ({"transformer_ff": 10**7}, ["gate_up_proj.weight has the shape [7, 12], not [10000000"]),
        ({"hidden_size": 9_999_999}, ["has the shape [9, 12], not [9, 9999999]"]),
        ({"share_embeddings": True}, ["both languages share embeddings, but no vocabulary",
                                      "tgt_emb.embeddings.weight is not src_emb"]),
        ({"norm_eps": 7}, ["norm_epsilon"]),
        ({"embeddings": {"position_encoding_type": CUT}},
         ["src_emb.pe.pe is not SinusoidalConcat, as its options say"]),
        ({"embeddings": {"position_encoding_type": "Learned"}},
         ["2 tensors missing: src_emb.pe.weight", "2 tensors unknown: src_emb"]),
    ],
)  # fmt: skip
def test_what_cannot_be_represented_is_refused_with_all_reasons(tmp_path, changes, reasons):
    model = EoleModel()
    model.config["model"] |= changes
    with pytest.raises(UserError) as caught:
        import_eole(model.write(tmp_path / "theirs"))
    message = str(caught.value)
    assert "\n" not in message
    assert [reason for reason in reasons if reason not in message] == []


def test_tensors_that_are_missing_unknown_or_wrong_are_named(tmp_path):
    model = EoleModel(biases=("attention",))
    layer = "encoder.transformer_layers"
    del model.tensors[f"{layer}.1.self_attn.linear_keys.bias"]
    del model.tensors[f"{layer}.0.mlp.down_proj.weight"]
    model.tensors["estimator.weight"] = np.ones(3, np.float32)
    model.tensors["generator.weight"][0, 0] = np.nan
    model.tensors["src_emb.pe.pe"] = np.array(0, np.float32)
    with pytest.raises(UserError) as caught:
        import_eole(model.write(tmp_path / "theirs"))
    for reason in (
        f"only 1 of 2 layers of {layer} have self_attn.linear_keys.bias",
        f"1 tensor missing: {layer}.0.mlp.down_proj.weight",
        "1 tensor unknown: estimator.weight",
        "generator.weight holds a number that is not finite",
        "src_emb.pe.pe has the shape []",
    ):
        assert reason in str(caught.value)
    assert str(caught.value).count("generator.weight") == 1


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("config.json", "{", "is not a JSON object"),
        ("config.json", "[" * 99_999, "is not a JSON object"),
        ("config.json", "{}", "its config.json has no section model"),
        ("vocab.json", "[]", "is not a JSON object"),
        ("vocab.json", '{"src": ["a"], "tgt": [1]}', "tgt is not a list of texts"),
        ("vocab.json", '{"src": ["\\ud800"], "tgt": []}', "src is not a list of texts"),
        ("vocab.json", '{"src": ["a", "a"], "tgt": []}', "source vocabulary holds a token twice"),
        ("vocab.json", '{"src": [], "tgt": [], "specials": 3}', "has no <unk>, <s>, </s>"),
        ("vocab.json", '{"src": ["a b"], "tgt": []}', "holds 'a b', which is not one word"),
        ("model.00.safetensors", "", "is damaged"),
        ("model.00.safetensors", "\x7f" * 99, "is damaged"),
        ("model.01.safetensors", "\x08\0\0\0\0\0\0\0{}", "is damaged"),
    ],
)  # fmt: skip
def test_damaged_files_are_refused_in_one_line(tmp_path, name, content, reason):
    folder = EoleModel().write(tmp_path / "theirs")
    (folder / name).write_text(content)
    with pytest.raises((UserError, DamagedError), match=re.escape(reason)) as caught:
        import_eole(folder)
    assert "\n" not in str(caught.value)


def test_a_truncated_file_of_weights_is_refused(tmp_path):
    path = EoleModel().write(tmp_path / "theirs") / "model.00.safetensors"
    content = path.read_bytes()
    for length in (4, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(DamagedError, match="is damaged"):
            import_eole(path.parent)


@pytest.mark.parametrize("name", ["config.json", "vocab.json", "model.00.safetensors"])
def test_other_folders_are_refused(tmp_path, name):
    folder = EoleModel().write(tmp_path / "theirs")
    (folder / name).unlink()
    with pytest.raises(UserError, match=f"has no {name}; give the folder of a model of eole"):
        import_eole(folder)


def test_pickles_in_the_folder_are_not_read(tmp_path):
    model = EoleModel()
    folder = model.write(tmp_path / "theirs")
    (folder / "optimizer.pt").write_bytes(b"cos\nsystem\n(S'touch ran'\ntR.")
    (folder / "config.json").write_text(json.dumps(model.config | {"training": "exit()"}))
    same_scores(model, imported(folder))
