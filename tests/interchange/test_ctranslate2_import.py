"""Models of CTranslate2 become ours: a trained one of others, and random ones in its files."""

import io
import json
import os
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import torch
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.files.atomic_files import write_manifest
from nmt_cli.interchange.ctranslate2.files import read_variables
from nmt_cli.interchange.ctranslate2.importer import import_ctranslate2
from nmt_cli.messages.errors import DamagedError, UserError
from nmt_cli.saved.model_directory import load_model
from nmt_cli.translating.rescorer import Rescorer
from nmt_cli.translating.translator import Translator
from tests.architectures import EXPORTED_SETS, Formula, random_model
from tests.interchange import import_command
from tests.interchange.conftest import trained
from tests.interchange.ctranslate2_files import binary, variables_of, write_folder

SHARED = os.environ.get("NMT_CLI_SHARED")
# What CTranslate2 4.8.5 computes, per token and </s>; its own tests hold the first too.
TRANSLITERATED = {
    "آ ت ز م و ن": (
        "a t z m o n",
        [-0.10602, -0.06541, -0.05600, -0.44795, -0.23071, -0.09218, -0.06346],
    ),
    "آ ر ب ا ك ه": (
        "a r b a k e",
        [-0.10314, -0.08950, -0.06389, -0.00733, -0.45207, -0.06015, -0.01664],
    ),
    "أ ح م د": ("a h m a d", [-0.05677, -0.00488, -0.08599, -0.57583, -0.00925, -0.05611]),
}
UNKNOWN = ("X ت", "a Q", [-8.570619, -24.760384, -7.539818])
run_import = partial(import_command.run_import, program="ctranslate2")
SIZE = 30
TOKENS = [*(f"t{number}" for number in range(SIZE - 3)), "</s>", "<s>", "<unk>"]
EXACT = [each for each in EXPORTED_SETS if each["d_k"] is None]  # keys are as wide as values there
MARKS_FIRST = [SIZE - 1, SIZE - 2, SIZE - 3, *range(SIZE - 3)]  # of our rows in theirs


@pytest.fixture(scope="module")
def transliteration(tmp_path_factory):
    if SHARED is None or not (Path(SHARED) / "ct2-aren").is_dir():
        pytest.skip("NMT_CLI_SHARED names no folder that holds ct2-aren")
    output = tmp_path_factory.mktemp("imported") / "model"
    result = run_import(Path(SHARED) / "ct2-aren", "--output", output)
    assert result.exit_code == 0, result.output
    return output


def test_a_trained_model_of_others_transliterates_as_there(transliteration):
    translator = Translator.load(
        transliteration, device="cpu", precision="fp32", beam_size=1, token_scores=True
    )
    found = translator.translate(list(TRANSLITERATED))
    for each, (text, scores) in zip(found, TRANSLITERATED.values(), strict=True):
        assert each.text == text
        assert each.token_scores == pytest.approx(scores, abs=1e-4)


def test_imported_exported_and_imported_again_it_is_the_same(transliteration, tmp_path):
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    options = ["--format", "ctranslate2", "--output", str(tmp_path / "theirs"), "--verify", "4"]
    result = CliRunner().invoke(cli.main, ["export", str(transliteration), *options])
    assert result.exit_code == 0, result.output
    assert run_import(tmp_path / "theirs", "--output", tmp_path / "ours").exit_code == 0
    for name in ("model.safetensors", "config.json", "vocabulary.txt", "source_vocabulary.txt"):
        assert (tmp_path / "ours" / name).read_bytes() == (transliteration / name).read_bytes()


def test_its_sizes_are_those_of_the_file(transliteration):
    result = CliRunner().invoke(cli.main, ["inspect", str(transliteration)])
    assert result.exit_code == 0
    assert "6 + 6 layers of width 32 (feed-forward 128), 8 heads" in result.output
    assert "vocabulary 43 of the target, 51 of the source\n" in result.output
    assert SHARED is not None
    numbers = read_variables(Path(SHARED) / "ct2-aren/model.bin").by_name.values()
    assert f"{sum(array.size for array in numbers):,}  100.0%" in result.output


