# SPDX-License-Identifier: Apache-2.0
"""The page of the machine and its keys in a real Chromium: models, waiting work and events; a first
key, a second one, its end; keys that may see a part only; three widths and both themes."""
import re

import pytest
from playwright.sync_api import expect

import support
from support import make_key
from test_playwright import CHROMIUM, PATIENCE_MS, Tab, file_of, start
from test_playwright import browser, server  # noqa: F401 (fixtures)

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no Chromium is installed")
MACHINE = "/#/machine"


def sign_in(tab, key):
    tab.page.get_by_label("API key").fill(key)
    tab.page.get_by_role("button", name="Open").click()


def row(tab, table, text):
    return tab.page.get_by_role("table", name=table,
                                exact=True).get_by_role("row").filter(has_text=text)


def test_models_waiting_work_and_events(browser, server, tmp_path):
    batch = server.create(
        support.jsonl([
            support.request(f"c-{number}", f"x {number}", echo={"hang": True})
            for number in range(7)]))["id"]
    tab = Tab(browser, server)
    tab.page.get_by_role("navigation").get_by_role("link", name="Machine").click()
    expect(tab.page.get_by_role("heading", name="Machine",
                                level=1)).to_be_visible(timeout=PATIENCE_MS)
    expect(row(tab, "Models", "smollm2")).to_contain_text("loaded", timeout=PATIENCE_MS)
    expect(row(tab, "Waiting work by model", "smollm2")).to_contain_text("7", timeout=PATIENCE_MS)
    expect(row(tab, "Waiting work by owner", "default")).to_contain_text("7", timeout=PATIENCE_MS)
    expect(row(tab, "Events", "smollm2 is loaded.")).to_be_visible(timeout=PATIENCE_MS)
    tab.sees("No card is in use")
    server.json("POST", f"/v1/batches/{batch}/cancel", {})
    tab.sees("No owner has an open batch.")
    assert not tab.troubles


def test_throughput_is_a_drawing_and_a_table(browser, tmp_path):
    clock = support.Clock(tmp_path)
    with support.serving(tmp_path / "state",
                         "--model",
                         "smollm2=echo",
                         environment=clock.environment) as server:
        server.wait(
            server.create(
                support.jsonl([
                    support.request(f"c-{number}", "x" * 50) for number in range(40)]))["id"])
        clock.until(
            lambda: sum(server.json("GET", "/v1/machine")["throughput"]["lines"]) == 40 and sum(
                server.json("GET", "/v1/machine")["throughput"]["tokens"]) > 0, 1)
        tab = Tab(browser, server, MACHINE)
        expect(tab.page.get_by_role(
            "img", name=re.compile("^Tokens: .* tokens per second now"))).to_be_visible(
                timeout=PATIENCE_MS)
        expect(tab.page.locator("svg.trend polygon").first).to_have_attribute("points",
                                                                              re.compile(r"\d"),
                                                                              timeout=PATIENCE_MS)
        tab.page.get_by_text("As a table").first.click()
        expect(tab.page.get_by_role("row").filter(has_text="0 to 5").first).to_be_visible(
            timeout=PATIENCE_MS)
        assert not tab.troubles


