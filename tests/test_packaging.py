"""What is installed with the package, and the lowest versions that it runs on."""

import os
import re
import runpy
import shutil
import subprocess
import sys
import venv
import zipfile
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml

from nmt_cli.messages.extras import LEFT_OUT
from nmt_cli.model.compiled.c_library import LEVELS
from nmt_cli.recipe.reading.shipped import shipped_recipes

ROOT = Path(__file__).parents[1]
MODEL = ROOT / "tests/formats/format_2/sentencepiece/run/average"
# Together they use every dependency; they prepare, train, translate, score, report and serve, read
# documents and memories, and download.
TESTS_ON_LOWEST_VERSIONS = (
    "tests/test_pipeline.py", "tests/test_cli.py", "tests/command_line", "tests/corpus",
    "tests/metrics", "tests/parsing", "tests/recipe", "tests/report", "tests/saved",
    "tests/serving/test_own_interface.py", "tests/documents/test_documents_of_markdown.py",
    "tests/translating/test_translation_memory.py", "tests/commands/test_data_get.py",
)  # fmt: skip
LARGEST_INSTALLATION = 140_000_000  # bytes
# The packages of modules with other names; pydantic requires two, and Python 3.14 has compression.
OTHER_NAMES = {
    "backports": "backports.zstd",
    "compression": "backports.zstd",
    "markdown_it": "markdown-it-py",
    "prometheus_client": "prometheus-client",
    "python_multipart": "python-multipart",
    "pydantic_core": "pydantic",
    "typing_extensions": "pydantic",
    "yaml": "pyyaml",
}
IMPORTED = re.compile(r"^ *(?:from|import) ([a-z]\w*)[ .\n]", re.MULTILINE)
OF_THE_TESTS = ("pytest", "pytest-timeout", "hypothesis", "jsonschema", "lxml")


@pytest.mark.skipif(find_spec("setuptools") is None, reason="setuptools builds the package")
def test_recipes_and_data_files_are_installed_with_the_package(tmp_path):
    build = [sys.executable, "setup.py", "--quiet", "build_py", "--build-lib", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    shipped = tmp_path / "nmt_cli/shipped_recipes"
    installed = {path.relative_to(shipped).as_posix() for path in shipped.rglob("*.*")}
    assert installed == {"README.md", *(f"{name}.yaml" for name in shipped_recipes())}
    assert "table3/a-1-head.yaml" in installed
    package = ROOT / "nmt_cli"
    sources = {".py", ".pyc", ".c", ".h", ".so"}
    data = (path for path in package.rglob("*.*") if path.suffix not in sources)
    for path in data:
        assert (tmp_path / "nmt_cli" / path.relative_to(package)).is_file(), path


@pytest.fixture
def setup_arguments(monkeypatch):
    """The arguments of ``setup`` in setup.py."""
    setuptools = pytest.importorskip("setuptools")
    arguments = {}
    monkeypatch.setattr(setuptools, "setup", lambda **given: arguments.update(given))
    monkeypatch.chdir(ROOT)
    runpy.run_path("setup.py")
    return arguments


def names_of(requirements):
    return {re.split("[<>=]", each)[0] for each in requirements}


def test_names_and_syntax_are_checked_for_the_lowest_python(setup_arguments):
    lowest = setup_arguments["python_requires"].removeprefix(">=")
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.findall(r'^python_version = "(.*)"', settings, re.MULTILINE) == [lowest]
    assert f'target-version = "py{lowest.replace(".", "")}"' in settings


def test_all_files_name_the_same_version(setup_arguments):
    version = setup_arguments["version"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = re.findall(r"^## (?!Unreleased)(.*)$", changelog, re.MULTILINE)[0]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert heading == f"{version} ({citation['date-released']})"
    assert citation["version"] == version
    page = (ROOT / "docs/how-to/install.md").read_text(encoding="utf-8")
    assert set(re.findall(r"nmt_cli-([\d.]+)(?=-py3|\.tar)", page)) == {version}


def test_the_page_of_installing_names_every_extra(setup_arguments):
    page = (ROOT / "docs/how-to/install.md").read_text(encoding="utf-8")
    listed = page.partition("| extra |")[2].partition("\n\n")[0]
    extras = setup_arguments["extras_require"].keys() - {"dev", "dist", "docs"}
    assert set(re.findall(r"^\| `(\w+)` \|", listed, re.MULTILINE)) == extras


def test_a_plain_installation_has_what_the_program_imports_but_for_large_packages(setup_arguments):
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / "nmt_cli").rglob("*.py"))
    imported = {name for text in texts for name in IMPORTED.findall(text)}
    packages = {OTHER_NAMES.get(name, name) for name in imported - sys.stdlib_module_names}
    lacking = packages - {"nmt_cli"} - names_of(setup_arguments["install_requires"])
    extras = setup_arguments["extras_require"]
    of_extras = [extras[name] for name in ("ctranslate2", "huggingface", "report", "tensorboard")]
    assert lacking == names_of(chain(*of_extras)) | {"triton"}  # which torch brings for CUDA


