# SPDX-License-Identifier: Apache-2.0
"""Boards and alerts ask for what a quern tells: every name and label, and with a real Prometheus
every query under load."""
import json, math, pathlib, re, shutil, subprocess, sys, urllib.error, urllib.parse, urllib.request

import pytest
import yaml

import metrics, promql, support, upstream

PACKAGING = support.ROOT / "packaging"
BOARDS = sorted((PACKAGING / "grafana").glob("*.json"))
ALERTS = PACKAGING / "prometheus/alerts.yml"
PROMETHEUS = shutil.which("prometheus")
NO_PROMETHEUS = "prometheus is not installed (Debian's package, 19 MB)"
TINY = support.SHARED / "tiny/llama3/model-q8_0.gguf"


def boards():
    return [json.loads(path.read_text()) for path in BOARDS]


def test_each_alert_has_an_entry_in_the_runbook():
    page = (support.ROOT / "docs/guides/runbook.md").read_text()
    names = [rule["alert"] for rule in rules()]
    assert names == re.findall(r"^### (\w+)$", page, re.M)
    for rule in rules():
        assert rule["annotations"]["runbook"] == f"docs/guides/runbook.md#{rule['alert'].lower()}"
    for entry in page.split("\n### ")[1:]:
        name, text = entry.split("\n", 1)
        assert len(text.split()) > 20, name


def targets():
    return [(board["uid"], panel, target["expr"])
            for board in boards()
            for panel in board["panels"]
            for target in panel["targets"]]


