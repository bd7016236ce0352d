#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures of every page, of a real server, at three widths and in both themes.

    build/clients/playwright/bin/python tests/clients/pictures.py OUT [--only NAME,NAME] [--docs]

The server runs the small real model, and sends its evaluations of candidates to an upstream on this
machine, which gives plausible answers at a pace that shows a running batch; the small model's own
evaluations read like nonsense. Time is moved (support.Clock), so that the machine's page has an
hour. Each picture is OUT/NAME-WIDTH-THEME.png, of the whole page; --docs writes those that the
documentation shows to docs/pictures, in at most 256 colours. A text that is cut off in a box, or a
page wider than its window, is printed at the end, and the exit status is 1."""
import argparse, contextlib, hashlib, http.server, io, json, pathlib, random, sys, tempfile
import threading, time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "tests/clients")]
import support
from PIL import Image
from playwright.sync_api import sync_playwright
from test_playwright import CHROMIUM, CUT_OFF, PATIENCE_MS

WIDTHS = {390: 844, 820: 1180, 1440: 900}  # for a phone, a tablet and a desk, with their heights
THEMES = ("light", "dark")
COLOURS = 256
MODEL = "evaluator-8b"
CUT_SEED = 13  # for a line whose answer ends too early
SHORTLIST, RUNNING, GERMAN_NAME = "Backend, senior shortlist", "Backend, autumn intake", "Bewerbungen für die Donaudampfschifffahrtsgesellschaft"
RATINGS = ["Strong Yes", "Yes", "Maybe", "No"]
STRENGTHS = [
    "Distributed systems", "Ownership of a payments ledger", "Mentoring", "Incident response",
    "Data modelling", "Clear writing", "Python", "Rust", "Hiring"]
GAPS = [
    "no evidence of leading a team", "few results in numbers", "no production Go",
    "the last role ended early", "the profile does not say what was owned"]
EVALUATION = {
    "type": "object", "additionalProperties": False, "required": [
        "reasoning", "score", "seniority", "years", "is_software_engineer", "strengths", "gap",
        "recommendation"], "properties": {
            "reasoning": {"type": "string", "maxLength": 400}, "score": {
                "type": "integer", "minimum": 0, "maximum": 100}, "seniority": {
                    "enum": ["junior", "mid", "senior", "staff"]}, "years": {
                        "type": "integer", "minimum": 0, "maximum": 40},
            "is_software_engineer": {"type": "boolean"}, "strengths": {
                "type": "array", "items": {"type": "string"}}, "gap": {
                    "type": "string", "maxLength": 80}, "recommendation": {"enum": RATINGS}}}
GERMAN = {
    "type": "object", "additionalProperties": False, "required": [
        "Empfehlung", "Gesamtpunktzahl", "Führungsverantwortung",
        "Gehaltsvorstellungsübereinstimmung", "Begründung der Personalentscheidung"],
    "properties": {
        "Empfehlung": {"enum": [
            "Einstellungsempfehlung", "Rückstellungsempfehlung", "Ablehnung"]}, "Gesamtpunktzahl": {
                "type": "integer", "minimum": 0, "maximum": 100}, "Führungsverantwortung": {
                    "type": "boolean"}, "Gehaltsvorstellungsübereinstimmung": {
                        "enum": ["vollständig", "eingeschränkt", "unvereinbar"]},
        "Begründung der Personalentscheidung": {"type": "string", "maxLength": 400}}}


def drawn(text):
    """A random generator seeded by the text, so that the same page shows the same figures."""
    return random.Random(hashlib.sha256(text.encode()).digest())


def evaluation(profile):
    """A plausible evaluation of a candidate's profile."""
    chance, lines = drawn(profile), [
        line[2:] for line in profile.splitlines() if line.startswith("- ")]
    score = max(0, min(100, round(chance.gauss(45 + 1.5 * min(len(lines), 14), 15))))
    years = int(profile.split(" years of experience")[0].rpartition(" ")
                [2]) if " years of experience" in profile else 5
    quoted = chance.choice(lines or ["no projects"]).rstrip(".")
    verdict = RATINGS[0 if score >= 86 else 1 if score >= 70 else 2 if score >= 50 else 3]
    how = {
        "Strong Yes": "The evidence is strong and concrete", "Yes": "The evidence is good",
        "Maybe": "The evidence is mixed", "No": "The evidence is thin"}[verdict]
    return {
        "reasoning": f"{how}: the profile names “{quoted}”, and its roles {chance.choice(['grow in scope', 'stay at one level', 'change direction twice'])}.",
        "score": score, "seniority": ["junior", "mid", "senior", "staff"][min(3, years // 6)],
        "years": years, "is_software_engineer": "Engineer" in profile.split(",")[0]
        or "Developer" in profile.split(",")[0], "strengths": chance.sample(
            STRENGTHS, chance.randrange(1,
                                        4)), "gap": chance.choice(GAPS), "recommendation": verdict}


def german(profile):
    chance = drawn(profile)
    return {
        "Empfehlung": chance.choice(GERMAN["properties"]["Empfehlung"]["enum"]),
        "Gesamtpunktzahl": chance.randrange(20, 100), "Führungsverantwortung": chance.random()
        < 0.4, "Gehaltsvorstellungsübereinstimmung": chance.choice([
            "vollständig", "eingeschränkt", "unvereinbar"]),
        "Begründung der Personalentscheidung": "Die Qualifikationsanforderungen der Stellenausschreibung sind überwiegend erfüllt; Weiterbildungsbereitschaft und Kommunikationsfähigkeit "
        "überzeugen, die Personalführungsverantwortung bleibt unbelegt."}


class Evaluator(http.server.ThreadingHTTPServer):
    """An upstream that answers only as many requests as the script allows."""
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answers)
        self.given = threading.Semaphore(0)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer({"status": "ok"} if self.path == "/health" else {
            "object": "list", "data": [{
                "id": MODEL, "object": "model", "created": 1700000000, "max_model_len": 32768}]})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        profile, system = asked["messages"][-1]["content"], asked["messages"][0]["content"]
        self.server.given.acquire()
        if asked.get("seed") == CUT_SEED:
            return self.reply(asked, system + profile, '{"reasoning": "The profile', "length")
        self.reply(
            asked, system + profile,
            json.dumps(german(profile) if "Stellenausschreibung" in system else evaluation(profile),
                       ensure_ascii=False), "stop")

    def reply(self, asked, prompt, text, finish):
        rng = drawn(prompt)
        words = [{
            "token": word + " ", "logprob": -rng.random()**6, "bytes": None, "top_logprobs": []}
                 for word in text.split()] if asked.get("logprobs") else None
        tokens, shared = len(prompt) // 4, len(asked["messages"][0]["content"]) // 4
        self.answer({
            "id": "chatcmpl-1", "object": "chat.completion", "created": int(time.time()),
            "model": MODEL, "choices": [{
                "index": 0, "message": {"role": "assistant", "content": text}, "logprobs": words
                and {"content": words}, "finish_reason": finish}], "usage": {
                    "prompt_tokens": tokens, "completion_tokens": len(text) // 4,
                    "total_tokens": tokens + len(text) // 4, "prompt_tokens_details": {
                        "cached_tokens": shared // 16 * 16}}})

    def answer(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def lines_of(count, role, schema=EVALUATION, cut=(), model=MODEL, **body):
    """Lines that ask for evaluations, with profiles of examples/candidates-100.jsonl."""
    profiles = [
        json.loads(line)["body"]["messages"][1]["content"]
        for line in (ROOT / "examples/candidates-100.jsonl").read_text().splitlines()]
    shape = {
        "type": "json_schema", "json_schema": {
            "name": "evaluation", "strict": True, "schema": schema}}
    for number in range(count):
        profile = profiles[number % len(profiles)].replace(
            "Candidate ", f"Candidate {number // len(profiles) or ''}", 1)
        messages = [{
            "role": "system",
            "content": f"You are an experienced technical recruiter. {role} Answer with a single JSON object."
        }, {"role": "user", "content": profile}]
        yield {
            "custom_id": f"candidate-{number + 1:04}", "method": "POST",
            "url": "/v1/chat/completions", "body": {
                "model": model, "messages": messages, "max_tokens": 400,
                "seed": CUT_SEED if number in cut else 1, "response_format": shape, **body}}


class Scene:
    """A server with the data of all pictures."""

    def __init__(self, folder, server, evaluator, clock, keys):
        self.folder, self.server, self.evaluator = folder, server, evaluator
        self.clock, self.keys = clock, keys
        self.batches, self.is_over = {}, False

    def call(self, method, path, body=None, key="root"):
        status, data = self.server.call(method,
                                        path,
                                        body,
                                        headers={"Authorization": f"Bearer {self.keys[key]}"})
        assert status == 200, (path, data[:300])
        return json.loads(data)

    def create(self, name, lines, key="root", **extra):
        owned = type(
            "Owned", (), {
                "call": lambda own, method, path, body=None, kind="application/json": self.server.
                call(method, path, body, kind, {"Authorization": f"Bearer {self.keys[key]}"}),
                "upload": support.Server.upload})()
        file = owned.upload(support.jsonl(list(lines)),
                            filename=name.lower().replace(" ", "-") + ".jsonl")
        made = self.call(
            "POST", "/v1/batches", {
                "input_file_id": file["id"], "endpoint": "/v1/chat/completions",
                "completion_window": "24h", "metadata": {"name": name}, **extra}, key)
        self.batches[name] = made["id"]
        return made["id"]

    def ended(self, batch, key="root"):
        support.until(
            lambda: self.call("GET", f"/v1/batches/{batch}", key=key)["status"] in support.TERMINAL)

    def judge(self, batch, curators):
        """Judgements of people on lines of a batch: two on the first 20, the third on the next
        30."""
        rows = self.call("GET", f"/v1/batches/{batch}/cards?curator=Nobody&limit=50")["data"]
        for curator in curators:
            for number, row in enumerate(rows[20:] if curator == "Cem" else rows[:20]):
                body = {
                    "id": hashlib.md5(f"{curator}{number}".encode()).hexdigest(),
                    "custom_id": row["custom_id"], "curator": curator, "verdict": "accepted",
                    "version": 0}
                if number % 6 == (2 if curator == "Ana" else 4):
                    body |= {"verdict": "corrected", "fields": {"score": 41}}
                self.call("POST", f"/v1/batches/{batch}/judgements", body)

    def make(self):
        backend, sales = "Role: backend engineer for a payments ledger; must know Go or Rust and SQL.", "Role: product analyst; must know SQL and experiments."
        for count, seconds, name in ((240, 540, "Backend, March intake"), (90, 260,
                                                                           "Product analysts"),
                                     (150, 380, "Backend, April intake"), (60, 200,
                                                                           "Platform team, senior"),
                                     (180, 600, "Data engineers, Zurich")):
            self.run(
                seconds, name,
                lines_of(count,
                         sales if "analyst" in name else backend,
                         cut=(7, 31, 52) if "Data" in name else ()),
                **({"quality_limits": {"truncated": 0.01, "min_lines": 20}}
                   if "Data" in name else {}))
            self.clock.move(150)
        for action, kind in (("unload", "model_unloaded"), ("load", "model_loaded")):
            self.call("POST", f"/v1/machine/models/smollm2/{action}")
            self.clock.until(lambda: self.call("GET", "/v1/machine")["events"][0]["kind"] == kind,
                             1)
        self.run(90, "Interns, first round", lines_of(24, sales), key="mara")
        self.run(240,
                 GERMAN_NAME,
                 lines_of(80, "Prüfe die Stellenausschreibung.", GERMAN),
                 metadata={
                     "name": GERMAN_NAME,
                     "Fachabteilungsleitung": "Rechtsschutzversicherungsangelegenheiten"})
        self.run(300, SHORTLIST, lines_of(120, backend, logprobs=True, top_logprobs=0))
        self.judge(self.batches[SHORTLIST], ("Ana", "Ben", "Cem"))
        self.create(RUNNING,
                    lines_of(1200, backend),
                    metadata={"name": RUNNING, "team": "payments", "requested by": "Mara"},
                    priority=2)
        self.release(self.batches[RUNNING], 520, 880)
        self.create("Support agents, pilot", lines_of(50, sales), key="mara")
        threading.Thread(target=self.go_on, daemon=True).start()

    def run(self, seconds, name, lines, key="root", **extra):
        lines = list(lines)
        self.release(self.create(name, lines, key, **extra), len(lines), seconds, key)
        self.ended(self.batches[name], key)

    def release(self, batch, lines, seconds, key="root"):
        """Lets lines of a batch end one after another within `seconds` of the server's clock."""
        steps = seconds // 10
        for step in range(steps):
            wanted = lines * (step + 1) // steps
            for _ in range(lines * step // steps, wanted):
                self.evaluator.given.release()
            support.until(lambda: self.call("GET", f"/v1/batches/{batch}", key=key)[
                "request_counts"]["completed"] >= wanted)
            self.clock.move(10)

    def go_on(self):
        """Lets the running batch make progress while a page shows it."""
        while not self.is_over:
            self.evaluator.given.release()
            time.sleep(1.5)


# --- the pages ---

def opened(page, scene, path, key="root"):
    page.goto(f"{scene.server.site}/#/")
    page.evaluate("key => sessionStorage.setItem('quern-key', key)", scene.keys[key])
    page.evaluate("sessionStorage.setItem('quern-curator', 'Cem')")
    page.goto("about:blank")
    page.goto(f"{scene.server.site}/{path}")


def sees(page, text):
    page.get_by_text(text).first.wait_for(timeout=PATIENCE_MS)


def sign_in(page, scene):
    page.goto(f"{scene.server.site}/")
    sees(page, "This server asks for a key")


def overview(page, scene):
    opened(page, scene, "#/")
    sees(page, "per second")


def new_batch(page, scene):
    opened(page, scene, "#/")
    sees(page, "Backend, March intake")
    path = scene.folder / "winter-intake.jsonl"
    path.write_bytes(
        support.jsonl(list(lines_of(100, "Role: backend engineer.", model="smollm2",
                                    max_tokens=16))))
    page.set_input_files("#file", path)
    sees(page, "Lengths of prompts")
    page.get_by_role("button", name="Run 48 requests").click()
    page.get_by_text("Tokens out", exact=True).first.wait_for(timeout=5 * PATIENCE_MS)
    page.get_by_label("Name", exact=True).fill("Backend, winter intake")
    page.get_by_label("Metadata (name").fill("team = payments\nrequested by = Mara")


def at_batch(name, query="", text="How the answers are spread"):
    def show(page, scene):
        opened(page, scene, f"#/batch/{scene.batches[name]}{query}")
        sees(page, text)
        page.locator("table.results tbody tr").first.wait_for(timeout=PATIENCE_MS)
    return show


def line(page, scene):
    opened(page, scene, f"#/batch/{scene.batches[SHORTLIST]}?line=3")
    page.get_by_role("region", name="Answered").wait_for(timeout=PATIENCE_MS)


def at_card(name, *keys, query="", to=None):
    def show(page, scene):
        opened(page, scene, f"#/batch/{scene.batches[name]}/curate{query}")
        page.locator("article.card").wait_for(timeout=PATIENCE_MS)
        for key in keys:
            page.keyboard.press(key)
        if to:
            page.locator(to).first.scroll_into_view_if_needed()
    return show


def machine(page, scene):
    opened(page, scene, "#/machine")
    sees(page, "Running since")
    page.get_by_role("table", name="Keys").wait_for(timeout=PATIENCE_MS)


def keys(page, scene):
    machine(page, scene)
    page.get_by_text("New key").click()
    page.get_by_text("Limits", exact=True).click()
    page.get_by_label("Name", exact=True).fill("Nightly evaluation")
    page.get_by_label("Owner", exact=True).fill("hiring")


PAGES = {
    "sign-in": sign_in, "batches": overview, "new-batch": new_batch, "batch": at_batch(
        RUNNING, text="per second"), "results": at_batch(
            SHORTLIST, "?filter=recommendation:eq:Yes&sort=-score",
            "that match"), "line": line, "card": at_card(SHORTLIST, query="?queue=uncertain"),
    "correction": at_card(SHORTLIST, "c", query="?queue=uncertain"), "disagreement": at_card(
        SHORTLIST, query="?queue=curators_disagree", to=".card .others"), "machine": machine,
    "keys": keys, "german": at_batch(GERMAN_NAME), "german-card": at_card(GERMAN_NAME)}
WINDOW = {"line", "card", "correction", "disagreement",
          "german-card"}  # pictures of the window alone: a dialog, or actions that stay at its end
PARTS = {"keys": "section[aria-labelledby='keys-title']"}
MARGIN = 16
SLOW = {"new-batch"}  # opened once, for all widths: a sample of the file runs
LONGEST = {390: 2400, 820: 2000, 1440: 1600}  # picture heights; a table of 50 answers goes on below
DOCS = {
    "sign-in": ["390-light"], "batches": ["1440-light", "390-dark"], "new-batch": ["820-light"],
    "batch": ["1440-dark"], "results": ["1440-light", "390-dark"], "line": ["1440-light"], "card": [
        "1440-light"], "correction": ["1440-light"], "disagreement": ["1440-light"], "machine": [
            "1440-light"], "keys": ["820-light"]}
def shrunk(png):
    """The picture with a palette: a third of the bytes, and no difference to the eye on flat
    colours."""
    out = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(COLOURS,
                                                        method=Image.Quantize.MEDIANCUT,
                                                        dither=Image.Dither.NONE).save(
                                                            out, "PNG", optimize=True)
    return out.getvalue()


def shoot(page, name, width, theme, out, docs):
    """Takes one picture; returns the texts that are cut off on it."""
    if name in WINDOW:
        png = page.screenshot()
    elif name in PARTS:
        box = page.locator(PARTS[name]).bounding_box()
        png = page.screenshot(full_page=True,
                              clip={
                                  "x": 0, "y": box["y"] - MARGIN + page.evaluate("scrollY"),
                                  "width": width, "height": box["height"] + 2 * MARGIN})
    else:
        height = min(page.evaluate("document.documentElement.scrollHeight"), LONGEST[width])
        png = page.screenshot(full_page=True,
                              clip={"x": 0, "y": 0, "width": width, "height": height})
    (out / f"{name}-{width}-{theme}.png").write_bytes(png)
    if docs and f"{width}-{theme}" in DOCS.get(name, ()):
        (ROOT / "docs/pictures" / f"{name}-{width}-{theme}.png").write_bytes(shrunk(png))
    return [f"{name} at {width}: {text}"
            for text in page.evaluate(CUT_OFF)] if theme == "light" else []


def take(browser, scene, name, out, docs):
    cut, page = [], None
    for width, height in WIDTHS.items():
        for theme in THEMES:
            if not page or name not in SLOW:
                page = browser.new_context(viewport={"width": width, "height": height},
                                           color_scheme=theme,
                                           locale="en-GB").new_page()
                page.set_default_timeout(PATIENCE_MS)
                PAGES[name](page, scene)
            page.set_viewport_size({"width": width, "height": height})
            page.emulate_media(color_scheme=theme)
            cut += shoot(page, name, width, theme, out, docs)
            if name not in SLOW:
                page.context.close()
    return cut


def key_of(state, name, *arguments):
    done = support.quern("key", "create", "--state-dir", state, "--name", name, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@contextlib.contextmanager
def staged(folder):
    clock, evaluator = support.Clock(folder), Evaluator()
    state = folder / "state"
    keys = {
        "root": key_of(state, "Platform team", "--scopes", "admin,files,batches,infer,metrics"),
        "mara": key_of(state, "Mara, nightly jobs", "--owner", "hiring", "--requests-per-minute",
                       "600", "--batches-max", "20", "--stored-bytes-max", "50000000000",
                       "--expires", "90d")}
    arguments = ("--model", "smollm2", "--upstream",
                 f"rack=http://127.0.0.1:{evaluator.server_port},models={MODEL}", "--watts", "65",
                 "--price-per-kwh", "0.30", "--input-price", "0.15", "--output-price", "0.60",
                 "--batch-discount", "0.5", "--currency", "EUR")
    with support.serving(state, *arguments, environment=clock.environment) as server:
        scene = Scene(folder, server, evaluator, clock, keys)
        scene.make()
        yield scene
        scene.is_over = True
        evaluator.given.release(10_000)
    evaluator.shutdown()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--only", help="names of pages, separated by commas")
    parser.add_argument("--docs",
                        action="store_true",
                        help="also write the pictures of the documentation")
    arguments = parser.parse_args()
    names = arguments.only.split(",") if arguments.only else list(PAGES)
    arguments.out.mkdir(parents=True, exist_ok=True)
    cut = []
    with tempfile.TemporaryDirectory() as folder, staged(
            pathlib.Path(folder)) as scene, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name in names:
            cut += take(browser, scene, name, arguments.out, arguments.docs)
            print(name, flush=True)
        browser.close()
    print("\n".join(cut) or "nothing is cut off")
    return 1 if cut else 0


if __name__ == "__main__":
    sys.exit(main())
