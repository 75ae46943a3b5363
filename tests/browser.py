"""A headless Chromium that is driven through a pipe, by the DevTools protocol."""

import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run"),
    *("--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update"),
)
SECONDS = 30
FIRST_FREE = 10  # descriptors below belong to the shell
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "End": 35, "Home": 36, "ArrowLeft": 37,
        "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}  # fmt: skip


CHROMIUM = next((path for path in map(shutil.which, PROGRAMS) if path), None)
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium here to open the page with (apt-get install chromium)"
)


class Browser:
    """One tab. ``problems`` collects errors of the page, ``requests`` the addresses it fetched."""

    def __init__(self, program, profile):
        read_end, self._write = _pipe()
        self._read, write_end = _pipe()
        command = f'exec "$@" 3<&{read_end} 4>&{write_end}'
        self._process = subprocess.Popen(
            ["bash", "-c", command, "bash", program, *FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(read_end, write_end),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_end)
        os.close(write_end)
        self._received, self._session, self._number = b"", None, 0
        self.problems, self.requests, self._is_loaded = [], [], False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def close(self):
        os.close(self._write)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)

    def call(self, method, **params):
        """Return the result of a command of the protocol."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        while (answer := self._receive()).get("id") != self._number:
            pass
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def open(self, page: Path | str, *, width=1280, height=800, scheme="light"):
        """Show a file, or what is at an address, and wait until its script has run."""
        media = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=media)
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)
        self.problems.clear()
        self.requests.clear()
        self._is_loaded = False
        self.call("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        while not self._is_loaded:
            self._receive()

    def evaluate(self, expression):
        """Return the value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, *keys):
        for key in keys:
            event = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
            text = {"text": "\r"} if key == "Enter" else {}  # without it, buttons do nothing
            self.call("Input.dispatchKeyEvent", type="keyDown", **event, **text)
            self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def write(self, text):
        """Type a text where the focus is."""
        self.call("Input.insertText", text=text)

    def wait_for(self, expression):
        """Wait until a JavaScript expression is true, and return its value."""
        deadline = time.monotonic() + SECONDS
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < deadline, f"not true: {expression}; {self.problems}"
            time.sleep(0.02)
        return value

    def move_to(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            button = {"button": "left", "clickCount": 1}
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def _receive(self):
        """Return the next message, after collecting what it reports of the page."""
        deadline = time.monotonic() + SECONDS
        while b"\0" not in self._received:
            left = deadline - time.monotonic()
            assert left > 0, "the browser does not answer"
            if select.select([self._read], [], [], left)[0]:
                data = os.read(self._read, 1 << 16)
                assert data, "the browser has ended"
                self._received += data
        text, _, self._received = self._received.partition(b"\0")
        message = json.loads(text)
        params = message.get("params", {})
        match message.get("method"):
            case "Page.loadEventFired":
                self._is_loaded = True
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Runtime.exceptionThrown" | "Runtime.consoleAPICalled" | "Log.entryAdded":
                self.problems.append(params)
        return message


def _pipe():
    """Return the two ends of a pipe, as descriptors that a shell does not use itself."""
    ends = os.pipe()
    moved = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, FIRST_FREE) for end in ends)
    for end in ends:
        os.close(end)
    return moved
