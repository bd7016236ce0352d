# SPDX-License-Identifier: Apache-2.0
"""The page of an evaluation in a real Chromium: the files of a folder that `quern evaluate` has left
are chosen and shown; differing lines next to each other; lines of a cascade and of the best K;
hostile names; nothing goes to the server."""
import json, pathlib, random, sys

import pytest
from playwright.sync_api import expect

import support
from test_playwright import CHROMIUM, HOSTILE, PATIENCE_MS, Tab
from test_playwright import browser  # noqa: F401 (a fixture)

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "api"))
from test_evaluate_cascade import Raters, chats, models
from test_evaluate_top_k import Rater
from test_evaluate_top_k import chats as rated_chats

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no Chromium is installed")


@pytest.fixture
def server(tmp_path):
    with support.serving(tmp_path / "state", "--model", "m=echo") as server:
        yield server


def rated(number):
    """A chat whose echo is a rating, in two answers of which both or one say the same."""
    return support.request(f"c{number}", json.dumps({"score": number % 10, "fit": "yes"}), n=2,
                           temperature=1)


def evaluated(tmp_path, lines, *arguments, name="out"):
    path = tmp_path / "in.jsonl"
    path.write_bytes(support.jsonl(lines))
    done = support.quern("evaluate", path, "-o", tmp_path / name, "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return tmp_path / name, json.loads(done.stdout)


def opened(browser, server, folder, *names, **options):
    tab = Tab(browser, server, "/#/evaluation", **options)
    tab.asked = []
    tab.page.on("request", lambda request: tab.asked.append((request.method, request.url)))
    expect(tab.page.locator("#evaluation-files")).to_be_attached(timeout=PATIENCE_MS)
    files = [folder / name for name in names] or sorted(
        path for path in folder.iterdir() if path.is_file())
    tab.page.set_input_files("#evaluation-files", files)
    return tab


def row(tab, section, name):
    """The row of a section's first table that begins with the name."""
    heading = tab.page.get_by_role("heading", name=section, exact=True)
    head = tab.page.get_by_role("rowheader", name=name, exact=True)
    return tab.page.locator("section", has=heading).locator("tr", has=head).first


def test_figures_and_differing_lines_next_to_each_other(browser, server, tmp_path):
    judged = tmp_path / "judged.jsonl"
    judged.write_text("".join(
        json.dumps({"custom_id": f"c{number}", "judgement": {"score": number % 10 + number % 2}}) +
        "\n" for number in range(12)))
    folder, said = evaluated(tmp_path, [rated(number) for number in range(12)], "--model", "a=echo",
                             "--model", "b=echo", "--compare-to", judged)
    tab = opened(browser, server, folder)
    tab.sees("Choice")
    expect(row(tab, "Models", "a")).to_contain_text("12")
    expect(row(tab, f"{judged} and a", "score")).to_contain_text("50")
    tab.page.get_by_role("button", name="c1", exact=True).first.click()
    dialog = tab.page.get_by_role("dialog")
    expect(dialog.get_by_role("row", name="score")).to_contain_text("differs")
    cells = dialog.get_by_role("row", name="score").get_by_role("cell").all_inner_texts()
    assert cells == ["2", "1"]
    expect(dialog).to_contain_text("user:")  # the request is there, too
    tab.has_no_violation()
    dialog.get_by_role("button", name="Close").click()
    tab.has_no_violation()
    assert not tab.cut_off() and not tab.troubles
    assert not [one for one in tab.asked if one[0] != "GET" or "/v1/files" in one[1]]


def test_which_line_went_to_which_model(browser, server, tmp_path):
    with Raters() as raters:
        folder, said = evaluated(tmp_path, chats(60), *models(raters, "small", "large"),
                                 "--cascade", "small,large", "--until", "0.8")
    late = said["cascade"]["models"][1]["answers"]
    ways = [json.loads(line) for line in (folder / "cascade.lines").read_text().splitlines()]
    first = next(way["custom_id"] for way in ways if way["model"] == "large")
    tab = opened(browser, server, folder)
    expect(row(tab, "Cascade", "large")).to_contain_text(f"{late}")
    tab.page.get_by_label("Lines by the model whose answer stands").select_option(
        label=f"Answered by large ({late})")
    expect(row(tab, "Cascade", first)).to_contain_text("sure) → large (")
    tab.page.get_by_role("button", name=first, exact=True).first.click()
    heads = tab.page.get_by_role("dialog").get_by_role("columnheader").all_inner_texts()
    assert heads == ["Field", "small", "large", "cascade"]
    assert not tab.troubles


def test_which_lines_were_stopped_early(browser, server, tmp_path):
    with Rater() as rater:
        folder, said = evaluated(tmp_path, rated_chats(random.Random(3), 140, 1), "--upstream",
                                 f"m={rater.url}", "--top-k", "2", "--by", "score")
    top = said["models"][0]["top_k"]
    assert top["left_out"] > 0
    tab = opened(browser, server, folder)
    tab.sees("The best 2 by score")
    choice = tab.page.get_by_label("Lines of m")
    choice.select_option(index=2)
    tab.sees(f"of {top['left_out']} lines")
    choice.select_option(index=0)
    tab.sees(f"of {top['whole']} lines")
    tab.page.get_by_role("button", name="Later").first.click()
    tab.sees(f"51 to {min(100, top['whole'])} of {top['whole']} lines")
    assert not tab.troubles


def test_settings_have_impact_saving_and_effort(browser, server, tmp_path):
    folder, said = evaluated(tmp_path, [rated(number) for number in range(4)], "--model", "a=echo",
                             "--tune", "--knob", "threads", "--tune-rounds", "1", "--tune-lines",
                             "2")
    tab = opened(browser, server, folder, "evaluation.json")
    expect(row(tab, "Settings of a", "--threads 1")).to_contain_text(
        said["tuning"]["settings"][0].get("effort", {"text": "Not measured"})["text"])
    assert not tab.troubles


def test_texts_of_models_are_text_and_other_files_are_refused(browser, server, tmp_path):
    lines = [rated(number) for number in range(3)]
    lines[1]["body"]["messages"][0]["content"] = HOSTILE
    lines[1]["custom_id"] = "<img src=x>"
    judged = tmp_path / "judged.jsonl"
    judged.write_text(json.dumps({"custom_id": "<img src=x>", "judgement": "none"}) + "\n")
    folder, _ = evaluated(tmp_path, lines, "--model", "a=echo", "--compare-to", judged)
    tab = opened(browser, server, folder, viewport={"width": 390, "height": 800})
    tab.page.get_by_role("button", name="<img src=x>", exact=True).first.click()
    expect(tab.page.get_by_role("dialog")).to_contain_text("<script>")
    assert tab.page.title() == "Evaluation of models – quern"
    tab.page.get_by_role("button", name="Close").click()
    assert tab.is_narrow() and not tab.cut_off()
    (tmp_path / "evaluation.json").write_text('{"models": []}')
    tab.page.set_input_files("#evaluation-files", tmp_path / "evaluation.json")
    tab.sees("is no report of quern evaluate")
    tab.page.set_input_files("#evaluation-files", tmp_path / "in.jsonl")
    tab.sees("evaluation.json is not among 1 file.")
    assert not tab.troubles
