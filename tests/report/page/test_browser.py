"""The report page in a browser: it loads from disk without a request, draws, sorts, filters and fits every screen."""

import pytest
from fabricated_runs import make_run

from acr.report.page.render import write_page
from acr.runs.run import find_runs

SECTIONS = ("overview", "scatter", "stages", "matrices", "corruptions", "classes", "confusion", "memory", "balance",
            "confidence", "cost", "configs", "commands", "runs")  # fmt: skip


@pytest.fixture(scope="module")
def page_file(sweep, tmp_path_factory):
    return write_page(find_runs(sweep), tmp_path_factory.mktemp("page") / "report.html")


def open_page(browser, path, width=1280, scheme="light"):
    """A page with all its charts drawn; what it complains of and asks for is written down."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.complaints, page.requests = [], []
    page.on("console", lambda m: page.complaints.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda e: page.complaints.append(str(e)))
    page.on("dialog", lambda d: (page.complaints.append(f"dialog {d.message}"), d.dismiss()))
    page.on("request", lambda r: page.requests.append(r.url) if not r.url.startswith(("data:", "blob:")) else None)
    page.goto(path.as_uri())
    page.wait_for_selector(".plot[data-drawn], #overview .empty", state="attached")
    page.wait_for_selector(".plot:not([data-drawn])", state="detached")
    return page


def check_silent(page, path):
    assert page.complaints == []
    assert page.requests == [path.as_uri()]


@pytest.fixture
def visit(browser):
    """Open a page; fail afterwards if it complained or asked for anything but itself."""
    opened = []

    def go(path, width=1280, scheme="light"):
        opened.append((open_page(browser, path, width, scheme), path))
        return opened[-1][0]

    yield go
    for page, path in opened:
        check_silent(page, path)
        page.context.close()


@pytest.fixture(scope="module")
def opened_once(browser, page_file):
    page = open_page(browser, page_file)
    yield page
    page.context.close()


@pytest.fixture
def shared_page(opened_once, page_file):
    """The page of the sweep, loaded once for all tests that leave it as the others expect it."""
    yield opened_once
    check_silent(opened_once, page_file)


def texts(page, selector):
    return page.locator(selector).all_inner_texts()


def test_every_section_is_there_and_every_chart_is_drawn(shared_page):
    page = shared_page
    for section in SECTIONS:
        assert page.locator(f"section#{section} h2").count() == 1, section
    for chart in ("scatter", "stages", "corruptions", "classes", "balance", "confidence", "cost"):
        assert page.locator(f"#{chart} .plot .main-svg").count() > 0, chart
    assert page.locator("#stages .plot").count() == 8
    assert page.locator("#matrices table.heat").count() == 3
    assert page.locator("#corruptions #samples figure").count() == 12
    assert page.locator("#memory .cut").count() == 50
    assert page.locator("section .empty").count() == 0
    assert "acr run --method acr" in page.locator("#commands pre").inner_text()
    assert "damaged" in page.locator("#runs").inner_text()


def test_the_overview_sorts_and_filters(shared_page):
    page = shared_page
    head = page.locator("#overview-table th", has_text="ACC %").first
    values = "#overview-table tbody tr:not([hidden]) td:nth-child(6)"
    numbers = lambda: [float(text.split()[0]) for text in texts(page, values)]  # noqa: E731
    head.get_by_role("button").click()
    assert numbers() == sorted(numbers(), reverse=True)
    assert head.get_attribute("aria-sort") == "descending"
    head.get_by_role("button").press("Enter")
    assert numbers() == sorted(numbers())
    page.select_option("[data-filter=buffer]", "100")
    assert texts(page, "#overview-table tbody tr:not([hidden]) th") == ["ER", "ACR"]
    assert page.locator("#overview-count").inner_text() == "2 of 5 rows"
    page.select_option("[data-filter=buffer]", "")
    page.fill("[data-filter=method]", "FINE")
    assert texts(page, "#overview-table tbody tr:not([hidden]) th") == ["Fine-tuning"]
    page.fill("[data-filter=method]", "")


def test_charts_answer_to_the_pickers(visit, page_file):
    page = visit(page_file)
    before = page.locator("#matrices table.heat").first.inner_text()
    page.select_option("#matrices [data-picker]", "fog/1")
    assert page.locator("#matrices table.heat").first.inner_text() != before
    page.select_option("#classes [data-picker]", "m0")
    page.wait_for_selector("#classes .plot[data-drawn]")
    assert "after 5" in page.locator("#classes .plot").inner_text()
    page.locator("#chips button", has_text="Fine-tuning").click()
    assert page.locator("#matrices table.heat").count() == 2
    assert "Fine-tuning" not in page.locator("#scatter .plot").inner_text()
    page.locator("#chips button", has_text="Fine-tuning").click()
    assert "Fine-tuning" in page.locator("#scatter .plot").inner_text()
    page.select_option("#comparison", label="split-digits · buffer 100 · sound")
    page.wait_for_selector(".plot:not([data-drawn])", state="detached")
    assert "100" in page.locator("#short").inner_text() or page.locator(".card").count() == 4
    page.select_option("#memory-pick", "ER")
    assert "records no confidence" in page.locator("#memory-note").inner_text()


def test_numbers_stand_behind_the_charts(shared_page):
    page = shared_page
    for chart in ("scatter", "stages", "corruptions", "classes", "balance", "confidence", "cost"):
        behind = page.locator(f"#{chart} details.behind")
        behind.locator("summary").click()
        assert behind.locator("tbody tr").count() > 0, chart
        assert behind.locator("th[scope=col]").count() > 1, chart


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (768, "dark"), (1440, "light")])
def test_it_fits_the_screen(visit, page_file, width, scheme):
    """In the theme that the system asks for, and in the other one."""
    page = visit(page_file, width, scheme)
    for theme in (scheme, "dark" if scheme == "light" else "light"):
        assert page.evaluate("document.documentElement.dataset.theme") == theme
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        edges = page.evaluate("[...document.querySelectorAll('.plot')].map(p => p.getBoundingClientRect().right)")
        assert max(edges) <= width + 1
        page.locator("#theme").click()
        page.wait_for_selector(".plot:not([data-drawn])", state="detached")


def test_it_prints(shared_page):
    page = shared_page
    assert page.pdf().startswith(b"%PDF")


def test_names_from_outside_do_nothing(visit, tmp_path):
    names = ["<script>alert(1)</script>", "<img src=x onerror=alert(2)>", "a\u2028b", *map(str, range(7))]
    make_run(tmp_path, "acr", 0, class_names=names, name="""it's "quoted" & <b>fat 🦊""", corruptions=("fog",))
    page = visit(write_page(find_runs(tmp_path), tmp_path / "page's 🦊.html"))
    assert "class <script>alert(1)</script>" in page.locator("#memory-tiles").inner_text()
    assert "<script>alert" in page.locator("#classes .plot").inner_text()
    assert "<b>fat 🦊" in page.locator("#memory-note").inner_text()