def test_a_first_key_a_second_one_and_its_end(browser, server):
    tab = Tab(browser, server, MACHINE)
    tab.sees("This server asks for no key yet")
    tab.page.get_by_text("New key").click()
    tab.page.get_by_label("Name", exact=True).fill("root")
    everything = tab.page.get_by_label("everything, and keys")
    expect(everything).to_be_checked(timeout=PATIENCE_MS)
    expect(everything).to_be_disabled()
    tab.page.get_by_role("button", name="Make the key").click()
    tab.sees("is shown only now")
    first = tab.page.locator("code.key-text").inner_text()
    expect(row(tab, "Keys", "root (this tab)")).to_be_visible(timeout=PATIENCE_MS)
    tab.page.get_by_role("navigation").get_by_role("link", name="Batches").click()
    expect(tab.page.get_by_role("heading", name="Batches")).to_be_visible(timeout=PATIENCE_MS)
    tab.page.get_by_role("navigation").get_by_role("link", name="Machine").click()
    expect(tab.page.locator("code.key-text")).to_have_text(first, timeout=PATIENCE_MS)
    tab.page.get_by_text("New key").click()
    expect(everything).to_be_enabled(timeout=PATIENCE_MS)
    expect(everything).not_to_be_checked()
    tab.page.get_by_text("New key").click()
    assert re.fullmatch(r"sk-[0-9a-z]{8}_[\w-]{43}", first) and server.call("GET",
                                                                            "/v1/files")[0] == 401
    tab.page.get_by_role("button", name="Hide it").click()
    expect(tab.page.locator("code.key-text")).to_have_count(0)
    expect(row(tab, "Keys", "root (this tab)")).to_contain_text("good", timeout=PATIENCE_MS)
    assert first not in tab.page.content()
    tab.page.reload()
    expect(row(tab, "Keys", "root (this tab)")).to_be_visible(timeout=PATIENCE_MS)
    tab.page.get_by_text("New key").click()
    tab.page.get_by_label("Name", exact=True).fill("<b>Ana</b>")
    tab.page.get_by_label("Owner", exact=True).fill("team-a")
    tab.page.get_by_label("Ends", exact=True).select_option(label="after 90 days")
    tab.page.get_by_text("Limits", exact=True).click()
    tab.page.get_by_label("Open batches", exact=True).fill("2")
    tab.page.get_by_role("button", name="Make the key").click()
    tab.sees("is shown only now")
    second = tab.page.locator("code.key-text").inner_text()
    made = row(tab, "Keys", "<b>Ana</b>")
    expect(made).to_contain_text("0 of 2 open batches", timeout=PATIENCE_MS)
    assert server.call("GET", "/v1/files", headers={"Authorization": f"Bearer {second}"})[0] == 200
    for answer, status in (("Keep it", 200), ("Revoke it", 401)):
        tab.page.get_by_role("button", name="Revoke <b>Ana</b>").click()
        tab.page.get_by_role("dialog").get_by_role("button", name=answer).click()
        expect(made).to_contain_text("revoked" if status == 401 else "good", timeout=PATIENCE_MS)
        assert server.call("GET", "/v1/files",
                           headers={"Authorization": f"Bearer {second}"})[0] == status
    tab.page.get_by_role("button", name="Forget the key").click()
    expect(tab.page.get_by_label("API key")).to_be_visible(timeout=PATIENCE_MS)
    assert first not in tab.page.content() and tab.page.evaluate(
        "JSON.stringify([sessionStorage, localStorage, document.cookie])") == '[{},{},""]'
    assert not tab.troubles


def test_a_new_key_stays_under_refusals_until_it_is_hidden(browser, server, tmp_path):
    """A tab whose own key loses its rights still shows the text of the key that it has made."""
    root = make_key(tmp_path / "state", "--scopes", "admin")
    support.until(lambda: server.call("GET", "/v1/keys")[0] == 401)
    tab = Tab(browser, server, MACHINE)
    sign_in(tab, root)
    tab.page.get_by_text("New key").click()
    tab.page.get_by_label("Name", exact=True).fill("second")
    tab.page.route("**/v1/keys", lambda route: route.fulfill(
        status=403, content_type="application/json",
        body='{"error": {"message": "No more.", "type": "x", "param": null, "code": null}}')
        if route.request.method == "GET" else route.continue_())
    tab.page.get_by_role("button", name="Make the key").click()
    tab.sees("No more.")
    expect(tab.page.locator("code.key-text")).to_be_visible(timeout=PATIENCE_MS)
    tab.page.get_by_role("button", name="Hide it").click()
    expect(tab.page.locator("code.key-text")).to_have_count(0)
    assert not tab.troubles


def test_the_audit_trail_names_who_did_what(browser, server, tmp_path):
    root = make_key(tmp_path / "state", "--scopes", "admin")
    support.until(lambda: server.call("GET", "/v1/keys")[0] == 401)
    owned = {"Authorization": f"Bearer {root}"}
    for number in range(3):
        assert server.call("POST", "/v1/keys", {"name": f"key {number}", "scopes": ["files"]},
                           headers=owned)[0] == 200
    tab = Tab(browser, server, "/#/audit")
    sign_in(tab, root)
    rows = tab.page.get_by_role("table", name="Audit trail").locator("tbody tr")
    expect(rows.first).to_be_visible(timeout=PATIENCE_MS)
    assert rows.count() >= 3
    expect(rows.first).to_contain_text(root[3:11])
    tab.has_no_violation()
    assert not tab.troubles


