"""``nmt-cli data split``: cuts validation and test text off a corpus."""

from collections.abc import Sequence
from contextlib import ExitStack
from os.path import realpath
from pathlib import Path

from nmt_cli.commands.starting.corpus_files import first_line, opened_corpus
from nmt_cli.corpus.text.language_codes import NAMES, base_of
from nmt_cli.corpus.text.parallel_text import RowReader
from nmt_cli.corpus.text.samples import named_columns
from nmt_cli.corpus.text.splitting import LEFT_OUT, TRAINING, Split
from nmt_cli.files.atomic_files import directory_appearing_whole
from nmt_cli.files.folders import DATASET, refuse_output
from nmt_cli.files.lines import BYTE_ORDER_MARK
from nmt_cli.files.locks import claimed
from nmt_cli.files.text_files import SUFFIXES
from nmt_cli.files.text_forms import KEYS_OF_SIDES, refuse_wrong_lines
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.figures import counted
from nmt_cli.recipe.sections.corpora import ParallelFiles

FIRST_KEYS = KEYS_OF_SIDES[0]  # for columns that are not named by languages
CODES = {name.lower(): code for code, name in NAMES.items()}


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
    output = output or paths[0].with_name(f"{paths[0].name.split('.')[0]}-split")
    refuse_output(output, DATASET, "a data set of data split", force=force)
    with claimed(output, "--output"), opened_corpus(paths, columns) as files:
        if (header := _names_of_columns(files)) is not None:
            logs.info(f"The first row of {paths[0]} names its columns.")
            files = files.model_copy(update={"columns": header})
        write_parts(files, paths, output, {"validation": validation, "test": test}, seed)


def write_parts(
    files: ParallelFiles, paths: Sequence[Path], output: Path, sizes: dict[str, int], seed: int
) -> tuple[list[ParallelFiles], int]:
    """Write the parts of the corpus ``files`` to ``output``; return them and the first one's pairs.

    They are the training text and each part in ``sizes``, which has its pairs; ``paths`` are what
    the user gave. Raises UserError if one of these is in ``output``.
    """
    for path in paths:
        if Path(realpath(output)) in Path(realpath(path)).parents:
            raise UserError(f"{path} is in {output}, which would be replaced; move it elsewhere.")
    for path in files.text_files if files.rows is None else ():
        refuse_wrong_lines(path)
    with logs.progress("reading", "pairs") as counter:
        name = " and ".join(map(str, paths))
        split = Split(files, list(sizes.values()), seed, counter.advance, name)
    parts = [_part_of(files, output, part) for part in ("train", *sizes)]
    with directory_appearing_whole(output, replace=output.exists()) as partial:
        _write(split, files, [_part_of(files, partial.path, part) for part in ("train", *sizes)])
        partial.manifest.update(kind=DATASET, corpus=[*map(str, paths)], seed=seed, **sizes)
    num_left_out = int((split.parts == LEFT_OUT).sum())
    num_kept = int((split.parts == TRAINING).sum())
    held_out = ", ".join(f"{size:,} for {part}" for part, size in sizes.items())
    logs.info(f"{output} holds {counted(num_kept, 'pair')} for training, {held_out}.")
    if num_kept < sum(sizes.values()):
        logs.warning(
            "fewer pairs are left for training than are held out; lower --validation and --test."
        )
    if num_left_out:
        logs.info(
            f"Left out {counted(num_left_out, 'pair')} with a sentence that is in validation or "
            "test text too, or differs at most in case, digits, punctuation and spaces from one."
        )
    return parts, num_kept


def _part_of(files: ParallelFiles, directory: Path, part: str) -> ParallelFiles:
    """Return the files of a part: with the endings of the corpus, without those of compressions."""
    if files.memory is not None:
        return ParallelFiles(tsv=directory / f"{part}.tsv")
    names = [path.stem if path.suffix in SUFFIXES else path.name for path in files.paths.values()]
    endings = [name.rpartition(".")[2] for name in names]
    if len(set(endings)) < len(names):
        endings = names
    if len(set(names)) < len(names):
        endings = [f"{name}.{side}" for name, side in zip(names, files.paths, strict=True)]
    paths = [directory / f"{part}.{each}" for each in endings]
    return files.model_copy(update=dict(zip(files.paths, paths, strict=True)))


def _write(split: Split, files: ParallelFiles, parts: Sequence[ParallelFiles]) -> None:
    """Write the lines of each part to its files."""
    header = _header(files)
    with ExitStack() as stack:
        streams = [
            [stack.enter_context(path.open("wb")) for path in part.paths.values()] for part in parts
        ]
        for of_part in streams:
            of_part[0].write(header)
        is_first = True
        for numbers, texts in split.lines():
            for side, lines in enumerate(texts):
                if is_first and not header:
                    lines[0] = lines[0].removeprefix(BYTE_ORDER_MARK)
                for number, line in zip(numbers.tolist(), lines, strict=True):
                    if number != LEFT_OUT:
                        streams[number][side].write(line + b"\n")
            is_first = False


def _header(files: ParallelFiles) -> bytes:
    """Return the first line of a table whose columns have names there."""
    if files.tsv is None:
        return b""
    first = first_line(files.tsv)
    return first + b"\n" if RowReader.of(files, first).has_header else b""


def _names_of_columns(files: ParallelFiles) -> tuple[str, str] | None:
    """Return the first row of a table of two columns if its cells name two languages or sides."""
    if files.tsv is None or files.columns is not None:
        return None
    cells = first_line(files.tsv).removeprefix(BYTE_ORDER_MARK).decode(errors="replace")
    one, other = (cell.strip() for cell in cells.split("\t"))
    codes = [CODES.get(cell.lower(), base_of(cell)) for cell in (one, other)]
    are_languages = codes[0] != codes[1] and all(code in NAMES for code in codes)
    return named_columns(one, other, (codes[0], codes[1]) if are_languages else FIRST_KEYS)
