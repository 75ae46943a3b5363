"""A translation that was killed or interrupted goes on, to the same bytes."""

import gzip
import io
import os
import random
import re
import shlex
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.commands import translate as command
from nmt_cli.commands.lines import (
    line_windows,
    resumable_output,
    translation_record,
)
from nmt_cli.commands.lines.line_windows import windows
from nmt_cli.commands.lines.resumable_output import ResumableOutput
from nmt_cli.commands.lines.translation_record import hash_of
from nmt_cli.hardware import cpu
from nmt_cli.hardware.cpu import Cores
from nmt_cli.search.sentences import Sampling
from nmt_cli.translating.interface.options import Constraints, TranslatorOptions
from nmt_cli.translating.interface.translation import Translation
from nmt_cli.translating.translator import Translator
from tests.compressed import UNPACK
from tests.folders_in_memory import tmp_path as tmp_path
from tests.tagging import StandIn

LINES = [f"line {number}" for number in range(1, 101)]
READ = {"": bytes, **UNPACK}


class WindowTranslator(StandIn):
    """Answers each line with its window, so that windows with other borders show."""

    chosen: ClassVar = {"model": "a" * 64, "precision": "fp32"}
    num_translated = 0
    interrupts_at: ClassVar[dict[str, BaseException]] = {}

    def translate_window(self, requests):
        lines = [request.text for request in requests]
        for line in lines:
            if line in self.interrupts_at:
                raise self.interrupts_at[line]
        WindowTranslator.num_translated += len(lines)
        return self.answers(lines)

    def answers(self, lines):
        return [self.answer(line, lines) for line in lines]

    def answer(self, line, lines):
        if line.endswith("13"):
            return Translation(error="it has bad luck")
        return Translation(f"{line} of {len(lines)} from {lines[0]}")


def expected_text(lines=LINES, size=7):
    translator = WindowTranslator()
    answers = [
        answer.text
        for start in range(0, len(lines), size)
        for answer in translator.answers(lines[start : start + size])
    ]
    return "".join(f"{answer}\n" for answer in answers).encode()


@pytest.fixture
def translate(monkeypatch, tmp_path):
    """Run ``nmt-cli translate model --input in`` with more arguments; return click's result."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(WindowTranslator, "num_translated", 0)
    monkeypatch.setattr(WindowTranslator, "interrupts_at", {})
    monkeypatch.setattr(Translator, "load", lambda *_, **__: WindowTranslator())
    monkeypatch.setattr(
        translation_record, "fingerprints", lambda _: WindowTranslator.chosen["model"]
    )
    # Other processes would load the model that this one replaces.
    monkeypatch.setattr(cpu, "cores", lambda: Cores(1))
    monkeypatch.setattr(resumable_output, "SECONDS_BETWEEN_RECORDS", 0.0)
    monkeypatch.setitem(line_windows.MOST_LINES, "cpu", 7)
    Path("in").write_text("".join(f"{line}\n" for line in LINES))

    def run(*arguments, source=("--input", "in"), stdin=None):
        words = ["translate", "model", "--device", "cpu", *source, *arguments]
        return CliRunner().invoke(cli.main, words, input=stdin)

    return run


def files_here():
    return sorted(path.name for path in Path().iterdir())


def in_a_process(run, kill_at):
    """Run in a child that is killed at the given file operation; return its exit status."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    left = kill_at

    def counted(function):
        def call(*arguments, **options):
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)

        return call

    os.fsync = counted(os.fsync)
    for name in ("rename", "unlink"):
        setattr(Path, name, counted(getattr(Path, name)))
    ResumableOutput._append = counted(ResumableOutput._append)  # type: ignore[method-assign]
    status = 99
    try:
        status = run().exit_code
    finally:
        os._exit(status)


