# SPDX-License-Identifier: Apache-2.0
"""The pages in a real Chromium, driven by Playwright: a file becomes a batch and its results are
saved; answers by filter, order and search; keys; hostile answers and hostile origins; a server that
is killed and comes back under an open page; three widths and both themes; axe.

Whole flows run with the small real model and short answers. The echo worker answers where a test
needs known answers (hostile ones, counted ones for filters, very long ones) and where no answer
matters."""
import contextlib, http.server, importlib.resources, json, pathlib, re, shutil, threading

import pytest
from playwright.sync_api import expect, sync_playwright

import support

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which(
    "google-chrome")
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no Chromium is installed")
PATIENCE_MS = 120_000
AXE = (importlib.resources.files("axe_playwright_python") /
       "axe.min.js").read_text(encoding="utf-8")
HOSTILE = "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\"> \u202eright to left\u202c \u0007"
# The places that a reader cannot read: a page or a list that is wider than its place, a box with a
# cut text, a word of 20 letters or less that is broken.
CUT_OFF = """() => {
  const found = [], range = document.createRange();
  const top = document.querySelector("dialog[open]") ?? document.body;
  const words = document.createTreeWalker(top, NodeFilter.SHOW_TEXT);
  const unread = "[hidden], details:not([open]) > :not(summary), .skip, .hidden, " +
    "pre, code, .file, textarea, option";
  for (let node = words.nextNode(); node; node = words.nextNode()) {
    const parent = node.parentElement;
    if (parent.closest(unread) || !parent.getClientRects().length) continue;
    for (const {0: word, index} of node.data.matchAll(/(?<![\\p{L}\\d_])\\p{L}{2,20}(?![\\p{L}\\d_])/gu)) {
      range.setStart(node, index);
      range.setEnd(node, index + word.length);
      const lines = new Set([...range.getClientRects()].map(box => Math.round(box.top)));
      if (lines.size > 1) found.push(`${word} is broken`);
    }
  }
  const list = document.querySelector(".scroll:has(table.batches)"), page = document.documentElement;
  if (list?.scrollWidth > list?.clientWidth) found.push("the list is wider than its place");
  if (page.scrollWidth > page.clientWidth) found.push(`the page is ${page.scrollWidth} wide`);
  for (const node of document.querySelectorAll("main *, header *, dialog *")) {
    if (node.closest(".scroll, pre, svg, .skip, .hidden, .file, thead, textarea")) continue;
    if (!node.getClientRects().length || getComputedStyle(node).display === "inline") continue;
    if (/^(SELECT|INPUT|PROGRESS|METER)$/.test(node.tagName)) continue;
    if (node.scrollWidth > node.clientWidth + 1 && node.clientWidth > 1)
      found.push(`${node.tagName}.${node.className}: ${node.textContent.slice(0, 60)}`);
  }
  return found;
}"""


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
    """A page of its own; `troubles` are its errors and breaches of the policy, which no test
    wants."""

    def __init__(self, browser, server, path="/", **options):
        self.context = browser.new_context(accept_downloads=True, **options)
        self.context.set_default_timeout(PATIENCE_MS)
        self.page, self.troubles = self.context.new_page(), []
        self.page.add_init_script("delete window.showSaveFilePicker"
                                  )  # a dialog of the system, which no program can answer
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on(
            "console", lambda message: self.troubles.append(message.text)
            if "Content Security Policy" in message.text else None)
        self.page.goto(server.site + path)

    def sees(self, text):
        expect(self.page.get_by_text(text).first).to_be_visible(timeout=PATIENCE_MS)

    def is_narrow(self):
        """Whether nothing is wider than the window."""
        return self.page.evaluate(
            "document.documentElement.scrollWidth <= document.documentElement.clientWidth")

    def cut_off(self):
        return self.page.evaluate(CUT_OFF)

    def has_no_violation(self):
        """axe's rules on what is shown now, WCAG 2.2 and best practices."""
        self.page.evaluate(AXE)
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        assert not [(rule["id"], node["html"][:200], node["failureSummary"])
                    for rule in found
                    for node in rule["nodes"]]

    def custom_ids(self):
        return self.page.locator("table.results tbody th").all_inner_texts()

    def column(self, title):
        """The texts of a column of answers."""
        at = [
            re.sub(" [▲▼]$", "", head)
            for head in self.page.locator("table.results thead th").all_inner_texts()].index(title)
        return self.page.locator(f"table.results tbody tr > :nth-child({at + 1})").all_inner_texts()

    def has_rows(self, number):
        expect(self.page.locator("table.results tbody tr")).to_have_count(number,
                                                                          timeout=PATIENCE_MS)


