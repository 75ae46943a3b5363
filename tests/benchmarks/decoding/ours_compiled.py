"""nmt-cli with ``--compile``; variants are those of ``ours.py``."""

from tests.benchmarks.decoding.ours import TranslatorLoop
from tests.benchmarks.targets import OUR_COMPILED
from tests.benchmarks.worker import serve


class CompiledLoop(TranslatorLoop):
    """The layers are compiled before the first turn."""

    name, is_compiled = OUR_COMPILED, True


if __name__ == "__main__":
    serve(CompiledLoop)
