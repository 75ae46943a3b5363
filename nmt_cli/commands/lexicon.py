"""``nmt-cli lexicon``: writes a lexicon beside a model, for a shortlist."""

from pathlib import Path

from nmt_cli.alignment.estimated_lexicon import make_lexicon
from nmt_cli.corpus.text.parallel_text import ParallelText
from nmt_cli.files.file_names import LEXICON
from nmt_cli.files.locks import claimed
from nmt_cli.files.text_forms import refuse_wrong_lines
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.figures import counted
from nmt_cli.messages.proposals import command
from nmt_cli.recipe.sections.corpora import ParallelFiles
from nmt_cli.saved.model_directory import find_model, save_lexicon, verified


def run(  # noqa: PLR0913 - the options of a command are its parameters
    model: Path,
    source: Path,
    target: Path,
    *,
    num_frequent: int,
    num_targets: int,
    uses_shortlist: bool = False,
    force: bool = False,
    workers: int | None = None,
) -> None:
    """Write a lexicon of ``source`` and ``target`` beside ``model``.

    Raises UserError if a text cannot be read, if the texts have different numbers of lines or no
    pieces, if the model parses, or has a lexicon already and not ``force``; OutputError if the
    lexicon cannot be written.
    """
    for path in (source, target):
        refuse_wrong_lines(path)
    found = verified(find_model(model).path, unneeded=[LEXICON])
    if found.settings.trees is not None:
        raise UserError(f"{found.path} parses; a lexicon is for models that translate.")
    with claimed(found.path, "MODEL"):
        if LEXICON in found.manifest["files"] and not force:
            raise UserError(f"{found.path / LEXICON} already exists; add --force to replace it.")
        text, tokenizer = (
            ParallelText(ParallelFiles(source=source, target=target), is_read_once=True),
            found.tokenizer,
        )
        source_size = tokenizer.size if tokenizer.source_size is None else tokenizer.source_size
        pairs = (
            (tokenizer.encode(one, "source"), tokenizer.encode(other, "target"))
            for one, other in text
        )
        lexicon = make_lexicon(
            *(pairs, source_size, tokenizer.size),
            num_frequent=num_frequent,
            num_targets=num_targets,
            workers=workers,
        )
        if num_bad := sum(text.num_invalid.values()):
            logs.warning(f"{counted(num_bad, 'line')} with bad UTF-8, which became U+FFFD.")
        save_lexicon(found.path, lexicon, uses_shortlist=uses_shortlist)
    size = (found.path / LEXICON).stat().st_size
    use = f" To use it: {command('nmt-cli', 'translate', model)} --shortlist"
    logs.info(f"Wrote {found.path / LEXICON}, {size:,} bytes.{'' if uses_shortlist else use}")
