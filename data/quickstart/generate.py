"""Write the quickstart corpus: train, validation and test, in English and German.

    python data/quickstart/generate.py [DIRECTORY]

The default directory is the folder of this script. The same files come out on every machine.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from chance import Chance
from descriptions import Descriptions

SEED = 2017
SIZES = {"test": 1_000, "validation": 1_000, "train": 30_000}
LONGEST = 24  # English words

# The patterns with their weight among the draws.
PATTERNS = {
    "statement": 0.165, "subordination": 0.09, "relative": 0.085, "passive": 0.05, "reported": 0.05,
    "coordination": 0.03, "sequel": 0.035, "infinitive": 0.03, "purpose": 0.03, "judgement": 0.02,
    "unreal": 0.02, "since": 0.02, "liking": 0.02, "imperative": 0.035, "quality": 0.05,
    "comparison": 0.03, "profession": 0.015, "age": 0.01, "having": 0.03, "liked": 0.02,
    "belonging": 0.015, "existence": 0.02, "posture": 0.025, "pain": 0.02, "price": 0.015,
    "count": 0.015, "hour": 0.004, "timetable": 0.015, "appointment": 0.015, "let_do": 0.015,
    "about_part": 0.03, "quantity": 0.015, "question": 0.05, "word_question": 0.03,
    "subject_question": 0.015, "object_question": 0.03,
}  # fmt: skip
# A sentence that repeats a word of content seldom sounds natural. These words may be repeated.
REPEATABLE = "i mr mrs their there which that with than would does have hundred thousand"
MAY_REPEAT = tuple(REPEATABLE.split())


def finished(text: str) -> str:
    """The text with its capital, its end mark and commas where they belong."""
    mark = "?" if text.endswith("?") else "."
    words = re.sub(r"[ ,?]*$", "", re.sub(r"(?: ?,)+", ",", text))
    return words[0].upper() + words[1:] + mark


def sensible(text: str) -> bool:
    """Whether a sentence is short enough and repeats no word of content."""
    words = re.findall(r"[A-Za-z'-]+", text)
    telling = [word.lower() for word in words if len(word) > 3 or word[0].isupper()]
    telling = [word for word in telling if word not in MAY_REPEAT]
    return 3 <= len(words) <= LONGEST and len(telling) == len(dict.fromkeys(telling))


def sentence_pairs(seed: int) -> Iterator[tuple[str, str]]:
    """Yield pairs without end; no sentence comes twice on either side."""
    chance = Chance(seed)
    grammar = Descriptions(chance)
    total = sum(PATTERNS.values())
    patterns = tuple((getattr(grammar, name), part / total) for name, part in PATTERNS.items())
    seen: set[str] = set()
    translations: dict[str, str] = {}
    while True:
        english, german = chance.weighted(patterns)()
        source, target = finished(english), finished(german)
        if not sensible(source):
            continue
        known = translations.setdefault(source, target)
        assert known == target, f"{source!r} has two translations: {known!r} and {target!r}"
        if source not in seen and target not in seen:
            seen.update((source, target))
            yield source, target


def write_atomically(path: Path, lines: list[str]) -> None:
    """Write the file so that it appears whole or not at all."""
    partial = path.with_name(f".partial-{path.name}")
    partial.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    partial.replace(path)


def write_corpus(directory: Path) -> None:
    """Write the six files into the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    pairs = sentence_pairs(SEED)
    for name, size in SIZES.items():
        part = [next(pairs) for _ in range(size)]
        write_atomically(directory / f"{name}.en", [source for source, _ in part])
        write_atomically(directory / f"{name}.de", [target for _, target in part])


if __name__ == "__main__":
    target_directory = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    write_corpus(target_directory)
    sys.stderr.write(f"Wrote {sum(SIZES.values()):,} sentence pairs to {target_directory}\n")