def test_unknown_tokens_have_the_scores_that_they_have_there(transliteration):
    source, target, scores = UNKNOWN
    rescorer = Rescorer.load(transliteration, device="cpu", precision="fp32")
    (found,) = rescorer.rescore([(source, target)])
    assert found.token_scores == pytest.approx(scores, abs=1e-4)


def imported(options, folder, *, in_file=lambda variables: variables, **config):
    """Write a random model with ``options`` for CTranslate2; return it, and what is imported."""
    torch.manual_seed(1)
    model = random_model(options, SIZE).eval()
    vocabularies = {"source": TOKENS, "target": TOKENS}
    if model.config.source_vocabulary_size is not None:
        own = [f"s{n}" for n in range(model.config.source_vocabulary_size - 3)]
        vocabularies["source"] = [*own, *TOKENS[-3:]]
    write_folder(
        folder,
        binary(in_file(variables_of(model))),
        vocabularies,
        layer_norm_epsilon=model.config.norm_epsilon,
        add_source_eos=model.config.source_eos,
        **({"decoder_start_token": "</s>"} if model.config.decoder_start == "eos" else {}),
        **config,
    )
    return model, import_ctranslate2(folder)


def rows_as_ours(name, weight):
    """Return a parameter with the rows of pieces in the order of an imported vocabulary."""
    if not re.search(r"embedding\.weight|output", name) or "layers" in name:
        return weight
    marks = [len(weight) - 1, len(weight) - 2, len(weight) - 3]
    return weight[[*marks, *range(len(weight) - 3)]]


@pytest.mark.parametrize("options", EXACT)
def test_the_import_of_what_was_written_is_the_identity(options, tmp_path):
    model, found = imported(options, tmp_path)
    wanted = {name: p.detach() for name, p in model.named_parameters()}
    assert found.weights.keys() == wanted.keys()
    for name, weight in wanted.items():
        assert np.array_equal(found.weights[name], rows_as_ours(name, weight).numpy()), name
    expected = vars(model.config.of_model()) | {"max_positions": found.architecture.max_positions}
    if model.config.decoder_num_heads == model.config.num_heads:
        expected["decoder_num_heads"] = None
    shapes = (found.architecture.encoder_shape, found.architecture.decoder_shape)
    assert shapes == (model.config.encoder_shape, model.config.decoder_shape)
    ignored = {"decoder_num_layers", "decoder_d_ff", "decoder_num_heads"}
    for key, value in vars(found.architecture).items():
        assert key in ignored or value == expected[key]


@pytest.mark.parametrize("options", EXACT)
def test_ctranslate2_computes_the_same(options, tmp_path):
    ctranslate2 = pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    model, _ = imported(options, tmp_path / "theirs")
    assert run_import(tmp_path / "theirs", "--output", tmp_path / "ours").exit_code == 0
    source = "s1 s2 s7" if model.config.source_vocabulary_size else "t1 t2 t7"
    target = "t3 t9 t9 t4"
    rescorer = Rescorer.load(tmp_path / "ours", device="cpu", precision="fp32")
    (found,) = rescorer.rescore([(source, target)])
    theirs = ctranslate2.Translator(str(tmp_path / "theirs"), device="cpu", intra_threads=1)
    (expected,) = theirs.score_batch([source.split()], [target.split()])
    assert found.token_scores == pytest.approx(expected.log_probs, abs=1e-4)


def test_a_directory_of_it_computes_what_the_model_computes(tmp_path):
    options = {"activation": "swish", "attention_biases": True, "decoder_start": "zeros"}
    model, _ = imported({**options, "output_bias": True}, tmp_path / "theirs")
    result = run_import(tmp_path / "theirs", "--output", tmp_path / "ours", "--quiet")
    assert (result.exit_code, result.output) == (0, "")
    loaded = load_model(tmp_path / "ours")
    source, target = [4, 9, 0], [7, 7, 2, 11]
    ids = [[MARKS_FIRST.index(token) for token in side] for side in (source, target)]
    words = tuple(" ".join(TOKENS[token] for token in side) for side in (source, target))
    assert [loaded.tokenizer.encode(text) for text in words] == ids
    # The model's own numbers of the marks.
    marks = type("Marks", (), {"eos_id": TOKENS.index("</s>"), "bos_id": TOKENS.index("<s>")})
    wanted = Formula(model).token_scores(source, target, marks)
    rescorer = Rescorer.load(tmp_path / "ours", device="cpu", precision="fp32")
    (found,) = rescorer.rescore([(words[0], words[1])])
    assert found.token_scores == pytest.approx(wanted, abs=1e-4)


