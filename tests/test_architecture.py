"""The rules of the structure: layers point down, each dependency has one door, files stay small."""

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import nmt_cli
from tests.imported_files import imports_of_files

PACKAGE = Path(nmt_cli.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
MAX_LINES = 400

# From the bottom up; a unit may import from lower layers and from itself.
LAYERS = [
    {"messages"},
    {"files"},
    {"launch", "metrics", "parsing"},
    {"recipe"},
    {"hardware"},
    {"corpus", "costs", "pictures"},
    {"alignment", "model"},
    {"datasets", "optimization", "report"},
    {"saved"},
    {"search"},
    {"interchange"},
    {"translating"},
    {"documents"},
    {"training", "serving"},
    {"commands"},
    {"command_line"},
    {"cli"},
    {"__main__"},
]
DOORS = {
    "click": {"cli", "command_line"},
    "yaml": {"recipe"},
    "pydantic": {"recipe"},
    "pydantic_core": {"recipe"},
    "sentencepiece": {"corpus", "interchange"},
    "ctranslate2": {"interchange"},
    "sentencex": {"corpus"},
    "markdown_it": {"documents"},
    "nltk": {"parsing"},
    "rapidfuzz": {"translating"},
    "sacremoses": {"corpus", "metrics"},
    "sacrebleu": {"datasets", "metrics"},
    "safetensors": {"interchange", "model"},
    "transformers": {"interchange"},
    "tqdm": {"messages"},
    "requests": {"commands", "datasets"},
    "matplotlib": {"pictures", "report"},
    "tensorboard": {"saved"},
    "triton": {"model"},
    "python_multipart": {"serving"},
    "starlette": {"serving"},
    "uvicorn": {"serving"},
    "py3langid": {"corpus", "serving"},
    "prometheus_client": {"serving"},
    "torch": {
        "hardware",
        "launch",
        "model",
        "search",
        "interchange",
        "optimization",
        "saved",
        "training",
    },
}
COUNTS_CORES = re.compile(r"sched_getaffinity|cpu_count|torch\.set_num_threads|PoolExecutor\(\)")


def unit_of(path):
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def layer_of(unit):
    return next(number for number, units in enumerate(LAYERS) if unit in units)


def imported_modules(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                yield f"{node.module}.{alias.name}"


def broken_rules(path):
    text = path.read_text(encoding="utf-8")
    if path.name == "__init__.py":
        if text and path.parent != PACKAGE:
            yield "only the package's own holds names"
        return
    if text.count("\n") > MAX_LINES:
        yield f"more than {MAX_LINES} lines"
    unit = unit_of(path)
    if unit != "hardware" and COUNTS_CORES.search(text):
        yield "counts cores itself; hardware/cpu.py: usable_cores counts those of a quota"
    for module in imported_modules(path):
        root, *rest = module.split(".")
        if module in {"nmt_cli", "nmt_cli.__version__"}:
            continue  # its own names
        if root == "nmt_cli":
            if rest[0] != unit and layer_of(rest[0]) >= layer_of(unit):
                yield f"{unit} imports {rest[0]}, which is not below it"
        elif unit not in DOORS.get(root, {unit}):
            yield f"{root} is imported outside its door"


def test_modules_keep_the_rules():
    broken = [
        f"{path.relative_to(PACKAGE)}: {rule}" for path in MODULES for rule in broken_rules(path)
    ]
    assert not broken, "\n".join(broken)


def refuse_circle(imports):
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" is imported by ".join(error.args[1]))


def test_files_form_no_circle():
    """An import within a function counts too, and so does one for types only."""
    refuse_circle(imports_of_files())


def test_folders_of_translating_form_no_circle():
    """A line passes through them; markup belongs to the folder around it."""
    imports: dict[str, set[str]] = {}
    for file, imported in imports_of_files().items():
        folder, *others = ("/".join(each.split("/")[:-1][:2]) for each in (file, *imported))
        if folder.startswith("translating"):
            below = {each for each in others if each.startswith("translating")}
            imports.setdefault(folder, set()).update(below - {folder})
    assert len(imports) > 5
    refuse_circle(imports)


def test_every_unit_has_a_layer():
    known = set.union(*LAYERS)
    assert {unit_of(path) for path in MODULES} - {"__init__"} == known


def test_top_level_is_the_owners():
    root = PACKAGE.parent
    if not (root / "setup.py").exists():
        pytest.skip("the package runs outside its checkout")
    for name in ("nmt_cli", "recipes", "data", "tests"):
        assert (root / name).is_dir()
    assert (root / "LICENSE").is_file()