def test_messages_name_what_an_installation_without_torch_lacks(setup_arguments):
    lines = (ROOT / "requirements-translate.txt").read_text(encoding="utf-8").splitlines()
    listed = names_of(line for line in lines if not line.startswith("#"))
    assert names_of(setup_arguments["install_requires"]) - listed == set(LEFT_OUT)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.skipif(sys.version_info >= (3, 13), reason="numpy 2.0 has no wheels for this Python")
def test_the_lowest_versions_of_all_dependencies_work(setup_arguments):
    extras = setup_arguments["extras_require"]
    stated = set(setup_arguments["install_requires"]).union(
        *(extras[name] for name in extras.keys() - {"dev", "dist", "docs"})
    )
    lowest = {re.sub(r">=([\w.]+)(,<\w+)?", r"==\1", text) for text in stated}
    # The builds of torch are gigabytes large, so this takes the one that pip has from `make setup`.
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    lowest = {text for text in lowest if not text.startswith("torch==")}
    lowest |= {line for line in pinned if line.startswith("torch==")}
    assert len(lowest) == len(stated)
    outer = {"PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS", "PYTHONPATH", "VIRTUAL_ENV"}
    environment = {name: value for name, value in os.environ.items() if name not in outer}
    with TemporaryDirectory() as folder:  # pytest would keep its gigabytes for three runs
        venv.create(folder, with_pip=True)
        for module in (
            ["pip", "install", "--quiet", *lowest, *OF_THE_TESTS],
            ["pip", "install", "--quiet", "--no-deps", "--editable", "."],
            # Old versions warn of what newer ones of their own dependencies will remove.
            ["pytest", "-q", "-o", "filterwarnings=ignore", *TESTS_ON_LOWEST_VERSIONS],
        ):
            command = [f"{folder}/bin/python", "-m", *module]
            subprocess.run(command, cwd=ROOT, env=environment, check=True)


@pytest.mark.skipif(find_spec("setuptools") is None, reason="setuptools builds the package")
@pytest.mark.parametrize(
    ("compiler", "problem"),
    [
        ("false", "false failed: exit status 1"),
        ("/none/cc -m64", "cannot run /none/cc: No such file or directory"),
        ("cc -D__builtin_convertvector=nothing", r"cc failed: .*vectors.h:.* error: "),
    ],
)
def test_a_compiler_that_fails_is_named_and_nmt_cli_installs(tmp_path, compiler, problem):
    stale = tmp_path / "nmt_cli/model/compiled/library.so"
    stale.parent.mkdir(parents=True)
    stale.write_bytes(b"of older sources")  # would get into a wheel
    folders = ("--build-lib", str(tmp_path), "--build-temp", str(tmp_path / "temp"))
    result = run_setup("build_ext", *folders, CC=compiler)
    assert result.returncode == 0
    assert re.search(f'building extension "nmt_cli.*library" failed: {problem}', result.stderr)
    assert not [*tmp_path.rglob("*.so"), *tmp_path.rglob("*.o")]


def wheel_of(sources, folder, *words, **variables):
    """Build a wheel of ``sources`` and return it."""
    (folder / "made").mkdir(parents=True)
    folders = ("--bdist-dir", str(folder / "bdist"), "--dist-dir", str(folder / "made"))
    built = ("build", "--build-base", str(folder / "build"), "bdist_wheel", *folders, *words)
    result = run_setup(*built, sources=sources, **variables)
    assert result.returncode == 0, result.stderr
    (wheel,) = (folder / "made").glob("*.whl")
    return wheel


def contents(wheel):
    """Return what is in a wheel, by name, without the record and the tag that it has."""
    archive = zipfile.ZipFile(wheel)
    names = (name for name in archive.namelist() if not name.endswith(("/RECORD", "/WHEEL")))
    return {name: archive.read(name) for name in names}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(find_spec("setuptools") is None, reason="setuptools builds the package")