def test_halves_of_sines_and_cosines_are_put_in_our_order(tmp_path):
    options = {"sinusoid_frequencies": "tensor2tensor", "first_position": 1}
    halves = [*range(0, 20, 2), *range(1, 20, 2)]

    def without_tables(variables):
        """Their dimension i is our dimension halves[i]; they compute such tables themselves."""
        found = {}
        for name, array in variables.items():
            if "encodings" in name:
                continue
            writes = name.endswith(("output", "ffn/linear_1/weight", "ffn/linear_1/bias"))
            writes = writes or re.search(r"self_attention/linear_1|/attention/linear_2", name)
            if writes or name.endswith(("gamma", "beta")):
                found[name] = array[halves]
            elif array.ndim == 2:
                found[name] = array[:, halves]
            else:
                found[name] = array
        return found

    model, found = imported(options, tmp_path, in_file=without_tables)
    for name, weight in model.named_parameters():
        expected = rows_as_ours(name, weight.detach()).numpy()
        assert np.array_equal(found.weights[name], expected), name
    assert found.architecture.sinusoid_frequencies == "tensor2tensor"
    assert found.architecture.first_position == 1


def test_a_scale_of_the_queries_becomes_ours(tmp_path):
    def with_scale(variables):
        names = [name.removesuffix("/linear_0/weight") for name in variables if "linear_0" in name]
        attentions = {name for name in names if name.endswith("attention")}
        return {**variables, **{f"{name}/queries_scale": np.float32(0.25) for name in attentions}}

    model, found = imported({"attention_biases": True}, tmp_path, in_file=with_scale)
    ours, name = dict(model.named_parameters()), "decoder_layers.1.memory_attention.queries"
    for part in ("weight", "bias"):
        expected = ours[f"{name}.{part}"].detach().numpy() * (0.25 * 4**0.5)
        assert np.allclose(found.weights[f"{name}.{part}"], expected, rtol=1e-6)
    name = "encoder_layers.0.self_attention.queries_keys_values.weight"
    factors = np.repeat(np.array([0.5, 1, 1], np.float32), 20)[:, None]
    assert np.allclose(found.weights[name], ours[name].detach().numpy() * factors, rtol=1e-6)


def test_halves_and_integers_become_fp32(tmp_path):
    def rounded(variables):
        found = {name: array.astype(np.float16) if array.ndim else array
                 for name, array in variables.items()}  # fmt: skip
        name = "encoder/layer_0/ffn/linear_0/weight"
        scale = 127 / np.abs(variables[name]).max(axis=1)
        found[name] = np.round(variables[name] * scale[:, None]).astype(np.int8)
        return {**found, f"{name}_scale": scale.astype(np.float32)}

    model, found = imported({}, tmp_path, in_file=rounded)
    for name, weight in model.named_parameters():
        assert found.weights[name].dtype == np.float32
        expected = rows_as_ours(name, weight.detach()).numpy()
        rounds = np.abs(expected).max() / 127 if "0.feed_forward.inner.weight" in name else 2e-3
        assert np.abs(found.weights[name] - expected).max() <= rounds, name


