"""Metadata and dependencies of nmt-cli; pyproject.toml holds the tools' settings."""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

CTRANSLATE2 = ["ctranslate2>=4.8,<5"]
DIST = ["auditwheel>=6.2", "build>=1.2", "click-man>=0.5", "ziglang>=0.14"]
DOCS = ["mkdocs-material>=9.6,<10"]
HUGGINGFACE = ["transformers>=5,<6"]
# sacreBLEU cuts words of Japanese and Korean with MeCab and these dictionaries.
JA, KO = ["sacrebleu[ja]>=2.4"], ["sacrebleu[ko]>=2.4"]
REPORT = ["matplotlib>=3.10"]
TENSORBOARD = ["tensorboard>=2.18"]


# Read, because a build does not import what it builds.
(VERSION,) = re.findall(
    '^__version__ = "(.+)"', Path("nmt_cli/__init__.py").read_text("utf-8"), re.M
)
WITHOUT_TORCH = re.findall("^[^#].*", Path("requirements-translate.txt").read_text("utf-8"), re.M)

SOURCES = Path("nmt_cli/model/compiled")
COMPILERS = ("cc", "gcc", "clang")  # unless CC names another
FLAGS = (
    "-O3",
    "-ffp-contract=fast",  # multiplications and additions in one instruction, also by clang
    "-fno-math-errno",  # square roots in one instruction
    "-fopenmp-simd",  # the pragmas of vectors; no threads
    # Not -ffast-math: it would drop NaN and the additions that round.
    "-fPIC",
)
# As in sysconfig: _PYTHON_HOST_PLATFORM=linux-aarch64 builds for another machine than this one, by
# a compiler in CC for that machine.
MACHINE = sysconfig.get_platform().rpartition("-")[2]
# The levels of CPU that the library is compiled for; nmt_cli/model/compiled/c_library.py has the
# flags by which one is recognized.
V4 = "-march=x86-64-v4"
LEVELS = {
    "x86_64": {
        "v3": ("-march=x86-64-v3",),
        "v3_vnni": ("-march=x86-64-v3", "-mavxvnni"),
        "v4": (V4,),
        "v4_vnni": (V4, "-mavx512vnni"),
        "v4_vnni_bf16": (V4, "-mavx512vnni", "-mavx512bf16"),
        "v4_amx": (V4, "-mavx512vnni", "-mavx512bf16", "-mamx-tile", "-mamx-bf16", "-mamx-int8"),
    },
    "aarch64": {"arm_dot": ("-march=armv8.2-a+dotprod",)},
}


class BuildLibrary(build_ext):
    """Compiles the library that translates on a CPU. Without it torch does, more slowly."""

    def get_ext_filename(self, ext_name: str) -> str:
        """Return a name without the version of Python, which does not import the library."""
        return f"{ext_name.replace('.', '/')}.so"

    def build_extension(self, ext: Extension) -> None:
        """Write the library. Raises CompileError if that is not possible here."""
        target = Path(self.get_ext_fullpath(ext.name))
        target.unlink(missing_ok=True)  # one of older sources must not get into a wheel
        given = shlex.split(os.environ.get("CC", ""))
        compiler = given or [*filter(None, map(shutil.which, COMPILERS))][:1]
        if not compiler:
            raise CompileError(f"no C compiler was found ({', '.join(COMPILERS)})")
        for each in (target.parent, Path(self.build_temp)):
            each.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.build_temp) as folder:
            jobs = [
                (compiler, "cpu", Path(folder)),
                (compiler, "threads", Path(folder), f'-DSOURCES="{hash_of(ext.depends)}"'),
            ]
            jobs += [
                (compiler, source, Path(folder, level), f"-DLEVEL={level}", *flags)
                for level, flags in LEVELS.get(MACHINE, {}).items()
                for source in ("hypotheses", "layers", "logits", "past", "sampling")
            ]
            with ThreadPoolExecutor(os.cpu_count()) as threads:
                objects = [*threads.map(lambda job: compiled(*job), jobs)]
            library = Path(folder, target.name)
            run([*compiler, "-shared", "-pthread", "-s", *objects, "-o", library, "-lm"])
            shutil.copy2(library, target)

    def copy_extensions_to_source(self) -> None:
        """Put what was built beside the sources of a checkout, where it may be in use.

        If it could not be built, none of older sources stays.
        """
        for extension in self.extensions:
            target = Path(self.get_ext_filename(extension.name))
            built = Path(self.build_lib, target)
            if not built.exists():
                target.unlink(missing_ok=True)
                continue
            copy = target.with_name(f".{os.getpid()}-{target.name}")
            shutil.copy2(built, copy)
            copy.replace(target)  # whole, also if two builds run at the same time


