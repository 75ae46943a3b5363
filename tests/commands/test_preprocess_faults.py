import gzip
import lzma
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nmt_cli.corpus.tokenizers.tokenizer import train_tokenizer
from nmt_cli.files.temporary_names import temporary_path
from nmt_cli.messages import logs
from nmt_cli.messages.errors import DamagedError, OutputError, UserError

ROOT = Path(__file__).parent.parent.parent


def make(path, data=b""):
    def change():
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).write_bytes(data)

    return change


def remove(path):
    return lambda: Path(path).unlink()


TRAIN = "data.train=[{{source: {}, target: data/a.de}}]".format
ROW = "line n of one must translate line n of the other."
NO_TEXT = "is empty; it must hold one sentence per line."
FIX = "correct the text, data.filters or data.max_length."
BAD_INPUTS = [
    (remove("data/a.en"), [], "data/a.en not found; the path is relative to FOLDER."),
    (remove("data/b.de"), [], "data/b.de not found; the path is relative to FOLDER."),
    (remove("data/val.de"), [], "data/val.de not found; the path is relative to FOLDER."),
    (None, [TRAIN("data")], "data is a directory, not a text file."),
    (None, [TRAIN("data/a.en/x")], "data/a.en/x cannot be read: Not a directory."),
    (
        lambda: Path("data/l").symlink_to("gone"),
        [TRAIN("data/l")],
        "data/l not found; the path is relative to FOLDER.",
    ),
    (make("data/a.en"), [], f"data/a.en {NO_TEXT}"),
    (make("data/b.de"), [], f"data/b.de {NO_TEXT}"),
    (make("data/val.en"), [], f"data/val.en {NO_TEXT}"),
    (make("data/b.de", b"a\n" * 31), [], f"data/b,c.en has 30 lines but data/b.de has 31; {ROW}"),
    (
        make("data/val.de", b"a\n" * 19),
        [],
        f"data/val.en has 20 lines but data/val.de has 19; {ROW}",
    ),
    (
        make("data/a.en.gz", gzip.compress(b"text\n")[:-9]),
        [TRAIN("data/a.en.gz")],
        "data/a.en.gz is damaged or not a .gz file: Compressed file ended before the "
        "end-of-stream marker was reached. Get the file again, or correct its name.",
    ),
    (
        make("data/a.en.xz", lzma.compress(b"text\n")[:-9]),
        [TRAIN("data/a.en.xz")],
        "data/a.en.xz is damaged or not a .xz file: it ends too early. "
        "Get the file again, or correct its name.",
    ),
    (
        make("data/a.en.gz", b"plain\n"),
        [TRAIN("data/a.en.gz")],
        "data/a.en.gz is damaged or not a .gz file: Not a gzipped file (b'pl'). "
        "Get the file again, or correct its name.",
    ),
    (
        make("data/a.en", gzip.compress(b"text\n")),
        [],
        "data/a.en is compressed; its name must end in .gz.",
    ),
    (
        make("data/a.en", " \u200b\n".encode() * 80),
        [TRAIN("data/a.en")],
        "every line of data/a.en or its translation in data/a.de is blank.",
    ),
    (
        make("data/val.de", b"\n" * 20),
        [],
        "every line of data/val.en or its translation in data/val.de is blank.",
    ),
    (
        None,
        ["data.max_length=1", "training.tokens_per_step=100"],
        f"no pair of data/a.en and data/a.de is left (dropped: 110 too long); {FIX}",
    ),
    (
        make("data/val.en", (b"abcd " * 200 + b"\n") * 20),
        ["data.max_length=100"],
        f"no pair of data/val.en and data/val.de is left (dropped: 20 too long); {FIX}",
    ),
    (
        None,
        ["data.filters.min_length=500"],
        f"no pair of data/a.en and data/a.de is left (dropped: 110 too short); {FIX}",
    ),
    (
        None,
        ["tokenizer.vocabulary_size=37000"],
        "tokenizer.vocabulary_size 37,000 is more than this text allows; "
        "the largest that works is 512.",
    ),
    (
        None,
        ["tokenizer.vocabulary_size=262"],
        "tokenizer.vocabulary_size 262 is too small for the characters of this text. Raise it to "
        "268 or more, or lower tokenizer.character_coverage, so that rare characters get no piece.",
    ),
    (
        None,
        ["tokenizer={model: own.model}"],
        "own.model not found; the path is relative to FOLDER.",
    ),
    (
        make("own.model", b"no model"),
        ["tokenizer={model: own.model}"],
        "own.model is not a SentencePiece model, or is damaged; get the file again.",
    ),
    (
        None,
        ["tokenizer.user_defined_symbols=['<0x00>']"],
        "tokenizer.user_defined_symbols: <0x00> is a piece of every model already; remove it.",
    ),
    (make("prepared"), [], "prepared cannot be used: Not a directory; choose another --prepared."),
    (
        make("file", b"mine"),
        ["data.prepared=file"],
        "file is a file; choose another --prepared.",
    ),
    (
        make("mine/thesis.tex", b"mine"),
        ["data.prepared=mine"],
        "mine holds thesis.tex, which preprocess did not write; choose another --prepared.",
    ),
]


