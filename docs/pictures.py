"""Draw the pictures of the README: `.venv/bin/python docs/pictures.py` (needs the extra `browser` and Chromium)."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

import labkit as lk
from labkit.bench import show_recorded
from labkit.cliff import figures, find_recorded

OUT = Path(__file__).parent / "pictures"
STYLE = "<style>body{font:15px system-ui,sans-serif;margin:16px;width:940px}table{font-size:14px}</style>"
FLAGS = "--no-sandbox --disable-gpu --disable-background-networking --disable-sync --disable-quic".split()


def pages() -> dict[str, str]:
    gemm = lk.problem("gemm")
    shape = {"M": 64, "N": 64, "K": 64}
    naive, coalesced, tiled = (gemm[r].solution for r in ("naive", "coalesced", "smem_tile"))
    p_naive, p_coalesced = naive.profile(**shape), coalesced.profile(**shape)
    with tempfile.TemporaryDirectory() as folder:
        broken = Path(folder, "smem_tile.py")
        broken.write_text(tiled.source.replace("cuda.syncthreads()", "pass", 1))
        failed = tiled.load(broken).check()
    cliff = figures(find_recorded(108))[1].update_layout(height=420)
    timings = [t for t in show_recorded("gemm").timings if t.shape == gemm.bench_shape and t.cold]
    return {
        "cliff": cliff.to_html(include_plotlyjs=True),
        "ladder": lk.plots.ladder(timings).to_html(include_plotlyjs=True),
        "access_map": lk.plots.access_map(p_naive, "A").to_html(include_plotlyjs=True),
        "check": STYLE + failed._repr_html_() + tiled.check()._repr_html_(),
        "diff": STYLE + p_coalesced.diff(p_naive)._repr_html_(),
    }


def main() -> None:
    OUT.mkdir(exist_ok=True)
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        for name, html in pages().items():
            file = Path(folder, f"{name}.html")
            file.write_text(html)
            page = browser.new_page(viewport={"width": 1000, "height": 200})
            page.goto(file.as_uri())
            page.wait_for_timeout(1500)
            page.screenshot(path=OUT / f"{name}.png", full_page=True)


if __name__ == "__main__":
    main()
