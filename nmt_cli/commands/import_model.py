"""``nmt-cli import``: a model of another program becomes a model directory."""

import re
from pathlib import Path

from nmt_cli.files.atomic_files import directory_appearing_whole
from nmt_cli.files.file_names import CONFIG, CTRANSLATE2_MODEL
from nmt_cli.files.folders import IMPORTED, is_model, is_run, refuse_output
from nmt_cli.files.locks import claimed
from nmt_cli.interchange.archives import unpacked
from nmt_cli.interchange.ctranslate2.argos import package_of
from nmt_cli.interchange.ctranslate2.importer import import_ctranslate2
from nmt_cli.interchange.fairseq.importer import KNOWN_BY as FAIRSEQ
from nmt_cli.interchange.fairseq.importer import import_fairseq
from nmt_cli.interchange.files import NO_FILES, TextFiles, read_config
from nmt_cli.interchange.huggingface.importer import import_huggingface
from nmt_cli.interchange.imported_model import write_model
from nmt_cli.interchange.marian.files import BINARY, is_weights, weights_in
from nmt_cli.interchange.marian.files import WEIGHTS as MARIAN
from nmt_cli.interchange.marian.importer import import_marian
from nmt_cli.interchange.opennmt.eole import WEIGHTS as EOLE
from nmt_cli.interchange.opennmt.eole import import_eole
from nmt_cli.interchange.opennmt.importer import KNOWN_BY as OPENNMT
from nmt_cli.interchange.opennmt.importer import import_opennmt
from nmt_cli.interchange.pickled_tensors import holds
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.proposals import command, where_missing

AUTO = "auto"
NAME_ON_HUGGING_FACE = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)
IMPORTERS = {
    "ctranslate2": import_ctranslate2,
    "eole": import_eole,
    "fairseq": import_fairseq,
    "huggingface": import_huggingface,
    "marian": import_marian,
    "opennmt-py": import_opennmt,
}


def run(
    path: Path,
    *,
    program: str,
    output: Path,
    source_language: str | None = None,
    target_language: str | None = None,
    files: TextFiles = NO_FILES,
    force: bool = False,
) -> None:
    """Write the model of ``program`` at ``path`` as the model directory ``output``.

    The program of ``auto`` is recognized by its files; ``files`` hold what the numbers of its
    pieces mean. Languages that are not given are those that the model's files name, or unknown.
    ``force`` replaces an imported model. Raises UserError if the model cannot be imported, with all
    reasons, or if ``output`` exists otherwise, and DamagedError if a file is damaged.
    """
    with claimed(output, "--output"):
        refuse_output(output, IMPORTED, "an imported model", force=force)
        if not path.exists():
            raise UserError(f"{path} not found{_download(path) or f'{where_missing(path)}.'}")
        with unpacked(path) as there:
            if program == AUTO:
                program = program_of(there)
            model = IMPORTERS[program](there, files)
        settings = model.settings(source_language, target_language)
        origin = {"program": program, "path": str(path)}
        with directory_appearing_whole(output, replace=force) as partial:
            write_model(partial, model, settings, origin)
    reads = "plain text" if model.sentencepiece else "pieces, with spaces between them"
    joins = f", and joins those that end in {model.joiner}" if model.joiner else ""
    logs.info(f"Imported {path} into {output}. It reads {reads}{joins}.")
    decoding = settings.decoding
    logs.info(
        "The search has nmt-cli's defaults, whatever those of the model were: beam size "
        f"{decoding.beam_size}, length penalty {decoding.length_penalty:g}, outputs of up to "
        f"{decoding.max_extra_length} pieces more than the input. translate --beam-size and "
        "--length-penalty change it."
    )
    logs.info(f"Next: {command('nmt-cli', 'translate', output)}")


MODEL_TYPE = "model_type"  # in config.json


def program_of(path: Path) -> str:
    """Return the name of the program, as ``--from`` has it, from the names of the files.

    Raises UserError if no program is recognized or two are, DamagedError if a file is damaged.
    """
    if is_model(path) or is_run(path):
        raise UserError(f"{path} holds a model of nmt-cli already; translate with it.")
    model = path / CTRANSLATE2_MODEL  # Marian's conversion has this name for its output, too
    found = {
        "ctranslate2": (model.is_file() and not is_weights(model)) or package_of(path) is not None,
        "fairseq": holds(path, FAIRSEQ),
        "huggingface": path.is_dir() and MODEL_TYPE in read_config(path),
        "marian": bool(weights_in(path)) if path.is_dir() else is_weights(path),
        "eole": (path / EOLE).is_file(),
        "opennmt-py": path.is_file() and holds(path, OPENNMT),
    }
    names = [name for name, is_there in found.items() if is_there]
    if len(names) == 1:
        return names[0]
    if names:
        raise UserError(f"{path} has files of {' and '.join(names)}; choose one with --from.")
    raise UserError(
        f"{path} is not recognized as a model: models of CTranslate2 have {CTRANSLATE2_MODEL}, "
        f"those of Hugging Face {CONFIG} with {MODEL_TYPE}, those of eole {EOLE}, those of Marian "
        f"a file that ends in {MARIAN} or {BINARY}; give the folder that has one of them, a "
        "checkpoint of fairseq or OpenNMT-py, a file *.pt, or a package of Argos Translate."
    )


def _download(path: Path) -> str:
    """Return how to get what an address, or a name on Hugging Face, stands for; "" for a path."""
    if path.parts[0] in {"http:", "https:"}:
        return "; import reads files of this machine, so download it first."
    if (
        len(path.parts) != 2
        or path.parent.exists()
        or not NAME_ON_HUGGING_FACE.fullmatch(str(path))
    ):
        return ""
    done = command("hf", "download", str(path), "--local-dir", path.name)
    return f"; import reads a folder. If this is the name of a model on Hugging Face, run: {done}"
