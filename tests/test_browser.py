"""A student's way through JupyterLab, in headless Chromium."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOK = "02_gemm/01_naive_to_tiled.ipynb"
SOLUTION = ROOT / "solutions/02_gemm/kernels/gemm/coalesced.py"

CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# Every cell is in the page at once, and nothing asks for attention.
JUPYTERLAB_SETTINGS = {
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}
ERROR = '[data-mime-type="application/vnd.jupyter.error"]'  # what a cell that raised shows

pytestmark = pytest.mark.browser


def absent(sentence: str) -> None:
    """Skip, or fail where a browser was promised."""
    if os.environ.get("LABKIT_REQUIRE_BROWSER"):
        pytest.fail(sentence)
    pytest.skip(sentence)


@pytest.fixture(scope="module")
def page() -> Iterator:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        absent("playwright is not installed: pip install -c constraints.txt -e '.[browser]'")
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = os.environ.get("LABKIT_CHROMIUM") or next(filter(None, map(shutil.which, names)), "")
    if not chromium:
        absent("There is no Chromium on PATH; install one, or name it in LABKIT_CHROMIUM.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_FLAGS)
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.set_default_timeout(60_000)
        yield page
        browser.close()


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A student's copy: labs/ alone, with no kernels written."""
    folder = tmp_path_factory.mktemp("student")
    shutil.copytree(ROOT / "labs", folder / "labs", ignore=shutil.ignore_patterns("kernels"))
    return folder


@pytest.fixture(scope="module")
def server(project: Path) -> Iterator[str]:
    """The address of a JupyterLab on the project's labs/, with its token."""
    home = project / "home"
    for name, settings in JUPYTERLAB_SETTINGS.items():
        path = home / "settings" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(settings))
    environment = os.environ | {
        "HOME": str(home),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "LABKIT_CACHE": str(home / "cache"),
    }
    environment.pop("LABKIT_ROOT", None)
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--port=0"]
    with (project / "server.log").open("w") as log:
        process = subprocess.Popen(command, cwd=project / "labs", env=environment, stdout=log, stderr=log)
        try:
            yield address(project / "server.log", process)
        finally:
            process.terminate()
            process.wait(timeout=30)


def address(log: Path, process: subprocess.Popen) -> str:
    """The address with the token, as the server prints it, once it answers."""
    for _ in range(600):
        found = re.search(r"http://127\.0\.0\.1:\d+/lab\?token=\w+", log.read_text())
        if found:
            with urlopen(found[0]):
                return found[0]
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError(log.read_text())


class Notebook:
    """A notebook in JupyterLab's page, used as by hand."""

    def __init__(self, page, server: str, path: str):
        self.page = page
        base, token = server.split("/lab?")
        page.goto(f"{base}/lab/workspaces/{time.time_ns()}/tree/{path}?{token}")
        page.locator(".jp-Notebook .jp-Cell").first.wait_for()
        page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for()

    def cell(self, text: str):
        """The code cell with that text in its source."""
        source = self.page.locator(".jp-InputArea-editor", has_text=text)
        return self.page.locator(".jp-CodeCell").filter(has=source)

    def output(self, text: str) -> str:
        """What that cell shows."""
        return self.cell(text).locator(".jp-OutputArea").inner_text()

    def write(self, text: str, source: str) -> None:
        """Put `source` in the place of that cell's."""
        self.cell(text).locator(".cm-content").click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(source)

    def run_all(self) -> None:
        """Run > Run All Cells; a cell that raises fails the test."""
        prompt = self.page.locator(".jp-CodeCell .jp-InputPrompt").last
        before = prompt.inner_text()
        self.page.locator(".lm-MenuBar-item", has_text="Run").first.click()
        self.page.locator(".lm-Menu-item", has_text="Run All Cells").first.click()
        self._wait(prompt, before)
        for error in self.page.locator(ERROR).all():
            raise AssertionError(error.inner_text())

    def run(self, text: str) -> None:
        """Run one cell, with Ctrl+Enter."""
        prompt = self.cell(text).locator(".jp-InputPrompt")
        before = prompt.inner_text()
        self.cell(text).locator(".cm-content").click()
        self.page.keyboard.press("Control+Enter")
        self._wait(prompt, before)

    def _wait(self, prompt, before: str) -> None:
        """Until the cell of that prompt has run, or one has raised."""
        self.page.wait_for_function(
            """([prompt, before, error]) =>
                   /\\d/.test(prompt.textContent) && prompt.textContent !== before
                   || document.querySelector(error)""",
            arg=[prompt.element_handle(), before, ERROR],
            timeout=180_000,
        )


def test_a_right_kernel_passes_and_a_wrong_one_is_told_why(page, server, project, tmp_path):
    notebook = Notebook(page, server, NOTEBOOK)
    magic, check = "%%kernel gemm/coalesced", 'gemm["coalesced"].check()'

    right = f"{magic}\n{SOLUTION.read_text()}"
    notebook.write(magic, right)
    notebook.run_all()
    page.screenshot(path=tmp_path / "right.png")
    assert "passed" in notebook.output(check)

    wrong = right.replace("if row < M and col < N", "if row <= M and col < N")
    assert wrong != right
    notebook.write(magic, wrong)
    notebook.run(magic)
    notebook.run(check)
    page.screenshot(path=tmp_path / "wrong.png")
    shown = notebook.output(check)
    assert "failed" in shown
    assert re.search(r"line \d+: .* outside ", shown), shown
