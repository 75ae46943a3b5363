"""Warnings about text that is probably wrong, one sentence for each finding."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nmt_cli.corpus.prepared import validation_reports
from nmt_cli.corpus.text import cleaning
from nmt_cli.corpus.text.parallel_corpora import CorpusReport
from nmt_cli.corpus.tokenizers.normalization import SIDES, Side
from nmt_cli.messages.figures import counted
from nmt_cli.recipe.schema import Recipe
from nmt_cli.recipe.sections.corpora import ParallelFiles
from nmt_cli.recipe.sections.data import DataConfig

LEAST_IN_PIECES = 0.01  # of the pairs; raw text has almost none
LEAST_VALIDATION = 10  # pairs
LEAST_DROPPED = 0.5  # of the pairs
LEAST_SHARED = 0.05  # of the held-out sentences; short ones occur in any text
LEAST_UNKNOWN = 0.1  # of the pieces of the validation text
RULES = {  # a name, and a key; other rules have the names of their keys in data.filters
    cleaning.EMPTY: ("with an empty side", ""),
    cleaning.DUPLICATE: ("repeated", "data.filters.remove_duplicates"),
    cleaning.TOO_LONG: ("too long", "data.max_length"),
    cleaning.TOO_SHORT: ("too short", "data.filters.min_length"),
    cleaning.LENGTH_RATIO: ("too unequal in length", "data.filters.max_length_ratio"),
    cleaning.SCORES: ("by scores", "data.train.scores"),
}


def on_text(
    training: Sequence[CorpusReport],
    validation: Sequence[CorpusReport],
    recipe: Recipe,
    held_out: Mapping[str, cleaning.HeldOut],
    known: Collection[Path] = (),
) -> Iterator[str]:
    """Yield a warning for each problem found in the text before it is cut into pieces.

    ``held_out`` holds the validation and test pairs, with which the training text was compared;
    ``known`` the files whose encoding was reported before.
    """
    for report in [*training, *validation]:
        yield from _on_bad_bytes(report, known)
        if recipe.data.treebank is None:
            num_texts = report.pairs_read - report.empty
            yield from on_equal_sides(report.files, are_equal=0 < num_texts == report.equal_sides)
        if recipe.tokenizer.type == "sentencepiece":
            yield from _on_pieces(report)
    for report in validation:
        if (num_texts := report.pairs_read - report.empty) < LEAST_VALIDATION:
            yield (
                f"the validation text {report.files} has only {counted(num_texts, 'pair')} with "
                "text, whose figures depend on chance; give some hundred."
            )
    is_all_met = held_out["validation"].is_all_met
    if is_all_met:
        names = ", ".join(str(report.files) for report in validation)
        yield (
            f"every pair of the validation text {names} is in the training text too, so validation "
            "measures only what the model has memorized; give other files as data.validation."
        )
    for report in training:
        yield from _on_overlaps(report, recipe.data, is_all_met=is_all_met)
    if not recipe.data.filters.remove_held_out_sentences and not is_all_met:
        for name, pairs in held_out.items():
            yield from _on_shared_sentences(name, pairs, training)


def _on_overlaps(report: CorpusReport, data: DataConfig, *, is_all_met: bool) -> Iterator[str]:
    names = str(report.files)
    if data.filters.needs_held_out:
        return
    if report.like["validation"].count and not is_all_met:
        found = _as_found(report.also_in["validation"], report.like["validation"].count, names)
        yield f"the validation set holds {found}."
    if report.like["test"].count:
        tests = ", ".join(map(str, data.test_sets))
        found = _as_found(report.also_in["test"], report.like["test"].count, names)
        yield (
            f"the test text {tests} holds {found}, so its score will be too high; "
            "data.filters.remove_held_out: true leaves these pairs out."
        )


def _on_shared_sentences(
    name: str, held_out: cleaning.HeldOut, training: Sequence[CorpusReport]
) -> Iterator[str]:
    sides = list(zip(SIDES, held_out.met_sentences, strict=True))
    sides.sort(key=lambda side: -side[1][0])  # the side with more of them first
    if max(met / max(1, of_all) for _, (met, of_all) in sides) < LEAST_SHARED:
        return
    num_pairs = sum(report.sharing[name] for report in training)
    if num_pairs == sum(report.like[name].count for report in training):
        return  # _on_overlaps warns of whole pairs
    (side, (met, of_all)), (other, (others, _)) = sides
    yield (
        f"{met:,} of {of_all:,} {name} {side}s are {side}s of the training text too, and "
        f"{others:,} {other}s (case, digits, punctuation and spaces do not count), so scores will "
        "be too high; data.filters.remove_held_out_sentences: true leaves out the "
        f"{counted(num_pairs, 'pair')} with such a side."
    )


def _as_found(num_equal: int, num_similar: int, names: str) -> str:
    """Return how many pairs of a training text are also held out, in the words of a warning."""
    similar = num_similar - num_equal
    differing = "that differ at most in case, digits, punctuation and spaces"
    if not num_equal:
        return f"{counted(similar, 'pair')} of {names} {differing}"
    also = f", and {similar:,} {differing}" if similar else ""
    return f"{counted(num_equal, 'pair')} of {names} too{also}"


def _on_bad_bytes(report: CorpusReport, known: Collection[Path]) -> Iterator[str]:
    paths = list(report.files.paths.values())
    counts: dict[Path, int] = {}
    for path, side in zip([paths[0], paths[-1]], SIDES, strict=True):
        counts[path] = max(counts.get(path, 0), report.invalid_utf8[side])
    for path, invalid in counts.items():
        if invalid and path not in known:
            yield f"{path} is not UTF-8 in {counted(invalid, 'line')}; is it in another encoding?"


def on_equal_sides(files: ParallelFiles, *, are_equal: bool) -> Iterator[str]:
    """Yield a warning if one file is both sides, or if both sides ``are_equal`` in every line."""
    if files.rows is not None:
        if are_equal:
            yield f"both sides of {files.rows} are equal in every line; correct columns."
        return
    source, target = files.text_files
    if source.samefile(target):
        yield f"{source} is given as source and as target; correct one of the two paths."
    elif are_equal:
        yield f"{source} and {target} are equal in every line; correct one of the two paths."


def _on_pieces(report: CorpusReport) -> Iterator[str]:
    if report.in_pieces > LEAST_IN_PIECES * report.pairs_read:
        yield (
            f"{report.in_pieces:,} of {report.pairs_read:,} pairs of {report.files} hold "
            '"@@ ", so the text is already in pieces, and SentencePiece would cut it again; '
            'use tokenizer: {type: whitespace, joiner: "@@"}, or join the pieces first: '
            "sed -E 's/@@( |$)//g'"
        )


def on_dropped(manifest: Mapping[str, Any]) -> Iterator[str]:
    """Yield a warning if most pairs were dropped."""
    validation = {
        f"{report['name']} validation" if "name" in report else "validation": [report]
        for report in validation_reports(manifest).values()
    }
    for name, reports in {"training": manifest["train"], **validation}.items():
        read = sum(report["pairs_read"] for report in reports)
        dropped = read - sum(report["pairs_kept"] for report in reports)
        if dropped <= LEAST_DROPPED * read:
            continue
        counts = [dropped_counts(report) for report in reports]
        worst = max(cleaning.RULES, key=lambda rule: sum(count.get(rule, 0) for count in counts))
        _, key = RULES.get(worst, ("", f"data.filters.{worst}"))
        where = "the text" if worst == cleaning.EMPTY else f"the text or {key}"
        yield (
            f"{dropped:,} of {read:,} {name} pairs were dropped ({dropped_in_words(counts)}); "
            f"correct {where} if that is too many."
        )


def on_links(manifest: Mapping[str, Any]) -> Iterator[str]:
    """Yield a warning for each corpus with pairs whose links were left out."""
    for report in manifest["train"]:
        other = report["found"].get("pairs_of_other_words", 0)
        if other:
            yield (
                f"the links of {counted(other, 'pair')} in {report['alignments']} were left out, "
                "because data.normalization or the tokenizer joins or separates words of these "
                "pairs."
            )


def dropped_in_words(counts_of_corpora: Iterable[Mapping[str, int]]) -> str:
    """Return how many pairs each rule dropped, as text for a message."""
    counts = list(counts_of_corpora)
    totals = {rule: sum(count.get(rule, 0) for count in counts) for rule in cleaning.RULES}
    return ", ".join(
        f"{total:,} {RULES.get(rule, (f'by {rule}', ''))[0]}"
        for rule, total in totals.items()
        if total
    )


def dropped_counts(report: Mapping[str, Any]) -> dict[str, int]:
    """Return how many pairs each rule dropped, by the manifest's entry of a corpus."""
    return {rule: pairs["count"] for rule, pairs in report["dropped"].items()}


def on_unknown(manifest: Mapping[str, Any]) -> Iterator[str]:
    """Yield a warning for each side of a validation set with many unknown pieces."""
    for part, report in validation_reports(manifest).items():
        for side in SIDES:
            trained, measured = (share_unknown(manifest, of, side) for of in ("train", part))
            if measured > LEAST_UNKNOWN and measured > 2 * trained:
                rows = report.get("tsv", report.get("jsonl"))
                where = report[side] if rows is None else f"the {side} in {rows}"
                yield (
                    f"{measured:.0%} of the pieces of {where} are unknown, "
                    f"{trained:.0%} of those of the training text; "
                    "were both tokenized and normalized in the same way?"
                )


def share_unknown(manifest: Mapping[str, Any], part: str, side: Side) -> float:
    """Return the share of unknown pieces on one side of "train" or a validation set."""
    return manifest["unknown"][part][side] / max(1, manifest["tokens"][part][side])
