# SPDX-License-Identifier: Apache-2.0
"""The pages in a real Chromium, driven by Playwright: a file becomes a batch and its results are saved; keys; hostile answers; a server
that is killed and comes back under an open page; three widths and both themes."""
import json, pathlib, shutil, signal

import pytest
from playwright.sync_api import expect, sync_playwright

import support

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no Chromium is installed")
PATIENCE_MS = 120_000
HOSTILE = "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\"> \u202eright to left\u202c \u0007"


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def server(tmp_path):
    with support.serving(tmp_path / "state", "--model", "smollm2=echo") as server:
        yield server


class Tab:
    """A page of its own; `troubles` are its errors and breaches of the policy, which no test wants."""

    def __init__(self, browser, server, path="/", **options):
        self.context = browser.new_context(accept_downloads=True, **options)
        self.context.set_default_timeout(PATIENCE_MS)
        self.page, self.troubles = self.context.new_page(), []
        self.page.add_init_script("delete window.showSaveFilePicker")  # a dialog of the system, which no program can answer
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("console", lambda message: self.troubles.append(message.text) if "Content Security Policy" in message.text else None)
        self.page.goto(server.url.removesuffix("/v1") + path)

    def sees(self, text):
        expect(self.page.get_by_text(text).first).to_be_visible(timeout=PATIENCE_MS)


def file_of(folder, answers, name="people.jsonl"):
    path = folder / name
    path.write_bytes(support.jsonl([support.request(f"c{number}", answer) | {"url": "/v1/chat/completions"} for number, answer in enumerate(answers)]))
    return path


def start(tab, path):
    tab.page.set_input_files("#file", path)
    tab.sees("Requests")
    tab.page.get_by_role("button", name="Start the batch").click()
    expect(tab.page.get_by_role("heading", name=path.name)).to_be_visible(timeout=PATIENCE_MS)


def test_from_a_file_to_saved_results(browser, server, tmp_path):
    answers = [json.dumps({"recommendation": ["hire", "maybe", "no"][number % 3], "score": number}) for number in range(120)]
    tab = Tab(browser, server)
    tab.sees("No batch yet")
    start(tab, file_of(tmp_path, answers))
    tab.sees("120 of 120 requests")
    expect(tab.page.locator("table.results thead th")).to_have_text(["Custom id", "Outcome", "recommendation", "score", "Tokens"], timeout=PATIENCE_MS)
    seen = set(tab.page.locator("table.results tbody th").all_inner_texts())
    for _ in range(2):
        first = tab.page.locator("table.results tbody th").first.inner_text()
        tab.page.get_by_role("button", name="Later lines").click()
        expect(tab.page.locator("table.results tbody th").first).not_to_have_text(first, timeout=PATIENCE_MS)
        seen |= set(tab.page.locator("table.results tbody th").all_inner_texts())
    assert seen == {f"c{number}" for number in range(120)}
    with tab.page.expect_download() as download:
        tab.page.get_by_role("button", name="Download results").click()
    lines = pathlib.Path(download.value.path()).read_text().splitlines()
    assert [json.loads(line)["custom_id"] for line in lines] == [f"c{number}" for number in range(120)]
    tab.page.get_by_role("link", name="All batches").click()
    tab.sees("120 of 120")
    assert not tab.troubles


def test_a_broken_file_names_its_line(browser, server, tmp_path):
    path = tmp_path / "broken.jsonl"
    path.write_bytes(file_of(tmp_path, ["one"]).read_bytes() + b"{no JSON\n")
    tab = Tab(browser, server)
    tab.page.set_input_files("#file", path)
    tab.sees("Line 2:")
    tab.page.get_by_role("button", name="Start the batch").click()
    tab.sees("failed")
    tab.sees("Line 2:")
    assert not tab.troubles


def test_hostile_answers_are_text(browser, server, tmp_path):
    tab = Tab(browser, server)
    start(tab, file_of(tmp_path, [HOSTILE, json.dumps({"field<b>": HOSTILE, "long": "x" * 100_000})], "<img src=x onerror=alert(1)>.jsonl"))
    tab.sees("2 of 2 requests")
    tab.sees("<script>document.title='taken'</script>")
    tab.sees("field<b>")
    assert "taken" not in tab.page.title() and tab.page.locator("main img, main script, main b").count() == 0
    assert "\u202e" not in tab.page.locator("main").inner_text() and "U+202E" in tab.page.locator("main").inner_text()
    tab.page.get_by_role("button", name="all 100,000 characters").click()
    assert not tab.troubles


def test_a_key_is_asked_for_and_kept_in_the_tab(browser, tmp_path):
    state = tmp_path / "state"
    made = support.quern("key", "create", "--state-dir", state, "--name", "test").stdout.strip()
    with support.serving(state, "--model", "smollm2=echo") as server:
        tab = Tab(browser, server)
        for key in ("sk-wrong", made):
            tab.page.get_by_label("API key").fill(key)
            tab.page.get_by_role("button", name="Open").click()
            tab.sees("No batch yet" if key == made else "Incorrect API key")
        tab.page.reload()
        tab.sees("No batch yet")
        other = tab.context.new_page()
        other.goto(server.url.removesuffix("/v1"))
        expect(other.get_by_label("API key")).to_be_visible(timeout=PATIENCE_MS)
        tab.page.get_by_role("button", name="Forget the key").click()
        expect(tab.page.get_by_label("API key")).to_be_visible(timeout=PATIENCE_MS)
        assert not tab.troubles


def test_an_open_page_outlives_its_server(browser, tmp_path):
    with support.reserved_port() as port:
        arguments = (tmp_path / "state", "--model", "smollm2=echo", "--port", str(port))
        with support.serving(*arguments) as server:
            tab = Tab(browser, server)
            start(tab, file_of(tmp_path, ["one", "two"]))
            tab.sees("2 of 2 requests")
            tab.page.get_by_role("link", name="All batches").click()
            tab.sees("2 of 2")
            server.process.send_signal(signal.SIGKILL)
            server.process.wait()
            tab.sees("The server cannot be reached")
        with support.serving(*arguments):
            tab.sees("The server is there again")
            tab.sees("2 of 2")
        assert not tab.troubles


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 800, 1600])
def test_every_width_and_theme_shows_all(browser, server, tmp_path, width, theme):
    tab = Tab(browser, server, viewport={"width": width, "height": 800}, color_scheme=theme)
    start(tab, file_of(tmp_path, [json.dumps({"Empfehlung": "Donaudampfschifffahrtsgesellschaftskapitän" * 3, "Begründung": "gut"})] * 3))
    tab.sees("3 of 3 requests")
    for address in (tab.page.url, server.url.removesuffix("/v1") + "/"):
        tab.page.goto(address)
        tab.sees("people.jsonl")
        assert tab.page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), address
    assert not tab.troubles
