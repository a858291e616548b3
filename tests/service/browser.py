"""A real headless browser, driven over the W3C's WebDriver protocol."""

import importlib.util
import json
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from frameworks.harness.ports import free_port
from tests.service.served import PATIENCE, answers, wait_for


def chromedriver() -> str | None:
    """Return the path of chromedriver, if Chromium and chromedriver are installed."""
    return shutil.which("chromedriver") if shutil.which("chromium") else None


def axe() -> str | None:
    """Return the accessibility checker's source, if it is installed."""
    spec = importlib.util.find_spec("axe_core_python")
    if spec is None or not spec.submodule_search_locations:
        return None
    return (Path(spec.submodule_search_locations[0]) / "axe.min.js").read_text()


class Browser:
    """One browser window."""

    def __init__(self, driver: str, width: int) -> None:
        self._driver = driver
        arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--force-prefers-reduced-motion",
        ]
        options = {
            "args": arguments,
            "mobileEmulation": {
                "deviceMetrics": {"width": width, "height": 740, "pixelRatio": 2.0}
            },
        }
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
            "timeouts": {"script": round(1000 * PATIENCE)},
        }
        made = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{made['sessionId']}"

    def open(self, url: str) -> None:
        self._call("POST", f"{self._session}/url", {"url": url})

    def before_each_page(self, script: str) -> None:
        """Run a script in each page opened from now on, before the page's own scripts."""
        command = {"cmd": "Page.addScriptToEvaluateOnNewDocument", "params": {"source": script}}
        self._call("POST", f"{self._session}/goog/cdp/execute", command)

    def violations(self, checker: str) -> list[str]:
        """Return the complaints of an accessibility checker, in the light and the dark scheme."""
        self.run(checker)
        complaints: list[str] = []
        for scheme in ("light", "dark"):
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            command = {"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}}
            self._call("POST", f"{self._session}/goog/cdp/execute", command)
            complaints += self.run_later(
                "const done = arguments[0]; axe.run().then((all) => done(all.violations.map("
                f"(each) => '{scheme}: ' + each.id + ': ' + "
                "each.nodes.map((node) => node.html).join(' '))));"
            )
        return complaints

    def run(self, script: str) -> Any:  # noqa: ANN401 - whatever the script returns
        return self._call("POST", f"{self._session}/execute/sync", {"script": script, "args": []})

    def run_later(self, script: str) -> Any:  # noqa: ANN401 - as in `run`
        """Run an asynchronous script that passes its result to its last argument."""
        return self._call("POST", f"{self._session}/execute/async", {"script": script, "args": []})

    def text(self, selector: str) -> str:
        content: str = self.run(
            f"const node = document.querySelector({json.dumps(selector)});"
            "return node === null ? '' : node.innerText"
        )
        return content

    def wait_for(self, selector: str, text: str) -> None:
        wait_for(lambda: text in self.text(selector))

    def complaints(self) -> list[str]:
        """Return the console messages since the last call."""
        entries = self._call("POST", f"{self._session}/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries]

    def quit(self) -> None:
        self._call("DELETE", self._session)

    def _call(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._driver + path,
            data,
            {"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from error


@contextmanager
def browsing(folder: Path, width: int) -> Iterator[Browser]:
    """Open a window of the given width in CSS pixels."""
    program = chromedriver()
    assert program is not None
    port = free_port()
    with (folder / "chromedriver.log").open("wb") as log:
        process = subprocess.Popen([program, f"--port={port}"], stdout=log, stderr=log)
    try:
        wait_for(lambda: answers(f"http://127.0.0.1:{port}/status"))
        browser = Browser(f"http://127.0.0.1:{port}", width)
        try:
            yield browser
        finally:
            browser.quit()
    finally:
        process.terminate()
        process.wait()
