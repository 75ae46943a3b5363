import gzip
import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from nmt_cli.corpus import chunk_pool
from nmt_cli.corpus.chunk_pool import ChunkPool
from nmt_cli.corpus.text import parallel_text
from nmt_cli.corpus.tokenizers import sentencepiece_tokenizer
from nmt_cli.files.atomic_files import SEAL, seal_of
from nmt_cli.hardware import cpu
from nmt_cli.hardware.cpu import Cores
from nmt_cli.messages import logs
from nmt_cli.messages.errors import DamagedError, UserError
from tests.real_text import real_file

ROOT = Path(__file__).parent.parent.parent


def decoded(text, tokenizer):
    tokens, lengths = text.gather(np.arange(len(text)))
    parts = np.split(tokens, np.cumsum(lengths)[:-1])
    assert all(part[-1] == tokenizer.eos_id for part in parts)
    return [tokenizer.decode(part[:-1].tolist()) for part in parts]


def test_all_pairs_of_all_corpora_come_back(corpus):
    corpus.prepare()
    prepared = corpus.opened()
    assert prepared.corpus_sizes == (80, 30)
    assert decoded(prepared.source, prepared.tokenizer) == [
        *corpus.sentences(80, 0),
        *corpus.sentences(30, 2),
    ]
    assert decoded(prepared.target, prepared.tokenizer) == [
        *corpus.sentences(80, 1),
        *corpus.sentences(30, 3),
    ]
    assert decoded(prepared.validation[0].source, prepared.tokenizer) == corpus.sentences(20, 4)
    assert prepared.validation[0].lines("target") == corpus.sentences(20, 5)
    assert prepared.manifest["tokens"]["train"]["source"] == prepared.source.num_tokens
    assert corpus.beside_output() == ["small"]


def test_a_tokenizer_learns_from_corpora_as_often_as_they_are_in_training(corpus, monkeypatch):
    monkeypatch.setattr(parallel_text, "PAIRS_IN_CHUNK", 7)
    seen = []

    def train(sentences, *_):
        seen.extend(sentences)
        return b""  # which no tokenizer can be made of

    monkeypatch.setattr(sentencepiece_tokenizer, "train_model", train)
    with pytest.raises(DamagedError):
        corpus.prepare("data.train.1.weight=8", "tokenizer.shared=true")
    of_small = Counter(each for each in seen if each in corpus.sentences(30, 2))
    assert len(seen) == 2 * 110  # (80 + 8 * 30) * 0.344: 82.5 of the small one, 2.75 for each
    assert sum(of_small.values()) == 82
    assert {*of_small} == {*corpus.sentences(30, 2)}
    assert {*of_small.values()} == {2, 3}


