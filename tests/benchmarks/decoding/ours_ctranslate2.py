"""nmt-cli with CTranslate2 as its engine; variants are those of ``ours.py``."""

from typing import Any

from nmt_cli.hardware.choices import CTRANSLATE2
from nmt_cli.interchange.ctranslate2.sentence_driver import Threads
from nmt_cli.translating.translator import Translator
from tests.benchmarks.decoding.ours import Translate, TranslatorLoop
from tests.benchmarks.targets import OUR_CTRANSLATE2
from tests.benchmarks.worker import serve


class EngineLoop(TranslatorLoop):
    """One translator for each variant, whose model is exported before the first turn."""

    name = OUR_CTRANSLATE2

    def _open(self, number: int, threads: int, options: dict[str, Any]) -> Translate:
        return Translator.load(
            self._folder / "model",
            engine=CTRANSLATE2,
            ctranslate2_threads=Threads(number, threads),
            **options,
        ).translate_windows


if __name__ == "__main__":
    serve(EngineLoop)
