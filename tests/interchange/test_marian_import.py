"""Models of Marian become ours: files that the tests write in the documented layout."""

import re
import tracemalloc
import zipfile
from functools import partial

import numpy as np
import pytest
import sentencepiece

from nmt_cli.interchange.files import TextFiles
from nmt_cli.interchange.marian.files import read_archive
from nmt_cli.interchange.marian.importer import import_marian
from nmt_cli.messages.errors import DamagedError, UserError
from nmt_cli.saved.model_directory import load_model
from nmt_cli.translating.rescorer import Rescorer
from tests.interchange import import_command
from tests.interchange.conftest import trained
from tests.interchange.hostile_pickles import CALLS, calling
from tests.interchange.marian_files import (
    SOURCE,
    TARGET,
    binary,
    plain,
    random_model,
    write_binary,
    write_npz,
    write_vocabulary,
)

run_import = partial(import_command.run_import, program="marian")
MODELS = [
    {},
    {"norm": "pre", "tied": "all", "activation": "relu"},
    {"tied": "decoder", "activation": "gelu", "widths": (10, 7), "layers": (1, 3)},
    {"embedding_norm": True, "tied": "src", "learned": True, "output_bias": False},
    {"norm": "pre", "embedding_norm": True, "old_output": True, "half": True},
    {"recurrent": True, "tied": "decoder", "layers": (3, 2)},
    {"recurrent": True, "tied": "all", "norm": "pre", "layers": (3, 1), "widths": (10, 7)},
    {"recurrent": True, "tied": "all", "integers": True, "d_model": 48, "widths": (16, 32)},
    {"tied": "decoder", "integers": True, "d_model": 48, "widths": (16, 32)},
]
PAIRS = [
    ("s0 s3 s3 s8", "t1 t4 t10"),
    ("s5", ""),
    ("s1 s1", "t9 t0 t9 t9 t2"),
    ("what s2", "t3 what"),
]


@pytest.fixture
def folder(tmp_path):
    """A folder of a small model with two vocabularies."""
    theirs = tmp_path / "theirs"
    write_folder(theirs)
    return theirs


def write_folder(path, *, half=False, integers=False, **options):
    """Write a model and its vocabularies; return its tensors."""
    path.mkdir()
    tensors, settings = random_model(**options)
    if integers:
        tensors = write_binary(path / "model.alphas.bin", tensors, settings)
        (path / "lex.s2t.bin").write_bytes(b"the shortlist of the model")
    elif half:
        halves = {name: array.astype(np.float16) for name, array in tensors.items()}
        tensors = {name: array.astype(np.float32) for name, array in halves.items()}
    if not integers:
        write_npz(path / "model.npz", halves if half else tensors, settings)
    write_vocabulary(path / "vocab.trg.yml", TARGET)
    source = TARGET if "Wemb" in tensors else SOURCE
    write_vocabulary(path / "vocab.src.yml", source)
    return tensors


def spoil(path, change=None, *, recurrent=False, **settings):
    """Write a model again after changes of its tensors and settings."""
    tensors, text = random_model(recurrent=recurrent)
    for key, value in settings.items():
        key = key.replace("_", "-")
        text = re.sub(rf"^{key}: .*\n", "", text, flags=re.M) + f"{key}: {value}\n"
    write_npz(path / "model.npz", (change or dict)(tensors), text)


@pytest.mark.parametrize("options", MODELS, ids=lambda options: "-".join(map(str, options)))
def test_log_probabilities_are_those_of_the_formula(tmp_path, options):
    tensors = write_folder(tmp_path / "theirs", **options)
    result = run_import(tmp_path / "theirs", "--output", tmp_path / "ours")
    assert result.exit_code == 0, result.output
    assert "vocab.src.yml" in result.stderr
    model = plain(tensors, **options)
    pieces = [TARGET if "Wemb" in tensors else SOURCE, TARGET]
    rescorer = Rescorer.load(tmp_path / "ours", device="cpu", precision="fp32")
    pairs = PAIRS if "Wemb" not in tensors else [(one.replace("s", "t"), two) for one, two in PAIRS]
    for pair, found in zip(pairs, rescorer.rescore(pairs), strict=True):
        source, target = (
            [of_side.index(word) if word in of_side else 1 for word in [*text.split(), "</s>"]]
            for of_side, text in zip(pieces, pair, strict=True)
        )
        # The decoder reads zeros first, whatever the number there.
        expected = model.log_probabilities(source, [0, *target[:-1]])
        expected = expected[np.arange(len(target)), target]
        assert found.token_scores == pytest.approx(list(expected), abs=1e-4)