def test_the_same_input_gives_the_same_bytes_anywhere(corpus, tmp_path_factory, monkeypatch):
    first = corpus.prepare(workers=1)
    assert corpus.prepare(force=True) == first
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "data").symlink_to(corpus.folder / "data")
    (elsewhere / "small.yaml").write_text(Path("small.yaml").read_text())
    code = (
        "from nmt_cli.corpus import chunk_pool; from nmt_cli.corpus.text import parallel_text;"
        "from nmt_cli.commands.preprocess import run;"
        "chunk_pool.PAIRS_IN_CHUNK = parallel_text.PAIRS_IN_CHUNK = 7;"
        "run(recipe='./small.yaml', workers=2)"
    )
    subprocess.run(
        [sys.executable, "-c", code],
        cwd=elsewhere,
        env={**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": str(ROOT), "LC_ALL": "C"},
        check=True,
    )
    assert corpus._replace(folder=elsewhere).hashes() == first
    for path in Path("prepared/small").iterdir():
        assert str(corpus.folder).encode() not in path.read_bytes()


def test_chunks_of_any_size_give_the_same_bytes(corpus, monkeypatch):
    first = corpus.prepare(workers=1)
    monkeypatch.setattr(parallel_text, "PAIRS_IN_CHUNK", 3)
    monkeypatch.setattr("nmt_cli.files.lines.READ_AT_ONCE", 50)
    assert corpus.prepare(workers=1, force=True) == first


def test_no_more_workers_than_pay_off(monkeypatch):
    monkeypatch.setattr(cpu, "cores", lambda: Cores(64, quota=8.0))
    by_default, three = ChunkPool(Path(), None), ChunkPool(Path(), 3)
    assert by_default.useful_workers(100, 20_000) == 1
    assert by_default.useful_workers(50_000, 20_000) == 3
    assert by_default.useful_workers(10**9, 20_000) == 8
    assert three.useful_workers(10**9, 20_000) == 3
    assert three.useful_workers(100, 20_000) == 1


def die(*_):
    os._exit(1)


def test_a_dead_encoding_process_is_reported(corpus, monkeypatch):
    monkeypatch.setattr(chunk_pool, "PAIRS_IN_CHUNK", 70)  # which makes one chunk of each corpus
    monkeypatch.setattr(chunk_pool, "_work_in_worker", die)
    with pytest.raises(UserError, match=r"^one of 2 encoding processes died, perhaps because "):
        corpus.prepare(workers=2)
    assert not Path("prepared").exists()


def planted():
    """Pairs with what each rule should find, and the line numbers that it should find it on."""
    generator = random.Random(9)
    pairs = [(f"x{i} {generator.choice('uvw')} a b", f"y{i} c d") for i in range(60)]
    expected: dict[str, list[int]] = {"empty": [3, 14, 40], "duplicate": [21, 22, 59]}
    expected |= {"too_long": [5, 30], "too_short": [8], "length_ratio": [11, 12]}
    for line, pair in {3: ("", "y"), 14: ("x", " \u200b\u3000"), 40: ("\u2028", "")}.items():
        pairs[line - 1] = pair
    for line, original in {21: 20, 22: 20, 59: 1}.items():
        pairs[line - 1] = pairs[original - 1]
    pairs[5 - 1] = ("w " * 13, "w " * 12)
    pairs[30 - 1] = ("w " * 12, "v " * 13)
    pairs[8 - 1] = ("a", "a b")
    pairs[11 - 1] = ("a b c d e f g", "a b c")
    pairs[12 - 1] = ("a b", "a b c d e")
    return pairs, expected


def test_what_is_dropped_is_counted_by_rule_with_its_lines(corpus):
    pairs, expected = planted()
    corpus.write("data/a.en", [source for source, _ in pairs])
    corpus.write("data/a.de", [target for _, target in pairs])
    settings = [
        "data.train=[{source: data/a.en, target: data/a.de}]",
        "data.filters.remove_duplicates=true",
        "data.filters.max_length_ratio=2",
        "data.filters.min_length=2",
        "data.max_length=12",
        "tokenizer={type: whitespace}",
    ]
    corpus.prepare(*settings)
    prepared = corpus.opened(*settings)
    report = prepared.manifest["train"][0]
    assert {rule: dropped["first_lines"] for rule, dropped in report["dropped"].items()} == expected
    assert {rule: dropped["count"] for rule, dropped in report["dropped"].items()} == {
        rule: len(lines) for rule, lines in expected.items()
    }
    num_dropped = sum(map(len, expected.values()))
    assert report["pairs_read"] == 60
    assert prepared.corpus_sizes == (60 - num_dropped,)
    gone = {line for lines in expected.values() for line in lines}
    kept = [pair for line, pair in enumerate(pairs, start=1) if line not in gone]
    assert decoded(prepared.source, prepared.tokenizer) == [pair[0] for pair in kept]
    assert decoded(prepared.target, prepared.tokenizer) == [pair[1] for pair in kept]


def test_what_is_only_found_is_counted_and_kept(corpus):
    validation = list(zip(corpus.sentences(20, 4), corpus.sentences(20, 5), strict=True))
    pairs = [("a b", "a b"), *validation[:3], ("c", "d"), ("c", "d"), ("", ""), ("c", "d")]
    corpus.write("data/a.en", [source for source, _ in pairs])
    corpus.write("data/a.de", [target for _, target in pairs])
    Path("data/b.de").write_bytes(b"\xff\n" + b"\xe2\x80 b \xfe\n" * 2 + "\ufffd\n".encode() * 27)
    corpus.prepare()
    first, second = corpus.opened().manifest["train"]
    assert (
        first["found"]
        == {
            "duplicates": None,  # looked for only where they are removed
            "equal_sides": 1,
            "also_in_validation": 3,
            "also_in_test": 0,
            "in_pieces": 0,
            "one_sentence": {"lines": 1, "of": 1},  # of the first pair, as of every tenth
            "lines_with_invalid_utf8": {"source": 0, "target": 0},
            "like_validation": {
                "count": 3,
                "first_lines": [2, 3, 4],
                "examples": [
                    {"line": line, "source": source, "target": target}
                    for line, (source, target) in enumerate(validation[:3], 2)
                ],
            },
        }
    )
    assert second["found"]["lines_with_invalid_utf8"] == {"source": 0, "target": 3}
    assert corpus.opened().corpus_sizes == (7, 30)


def test_validation_keeps_every_line_as_text_and_the_usual_ones_for_the_loss(corpus):
    corpus.write("data/val.en", ["one", "", "three\u2028\r", "w " * 13, "five"])
    corpus.write("data/val.de", ["eins", "zwei", "drei\r", "v", "\u200b"])
    settings = ["data.max_length=12", "tokenizer={type: whitespace}"]
    corpus.prepare(*settings)
    prepared = corpus.opened(*settings)
    assert prepared.validation[0].lines("source") == ["one", "", "three ", "w " * 13, "five"]
    assert prepared.validation[0].lines("target") == ["eins", "zwei", "drei", "v", "\u200b"]
    assert len(prepared.validation[0].source) == len(prepared.validation[0].target) == 2
    dropped = prepared.manifest["validation"]["dropped"]
    assert dropped["empty"]["first_lines"] == [2, 5]
    assert dropped["too_long"]["first_lines"] == [4]


def test_twelve_compressed_shards_stay_in_order(corpus):
    shards = []
    for shard in range(12):
        suffix = (".gz", ".xz", "")[shard % 3]
        for side in ("en", "de"):
            corpus.write(f"data/{shard}.{side}{suffix}", [f"{side} {shard} {i}" for i in range(5)])
        shards.append(f"{{source: data/{shard}.en{suffix}, target: data/{shard}.de{suffix}}}")
    settings = [f"data.train=[{', '.join(shards)}]", "tokenizer={type: whitespace}"]
    corpus.prepare(*settings)
    prepared = corpus.opened(*settings)
    assert prepared.corpus_sizes == (5,) * 12
    assert decoded(prepared.source, prepared.tokenizer) == [
        f"en {shard} {i}" for shard in range(12) for i in range(5)
    ]
    assert decoded(prepared.target, prepared.tokenizer) == [
        text.replace("en", "de") for text in decoded(prepared.source, prepared.tokenizer)
    ]


def test_an_existing_model_is_taken_over(corpus):
    corpus.prepare()
    Path("prepared/small/tokenizer.model").rename("own.model")
    settings = ["tokenizer={model: own.model}"]
    corpus.prepare(*settings, force=True)
    prepared = corpus.opened(*settings)
    assert decoded(prepared.source, prepared.tokenizer)[:80] == corpus.sentences(80, 0)


def test_the_report_states_what_was_kept_and_where(corpus, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(logs, "info", said.append)
    corpus.write("data/a.en", ["", *corpus.sentences(79, 0)])
    corpus.prepare()
    assert said.pop(0).startswith("Note: in all sets, both sides are in lower case. ")
    assert said[0] == "Training a bpe tokenizer on 218 sentences."
    assert said[1] == "prepared/small holds 109 of 110 training pairs."
    assert said[2] == "  dropped     1 with an empty side (lines in manifest.json)"
    assert said[3].endswith(" tokens, 0.00% unknown")
    assert said[5:] == [
        "  vocabulary  300 pieces",
        "  validation  20 pairs, 20 of them for the loss, 0.00% of source and 0.00% of target "
        "unknown",
    ]


def test_reading_shows_about_how_many_pairs_there_are(corpus, capsys, monkeypatch):
    logs.configure(quiet=False)
    monkeypatch.setattr(logs, "SECONDS_BETWEEN_PLAIN_REPORTS", 0.0)
    monkeypatch.setattr(parallel_text, "PAIRS_IN_CHUNK", 10)
    monkeypatch.setattr("nmt_cli.files.lines.READ_AT_ONCE", 200)
    monkeypatch.setattr("nmt_cli.files.text_files.READ_AT_ONCE", 200)
    corpus.prepare()
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("reading: ")]
    assert len(lines) > 10
    counts = [re.match(r"reading: (\d+) of about (\d+) pairs, .* left$", line) for line in lines]
    estimates = [int(count[2]) for count in counts if count]
    assert len(estimates) == len(lines)
    assert estimates[3:] == pytest.approx([130] * len(estimates[3:]), rel=0.5)
    assert lines[-1].startswith("reading: 130 of about 130 pairs, ")


def test_real_text_with_odd_characters_keeps_its_pairs(corpus):
    dirty, news = real_file("dirty"), real_file("newstest", "newstest2009.en-de")
    europarl = real_file("europarl", "europarl-v7.fr-en")
    files = [
        (dirty / "opennmt-toy.train.en", dirty / "opennmt-toy.train.de"),
        (f"{europarl}.en.gz", f"{europarl}.fr.gz"),
    ]
    train = ", ".join(f"{{source: {source}, target: {target}}}" for source, target in files)
    settings = [
        f"data.train=[{train}]",
        f"data.validation={{source: {news}.en, target: {news}.de}}",
        "tokenizer.vocabulary_size=500",
        "tokenizer.training_sentences=1000",
    ]
    corpus.prepare(*settings)
    prepared = corpus.opened(*settings)
    reports = [*prepared.manifest["train"], prepared.manifest["validation"]]
    for report, (source, target) in zip(
        reports, [*files, (f"{news}.en", f"{news}.de")], strict=True
    ):
        lines = [raw_lines(Path(source)), raw_lines(Path(target))]
        blank = sum(not a.strip() or not b.strip() for a, b in zip(*lines, strict=True))
        assert report["pairs_read"] == len(lines[0]) == len(lines[1])
        assert report["dropped"]["empty"]["count"] == blank
        assert report["pairs_kept"] == report["pairs_read"] - blank
    assert prepared.manifest["train"][1]["dropped"]["empty"]["count"] == 35
    raw = raw_lines(Path(f"{news}.de"))
    assert any(b"\xc2\x85" in line for line in raw)
    assert prepared.validation[0].lines("target") == [
        line.decode().replace("\x85", " ").replace("\u2028", " ") for line in raw
    ]


def raw_lines(path):
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).split(b"\n")[:-1]