def file_of(folder, answers, name="people.jsonl"):
    path = folder / name
    path.write_bytes(
        support.jsonl([
            support.request(f"c{number}", answer) | {"url": "/v1/chat/completions"}
            for number, answer in enumerate(answers)]))
    return path


VERDICTS = ["Strong Yes", "Yes", "Maybe", "No"]
VERDICT = {
    "type": "object", "additionalProperties": False, "required": ["recommendation", "score"],
    "properties": {
        "recommendation": {"enum": VERDICTS}, "score": {
            "type": "integer", "minimum": 0, "maximum": 100}}}


def candidates(folder, count, name="candidates.jsonl"):
    """A file of questions to a real model, which have short answers."""
    path, shape = folder / name, {
        "type": "json_schema", "json_schema": {"name": "verdict", "schema": VERDICT}}
    path.write_bytes(
        support.jsonl([
            support.request(
                f"c{number}",
                f"Candidate {number} wrote C for {number % 12} years. Recommend or not, as JSON.",
                max_tokens=32,
                temperature=0.8,
                seed=number,
                response_format=shape) for number in range(count)]))
    return path


def judged(lines):
    """{custom_id: answer} of saved results, each of which is a verdict."""
    found = {}
    for line in map(json.loads, lines):
        answer = json.loads(line["response"]["body"]["choices"][0]["message"]["content"])
        assert answer["recommendation"] in VERDICTS and 0 <= answer["score"] <= 100 and line[
            "custom_id"] not in found
        found[line["custom_id"]] = answer
    return found


def start(tab, path):
    tab.page.set_input_files("#file", path)
    tab.page.get_by_role("button", name="Start the batch").click()
    expect(tab.page.get_by_role("heading", name=path.name)).to_be_visible(timeout=PATIENCE_MS)


@pytest.fixture
def small(small_model, tmp_path):
    """A server of its own for one test, with the small real model."""
    with support.serving(tmp_path / "state", "--model", small_model) as server:
        yield server


def saved(tab, button="Download results"):
    """The lines of the file that a button saves."""
    with tab.page.expect_download() as download:
        tab.page.get_by_role("button", name=button).click()
    return pathlib.Path(download.value.path()).read_text().splitlines()


def test_from_a_file_to_saved_results(browser, small, tmp_path):
    tab = Tab(browser, small)
    tab.sees("No batch yet")
    tab.page.set_input_files("#file", candidates(tmp_path, 60))
    tab.sees("Lengths of prompts")
    tab.page.get_by_label("Name", exact=True).fill("Backend role")
    tab.page.get_by_label("Metadata (name").fill("team = hiring")
    tab.page.get_by_role("button", name="Start the batch").click()
    expect(tab.page.get_by_role("heading", name="Backend role")).to_be_visible(timeout=PATIENCE_MS)
    tab.sees("60 of 60 requests")
    tab.sees("hiring")
    batch = tab.page.url.rpartition("/")[2]
    support.until(lambda: small.json("GET", f"/v1/batches/{batch}/answers/fields")["indexed"] == 60)
    tab.page.reload()  # a full page of the time when the batch ran stays under the reader's eyes
    tab.has_rows(50)
    seen = tab.custom_ids()
    tab.page.get_by_role("link", name="Show later answers").click()
    tab.has_rows(10)
    assert "page=2" in tab.page.url
    tab.page.go_back()
    tab.has_rows(50)
    tab.page.go_forward()
    tab.has_rows(10)
    assert seen + tab.custom_ids() == [f"c{number}" for number in range(60)]
    answers = judged(saved(tab))
    assert list(answers) == [f"c{number}" for number in range(60)]
    first = answers["c0"]["recommendation"]
    tab.page.locator(".chart").get_by_role("link", name=first, exact=True).click()
    tab.sees(
        f"of {sum(answer['recommendation'] == first for answer in answers.values())} that match")
    tab.page.get_by_role("link", name="All batches").click()
    tab.sees("60 of 60")
    assert not tab.troubles