def test_tied_matrices_of_integers_share_their_scale(tmp_path):
    """CTranslate2 writes a tied matrix once, with its scale; the other names have no scale."""
    variables = variables_of(random_model({}, SIZE))
    name, others = "decoder/embeddings/weight", ["encoder/embeddings_0/weight"]
    others.append("decoder/projection/weight")
    scale = (127 / np.abs(variables[name]).max(axis=1)).astype(np.float32)
    rounded = np.round(variables[name] * scale[:, None]).astype(np.int8)
    stored = {name: rounded, f"{name}_scale": scale}
    (tmp_path / "v6").write_bytes(binary(stored, aliases=[(other, name) for other in others]))
    found = read_variables(tmp_path / "v6").by_name
    assert found.keys() == {name, *others}
    assert np.abs(found[name] - variables[name]).max() < np.abs(variables[name]).max() / 127
    assert all(np.array_equal(found[other], found[name]) for other in others)
    (tmp_path / "v6").write_bytes(binary({name: rounded}))
    with pytest.raises(DamagedError, match="decoder/embeddings/weight has integers, but no scale"):
        read_variables(tmp_path / "v6")


def test_an_array_that_ends_within_a_number_is_damaged(tmp_path):
    whole, cut = b"\0\x08\0\0\0" + bytes(8), b"\0\x07\0\0\0" + bytes(7)  # type, size, numbers
    (tmp_path / "v6").write_bytes(binary({"a": np.zeros(2, np.float32)}).replace(whole, cut))
    message = "damaged: buffer size must be a multiple of element size; copy it again"
    with pytest.raises(DamagedError, match=message):
        read_variables(tmp_path / "v6")


def test_older_files_have_no_types(tmp_path):
    model = random_model({}, SIZE)
    variables = {n: a for n, a in variables_of(model).items() if np.asarray(a).dtype == np.float32}
    (tmp_path / "v2").write_bytes(binary(variables, version=2))
    found = read_variables(tmp_path / "v2").by_name
    assert found.keys() == variables.keys()
    assert all(np.array_equal(found[name], variables[name]) for name in variables)


def test_all_reasons_are_listed_at_once(tmp_path):
    def changed(variables):
        del variables["encoder/layer_0/ffn/linear_0/bias"]
        variables["encoder/layer_1/self_attention/linear_0/weight"] = np.zeros((3, 4), np.float32)
        variables["decoder/alibi"] = np.int8(1)
        variables["decoder/layer_0/self_attention/relative_position_keys"] = np.zeros(3, np.float32)
        variables["encoder/activation"] = np.int8(6)
        return variables

    with pytest.raises(UserError) as caught:
        imported({}, tmp_path, in_file=changed, add_source_bos=True)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path} cannot be imported: ")
    assert "\n" not in message
    for reason in (
        "it adds a mark at the start of the source",
        "its activation has the number 6",
        "it has decoder/alibi",
        "encoder/layer_1/self_attention/linear_0/weight has the shape [3, 4], not [60, 20]",
        "1 tensor unknown: decoder/layer_0/self_attention/relative_position_keys",
        "feed_forward_biases",
    ):
        assert reason in message, message


@pytest.mark.parametrize(
    ("tokens", "reason"),
    [
        (TOKENS[:-2], "the target vocabulary has 29 tokens, its matrix 30 rows"),
        ([*TOKENS[:-4], "t1", *TOKENS[-3:]], "the target vocabulary holds a token twice"),
        ([*TOKENS[:-4], "a b", *TOKENS[-3:]], "holds 'a b', which is not one word"),
        ([*TOKENS[:-3], "x", *TOKENS[-2:]], "the target vocabulary has no </s>"),
        ([*TOKENS, "more"], "the target vocabulary has 31 tokens, its matrix 30 rows"),
    ],
)
def test_vocabularies_that_do_not_fit_are_refused(tmp_path, tokens, reason):
    imported({"output_bias": True}, tmp_path)
    (tmp_path / "target_vocabulary.json").unlink()
    (tmp_path / "target_vocabulary.txt").write_text("".join(f"{token}\n" for token in tokens))
    with pytest.raises(UserError, match=re.escape(reason)):
        import_ctranslate2(tmp_path)


def test_pieces_of_subword_nmt_are_joined(tmp_path):
    imported({"output_bias": True}, tmp_path / "theirs")
    tokens = ["a@@", "b@@", *TOKENS[2:]]
    (tmp_path / "theirs/target_vocabulary.json").write_text(json.dumps(tokens))
    assert run_import(tmp_path / "theirs", "--output", tmp_path / "ours").exit_code == 0
    tokenizer = load_model(tmp_path / "ours").tokenizer
    assert tokenizer.decode(tokenizer.encode("a@@ b@@ t5 t6", "target")) == "abt5 t6"


