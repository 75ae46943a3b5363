"""``nmt-cli data split``: cuts validation and test text off a corpus."""

from contextlib import ExitStack
from pathlib import Path

from nmt_cli.corpus.text.parallel_text import RowReader
from nmt_cli.corpus.text.splitting import LEFT_OUT, TRAINING, Split
from nmt_cli.files.atomic_files import directory_appearing_whole
from nmt_cli.files.folders import DATASET, refuse_output
from nmt_cli.files.lines import BYTE_ORDER_MARK, HeldLines
from nmt_cli.files.locks import claimed
from nmt_cli.files.text_files import SUFFIXES, open_text
from nmt_cli.files.text_forms import refuse_wrong_lines
from nmt_cli.messages import logs
from nmt_cli.messages.errors import WrongUsageError
from nmt_cli.messages.figures import counted
from nmt_cli.recipe.sections.corpora import ParallelFiles

PARTS = ("train", "validation", "test")


def run(
    paths: tuple[Path, ...],
    *,
    validation: int,
    test: int,
    seed: int,
    columns: str | None = None,
    output: Path | None = None,
    force: bool = False,
) -> None:
    """Write the parts of the corpus ``paths`` to the directory ``output``, which appears whole.

    Raises UserError if a file cannot be read, its pairs are too few, or ``output`` exists without
    ``force``; OutputError if the disk is full.
    """
    files = corpus_of(paths, columns)
    for path in files.text_files if files.rows is None else ():
        refuse_wrong_lines(path)
    output = output or paths[0].with_name(f"{paths[0].name.split('.')[0]}-split")
    refuse_output(output, DATASET, "a data set of data split", force=force)
    sizes = {"validation": validation, "test": test}
    with claimed(output, "--output"):
        with logs.progress("reading", "pairs") as counter:
            split = Split(files, list(sizes.values()), seed, counter.advance)
        with directory_appearing_whole(output, replace=output.exists()) as partial:
            _write(split, files, partial.path)
            partial.manifest.update(kind=DATASET, corpus=[*map(str, paths)], seed=seed, **sizes)
    num_left_out = int((split.parts == LEFT_OUT).sum())
    num_kept = int((split.parts == TRAINING).sum())
    logs.info(
        f"{output} holds {counted(num_kept, 'pair')} for training, {validation:,} for validation, "
        f"{test:,} for tests."
    )
    if num_left_out:
        logs.info(
            f"Left out {counted(num_left_out, 'pair')} with a sentence that is in validation or "
            "test text too, or differs at most in case, digits, punctuation and spaces from one."
        )


def corpus_of(paths: tuple[Path, ...], columns: str | None) -> ParallelFiles:
    """Return the corpus in ``paths``: texts of both sides, or a file with both in each line.

    Raises WrongUsageError if they are no corpus, or ``columns`` does not name two.
    """
    named = None
    if columns is not None:
        first, _, second = columns.partition(",")
        named = first, second
        if first == second or "" in named or "," in second:
            raise WrongUsageError(f"--columns must name two, such as 1,2, but is {columns}.")
    if len(paths) == 2 and named is None:
        return ParallelFiles(source=paths[0], target=paths[1])
    if len(paths) != 1:
        raise WrongUsageError(
            "give the two texts of a corpus, or one file with both sides and its --columns."
        )
    suffixes = [each for each in paths[0].suffixes if each not in SUFFIXES]
    ending = suffixes[-1].lower() if suffixes else ""
    if ending in {".jsonl", ".ndjson"}:
        return ParallelFiles(jsonl=paths[0], columns=named)
    if ending in {".tmx", ".xlf", ".xliff", ".po"}:
        if named is None:
            raise WrongUsageError(f"{paths[0]} needs its languages: --columns en,de")
        return ParallelFiles(memory=paths[0], columns=named)
    return ParallelFiles(tsv=paths[0], columns=named)


def _write(split: Split, files: ParallelFiles, directory: Path) -> None:
    """Write the lines of each part to files with the names of the corpus."""
    header = _header(files)
    with ExitStack() as stack:
        streams = [
            [
                stack.enter_context((directory / f"{part}.{name}").open("wb"))
                for name in _names(files)
            ]
            for part in PARTS
        ]
        for of_part in streams:
            of_part[0].write(header)
        is_first = True
        for parts, texts in split.lines():
            for side, lines in enumerate(texts):
                if is_first and not header:
                    lines[0] = lines[0].removeprefix(BYTE_ORDER_MARK)
                for part, line in zip(parts.tolist(), lines, strict=True):
                    if part != LEFT_OUT:
                        streams[part][side].write(line + b"\n")
            is_first = False


def _header(files: ParallelFiles) -> bytes:
    """Return the first line of a table whose columns have names there."""
    if files.tsv is None:
        return b""
    with open_text(files.tsv) as stream:
        first = HeldLines(stream).first()
    return first + b"\n" if RowReader.of(files, first).has_header else b""


def _names(files: ParallelFiles) -> list[str]:
    """Return what differs in the names of the texts, without the suffix of a compression."""
    if files.memory is not None:
        return ["tsv"]
    names = [path.stem if path.suffix in SUFFIXES else path.name for path in files.paths.values()]
    endings = [name.rpartition(".")[2] for name in names]
    if len(set(endings)) == len(names):
        return endings
    if len(set(names)) == len(names):
        return names
    return [f"{name}.{side}" for name, side in zip(names, files.paths, strict=True)]