def test_shared_matrices_are_stored_once(tmp_path):
    for number, (tied, ours) in enumerate(
        {"all": "all", "src": "none", "decoder": "decoder", "none": "none"}.items()
    ):
        write_folder(tmp_path / str(number), tied=tied)
        found = import_marian(tmp_path / str(number))
        assert found.architecture.tied_embeddings == ours
        assert ("source_embedding.weight" in found.weights) is (tied != "all")
        has_own = tied in ("decoder", "none")
        assert found.architecture.source_vocabulary_size == (len(SOURCE) + 1 if has_own else None)


def test_biases_of_zero_are_left_out(folder):
    def zeroed(tensors):
        return {
            name: array * 0 if re.search(r"_b\w$", name) else array
            for name, array in tensors.items()
        }

    spoil(folder, zeroed)
    found = import_marian(folder).architecture
    assert not found.attention_biases
    assert not found.feed_forward_biases
    assert found.output_bias  # <s>, which the vocabulary lacks, never comes


def test_vocabularies_and_two_sentencepiece_models_of_opus_mt(tmp_path, untried):
    folder = tmp_path / "theirs"
    folder.mkdir()
    texts = {"source": ["the cat sat on the mat"], "target": ["die Katze auf der Matte"]}
    pieces = ["</s>", "<unk>", ">>deu<<"]
    for side, lines in texts.items():
        model = trained(folder / side, lines)
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        pieces += processor.id_to_piece(list(range(2, 18)))
    pieces = list(dict.fromkeys(pieces))
    tensors, settings = random_model(tied="all")
    tensors["Wemb"] = np.resize(tensors["Wemb"], (len(pieces), 12))
    tensors["decoder_ff_logit_out_b"] = np.resize(
        tensors["decoder_ff_logit_out_b"], (1, len(pieces))
    )
    write_npz(folder / "opus.npz", tensors, settings)
    write_vocabulary(folder / "opus.spm32k-spm32k.vocab.yml", pieces)
    (folder / "decoder.yml").write_text(
        "relative-paths: true\nmodels:\n  - opus.npz\nvocabs:\n"
        + "  - opus.spm32k-spm32k.vocab.yml\n" * 2
    )
    result = run_import(folder, "--output", tmp_path / "ours")
    assert result.exit_code == 0, result.output
    names = ("opus.npz", "opus.spm32k-spm32k.vocab.yml", "source.spm", "target.spm")
    assert f"Read {', '.join(str(folder / name) for name in names)}.\n" in result.stderr
    found = load_model(tmp_path / "ours")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.spm"))
    expected = [
        pieces.index(piece) if piece in pieces else 1
        for piece in [">>deu<<", *processor.encode("the cat X", out_type=str)]
    ]
    assert found.tokenizer.encode(">>deu<< the cat X") == expected
    assert found.tokenizer.eos_id == 0
    assert found.settings.architecture.tied_embeddings == "all"
    (folder / "target.spm").unlink()
    with pytest.raises(UserError, match=r"has no target\.spm beside the other language's model"):
        import_marian(folder)


def test_vocabularies_that_are_sentencepiece_models(tmp_path, untried):
    folder = tmp_path / "theirs"
    folder.mkdir()
    model = trained(folder / "vocab", ["the cat sat on the mat", "a dog and the cat"])
    (folder / "vocab.model").rename(folder / "vocab.spm")
    tensors, settings = random_model(tied="all")
    tensors["Wemb"] = np.resize(tensors["Wemb"], (24, 12))
    tensors["decoder_ff_logit_out_b"] = np.resize(tensors["decoder_ff_logit_out_b"], (1, 24))
    write_npz(folder / "model.npz", tensors, settings)
    found = import_marian(folder)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    assert found.pieces == processor.id_to_piece(list(range(24)))
    tokenizer = found.tokenizer(found.settings("und", "und"))
    assert tokenizer.encode("a dog sat") == processor.encode("a dog sat")
    with pytest.raises(UserError, match=r"one\.spm has no use: the vocabularies are Sentence"):
        import_marian(folder, TextFiles(sentencepiece=folder / "one.spm"))
    write_vocabulary(folder / "list.yml", TARGET)
    files = TextFiles(folder / "vocab.spm", folder / "list.yml")
    with pytest.raises(UserError, match=r"are of two kinds; both must be \.spm files, or none"):
        import_marian(folder, files)


