"""``nmt-cli inspect``: what a model consists of, and what it costs to train, by formula."""

from collections.abc import Sequence

from nmt_cli.commands.inspect_figures import figures_of
from nmt_cli.commands.inspect_formats import as_json, as_report
from nmt_cli.commands.inspect_subject import Lengths, find_subject
from nmt_cli.commands.pipes import StandardOutput


def run(
    recipe_or_model: str,
    overrides: Sequence[str] = (),
    *,
    vocabulary_size: int | None = None,
    lengths: Lengths | None = None,
    max_tokens_per_device: int | None = None,
    target_tokens_per_second: float | None = None,
    output_format: str = "text",
) -> None:
    """Write the figures of a recipe, a model directory or a run to stdout; no weights are read.

    Raises UserError if there is no such thing, or if the size of its vocabulary is not known;
    OutputError if stdout cannot be written.
    """
    subject = find_subject(
        recipe_or_model, overrides, vocabulary_size=vocabulary_size, lengths=lengths
    )
    figures = figures_of(subject, max_tokens_per_device, target_tokens_per_second)
    text = as_json(figures) if output_format == "json" else as_report(figures)
    StandardOutput().write(f"{text}\n".encode())