def compiled(compiler: list[str], source: str, folder: Path, *flags: str) -> Path:
    """Return the object file of ``source``, which this writes into ``folder``."""
    folder.mkdir(exist_ok=True)
    made = folder / f"{source}.o"
    if any("zig" in Path(word).name for word in compiler):  # it has names of its own for CPUs
        for gcc, zig in {"x86-64-": "x86_64_", "armv8.2-a": "generic+v8_2a"}.items():
            flags = tuple(flag.replace(f"-march={gcc}", f"-march={zig}") for flag in flags)
    run([*compiler, *FLAGS, *flags, "-c", SOURCES / f"{source}.c", "-o", made])
    return made


def run(words: Iterable[object]) -> None:
    """Run a command of the compiler. Raises CompileError with its first error."""
    words = [*map(str, words)]
    try:
        subprocess.run(words, check=True, capture_output=True, text=True)
    except OSError as error:
        raise CompileError(f"cannot run {words[0]}: {error.strerror}") from error
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or [f"exit status {error.returncode}"]
        first = next((line for line in lines if "error" in line), lines[0])
        raise CompileError(f"{words[0]} failed: {first}") from error


def hash_of(sources: Iterable[str]) -> str:
    """Return what nmt_cli/model/compiled/c_library.py compares with the sources of a checkout."""
    return hashlib.sha256(b"\0".join(Path(each).read_bytes() for each in sources)).hexdigest()


class PlatformWheel(bdist_wheel):
    """A wheel with the library: for this platform, and for every Python."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tag py3-none-PLATFORM."""
        return "py3", "none", super().get_tag()[2]


setup(
    name="nmt-cli",
    version=VERSION,
    description="Train and run the Transformer of Attention Is All You Need from the command line",
    long_description=Path("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author="the nmt-cli authors",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.10",
    packages=[*find_packages(include=["nmt_cli", "nmt_cli.*"]), "nmt_cli.shipped_recipes"],
    package_dir={"nmt_cli.shipped_recipes": "recipes"},
    package_data={
        "nmt_cli": [
            "py.typed",
            "command_line/recipe_keys.txt",
            "messages/other_toolkits.jsonl",
            "parsing/parseval.prm",
            "recipe/model_values.json",
        ],
        "nmt_cli.pictures": ["page.html", "page.css", "page.js"],
        "nmt_cli.report": ["page.html", "page.css", "page.js"],
        "nmt_cli.serving": ["page.html", "page.css", "page.js"],
        "nmt_cli.shipped_recipes": ["**/*.yaml", "README.md"],
    },
    ext_modules=[
        Extension(
            ".".join([*SOURCES.parts, "library"]),
            sources=[],
            depends=sorted(map(str, [*SOURCES.glob("*.c"), *SOURCES.glob("*.h")])),
            optional=True,  # a machine without a compiler installs nmt-cli, too
        )
    ],
    cmdclass={"build_ext": BuildLibrary, "bdist_wheel": PlatformWheel},
    # `make dist` writes the man pages; `man` finds them beside the bin/ of an environment.
    data_files=[("share/man/man1", sorted(map(str, Path("docs/man").glob("*.1"))))],
    install_requires=[
        *WITHOUT_TORCH,
        "nltk>=3.8",
        "requests>=2.31",
        "sacrebleu>=2.4",
        "sacremoses>=0.1",
        "torch>=2.11",
    ],
    extras_require={
        "ctranslate2": CTRANSLATE2,
        "dist": DIST,
        "docs": DOCS,
        "huggingface": HUGGINGFACE,
        "ja": JA,
        "ko": KO,
        "report": REPORT,
        "tensorboard": TENSORBOARD,
        "dev": [
            *REPORT,
            *TENSORBOARD,
            "deep-translator>=1.11",
            "deepl>=1.32",
            "ebooklib>=0.20",
            "hypothesis>=6.100",
            "jsonschema>=4.20",
            "libretranslatepy>=2.1",
            "lxml>=5",
            "mypy>=1.15",
            "odfpy>=1.4",
            "openai>=2",
            "polib>=1.2",
            "pre-commit>=4",
            "pysubs2>=1.7",
            "pytest>=8.3",
            "pytest-timeout>=2.3",
            "pytest-xdist>=3.6",
            "python-docx>=1.2",
            "python-pptx>=1.0",
            "ruff>=0.9",
            "triton>=3.6",  # torch's builds for CUDA have it; interprets our kernels
            "types-PyYAML",
            "types-tqdm",
        ],
    },
    entry_points={"console_scripts": ["nmt-cli = nmt_cli.cli:main"]},
    classifiers=[
        "Environment :: Console",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 15)),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
    ],
)
