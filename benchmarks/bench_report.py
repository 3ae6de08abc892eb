"""Size of the report and how long it takes to open: python benchmarks/bench_report.py

Ten atoms of a 128 x 3000 x 100 tensor, made directly, without a fit. The page is opened in headless Chromium five
times. *First picture* is when the browser has painted text and still pictures, *table* when it sorts and filters,
*charts* when all those in the window have taken the place of their still pictures.
"""

import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
from common import table, timed, write

from boolcp.report import write_report
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.result.labels import Labels

SHAPE, N_OPENED = (128, 3000, 100), 5
FLAGS = "--no-sandbox --headless --disable-gpu --disable-background-networking --disable-sync --no-first-run".split()
PAINT = "performance.getEntriesByType('paint').find(e => e.name === 'first-contentful-paint').startTime"
MARKS = """const mark = (name) => performance.getEntriesByName(name).length || performance.mark(name);
requestAnimationFrame(function look() {
  const figures = [...document.querySelectorAll("figure.chart")];
  const seen = window.Plotly ? figures.filter((figure) => figure.getBoundingClientRect().top < innerHeight) : [];
  const isDrawn = seen.length && seen.every((figure) => figure.classList.contains("drawn"));
  if (document.querySelector(".dt-info")) mark("table");
  if (isDrawn) mark("charts");
  if (!isDrawn || !document.documentElement.classList.contains("ready")) requestAnimationFrame(look);
  else document.documentElement.classList.add("opened");
})"""


def decomposition(is_block):
    """Return ten atoms, of rank one over all modes or blocks over time and trial."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, SHAPE[0]))
    labels = Labels(("channel", "time", "trial"), extra={"x": ("channel", x), "y": ("channel", y)})
    atoms = []
    for k in range(10):
        mode = 0 if is_block else k % 3
        z = rng.random(SHAPE[mode]) < 0.5
        others = [d for n, d in enumerate(SHAPE) if n != mode]
        real = {"block": rng.standard_normal(others)} if is_block else {}
        real = real or {"factors": tuple(rng.standard_normal((d, 1)) for d in others)}
        atoms.append(Atom(mode, z, certificate=0.5 + 0.05 * k, **real))
    inner = rng.random(10)
    return BooleanCP(SHAPE, tuple(atoms), np.ones(10), labels, data_norm2=1e9, data_inner=inner)


def open_page(browser, path):
    """Return milliseconds until first picture, table and charts, and seconds of the page's main thread."""
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.add_init_script(MARKS)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(path.as_uri())
    page.wait_for_selector("html.opened", state="attached", timeout=120_000)
    times = [page.evaluate(PAINT)]
    times += [page.evaluate(f"performance.getEntriesByName('{name}')[0].startTime") for name in ("table", "charts")]
    metrics = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
    page.context.close()
    return [*times, 1000 * metrics["TaskDuration"]]


def main():
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        print("No chromium or chrome is installed: the report is not opened.")
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        for name, is_block in (("rank one", False), ("blocks of noise", True)):
            path = Path(folder) / f"{is_block}.html"
            _, seconds = timed(write_report, decomposition(is_block), path)
            times = np.median([open_page(browser, path) for _ in range(N_OPENED)], axis=0) / 1000
            size = f"{path.stat().st_size / 1e6:.2f} MB"
            rows.append([name, f"{seconds:.1f} s", size, *(f"{value:.2f} s" for value in times)])
        browser.close()
    head = ["atoms", "written in", "size", "first picture", "table", "charts", "processor, main thread"]
    note = (
        "Medians of five openings. *First picture*: text and still pictures are there; *table*: it sorts and filters; "
        "*charts*: all in the window of 1280 x 900 are drawn. The last column is the time that the "
        f"page needs of one processor until then; the rest is waiting (load {os.getloadavg()[0]:.1f})."
    )
    write("report.md", "python benchmarks/bench_report.py", ["# The report", table(head, rows), note], "itables")


if __name__ == "__main__":
    main()
