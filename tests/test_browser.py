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
from urllib.error import URLError
from urllib.request import urlopen

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOK = "02_gemm/01_naive_to_tiled.ipynb"
SOLUTIONS = ROOT / "solutions/02_gemm"

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
CELL = ".jp-Notebook .jp-Cell"
# What a cell shows that raised, or warned: neither belongs into a notebook for students.
ERROR = '[data-mime-type="application/vnd.jupyter.stderr"]'

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
            try:
                with urlopen(found[0]):
                    return found[0]
            except URLError:  # it is printed a little before the server listens
                pass
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError(log.read_text())


class Notebook:
    """A notebook in JupyterLab's page, used as by hand; cells go by their id in the file."""

    def __init__(self, page, server: str, file: Path, path: str):
        self.page = page
        self.ids = [cell["id"] for cell in json.loads(file.read_text())["cells"]]
        base, token = server.split("/lab?")
        page.goto(f"{base}/lab/tree/{path}?{token}&reset")  # without the notebooks that were open before
        page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for()
        page.locator(CELL).nth(len(self.ids) - 1).wait_for(state="attached")
        assert page.locator(CELL).count() == len(self.ids)

    def cell(self, name: str):
        return self.page.locator(CELL).nth(self.ids.index(name))

    def output(self, name: str) -> str:
        """What that cell shows below its source."""
        return self.cell(name).locator(".jp-OutputArea").inner_text()

    def write(self, name: str, source: str) -> None:
        """Put `source` in the place of the cell's."""
        self.cell(name).locator(".cm-content").click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(source)

    def run_all(self) -> None:
        """Run > Run All Cells; a cell that raises or warns fails the test."""
        prompt = self.page.locator(".jp-CodeCell .jp-InputPrompt").last
        before = prompt.text_content()
        self.page.locator(".lm-MenuBar-item", has_text="Run").first.click()
        self.page.locator(".lm-Menu-item", has_text="Run All Cells").first.click()
        self._wait(prompt, before)
        for error in self.page.locator(ERROR).all():
            raise AssertionError(error.inner_text())

    def run(self, name: str) -> None:
        """Run one cell, with Ctrl+Enter."""
        prompt = self.cell(name).locator(".jp-InputPrompt")
        before = prompt.text_content()
        for _ in range(5):  # a kernel that is not connected yet takes no cell
            self.cell(name).locator(".cm-content").click()
            self.page.keyboard.press("Control+Enter")
            self.page.wait_for_timeout(3000)
            if prompt.text_content() != before:
                break
        self._wait(prompt, before)

    def _wait(self, prompt, before: str) -> None:
        """Until the cell of that prompt has run, or one has raised or warned."""
        self.page.wait_for_function(
            """([prompt, before, error]) =>
                   /\\d/.test(prompt.textContent) && prompt.textContent !== before
                   || document.querySelector(error)""",
            arg=[prompt.element_handle(), before, ERROR],
            timeout=180_000,
        )

    def screenshot(self, name: str, path: Path) -> None:
        self.cell(name).scroll_into_view_if_needed()
        self.page.screenshot(path=path)


def solutions() -> dict[str, str]:
    """Cell id -> cell with the solution, for each kernel of the notebook."""
    cells = {}
    for path in sorted(SOLUTIONS.glob("kernels/*/*.*")):
        problem, rung = path.parent.name, path.stem
        language, flag = {".py": ("numba", ""), ".cu": ("cuda", " --cuda")}[path.suffix]
        magic = f"%%kernel {problem}/{rung}{flag}\n"
        cells[f"{problem}--{rung}--{language}"] = magic + path.read_text()
    return cells


def test_right_kernels_pass_and_a_wrong_one_is_told_why(page, server, project, tmp_path):
    notebook = Notebook(page, server, project / "labs" / NOTEBOOK, NOTEBOOK)
    kernels = {name: cell for name, cell in solutions().items() if name in notebook.ids}
    assert "gemm--coalesced--numba" in kernels
    for name, cell in kernels.items():
        notebook.write(name, cell)
    notebook.run_all()
    notebook.screenshot("gemm--coalesced--check", tmp_path / "right.png")
    for name in notebook.ids:
        if "--check" in name:
            assert re.search(r"gemm/\w+.* passed", notebook.output(name)), name

    right = kernels["gemm--coalesced--numba"]
    wrong = right.replace("if row < M and col < N", "if row <= M and col < N")
    assert wrong != right
    notebook.write("gemm--coalesced--numba", wrong)
    notebook.run("gemm--coalesced--numba")
    notebook.run("gemm--coalesced--check")
    notebook.screenshot("gemm--coalesced--check", tmp_path / "wrong.png")
    shown = notebook.output("gemm--coalesced--check")
    assert "failed" in shown
    assert re.search(r"line \d+: .* outside ", shown), shown


STEPPER = '''\
import numpy as np
from numba import cuda, float32

import labkit as lk


@cuda.jit
def neighbours(out, a):
    tile = cuda.shared.array(32, float32)
    i = cuda.threadIdx.x
    tile[i] = a[i]
    cuda.syncthreads()
    if i < 31:
        out[i] = tile[i] + tile[i + 1]


stepper = lk.step(neighbours, 1, 32, (np.zeros(32, np.float32), 100 + np.arange(32, dtype=np.float32)))
stepper
'''


def test_the_stepper_walks_at_a_click(page, server, project, tmp_path):
    cell = {"cell_type": "code", "id": "step", "metadata": {}, "source": STEPPER}
    cell |= {"outputs": [], "execution_count": None}
    file = project / "labs" / "stepper.ipynb"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    file.write_text(
        json.dumps({"cells": [cell], "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5})
    )
    notebook = Notebook(page, server, file, file.name)
    notebook.run("step")
    shown = notebook.cell("step").locator(".jp-OutputArea-output")
    view = shown.locator(".widget-html-content")
    view.wait_for()

    def line() -> str:
        """The source line that is marked."""
        return view.locator("div[style*='font-weight']").inner_text()

    def until(words: str) -> None:
        page.wait_for_function(
            "([view, words]) => view.innerText.includes(words)", arg=[view.element_handle(), words], timeout=20_000
        )

    def click(name: str) -> None:
        shown.get_by_role("button", name=name, exact=True).click()

    until("moment 0 of")
    first = line()
    assert shown.get_by_role("button", name="back", exact=True).is_disabled()
    click("next")
    until("moment 1 of")
    assert line() != first
    moments = int(re.search(r"moment 1 of (\d+)", view.inner_text())[1])
    for n in range(2, moments + 1):
        if "loads a" in view.inner_text():
            break
        click("next")
        until(f"moment {n} of")
    assert "tile[i] = a[i]" in line()
    assert re.search(r"lane 5\s+a\[5\] = 105", view.inner_text()), view.inner_text()
    assert "32 of 32 lanes active" in view.inner_text()
    notebook.screenshot("step", tmp_path / "all.png")

    click("7")
    until("the values of lane 7")
    assert re.search(r"a\[7\] = 107", view.inner_text()) and "a[5]" not in view.inner_text()
    notebook.screenshot("step", tmp_path / "lane.png")
    click("7")
    until("a[5] = 105")

    here = int(re.search(r"moment (\d+) of", view.inner_text())[1])
    click("back")
    until(f"moment {here - 1} of")
    assert "loads a" not in view.inner_text()
    handle = shown.locator(".noUi-handle")
    handle.focus()
    page.keyboard.press("End")
    until(f"moment {moments} of")
    assert shown.get_by_role("button", name="next", exact=True).is_disabled()
    assert not page.locator(ERROR).count()
