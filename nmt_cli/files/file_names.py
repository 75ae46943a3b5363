"""The names of the files and folders that the program writes, and finds again by name."""

import re

# In every folder that appears whole: a model, a prepared corpus, a report.
MANIFEST = "manifest.json"  # the folder's kind and format version; size and checksum of each file

# In a model, which is a checkpoint or an average of checkpoints.
WEIGHTS = "model.safetensors"
CONFIG = "config.json"  # the settings with which the model is rebuilt
LEXICON = "lexicon"  # which target pieces may translate each source piece; only for a shortlist
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
RECIPE_SUFFIXES = (".yaml", ".yml")  # of any recipe

# In a run.
CHECKPOINTS = "checkpoints"  # folder of the checkpoints
CHECKPOINT_GLOB = "step-*"  # the folders in it
AVERAGE = "average"  # folder of the model that average-checkpoints writes
AVERAGE_INT8 = "average-int8"  # the same with --precision int8
METRICS = "metrics.jsonl"  # one record for each step and each validation
SESSIONS = "sessions.jsonl"  # one record for each start of the training
STATUS = "status.json"  # whether the training runs, and how it ended
LOCK = "run.lock"  # locked by the process that trains
VALIDATIONS = "validations"  # folder of the translations that --keep-validations keeps
TENSORBOARD = "tensorboard"  # folder of event files

# In a run that ``run`` made.
TEST = "test"  # folder of the translated test sets
SCORES = "scores"  # folder of their scores
SCORES_FILE = "scores.json"  # in that folder
STUDENT = "student"  # folder of the model that ships, made by ``distil``
DISTILLATION, STUDENT_TABLE = "distillation", "table"  # how it was made; its figures, therein
FIGURES_FILE = "figures.json"  # in that folder
SETS = "sets"  # key of the figures of each set by its name, there and in METRICS
SET_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{,39}")  # of a set; part of names of files
RULE_OF_SET_NAME = "must be 1 to 40 of the characters A-Z a-z 0-9 _ -, the first one other than -"

# In a model of CTranslate2; the second only in an export.
CTRANSLATE2_MODEL = "model.bin"
EXPORTED_SENTENCEPIECE = "sentencepiece.model"

# In a report.
PAGE = "index.html"

# In the working directory, unless an option names another place.
RUNS = "runs"  # folder of the runs


def validation_part(name: str | None) -> str:
    """Return how the files of a validation set begin."""
    return "validation" if name is None else f"validation.{name}"
