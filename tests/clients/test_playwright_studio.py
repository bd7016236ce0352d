# SPDX-License-Identifier: Apache-2.0
"""The way of a batch to Label Studio and back in a real Chromium: sent and fetched by keyboard,
conflicts, trouble, a server that is killed under an open page, hostile texts, three widths and both
themes; the command, if the server knows no Label Studio."""
import json

import pytest
from playwright.sync_api import expect

import support
from label_studio_server import LEGACY, LabelStudio
from test_playwright import CHROMIUM, HOSTILE, PATIENCE_MS, Tab
from test_playwright import browser  # noqa: F401 (a fixture)

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no Chromium is installed")


@pytest.fixture
def studio():
    with LabelStudio() as studio:
        yield studio


@pytest.fixture
def server(tmp_path, studio):
    token = tmp_path / "token"
    token.write_text(LEGACY)
    token.chmod(0o600)
    with support.serving(tmp_path / "state", "--model", "m=echo", "--label-studio-url", studio.url,
                         "--label-studio-token-file", str(token)) as server:
        yield server


def batch_of(server, count=5):
    batch = server.create(
        support.jsonl([
            support.request(f"c{number}", f"answer {number}", "m")
            for number in range(count)]))["id"]
    server.wait(batch)
    return batch


def section(tab):
    return tab.page.get_by_role("region", name="Label Studio")


def shows(tab, text):
    expect(section(tab)).to_contain_text(text, timeout=PATIENCE_MS)


def button(tab, name):
    return section(tab).get_by_role("button", name=name)


def text(value):
    return {
        "from_name": "quern_field_1", "to_name": "quern_text", "type": "textarea", "value": {
            "text": [value]}}


def test_answers_go_and_annotations_come_by_keyboard(browser, server, studio):
    batch = batch_of(server)
    tab = Tab(browser, server, f"/#/batch/{batch}")
    shows(tab, "not there yet")
    expect(button(tab, "Fetch annotations")).to_be_hidden()
    button(tab, "Send the answers").focus()
    tab.page.keyboard.press("Enter")
    shows(tab, "5 of 5 answers in Label Studio")
    expect(section(tab).locator(".state")).to_have_text("done", timeout=PATIENCE_MS)
    link = section(tab).get_by_role("link", name="Project 1 in Label Studio")
    assert link.get_attribute(
        "href") == f"{studio.url}/projects/1/data" and "noopener" in link.get_attribute("rel")
    assert len(studio.tasks) == 5
    server.json("POST", f"/v1/batches/{batch}/judgements", {
        "custom_id": "c2", "id": "made-here-1", "version": 0, "curator": "Bo", "verdict": "accepted"
    })
    studio.annotate(3, [text(HOSTILE)])
    studio.annotate(4, [], cancelled=True)
    tab.page.keyboard.press("Tab")
    expect(button(tab, "Fetch annotations")).to_be_focused()
    tab.page.keyboard.press("Enter")
    shows(tab, "2 new judgements fetched")
    expect(button(tab, "Fetch annotations")).to_be_focused()
    section(tab).get_by_text("1 conflict: both opinions are kept").click()
    shows(tab, "c2: Bo on quern: as answered; ana@example.test in Label Studio")
    assert tab.page.locator(
        "main img, main script").count() == 0 and "taken" not in tab.page.title()
    tab.has_no_violation()
    tab.page.reload()
    shows(tab, "2 new judgements fetched")
    assert len(server.json("GET", f"/v1/batches/{batch}/judgements")["data"]) == 3
    assert not tab.troubles


def test_progress_a_kill_of_the_server_and_the_same_button_again(browser, server, studio):
    batch = batch_of(server, 1100)
    tab = Tab(browser, server, f"/#/batch/{batch}")
    shows(tab, "not there yet")
    studio.victim, studio.kills = server.process, [
        (studio.calls + 8, "after")]  # the second chunk of three is there
    button(tab, "Send the answers").click()
    support.until(lambda: studio.victim is None)
    server.arguments = [*server.arguments, "--port", str(server.port)]
    server.start()
    shows(tab, "interrupted: press again to go on")
    button(tab, "Send and fetch").click()
    expect(section(tab).locator(".state")).to_have_text("at work", timeout=PATIENCE_MS)
    expect(button(tab, "Send and fetch")).to_have_attribute("aria-disabled", "true")
    expect(section(tab).get_by_role("progressbar")).to_be_visible()
    expect(section(tab).locator(".state")).to_have_text("done", timeout=PATIENCE_MS)
    shows(tab, "1,100 of 1,100 answers in Label Studio")
    assert sorted(studio.custom_ids()) == sorted(f"c{number}" for number in range(1100)) and len(
        studio.projects) == 1
    assert not tab.troubles


def test_trouble_is_one_sentence_as_text(browser, server, studio):
    batch = batch_of(server)
    tab = Tab(browser, server, f"/#/batch/{batch}")
    shows(tab, "not there yet")
    real = studio.call
    studio.call = lambda method, path, query, body: (400, {
        "detail": HOSTILE}) if "validate" in path else real(method, path, query, body)
    button(tab, "Send the answers").click()
    expect(section(tab).locator(".state")).to_have_text("failed", timeout=PATIENCE_MS)
    expect(section(tab).locator(".trouble")).to_contain_text(
        "<script>document.title='taken'</script>", timeout=PATIENCE_MS)
    assert tab.page.locator("main img, main script").count() == 0 and "\u202e" not in section(
        tab).inner_text()
    studio.call = real
    button(tab, "Send the answers").click()
    shows(tab, "5 of 5 answers in Label Studio")
    expect(section(tab).locator(".trouble")).to_be_hidden()
    assert not tab.troubles


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 800, 1400])
def test_each_width_and_theme(browser, server, studio, width, theme):
    batch = batch_of(server)
    tab = Tab(browser,
              server,
              f"/#/batch/{batch}",
              viewport={"width": width, "height": 900},
              color_scheme=theme)
    button(tab, "Send the answers").click()
    shows(tab, "5 of 5 answers in Label Studio")
    assert tab.is_narrow()
    tab.has_no_violation()


def test_without_a_label_studio_the_page_tells_the_command(browser, tmp_path):
    with support.serving(tmp_path / "state", "--model", "m=echo") as server:
        batch = batch_of(server)
        tab = Tab(browser, server, f"/#/batch/{batch}", viewport={"width": 360, "height": 900})
        shows(
            tab,
            f"quern label-studio sync {batch} --base-url {server.site}/v1 --label-studio-url URL")
        assert section(tab).get_by_role("button").count() == 0 and tab.is_narrow()
        tab.has_no_violation()
        assert not tab.troubles