def test_marks_of_whitespace_vocabularies_come_first(tmp_path):
    tensors = write_folder(tmp_path / "theirs")
    pieces = ["eos", "UNK", "<s>", *TARGET[3:]]  # names of Nematus, and a word that looks so
    write_vocabulary(tmp_path / "theirs/vocab.trg.yml", [*pieces, "beyond"])
    found = import_marian(tmp_path / "theirs")
    assert found.pieces == ["<unk>", "<s>", "</s>", "<s>", *TARGET[3:]]
    bias, theirs = found.weights["output_bias"], tensors["decoder_ff_logit_out_b"][0]
    assert list(bias) == [theirs[1], -100, theirs[0], *theirs[2:]]
    output = found.weights["output_weight"]
    assert not output[1].any()
    assert sorted(output[3]) == sorted(tensors["decoder_ff_logit_out_Wt"][2])


def test_pieces_of_subword_nmt_are_joined(tmp_path):
    write_folder(tmp_path / "theirs")
    pieces = [*TARGET[:2], *(f"{piece}@@" for piece in TARGET[2:-3]), *TARGET[-3:]]
    write_vocabulary(tmp_path / "theirs/vocab.trg.yml", pieces)
    assert run_import(tmp_path / "theirs", "--output", tmp_path / "ours").exit_code == 0
    model = load_model(tmp_path / "ours")
    ids = model.tokenizer.encode("t0@@ t1@@ t8 t9", "target")
    assert model.tokenizer.decode(ids) == "t0t1t8 t9"


def test_a_piece_with_white_space_that_separates_nothing_there_gets_a_name(tmp_path):
    """Marian separates pieces at spaces only, so a word may hold a no-break space."""
    write_folder(tmp_path / "theirs")
    lines = [f"{piece}: {number}\n" for number, piece in enumerate(SOURCE[:-2])]
    lines += ["10\u00a0000@@: 9\n", '? "\\u2581\\Nx"\n: 10\n']
    (tmp_path / "theirs/vocab.src.yml").write_text("".join(lines))
    assert run_import(tmp_path / "theirs", "--output", tmp_path / "ours").exit_code == 0
    tokenizer = load_model(tmp_path / "ours").tokenizer
    assert tokenizer.pieces([9, 10, 11], "source") == [
        *(SOURCE[-3], "<unreachable:10>", "<unreachable:11>")
    ]
    assert tokenizer.encode("s6 10\u00a0000@@") == [9, tokenizer.unk_id, tokenizer.unk_id]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"type": "amun"}, "its type is 'amun', not transformer"),
        (
            {"transformer_decoder_autoreg": "average-attention"},
            "its transformer-decoder-autoreg is 'average-attention'",
        ),
        ({"transformer_ffn_depth": 3}, "its transformer-ffn-depth is 3"),
        ({"transformer_tied_layers": "[1, 1]"}, "its transformer-tied-layers is ['1', '1']"),
        ({"input_types": "[class]"}, "its input-types is ['class']"),
        ({"right_left": "true"}, "its right-left is 'true'"),
        ({"transformer_postprocess": "h"}, "transformer-postprocess 'h', transformer-post"),
        ({"transformer_postprocess_top": "n"}, "only post-norm (dan) and pre-norm (n, da, n)"),
        ({"transformer_ffn_activation": "tanh"}, "its transformer-ffn-activation is 'tanh'"),
        ({"transformer_postprocess_emb": "na"}, "its transformer-postprocess-emb is 'na'"),
        ({"transformer_heads": 5}, "its heads do not divide its dim-emb 12"),
        ({"transformer_train_positions": "true"}, "1 tensor missing: Wpos"),
        (
            {"tied_embeddings": "true"},
            "decoder_ff_logit_out_Wt is not decoder_Wemb, as its options say",
        ),
        ({"tied_embeddings_src": "true"}, "1 tensor missing: Wemb; 2 tensors unknown: encoder_We"),
        ({"output_omit_bias": "true"}, "1 tensor unknown: decoder_ff_logit_out_b"),
        ({"dim_emb": "many"}, "its dim-emb is 'many'"),
        ({"dim_emb": 9999996}, "encoder_Wemb has the shape [11, 12], not [11, 9999996]"),
        ({"enc_depth": 9999999}, "it has 2 layers of the encoder, not 9,999,999"),
        ({"transformer_dim_ffn": 9999999}, "has the shape [10, 12], not [9999999, 12]"),
        ({"enc_depth": 1}, "16 tensors unknown: encoder_l2_self_Wq"),
    ],
)
def test_other_architectures_are_refused(folder, settings, reason):
    spoil(folder, **settings)
    with pytest.raises(UserError, match=re.escape(reason)) as caught:
        import_marian(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"dec_cell": "gru"}, "its dec-cell is 'gru'"),
        ({"layer_normalization": "true"}, "its layer-normalization is 'true'"),
        ({"transformer_rnn_projection": "true"}, "its transformer-rnn-projection is 'true'"),
    ],
)
def test_other_recurrent_decoders_are_refused(folder, settings, reason):
    spoil(folder, recurrent=True, **settings)
    with pytest.raises(UserError, match=re.escape(f"model.npz cannot be imported: {reason}.")):
        import_marian(folder)
    spoil(folder, **settings)  # a Transformer does not use these options
    assert import_marian(folder).architecture.decoder == "attention"


