"""Folders of Hugging Face become ours: those that the export writes, in the documented layout."""

import io
import json
import re
import zipfile
from functools import partial

import numpy as np
import pytest
import safetensors.torch
import sentencepiece
import torch

from nmt_cli.commands import export
from nmt_cli.interchange.huggingface.importer import import_huggingface, read_tensors
from nmt_cli.messages.errors import DamagedError, UserError
from nmt_cli.saved.model_directory import load_model
from nmt_cli.translating.rescorer import Rescorer
from tests.interchange import import_command
from tests.interchange.hostile_pickles import CALLS, assert_refuses_calls, zipped
from tests.interchange.test_huggingface_layout import EXPORTABLE, marian_positions

BIAS = "final_logits_bias"
TEXTS = [("the cat sat", "a dog and"), ("", "mat"), ("on the mat", "")]
run_import = partial(import_command.run_import, program="huggingface")
# Heads narrower than d_model / num_heads come back as wide as those.
SAME = [each for each in EXPORTABLE if not {"d_k", "d_v"} & each.keys()]


def exported(model, name="theirs"):
    output = model.parent / name
    export.run(model, output_format="huggingface", output=output, quantization="float32", verify=0)
    return output


def changed(folder, name="config.json", **values):
    path = folder / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def with_tensors(folder, change):
    path = folder / "model.safetensors"
    safetensors.torch.save_file(change(safetensors.torch.load_file(path)), path)


def scores_of(path):
    found = Rescorer.load(path, device="cpu", precision="fp32").rescore(TEXTS)
    return [each.token_scores for each in found]


def same_scores(one, other):
    for found, expected in zip(scores_of(one), scores_of(other), strict=True):
        assert found == pytest.approx(expected, abs=1e-5)


def ids(options):
    return "-".join(map(str, options))


@pytest.mark.usefixtures("untried")
@pytest.mark.parametrize("options", SAME, ids=ids)
def test_the_import_of_an_export_is_the_identity(make_model, options):
    model = load_model(make_model(**options))
    found = import_huggingface(exported(model.path))
    wanted = {name: each.detach().numpy() for name, each in model.model.named_parameters()}
    assert found.weights.keys() == wanted.keys()
    for name, weight in wanted.items():
        assert np.array_equal(found.weights[name], weight), name
    assert found.pieces == model.tokenizer.pieces(range(model.tokenizer.size))
    assert found.architecture == model.settings.architecture


@pytest.mark.usefixtures("untried")
@pytest.mark.parametrize("options", [each for each in EXPORTABLE if each not in SAME], ids=ids)
def test_narrow_heads_compute_what_the_model_computes(make_model, options):
    model = make_model(**options)
    result = run_import(exported(model), "--output", model.parent / "ours")
    assert result.exit_code == 0, result.output
    same_scores(model.parent / "ours", model)


@pytest.mark.usefixtures("untried")
def test_two_sentencepiece_models_come_back_as_they_were(make_model, two_models):
    tokenizer, options = two_models
    model = load_model(make_model(pieces=tokenizer, **options, output_bias=True))
    assert run_import(exported(model.path), "--output", model.path.parent / "ours").exit_code == 0
    found = load_model(model.path.parent / "ours")
    for name in ("source.spm", "target.spm", "vocab.json"):
        assert (found.path / name).read_bytes() == (model.path / name).read_bytes()
    assert found.settings.architecture == model.settings.architecture
    for (name, weight), (other, expected) in zip(
        found.model.named_parameters(), model.model.named_parameters(), strict=True
    ):
        assert name == other
        assert torch.equal(weight, expected)
    text = ">>deu<< the cat \u4e2d"
    assert found.tokenizer.encode(text) == tokenizer.encode(text)


@pytest.fixture
def folder(make_model, untried):
    """A folder of a small MarianMTModel that starts with zeros and has biases."""
    return exported(make_model(decoder_start="zeros", attention_biases=True, output_bias=True))