@pytest.mark.parametrize("suffix", READ)
def test_a_job_that_is_killed_again_and_again_ends_with_the_same_bytes(translate, suffix):
    chance = random.Random(suffix)
    output = Path(f"out{suffix}")
    kills = 0
    while True:
        arguments = ("--output", str(output), "--resume", "--quiet")
        status = in_a_process(lambda: translate(*arguments), chance.randint(1, 25))  # noqa: B023
        if status != -signal.SIGKILL:
            break
        kills += 1
        if not output.exists():
            translate("--output", str(output), "--resume")
            break
    assert kills > 0
    assert READ[suffix](output.read_bytes()) == expected_text()
    assert files_here() == sorted([f".made-{output.name}.json", "in", output.name])


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_a_kill_at_any_file_operation_leaves_a_state_that_goes_on(translate, monkeypatch, step):
    monkeypatch.setitem(line_windows.MOST_LINES, "cpu", 50)
    for kill_at in range(1, 100, step):
        status = in_a_process(lambda: translate("--output", "out"), kill_at)
        if status != -signal.SIGKILL:
            break
        assert translate("--output", "out", "--resume").exit_code in (0, 3)
        assert Path("out").read_bytes() == expected_text(size=50)
        assert files_here() == [".made-out.json", "in", "out"]
        Path("out").unlink()
        Path(".made-out.json").unlink()
    assert kill_at > 20
    assert status == 3  # it lived to its end


@pytest.mark.parametrize(
    ("stop", "status", "word"),
    [(KeyboardInterrupt(), 130, "interrupted"), (SystemExit(143), 143, "terminated")],
)
def test_an_interrupt_at_99_percent_loses_nothing(translate, monkeypatch, stop, status, word):
    monkeypatch.setattr(resumable_output, "SECONDS_BETWEEN_RECORDS", 1e9)  # only the last
    WindowTranslator.interrupts_at["line 99"] = stop
    stopped = translate("--output", "out")
    assert stopped.exit_code == status
    assert f"Error: {word}. The output of 98 lines is kept in out.partial. To" in stopped.stderr
    assert not Path("out").exists()
    proposed = shlex.split(stopped.stderr.strip().rpartition("To go on run: ")[2])
    WindowTranslator.interrupts_at.clear()
    WindowTranslator.num_translated = 0
    result = CliRunner().invoke(cli.main, proposed[1:])
    assert WindowTranslator.num_translated == 2
    assert result.exit_code == 3  # a line failed before the interrupt
    assert "Warning: 1 line of out.partial could not be translated.\n" in result.stderr
    assert re.search(r"Translated 2 lines in [\d.]+ s\.", result.stderr)
    assert Path("out").read_bytes() == expected_text()
    assert files_here() == [".made-out.json", "in", "out"]


def interrupted(translate, *arguments):
    WindowTranslator.interrupts_at["line 50"] = KeyboardInterrupt()
    assert translate("--output", "out", *arguments).exit_code == 130
    WindowTranslator.interrupts_at.clear()


@pytest.mark.parametrize(("source", "again"), [((), ()), (("--input", "-"), ("--input=-",))])
def test_the_same_text_on_stdin_is_read_and_skipped(translate, source, again):
    text = Path("in").read_text()
    WindowTranslator.interrupts_at["line 50"] = KeyboardInterrupt()
    stopped = translate("--output", "out", source=source, stdin=text)
    assert "(with the same text on stdin)" in stopped.stderr or " < " in stopped.stderr
    WindowTranslator.interrupts_at.clear()
    assert translate("--output", "out", "--resume", source=again, stdin=text).exit_code == 3
    assert Path("out").read_bytes() == expected_text()


@pytest.mark.parametrize("name", ["out", "out.partial", ".made-out.json"])
def test_the_text_is_never_replaced_by_its_own_translation(translate, name):
    text = Path("in").rename(name).read_bytes()
    result = translate("--output", "out", "--force", source=("--input", name))
    assert f"the text {name} is a file that --output out would replace;" in result.stderr
    assert (result.exit_code, Path(name).read_bytes()) == (1, text)


