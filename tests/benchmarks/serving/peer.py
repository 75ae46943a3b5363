"""CTranslate2's Python engine behind Starlette, as services usually have it.

python -m tests.benchmarks.serving.peer MODEL EXPORTED PRECISION WORKERSxTHREADS

The handler is a plain function, so that Starlette runs it in its pool of threads, and each request
is a batch of its own. It prints its port.
"""

import json
import socket
import sys
from pathlib import Path
from typing import Any

import ctranslate2  # type: ignore[import-not-found, unused-ignore]
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from nmt_cli.corpus.tokenizers.tokenizer import load_tokenizer
from nmt_cli.recipe.model_settings import read_settings
from tests.benchmarks.decoding.sample import BEAM_SIZE, EXTRA_LENGTH, LENGTH_PENALTY


def app_of(model: Path, exported: Path, precision: str, setting: str) -> Starlette:
    """Return an application that answers ``/v1/translate`` as far as clients of the test ask."""
    workers, threads = map(int, setting.split("x"))
    translator = ctranslate2.Translator(
        str(exported), compute_type=precision, inter_threads=workers, intra_threads=threads
    )
    tokenizer = load_tokenizer(model, read_settings(model).text)

    def translated(text: str) -> str:
        pieces = tokenizer.pieces(tokenizer.encode(text))
        (result,) = translator.translate_batch(
            [pieces],
            beam_size=BEAM_SIZE,
            length_penalty=LENGTH_PENALTY,
            max_decoding_length=len(pieces) + EXTRA_LENGTH,
        )
        return "".join(result.hypotheses[0]).replace("▁", " ").strip()

    async def translate(http: Request) -> JSONResponse:
        asked: dict[str, Any] = json.loads(await http.body())
        # Starlette runs plain functions in this pool.
        text = await run_in_threadpool(translated, asked["text"])
        return JSONResponse({"translations": [{"text": text}]})

    return Starlette(routes=[Route("/v1/translate", translate, methods=["POST"])])


def main() -> None:
    """Serve until killed."""
    model, exported, precision, setting = sys.argv[1:]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # As ours: without it, answers on a kept connection wait 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        config = uvicorn.Config(
            app_of(Path(model), Path(exported), precision, setting),
            log_config=None,
            access_log=False,
        )
        uvicorn.Server(config).run([listener])


if __name__ == "__main__":
    main()
