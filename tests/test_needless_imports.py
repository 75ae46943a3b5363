"""Commands start soon: those that translate without torch, training without its compiler."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.launch.python_process import NMT_CLI
from tests.imported_modules import ended
from tests.serving.test_serve import Command, children, translated

MODEL = Path(__file__).parent / "formats/format_2/sentencepiece/run/average"
PARSER = Path(__file__).parent / "formats/format_3/treebank/run/average"
INT8 = Path(__file__).parent / "formats/format_4/int8/run/average"
COMPILER = {"torch._dynamo", "torch._inductor", "sympy"}  # they take longer to import than torch
OF_OTHER_COMMANDS = {
    *("torch", "pydantic", "tqdm", "importlib.metadata", "statistics"),
    *("yaml", "sacrebleu", "sacremoses", "nltk", "matplotlib", "tensorboard"),
    *("requests", "nmt_cli.training", "nmt_cli.recipe.schema", "nmt_cli.recipe.sections"),
    *(f"nmt_cli.saved.{name}" for name in ("run_directory", "training_state", "metrics_log")),
    *("html.parser", "xml.parsers.expat", "markdown_it", "rapidfuzz", "py3langid"),
    *("starlette", "uvicorn", "prometheus_client"),
    *("multiprocessing", "subprocess", "sentencex"),
    *("nmt_cli.translating.workers", "nmt_cli.parsing"),
    *(f"nmt_cli.command_line.{name}" for name in ("training", "serving", "scoring")),
}
# Packages that every translation needs import some of these; nmt-cli itself must not.
NEEDED = ("click", "numpy", "safetensors", "sentencepiece")
OF_OTHER_TEXTS = {
    *("ast", "inspect", "platform", "tempfile", "uuid"),
    *("backports.zstd", "bz2", "compression.zstd", "gzip", "lzma", "zipfile"),
    *("html", "concurrent.futures.thread"),
    *("nmt_cli.files.compression", "nmt_cli.documents.document"),
    *(f"nmt_cli.commands.lines.{name}" for name in ("document_text", "resumable_output")),
    *("nmt_cli.command_line.meant", "nmt_cli.messages.other_toolkits", "click.shell_completion"),
}
MAY_BE_MISSING = ("matplotlib", "tensorboard", "requests", "nltk", "ctranslate2", "transformers")
PROGRAM = """
import importlib, json, pkgutil, sys
sys.modules.update(dict.fromkeys({missing}))  # importing one of them fails
def imported():
    return [name for name, module in sorted(sys.modules.items()) if module is not None]

from nmt_cli.cli import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    assert end.code == 0
of_translating = imported()

from pathlib import Path
from nmt_cli.saved.model_directory import load_model
load_model(Path({int8!r}))
import torch
from nmt_cli.optimization import Muon
vector, matrix = torch.ones(3, requires_grad=True), torch.ones(3, 3, requires_grad=True)
optimizer = Muon([{{"params": [vector]}}], {{matrix: [len(matrix)]}}, fused=True)
(vector.sum() + matrix.sum()).backward()
optimizer.step()
of_training = imported()

from nmt_cli import commands
missing = []
for module in pkgutil.iter_modules(commands.__path__):
    try:
        importlib.import_module(f"nmt_cli.commands.{{module.name}}")
    except ImportError as error:
        missing.append(f"{{module.name}}: {{error}}")
json.dump([of_translating, of_training, missing], sys.stderr)
"""


@pytest.fixture(scope="module")
def imported():
    """The modules of one process after it has translated a line, and after a step of Muon.

    Then the commands that it cannot import, because it lacks packages.
    """
    arguments = ["translate", str(MODEL), "--device=cpu", "--threads=1", "--quiet"]
    program = PROGRAM.format(int8=str(INT8), missing=MAY_BE_MISSING)
    command = [sys.executable, "-c", program, *arguments]
    result = subprocess.run(command, input="one\n", capture_output=True, text=True, check=True)
    assert result.stdout.count("\n") == 1
    of_translating, of_training, missing = json.loads(result.stderr.splitlines()[-1])
    return set(of_translating), set(of_training), missing


def test_a_line_is_translated_without_the_modules_of_other_commands(imported):
    assert not imported[0] & (COMPILER | OF_OTHER_COMMANDS)


def test_text_from_a_pipe_needs_no_documents_nor_compression(tmp_path):
    """What the packages import is there before; the rest is what nmt-cli imports."""
    program = f"""