def test_another_model_other_options_and_another_text_are_refused(translate, monkeypatch):
    interrupted(translate, "--beam-size", "4")
    kept = Path("out.partial").read_bytes()

    def message(*arguments):
        result = translate("--output", "out", "--resume", *arguments)
        assert result.exit_code == 1
        assert Path("out.partial").read_bytes() == kept
        assert ("Continuing" in result.stderr) == ("another text" in result.stderr)
        return result.stderr

    start = "Error: --resume cannot continue out.partial, which was made "
    end = ", or --force instead of --resume to start anew.\n"
    other_options = f"{start}with other options. Give what it was made with{end}"
    given = ("--beam-size", "4")
    for options in (
        [],
        ["--beam-size", "5"],
        [*given, "--n-best", "2", "--format", "tsv"],
        [*given, "--format", "tsv"],
        [*given, "--keep-pieces"],
        [*given, "--banned", "no"],
        [*given, "--sample"],
        [*given, "--length-penalty", "0"],
        [*given, "--shard", "1/1"],
        [*given, "--markup", "html"],
    ):
        assert message(*options) == other_options
    with monkeypatch.context() as patch:
        patch.setitem(WindowTranslator.chosen, "model", "b" * 64)
        assert f"{start}with another model. Give what" in message(*given)
        assert f"{start}with another model and other options. Give what" in message()
    for changed in ({"precision": "bf16"}, {"device": "cuda"}):
        with monkeypatch.context() as patch:
            patch.setattr(WindowTranslator, "chosen", {**WindowTranslator.chosen, **changed})
            assert message(*given) == other_options
    text = Path("in").read_text()
    for other in (text.replace("line 3\n", "line three\n"), text[:50], text[1:], ""):
        Path("in").write_text(other)
        assert f"{start}from another text. Give the same text{end}" in message(*given)
    Path("in").write_text(text)
    resumed = translate("--output", "out", "--resume", "--beam-size", "4")
    assert resumed.exit_code == 3
    assert "Continuing after line 49 of out.partial." in resumed.stderr
    assert Path("out").read_bytes() == expected_text()


def test_what_auto_meant_is_kept(translate, monkeypatch):
    interrupted(translate)
    loaded = {}
    monkeypatch.setattr(
        Translator, "load", lambda *_, **options: loaded.update(options) or WindowTranslator()
    )
    translate("--output", "out", "--resume")
    assert loaded["precision"] == "fp32"


def test_each_option_that_affects_the_output_changes_the_hash():
    changes: dict[str, Any] = {
        **dict.fromkeys(("beam_size", "length_penalty", "max_extra_length", "n_best"), 7),
        **{name: True for name, value in vars(TranslatorOptions()).items() if value is False},
        **{"choose": "mbr", "too_long": "error", "tokenize": "off", "source_language": "en"},
        **{"target_language": "en", "split_sentences": False},
        **{"markup": "html", "tag": "<b>", "well_formed_trees": False, "shortlist": False},
        **{"sampling": Sampling(seed=0), "constraints": Constraints(min_length=1)},
        **dict.fromkeys(("max_tokens_per_device", "precision"), 7),
    }
    assert changes.keys() == vars(TranslatorOptions()).keys()
    hashes = {
        name: hash_of(TranslatorOptions(**{name: value}), {}) for name, value in changes.items()
    }
    same = hash_of(TranslatorOptions(), {})
    rounding = {"max_tokens_per_device", "no_cuda_graphs", "precision"}
    assert {name for name, found in hashes.items() if found == same} == rounding
    phrases = {name: ["a"] for name in ("required", "banned", "protect")}
    values: dict[str, Any] = {**dict.fromkeys(Constraints._fields, 7), **phrases}
    for name, value in values.items():
        constraints = Constraints(**{name: value})
        hashes[f"constraints.{name}"] = hash_of(TranslatorOptions(constraints=constraints), {})
    hashes["split"] = hash_of(TranslatorOptions(split_sentences=True), {})
    hashes["zero"] = hash_of(TranslatorOptions(length_penalty=0.0), {})
    hashes["seed"] = hash_of(TranslatorOptions(sampling=Sampling(seed=1)), {})
    hashes["format"] = hash_of(TranslatorOptions(), {"format": "tsv"})
    assert len(set(hashes.values())) == len(hashes) - len(rounding) + 1


def test_a_later_version_with_more_options_goes_on(translate, monkeypatch):
    """What they are by default is not in the hash."""
    interrupted(translate, "--beam-size", "4")

    @dataclass(frozen=True, kw_only=True)
    class Options(TranslatorOptions):
        politeness: str | None = None
        rhymes: bool = False

    monkeypatch.setattr(command, "TranslatorOptions", Options)
    assert translate("--output", "out", "--resume", "--beam-size", "4").exit_code == 3
    assert Path("out").read_bytes() == expected_text()


def test_an_unfinished_output_is_replaced_only_by_force(translate):
    interrupted(translate)
    refused = translate("--output", "out")
    assert refused.exit_code == 1
    assert (
        "out.partial holds the output of 49 lines of an unfinished translation." in refused.stderr
    )
    assert (
        "nmt-cli translate model --device cpu --input in --output out --resume\n" in refused.stderr
    )
    WindowTranslator.num_translated = 0
    anew = translate("--output", "out", "--force")
    assert anew.exit_code == 3
    assert "Removing out.partial, an unfinished translation, because of --force." in anew.stderr
    assert WindowTranslator.num_translated == 100
    assert files_here() == [".made-out.json", "in", "out"]


