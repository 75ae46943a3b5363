"""``nmt-cli data get``: brings public data into files that recipes name."""

from pathlib import Path

from nmt_cli.datasets import opus
from nmt_cli.datasets.assembly import download, write_evaluation_sets, write_train
from nmt_cli.datasets.catalogue import CATALOGUE
from nmt_cli.datasets.wsj_sections import write_splits
from nmt_cli.files.atomic_files import directory_appearing_whole
from nmt_cli.files.folders import DATASET, refuse_output
from nmt_cli.files.locks import claimed
from nmt_cli.messages import logs
from nmt_cli.messages.errors import WrongUsageError
from nmt_cli.messages.proposals import FOLDER, OPUS, TREEBANK, any_of, nearest

MULTI30K = "multi30k"


def run(
    name: str,
    *,
    output: Path | None = None,
    downloads: Path | None = None,
    treebank: Path | None = None,
    force: bool = False,
) -> None:
    """Write the data set ``name`` to the directory ``output``, which appears whole.

    Raises UserError if there is no such data set, an option does not fit to it, requests is
    missing, a download fails, the treebank is wrong, or ``output`` exists without ``force``;
    OutputError if the disk is full.
    """
    _refuse_unfit(name, downloads, treebank)
    output = output or FOLDER / name.replace(":", "/")
    is_empty = output.is_dir() and not any(output.iterdir())
    refuse_output(output, DATASET, "a data set of data get", force=force or is_empty)
    with claimed(output, "--output"):
        if treebank is None:
            _assemble_parallel(name, downloads or output.parent / "downloads", output)
        else:
            with directory_appearing_whole(output, replace=output.exists()) as partial:
                splits = write_splits(treebank, partial.path)
                partial.manifest.update(
                    kind=DATASET, name=TREEBANK, treebank=str(treebank), splits=splits
                )
    logs.info(f"Wrote {output}.")


def _assemble_parallel(name: str, downloads: Path, output: Path) -> None:
    if name.startswith(OPUS):
        name, dataset = opus.find_corpus(name)
    else:
        dataset = CATALOGUE[name]
    archives, sets = download(dataset, downloads)
    with directory_appearing_whole(output, replace=output.exists()) as partial:
        test_sets = write_evaluation_sets(dataset, sets, partial.path)
        train = write_train(dataset, archives, partial.path)
        partial.manifest.update(kind=DATASET, name=name, train=train, test_sets=test_sets)
    logs.info(f"Joined the archives in {downloads}; you may remove them.")


def _refuse_unfit(name: str, downloads: Path | None, treebank: Path | None) -> None:
    """Raise UserError if there is no such data set, or an option means nothing for it."""
    known = [*CATALOGUE, TREEBANK]
    if name.startswith(OPUS):
        opus.parse_name(name)
    elif name.lower().startswith(MULTI30K):
        raise WrongUsageError(
            f"data get does not fetch {MULTI30K}, whose licence is non-commercial: get it from "
            "https://github.com/multi30k/dataset, folder data/task1/raw, and put train, val and "
            f"test_2016_flickr (.en.gz and .de.gz, unpacked) into {FOLDER / MULTI30K}/, where the "
            "recipes look for it."
        )
    elif name not in known:
        meant = nearest(name, known) or [*known, f"{OPUS}CORPUS/en-de"]
        raise WrongUsageError(
            f"{name} is not a data set of data get; did you mean {any_of(meant)}?"
        )
    if name == TREEBANK and treebank is None:
        raise WrongUsageError(
            "the Penn Treebank is licensed and cannot be downloaded; "
            "give the folder of your own copy: --treebank FOLDER"
        )
    if name != TREEBANK and treebank is not None:
        raise WrongUsageError(f"{name} is not made of a treebank; --treebank is for {TREEBANK}.")
    if name == TREEBANK and downloads is not None:
        raise WrongUsageError(f"{TREEBANK} downloads nothing; leave out --downloads.")
