"""How this program starts Python: with the modules that it uses itself."""

import sys

NMT_CLI = "from nmt_cli.cli import main; main(prog_name='nmt-cli')"


def python_command(program: str, *arguments: str) -> list[str]:
    """Return the command that runs the text ``program`` with ``arguments`` in another process.

    ``python -m`` and ``python -c`` alone would look for every module in the current folder first,
    where a file of the user may have the name of one.
    """
    return [sys.executable, "-c", f"import sys\nsys.path[:] = {sys.path}\n{program}", *arguments]