def test_a_broken_file_names_its_lines_once_and_does_not_start(browser, server, tmp_path):
    path = tmp_path / "broken.jsonl"
    good = file_of(tmp_path, ["one"]).read_bytes()
    path.write_bytes(good + good + b"{no JSON\n")
    tab = Tab(browser, server)
    tab.page.set_input_files("#file", path)
    tab.sees("Line 3:")
    expect(tab.page.locator(".look .trouble").filter(has_text=re.compile(r"^Line \d"))).to_have_count(2)
    tab.sees("2 lines cannot run as a request")
    assert tab.page.get_by_text("more such line").count() == 0
    expect(tab.page.get_by_role("button", name="Start the batch")).to_be_disabled()
    tab.page.set_input_files("#file", file_of(tmp_path, ["one"]))
    start_button = tab.page.get_by_role("button", name="Start the batch")
    expect(start_button).to_be_enabled(timeout=PATIENCE_MS)
    assert not tab.troubles


@pytest.mark.parametrize("name, contents, sentence", [
    ("empty.jsonl", b"", "empty.jsonl is empty."), ("blank.jsonl", b"\n\n", "only blank lines"),
    ("notes.txt", b"Dear all,\nhello\n", "its first line is not JSON")])
def test_a_file_that_is_none_of_requests_is_refused_before_it_is_sent(browser, server, tmp_path,
                                                                      name, contents, sentence):
    (tmp_path / name).write_bytes(contents)
    tab = Tab(browser, server)
    tab.page.set_input_files("#file", tmp_path / name)
    tab.sees(sentence)
    assert tab.page.get_by_role("button", name="Go on").count() == 0
    assert server.json("GET", "/v1/files")["data"] == []
    assert not tab.troubles


def test_a_table_with_a_template_becomes_a_batch(browser, server, tmp_path):
    path = tmp_path / "people.csv"
    path.write_text('id;name;notes\n7;"Ana; B";"says ""hi"""\n8;Chloé;\n9;Dan;{name}\n')
    tab = Tab(browser, server)
    tab.page.set_input_files("#file", path)
    tab.page.get_by_role("button", name="notes", exact=True).wait_for(timeout=PATIENCE_MS)
    expect(tab.page.get_by_label("Separator")).to_have_value(";")
    tab.page.get_by_label("Prompt of each row").fill("Rate {name} with {score}: ")
    tab.page.get_by_role("button", name="notes", exact=True).click()
    tab.sees('Rate Ana; B with {score}: says "hi"')
    tab.sees("No column of the table: {score}")
    tab.page.get_by_text("More", exact=True).click()
    tab.page.get_by_label("Id of a request").select_option("id")
    tab.page.get_by_label("Instructions").fill("Be brief.")
    tab.page.get_by_label("Tokens of an answer").fill("5")
    tab.page.get_by_label("JSON schema").fill("{")
    tab.sees("The JSON schema is not JSON")
    expect(tab.page.get_by_role("button", name="Make the requests")).to_be_disabled()
    tab.page.get_by_label("JSON schema").fill("")
    tab.page.get_by_role("button", name="Make the requests").click()
    tab.page.get_by_role("button", name="Start the batch").click()
    expect(tab.page.get_by_role("heading", name="people.csv")).to_be_visible(timeout=PATIENCE_MS)
    tab.sees("3 of 3 requests")
    batch = server.json("GET", "/v1/batches")["data"][0]
    lines = [
        json.loads(line)
        for line in server.call("GET", f"/v1/files/{batch['input_file_id']}/content")[1].splitlines()]
    assert [line["custom_id"] for line in lines] == ["7", "8", "9"]
    assert lines[0]["row"] == {"id": "7", "name": "Ana; B", "notes": 'says "hi"'}
    assert [line["body"]["messages"][1]["content"] for line in lines] == [
        'Rate Ana; B with {score}: says "hi"', "Rate Chloé with {score}: ",
        "Rate Dan with {score}: {name}"]
    assert lines[1]["row"]["notes"] is None and lines[1]["body"]["max_tokens"] == 5
    assert not tab.troubles