def test_a_wheel_is_for_every_python_and_that_of_the_source_distribution_is_equal(tmp_path):
    wheel = wheel_of(ROOT, tmp_path / "checkout")
    assert re.fullmatch(r"nmt_cli-[\d.]+-py3-none-linux_\w+\.whl", wheel.name)
    compiled = {Path(name).name for name in contents(wheel) if "/compiled/" in name}
    modules = {path.name for path in (ROOT / "nmt_cli/model/compiled").glob("*.py")}
    assert compiled == {*modules, "library.so"}
    made = run_setup("egg_info", "--egg-base", str(tmp_path), "sdist", "--dist-dir", str(tmp_path))
    assert made.returncode == 0, made.stderr
    (archive,) = tmp_path.glob("*.tar.gz")
    shutil.unpack_archive(archive, tmp_path, filter="data")
    again = wheel_of(tmp_path / archive.name.removesuffix(".tar.gz"), tmp_path / "sources")
    assert again.name == wheel.name
    assert contents(again) == contents(wheel)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(find_spec("ziglang") is None, reason="zig compiles for other machines")
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_zig_compiles_for_old_systems_and_for_arm(tmp_path, machine):
    zig = f"{sys.executable} -m ziglang cc -target {machine}-linux-gnu.2.28"
    platform = f"manylinux_2_28_{machine}"
    variables = {"CC": zig, "_PYTHON_HOST_PLATFORM": f"linux-{machine}"}
    wheel = wheel_of(ROOT, tmp_path, "--plat-name", platform, **variables)
    assert wheel.name.endswith(f"-py3-none-{platform}.whl")
    library = contents(wheel)["nmt_cli/model/compiled/library.so"]
    is_arm = machine == "aarch64"
    assert library[18:20] == (b"\xb7\0" if is_arm else b"\x3e\0")  # e_machine of ELF
    levels = {level for level in LEVELS if f"{level}_compute_rows\0".encode() in library}
    assert levels == {level for level in LEVELS if (level == "arm_dot") == is_arm}
    versions = {int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", library)}
    assert max(versions) <= 28


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_installation_that_only_translates_is_small_and_has_no_torch(tmp_path):
    sources = tmp_path / "checkout"  # building leaves files in it
    for name in copied_into_container():
        if (ROOT / name).is_file():
            sources.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, sources)
        else:
            ignored = shutil.ignore_patterns("*.so", "__pycache__")
            shutil.copytree(ROOT / name, sources / name, ignore=ignored)
    venv.create(tmp_path / "own", with_pip=True)
    (packages,) = (tmp_path / "own").glob("lib/python*/site-packages")
    before = {path.name for path in packages.iterdir()}
    page = (ROOT / "docs/how-to/install.md").read_text(encoding="utf-8")
    documented = page.partition("## Only to translate")[2].partition("\n## ")[0]
    commands = re.findall(r"^    (pip install .*)", documented, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        in_folder(sources, f"{command} --quiet", tmp_path / "own/bin")
    installed = {path.name for path in packages.iterdir()} - before
    assert "nmt_cli" in installed
    assert not installed & set(LEFT_OUT)
    files = [file for name in installed for file in (packages / name).rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < LARGEST_INSTALLATION
    translate = f"printf 'one\\n\\ntwo\\n' | nmt-cli translate {MODEL} --device cpu"
    expected = in_folder(tmp_path, translate, Path(sys.executable).parent)
    assert in_folder(tmp_path, translate, tmp_path / "own/bin") == expected
    assert expected.count("\n") == 3


def copied_into_container():
    """Return what the Containerfile copies from the checkout, to build and to install there."""
    lines = (ROOT / "Containerfile").read_text(encoding="utf-8").splitlines()
    copies = (line.split()[1:-1] for line in lines if line.startswith("COPY "))
    return {name for names in copies for name in names if not name.startswith(("-", "/"))}


def in_folder(folder, command, programs):
    """Run a command of the shell, with the ``programs`` of an environment; return its stdout."""
    outer = {"PYTHONPATH", "VIRTUAL_ENV"}
    variables = {name: value for name, value in os.environ.items() if name not in outer}
    variables["PATH"] = f"{programs}:{variables['PATH']}"
    shell = ["sh", "-c", command]
    done = subprocess.run(shell, cwd=folder, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_setup(*words, sources=ROOT, **variables):
    command = [sys.executable, "setup.py", *words]
    env = {**os.environ, **variables}
    return subprocess.run(command, cwd=sources, capture_output=True, text=True, env=env)
