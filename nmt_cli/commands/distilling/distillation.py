"""A distillation: the teacher, the student's recipe, and where everything is.

RUN                         the training of the student: its checkpoints, average, scores, report
RUN/student                 the model that ships
RUN/distillation/texts      what the teacher translates
RUN/distillation/answers    what a language model answered, if that is the teacher
RUN/distillation/teacher    its translations
RUN/distillation/chosen     the pairs that were chosen from them
RUN/distillation/filtered   those that --reverse-model left
RUN/distillation/links      their words aligned
RUN/distillation/prepared   what preprocess made of them
RUN/distillation/lexicon    the pieces that may translate each piece
RUN/distillation/int8       the run of the training with weights and activations in int8
RUN/distillation/table      the figures of teacher and student
RUN/distillation/NAME.yaml  the recipe of the student's training: what it changes in that of the
                            user, whose values are in NAME-given.yaml
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli.corpus.text.language_codes import fits
from nmt_cli.files.atomic_files import file_appearing_whole, make_folders
from nmt_cli.files.file_names import AVERAGE, DISTILLATION, LEXICON, RUNS, STUDENT, STUDENT_TABLE
from nmt_cli.files.folders import AVERAGED, DISTILLED
from nmt_cli.messages.errors import UserError
from nmt_cli.recipe.model_settings import UNKNOWN_LANGUAGE
from nmt_cli.recipe.reading.reader import RecipeFile, read_recipe
from nmt_cli.recipe.reading.recipe_files import dump_recipe
from nmt_cli.recipe.reading.yaml_tree import write_yaml
from nmt_cli.recipe.schema import Recipe
from nmt_cli.recipe.sections.corpora import Corpus
from nmt_cli.recipe.sections.mixing import Stage
from nmt_cli.recipe.sections.tokenizer import TokenizerConfig
from nmt_cli.recipe.sections.training import DistillationConfig, TeacherConfig
from nmt_cli.saved.model_directory import Model, find_model
from nmt_cli.training.experiment import Experiment
from nmt_cli.training.options import TrainOptions

# In the folder of --taught, if that is given.
SHARED = ("texts", "answers", "teacher", "teacher-begun")


class TeacherText(NamedTuple):
    """A text that the teacher translates."""

    number: int  # in data.train or distillation.monolingual
    corpus: Corpus | None  # of data.train
    path: Path  # of monolingual text, or the first file of the corpus
    tag: str | None
    weight: float

    @property
    def name(self) -> str:
        """What the names of its files begin with."""
        return f"{'monolingual' if self.corpus is None else 'train'}.{self.number}"

    @property
    def source(self) -> str:
        """The name of the file with its source lines."""
        return f"{self.name}.source"

    @property
    def target(self) -> str:
        """The name of the file with the references, or with the teacher's translations."""
        return f"{self.name}.target"


class TeacherServer(NamedTuple):
    """Where a language model is, and what it may cost: nothing that the translations depend on."""

    url: str
    concurrency: int
    key_variable: str  # the name of the environment variable that holds the key
    prices: tuple[float, float] | None  # of a million tokens of prompts, and of answers
    max_cost: float | None

    def cost_of(self, prompt: int, completion: int) -> float:
        """Return what the tokens of prompts and of answers cost."""
        for_prompts, for_answers = self.prices or (0.0, 0.0)
        return (prompt * for_prompts + completion * for_answers) / 1e6