def test_batches_are_found_by_name_and_state_and_the_address_keeps_it(browser, server, tmp_path):
    for number in range(60):
        server.create(
            support.jsonl([support.request("a", "x")]), **({
                "metadata": {"name": f"Intake {number}"}} if number % 2 else {}))
    tab = Tab(browser, server)
    listed = lambda: tab.page.locator("table.batches tbody tr td:first-child a").all_inner_texts()
    rows = tab.page.locator("table.batches tbody tr")
    expect(rows).to_have_count(50, timeout=PATIENCE_MS)
    expect(tab.page.get_by_role("link", name="in.jsonl").first).to_be_visible(timeout=PATIENCE_MS)
    first = listed()
    tab.page.get_by_role("link", name="Older batches").click()
    expect(rows).to_have_count(10, timeout=PATIENCE_MS)
    tab.sees("Page 2")
    named = {name for name in listed() if name.startswith("Intake")}
    assert "page=2" in tab.page.url and len(named) == 5 and not named & set(first)
    tab.page.reload()
    expect(rows).to_have_count(10, timeout=PATIENCE_MS)
    tab.page.go_back()
    expect(rows).to_have_count(50, timeout=PATIENCE_MS)
    tab.page.get_by_label("Search by name").fill("intake 5")
    tab.page.keyboard.press("Enter")
    expect(rows).to_have_count(6, timeout=PATIENCE_MS)
    assert listed() == [f"Intake {number}" for number in (59, 57, 55, 53, 51, 5)]
    tab.page.get_by_role("button", name="Delete Intake 59").click()
    tab.page.get_by_role("dialog").get_by_role("button", name="Keep it").click()
    tab.page.get_by_role("button", name="Delete Intake 57").click()
    tab.page.get_by_role("dialog").get_by_role("button", name="Delete it").click()
    expect(rows).to_have_count(5, timeout=PATIENCE_MS)
    tab.page.get_by_label("State").select_option("failed")
    tab.sees("No batch matches")
    tab.page.go_back()
    expect(rows).to_have_count(5, timeout=PATIENCE_MS)
    tab.has_no_violation()
    assert not tab.troubles


def test_a_conversation_is_a_transcript_and_the_answer_comes_first_on_a_phone(browser, server):
    call = {
        "id": "call_1", "type": "function", "function": {
            "name": "weather", "arguments": '{"city":"Köln"}'}}
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Rain?"}, {
        "role": "assistant", "content": None, "reasoning_content": "I must look.", "tool_calls": [
            call]}, {"role": "tool", "tool_call_id": "call_1", "content": '{"rain": true}'},
                {"role": "user", "content": "So?"}]
    made = server.create(
        support.jsonl([{
            "custom_id": "talk", "method": "POST", "url": "/v1/chat/completions", "body": {
                "model": "smollm2", "messages": messages}}]))
    server.wait(made["id"])
    tab = Tab(browser, server, f"/#/batch/{made['id']}?line=1",
              viewport={"width": 390, "height": 844})
    dialog = tab.page.get_by_role("dialog")
    for text in ("Instructions", "Calls weather", "Result of weather", "Rain?", "So?"):
        expect(dialog.get_by_text(text).first).to_be_visible(timeout=PATIENCE_MS)
    assert dialog.get_by_text("I must look.").count() == 0
    dialog.get_by_text("Reasoning").click()
    expect(dialog.get_by_text("I must look.")).to_be_visible(timeout=PATIENCE_MS)
    asked, answered = (dialog.get_by_role("region", name=name).bounding_box()
                       for name in ("Asked", "Answered"))
    assert answered["y"] < asked["y"]
    tab.has_no_violation()
    assert not tab.troubles


def test_hostile_answers_are_text(browser, server, tmp_path):
    tab = Tab(browser, server)
    start(
        tab,
        file_of(tmp_path,
                [HOSTILE, json.dumps({"field<b>": HOSTILE, "long": "x" * 100_000})],
                "<img src=x onerror=alert(1)>.jsonl"))
    tab.sees("2 of 2 requests")
    tab.sees("<script>document.title='taken'</script>")
    expect(tab.page.get_by_role("heading", name="field<b>")).to_be_visible(timeout=PATIENCE_MS)
    assert "taken" not in tab.page.title() and tab.page.locator(
        "main img, main script, main b").count() == 0
    assert "\u202e" not in tab.page.locator("main").inner_text() and "U+202E" in tab.page.locator(
        "main").inner_text()
    tab.page.get_by_role("button", name="all 100,000 characters").click()
    assert not tab.troubles


def ask_of_model(tab, server, action, text):
    """Loads or unloads the model on the page of the machine, until its row has the text."""
    tab.page.goto(f"{server.site}/#/machine")
    tab.page.get_by_role("button", name=f"{action} smollm2", exact=True).click()
    expect(
        tab.page.get_by_role(
            "table", name="Models").get_by_role("row").filter(has_text="smollm2")).to_contain_text(
                text, timeout=PATIENCE_MS)


