"""What ``report`` shows of a run beside its figures: translations, and what cleaning dropped."""

from collections.abc import Iterator
from pathlib import Path

from nmt_cli.commands.checking.text_warnings import RULES, dropped_counts
from nmt_cli.corpus.prepared import trained_on
from nmt_cli.corpus.references import references_of
from nmt_cli.files.atomic_files import read_manifest, sha256
from nmt_cli.files.file_names import AVERAGE, RECIPE, SETS, STUDENT
from nmt_cli.files.folders import is_model
from nmt_cli.files.lines import texts_of
from nmt_cli.launch.run_status import read_status
from nmt_cli.messages import logs
from nmt_cli.messages.errors import DamagedError, RecipeError, UserError
from nmt_cli.messages.figures import moment_text
from nmt_cli.messages.proposals import command
from nmt_cli.metrics.bleu import chrf_scorer
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.recipe.sections.corpora import HeldOutFiles
from nmt_cli.report.run_history import RunDetails, TranslatedSet
from nmt_cli.saved.checkpoints import list_checkpoints
from nmt_cli.saved.run_directory import last_session
from nmt_cli.training.experiment import Experiment
from nmt_cli.training.options import TrainOptions


def details_of(run_dir: Path) -> RunDetails:
    """Return the details of a run; what cannot be read is left out with a warning."""
    checkpoints = list_checkpoints(run_dir)
    served = run_dir / STUDENT if is_model(run_dir / STUDENT) else run_dir
    has_model = checkpoints or is_model(run_dir / AVERAGE)
    serve = command("nmt-cli", "serve", served) if has_model else ""
    status = read_status(run_dir)
    state = "" if status is None else f"{status.state}, {moment_text(status.at)}"
    try:
        file = read_recipe(str(run_dir / RECIPE))
        prepared = Path(last_session(run_dir).get("prepared", file.prepared))
        options = TrainOptions(run_dir=run_dir, prepared=prepared)
        experiment = Experiment.of(str(run_dir), file, options)
        dropped = _dropped(experiment) if checkpoints else []
        return RunDetails(serve, state, [*_translated_sets(experiment)], dropped)
    except RecipeError:  # was reported when the figures were read
        return RunDetails(serve, state)


def _translated_sets(experiment: Experiment) -> Iterator[TranslatedSet]:
    """Yield the translated test sets, unless their text has changed since."""
    try:
        made_from = read_manifest(experiment.translations).get("made_from", {})
    except DamagedError:  # they are damaged, or there are none
        return
    for test in experiment.recipe.data.test_sets:
        of_test = made_from if test.name is None else made_from.get(SETS, {}).get(test.name, {})
        try:
            yield _translated_set(experiment, test, of_test)
        except (UserError, OSError) as error:
            logs.warning(f"the translations of {test} are not shown: {error}")


def _translated_set(
    experiment: Experiment, test: HeldOutFiles, made_from: dict[str, str]
) -> TranslatedSet:
    key, path = next(iter(test.paths.items()))
    source, hypotheses, targets = (
        texts_of(of(test))
        for of in (experiment.source, experiment.translation, experiment.reference)
    )
    if made_from.get(key) != sha256(path) or not len(source) == len(hypotheses) == len(targets):
        raise UserError(f"{path} has changed since; nmt-cli run translates it again.")
    references = references_of(experiment.recipe, targets).lines
    scores, signature = chrf_scorer().scores_of_each(hypotheses, [references])
    lines = list(zip(source, hypotheses, references, scores, strict=True))
    languages = experiment.recipe.data.languages_of(test)
    return TranslatedSet(test.name or "the test text", languages, lines, signature)


def _dropped(experiment: Experiment) -> list[list[str]]:
    """Return the rows of a table of what cleaning dropped, with a column for each corpus.

    Empty, with a line on stderr, if the prepared text was removed, or was made anew since.
    """
    used = list_checkpoints(experiment.run_dir)[-1].manifest.get("prepared_files", {})
    try:
        manifest = read_manifest(experiment.prepared)
        if trained_on(used) != trained_on(manifest["files"]):
            raise DamagedError(f"{experiment.prepared} was prepared anew since.")
    except DamagedError as error:
        logs.info(f"What cleaning dropped is not shown: {error}")
        return []
    counts = [
        {"pairs read": report["pairs_read"], "pairs kept": report["pairs_kept"]}
        | {f"dropped {_named(rule)}": count for rule, count in dropped_counts(report).items()}
        for report in manifest["train"]
    ]
    names = dict.fromkeys(name for of_one in counts for name, count in of_one.items() if count)
    return [
        ["", *(str(next(iter(each.paths.values()))) for each in experiment.recipe.data.train)],
        *([name, *(f"{of_one.get(name, 0):,}" for of_one in counts)] for name in names),
    ]


def _named(rule: str) -> str:
    return RULES.get(rule, (f"by {rule}", ""))[0]