@dataclass(frozen=True)
class Distillation:
    """What ``distil`` was asked for."""

    teachers: Sequence[Path]  # an ensemble, if there are several; none: a language model
    reverse_model: Path | None
    file: RecipeFile  # as the user gave it
    options: TrainOptions
    taught: Path | None = None  # a folder of what the teacher translates, for several students
    arguments: Sequence[str] = ()  # of the command, for advice on how to go on
    server: TeacherServer | None = None  # of the language model

    @property
    def recipe(self) -> Recipe:
        """The recipe that the user gave."""
        return self.file.recipe

    @property
    def config(self) -> DistillationConfig:
        """The section of the recipe on distillation."""
        return self.recipe.distillation

    @property
    def run_dir(self) -> Path:
        """The folder of the student's training."""
        return self.options.run_dir or Path(RUNS) / self.file.name

    def folder(self, name: str) -> Path:
        """Return the folder of the results of a stage."""
        if self.taught is not None and name in SHARED:
            return self.taught / name
        return self.run_dir / DISTILLATION / name

    @property
    def shipped(self) -> Path:
        """The folder of the model that ships."""
        return self.run_dir / STUDENT

    @property
    def replaced(self) -> dict[Path, str]:
        """The kind of each folder that a stage replaces."""
        names = ("texts", "teacher", "chosen", "filtered", "links", LEXICON, STUDENT_TABLE)
        return {**{self.folder(name): DISTILLED for name in names}, self.shipped: AVERAGED}

    @property
    def pairs(self) -> Path:
        """The folder of the pairs that the student learns from."""
        return self.folder("chosen" if self.reverse_model is None else "filtered")

    @property
    def is_aligned(self) -> bool:
        """Whether the training needs the links of words."""
        weight, guided = self.config.guided_alignment, self.recipe.training.guided_alignment
        return weight is not None or guided is not None

    @property
    def teacher_config(self) -> TeacherConfig:
        """What the recipe says of a language model. Raises UserError if that is nothing."""
        if self.config.teacher is None:
            raise UserError(
                "--teacher-url needs the name of the model in the recipe; add "
                "distillation.teacher.model, or give --set distillation.teacher.model=NAME."
            )
        return self.config.teacher

    @cached_property
    def models(self) -> list[Model]:
        """The teachers. Raises UserError if one is missing."""
        return [find_model(path) for path in self.teachers]

    @property
    def texts(self) -> list[TeacherText]:
        """The texts that the teacher translates, in the order of the student's corpora."""
        corpora = [
            TeacherText(number, each, next(iter(each.paths.values())), each.tag, each.weight)
            for number, each in enumerate(self.recipe.data.train)
        ]
        monolingual = [
            TeacherText(number, None, each.source, each.tag, each.weight)
            for number, each in enumerate(self.config.monolingual)
        ]
        return corpora + monolingual

    @cached_property
    def student(self) -> Experiment:
        """The student's training, whose recipe is written when this is first asked for."""
        given = self._written("-given", dump_recipe(self.recipe))
        keys = {"data": {**self._data(self.recipe.data.stages), "prepared": None}}
        if self.config.guided_alignment is not None:
            weight = {"weight": self.config.guided_alignment}
            keys["training"] = {"guided_alignment": weight}
        is_free = self.recipe.origin is None and self.recipe.tokenizer.model is None
        if is_free and self.teachers and self.config.tokenizer == "teacher":
            self._adopt_tokenizer(keys)
        return self._experiment("", given, keys, run_dir=self.run_dir)

    @cached_property
    def int8_run(self) -> Experiment:
        """The training of the student with its weights and activations in int8."""
        num_steps = self.config.int8_steps
        warmup_steps = max(1, num_steps // 10)
        keys = {
            "data": self._data(self.recipe.data.stages[-1:]),
            "training": {
                **{"quantization_aware": "int8", "max_steps": num_steps, "max_epochs": None},
                **{"schedule": "cosine", "peak_learning_rate": self.config.int8_learning_rate},
                **{"warmup_steps": warmup_steps, "decay_steps": max(1, num_steps - warmup_steps)},
                **{"warmup_start": 0.0, "final_learning_rate": 0.0, "stable_steps": None},
                "ema_decay": None,
            },
            "validation": {"every_steps": num_steps, "patience": None},
            "checkpoints": {"every_steps": num_steps, "keep_for_average": 1},
        }
        options = {"run_dir": self.folder("int8"), "init_from": self.run_dir / AVERAGE}
        return self._experiment("-int8", self.student.file.path, keys, **options)

    def _experiment(
        self, suffix: str, parent: Path, keys: Mapping[str, Any], **options: Any
    ) -> Experiment:
        """Write a recipe that changes ``keys`` of ``parent``; return its training."""
        path = self._written(suffix, write_yaml({"extends": parent.name, **keys}))
        prepared = self.folder("prepared")
        of_training = replace(self.options, overrides=(), prepared=prepared, **options)
        return Experiment.of(str(path), read_recipe(str(path)), of_training)

    def _written(self, suffix: str, text: str) -> Path:
        """Return the path of a recipe with this text, which is written if it has changed."""
        path = self.folder(f"{Path(self.file.name).name}{suffix}.yaml")
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            make_folders(path.parent)
            with file_appearing_whole(path, replace=True) as stream:
                stream.write(text.encode())
        return path

    def _data(self, stages: Sequence[Stage]) -> dict[str, Any]:
        """Return the text of the student in these stages."""
        corpora = [*map(self._as_corpus, self.texts), *self._originals()]
        if stages and all(stage.by_name is not None for stage in stages):
            for corpus in corpora:  # its weight would have no effect
                corpus["weight"] = 1.0
        return {"train": corpora, "stages": list(map(self._with_all_texts, stages))}

    def _as_corpus(self, text: TeacherText) -> dict[str, Any]:
        """Return the entry of data.train for what the teacher made of ``text``."""
        is_named = any(stage.by_name for stage in self.recipe.data.stages)
        of_corpus: dict[str, Any] = {"name": text.name if is_named else None}
        if text.corpus is not None:
            of_corpus = {"name": text.corpus.name, "augment": {"noise": text.corpus.augment.noise}}
        return {
            **of_corpus,
            "weight": text.weight,
            "tag": text.tag,
            "source": str(self.pairs / text.source),
            "target": str(self.pairs / text.target),
            "alignments": str(self.folder("links") / text.name) if self.is_aligned else None,
        }

    def _with_all_texts(self, stage: Stage) -> dict[str, Any]:
        """Return a stage of the student, with numbers for originals and monolingual texts."""
        values, factor = stage.model_dump(mode="json"), self.config.original_weight
        if stage.by_name is None:
            return values
        for numbers in filter(None, (values["shares"], values["weights"])):
            originals = {f"{name}-original": factor * each for name, each in numbers.items()}
            numbers |= originals if factor else {}
        further = {text.name: text.weight for text in self.texts if text.corpus is None}
        return {**values, "weights": {**(values["weights"] or {}), **further} or None}

    def _originals(self) -> list[dict[str, Any]]:
        """Return the entries for the pairs with their own targets."""
        factor = self.config.original_weight
        return [
            {
                **corpus.model_dump(mode="json"),
                "name": corpus.name and f"{corpus.name}-original",
                "weight": factor * corpus.weight,
            }
            for corpus in self.recipe.data.train
            if factor
        ]

    def _adopt_tokenizer(self, keys: dict[str, Any]) -> None:
        """Put the teacher's tokenizer and normalization into the keys of the recipe."""
        settings, own = self.models[0].settings, self.recipe.tokenizer
        keys["tokenizer"] = TokenizerConfig.model_construct(
            type=settings.text.type,
            joiner=settings.text.joiner,
            model=self.models[0].path,
            user_defined_symbols=own.user_defined_symbols,
            sampling=own.sampling,
        ).model_dump(mode="json")
        keys["data"]["normalization"] = dict(vars(settings.text.normalization))
        own_of_source = settings.architecture.source_vocabulary_size
        keys["model"] = {"source_vocabulary_size": own_of_source}
        if own_of_source is not None and self.recipe.model.tied_embeddings == "all":
            keys["model"]["tied_embeddings"] = "decoder"

    def refuse_unfit(self) -> None:
        """Raise UserError if the teacher cannot translate what the student shall learn."""
        data = self.recipe.data
        if data.treebank is not None or any(each.settings.trees for each in self.models):
            raise UserError("distil is for text; models that parse have no students.")
        if self.server is not None:
            self._refuse_unfit_for_language_model()
            return
        ours = data.source_language, data.target_language
        for teacher, model in zip(self.teachers, self.models, strict=True):
            text = model.settings.text
            theirs = text.source_language, text.target_language
            if not all(map(fits, theirs, ours)) and UNKNOWN_LANGUAGE not in (*theirs, *ours):
                raise UserError(
                    f"{teacher} translates from {theirs[0]} to {theirs[1]}, the recipe from "
                    f"{ours[0]} to {ours[1]}; give another teacher, or correct "
                    "data.source_language and data.target_language of the recipe."
                )
        text = self.models[0].settings.text
        type_of_student = self.student.recipe.tokenizer.type
        if text.type != type_of_student:
            raise UserError(
                f"tokenizer.type must be {text.type}, that of {self.teachers[0]}, but is "
                f"{type_of_student}; leave distillation.tokenizer: own out."
            )

    def _refuse_unfit_for_language_model(self) -> None:
        """Raise UserError for what only a model of nmt-cli can do as a teacher."""
        given = self.teacher_config and self.config.model_fields_set
        for key in ("n_best", "targets", "choose"):
            if key in given and (value := getattr(self.config, key)) != 1:
                raise UserError(
                    f"distillation.{key} is {value}, but a language model gives one translation of "
                    "each line; leave it out."
                )
        for number, corpus in enumerate(self.recipe.data.train):
            key, problem = f"data.train.{number}", None
            if corpus.augment.terms > 0 and self.config.augmented_copies:
                problem = "augment.terms is for a teacher that knows tags of terms; leave it out"
            elif corpus.tag is not None and corpus.languages is None:
                problem = "tag names no language for the prompt of a language model; add languages"
            if problem is not None:
                raise UserError(f"{key}.{problem}.")
