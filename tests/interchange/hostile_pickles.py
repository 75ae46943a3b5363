"""Pickles that call functions, and files of torch that hold them."""

import zipfile

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