def test_missing_vocabularies_are_the_only_reason(tmp_path):
    model = random_model({"output_bias": True}, SIZE).eval()
    write_folder(tmp_path, binary(variables_of(model)), {})
    reasons = "cannot be imported: it has no source vocabulary; it has no target vocabulary."
    with pytest.raises(UserError, match=f"{re.escape(reasons)}$"):
        import_ctranslate2(tmp_path)


@pytest.mark.parametrize("name", ["encoder/layer_0/ffn/linear_1/bias", "position"])
def test_numbers_that_are_not_finite_are_refused(tmp_path, name):
    def spoilt(variables):
        for key in [key for key in variables if name in key]:
            variables[key] = np.full_like(variables[key], np.inf)
        return variables

    with pytest.raises(UserError, match=f"{name}.* hold.* a number that is not finite"):
        imported({}, tmp_path, in_file=spoilt)


def test_hostile_files_are_refused_in_one_line(tmp_path):
    imported({}, tmp_path)
    path = tmp_path / "model.bin"
    content = path.read_bytes()
    generator = np.random.default_rng(1)
    hostile = [content[:length] for length in generator.integers(0, len(content), 40)]
    hostile += [content + b"\0", b"", b"\x80\x02cos\nsystem\n(S'true'\ntR."]
    head = binary({})
    absurd = (np.uint32(2**31)).tobytes()
    hostile.append(head[:-8] + absurd + head[-4:])  # so many variables
    one = binary({"x": np.zeros((2, 2), np.float32)})
    start = one.index(b"x\0") + 3
    hostile += [one[:start] + absurd + one[start + 4 :], one.replace(b"x\0", b"\xff\0")]
    for data in hostile:
        path.write_bytes(data)
        with pytest.raises((UserError, DamagedError)) as caught:
            import_ctranslate2(tmp_path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("layer_norm_epsilon", "much"),
        ("layer_norm_epsilon", -1.0),
        ("decoder_start_token", None),
        ("unk_token", ["<unk>"]),
        ("eos_token", "../../x"),
    ],
)
def test_values_that_no_model_has_are_refused_in_one_line(tmp_path, key, value):
    imported({"output_bias": True}, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, key: value}))
    with pytest.raises(UserError, match="cannot be imported: ") as caught:
        import_ctranslate2(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["[]", "{", '{"a": ' * 100_000, b"\xff\xfe"])
def test_a_hostile_configuration_is_refused(tmp_path, content):
    imported({}, tmp_path)
    data = content if isinstance(content, bytes) else content.encode()
    (tmp_path / "config.json").write_bytes(data)
    with pytest.raises(DamagedError):
        import_ctranslate2(tmp_path)


@pytest.mark.parametrize("is_one_file", [True, False])
def test_sentencepiece_models_in_the_folder_cut_the_text(is_one_file, tmp_path):
    trained = sentencepiece_model(["the ants and the bees", "a cat is asleep"] * 5)
    processor = sentencepiece.SentencePieceProcessor(model_proto=trained)
    size = processor.get_piece_size()
    pieces = [processor.id_to_piece(token) for token in range(size)]  # <unk>, <s>, </s> first
    model = random_model({"source_eos": True}, size).eval()
    theirs = tmp_path / "theirs"
    shared = {"shared": pieces}
    write_folder(theirs, binary(variables_of(model)), shared, add_source_eos=True)
    for name in ("sentencepiece.model",) if is_one_file else ("source.spm", "target.spm"):
        (theirs / name).write_bytes(trained)
    assert run_import(theirs, "--output", tmp_path / "ours").exit_code == 0
    loaded = load_model(tmp_path / "ours")
    source, target = "the cat", "a bee is asleep"
    ids = [processor.encode(text) for text in (source, target)]
    assert [loaded.tokenizer.encode(source), loaded.tokenizer.encode(target, "target")] == ids
    assert loaded.tokenizer.decode(ids[1]) == target
    rescorer = Rescorer.load(tmp_path / "ours", device="cpu", precision="fp32")
    (found,) = rescorer.rescore([(source, target)])
    wanted = Formula(model).token_scores(ids[0], ids[1], loaded.tokenizer)
    assert found.token_scores == pytest.approx(wanted, abs=1e-4)


