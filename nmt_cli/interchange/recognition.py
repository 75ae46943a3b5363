"""Recognizes the program that made a model."""

from pathlib import Path

from nmt_cli.errors import UserError
from nmt_cli.folders import is_model, is_run
from nmt_cli.interchange.ctranslate2.folder import MODEL
from nmt_cli.interchange.eole.importer import WEIGHTS as EOLE
from nmt_cli.interchange.fairseq.checkpoint import is_checkpoint as is_fairseq
from nmt_cli.interchange.json_files import CONFIG, read_config
from nmt_cli.interchange.marian.files import WEIGHTS as MARIAN
from nmt_cli.interchange.marian.files import weights_in
from nmt_cli.interchange.opennmt.checkpoint import is_checkpoint as is_opennmt

MODEL_TYPE = "model_type"  # in config.json


def program_of(path: Path) -> str:
    """Return the name of the program, as ``--from`` has it, from the names of the files.

    Raises UserError if no program is recognized or two are, DamagedError if a file is damaged.
    """
    if is_model(path) or is_run(path):
        raise UserError(f"{path} holds a model of nmt-cli already; translate with it.")
    found = {
        "ctranslate2": (path / MODEL).is_file(),
        "fairseq": is_fairseq(path),
        "huggingface": path.is_dir() and MODEL_TYPE in read_config(path),
        "marian": path.suffix == MARIAN or (path.is_dir() and any(weights_in(path))),
        "eole": (path / EOLE).is_file(),
        "opennmt-py": is_opennmt(path),
    }
    names = [name for name, is_there in found.items() if is_there]
    if len(names) == 1:
        return names[0]
    if names:
        raise UserError(f"{path} has files of {' and '.join(names)}; choose one with --from.")
    raise UserError(
        f"{path} is of no program that is recognized: models of CTranslate2 have {MODEL}, those of "
        f"Hugging Face {CONFIG} with {MODEL_TYPE}, those of eole {EOLE}, those of Marian a file "
        f"that ends in {MARIAN}; give the folder that has one of them, or a checkpoint of "
        "fairseq or OpenNMT-py, a file *.pt."
    )