def test_matrices_that_the_settings_ask_for_are_missed(folder):
    def without(tensors):
        return {name: array for name, array in tensors.items() if "logit_out" not in name}

    spoil(folder, without)
    names = "2 tensors missing: decoder_ff_logit_out_Wt, decoder_ff_logit_out_b"
    with pytest.raises(UserError, match=names):
        import_marian(folder)


def test_all_reasons_are_listed_at_once(folder):
    def spoilt(tensors):
        del tensors["encoder_l1_ffn_W2"]
        tensors["decoder_l1_self_bo"] = np.zeros((1, 3), np.float32)
        tensors["decoder_ff_logit_out_b"][0, 5] = np.nan
        return {**tensors, "more": np.zeros(3, np.float32), "x_W": np.zeros(3, np.int8)}

    write_vocabulary(folder / "vocab.src.yml", SOURCE[:-1])
    spoil(folder, spoilt, right_left="true")
    with pytest.raises(UserError) as caught:
        import_marian(folder)
    message = str(caught.value)
    assert message.startswith(f"{folder}/model.npz cannot be imported: ")
    assert "\n" not in message
    for reason in (
        "its right-left is 'true'",
        "1 tensor not in fp16 or fp32, give the model from before it was quantized: x_W (int8)",
        "1 tensor missing: encoder_l1_ffn_W2",
        "1 tensor unknown: more",
        "decoder_l1_self_bo has the shape [3], not [12]",
        "decoder_ff_logit_out_b holds a number that is not finite",
        "vocab.src.yml has 10 pieces, its matrix 11 rows",
    ):
        assert reason in message, message


def test_vocabularies_of_other_sizes_or_without_marks_are_refused(folder):
    for lines, reason in (
        (
            "</s>: 0\n<unk>: 1\na: 1\n",
            "numbers in new.yml are not 0 to 2, each once; new.yml has 3",
        ),
        ("".join(f"x{n}: {n}\n" for n in range(11)), "new.yml has no <unk> and no </s>"),
        ("".join(f"'x y': {n}\n" for n in range(1)), "new.yml has 1 pieces, its matrix 11 rows"),
    ):
        (folder / "new.yml").write_text(lines)
        files = TextFiles(folder / "new.yml", folder / "vocab.trg.yml")
        with pytest.raises(UserError, match=re.escape(reason)):
            import_marian(folder / "model.npz", files)
    write_vocabulary(folder / "new.yml", [*SOURCE[:-1], "two words"])
    with pytest.raises(UserError, match="holds 'two words', which is not one word"):
        import_marian(folder, files)


