"""Bad input for all commands, and what they print then: messages_of_bad_input.txt.

Each command stands in that file after ``$``, and below it are its exit status and stderr. They run
in a folder with the files of ``make_folder``. After a change of messages, or with new commands in
the file, this writes it anew:

python -m tests.messages_of_bad_input
"""

import os
import re
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner

from nmt_cli.cli import main

HERE = Path(__file__).parent
MESSAGES = HERE / "messages_of_bad_input.txt"
FORMATS = HERE / "formats"
TRANSLATED = "translated.de"  # the complete output of translate, with its record
TEXTS: dict[str, str | bytes] = {
    "empty": "",
    "blank": "\n",
    "short.de": "one\n",
    "latin.en": "caf\xe9\n".encode("latin-1"),
    "utf16.en": "one\ntwo\n".encode("utf-16"),
    "damaged.gz": b"\x1f\x8b\x08\0damaged",
    "not.jsonl": "one\n",
    "number.jsonl": '{"text": 1}\n',
    "unknown.jsonl": '{"text": "one", "n_bests": 2}\n',
    "broken.trees": "(S (NP one)\n",
    "links": "0-0 1:1\n",
    "terms.tsv": "one two\n",
    "keys": "a key\n",
    "duplicate.yaml": "description: a\ndescription: b\n",
    "colon.yaml": "description: a: b\n",
    "list.yaml": "- one\n",
    "tag.yaml": "description: !!python/name:os.system\n",
    "key.yaml": "data: {trian: []}\n",
    "itself.yaml": "extends: itself.yaml\n",
    "nobody.yaml": "extends: nobody-else.yaml\n",
    "few.yaml": "description: Few keys.\ntraining: {max_steps: 10}\n",
}
SMALL = """\
extends: toy.yaml
data:
  train: [{{source: {source}, target: {target}}}]
  validation: {{source: validation.en, target: validation.de}}
"""
PAIRS = {  # of training texts of recipes with these names
    "unequal": ("train.en", "short.de"),
    "nothing": ("empty", "empty"),
    "blanks": ("blank", "blank"),
    "absent": ("absent.en", "train.de"),
    "utf16": ("utf16.en", "validation.de"),
    "latin": ("latin.en", "short.de"),
    "gz": ("damaged.gz", "short.de"),
    "comma": ("a,b.en", "short.de"),
}


class Message(NamedTuple):
    """A command, its exit status and what it writes to stderr."""

    command: str
    status: int
    text: str


def make_folder() -> None:
    """Write texts, recipes, a run and models, some of them damaged, into the working directory."""
    for path in (FORMATS / "text").iterdir():
        shutil.copy(path, path.name)
    Path("whitespace.yaml").rename("toy.yaml")
    for name, text in TEXTS.items():
        Path(name).write_bytes(text.encode() if isinstance(text, str) else text)
    for name, (source, target) in PAIRS.items():
        Path(f"{name}.yaml").write_text(SMALL.format(source=source, target=target))
    shutil.copytree(FORMATS / "format_2/whitespace/run", "run")
    shutil.copytree(FORMATS / "format_2/whitespace/prepared", "corpus")
    shutil.copytree(FORMATS / "format_2/sentencepiece/run/average", "pieces")
    shutil.copytree(FORMATS / "format_3/treebank/run/average", "parses")
    Path("folder").mkdir()
    Path("exists").write_text("text\n")
    CliRunner().invoke(
        main, ["translate", "run", "--input", "validation.en", "--output", TRANSLATED]
    )
    _make_damaged_models()


def _make_damaged_models() -> None:
    for name in ("changed", "cut", "unweighted", "newer", "unreadable", "untokenized"):
        shutil.copytree("run/average", name)
    weights = Path("changed/model.safetensors")
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    Path("cut/model.safetensors").write_bytes(content[:-9])
    Path("unweighted/model.safetensors").unlink()
    Path("unreadable/manifest.json").write_text("{")
    Path("untokenized/vocabulary.txt").unlink()
    manifest = Path("newer/manifest.json")
    text = manifest.read_text()
    manifest.write_text(re.sub(r'"format_version": \d+', '"format_version": 99', text))


def read_messages() -> list[Message]:
    """Return the commands of the file with the messages that are expected."""
    found = re.findall(
        r"^\$ (.*)\n(\d*)\n?((?:(?!\$ ).*\n)*)", MESSAGES.read_text(encoding="utf-8"), re.MULTILINE
    )
    return [Message(command, int(status or "0"), text) for command, status, text in found]


def run(command: str) -> Message:
    """Run ``command`` here; a message of wrong use is without the usage."""
    result = CliRunner().invoke(main, shlex.split(command), prog_name="nmt-cli", input="one\n")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise AssertionError(command) from result.exception
    text = re.sub(r"^Usage: .*\n(?: .*\n)*Try .*\n", "", result.stderr, flags=re.MULTILINE)
    return Message(command, result.exit_code, text.replace(str(Path.cwd()), "FOLDER"))


def write_messages() -> None:
    """Write the file anew, with the same commands."""
    commands = [message.command for message in read_messages()]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        make_folder()
        messages = [run(command) for command in commands]
        os.chdir(HERE)
    blocks = [f"$ {command}\n{status}\n{text}" for command, status, text in messages]
    MESSAGES.write_text("".join(blocks), encoding="utf-8")


if __name__ == "__main__":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    write_messages()