import sys, {", ".join(NEEDED)}
before = set(sys.modules)
from nmt_cli.cli import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    assert end.code == 0
print(*sorted(set(sys.modules) - before), file=sys.stderr)
"""
    words = [sys.executable, "-c", program, "translate", str(MODEL), "--device=cpu", "--quiet"]
    done = subprocess.run(words, input="one\n", capture_output=True, text=True, check=True)
    assert done.stdout.count("\n") == 1
    imported = set(done.stderr.split())
    assert "nmt_cli.translating.translator" in imported
    assert not imported & OF_OTHER_TEXTS


@pytest.fixture
def without_torch(tmp_path, monkeypatch):
    """Neither this process's children nor theirs can import torch, or what training needs."""
    for name in ("torch", "pydantic", "matplotlib", "sacrebleu", "sacremoses", "yaml"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a needless import')")
    (tmp_path / "en").write_text("one\ntwo\nthree\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        "translate {model} --input en --alignments --format jsonl",
        "translate {model} --input en --precision int8 --ensemble {model}",
        "translate {model} --input en --sample --n-best 3 --format tsv",
        "translate {model} --input en --required one --banned b --no-repeat-ngram 2",
        "translate {model} --input en --workers 2",
        "translate {parser} --input en --well-formed-trees",
        "rescore {model} en en",
        "attention {model} one --format json",
    ],
)
def test_commands_on_a_cpu_import_no_torch(without_torch, words):
    named = words.format(model=MODEL, parser=PARSER)
    command = [sys.executable, "-c", NMT_CLI, *named.split(), "--quiet"]
    done = subprocess.run([*command, "--device=cpu"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") >= (1 if words.startswith("attention") else 3)


def test_a_service_on_a_cpu_imports_no_torch_in_any_process(without_torch):
    service = Command(f"{MODEL}=en:de", "--workers=2", "--device=cpu")
    try:
        service.url = service.wait_for(r"http://\S+").group()
        assert len(translated(service, ["one", "two", "three"])) == 3
        starter, *others = children(service.process.pid)
        assert (len(children(starter)), others) == (2, [])
        assert "Traceback" not in service.log
    finally:
        service.close()


def test_optimizers_leave_the_compiler_alone(imported):
    assert not imported[1] & COMPILER


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        ([], 0, "out is complete, and made with this model, text and options: nothing to do."),
        (["--beam-size=3"], 1, "out is complete, but was made with other options. Give"),
    ],
)
def test_a_finished_translation_needs_no_torch(tmp_path, monkeypatch, options, status, message):
    monkeypatch.chdir(tmp_path)
    Path("in").write_text("one\ntwo\n")
    words = ["translate", str(MODEL), "--input=in", "--output=out"]
    assert CliRunner().invoke(cli.main, words).exit_code == 0
    found = ended([*words, "--resume", *options], tmp_path)
    assert found.status == status
    assert message in found.stderr
    assert "torch" not in found.modules


@pytest.mark.parametrize("command", ["train", "run"])
def test_a_wrong_recipe_is_reported_without_torch(tmp_path, command):
    (tmp_path / "mine.yaml").write_text("extends: base\nmodel: {from: missing}\n")
    found = ended([command, "./mine.yaml"], tmp_path)
    assert found.status == 1
    assert "model.from: model directory missing not found" in found.stderr
    assert "torch" not in found.modules


def test_no_command_needs_packages_that_may_be_missing_before_it_uses_them(imported):
    assert imported[2] == []


def test_lines_are_prepared_searched_and_answered_without_torch():
    names = ("scheduling.line_processor", "outputs.attention_to_source", "shown_attention")
    imports = "; ".join(f"import nmt_cli.translating.{name}" for name in names)
    imports += "; import nmt_cli.model.compiled.layers"
    searches = ("driver", "constrained_candidates", "compiled_model")
    rules = ("rule", "well_formed_trees")
    imports += "".join(f"; import nmt_cli.search.{name}" for name in searches)
    imports += "".join(f"; import nmt_cli.search.rules.{name}" for name in rules)
    code = f"import sys; {imports}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_command_whose_workers_translate_needs_no_numpy():
    """Each such process would take 20 MB more."""
    code = "import nmt_cli.commands.translate, sys; sys.exit('numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
