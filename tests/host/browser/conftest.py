"""A real headless Chromium, driven through chromedriver's own protocol (W3C WebDriver): no library is needed."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")


class Browser:
    """One window. ``run`` is JavaScript that may await."""

    def __init__(self, profile: Path, *, size: tuple[int, int] = (1440, 1250)) -> None:
        assert CHROMIUM
        assert DRIVER
        self.process = subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        found = None
        for line in self.process.stdout:
            found = re.search(r"successfully on port (\d+)", line)
            if found:
                break
        assert found, "chromedriver did not start"
        self.base = f"http://127.0.0.1:{found[1]}/session"
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        arguments += [
            f"--user-data-dir={profile}",
            f"--window-size={size[0]},{size[1]}",
            "--force-device-scale-factor=1",
        ]
        arguments += ["--host-resolver-rules=MAP * ~NOTFOUND"]
        options = {"binary": CHROMIUM, "args": arguments}
        try:
            asked = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options, "pageLoadStrategy": "normal"}}}
            self.base += f"/{self._post('', asked)['sessionId']}"
        except BaseException:
            self.process.kill()
            self._stop()
            raise

    def _stop(self) -> None:
        self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()

    def _post(self, path: str, data: object, method: str = "POST") -> dict:
        body = None if method in ("GET", "DELETE") else json.dumps(data).encode()
        request = urllib.request.Request(self.base + path, body, {"Content-Type": "application/json"}, method=method)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            return json.loads(answer.read())["value"]

    def open(self, path: Path) -> None:
        """Load a file and wait until its page says that it is ready."""
        self._post("/url", {"url": path.resolve().as_uri()})
        until = time.monotonic() + 30
        while not self.run("return window.pagewalk && window.pagewalk.ready"):
            assert time.monotonic() < until, self.run("return document.body.innerText.slice(0, 500)")
            time.sleep(0.05)

    def run(self, script: str, *args: object) -> object:
        """What a script returns."""
        return self._post("/execute/sync", {"script": script, "args": list(args)})

    def point(self, x: float, y: float, *, click: bool = True) -> None:
        """Move the mouse to a place in the window, and click there."""
        steps = [{"type": "pointerMove", "duration": 0, "x": round(x), "y": round(y), "origin": "viewport"}]
        if click:
            steps += [{"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
        mouse = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": steps}
        self._post("/actions", {"actions": [mouse]})

    def press(self, *keys: str) -> None:
        """Press and release keys, one after the other."""
        steps = [step for key in keys for step in ({"type": "keyDown", "value": key}, {"type": "keyUp", "value": key})]
        self._post("/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": steps}]})

    def screenshot(self, path: Path) -> None:
        """Write what the window shows as a PNG."""
        path.write_bytes(base64.b64decode(self._post("/screenshot", None, "GET")))  # type: ignore[arg-type]

    def close(self) -> None:
        """End the browser and its driver."""
        with contextlib.suppress(OSError):
            self._post("", None, "DELETE")
        self.process.terminate()
        self._stop()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser; the test is skipped where there is none."""
    if not (CHROMIUM and DRIVER):
        pytest.skip("no chromium with chromedriver here; apt-get install chromium chromium-driver")
    found = Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()