def spoil(path):
    """Put characters into a text that nobody sees, and letters in other forms."""
    lines = Path(path).read_text().splitlines()
    spoilt = [f"\u200e{line[:2]}\u00ad{line[2:]}\u200b".replace("a", "ａ") for line in lines]
    Path(path).write_text("".join(f"{line}\n" for line in spoilt))
    return spoilt


def test_what_nobody_sees_is_left_out_of_new_text(corpus):
    clean = corpus.prepare()
    for path in ("data/a.en", "data/b.de", "data/val.en"):
        spoil(path)
    found = corpus.prepare(force=True)
    assert {name for name in clean if found[name] != clean[name]} == {
        "manifest.json",  # it has the hashes of the texts
        "validation.source.txt",
    }
    assert corpus.opened().manifest["data"]["normalization"]["fold"] is True
    corpus.prepare("data.normalization.fold=false", force=True)
    kept = corpus.opened("data.normalization.fold=false")
    assert "\u00ad" in "".join(decoded(kept.source, kept.tokenizer))
    with pytest.raises(UserError, match=r"normalization\.fold false, the recipe says true"):
        corpus.opened("data.normalization.fold=true")


def test_the_characters_of_the_training_text_are_recorded(corpus):
    """Those that a brute-force count finds on each side, of pairs that were kept."""
    sources, targets = corpus.sentences(80, 0), corpus.sentences(80, 1)
    sources[:3] = [f"ж{sources[0]}", f"{sources[1]} 👍", f"ａ\u00ad {sources[2]}"]
    targets[5] += " é"
    sources[7], targets[7] = "и " * 1500, "x"  # too long
    corpus.write("data/a.en", sources)
    corpus.write("data/a.de", targets)
    corpus.write("data/val.en", ["ы", *corpus.sentences(19, 4)])
    corpus.prepare("tokenizer.user_defined_symbols=['<de>']")
    of_b = "".join([*corpus.sentences(30, 2), *corpus.sentences(30, 3)])
    letters = {*"".join(sources[9:]), *of_b} - {" "}
    manifest = corpus.opened("tokenizer.user_defined_symbols=['<de>']").manifest
    assert manifest["characters"] == {
        "source": "".join(sorted({*letters, *"ж👍<>de"})),
        "target": "".join(sorted({*letters, *"é<>de"})),
    }


