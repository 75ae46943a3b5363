"""``nmt-cli inspect``: what a model consists of and costs, as text or JSON."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from nmt_cli.commands.inspecting.figures import THIS_MACHINE, ModelFigures, figures_of
from nmt_cli.commands.inspecting.subject import find_subject
from nmt_cli.commands.lines.standard_streams import StandardOutput
from nmt_cli.costs.flops import BACKWARD_AND_FORWARD, PAPER_SUSTAINED_FLOPS, PlannedWork, StackFlops
from nmt_cli.costs.parameters import MATRICES, StackParameters, TrainingMemory
from nmt_cli.messages.figures import aligned, counted, duration_text, with_prefix
from nmt_cli.messages.logs import printable
from nmt_cli.recipe.model_values import ModelShape

Row = tuple[str, ...]
STACKS = ("encoder", "decoder")
PARTS = {"self_attention": "self-attention", "feed_forward": "feed-forward"}
MEMORY = {"moments": "moments of the optimizer"}
NO_STEPS = (
    "Time: unknown, because training.max_epochs ends this training and its text is not prepared."
)


def as_json(figures: ModelFigures) -> str:
    """Return the figures as JSON: counts, FLOPs, bytes and seconds."""
    subject, lengths = figures.subject, figures.subject.lengths
    memory = None if figures.memory is None else _with_totals(figures.memory)
    content = {
        "name": subject.name,
        "architecture": subject.architecture.as_json(),
        "vocabulary_size": subject.vocabulary_size,
        "source_characters": subject.num_characters,
        "lexicon": subject.lexicon,
        "lengths": {
            "source": lengths.mean_source,
            "target": lengths.mean_target,
            "origin": lengths.origin,
        },
        "parameters": _with_totals(figures.parameters),
        "forward_flops_per_target_token": _scaled(
            _with_totals(figures.flops), 1 / lengths.sums.target
        ),
        "training_flops_per_target_token": BACKWARD_AND_FORWARD
        * figures.per_token(figures.flops.total),
        "memory_bytes": memory and {"max_tokens_per_device": figures.max_tokens, **memory},
        "training": _training_as_json(figures),
    }
    return json.dumps(content, indent=2, ensure_ascii=False)


def _with_totals(counts: Any) -> dict[str, Any]:
    """Return the fields of a named tuple and its total, and so for the tuples in it."""
    fields = {
        name: _with_totals(value) if isinstance(value, tuple) else value
        for name, value in counts._asdict().items()
    }
    parts = (value["total"] if isinstance(value, dict) else value for value in fields.values())
    return {**fields, "total": sum(parts)}


def _scaled(counts: dict[str, Any], factor: float) -> dict[str, Any]:
    return {
        name: _scaled(value, factor) if isinstance(value, dict) else value * factor
        for name, value in counts.items()
    }


def _training_as_json(figures: ModelFigures) -> dict[str, Any] | None:
    work = figures.work
    if work is None:
        return None
    return {
        "steps": work.steps,
        "target_tokens_per_step": work.target_tokens_per_step,
        "flops_per_step": work.flops_per_step,
        "flops": work.flops,
        "flops_as_the_paper_estimates": figures.papers_estimate,
        "times": [time._asdict() for time in figures.times],
    }


def as_report(figures: ModelFigures) -> str:
    """Return the figures as text in sections."""
    sections = [_head(figures), _parameters(figures), _flops(figures)]
    if figures.memory is not None:
        sections.append(_memory(figures, figures.memory))
    if figures.work is not None:
        sections += [_times(figures, figures.work), _flops_of_training(figures, figures.work)]
    elif figures.subject.training is not None:
        sections.append([NO_STEPS])
    return "\n\n".join("\n".join(lines) for lines in sections)


def _head(figures: ModelFigures) -> list[str]:
    subject, config = figures.subject, figures.subject.architecture
    size = config.source_vocabulary_size
    own = "" if size is None else f" of the target, {size:,} of the source"
    lines = [
        printable(subject.name),
        f"{_layers(config)}, vocabulary {subject.vocabulary_size:,}{own}",
    ]
    if subject.num_characters is not None:
        characters = counted(subject.num_characters, "character")
        lines.append(f"trained on sources of {characters}; translate copies others")
    if subject.lexicon is not None:
        used = "by default" if subject.lexicon["uses_shortlist"] else "with --shortlist"
        num_bytes = with_prefix(subject.lexicon["bytes"], "B")
        lines.append(f"lexicon of {num_bytes}, which translate uses {used}")
    return lines


def _layers(config: ModelShape) -> str:
    encoder, decoder = (
        f"layers of width {config.d_model:,} (feed-forward {shape.d_ff:,}), "
        f"{counted(shape.num_heads, 'head')} with keys of {shape.key_width:,} and values of "
        f"{shape.value_width:,}"
        for shape in (config.encoder_shape, config.decoder_shape)
    )
    between = " + " if encoder == decoder else f" {encoder} + "
    return f"{config.encoder_shape.num_layers}{between}{config.decoder_shape.num_layers} {decoder}"


def _parameters(figures: ModelFigures) -> list[str]:
    parameters = figures.parameters
    matrices = counted(MATRICES[figures.subject.architecture.tied_embeddings], "matrix", "matrices")
    rows = [(f"embeddings ({matrices})", parameters.embeddings)]
    if parameters.positions:
        rows.append(("learned positions", parameters.positions))
    if parameters.output_bias:
        rows.append(("bias of the softmax", parameters.output_bias))
    for name in STACKS:
        rows += _parts(name, getattr(parameters, name))
    total = parameters.total
    rows.append(("total", total))
    return ["Parameters", *_indented([(n, f"{c:,}", f"{c / total:.1%}") for n, c in rows])]


def _flops(figures: ModelFigures) -> list[str]:
    flops, lengths = figures.flops, figures.subject.lengths
    parts = [row for name in STACKS for row in _parts(name, getattr(flops, name))]
    parts += [("softmax", flops.softmax), ("total", flops.total)]
    rows: list[Row] = [("", "forward", "training", "")]
    for name, count in parts:
        per_token = figures.per_token(count)
        forward, training = (
            with_prefix(factor * per_token, "FLOP") for factor in (1, BACKWARD_AND_FORWARD)
        )
        rows.append((name, forward, training, f"{count / flops.total:.1%}"))
    return [
        f"FLOPs of a target token, in sentences of {_mean(lengths.mean_source)} source and "
        f"{_mean(lengths.mean_target)} target tokens ({_origin(lengths.origin)})",
        *_indented(rows),
    ]


def _mean(length: float) -> str:
    return f"{length:,.1f}".removesuffix(".0")


def _origin(origin: str) -> str:
    known = {"assumed": "assumed; --lengths gives others", "given": "as given by --lengths"}
    return known.get(origin, f"the means of {printable(origin)}")


def _parts(name: str, stack: StackParameters | StackFlops) -> Iterator[tuple[str, int]]:
    yield name, sum(stack)
    for part, count in stack._asdict().items():
        if count:
            yield f"  {PARTS.get(part, part.replace('_', ' '))}", count


def _memory(figures: ModelFigures, memory: TrainingMemory) -> list[str]:
    rows = [
        (MEMORY.get(name, name.replace("_", " ")), with_prefix(size, "B"))
        for name, size in memory._asdict().items()
        if size
    ]
    rows[-1] = (f"activations of {figures.max_tokens:,} tokens on each side, at most", rows[-1][1])
    rows.append(("total", with_prefix(sum(memory), "B")))
    return ["Memory of training on one device, in fp32", *_indented(rows)]


def _times(figures: ModelFigures, work: PlannedWork) -> list[str]:
    rows = [(time.machine, _duration(time.seconds)) for time in figures.times]
    bases = [time.basis for time in figures.times]
    if THIS_MACHINE not in dict(rows):
        rows.append((THIS_MACHINE, "?"))
        bases.append("give --target-tokens-per-second; train prints this figure")
    return [
        f"Time of {work.steps:,} steps of {work.target_tokens_per_step:,.0f} target "
        f"tokens, {with_prefix(work.flops_per_step, 'FLOP')} each",
        *(f"{line}   {basis}" for line, basis in zip(_indented(rows), bases, strict=True)),
    ]


def _flops_of_training(figures: ModelFigures, work: PlannedWork) -> list[str]:
    papers = figures.times[0]
    return [
        "FLOPs of the whole training",
        f"  {work.flops:.1e}   matrix products of real tokens",
        f"  {figures.papers_estimate:.1e}   as the paper estimates: {papers.machine} for "
        f"{_duration(papers.seconds)} at {with_prefix(PAPER_SUSTAINED_FLOPS, 'FLOP/s')} each",
    ]


def _duration(seconds: float) -> str:
    """Return the time in two units at most: 3h30m, 12m30s."""
    step = 60 if seconds >= 600 else 1
    return duration_text(round(seconds / step) * step)


def _indented(rows: Sequence[Row]) -> list[str]:
    return [f"  {line}" for line in aligned(rows)]


def run(
    recipe_or_model: str,
    overrides: Sequence[str] = (),
    *,
    vocabulary_size: int | None = None,
    lengths: tuple[int, int] | None = None,
    max_tokens_per_device: int | None = None,
    target_tokens_per_second: float | None = None,
    output_format: str = "text",
) -> None:
    """Write the figures of a recipe, a model directory or a run to stdout; no weights are read.

    Raises UserError if there is no such thing, or if the size of its vocabulary is not known;
    OutputError if stdout cannot be written.
    """
    subject = find_subject(recipe_or_model, overrides, vocabulary_size, lengths)
    figures = figures_of(subject, max_tokens_per_device, target_tokens_per_second)
    text = as_json(figures) if output_format == "json" else as_report(figures)
    StandardOutput().write(f"{text}\n".encode())