def test_a_batch_is_paused_resumed_cancelled_and_run_again(browser, small, tmp_path):
    """Its lines wait while the model is unloaded, so that none of them ends before it is
    cancelled."""
    tab = Tab(browser, small)
    ask_of_model(tab, small, "Unload", "unloaded by an administrator")
    tab.page.goto(f"{small.site}/#/")
    start(tab, candidates(tmp_path, 20))
    first = tab.page.url
    for button, word in (("Pause", "paused"), ("Resume", "in progress"), ("Cancel", "cancelled")):
        tab.page.get_by_role("button", name=button).click()
        expect(tab.page.locator("main > .state")).to_have_text(word, timeout=PATIENCE_MS)
    assert {json.loads(line)["error"]["code"]
            for line in saved(tab, "Download errors")} == {"batch_cancelled"}
    ask_of_model(tab, small, "Load", "loaded")
    tab.page.goto(first)
    tab.page.get_by_role("button", name="Run the failed lines again").click()
    tab.page.wait_for_url(lambda url: url != first)
    tab.sees("20 of 20 requests")
    expect(tab.page.locator("main > .state")).to_have_text("completed", timeout=PATIENCE_MS)
    assert set(judged(saved(tab))) == {f"c{number}" for number in range(20)}
    assert not tab.troubles


def test_a_key_is_asked_for_and_kept_in_the_tab(browser, tmp_path):
    state = tmp_path / "state"
    made = support.make_key(state)
    with support.serving(state, "--model", "smollm2=echo") as server:
        tab = Tab(browser, server)
        for key in ("sk-wrong", made):
            tab.page.get_by_label("API key").fill(key)
            tab.page.get_by_role("button", name="Open").click()
            tab.sees("No batch yet" if key == made else "Incorrect API key")
        tab.page.reload()
        tab.sees("No batch yet")
        other = tab.context.new_page()
        other.goto(server.site)
        expect(other.get_by_label("API key")).to_be_visible(timeout=PATIENCE_MS)
        tab.page.get_by_role("button", name="Forget the key").click()
        expect(tab.page.get_by_label("API key")).to_be_visible(timeout=PATIENCE_MS)
        assert not tab.troubles


def test_an_open_page_outlives_its_server(browser, small_model, tmp_path):
    """The server is killed while the batch runs, and runs the rest of it when it is back."""
    with support.reserved_port() as port:
        arguments = (tmp_path / "state", "--model", small_model, "--port", str(port),
                     "--max-num-seqs", "2")
        with support.serving(*arguments) as server:
            tab, overview = Tab(browser, server), Tab(browser, server)
            start(tab, candidates(tmp_path, 40))
            expect(tab.page.locator("p.counts")).to_have_text(re.compile("^[1-9]"),
                                                              timeout=PATIENCE_MS)
            server.kill()
            for page in (tab, overview):
                page.sees("The server cannot be reached")
        with support.serving(*arguments) as server:
            tab.sees("The server is there again")
            for page in (tab, overview):
                page.sees("40 of 40")
            tab.has_rows(40)
            assert set(judged(saved(tab))) == {f"c{number}"
                                               for number in range(40)} == set(tab.custom_ids())
        assert not tab.troubles and not overview.troubles


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 800, 1600])
def test_every_width_and_theme_shows_all(browser, tmp_path, width, theme):
    prices = ("--watts", "65", "--price-per-kwh", "0.3", "--input-price", "0.15", "--output-price",
              "0.6", "--currency", "EUR")
    with support.serving(tmp_path / "state", "--model", "smollm2=echo", *prices) as server:
        tab = Tab(browser, server, viewport={"width": width, "height": 800}, color_scheme=theme)
        start(
            tab,
            file_of(tmp_path, [
                json.dumps({
                    "Empfehlung": "Donaudampfschifffahrtsgesellschaftskapitän" * 3,
                    "Begründung": "gut"})] * 3))
        tab.sees("3 of 3 requests")
        for address in (tab.page.url, server.site + "/"):
            tab.page.goto(address)
            tab.sees("people.jsonl")
            tab.sees("at a managed API")
            assert tab.is_narrow() and not tab.cut_off(), address
        assert not tab.troubles