def test_without_a_finished_run_it_says_so(visit, tmp_path):
    make_run(tmp_path, "acr", 0, finished=False)
    page = visit(write_page(find_runs(tmp_path), tmp_path / "page.html"))
    assert "No finished run" in page.locator("#overview .empty").inner_text()
    assert page.locator("#toolbar").is_hidden()


def test_a_phone_shows_acc_beside_the_method_and_says_that_the_table_goes_on(visit, page_file):
    page = visit(page_file, 390)
    box = page.locator("#overview .scroll")
    box.scroll_into_view_if_needed()
    row = page.locator("#overview-table tbody tr").first
    first_number = next(cell for cell in row.locator("td").all() if cell.is_visible())
    place = first_number.bounding_box()
    assert place["x"] + place["width"] <= 390  # ACC is on the screen without scrolling
    heads = [head.inner_text() for head in page.locator("#overview-table thead th").all() if head.is_visible()]
    assert heads[1].startswith("ACC %")
    assert "split-digits" in row.locator("th").inner_text()  # what the hidden columns say is below the method
    assert box.evaluate("box => box.classList.contains('more')")
    box.evaluate("box => { box.scrollLeft = box.scrollWidth; }")
    page.wait_for_selector("#overview .scroll:not(.more)")


def test_a_wide_screen_shows_every_column_and_a_cue_only_where_it_is_true(visit, page_file):
    page = visit(page_file, 1600)
    assert page.locator("#overview-table .place").first.is_visible()
    assert not page.locator("#overview-table .where").first.is_visible()
    box = page.locator("#overview .scroll")
    assert box.evaluate("box => box.classList.contains('more') == (box.scrollWidth > box.clientWidth + 8)")
    box.evaluate("box => { box.style.width = '4000px'; box.style.maxWidth = 'none'; }")
    page.wait_for_selector("#overview .scroll:not(.more)")