def test_files_are_found_by_their_names(folder):
    (folder / "model.npz.optimizer.npz").write_bytes(b"")
    assert (import_marian(folder).source_pieces or [])[3:] == SOURCE[2:]
    (folder / "model.npz.decoder.yml").write_text(  # names of the machine that trained it
        "vocabs:\n  - /home/x/vocab.trg.yml\n  - ../../vocab.trg.yml\n"
    )
    # Marian, too, takes the first pieces if the matrix has fewer rows.
    assert (import_marian(folder).source_pieces or [])[3:] == TARGET[2 : len(SOURCE)]
    (folder / "model.npz.decoder.yml").unlink()
    for side in ("src", "trg"):
        (folder / f"vocab.{side}.yml").rename(folder / f"{side}vocab.ende.yml")
    assert (import_marian(folder).source_pieces or [])[3:] == SOURCE[2:]
    (folder / "srcvocab.ende.yml").rename(folder / "vocab.one.yml")
    (folder / "trgvocab.ende.yml").rename(folder / "vocab.trg.yml")
    with pytest.raises(UserError, match="name them with --source-vocabulary and --target-voc"):
        import_marian(folder)
    result = run_import(
        *(folder / "model.npz", "--output", folder / "ours"),
        *("--source-vocabulary", folder / "vocab.one.yml"),
        *("--target-vocabulary", folder / "vocab.trg.yml"),
    )
    assert result.exit_code == 0, result.output
    assert load_model(folder / "ours").tokenizer.source_size == len(SOURCE) + 1
    (folder / "two.npz").write_bytes(b"")
    with pytest.raises(
        UserError, match=r"must hold one file \*\.npz or \*\.bin, but holds model\.npz, two"
    ):
        import_marian(folder)


@pytest.mark.parametrize(
    ("arguments", "status", "reason"),
    [
        (["--target-vocabulary", "x"], 2, "--target-vocabulary needs --source-vocabulary beside"),
        (["--target-sentencepiece", "x"], 2, "--target-sentencepiece x needs --sentencepiece"),
        (["--source-vocabulary", "nowhere.yml"], 1, "nowhere.yml not found"),
        (["--sentencepiece", "nowhere.spm"], 1, "nowhere.spm not found"),
        (["--source-vocabulary", "vocab.fsv"], 1, "vocab.fsv has factors, which cannot be import"),
    ],
)
def test_wrong_use_of_the_command(folder, arguments, status, reason):
    result = run_import(folder, *arguments, "--output", folder / "ours")
    assert result.exit_code == status
    assert reason in result.output
    assert not (folder / "ours").exists()


def test_what_is_no_model_is_refused(tmp_path):
    for path, reason in (
        (tmp_path, "must hold one file *.npz or *.bin, but holds none; name the file"),
        (tmp_path / "model.bin", "is no .npz file, and no .bin file of marian-conv; of Marian's"),
    ):
        if path.suffix:
            path.write_bytes(b"")
        with pytest.raises(UserError, match=re.escape(reason)):
            import_marian(path)


NO = "is not that of an array of numbers"


def refused(path, reason=None):
    with pytest.raises(DamagedError, match=reason) as caught:
        read_archive(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def header(text):
    content = text.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(content).to_bytes(2, "little") + content


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("../../a.npy", b"", "which names no tensor"),
        ("a\nb.npy", b"", "which names no tensor"),
        ("a", b"", "which names no tensor"),
        ("a.npy", b"", "is no array"),
        ("a.npy", b"\x93NUMPY\x09\x00", "is no array"),
        ("a.npy", header("{'descr': '<f4', 'fortran_order': False, 'shape': (10**12,)}"), NO),
        (
            "a.npy",
            header("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 7)}"),
            "0 bytes for the shape",
        ),
        ("a.npy", header("{'descr': '<f4', 'fortran_order': False, 'shape': (0, )}"), "shape"),
        ("a.npy", header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}"), NO),
        ("a.npy", header("{'descr': '|O', 'fortran_order': False, 'shape': ()}"), NO),
        ("a.npy", header("{'descr': '<f1', 'fortran_order': False, 'shape': ()}"), NO),
        ("a.npy", header("__import__('os').system('true')"), NO),
        ("a.npy", header("(" * 9000), NO),
        ("a.npy", header("{"), NO),
        ("special:model.yml.npy", header("{}"), NO),
    ],
)
def test_archives_without_sense_are_refused_in_one_line(tmp_path, name, content, reason):
    path = tmp_path / "model.npz"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(zipfile.ZipInfo(name), content)
    tracemalloc.start()
    refused(path, reason)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000