def test_sentencepiece_models_that_do_not_fit_are_refused(tmp_path):
    imported({}, tmp_path / "theirs")
    trained = sentencepiece_model(["the ants and the bees", "a cat is asleep"] * 5)
    (tmp_path / "theirs/sentencepiece.model").write_bytes(trained)
    result = run_import(tmp_path / "theirs", "--output", tmp_path / "ours")
    assert result.exit_code == 1
    assert "% of the pieces of the source's SentencePiece model" in result.stderr
    assert not (tmp_path / "ours").exists()
    (tmp_path / "theirs/source.spm").write_bytes(trained)
    result = run_import(tmp_path / "theirs", "--output", tmp_path / "ours")
    assert "it has source.spm, but not both source.spm and target.spm" in result.stderr


def test_a_sentencepiece_model_that_is_none_is_refused(tmp_path):
    imported({}, tmp_path)
    (tmp_path / "sentencepiece.model").write_bytes(b"\x80\x02cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(DamagedError, match="is not a SentencePiece model"):
        import_ctranslate2(tmp_path)


def sentencepiece_model(texts):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        model_type="unigram",
        vocab_size=40,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return model.getvalue()


def test_wrong_use_of_the_command(tmp_path):
    result = run_import(tmp_path, "--output", tmp_path / "new")
    assert result.exit_code == 1
    assert "has no model.bin; give the folder of a model of CTranslate2." in result.output
    assert not (tmp_path / "new").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").touch()
    (tmp_path / "average").mkdir()
    write_manifest(tmp_path / "average", {"kind": "average"})
    for name, *options in (["mine"], ["mine", "--force"], ["average"], ["average", "--force"]):
        result = run_import(tmp_path, "--output", tmp_path / name, *options)
        assert result.exit_code == 1
        assert f"{name} exists and is not an imported model; choose another" in result.output


def without_start(folder, start, sides, **config):
    """Write a model that has no row for <s>; return the model that has."""
    torch.manual_seed(1)
    model = random_model({"decoder_start": start}, SIZE).eval()
    variables = {
        name: np.delete(array, SIZE - 2, 0) if np.shape(array)[:1] == (SIZE,) else array
        for name, array in variables_of(model).items()
    }
    start_token = {"decoder_start_token": "</s>"} if start == "eos" else {}
    tokens = [each for each in TOKENS if each != "<s>"]
    write_folder(folder, binary(variables), dict.fromkeys(sides, tokens), **start_token, **config)
    return model


@pytest.mark.parametrize("start", ["zeros", "eos"])
@pytest.mark.parametrize("bos", ["</s>", "<s>"])
def test_a_start_that_the_model_lacks_never_comes(tmp_path, start, bos):
    model = without_start(tmp_path, start, ["source", "target"], bos_token=bos)
    found = import_ctranslate2(tmp_path)
    assert found.pieces == ["<unk>", "<s>", "</s>", *TOKENS[:-3]]
    assert found.weights["output_bias"].tolist() == [0, -100, *[0] * (SIZE - 2)]
    output = model.output_weight.detach().numpy()
    assert np.array_equal(found.weights["output_weight"][3:], output[: SIZE - 3])
    assert not found.weights["output_weight"][1].any()


def test_a_vocabulary_of_sentencepiece_needs_no_start(tmp_path, untried):
    model = without_start(tmp_path, "zeros", ["shared"])
    for name in ("source.spm", "target.spm"):
        (tmp_path / name).write_bytes(trained(tmp_path / "any", ["the cat sat on a mat"]))
    found = import_ctranslate2(tmp_path)
    assert found.pieces == [*TOKENS[:-3], "</s>", "<unk>"]
    assert "output_bias" not in found.weights
    output = model.output_weight.detach().numpy()
    assert np.array_equal(found.weights["output_weight"], np.delete(output, SIZE - 2, 0))