ANSWERS = [{
    "recommendation": ["HIRE", "MAYBE", "NO"][number % 3], "score": number % 100,
    "Begründung": f"Grund {number}"} for number in range(180)]


@pytest.fixture(scope="module")
def answered(browser, tmp_path_factory):
    """(server, address of a finished batch of ANSWERS); line 181 is a text."""
    folder = tmp_path_factory.mktemp("answered")
    with support.serving(folder / "state", "--model", "smollm2=echo") as server:
        tab = Tab(browser, server)
        start(
            tab,
            file_of(folder, [json.dumps(answer, ensure_ascii=False)
                             for answer in ANSWERS] + ["a plain text"]))
        tab.sees("181 of 181 requests")
        path = tab.page.url.removeprefix(server.site)
        tab.context.close()
        yield server, path


def test_answers_are_filtered_sorted_and_searched_and_the_address_keeps_it(browser, answered):
    tab = Tab(browser, *answered)
    tab.has_rows(50)
    tab.page.locator(".chart").get_by_role("link", name="HIRE").click()
    tab.sees("1 to 50 of 60 that match")
    assert set(tab.column("recommendation")) == {"HIRE"}
    head = tab.page.locator("table.results thead").get_by_role("link", name="score")
    head.click()
    expect(tab.page.locator("th[aria-sort=ascending]")).to_contain_text("score",
                                                                        timeout=PATIENCE_MS)
    expect(tab.page.locator("table.results tbody tr").first).to_contain_text("HIRE",
                                                                             timeout=PATIENCE_MS)
    hired = sorted(answer["score"] for answer in ANSWERS if answer["recommendation"] == "HIRE")
    assert tab.column("score") == [str(score) for score in hired[:50]]
    tab.page.get_by_role("link", name="later answers").click()
    tab.has_rows(10)
    assert tab.column("score") == [str(score) for score in hired[50:]]
    tab.page.get_by_role("link", name="earlier answers").click()
    tab.has_rows(50)
    head.click()
    expect(tab.page.locator("th[aria-sort=descending]")).to_contain_text("score",
                                                                         timeout=PATIENCE_MS)
    tab.page.get_by_label("Field").select_option("score")
    tab.page.get_by_label("Comparison").select_option("ge")
    tab.page.get_by_label("Value").fill("90")
    tab.page.get_by_role("button", name="Add filter").click()
    wanted = sorted((score for score in hired if score >= 90), reverse=True)
    tab.has_rows(len(wanted))
    assert tab.column("score") == [str(score) for score in wanted]
    other = Tab(browser, answered[0], tab.page.url.removeprefix(answered[0].site))
    for shown in (tab, other):
        shown.page.reload()
        shown.has_rows(len(wanted))
        assert shown.column("score") == [str(score) for score in wanted]
    tab.page.get_by_role("link", name="Remove all").click()
    tab.has_rows(50)
    tab.page.get_by_role("searchbox").fill("GRUND 17")
    tab.page.get_by_role("button", name="Search").click()
    tab.has_rows(11)  # 17 and 170 to 179
    tab.page.go_back()
    tab.has_rows(50)
    assert not tab.troubles and not other.troubles


def test_a_filtered_view_is_saved_as_csv(browser, answered):
    server, path = answered
    tab = Tab(browser, server, f"{path}?filter=recommendation%3Aeq%3AHIRE&sort=score")
    tab.sees("1 to 50 of 60 that match")
    rows = saved(tab, "Save these answers as CSV")
    hired = sorted(answer["score"] for answer in ANSWERS if answer["recommendation"] == "HIRE")
    at = rows[0].removeprefix("\ufeff").split(",").index("score")
    assert len(rows) == 61 and [row.split(",")[at] for row in rows[1:]] == [
        str(score) for score in hired]
    bars = tab.page.locator(".chart").filter(has_text="recommendation").locator(".values li")
    expect(bars.filter(has_text="HIRE").first).to_contain_text("60, 33.1%")
    assert not tab.troubles