def rules():
    return [
        rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def expression(text, window="10m"):
    """A panel's query as Grafana would send it with all variables at All."""
    return re.sub(r"\$(?:job|instance|model|engine)\b", ".*", text).replace(
        "$__rate_interval", window)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server with all that boards show: an engine on a made-up card, an upstream, a receiver of
    webhooks, and a queue between machines that nothing listens at."""
    folder = tmp_path_factory.mktemp("boards")
    fake = upstream.Upstream(models=("far",))
    secret = folder / "secret"
    secret.write_text("whsec_" + "c2VjcmV0" * 4 + "\n")
    secret.chmod(0o600)
    (folder / "nvml").write_text("celsius 44\n")
    template = folder / "template.jinja"
    template.write_text("{% for message in messages %}{{ message.content }}\n{% endfor %}")
    nvml = pathlib.Path(support.BINARY).resolve().parent.parent / "tests/nvml"
    with support.webhook_receiver() as webhooks, \
            support.serving(folder / "state", "--model", f"m={TINY}", "--device", "cuda", "--device-plugin", str(support.plain_device()),
                            "--gpu-memory-limit-mib", "500", "--chat-template", str(template), "--upstream", f"up={fake.url}", "--queue", "redis://127.0.0.1:9/", "--webhook-url", webhooks,
                            "--webhook-secret-file", str(secret), "--webhook-allow-private",
                            environment={"LD_LIBRARY_PATH": str(nvml), "QUERN_FAKE_NVML": str(folder / "nvml")}) as server:
        load(server, 0)
        support.until(lambda: metrics.of(server).series("quern_card_temperature_celsius"))
        support.until(
            lambda: metrics.of(server).value("quern_engine_requests_total", source="client") == 1)
        support.until(lambda: metrics.of(server).value("quern_webhook_deliveries_total",
                                                       outcome="succeeded") == 1)
        yield server
    fake.stop()


def load(server, turn):
    """Lines and single requests, some of which fail, for the engine and for the upstream. Returns
    the number of lines."""
    lines = [
        support.request(f"{i}", f"Say {turn} {i}.", model="m", max_tokens=4, ignore_eos=True)
        for i in range(12)]
    lines += [support.request(f"far{i}", f"say=x {turn} {i}", model="far") for i in range(6)]
    lines += [support.request("bad", f"Say {turn}.", model="m", max_tokens=4, temperature=9)]
    batch = server.create(support.jsonl(lines))
    server.json(
        "POST", "/v1/chat/completions", {
            "model": "m", "messages": [{"role": "user", "content": f"Hello {turn}"}],
            "max_tokens": 4, "ignore_eos": True})
    server.json("POST", "/v1/chat/completions",
                {"model": "far", "messages": [{"role": "user", "content": f"say=y {turn}"}]})
    assert server.wait(batch["id"])["request_counts"] == {"total": 19, "completed": 18, "failed": 1}
    return len(lines)


# --- names ---

def test_a_reader_of_expressions_finds_names_and_labels():
    found, groups = promql.names(
        'sum by (le, a) (rate(x_bucket{b="c{,",d=~"e"}[5m])) / on (f) clamp_min(y, 1e-9) > 0 unless z == 1.5'
    )
    assert found == [("x_bucket", {"b", "d"}), ("y", set()),
                     ("z", set())] and groups == {"le", "a", "f"}


def check_names(told, text):
    found, groups = promql.names(expression(text))
    assert found or "time()" in text
    known = set(promql.TARGET)
    for name, labels in found:
        if name in ("up", "ALERTS"):
            continue
        own = told.labels_of(name)
        assert told.series(name), f"no {name} in /metrics, but in {text}"
        assert labels <= own | promql.TARGET, f"{name} has the labels {own}, not {labels}: {text}"
        known |= own
    assert groups <= known, text


def test_each_panel_asks_for_names_and_labels_that_exist(server):
    told = metrics.of(server)
    assert len(targets()) > 100
    for _, panel, text in targets():
        check_names(told, text)
        name = promql.names(expression(text))[0][0][0]
        assert name in panel["description"] or re.sub(r"_(bucket|count|sum)$", "",
                                                      name) in panel["description"], panel["title"]


def test_each_alert_asks_for_names_and_labels_that_exist(server):
    told = metrics.of(server)
    for rule in rules():
        check_names(told, rule["expr"])
        own = {
            label
            for name, _ in promql.names(rule["expr"])[0]
            for label in told.labels_of(name)} | promql.TARGET
        for text in rule["annotations"].values():
            assert set(re.findall(r"\$labels\.(\w+)", text)) <= own, rule["alert"]


# --- forms ---

@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_a_board_has_the_form_that_grafana_loads(path):
    board = json.loads(path.read_text())
    assert board["schemaVersion"] == 39 and board["id"] is None and board[
        "uid"] == f"quern-{path.stem}" and board["refresh"] == "30s"
    assert [variable["name"] for variable in board["templating"]["list"]] == [
        "datasource", "job", "instance", "model", "engine"]
    assert board["templating"]["list"][0] == {
        **board["templating"]["list"][0], "type": "datasource", "query": "prometheus"}
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    taken = set()
    for panel in board["panels"]:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"
                                       } and panel["description"] and panel["title"]
        assert set(re.findall(r"\$(\w+)", json.dumps(panel["targets"]))) <= {
            "job", "instance", "model", "engine", "__rate_interval", "datasource"}
        at = panel["gridPos"]
        cells = {(x, y)
                 for x in range(at["x"], at["x"] + at["w"])
                 for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells


def test_the_boards_are_what_their_tool_writes():
    done = subprocess.run([sys.executable, support.ROOT / "tools/boards", "--check"],
                          capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr


def test_each_alert_has_a_severity_words_and_a_case_that_fires_and_one_that_does_not():
    names = [rule["alert"] for rule in rules()]
    cases = yaml.safe_load((PACKAGING / "prometheus/alerts.test.yml").read_text())["tests"]
    assert len(set(names)) == len(names)
    for rule in rules():
        assert rule["labels"]["severity"] in ("page", "warn") and set(rule["annotations"]) == {
            "summary", "description", "runbook"}
        case = next(case for case in cases if case["name"] == rule["alert"])
        assert {'"bad"', '"good"'} <= set(re.findall(r'instance=("\w+")',
                                                     str(case["input_series"])))
        assert any(question["exp_samples"] for question in case["promql_expr_test"])


def test_the_other_files_are_yaml():
    for path in (*PACKAGING.glob("grafana/provisioning/*/*.yml"),
                 PACKAGING / "prometheus/prometheus.yml"):
        assert yaml.safe_load(path.read_text())


def test_compose_mounts_the_alerts_and_boards_where_its_programs_look():
    folder = PACKAGING / "container"
    services = yaml.safe_load((folder / "compose.metrics.yaml").read_text())["services"]
    prometheus, source = (yaml.safe_load((folder / name).read_text())
                          for name in ("prometheus.yml", "grafana-datasource.yml"))

    def mounts(service):
        pairs = [
            entry.split(":")[:2] for entry in services[service]["volumes"] if entry.startswith(".")]
        assert all((folder / own).exists() for own, _ in pairs)
        return {inside: (folder / own).resolve() for own, inside in pairs}
    inside = mounts("prometheus")
    assert inside["/etc/prometheus/prometheus.yml"] == folder / "prometheus.yml"
    assert [inside[f"/etc/prometheus/{name}"] for name in prometheus["rule_files"]] == [ALERTS]
    assert prometheus["scrape_configs"][0]["job_name"] == "quern", "QuernDown names the job"
    inside = mounts("grafana")
    provider = yaml.safe_load(
        (inside["/etc/grafana/provisioning/dashboards"] / "quern.yml").read_text())["providers"][0]
    assert sorted(inside[provider["options"]["path"]].glob("*.json")) == BOARDS
    assert inside[
        "/etc/grafana/provisioning/datasources/quern.yml"] == folder / "grafana-datasource.yml"
    assert source["datasources"][0]["url"] == "http://prometheus:9090" and "prometheus" in services


@pytest.mark.skipif(not metrics.PROMTOOL, reason=metrics.NO_PROMTOOL)
def test_promtool_takes_the_alerts_and_their_cases():
    for words in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts.test.yml"], [
            "check", "config", "--syntax-only", "prometheus.yml"]):
        done = subprocess.run([metrics.PROMTOOL, *words],
                              cwd=PACKAGING / "prometheus",
                              capture_output=True,
                              text=True)
        assert done.returncode == 0, done.stdout + done.stderr


# --- a real Prometheus ---

class Prometheus:
    def __init__(self, folder, target, port):
        self.port = port
        (folder / "prometheus.yml").write_text(
            json.dumps({
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [
                    str(ALERTS)], "scrape_configs": [{
                        "job_name": "quern", "static_configs": [{"targets": [target]}]}]}))
        self.log = open(folder / "prometheus.log", "w")
        self.process = subprocess.Popen([
            PROMETHEUS, f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}"],
                                        stdout=self.log,
                                        stderr=self.log)

    def stop(self):
        self.process.terminate()
        self.process.wait(120)
        self.log.close()

    def ask(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/{path}",
                                        timeout=120) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:
                return None  # it reads its log
            raise AssertionError(f"{path}: {error.read()[:300]}") from error
        except OSError:
            return None  # it starts

    def query(self, text):
        data = self.ask("query?" + urllib.parse.urlencode({"query": text}))
        return [float(series["value"][1]) for series in data["result"]] if data else []

    def value(self, text):
        return sum(self.query(text))


def ask_all(server, prometheus):
    before = metrics.of(server)
    # Two scrapes before the load and one behind it, however slow this machine is: rates have a
    # first and a last value.
    support.until(lambda: prometheus.process.poll() is None and prometheus.value(
        "count_over_time(quern_ready[10m])") >= 2)
    turns = 3
    lines = sum(load(server, turn) for turn in range(1, turns + 1))
    count = before.value("quern_lines_ended_total") + lines
    support.until(lambda: prometheus.value("sum(quern_lines_ended_total)") == count)
    support.until(lambda: prometheus.value("sum(quern_webhook_deliveries_total)") == before.value(
        "quern_webhook_deliveries_total") + turns)
    support.until(
        lambda: prometheus.value('sum(quern_engine_requests_total{source="client"})') == 1 + turns)
    for _, panel, text in targets():
        values = prometheus.query(expression(text))
        title = f"{panel['title']}: {text}: {values}"
        assert values, title
        assert all(math.isfinite(value) and value >= 0 for value in values), title
        assert panel["fieldConfig"]["defaults"]["unit"] != "percentunit" or max(
            values) <= 1.0001, title
    # What Prometheus says is what ran.
    assert prometheus.value('sum(quern_lines_ended_total{outcome="errored"})') == 1 + turns
    assert prometheus.value("sum(quern_engine_up)") == 2
    told = {
        rule["name"]: rule
        for group in prometheus.ask("rules")["groups"]
        for rule in group["rules"]}
    assert set(told) == {rule["alert"]
                         for rule in rules()} and all(rule["health"] != "err"
                                                      for rule in told.values()), told


@pytest.mark.alone
@pytest.mark.skipif(not PROMETHEUS, reason=NO_PROMETHEUS)
def test_each_query_of_a_board_has_an_answer_in_a_real_prometheus(server, tmp_path):
    with support.reserved_port() as port:
        prometheus = Prometheus(tmp_path, f"127.0.0.1:{server.port}", port)
        try:
            ask_all(server, prometheus)
        finally:
            prometheus.stop()