def test_damaged_archives_are_refused_in_one_line(tmp_path):
    path = tmp_path / "model.npz"
    np.savez(path, a=np.ones(40, np.float32))
    refused(path, "it has no special:model.yml")
    data = path.read_bytes()
    for damaged in (data[:0], data[:100], data[:-9], data[:200] + b"\xff" + data[201:]):
        path.write_bytes(damaged)
        refused(path)
    np.savez_compressed(path, a=np.ones(40, np.float32))
    refused(path, r"'a\.npy' is compressed; use numpy\.savez")
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a.npy", b"")
    with zipfile.ZipFile(path, "a") as file, pytest.warns(UserWarning, match="Duplicate"):
        file.writestr("a.npy", b"")
    refused(path)


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (("a/b", 0x404, (2,), bytes(8)), "it holds 'a/b', which names no tensor"),
        (("a", 0x404, (), bytes(8)), "a has the shape []"),
        (("a", 0x404, (2, -2), bytes(8)), "a has the shape [2, -2]"),
        (("a", 0x404, (9, 9), bytes(8)), "it ends too early"),
        (("a", 0x404, (2**31 - 1,) * 9, bytes(8)), "it ends too early"),
        (("a", 0x4101, (16, 16), bytes(260)), "a was multiplied by 0.0"),
        (("a", 0x10001, (16, 16), bytes(256)), "it ends too early"),
        (("a", 0x10001, (16, 8), b"\1" * 256), "unless sizes are multiples of 16"),
        (("a", 0x11001, (2,), bytes(8)), "it has no special:model.yml"),
    ],
)
def test_items_without_sense_are_refused_in_one_line(tmp_path, item, reason):
    name, *content = item
    path = tmp_path / "model.bin"
    path.write_bytes(binary({name: content}))
    refused(path, re.escape(reason))


def test_integers_in_an_order_of_a_processor_are_refused(folder):
    tensors, settings = random_model()
    items = {name: (0x404, array.shape, array.tobytes()) for name, array in tensors.items()}
    items["encoder_l1_ffn_W1"] = 0x11001, (12, 10), bytes(124)  # for AVX2
    items["special:model.yml"] = 0x101, (len(settings),), settings.encode()
    (folder / "model.bin").write_bytes(binary(items))
    with pytest.raises(
        UserError, match=r"before it was quantized: encoder_l1_ffn_W1 \(type 0x11001"
    ):
        import_marian(folder / "model.bin")


def test_damaged_binaries_are_refused_in_one_line(tmp_path):
    path = tmp_path / "model.bin"
    data = binary({"a": (0x404, (70,), bytes(280))})
    for length in (*range(0, 260, 9), len(data) - 1):
        path.write_bytes(data[:length])
        refused(path, "is not a .bin file of Marian, or is damaged: it ends too early")
    path.write_bytes(data[:8] + b"\xff" * 8 + data[16:])
    refused(path, "it ends too early")
    path.write_bytes(b"\2" + data[1:])
    refused(path, "it does not begin with 1")


@pytest.mark.parametrize("name", CALLS)
def test_pickles_in_archives_are_never_loaded(tmp_path, name):
    path, marker = tmp_path / "model.npz", tmp_path / "ran"
    pickled = header("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}")
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("special:model.yml.npy", pickled + calling(name, marker))
    refused(path, NO)
    path.write_bytes(calling(name, marker))
    refused(path, "zip")
    assert not marker.exists()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ("a: &a [*a]\n", "model.npz: special:model.yml:1: anchors and aliases"),
        ("a: !!python/object/apply:os.system [true]\n", "tags"),
        ("- 1\n", "it has no keys"),
        ("a: 1\na: 2\n", "is given twice"),
        ("a: " + "[" * 30, "levels of nesting"),
        ("x" * 1_000_001, "it is longer than 1,000,000 characters"),
        ("a: b: c\n", "not YAML"),
        ("", "it has no keys"),
    ],
)
def test_settings_that_make_no_sense_are_refused_in_one_line(folder, settings, reason):
    write_npz(folder / "model.npz", {}, settings)
    with pytest.raises(DamagedError, match=re.escape(reason)) as caught:
        import_marian(folder)
    assert "\n" not in str(caught.value)