def finished(translate, *arguments, output="out"):
    """Translate to the end; return what describes the output file and its content."""
    assert translate("--output", output, *arguments).exit_code == 3
    WindowTranslator.num_translated = 0
    return state_of(output)


def state_of(output="out"):
    status = Path(output).stat()
    return status.st_ino, status.st_mtime_ns, Path(output).read_bytes()


@pytest.mark.parametrize("output", ["out", "out.gz"])
@pytest.mark.parametrize("source", [("--input", "in"), ("--shard", "1/3", "--input", "in"), ()])
def test_a_finished_output_is_left_as_it_is(translate, output, source):
    text = Path("in").read_text()
    assert translate("--output", output, source=source, stdin=text).exit_code == 3
    before, WindowTranslator.num_translated = state_of(output), 0
    result = translate("--output", output, "--resume", source=source, stdin=text)
    assert (result.exit_code, state_of(output)) == (3, before)
    message = "is complete, and made with this model, text and options: nothing to do."
    failed = f"Warning: 1 line of {output} could not be translated."
    assert result.stderr == f"{output} {message}\n{failed}\n"
    assert WindowTranslator.num_translated == 0


def test_a_finished_output_without_failed_lines_has_status_0(translate):
    Path("in").write_text("line 1\n")
    for again in ([], ["--resume"]):
        done = translate("--output", "out", *again)
        assert (done.exit_code, "could not" in done.stderr) == (0, False)


def test_what_auto_meant_and_sizes_of_batches_are_no_difference(translate):
    before = finished(translate, "--max-tokens-per-device", "400", "--precision", "int8")
    for given in ("auto", "fp32"):  # fp32 is what the translator says that it used
        arguments = ("--precision", given, "--threads", "1", "--max-tokens-per-device", "100")
        assert translate("--output", "out", "--resume", *arguments).exit_code == 3
    other = translate("--output", "out", "--resume", "--precision", "bf16")
    assert (other.exit_code, state_of()) == (1, before)
    assert "out is complete, but was made with other options. Give another" in other.stderr


def lines_changed():
    Path("in").write_text(Path("in").read_text().replace("line 99", "line ninety-nine"))


def line_added():
    with Path("in").open("a") as stream:
        stream.write("line 101\n")


def output_edited():
    Path("out").write_text(Path("out").read_text().replace("line 99", "line ninety-nine"))


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        (lambda: None, ["--beam-size", "5"], "but was made with other options. Give"),
        (lambda: None, ["--format", "tsv"], "but was made with other options. Give"),
        (lambda: None, ["--shard", "1/3"], "but was made with other options. Give"),
        (lines_changed, [], "but was made from another text. Give"),
        (line_added, [], "but was made from another text. Give"),
        (output_edited, [], "out has changed since it was translated. Give"),
        (
            lambda: Path(".made-out.json").unlink(),
            [],
            "out is complete, but .made-out.json, the record of the model, the text and the "
            "options it was made with, is missing. Give",
        ),
        (
            lambda: Path(".made-out.json").write_text("{"),
            [],
            ".made-out.json cannot be read: Expecting property name enclosed in double quotes: "
            "line 1 column 2 (char 1). Give --force instead of --resume",
        ),
    ],
)
def test_a_finished_output_that_was_made_otherwise_is_refused(
    translate, change, arguments, message
):
    finished(translate)
    change()
    before = state_of()
    result = translate("--output", "out", "--resume", *arguments)
    assert (result.exit_code, state_of()) == (1, before)
    assert message in result.stderr
    assert "--force instead of --resume" in result.stderr
    assert WindowTranslator.num_translated == 0
    assert translate("--output", "out", "--force", *arguments).exit_code == 3
    assert translate("--output", "out", "--resume", *arguments).exit_code == 3


def test_the_output_of_another_model_is_refused_after_it_was_finished(translate, monkeypatch):
    before = finished(translate)
    monkeypatch.setitem(WindowTranslator.chosen, "model", "b" * 64)
    result = translate("--output", "out", "--resume")
    assert (result.exit_code, state_of()) == (1, before)
    assert (
        "Error: out is complete, but was made with another model. Give another --output, or "
        "--force instead of --resume to translate anew."
    ) in result.stderr


