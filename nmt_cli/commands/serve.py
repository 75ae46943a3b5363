"""``nmt-cli serve``: translates what comes by HTTP."""

import asyncio
import ipaddress
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from nmt_cli.commands.lines.translation_processes import num_gpus
from nmt_cli.files.text_files import read_text
from nmt_cli.hardware.cpu import usable_cores
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError, WrongUsageError
from nmt_cli.messages.figures import counted
from nmt_cli.serving import models as served
from nmt_cli.serving.pivots import pivots_of
from nmt_cli.serving.requests import Limits
from nmt_cli.serving.served import Options
from nmt_cli.serving.server import listening_socket, serve
from nmt_cli.translating.interface.options import Constraints
from nmt_cli.translating.interface.protection import PLACEHOLDERS
from nmt_cli.translating.workers.messages import WorkerModel
from nmt_cli.translating.workers.starter import Starter


def run(  # noqa: PLR0913 - the options of the command are its parameters
    models: Sequence[str],
    *,
    host: str,
    port: int,
    glossaries: Sequence[str],
    memories: Sequence[str],
    memory_similarity: int | None,
    protect: Sequence[str],
    api_keys: Path | None,
    is_open: bool,
    origins: Sequence[str],
    device: str,
    threads: int | None,
    workers: int | None,
    drain_seconds: float,
    log_text: bool,
    beam_size: int | None,
    no_pivot: bool,
    **others: Any,
) -> None:
    """Serve ``models`` until SIGTERM or SIGINT. Raises UserError if one or an option is wrong.

    The other options are fields of ``Limits``, after ``max_``, and of ``TranslatorOptions``.
    """
    if api_keys is None and not is_open and not _is_local(host):
        raise WrongUsageError(
            f"--host {host} can be reached from other machines; give --api-keys FILE, or --open if "
            "everybody may use this service."
        )
    found = served.models_of(models)
    if beam_size is not None:
        found = [model._replace(beam_size=beam_size) for model in found]
    limits = Limits(**{name: others.pop(f"max_{name}") for name in Limits._fields})
    keys = None if api_keys is None else _keys_in(api_keys)
    terms, patterns = served.glossaries_of(glossaries, found), served.patterns_of(protect)
    if memory_similarity is not None and not memories:
        raise WrongUsageError(
            "--memory-similarity has an effect only with --memory; add --memory or omit it."
        )
    of_models = served.memories_of(memories, found, memory_similarity)
    chosen = Options(limits, terms, patterns, keys, origins, drain_seconds, log_text)
    gpus = num_gpus(device)
    number = workers or gpus or usable_cores()
    with listening_socket(host, port) as listener, ExitStack() as stack:
        starters = {}
        for model in {each.name: each for each in found}.values():
            starters[model.name] = stack.enter_context(closing(Starter()))
            memory = of_models.get(model.name)
            always = () if model.parses else (PLACEHOLDERS,)  # parses have no such rules
            starters[model.name].load(
                WorkerModel(
                    model.path,
                    {
                        **others,
                        "beam_size": beam_size,
                        "token_scores": True,
                        "device": device if gpus else "cpu",
                        "tag": model.tag if memory else None,  # a memory has only this pair
                        "constraints": Constraints(protect=always, memory=memory),
                    },
                    threads or (1 if number > 1 else None),
                    on_gpus=bool(gpus),
                    quiet=logs.are_quiet(),
                    of_service=True,
                )
            )
        pivots = [] if no_pivot else pivots_of(found)
        if pivots:
            pairs, first = counted(len(pivots), "pair"), pivots[0]
            logs.info(
                f"{pairs} of languages, such as {first.source} to {first.target} through "
                f"{first.through}, will be translated by two models; --no-pivot refuses them."
            )
        asyncio.run(serve(listener, served.Models(found, pivots), starters, number, chosen))


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _keys_in(path: Path) -> list[str]:
    """Return the keys in a file, one a line. Raises UserError if there is none."""
    lines = (line.strip() for line in read_text(path).split("\n"))
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise UserError(f"{path} holds no key; write one on each line.")
    return keys
