# SPDX-License-Identifier: Apache-2.0
"""The curation page in a real Chromium: 50 cards by keyboard alone, two curators at once, one name
in two tabs, answers lost on their way, a server that is killed and comes back, layouts of three
kinds of answers, hostile answers, the files that are made of judgements.

Whole flows judge answers of the small real model. The echo worker answers where a test needs known
answers: layouts of kinds of answers, values in which two runs differ, hostile ones."""
import contextlib, json, pathlib

import pytest
from playwright.sync_api import expect

import support
from test_playwright import CHROMIUM, HOSTILE, PATIENCE_MS, Tab
from test_playwright import browser, server  # noqa: F401 (fixtures)

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no Chromium is installed")
RATINGS = ["Strong Yes", "Yes", "Maybe", "No"]
EVALUATION = {
    "type": "object", "additionalProperties": False, "required": [
        "recommendation", "score", "reason"], "properties": {
            "recommendation": {"enum": RATINGS}, "score": {
                "type": "integer", "minimum": 0, "maximum": 100}, "reason": {
                    "type": "string", "maxLength": 40}}}
MAIL = {
    "type": "object", "required": ["subject", "body", "urgent", "recipients", "offer"],
    "properties": {
        "subject": {"type": "string", "maxLength": 40}, "body": {"type": "string"}, "urgent": {
            "type": "boolean"},
        "recipients": {"type": "array", "items": {"type": "string"}}, "offer": {
            "$ref": "#/$defs/offer"}, "follow_up_days": {"type": ["integer", "null"]}}, "$defs": {
                "offer": {
                    "type": "object", "properties": {
                        "price": {"type": "number", "minimum": 0}, "currency": {
                            "enum": ["EUR", "CHF"]}}, "required": ["price", "currency"]}}}
A_MAIL = {
    "subject": "Ihre Mütze", "body": "Sehr geehrte Frau Müller,\n\nsie kommt am Donnerstag.",
    "urgent": False, "recipients": ["mueller@example.org"], "offer": {
        "price": 12.5, "currency": "EUR"}, "follow_up_days": None}
REPORT = {
    "title": "Donaudampfschifffahrtsgesellschaftskapitän" * 3,
    "report": "Ein langer Absatz über die Mühle am Fluss. " * 80, "risks": [
        "Niedrigwasser", "Späte Ernte"], "confidence": 0.6}


def evaluation(number):
    return {"recommendation": RATINGS[number % 4], "score": number, "reason": f"reason {number}"}