@pytest.mark.parametrize(("change", "overrides", "message"), BAD_INPUTS)
def test_bad_input_is_one_line_and_leaves_nothing(corpus, change, overrides, message):
    if change is not None:
        change()
    before = set(corpus.folder.rglob("*"))
    with pytest.raises(UserError) as caught:
        corpus.prepare(*overrides, force=True)
    assert str(caught.value).replace(str(Path.cwd()), "FOLDER") == message
    assert set(corpus.folder.rglob("*")) - before <= {corpus.folder / "prepared"}
    assert caught.value.exit_status == 1


def test_existing_output_is_kept_without_force(corpus):
    before = corpus.prepare()
    with pytest.raises(UserError) as caught:
        corpus.prepare("tokenizer.vocabulary_size=310")
    assert str(caught.value) == "prepared/small already exists; add --force to replace it."
    with pytest.raises(UserError):
        corpus.prepare("tokenizer.vocabulary_size=37000", force=True)
    assert corpus.hashes() == before
    assert corpus.prepare("tokenizer.vocabulary_size=310", force=True) != before
    assert corpus.beside_output() == ["small"]


def test_what_is_up_to_date_stays(corpus, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(logs, "info", said.append)
    before = corpus.prepare()
    made = Path("prepared/small/manifest.json").stat().st_mtime_ns
    corpus.prepare()
    assert said[-1] == "prepared/small is made of this recipe and its text; unchanged."
    assert Path("prepared/small/manifest.json").stat().st_mtime_ns == made
    corpus.write("data/a.de", ["ein anderer Satz", *corpus.sentences(79, 1)])
    with pytest.raises(UserError, match=r"^prepared/small already exists; add --force to "):
        corpus.prepare()
    assert corpus.hashes() == before


def test_text_that_changes_while_it_is_read_is_noticed(corpus, monkeypatch):
    def grow_and_train(*arguments):
        corpus.write("data/b.de", corpus.sentences(31, 3))
        corpus.write("data/b,c.en", corpus.sentences(31, 2))
        return train_tokenizer(*arguments)

    monkeypatch.setattr("nmt_cli.commands.preprocess.train_tokenizer", grow_and_train)
    with pytest.raises(UserError, match=r"^data/b,c\.en or data/b\.de changed while it was read"):
        corpus.prepare()


@pytest.mark.parametrize("share", [0.01, 0.2, 0.6, 0.95])
def test_a_full_disk_ends_with_74_and_keeps_the_previous_state(corpus, share):
    before = corpus.prepare()
    largest = max(path.stat().st_size for path in corpus.output.iterdir())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(largest * share), limits[1]))
    try:
        with pytest.raises(OutputError) as caught:
            corpus.prepare(force=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.exit_status == 74
    assert str(caught.value).startswith("prepared/small could not be written: File too large.")
    assert corpus.hashes() == before
    assert corpus.beside_output() == ["small"]


def test_a_killed_run_leaves_nothing_that_train_takes_and_the_next_run_cleans_up(corpus):
    code = (
        "import signal; from nmt_cli.commands import preprocess;"
        "preprocess.train_tokenizer = lambda *a: signal.pause();"
        "preprocess.run(recipe='./small.yaml')"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", code], env=env) as process:
        waited_until = time.monotonic() + 30
        while not list(Path().glob("prepared/.partial-*/validation.target.txt")):
            assert time.monotonic() < waited_until
            time.sleep(0.01)
        at_work = corpus.beside_output()
        with pytest.raises(UserError, match=rf"^prepared/small is in use: process {process.pid} "):
            corpus.prepare()
        assert corpus.beside_output() == at_work
        process.send_signal(signal.SIGKILL)
    temporary_path(Path("prepared/small"), "delete").mkdir()
    with pytest.raises(UserError, match=r"^prepared/small not found\. Run: nmt-cli preprocess "):
        corpus.opened()
    corpus.prepare()
    assert corpus.beside_output() == ["small"]


def test_a_damaged_corpus_is_replaced_with_force(corpus):
    corpus.prepare()
    (corpus.output / "manifest.json").write_text("{")
    with pytest.raises(DamagedError, match=r" Run: nmt-cli preprocess small --force$"):
        corpus.opened()
    corpus.prepare(force=True)
    corpus.opened()
