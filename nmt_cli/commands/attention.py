"""``nmt-cli attention``: shows what attends to what in one sentence and its translation."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

from nmt_cli.commands.lines.standard_streams import StandardOutput
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
from nmt_cli.files.atomic_files import file_appearing_whole, refuse_file
from nmt_cli.files.lines import is_blank
from nmt_cli.files.locks import claimed
from nmt_cli.files.output_streams import STANDARD_OUTPUT
from nmt_cli.hardware.cpu import set_num_threads
from nmt_cli.hardware.machine_options import AUTO
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError, WrongUsageError
from nmt_cli.messages.extras import importing
from nmt_cli.pictures.attention import Attention, as_html, as_json
from nmt_cli.search.loading import EnsembleMember, load_models
from nmt_cli.translating import shown_attention as showing
from nmt_cli.translating.translator import Translator

ALL = "all"
DEFAULT_OUTPUT = Path("attention.html")
REMEDY = "choose fewer --layers or --heads, one --kind, or a shorter sentence"
FORMATS = {".html": "html", ".htm": "html", ".png": "png", ".json": "json"}


def run(  # noqa: PLR0913 - the options of a command are its parameters
    model: Path,
    source: str,
    target: str | None = None,
    *,
    output: Path | None = None,
    output_format: str | None = None,
    kind: str = ALL,
    layers: Sequence[range] | None = None,
    heads: Sequence[range] | None = None,
    force: bool = False,
    device: str = AUTO,
    threads: int | None = None,
) -> None:
    """Write a page, a PNG file or JSON with the attention between ``source`` and ``target``.

    Without ``target``, the model translates the source. Layers and heads count from 1; None means
    all heads, and all layers except in a PNG file, which shows the last. JSON goes to stdout if
    ``output`` is None. Raises UserError if the model, a text or an option is wrong, if ``output``
    exists without ``force``, or if matplotlib is missing for a PNG file.
    """
    output_format = output_format or _format_of(output)
    write = _writer(output_format)
    if output is None and output_format != "json":
        output = DEFAULT_OUTPUT.with_suffix(f".{output_format}")
    elif output == STANDARD_OUTPUT:
        output = None
    if output is not None:
        refuse_file(output, replace=True)  # a file in its place is refused behind wrong options
    set_num_threads(threads)
    texts = {"source": source} if target is None else {"source": source, "target": target}
    _refuse_no_text(texts)
    with claimed(output, "--output") if output is not None else nullcontext():
        loaded = load_models(model, (), device, "fp32")
        (first,), tokenizer = loaded.members, loaded.tokenizer
        settings = first.settings
        kinds = showing.kinds_of(settings.architecture)
        if kind != ALL:
            if kind not in kinds:
                raise UserError(
                    f"the decoder of {loaded.path} has recurrent units in place of self-attention; "
                    f"choose --kind {' or '.join(kinds)}."
                )
            kinds = (kind,)
        num_layers, num_heads = showing.common_counts(settings.architecture, kinds)
        if layers is None and output_format == "png":
            layers = [range(num_layers, num_layers + 1)]
        shown = showing.Shown(
            kinds, _chosen(layers, num_layers, "layers"), _chosen(heads, num_heads, "heads"), REMEDY
        )
        if output is not None:
            refuse_file(output, replace=force)
        if target is None:
            showing.refuse_too_long(settings, tokenizer.encode(source, "source"), "source")
            shown_target = _translated(first, tokenizer, source)
        else:
            shown_target = showing.Target(target, tokenizer.encode(target, "target"), is_given=True)
        attention = showing.attention_between(
            settings, tokenizer, first.model, str(loaded.path), source, shown_target, shown
        )
        content = write(attention)
        if output is None:
            StandardOutput().write(content)
            return
        with file_appearing_whole(output, replace=force) as stream:
            stream.write(content)
    logs.info(f"Wrote {output}.")


def _format_of(output: Path | None) -> str:
    if output is None:
        return "html"
    if output == STANDARD_OUTPUT:
        raise WrongUsageError("--output - needs --format, which no name shows.")
    if output.suffix.lower() not in FORMATS:
        raise WrongUsageError(
            f"--output {output} must end in {', '.join(FORMATS)}, unless --format is given."
        )
    return FORMATS[output.suffix.lower()]


def _writer(output_format: str) -> Callable[[Attention], bytes]:
    """Return what makes the content of the output. Raises UserError if matplotlib is missing."""
    if output_format == "json":
        return lambda attention: as_json(attention).encode()
    if output_format == "html":
        return lambda attention: as_html(attention).encode()
    otherwise = ", or write a page with --output FILE.html."
    with importing("matplotlib", "PNG files are drawn", otherwise):
        from nmt_cli.pictures.figure import as_png
    return as_png


def _refuse_no_text(texts: dict[str, str]) -> None:
    for name, text in texts.items():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UserError(f"the {name} is not UTF-8 text.") from None
        if is_blank(text):
            hint = "; leave it out to see the model's translation" if name == "target" else ""
            raise UserError(f"the {name} is blank{hint}.")


def _chosen(ranges: Sequence[range] | None, count: int, name: str) -> list[int]:
    """Return the numbers of ``ranges``, all from 1 to ``count``, in order; all if it is None."""
    if ranges is None:
        return list(range(1, count + 1))
    ends = [end for numbers in ranges for end in (numbers[0], numbers[-1])]
    wrong = next((end for end in ends if not 1 <= end <= count), None)
    if wrong is not None:
        raise UserError(f"--{name} {wrong}: the model has {name} 1 to {count}.")
    return sorted({number for numbers in ranges for number in numbers})


def _translated(member: EnsembleMember, tokenizer: Tokenizer, source: str) -> showing.Target:
    """Return the model's translation of ``source``."""
    model = member.settings, tokenizer, member.model
    translator = Translator(
        *model, precision="fp32", too_long="error", translate_everything=True, split_sentences=False
    )
    (translation,) = translator.translate([source])
    if translation.error is not None:
        raise UserError(f"the source could not be translated: {translation.error}.")
    logs.info(f"Translation: {translation.text}")
    # To encode the text could give other pieces.
    ids = {piece: token for token, piece in enumerate(tokenizer.pieces(range(tokenizer.size)))}
    tokens = [ids[piece] for piece in translation.tokens]
    return showing.Target(translation.text, tokens, is_given=False)