def test_augmented_sources_have_more_characters(corpus):
    sources, targets = corpus.sentences(80, 0), corpus.sentences(80, 1)
    corpus.write("data/a.en", [f"{each} é" for each in sources])
    corpus.write("data/a.de", [f"{each} ж" for each in targets])
    corpus.prepare()
    plain = corpus.opened().characters
    assert not plain & {*"ÉAЖж"}
    assert corpus.opened("data.train.0.augment.upper_case=0.1").characters == plain | {
        each.upper() for each in plain
    }
    tags = "tokenizer.user_defined_symbols=['<t>', '</t>']"
    corpus.prepare(tags, force=True)
    corpus.write("terms.tsv", ["a\tb"])
    terms = ["data.train.0.augment.terms=0.1", "data.train.0.augment.glossary=terms.tsv"]
    assert "ж" in corpus.opened(tags, *terms).characters


def test_text_that_was_prepared_before_the_first_release_is_refused(corpus):
    """Its manifests do not have the key."""
    corpus.prepare("data.normalization.fold=false")
    manifest = corpus.output / "manifest.json"
    facts = json.loads(manifest.read_text())
    del facts["data"]["normalization"]["fold"], facts[SEAL]
    manifest.write_text(json.dumps({**facts, SEAL: seal_of(facts)}))
    with pytest.raises(UserError, match=r"^prepared/small was made before release 0\.2\.0 of nmt"):
        corpus.opened("data.normalization.fold=false")


def test_too_few_checkpoints_for_the_average_are_a_warning(corpus, monkeypatch):
    warnings: list[str] = []
    monkeypatch.setattr(logs, "warning", warnings.append)
    corpus.prepare()
    assert not any("checkpoint" in text for text in warnings)
    corpus.prepare("training.max_steps=1600", force=True)
    assert not any("checkpoint" in text for text in warnings)  # 5 is the default
    asked = ["training.max_steps=1600", "checkpoints.keep_for_average=5"]
    corpus.prepare(*asked, force=True)
    (warning,) = (text for text in warnings if "checkpoint" in text)
    assert warning.startswith("small.yaml: checkpoints.keep_for_average is 5, but training.max_")
    assert "make at most 2 checkpoints" in warning