def test_a_refused_wish_says_what_is_wrong(browser, server):
    tab = Tab(browser, server, MACHINE)
    tab.page.get_by_text("New key").click()
    tab.page.get_by_label("Name", exact=True).fill("x")
    for box in ("files", "batches", "single requests"):
        tab.page.get_by_label(box, exact=True).uncheck()
    tab.page.get_by_role("button", name="Make the key").click()
    tab.sees("'scopes'")
    assert server.json("GET", "/v1/keys")["data"] == []


def test_each_key_sees_what_its_scopes_allow(browser, tmp_path):
    state = tmp_path / "state"
    keys = {
        scopes: make_key(state, "--scopes", scopes)
        for scopes in ("files,batches", "metrics", "admin")}
    with support.serving(state, "--model", "smollm2=echo") as server:
        for scopes, key in keys.items():
            tab = Tab(browser, server, MACHINE)
            sign_in(tab, key)
            if scopes == "files,batches":
                tab.sees("it lacks the scope 'metrics'")
            else:
                expect(row(tab, "Models", "smollm2")).to_be_visible(timeout=PATIENCE_MS)
            if scopes == "admin":
                expect(tab.page.get_by_role("table",
                                            name="Keys")).to_be_visible(timeout=PATIENCE_MS)
            else:
                tab.sees("it lacks the scope 'admin'")
                expect(tab.page.get_by_text("New key")).to_be_hidden()
            tab.page.get_by_role("link", name="Batches").click()
            tab.sees("it lacks the scope 'batches'" if scopes == "metrics" else "No batch yet")
            assert not tab.troubles
            tab.context.close()


def test_a_wrong_key_is_not_kept(browser, tmp_path):
    state = tmp_path / "state"
    make_key(state)
    with support.serving(state, "--model", "smollm2=echo") as server:
        tab = Tab(browser, server, MACHINE)
        for wrong, sentence in (("sk-wrong", "Incorrect API key"),
                                ("schlüssel €", "has no spaces and no letters")):
            sign_in(tab, wrong)
            tab.sees(sentence)
            assert tab.page.evaluate("sessionStorage.length") == 0
        assert not tab.troubles


def test_owners_see_their_own_work_only(browser, tmp_path):
    state = tmp_path / "state"
    keys = {
        name: make_key(state, "--owner", name, "--scopes", "files,batches,metrics")
        for name in ("alice", "bob")}
    with support.serving(state, "--model", "smollm2=echo") as server:
        tabs = {}
        for name, key in keys.items():
            tabs[name] = Tab(browser, server)
            sign_in(tabs[name], key)
        start(tabs["alice"], file_of(tmp_path, ["one"], "of-alice.jsonl"))
        tabs["alice"].sees("1 of 1 requests")
        address = tabs["alice"].page.url
        tabs["bob"].sees("No batch yet")
        tabs["bob"].page.goto(address)
        tabs["bob"].sees("No batch found")
        tabs["bob"].page.goto(server.site + MACHINE)
        expect(row(tabs["bob"], "Models", "smollm2")).to_be_visible(timeout=PATIENCE_MS)
        assert "alice" not in tabs["bob"].page.content()


def test_every_width_and_theme_shows_all(browser, tmp_path):
    state = tmp_path / "state"
    key = make_key(state, "--scopes", "admin,metrics", "--requests-per-minute", "100000",
                   "--stored-bytes-max", "1000000000", "--batches-max", "20", "--owner",
                   "Donaudampfschifffahrtsgesellschaftskapitaensmuetzenabzeichen")
    name = "ein-sehr-langer-name-eines-modells-ohne-jede-luecke-70b-instruct-awq"
    with support.serving(state, "--model", "smollm2=echo", "--upstream",
                         f"rechenzentrum=http://127.0.0.1:9,models={name}") as server:
        for width, theme in ((360, "light"), (768, "light"), (1280, "light"), (360, "dark"),
                             (1280, "dark")):
            tab = Tab(browser,
                      server,
                      MACHINE,
                      viewport={"width": width, "height": 800},
                      color_scheme=theme,
                      locale="de-DE")
            sign_in(tab, key)
            expect(row(tab, "Models", name)).to_be_visible(timeout=PATIENCE_MS)
            expect(tab.page.get_by_role("table", name="Keys")).to_be_visible(timeout=PATIENCE_MS)
            tab.page.get_by_text("New key").click()
            assert tab.is_narrow(), f"{width}: nothing is wider than the window"
            assert not tab.troubles
            tab.context.close()