def test_a_histogram_is_a_filter_and_columns_are_chosen(browser, answered):
    tab = Tab(browser, *answered)
    tab.has_rows(50)
    tab.page.get_by_role("toolbar", name="score:").get_by_role("link").last.click()
    tab.sees("that match")
    assert all(94 <= int(score) <= 99 for score in tab.column("score"))
    tab.page.get_by_text("Columns").click()
    tab.page.get_by_role("checkbox", name="recommendation").uncheck()
    expect(
        tab.page.locator("table.results thead th").filter(has_text="recommendation")).to_have_count(
            0, timeout=PATIENCE_MS)
    tab.page.reload()
    tab.sees("that match")
    assert "recommendation" not in tab.page.locator("table.results thead").inner_text()
    assert not tab.troubles


def test_a_histogram_is_a_filter_by_keyboard_alone(browser, answered):
    tab = Tab(browser, *answered)
    tab.has_rows(50)
    chart = tab.page.get_by_role("region", name="score", exact=True)
    bars, axis = chart.get_by_role("link"), chart.locator(".axis")
    number = bars.count()
    assert number > 2 and bars.evaluate_all(
        "links => links.filter(link => link.tabIndex === 0).length") == 1
    tab.page.locator(".chart").get_by_role("link", name="NO", exact=True).focus()
    tab.page.keyboard.press("Tab")  # one stop of the Tab key per histogram
    expect(bars.first).to_be_focused(timeout=PATIENCE_MS)
    for key, at in (("ArrowLeft", 0), ("ArrowRight", 1), ("End", number - 1),
                    ("ArrowRight", number - 1), ("Home", 0), ("ArrowRight", 1)):
        tab.page.keyboard.press(key)
        expect(bars.nth(at)).to_be_focused(timeout=PATIENCE_MS)
    name = bars.nth(1).get_attribute("aria-label")
    expect(axis).to_contain_text(name)
    tab.has_no_violation()
    low, high, lines = map(float, re.fullmatch(r"([\d.]+) to ([\d.]+): (\d+), .*", name).groups())
    tab.page.keyboard.press("Enter")
    tab.sees(f"of {int(lines)} that match")
    assert sorted(map(int, tab.column("score"))) == sorted(
        answer["score"] for answer in ANSWERS if low <= answer["score"] < high)
    expect(bars.nth(1)).to_be_focused(
        timeout=PATIENCE_MS)  # drawn again, and the focus is where it was
    assert bars.nth(1).get_attribute("aria-current") == "true" and bars.nth(1).evaluate(
        "link => link.tabIndex") == 0
    tab.has_no_violation()
    tab.page.keyboard.press("ArrowRight")
    tab.page.keyboard.press("Enter")  # another bar takes its place
    expect(
        tab.page.get_by_role("list", name="Filters").get_by_role(
            "link", name="Remove the filter score")).to_have_count(2, timeout=PATIENCE_MS)
    expect(bars.nth(1)).not_to_have_attribute("aria-current", "true", timeout=PATIENCE_MS)
    tab.page.keyboard.press("Enter")  # once more: no filter
    tab.has_rows(50)
    assert "filter=" not in tab.page.url and not tab.troubles


def test_a_line_opens_with_its_request_and_by_keyboard_alone(browser, answered):
    tab = Tab(browser, *answered)
    tab.has_rows(50)
    tab.page.get_by_role("link", name="c3", exact=True).focus()
    tab.page.keyboard.press("Enter")
    dialog = tab.page.get_by_role("dialog")
    expect(dialog.get_by_role("heading", name="c3")).to_be_visible(timeout=PATIENCE_MS)
    expect(dialog.get_by_role("region", name="Asked")).to_contain_text("User")
    expect(dialog.get_by_role("region", name="Answered")).to_contain_text("Grund 3")
    dialog.get_by_text("The request as sent").press("Enter")
    expect(dialog.locator("pre")).to_contain_text('"custom_id": "c3"')
    tab.page.reload()
    expect(dialog.get_by_role("heading", name="c3")).to_be_visible(timeout=PATIENCE_MS)
    dialog.get_by_role("link", name="Later").press("Enter")
    expect(dialog.get_by_role("heading", name="c4")).to_be_visible(timeout=PATIENCE_MS)
    tab.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0, timeout=PATIENCE_MS)
    tab.has_rows(50)
    assert "line=" not in tab.page.url and not tab.troubles