def with_legacy_names(tensors):
    """Add what old files hold besides: each name of the matrix, and tables of sinusoids."""
    shared, table = tensors["model.shared.weight"], torch.from_numpy(marian_positions(50, 18))
    names = [f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder")]
    tables = [f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder")]
    tied = dict.fromkeys([*names, "lm_head.weight"], shared)
    return {**tensors, **tied, **{name: table.to(shared.dtype) for name in tables}}


def test_old_pickled_files_in_half_precision_become_fp32(folder):
    whole = import_huggingface(folder)
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    halves = {name: tensor.half() for name, tensor in tensors.items()}
    torch.save(with_legacy_names(halves), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    found = import_huggingface(folder)
    assert found.architecture == whole.architecture
    assert found.weights.keys() == whole.weights.keys()
    for name, weight in whole.weights.items():
        assert found.weights[name].dtype == np.float32
        assert np.array_equal(found.weights[name], weight.astype(np.float16)), name


def test_a_start_that_is_no_zeros_is_a_piece(folder):
    def trained(tensors):
        tensors["model.shared.weight"][-1] = 0.5
        return tensors

    with_tensors(folder, trained)
    vocabulary = json.loads((folder / "vocab.json").read_text())
    vocabulary["start"] = vocabulary.pop("<s>")
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    found = import_huggingface(folder)
    assert found.architecture.decoder_start == "bos"
    assert found.pieces[-1] == "<s>"
    assert len(found.weights["output_weight"]) == len(found.pieces) == 301
    assert (found.weights["output_weight"][-1] == 0.5).all()


def same_weights(found, expected):
    assert found.weights.keys() == expected.weights.keys()
    for name, weight in expected.weights.items():
        assert np.array_equal(found.weights[name], weight), name


def test_an_output_matrix_of_its_own_is_kept_whatever_the_options_say(folder):
    """Those of opus-mt-tc-big say that it is tied, and transformers 5 does not tie it then."""
    tied = import_huggingface(folder)
    own = torch.randn(301, 18, generator=torch.Generator().manual_seed(4))
    with_tensors(folder, lambda tensors: {**tensors, "lm_head.weight": own})
    found = import_huggingface(folder)
    assert (tied.architecture.tied_embeddings, found.architecture.tied_embeddings) == (
        *("all", "none"),
    )
    for side in ("source", "target"):
        weight = found.weights[f"{side}_embedding.weight"]
        assert np.array_equal(weight, tied.weights["output_weight"])
    halves = [*range(0, 18, 2), *range(1, 18, 2)]
    assert np.array_equal(found.weights["output_weight"][:, halves], own[:300])


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_weights_may_be_in_parts(folder, name):
    whole = import_huggingface(folder)
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    save = safetensors.torch.save_file if name.endswith("s") else torch.save
    names = sorted(tensors)
    weights: dict[str, str] = {}
    for number, part in enumerate((names[:9], names[9:])):
        file = f"part-{number}-{name}"
        save({each: tensors[each] for each in part}, folder / file)
        weights |= dict.fromkeys(part, file)
    index = folder / f"{name}.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weights}))
    same_weights(import_huggingface(folder), whole)
    (folder / f"part-1-{name}").unlink()
    with pytest.raises(UserError, match=f"part-1-{name} not found; it is one of 2 parts of"):
        import_huggingface(folder)
    first = f"part-0-{name}"
    for wrong in ({"a": f"../theirs/{first}"}, {"a": ".."}, {"a": 3}, {}, [first], None):
        index.write_text(json.dumps({"weight_map": wrong}))
        with pytest.raises(DamagedError, match="json is damaged: its weight_map does not name"):
            import_huggingface(folder)


def widened(tensors, generator):
    """Add three rows to the matrix, and numbers to the bias."""
    more = torch.randn(3, 18, generator=generator)
    matrix = torch.cat((tensors["model.shared.weight"], more))
    bias = torch.cat((tensors["final_logits_bias"], torch.ones(1, 3)), 1)
    return {**tensors, "model.shared.weight": matrix, "final_logits_bias": bias}


def test_rows_without_a_token_are_left_out(folder, capsys):
    whole = import_huggingface(folder)
    with_tensors(folder, lambda tensors: widened(tensors, torch.Generator().manual_seed(2)))
    changed(folder, vocab_size=304, decoder_vocab_size=304)
    found = import_huggingface(folder)
    assert found.pieces == whole.pieces
    same_weights(found, whole)
    with_tensors(  # transformers may forget to lengthen it
        folder, lambda tensors: {**tensors, BIAS: tensors[BIAS][:, :302].clone()}
    )
    same_weights(import_huggingface(folder), whole)
    text = "has 304 rows, one for each token, but the tokenizer has no token for 3 of them"
    assert capsys.readouterr().err.count(text) == 2


@pytest.mark.parametrize("is_old", [True, False])
@pytest.mark.parametrize("wrong", ["\ud800", "</s>", ""])
def test_added_tokens_are_pieces(folder, capsys, is_old, wrong):
    whole = import_huggingface(folder)
    with_tensors(folder, lambda tensors: widened(tensors, torch.Generator().manual_seed(2)))
    changed(folder, vocab_size=304, decoder_vocab_size=304)
    added = {">>nob<<": 301, wrong: 302, "<name>": 303, "<unk>": 2, "beyond": 304}
    if is_old:
        (folder / "added_tokens.json").write_text(json.dumps(added))
    else:
        objects = {str(row): {"content": token} for token, row in added.items()}
        changed(folder, "tokenizer_config.json", added_tokens_decoder=objects | {"x": ["y"]})
    found = import_huggingface(folder)
    assert found.pieces == [*whole.pieces, ">>nob<<", "<name>"]
    tokenizer = found.tokenizer(found.settings())
    assert tokenizer.encode(">>nob<< the cat")[0] == 300
    assert len(found.weights["output_weight"]) == len(found.weights["output_bias"]) == 302
    error = capsys.readouterr().err
    assert "has added tokens ('<name>'), which are not cut out of text here" in error
    assert "the tokenizer has no token for 1 of them" in error


@pytest.mark.parametrize("is_zeros", [True, False])
def test_the_start_may_be_a_row_without_a_token(folder, is_zeros):
    def moved(tensors):
        tensors = widened(tensors, torch.Generator().manual_seed(2))
        tensors["model.shared.weight"][302] = 0.0 if is_zeros else 0.5
        return tensors

    with_tensors(folder, moved)
    changed(folder, vocab_size=304, decoder_vocab_size=304, decoder_start_token_id=302)
    vocabulary = json.loads((folder / "vocab.json").read_text())
    names = [{"<s>": "start"}.get(piece, piece) for piece in vocabulary]
    (folder / "vocab.json").write_text(json.dumps({n: place for place, n in enumerate(names)}))
    found = import_huggingface(folder)
    assert found.architecture.decoder_start == ("zeros" if is_zeros else "bos")
    assert found.pieces == [*names, *([] if is_zeros else ["<s>"])]
    assert is_zeros or (found.weights["output_weight"][-1] == 0.5).all()


def test_languages_are_those_of_the_tokenizer(folder):
    changed(folder, "tokenizer_config.json", source_lang="fr", target_lang="ROMANCE")
    assert import_huggingface(folder).settings().text[:2] == ("fr", "und")
    assert import_huggingface(folder).settings(None, "es").text[:2] == ("fr", "es")


def test_all_reasons_are_listed_at_once(folder):
    changed(folder, model_type="marian", normalize_embedding=True, d_model="18",
            activation_function="quick_gelu", decoder_start_token_id=-1)  # fmt: skip
    with pytest.raises(UserError) as caught:
        import_huggingface(folder)
    assert str(caught.value) == (
        f"{folder} cannot be imported: its normalize_embedding is True, which the class marian "
        "does not compute; its activation_function is 'quick_gelu'; its d_model is '18'; its heads "
        "do not divide its d_model 1; its decoder_start_token_id is -1."
    )


@pytest.mark.parametrize("kind", ["bart", ["marian"], "\x1b[2J" * 99])
def test_other_models_are_refused(folder, kind):
    changed(folder, model_type=kind)
    with pytest.raises(UserError, match=r"model_type is .*, and only marian and pegasus") as caught:
        import_huggingface(folder)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


def test_every_tensor_is_used_and_none_is_missing(folder):
    def spoilt(tensors):
        del tensors["model.encoder.layers.1.fc2.bias"]
        tensors["model.decoder.layers.0.self_attn.out_proj.bias"] = torch.zeros(3)
        tensors["final_logits_bias"][0, 5] = torch.nan
        return {**tensors, "model.encoder.layers.2.fc1.bias": torch.zeros(11),
                "model.encoder.embed_tokens.weight": torch.ones(301, 18)}  # fmt: skip

    with_tensors(folder, spoilt)
    (folder / "source.spm").unlink()
    changed(folder, "vocab.json", more=301)
    with pytest.raises(UserError) as caught:
        import_huggingface(folder)
    message = str(caught.value)
    assert "\n" not in message
    for reason in (
        "1 tensor missing: model.encoder.layers.1.fc2.bias",
        "1 tensor unknown: model.encoder.layers.2.fc1.bias",
        "self_attn.out_proj.bias has the shape [3], not [18]",
        "final_logits_bias holds a number that is not finite",
        "model.encoder.embed_tokens.weight is not model.shared.weight, as its options say",
        "it has no source.spm and target.spm, and no spiece.model",
        "vocab.json has 302 pieces, its matrix 301 rows",
    ):
        assert reason in message, message


@pytest.mark.parametrize(
    ("file", "values", "reason"),
    [
        (
            "config.json",
            {"encoder_layers": 10**7},
            "it has 2 layers of the encoder, not 10,000,000",
        ),
        ("config.json", {"encoder_ffn_dim": 10**7}, "has the shape [11, 18], not [10000000, 18]"),
        (
            "config.json",
            {"vocab_size": 10**7},
            "shared.weight has the shape [301, 18], not [10000000",
        ),
        ("config.json", {"eos_token_id": 4}, "eos_token_id is 4, which is not </s> in vocab.json"),
        ("config.json", {"decoder_start_token_id": 9}, "which texts may have"),
        ("vocab.json", {"more": 7}, "the numbers in vocab.json are not 0 to 301, each once"),
        ("tokenizer_config.json", {"unk_token": {"content": "<u>"}}, "vocab.json has no <u>"),
    ],
)
def test_values_that_do_not_fit_are_refused(folder, file, values, reason):
    changed(folder, file, **values)
    with pytest.raises(UserError, match=re.escape(reason)) as caught:
        import_huggingface(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", CALLS)
def test_pickles_that_call_functions_are_refused(tmp_path, name):
    path = tmp_path / "pytorch_model.bin"
    assert_refuses_calls(lambda: read_tensors(tmp_path), path, name)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"\x80\x02\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.", "it calls STACK_GLOBAL"),
        (b"(S'true'\nios\nsystem\n.", "it calls INST"),
        (b"\x80\x02\x82\x01.", "it calls EXT1"),
    ],
)
def test_functions_that_are_found_in_other_ways_are_refused(tmp_path, content, named):
    zipped(tmp_path / "pytorch_model.bin", content)
    with pytest.raises(UserError, match=named):
        read_tensors(tmp_path)


def test_files_that_are_no_tensors_are_refused_in_one_line(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    torch.save({"a": torch.ones(1).expand(10**12)}, path)
    hostile = [path.read_bytes()]
    for other in ({"a": torch.ones(3), "b": 1}, [torch.ones(3)], {1: torch.ones(3)}):
        torch.save(other, path)
        hostile.append(path.read_bytes())
    torch.save({"a": torch.ones(40)}, path)
    hostile += [path.read_bytes()[:length] for length in (0, 100, 700)]
    zipped(path, b"\x80\x02}." + b" " * 10_000, zipfile.ZIP_DEFLATED)
    hostile.append(path.read_bytes())
    for content in (
        b"\x80\x02K\x05Q.",  # the number of a storage that is no storage
        b"\x80\x05}.",  # another protocol
        b"\x80\x02R.",
        b"\x80\x02h\x09.",
        b"",
        b"\x80\x02ccollections\nOrderedDict\nK\x01\x85R.",
    ):
        zipped(path, content)
        hostile.append(path.read_bytes())
    for data in hostile:
        path.write_bytes(data)
        with pytest.raises((UserError, DamagedError)) as caught:
            read_tensors(tmp_path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff" * 99, (1 << 60).to_bytes(8, "little") + b"{}"])
def test_a_damaged_safetensors_file_is_refused(tmp_path, data):
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(DamagedError, match=r"model\.safetensors is damaged: ") as caught:
        read_tensors(tmp_path)
    assert "\n" not in str(caught.value)


def pegasus_model():
    """A SentencePiece model whose first pieces are <pad>, </s> and <unk>, as Pegasus has it."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the cat sat on the mat", "a dog and the cat"] * 9),
        model_writer=model, model_type="unigram", vocab_size=18, minloglevel=2,
        pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
    )  # fmt: skip
    return model.getvalue()


def test_pegasus_has_one_sentencepiece_model_behind_its_masks(make_model, untried):
    theirs = exported(make_model(norm="pre", decoder_start="zeros"))
    (theirs / "spiece.model").write_bytes(pegasus_model())
    for name in ("vocab.json", "source.spm", "target.spm"):
        (theirs / name).unlink()
    size = 103 + 18

    def cut(tensors):
        matrix = tensors["model.shared.weight"][:size].clone()
        matrix[0] = 0
        return {**tensors, "model.shared.weight": matrix,
                "final_logits_bias": torch.zeros(1, size)}  # fmt: skip

    with_tensors(theirs, cut)
    changed(theirs, vocab_size=size, pad_token_id=0, decoder_start_token_id=0, eos_token_id=1)
    changed(theirs, "tokenizer_config.json", pad_token="<pad>", offset=103)
    found = import_huggingface(theirs)
    processor = sentencepiece.SentencePieceProcessor(model_proto=pegasus_model())
    pieces = found.tokenizer(found.settings("und", "und")).encode("the dog X")
    assert pieces == [number + 103 - 1 for number in processor.encode("the dog X")]  # without pad
    assert found.architecture.decoder_start == "zeros"
    changed(theirs, "tokenizer_config.json", offset=0)
    with pytest.raises(UserError, match="its tokenizer has the offset 0, not 103"):
        import_huggingface(theirs)


def test_wrong_use_of_the_command(tmp_path):
    result = run_import(tmp_path, "--output", tmp_path / "new")
    assert result.exit_code == 1
    assert "has no config.json; give the folder of a model of Hugging Face." in result.output
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "marian"}))
    result = run_import(tmp_path, "--output", tmp_path / "new")
    assert "cannot be imported: its d_model is None; its encoder_layers is None" in result.output
    assert not (tmp_path / "new").exists()