def test_a_kill_never_makes_an_old_output_look_like_the_new_one(translate, monkeypatch):
    monkeypatch.setitem(line_windows.MOST_LINES, "cpu", 50)
    claims = set()
    for kill_at in range(1, 100):
        _, _, old = finished(translate, "--format", "tsv", "--force")
        status = in_a_process(lambda: translate("--output", "out", "--force"), kill_at)
        Path("out.partial").unlink(missing_ok=True)  # as a user may do
        result = translate("--output", "out", "--resume")
        assert result.exit_code in (1, 3)
        is_new = Path("out").read_bytes() != old
        assert (result.exit_code == 3) == is_new, result.stderr
        claims.add(is_new)
        if status != -signal.SIGKILL:
            break
    assert claims == {False, True}


def test_without_a_finished_line_other_options_are_refused_too(translate, monkeypatch):
    WindowTranslator.interrupts_at["line 1"] = KeyboardInterrupt()
    with monkeypatch.context() as patch:
        # As if it had been killed.
        patch.setattr(resumable_output, "_remove_unfinished", lambda _: None)
        assert translate("--output", "out", "--beam-size", "4").exit_code == 130
    assert files_here() == [".made-out.json", "in", "out.partial"]
    WindowTranslator.interrupts_at.clear()
    refused = translate("--output", "out", "--resume", "--beam-size", "5")
    assert refused.exit_code == 1
    assert "which was made with other options. Give what it was made with" in refused.stderr
    assert translate("--output", "out", "--resume", "--beam-size", "4").exit_code == 3
    assert Path("out").read_bytes() == expected_text()


@pytest.mark.parametrize(
    ("stop", "status", "word"),
    [(KeyboardInterrupt(), 130, "interrupted"), (SystemExit(143), 143, "terminated")],
)
def test_an_interrupt_before_the_first_window_says_that_nothing_was_written(
    translate, stop, status, word
):
    WindowTranslator.interrupts_at["line 1"] = stop
    stopped = translate("--output", "out")
    assert stopped.exit_code == status
    assert (
        stopped.stderr == f"Error: {word}. out was not written: no window of lines was finished.\n"
    )
    assert files_here() == ["in"]
    for output in ((), ("--output", "/dev/null")):
        stopped = translate(*output)
        assert stopped.exit_code == status
        assert stopped.stderr == f"Error: {word}. Nothing was written: no line was finished.\n"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("a bug")])
def test_an_output_that_was_not_replaced_keeps_its_record(translate, monkeypatch, error):
    translate("--output", "out")
    with monkeypatch.context() as patch:
        patch.setattr(WindowTranslator, "interrupts_at", {LINES[0]: error})
        assert translate("--output", "out", "--force").exit_code in {1, 130}
    assert files_here() == [".made-out.json", "in", "out"]
    again = translate("--output", "out", "--resume")
    assert again.stderr.startswith(
        "out is complete, and made with this model, text and options: nothing to do.\n"
    )


def test_sizes_of_batches_and_the_number_of_threads_may_change(translate):
    interrupted(translate, "--max-tokens-per-device", "400", "--threads", "2")
    arguments = ("--resume", "--max-tokens-per-device", "100", "--threads", "1")
    assert translate("--output", "out", *arguments).exit_code == 3
    assert Path("out").read_bytes() == expected_text()


def test_an_output_that_cannot_be_continued_has_no_record(translate):
    assert translate("--output", "/dev/null").exit_code == 3
    assert files_here() == ["in"]
    command.run(Path("model"), input_path=Path("in"), output_path=Path("out"), device="cpu")
    assert files_here() == ["in", "out"]


def test_files_of_other_programs_and_damaged_ones_are_not_continued(translate):
    Path("out.partial").write_text("of another program")
    assert "out.partial is in the way" in translate("--output", "out").stderr
    assert Path("out.partial").read_text() == "of another program"
    Path("out.partial").unlink()
    interrupted(translate)
    output = Path("out.partial").read_bytes()
    Path("out.partial").write_bytes(output[:-1])
    shorter = translate("--output", "out", "--resume")
    assert "out.partial is shorter than it was, so it cannot be continued;" in shorter.stderr
    Path("out.partial").write_bytes(output)
    side_file = Path(".made-out.json")
    record = side_file.read_text()
    numbers = ("num_bytes", "num_lines", "num_failed", "version")
    changed = [record.replace(f'"{name}": ', f'"{name}": 1') for name in numbers]
    before = record.replace('"version": 3', '"version": 2')
    side_file.write_text(before)
    assert translate("--output", "out", "--resume").stderr == (
        "Error: .made-out.json cannot be read: another version of nmt-cli wrote it, which can go "
        "on. Give --force instead of --resume to start anew.\n"
    )
    for damage in ("{", "[]", record.replace('"num_lines"', '"lines"'), *changed):
        side_file.write_text(damage)
        result = translate("--output", "out", "--resume")
        assert ".made-out.json cannot be read: " in result.stderr
        assert result.exit_code == 1
    side_file.write_text(record)
    assert translate("--output", "out", "--resume").exit_code == 3
    assert Path("out").read_bytes() == expected_text()


