"""Metadata and dependencies of nmt-cli; pyproject.toml holds the tools' settings."""

from pathlib import Path

from setuptools import find_packages, setup

CTRANSLATE2 = ["ctranslate2>=4.8,<5"]
DATA = ["requests>=2.31"]
DIST = ["build>=1.2", "click-man>=0.5"]
DOCS = ["mkdocs-material>=9.6,<10"]
HUGGINGFACE = ["transformers>=5,<6"]
LANGID = ["py3langid>=0.4"]
PARSING = ["nltk>=3.8"]
REPORT = ["matplotlib>=3.10"]
SERVE = [
    "httptools>=0.6",  # uvicorn reads HTTP with it in half the time
    "prometheus-client>=0.20",
    *LANGID,
    "starlette>=0.40",
    "uvicorn>=0.30",
]
TENSORBOARD = ["tensorboard>=2.18"]
TEXT = ["sentencex>=1.0.32,<2"]

setup(
    name="nmt-cli",
    version="0.1.0",
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
            "model/compiled/hypotheses.c",
            "model/compiled/layers.c",
            "model/compiled/logits.c",
            "model/compiled/logits.h",
            "model/compiled/vectors.h",
            "parsing/parseval.prm",
        ],
        "nmt_cli.pictures": ["page.html", "page.css", "page.js"],
        "nmt_cli.serving": ["page.html", "page.css", "page.js"],
        "nmt_cli.shipped_recipes": ["**/*.yaml", "README.md"],
    },
    # `make dist` writes the man pages; `man` finds them beside the bin/ of an environment.
    data_files=[("share/man/man1", sorted(map(str, Path("docs/man").glob("*.1"))))],
    install_requires=[
        "torch>=2.11",
        "numpy>=2.0",
        "click>=8.2.1",
        "pyyaml>=6.0.1",
        "pydantic>=2.12",
        "sentencepiece>=0.2.3",
        "sacrebleu>=2.4",
        "sacremoses>=0.1",
        "safetensors>=0.6.1",
        "tqdm>=4.66",
        "backports.zstd>=1.0; python_version < '3.14'",
    ],
    extras_require={
        "ctranslate2": CTRANSLATE2,
        "data": DATA,
        "dist": DIST,
        "docs": DOCS,
        "huggingface": HUGGINGFACE,
        "langid": LANGID,
        "parsing": PARSING,
        "report": REPORT,
        "serve": [*SERVE, *TEXT],
        "tensorboard": TENSORBOARD,
        "text": TEXT,
        "dev": [
            *DATA,
            *PARSING,
            *REPORT,
            *SERVE,
            *TENSORBOARD,
            *TEXT,
            "deep-translator>=1.11",
            "deepl>=1.32",
            "hypothesis>=6.100",
            "jsonschema>=4.20",
            "libretranslatepy>=2.1",
            "lxml>=5",
            "mypy>=1.15",
            "pre-commit>=4",
            "pytest>=8.3",
            "pytest-timeout>=2.3",
            "pytest-xdist>=3.6",
            "ruff>=0.9",
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
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
    ],
)
