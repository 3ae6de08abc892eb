"""The report in a real browser: it opens offline, and hover, sort, filter, selection and keys work."""

import shutil

import numpy as np
import pytest

from boolcp.report import write_report
from boolcp.result.atoms import Atom, BooleanCP
from boolcp.result.labels import Labels

for package in ("jinja2", "itables"):
    pytest.importorskip(package)
sync_api = pytest.importorskip("playwright.sync_api")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium or chrome is installed")

FLAGS = (
    "--no-sandbox --headless --disable-gpu --disable-background-networking --disable-component-update "
    "--disable-sync --no-first-run"
).split()
MINUS = "\N{MINUS SIGN}"
EVIL = "<script>alert(1)</script>"
# what Plotly would read in a text: tags, entities, templates
MARKUP = ("<b>bold</b>", '<a href="javascript:alert(2)">link</a>', "a<br>b", "x<sup>2</sup>", "&lt;i&gt;", "%{x}")
PATIENCE = 120_000  # milliseconds until a wait fails; the machine may be busy


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield browser
        browser.close()


def decomposition(rng):
    """Four atoms along channel, time, trial, trial."""
    shape = (12, 40, 10)
    y, x = np.divmod(np.arange(12.0), 4)  # apart, so that the mouse finds each
    channels = np.array([EVIL, *MARKUP, *(f"C{i}" for i in range(len(MARKUP) + 1, 12))])
    conditions = np.array(["awake"] * 5 + ["<b>drug</b>"] * 5)
    labels = Labels(
        ("channel", "time", "trial"),
        {"channel": channels, "time": np.arange(40) / 10},
        {"time": "s"},
        {"x": ("channel", x), "y": ("channel", y), "condition": ("trial", conditions)},
        "ECoG",
    )
    atoms = []
    for mode in (0, 1, 2, 2):
        factors = tuple(v / np.linalg.norm(v) for v in (rng.standard_normal((d, 1)) for d in np.delete(shape, mode)))
        z = np.zeros(shape[mode], dtype=bool)
        z[: shape[mode] // 2] = True
        atoms.append(Atom(mode, z, factors, certificate=0.5 + 0.1 * mode))
    return BooleanCP(
        shape, tuple(atoms), [3.0, 1.0, 9.0, 2.0], labels, data_norm2=99.0, data_inner=[5.0, 1.0, 9.0, 3.0]
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    command = f"boolcp fit data.npy {' '.join(f'--option-{n} {n}' for n in range(9))} {'long/' * 30}"
    write_report(decomposition(np.random.default_rng(0)), path, provenance={"command": command})
    return path


@pytest.fixture(scope="module")
def session(browser, path):
    """One open page for all tests that leave it as they found it, and what went wrong in it."""
    troubles = []
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.on("console", lambda message: troubles.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("dialog", lambda dialog: (troubles.append("a dialog opened"), dialog.dismiss()))
    page.on("request", lambda request: troubles.append(request.url) if request.url[:5] not in LOCAL else None)
    page.goto(path.as_uri())
    page.wait_for_selector("html.ready", state="attached")
    yield page, troubles
    context.close()


LOCAL = {"file:", "data:", "blob:"}


@pytest.fixture
def page(session):
    page, troubles = session
    yield page
    page.emulate_media(media="screen", color_scheme="light")
    page.set_viewport_size({"width": 1280, "height": 900})
    page.select_option("#boolean-mode", "")
    page.fill("#find", "")
    page.keyboard.press("Escape")
    assert troubles == []


def cards(page):
    """The atoms of the cards that can be seen, in their order."""
    return [
        int(card.get_attribute("data-atom")) for card in page.query_selector_all("article.card") if card.is_visible()
    ]


def rows(page):
    return [
        int(row.get_attribute("data-atom")) for row in page.query_selector_all("#table-of-atoms tbody tr[data-atom]")
    ]


def assert_order(page, atoms):
    """Assert that the rows and the cards are those of the given atoms: the table sorts a moment after the click."""
    assert_soon(page, lambda: (rows(page), cards(page)), (atoms, atoms))


def assert_soon(page, look, expected=True):
    """Assert what is seen, when the page has had the time that it needs."""
    for _ in range(PATIENCE // 50):
        if look() == expected:
            break
        page.wait_for_timeout(50)
    assert look() == expected


def hover(page, point):
    """Move the mouse to the middle of a point, wherever it is by now: charts may still take their size."""
    box = point.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2 - 1, box["y"] + box["height"] / 2)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


def live(page, selector):
    """Scroll to the first chart that matches and return it when it is drawn."""
    page.locator(selector).first.scroll_into_view_if_needed()
    page.locator(selector).first.and_(page.locator(".drawn")).wait_for()
    return page.locator(f"{selector} .plot.js-plotly-plot").first


def opacities(page, selector):
    return page.eval_on_selector(
        selector, "plot => plot.data.map(trace => [trace.meta.atom, trace.opacity, trace.visible])"
    )


def test_all_charts_are_drawn_and_labels_are_text(page):
    for figure in page.query_selector_all("figure.chart"):
        figure.scroll_into_view_if_needed()
        page.wait_for_function("figure => figure.classList.contains('drawn')", arg=figure, timeout=PATIENCE)
    assert page.locator("figure.chart .main-svg").count() >= 6 + 12 + 2
    assert EVIL in page.locator("#atom-0").inner_text()
    assert page.locator("th", has_text="<b>drug</b>").count() == 1 and page.locator("main b").count() == 0
    assert page.evaluate("[...document.scripts].every(script => !script.textContent.includes('alert(1)<'))")


def hover_text(page, plot, number):
    """Move the mouse to a point of a chart and return what the chart says of it, nothing if it is silent."""
    hover(page, plot.locator(".scatterlayer .point").nth(number))
    return "".join(plot.locator(".hoverlayer .hovertext text").all_text_contents()).replace(MINUS, "-")


def test_hover_shows_label_and_value(page):
    plot = live(page, "#atom-1 figure:nth-child(3)")  # trials, real, with a condition
    value = decomposition(np.random.default_rng(0)).atoms[1].factors[1][:, 0]
    size = f"{value[0] / value[np.abs(value).argmax()]:.4g}"
    assert_soon(page, lambda: hover_text(page, plot, 0), f"trial 0, condition awake: {size}")
    plot = live(page, "#atom-0 figure:nth-child(1)")  # electrodes
    assert_soon(page, lambda: hover_text(page, plot, 0), f"channel {EVIL}: on")


def test_plotly_reads_no_markup_in_labels(page):
    plot = live(page, "#atom-0 figure:nth-child(1)")  # electrodes
    for i, label in enumerate(MARKUP, 1):
        assert_soon(page, lambda i=i: hover_text(page, plot, i), f"channel {label}: {'on' if i < 6 else 'off'}")
        assert plot.locator(".hoverlayer a, .hoverlayer tspan").count() == 0
    for selector in (".together figure:nth-child(1)", "section[aria-labelledby=groups] figure:nth-child(1)"):
        plot = live(page, selector)  # labels as ticks
        assert plot.locator("a, .xtick tspan, .ytick tspan, .legend tspan").count() == 0
    names = plot.locator(".legendtext").all_text_contents()
    assert names == ["awake (5)", "<b>drug</b> (5)"]


def test_sorting_moves_rows_and_cards(page):
    assert_order(page, [0, 1, 2, 3])
    head = page.locator("#table-of-atoms thead th").nth(2)  # how many are on: 6, 20, 5, 5
    for atoms in ([2, 3, 0, 1], [1, 0, 3, 2], [0, 1, 2, 3]):  # up, down, and the order of the page again
        head.click()
        assert_order(page, atoms)


def test_the_filter_by_boolean_mode_acts_on_rows_cards_tables_and_charts(page):
    lines = ".together figure:nth-child(4)"  # over time, of the atoms 0, 2, 3
    live(page, lines)
    page.select_option("#boolean-mode", "mode-2")
    assert_order(page, [2, 3])
    listed = page.locator("section[aria-labelledby=groups] tr[data-atom]:visible")
    assert_soon(page, listed.count, 2)
    assert_soon(page, lambda: [atom for atom, _, seen in opacities(page, f"{lines} .plot") if seen], [2, 3])
    assert_soon(page, page.locator(".dt-info").inner_text, "2 of 4 atoms")
    page.select_option("#boolean-mode", "")
    page.fill("#find", "alert(1)")
    assert_order(page, [0])


def find(page, words):
    """Type words into the search and return the atoms that are left."""
    page.fill("#find", words)
    return rows(page)


def test_the_search_finds_every_label_that_is_on(page):
    assert_soon(page, lambda: find(page, "C7"), [])  # channel C7 is off in the only atom along channels
    assert_soon(page, lambda: find(page, EVIL), [0])
    assert_soon(page, lambda: find(page, "1.9"), [1])  # a time within a range, which is not printed
    assert_soon(page, lambda: find(page, "3"), [2, 3])  # trial 3 of two atoms; 3 s, where the atom along time is off
    assert_soon(page, lambda: find(page, "atom 3"), [3])


def test_atoms_have_one_color_everywhere(page):
    live(page, ".together figure:nth-child(3)")  # lines over time
    lines = page.eval_on_selector_all(
        ".together .plot", "plots => plots.flatMap(p => (p.data ?? []).map(t => [t.meta.atom, t.line?.color]))"
    )
    swatch = "atom => getComputedStyle(document.querySelector(`tr[data-atom='${atom}'] .swatch`)).backgroundColor"
    hexed = "color => { const e = document.createElement('i'); e.style.color = color; document.body.append(e);"
    hexed += " const found = getComputedStyle(e).color; e.remove(); return found; }"
    seen = {}
    for atom, color in lines:
        if color:
            assert page.evaluate(hexed, color) == page.evaluate(swatch, atom)
            seen[atom] = color
    assert len(seen) >= 3 and len(set(seen.values())) == len(seen)


def test_conditions_are_compared_and_named_in_words(page):
    section = "section[aria-labelledby=groups]"
    live(page, f"{section} figure:nth-child(1)")  # share of ones
    bars = page.eval_on_selector(
        f"{section} figure:nth-child(1) .plot", "plot => plot._fullData.map((t) => [t.x, Array.from(t.y)])"
    )
    assert bars == [[["atom 2", "atom 3"], [100, 100]], [["atom 2", "atom 3"], [0, 0]]]
    assert live(page, f"{section} figure:nth-child(2)").locator(".errorbar").count() == 4  # means of real parts
    heads = page.locator(f"{section} thead th").all_inner_texts()
    assert heads[:2] == ["atom", "what"] and heads[-2:] == ["awake (5)", "<b>drug</b> (5)"]
    strip = live(page, "#atom-2 figure:nth-child(3)")
    assert page.locator("#atom-2 figure:nth-child(3) .key").all_inner_texts() == ["awake (5)", "<b>drug</b> (5)"]
    assert strip.locator(".shapelayer path").count() == 2


def test_tools_do_not_cover_the_data(page):
    plot = live(page, "#atom-0 figure:nth-child(2)")  # a line over time
    box = plot.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    plot.locator(".modebar").wait_for()
    tools, data = (
        plot.locator(".modebar").bounding_box(),
        plot.locator(".bglayer .bg, .xy .bg, .draglayer .nsewdrag").first,
    )
    assert tools["y"] + tools["height"] <= data.bounding_box()["y"] + 1
    plot = live(page, "#atom-2 figure:nth-child(3)")  # a strip
    assert plot.locator(".modebar-btn").count() == 0


def test_a_selected_atom_stands_out_everywhere(page):
    live(page, ".together figure:nth-child(2)")
    page.locator("#table-of-atoms tr[data-atom='3'] td").nth(2).click()
    assert_soon(page, page.locator("#status").inner_text, "Atom 3 is selected.")
    selected = page.locator(".selected[data-atom]")
    assert {selected.nth(i).get_attribute("data-atom") for i in range(selected.count())} == {"3"}
    assert page.locator("article.selected").count() == 1 and page.locator("tr.selected").count() == 2
    lines = ".together figure:nth-child(2) .plot"
    assert_soon(page, lambda: {k: opacity for k, opacity, _ in opacities(page, lines)}, {1: 0.15, 2: 0.15, 3: 1})
    colors = [f"getComputedStyle(document.querySelector('tr[data-atom=\"{k}\"] a')).color" for k in (3, 0)]
    assert page.evaluate(colors[0]) == page.evaluate(colors[1])  # no pale link on a pale row
    page.keyboard.press("Escape")
    assert_soon(page, page.locator(".selected").count, 0)


def test_the_keyboard_does_it_all(page):
    page.locator("#boolean-mode").focus()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "find"
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.ariaLabel || ''").startswith("alone: "):
            break
    for atoms in ([1, 3, 0, 2], [2, 0, 3, 1]):
        page.keyboard.press("Enter")
        assert_order(page, atoms)
    page.keyboard.press("Enter")  # the order of the page again
    page.wait_for_selector("#table-of-atoms thead th[aria-sort]", state="detached")
    page.locator("#atom-0 button.pick").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("article.selected")
    assert page.locator("article.selected").get_attribute("id") == "atom-0"
    assert page.locator("#atom-0 button.pick").get_attribute("aria-pressed") == "true"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"


def test_dark_pages_have_light_text_in_charts_too(page):
    live(page, "#atom-1 figure:nth-child(3)")
    color = "element => getComputedStyle(element).fill.match(/[\\d.]+/g).slice(0, 3).map(Number)"
    tick = "#atom-1 figure:nth-child(3) .xtick text"
    assert max(page.eval_on_selector(tick, color)) < 100
    page.emulate_media(color_scheme="dark")
    assert_soon(page, lambda: min(page.eval_on_selector(tick, color)) > 180)
    edges = [
        f"getComputedStyle(document.querySelector('{one}')).borderBottomColor" for one in ("tr:last-child td", ".card")
    ]
    assert page.evaluate(edges[0]) == page.evaluate(edges[1])  # a line below the last row too
    live(page, "section[aria-labelledby=groups] figure:nth-child(1)")
    spread = "section[aria-labelledby=groups] .errorbar path"
    assert min(page.eval_on_selector(spread, color.replace("fill", "stroke"))) > 180
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(int(part) for part in background[4:-1].split(",")) < 60
    assert_soon(page, lambda: page.evaluate("document.documentElement.classList.contains('dark')"))


def test_print_has_all_charts_and_no_controls(browser, path):
    """Charts far below the window are drawn before printing."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(path.as_uri())
    page.wait_for_selector("html.ready", state="attached")
    assert page.locator("figure.chart:not(.live)").count() > 0
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert_soon(page, page.locator("figure.chart:not(.drawn)").count, 0)
    page.emulate_media(media="print", color_scheme="dark")
    assert page.locator("button.pick:visible, .controls:visible").count() == 0 and cards(page) == [0, 1, 2, 3]
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    context.close()


def test_a_phone_has_no_sideways_scroll(page):
    page.set_viewport_size({"width": 390, "height": 844})
    for figure in page.query_selector_all("figure.chart"):
        figure.scroll_into_view_if_needed()
    width = "document.documentElement.scrollWidth"
    assert_soon(page, lambda: page.evaluate(width) <= 390)  # charts follow a moment later
    hint = page.locator("section[aria-labelledby=atoms] .more")
    assert_soon(page, hint.is_visible)  # the table is wider than the screen, and says so
    box = "f => [f.getBoundingClientRect().left, (f.querySelector('.main-svg') ?? f).getBoundingClientRect().right]"
    for figure in page.query_selector_all("figure.chart"):
        figure.scroll_into_view_if_needed()
        assert_soon(
            page, lambda figure=figure: 0 <= figure.evaluate(box)[0] < figure.evaluate(box)[1] <= 390
        )  # not cut
    heights = page.eval_on_selector_all("pre .word", "words => words.map((word) => word.offsetHeight)")
    assert len(set(heights[:-1])) == 1 and heights[-1] > 2 * heights[0], "only a word longer than a line is broken"
    page.set_viewport_size({"width": 1280, "height": 900})
    assert_soon(page, hint.is_hidden)


def test_without_scripts_words_and_tables_are_there(browser, path):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    assert "The charts need JavaScript" in page.locator("main").inner_text()
    assert page.locator("#table-of-atoms tbody tr:visible").count() == 4 and cards(page) == [0, 1, 2, 3]
    assert page.locator(".controls:visible, figure:visible, button:visible").count() == 0
    context.close()