def shaped(schema):
    return {
        "response_format": {
            "type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    } if schema else {}


def evaluated(server, count):
    """(batch, {custom_id: answer}) of evaluations by the real model."""
    requests = [
        support.request(
            f"c{number}",
            f"Candidate {number}: wrote C for {number % 12} years. Recommend or not, as JSON.",
            max_tokens=80,
            temperature=0.8,
            seed=number,
            **shaped(EVALUATION)) for number in range(count)]
    batch = server.wait(server.create(support.jsonl(requests))["id"], 1200)["id"]
    answers = {
        line["custom_id"]: json.loads(line["response"]["body"]["choices"][0]["message"]["content"])
        for line in server.results(server.batch(batch))[0]}
    assert len(answers) == count
    return batch, answers


def batch_of(server, answers, schema=None, name="people"):
    """A batch of the echo worker whose answers are these values."""
    texts = [
        answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
        for answer in answers]
    made = server.create(support.jsonl([
        support.request(f"c{number}", text, **shaped(schema))
        for number, text in enumerate(texts)]),
                         metadata={"name": name})
    return server.wait(made["id"])["id"]


def kept(server, batch, **query):
    """The judgements of a batch whose members have these values, oldest first."""
    return [
        judgement for judgement in server.judgements(batch)
        if all(judgement[name] == value for name, value in query.items())]


class Desk(Tab):
    """A tab in which one curator judges; only keys are pressed."""

    def __init__(self, browser, server, batch, curator="Ana", query="", **options):
        super().__init__(browser, server, f"/#/batch/{batch}/curate{query}", **options)
        self.keys = self.page.keyboard
        expect(self.page.get_by_label("Your name")).to_be_focused(timeout=PATIENCE_MS)
        self.keys.type(curator)
        self.keys.press("Enter")

    def on(self, custom_id):
        expect(self.page.locator("#card-title")).to_have_text(custom_id, timeout=PATIENCE_MS)

    def all_kept(self):
        expect(self.page.locator(".waits")).to_have_text("", timeout=PATIENCE_MS)

    def waits(self):
        expect(self.page.locator(".waits")).to_contain_text("not kept yet", timeout=PATIENCE_MS)

    def press(self, *keys):
        for key in keys:
            self.keys.press(key)


def test_fifty_cards_of_a_real_model_by_keyboard_alone(browser, real):
    batch, answers = evaluated(real, 50)
    desk, wanted = Desk(browser, real, batch), {}
    for number in range(50):
        name = f"c{number}"
        desk.on(name)
        turn = number % 5
        wanted[name] = {
            "verdict": "accepted", "flagged": False, "rating": None, "comment": None,
            "fields": None}
        if turn == 0:
            desk.press("a")
        elif turn == 1:
            desk.press("4", "f", "a")
            wanted[name] |= {"rating": 4, "flagged": True}
        elif turn == 2:
            desk.press("c", "2", "Control+a", "7", "3", "Control+Enter")
            changed = answers[name]["score"] != 73
            wanted[name] |= {"verdict": "corrected", "fields": {"score": 73}} if changed else {}
        elif turn == 3:
            desk.press("m")
            desk.keys.type("scaf bt1?")
            desk.press("Escape", "s")
            wanted[name] |= {"verdict": "skipped", "comment": "scaf bt1?"}
        else:
            desk.press("a")
            desk.on(f"c{number + 1}") if number < 49 else desk.sees("No further card")
            desk.press("b")
            desk.on(name)
            desk.press("c", "3", "Control+a")
            desk.keys.type(f"better {number}")
            desk.press("Control+Enter")
            wanted[name] |= {"verdict": "corrected", "fields": {"reason": f"better {number}"}}
    desk.sees("Judged 50 of 50")
    desk.all_kept()
    newest = {judgement["custom_id"]: judgement for judgement in kept(real, batch)}
    assert {
        name: {key: judgement[key]
               for key in wanted[name]}
        for name, judgement in newest.items()} == wanted
    assert [judgement["version"] for judgement in kept(real, batch, custom_id="c4")] == [1, 2]
    assert not desk.troubles


def test_two_curators_at_once_and_the_cards_on_which_they_disagree(browser, real):
    server, (batch, answers) = real, evaluated(real, 12)
    other = (answers["c5"]["score"] + 1) % 101
    ana, ben = Desk(browser, server, batch, "Ana"), Desk(browser,
                                                         server,
                                                         batch,
                                                         "Ben",
                                                         viewport={"width": 768, "height": 900})
    for number in range(12):
        for desk in (ana, ben):
            desk.on(f"c{number}")
            if desk is ben and number == 5:
                desk.press("c", "2", "Control+a", *str(other), "Control+Enter")
            else:
                desk.press("a")
    for desk in (ana, ben):
        desk.sees("Judged 12 of 12")
        desk.all_kept()
    assert {name: len(kept(server, batch, curator=name))
            for name in ("Ana", "Ben")} == {"Ana": 12, "Ben": 12}
    assert len({(judgement["custom_id"], judgement["curator"])
                for judgement in kept(server, batch)}) == 24
    third = Desk(browser, server, batch, "Cem", "?queue=curators_disagree")
    third.on("c5")
    third.sees("Judged 0 of 1")
    third.page.get_by_role("button", name="Judge like Ben").focus()
    third.press("Enter")
    third.sees("Judged 1 of 1")
    assert [judgement["fields"] for judgement in kept(server, batch, curator="Cem")] == [{
        "score": other}]
    for desk in (ana, ben, third):
        assert not desk.troubles


def test_one_name_in_two_tabs_shows_both_judgements_and_the_curator_chooses(browser, server):
    batch = batch_of(server, [evaluation(number) for number in range(3)], EVALUATION)
    one, two = Desk(browser, server, batch), Desk(browser, server, batch)
    for desk in (one, two):
        desk.on("c0")
    one.press("a", "a")
    one.on("c2")
    one.all_kept()
    two.press("s", "s")
    for name, button in (("c0", "Keep mine as the newer one"), ("c1", "Leave the kept one")):
        dispute = two.page.get_by_role("region", name=f"Judgement of {name}")
        expect(dispute).to_contain_text("skipped", timeout=PATIENCE_MS)
        expect(dispute).to_contain_text("accepted", timeout=PATIENCE_MS)
        two.has_no_violation()
        dispute.get_by_role("button", name=button).click()
    two.all_kept()
    assert [(judgement["custom_id"], judgement["verdict"], judgement["version"])
            for judgement in kept(server, batch)] == [("c0", "accepted", 1), ("c1", "accepted", 1),
                                                      ("c0", "skipped", 2)]
    assert not one.troubles and not two.troubles


def test_a_queue_whose_answers_are_being_read_says_how_far_that_is(browser, server):
    first, batch = (batch_of(server, [evaluation(number)
                                      for number in range(3)], EVALUATION)
                    for _ in range(2))
    desk = Desk(browser, server, first)
    desk.on("c0")
    unread = {
        "schema": {"schema": None, "indexed": 1}, "cards": {
            "object": "list", "data": [], "total": None, "left": None, "has_more": True,
            "after": None, "indexed": 2}}

    def answer(route):
        """Answers as a server that has not yet read a long batch."""
        part = route.request.url.partition("?")[0].rpartition("/")[2]
        if part not in unread:
            return route.continue_()
        return route.fulfill(json={"is_made": False, "lines": 4, **unread[part]})

    for part in list(unread):
        desk.page.route(f"**/{part}?*", answer)
    desk.page.evaluate(f"location.hash = '#/batch/{batch}/curate'")
    desk.sees("The answers are being read: 25")
    del unread["schema"]
    desk.sees("The answers are being read: 50")
    unread.clear()
    desk.on("c0")
    desk.press("a")
    desk.all_kept()
    assert len(kept(server, batch)) == 1 and not desk.troubles


def test_lost_answers_and_a_killed_server_lose_and_double_nothing(browser, small_model, tmp_path):
    with support.reserved_port() as port:
        arguments = (tmp_path / "state", "--model", small_model, "--port", str(port))
        with support.serving(*arguments) as server:
            batch, _ = evaluated(server, 20)
            desk, lost = Desk(browser, server, batch), []

            def lose(route):
                """The server has kept the judgement, and the page does not hear of it."""
                if route.request.method == "POST" and len(lost) < 4:
                    lost.append(route.fetch().status)
                    return route.abort()
                return route.continue_()

            desk.page.route("**/judgements?*", lose)
            for number in range(5):
                desk.on(f"c{number}")
                desk.press("a")
            desk.all_kept()
            assert lost == [200] * 4
            server.kill()
            for number in range(5, 9):
                desk.on(f"c{number}")
                desk.press("s")
            desk.waits()
            expect(desk.page.locator(".kept")).to_have_text("Kept: c4 accepted")
            desk.page.on("dialog", lambda dialog: (asked.append(dialog.type), dialog.dismiss()))
            asked = []
            desk.page.close(run_before_unload=True)
            support.until(lambda: desk.page.is_closed() or asked or desk.page.wait_for_timeout(20))
            assert asked == ["beforeunload"]
        with support.serving(*arguments) as server:
            desk.all_kept()
            desk.on("c9")
            desk.press("a")
            desk.all_kept()
            trail = kept(server, batch)
            assert [(judgement["custom_id"], judgement["verdict"], judgement["version"])
                    for judgement in trail] == [
                        (f"c{number}", "skipped" if 5 <= number < 9 else "accepted", 1)
                        for number in range(10)]
        assert not desk.troubles


def test_an_email_is_corrected_field_by_field(browser, server):
    batch = batch_of(server, [A_MAIL, A_MAIL, A_MAIL], MAIL)
    desk = Desk(browser, server, batch)
    desk.on("c0")
    expect(desk.page.locator(".answer .field .label").first).to_have_text("Subject",
                                                                          timeout=PATIENCE_MS)
    desk.press("c")
    desk.keys.insert_text("x" * 50)
    desk.press("Control+Enter")
    desk.sees("At most 40 characters")
    desk.press("Control+a")
    desk.keys.insert_text("Mütze")
    desk.press("Escape", "3", "Space")  # the switch
    desk.press("4", "Enter")
    desk.keys.insert_text("zweite@example.org")
    desk.press("Escape", "5", "Control+a")
    desk.keys.insert_text("-1")
    desk.press("Control+Enter")
    desk.sees("This is a number from 0")
    desk.press("Control+a", "9", "Tab", "ArrowRight", "Control+Enter")
    desk.on("c1")
    desk.press("c", "Escape", "6")
    desk.keys.insert_text("7")
    desk.press("Control+Enter")
    desk.on("c2")
    desk.press("c", "Control+Enter")  # nothing is changed: accepted
    desk.sees("Judged 3 of 3")
    desk.all_kept()
    assert [(judgement["verdict"], judgement["fields"]) for judgement in kept(server, batch)] == [
        ("corrected", {
            "subject": "Mütze", "urgent": True, "recipients": [
                "mueller@example.org", "zweite@example.org"], "offer": {
                    "price": 9, "currency": "CHF"}}), ("corrected", {"follow_up_days": 7}),
        ("accepted", None)]
    desk.press("b")
    desk.on("c2")
    desk.press("b")
    desk.on("c1")
    expect(desk.page.locator('[data-name="follow_up_days"]')).to_contain_text(
        "The model answered: none", timeout=PATIENCE_MS)
    desk.press("t")
    expect(desk.page.get_by_role("dialog")).to_contain_text("Follow up days", timeout=PATIENCE_MS)
    desk.has_no_violation()
    desk.press("a", "Escape")
    desk.on("c1")
    assert len(kept(server, batch)) == 3 and not desk.troubles


def test_an_answer_that_is_a_text_is_corrected_as_one(browser, server):
    batch = batch_of(server, [f"Hello\n{HOSTILE}", "Two"])
    desk = Desk(browser, server, batch)
    desk.on("c0")
    desk.sees("<script>document.title='taken'</script>")
    assert "taken" not in desk.page.title() and desk.page.locator(
        "main img, main script").count() == 0
    desk.press("a")
    desk.on("c1")
    desk.press("c", "End")
    desk.keys.insert_text(" and three")
    desk.press("Control+Enter")
    desk.sees("Judged 2 of 2")
    desk.all_kept()
    assert kept(server, batch, custom_id="c1")[0]["fields"] == {".text": "Two and three"}
    assert not desk.troubles


def test_where_another_run_disagrees_its_values_are_taken_with_one_key(browser, server):
    first = batch_of(server, [evaluation(number) for number in range(6)], EVALUATION)
    other = batch_of(
        server,
        [evaluation(number) | ({"score": 99} if number in (2, 4) else {})
         for number in range(6)], EVALUATION, "second run")
    desk = Desk(browser, server, first, query="?queue=runs_disagree")
    desk.sees("Choose the other run")
    desk.page.get_by_label("The other run").select_option(other)
    desk.on("c2")
    desk.sees("The other run answered: 99")
    desk.press("o")
    desk.on("c4")
    desk.press("a")
    desk.sees("Judged 2 of 2")
    desk.all_kept()
    assert [(judgement["custom_id"], judgement["verdict"], judgement["fields"])
            for judgement in kept(server, first)] == [("c2", "corrected", {"score": 99}),
                                                      ("c4", "accepted", None)]
    assert not desk.troubles


def test_a_held_key_judges_once_and_no_key_is_a_command_where_a_text_is_written(browser, server):
    batch = batch_of(server, [evaluation(number) for number in range(4)], EVALUATION)
    desk = Desk(browser, server, batch)
    desk.on("c0")
    for _ in range(4):
        desk.keys.down("a")  # all but the first are repeats
    desk.keys.up("a")
    desk.on("c1")
    desk.press("m")
    desk.keys.type("as fb1")
    desk.press("Escape", "?", "a", "s")
    expect(desk.page.get_by_role("dialog")).to_be_visible(timeout=PATIENCE_MS)
    desk.has_no_violation()
    desk.page.get_by_label("Single keys are commands").focus()
    desk.press("Space", "Escape", "a", "s")
    desk.on("c1")
    desk.all_kept()
    assert [judgement["custom_id"]
            for judgement in kept(server, batch)] == ["c0"] and not desk.troubles


def test_a_sample_is_the_same_for_every_curator(browser, server):
    batch = batch_of(server, [evaluation(number) for number in range(40)], EVALUATION)
    seen = []
    for curator in ("Ana", "Ben"):
        desk = Desk(browser, server, batch, curator, "?queue=sampled&size=5&seed=7")
        desk.sees("Judged 0 of 5")
        names = []
        for number in range(5):
            names.append(desk.page.locator("#card-title").inner_text(timeout=PATIENCE_MS))
            desk.press("a")
        desk.sees("Judged 5 of 5")
        desk.has_no_violation()
        assert not desk.troubles
        seen.append(names)
    assert seen[0] == seen[1] and len(set(seen[0])) == 5


def test_judgements_become_files(browser, server):
    batch = batch_of(server, [evaluation(number) for number in range(4)], EVALUATION)
    desk = Desk(browser, server, batch)
    for number in range(4):
        desk.on(f"c{number}")
        desk.press("a")
    desk.sees("Judged 4 of 4")
    desk.all_kept()
    expect(desk.page.get_by_role("button", name="Rows for quern calibrate")).to_be_hidden(
        timeout=PATIENCE_MS)  # the batch has no decisions
    for button in ("Judgements", "Few-shot examples", "Results for quern compare"):
        with desk.page.expect_download() as download:
            desk.page.get_by_role("button", name=button, exact=True).click()
        lines = [
            json.loads(line)
            for line in pathlib.Path(download.value.path()).read_text().splitlines()]
        assert len(lines) == 4, button
        if button == "Few-shot examples":
            assert json.loads(lines[0]["messages"][-1]["content"]) == evaluation(0)
    assert not desk.troubles


def test_decisions_become_rows_that_calibrate_reads(browser, real, tmp_path):
    questions = [{"type": "predicate", "name": "remote", "instructions": "Works remotely?"}, {
        "type": "choice", "name": "verdict", "instructions": "Hire?",
        "choices": [{"value": value} for value in ("HIRE", "MAYBE", "NO")]}]
    lines = [{
        "custom_id": f"d{number}", "method": "POST", "url": "/v1/decisions", "body": {
            "model": "smollm2", "input": f"Candidate {number} works from home.",
            "questions": questions}} for number in range(4)]
    made = real.json(
        "POST", "/v1/batches", {
            "input_file_id": real.upload(support.jsonl(lines))["id"], "endpoint": "/v1/decisions",
            "completion_window": "24h"})
    batch = real.wait(made["id"])
    desk = Desk(browser, real, batch["id"], query="?queue=uncertain")
    for number in range(4):
        desk.sees(f"Judged {number} of 4")
        desk.press("c", "Space", "Control+Enter")  # the other answer to the first question
        desk.all_kept()
    desk.sees("Judged 4 of 4")
    assert len(kept(real, batch["id"], verdict="corrected")) == 4
    with desk.page.expect_download() as download:
        desk.page.get_by_role("button", name="Rows for quern calibrate").click()
    answers = tmp_path / "answers.jsonl"
    answers.write_bytes(real.call("GET", f"/v1/files/{batch['output_file_id']}/content")[1])
    done = support.quern("calibrate", download.value.path(), "--answers", answers, "--json")
    assert done.returncode == 0, done.stderr
    assert "remote" in done.stdout and "verdict" in done.stdout and not desk.troubles


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_every_width_and_theme_shows_all(browser, server, width, theme):
    for answers, schema in (([evaluation(1)], EVALUATION), ([REPORT], None), ([
            A_MAIL | {"subject": REPORT["title"]}], MAIL)):
        desk = Desk(browser,
                    server,
                    batch_of(server, answers, schema),
                    viewport={"width": width, "height": 800},
                    color_scheme=theme)
        desk.on("c0")
        for key in ("3", "c"):
            desk.press(key)
            desk.has_no_violation()
            assert desk.is_narrow()
            cut = desk.page.evaluate(
                "[...document.querySelectorAll('.card :is(.label, .option, .prose, button)')].filter(node => node.scrollWidth > node.clientWidth + 1 && getComputedStyle(node).display !== 'inline').length"
            )
            assert cut == 0
        assert not desk.troubles
        with contextlib.suppress(Exception):
            desk.context.close()
