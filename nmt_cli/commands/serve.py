"""``nmt-cli serve``: translates what comes by HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from nmt_cli.commands.lines.translation_processes import num_gpus
from nmt_cli.hardware.choices import AUTO
from nmt_cli.hardware.cpu import cores
from nmt_cli.messages import logs
from nmt_cli.messages.extras import importing
from nmt_cli.serving.models import Models, models_of
from nmt_cli.translating.workers.messages import WorkerModel
from nmt_cli.translating.workers.starter import Starter

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from nmt_cli.translating.translator import TranslatorOptions


def run(
    models: Sequence[str],
    *,
    host: str = "127.0.0.1",
    port: int = 5000,
    device: str = AUTO,
    threads: int | None = None,
    workers: int | None = None,
    **options: Unpack[TranslatorOptions],
) -> None:
    """Serve ``models`` until SIGTERM or SIGINT. Raises UserError if one or an option is wrong."""
    with importing("serve", "serve answers HTTP"):
        from nmt_cli.serving.requests import Limits
        from nmt_cli.serving.server import Address, serve
    served = Models(models_of(models))
    gpus = num_gpus(device)
    number = workers or gpus or max(1, int(cores().usable))
    with ExitStack() as stack:
        starters = {}
        for model in served.models:
            starters[model.name] = starter = stack.enter_context(Starter())
            together = {"token_scores": True, **options, "device": device if gpus else "cpu"}
            each = threads or (1 if number > 1 else None)
            quiet = logs.are_quiet()
            starter.load(WorkerModel(model.path, together, each, bool(gpus), quiet, True))
        asyncio.run(serve(Address(host, port), served, starters, number, Limits()))
