"""The names of the files and folders that the program writes, and finds again by name."""

import os
from pathlib import Path

from nmt_cli.messages.errors import UserError

# In every folder that appears whole: a model, a prepared corpus, a report.
MANIFEST = "manifest.json"  # the folder's kind and format version; size and checksum of each file

# In a model, which is a checkpoint or an average of checkpoints.
WEIGHTS = "model.safetensors"
CONFIG = "config.json"  # the settings with which the model is rebuilt
TRAINING_STATE = "training_state.pt"  # optimizer and progress; only in checkpoints to resume from
SENTENCEPIECE_MODEL = "tokenizer.model"
VOCABULARY = "vocabulary.txt"
SOURCE_VOCABULARY = "source_vocabulary.txt"  # beside it, if the languages share none
# Of a model that was made elsewhere: a SentencePiece model of each language, the ids of the pieces,
# and those of the source's pieces if the languages share no vocabulary.
SOURCE_SENTENCEPIECE, TARGET_SENTENCEPIECE = "source.spm", "target.spm"
TARGET_PIECES, SOURCE_PIECES = "vocab.json", "source_vocab.json"
# A model and a prepared corpus have one of these.
TOKENIZER_FILES = (SENTENCEPIECE_MODEL, VOCABULARY, TARGET_PIECES)
FURTHER_TOKENIZER_FILES = (
    SOURCE_VOCABULARY,
    SOURCE_SENTENCEPIECE,
    TARGET_SENTENCEPIECE,
    SOURCE_PIECES,
)

# In a run, a model and a prepared corpus.
RECIPE = "recipe.yaml"  # with every default

# In a run.
CHECKPOINTS = "checkpoints"  # folder of the checkpoints
CHECKPOINT_GLOB = "step-*"  # the folders in it
AVERAGE = "average"  # folder of the model that average-checkpoints writes
AVERAGE_INT8 = "average-int8"  # the same with --precision int8
METRICS = "metrics.jsonl"  # one record for each step and each validation
SESSIONS = "sessions.jsonl"  # one record for each start of the training
STATUS = "status.json"  # whether the training runs, and how it ended
LOCK = "run.lock"  # locked by the process that trains
TENSORBOARD = "tensorboard"  # folder of event files

# In a run that ``run`` made.
TEST = "test"  # folder of the translated test sets
SCORES = "scores"  # folder of their scores
SCORES_FILE = "scores.json"  # in that folder
SETS = "sets"  # key of the figures of each set by its name, there and in METRICS

# In a model of CTranslate2; the others only in an export, whose config.json is CTranslate2's own.
CTRANSLATE2_MODEL = "model.bin"
SETTINGS = "nmt-cli.json"  # the settings of the model, as in its config.json
EXPORTED_SENTENCEPIECE = "sentencepiece.model"

# In a report.
PAGE = "index.html"

# Names the folder of what programs make once for the user and may make again.
CACHE_VARIABLE, USERS_CACHE = "XDG_CACHE_HOME", ".cache"

# In the working directory, unless an option names another place.
RUNS = "runs"  # folder of the runs


def validation_part(name: str | None) -> str:
    """Return how the files of a validation set begin."""
    return "validation" if name is None else f"validation.{name}"


def cache_folder() -> Path:
    """Return the folder of what is made once for the user and may be deleted at any time.

    Raises UserError if the user has none.
    """
    given = Path(os.environ.get(CACHE_VARIABLE) or "")
    try:
        root = given if given.is_absolute() else Path.home() / USERS_CACHE
    except RuntimeError:  # this user has no home
        raise UserError(f"this user has no home folder: let {CACHE_VARIABLE} name one.") from None
    return root / "nmt-cli"