def test_a_field_of_ten_megabytes_is_cut_and_shown(browser, server, tmp_path):
    tab = Tab(browser, server)
    start(tab, file_of(tmp_path, [json.dumps({"large": HOSTILE + "x" * 10_000_000, "small": 1})]))
    tab.sees("1 of 1 requests")
    tab.has_rows(1)
    assert len(tab.page.locator("main").inner_text()) < 10_000
    tab.page.get_by_role("link", name="c0", exact=True).click()
    expect(tab.page.get_by_role("region", name="Answered")).to_contain_text("characters",
                                                                            timeout=PATIENCE_MS)
    assert tab.page.get_by_role("dialog").locator("img, script").count() == 0
    assert not tab.troubles


def test_an_upload_goes_on_where_it_was_stopped(browser, server, tmp_path):
    tab = Tab(browser, server)
    path = file_of(tmp_path, ["x" * 1_000_000] * 18)  # in two parts
    sent, failures = [], []

    def part(route):
        sent.append(route.request.url)
        if len(sent) > 1 and len(failures) < 2:
            failures.append(route.abort())
        else:
            route.continue_()
    tab.page.route("**/parts", part)
    tab.page.set_input_files("#file", path)
    support.until(lambda: tab.page.wait_for_timeout(100) or len(failures) > 0)
    tab.page.reload()
    tab.page.set_input_files("#file", path)
    tab.page.get_by_role("button", name="Start the batch").click()
    tab.sees("18 of 18 requests")
    assert len(sent) == 2 + len(failures) and len(set(sent)) == 1  # no part twice, one upload
    assert not tab.troubles


@contextlib.contextmanager
def elsewhere(page):
    """A server of another origin, with one page."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *_):
            pass
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{other.server_port}/elsewhere"
        other.shutdown()


def test_a_page_of_another_origin_can_do_nothing(browser, server):
    base = server.site
    before = server.json("GET", "/v1/files"), server.json("GET", "/v1/batches")
    with elsewhere(f"""<iframe id=frame src="{base}/"></iframe><iframe name=answers></iframe>
        <form id=plain method=post enctype=text/plain target=answers action="{base}/v1/batches">
        <input name='{{"input_file_id":"x","a":"' value='"}}'></form>
        <form id=multi method=post enctype=multipart/form-data target=answers
              action="{base}/v1/files"><input name=purpose value=batch>
        <textarea name=file>{{}}</textarea></form>""") as url:
        page = browser.new_context().new_page()
        page.goto(url)
        tries = page.evaluate(
            """async base => {
            const outcome = (path, options) =>
                fetch(base + path, options).then(answer => answer.text(), () => "refused");
            const file = new FormData();
            file.append("purpose", "batch");
            file.append("file", new Blob(["{}"]), "x.jsonl");
            const headers = {"Content-Type": "application/json"};
            return Promise.all([outcome("/v1/batches"), outcome("/"), outcome("/pages/app.js"),
                outcome("/v1/files", {method: "POST", body: file}),
                outcome("/v1/batches", {method: "POST", headers, body: "{}"}),
                outcome("/v1/files", {method: "POST", body: file, mode: "no-cors"})]);
        }""", base)
        assert tries[:5] == ["refused"] * 5 and tries[5] in ("refused", "")
        for form in ("plain", "multi"):
            with page.expect_response(lambda answer: answer.request.method == "POST") as answer:
                page.evaluate(f"document.getElementById('{form}').submit()")
            assert answer.value.status in (403, 415)
        assert page.frames[1].url.startswith(
            "chrome-error:") or "quern" not in page.frames[1].content()
    assert (server.json("GET", "/v1/files"), server.json("GET", "/v1/batches")) == before


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_violation(browser, answered, tmp_path, theme):
    server, path = answered
    tab = Tab(browser, server, color_scheme=theme)
    tab.sees("people.jsonl")
    tab.has_no_violation()
    tab.page.set_input_files("#file", file_of(tmp_path, ["one", "two"]))
    tab.sees("Lengths of prompts")
    tab.has_no_violation()
    tab.page.get_by_role("button", name="Start the batch").click()
    tab.sees("2 of 2 requests")
    tab.has_no_violation()
    tab.page.goto(server.site + path + "?filter=recommendation:eq:HIRE&sort=-score&q=Grund")
    tab.sees("that match")
    tab.page.get_by_text("Columns").click()
    tab.has_no_violation()
    tab.page.get_by_role("link", name="c99", exact=True).click()
    tab.page.get_by_text("The request as sent").click()
    tab.has_no_violation()
    tab.page.goto(server.site + "/#/batch/batch_00000000000000000000000000000000")
    tab.sees("All batches")
    tab.has_no_violation()
    assert not tab.troubles
