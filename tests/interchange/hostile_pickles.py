"""Pickles that call functions, and files of torch that hold them."""

import re
import zipfile

import pytest

from nmt_cli.messages.errors import UserError

# Each would write a file if it ran.
CALLS = [
    *("os.system", "posix.system", "os.popen", "subprocess.Popen"),
    *("subprocess.getoutput", "builtins.eval", "builtins.exec", "builtins.__import__"),
    *("builtins.getattr", "builtins.open", "importlib.import_module", "runpy.run_path"),
    *("functools.partial", "operator.attrgetter", "operator.methodcaller", "pickle.loads"),
    *("shutil.rmtree", "pathlib.Path", "torch.load", "torch.hub.load"),
    *(
        "torch._utils._rebuild_device_tensor_from_numpy",
        "builtins.bytearray",
        "code.interact",
        "pty.spawn",
    ),
]


def calling(name, marker):
    """Return a pickle that calls a function with a command as its argument."""
    module, _, function = name.rpartition(".")
    argument = f"touch {marker}".encode()
    return (
        b"\x80\x02c" + f"{module}\n{function}\n".encode()
        + b"X" + len(argument).to_bytes(4, "little") + argument + b"\x85R."
    )  # fmt: skip


def zipped(path, content, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as file:
        file.writestr("archive/data.pkl", content)
        file.writestr("archive/version", "3\n")


def assert_refuses_calls(read, path, name):
    """Assert that ``read`` refuses ``path``, new or old, if it calls a function; nothing runs."""
    marker = path.parent / "ran"
    zipped(path, calling(name, marker))
    with pytest.raises(UserError, match=f"may run code.* {re.escape(name)}; load it ") as caught:
        read()
    assert "\n" not in str(caught.value)
    path.write_bytes(calling(name, marker))
    with pytest.raises(UserError, match=r"before torch 1\.6, or is damaged"):
        read()
    assert not marker.exists()