def test_a_full_disk_keeps_what_was_finished(translate, monkeypatch):
    whole = ResumableOutput._append

    def full(self, data):
        if b"line 80" in data:
            raise OSError(28, "No space left on device")
        whole(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(ResumableOutput, "_append", full)
        result = translate("--output", "out")
    assert result.exit_code == 74
    assert (
        "Error: out could not be written: No space left on device; free some space. The output of "
        "77 lines is kept in out.partial. To go on run: nmt-cli translate model"
    ) in result.stderr
    assert translate("--output", "out", "--resume").exit_code == 3
    assert Path("out").read_bytes() == expected_text()


def test_damaged_input_keeps_the_windows_before(translate, monkeypatch):
    monkeypatch.setitem(line_windows.MOST_LINES, "cpu", 200)
    lines = [random.Random(number).randbytes(600).hex() for number in range(900)]
    whole = gzip.compress("".join(f"{line}\n" for line in lines).encode())
    Path("in.gz").write_bytes(whole[: len(whole) // 2])
    stopped = translate("--output", "out", source=("--input", "in.gz"))
    assert "in.gz is damaged" in stopped.stderr
    assert " lines is kept in out.partial. To go on run: " in stopped.stderr
    Path("in.gz").write_bytes(whole)
    assert translate("--output", "out", "--resume", source=("--input", "in.gz")).exit_code in (0, 3)
    assert Path("out").read_bytes() == expected_text(lines, 200)


def test_resume_needs_a_file(translate):
    for output in ((), ("--output", "/dev/null")):
        result = translate("--resume", *output)
        assert "--resume continues a file; give its name with --output." in result.stderr


def test_parts_of_a_file_are_numbered_as_in_the_file_and_go_on(translate):
    first = translate("--shard", "1/3", "--format", "tsv")
    WindowTranslator.interrupts_at["line 60"] = KeyboardInterrupt()
    assert translate("--shard", "2/3", "--format", "tsv", "--output", "two").exit_code == 130
    WindowTranslator.interrupts_at.clear()
    other = translate("--shard", "3/3", "--format", "tsv", "--output", "two", "--resume")
    assert "which was made with other options. Give" in other.stderr
    translate("--shard", "2/3", "--format", "tsv", "--output", "two", "--resume")
    third = translate("--shard", "3/3", "--format", "tsv")
    rows = (first.stdout + Path("two").read_text() + third.stdout).splitlines()
    cells = [row.split("\t") for row in rows]
    assert [int(number) for number, *_ in cells] == list(range(1, 101))
    assert all(text.startswith(f"line {number} of") or not text for number, *_, text in cells)
    assert "--shard needs a file" in translate("--shard", "1/2", source=(), stdin="").stderr


class Slow(io.BytesIO):
    """Stalls now and then."""

    def readline(self, size=-1):
        line = super().readline(size)
        if line.endswith(b"5\n"):
            time.sleep(0.01)
        return line


def test_steady_windows_do_not_depend_on_time(monkeypatch):
    monkeypatch.setattr(line_windows, "WINDOW_CHARACTERS", 60)
    data = "".join(f"{'x' * (number % 9)}{number}\n" for number in range(95)).encode()
    fast = [list(window) for window in windows(io.BytesIO(data), most=9, is_steady=True)]
    monkeypatch.setattr(line_windows, "SECONDS_FOR_A_WINDOW", -1.0)
    monkeypatch.setattr(line_windows, "STALL_SECONDS", 0.0)
    slow = [list(window) for window in windows(Slow(data), most=9, is_steady=True)]
    assert slow == fast
    assert max(map(len, fast)) == 9


def test_cuda_graphs_may_be_turned_off_for_the_rest(translate):
    interrupted(translate)
    assert translate("--output", "out", "--resume", "--no-cuda-graphs").exit_code == 3
    assert Path("out").read_bytes() == expected_text()
