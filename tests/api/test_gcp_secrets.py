# SPDX-License-Identifier: Apache-2.0
"""gcp-secret:// names in every place of a secret, against a metadata server and a Secret Manager of
the tests (tests/support/gcp.py). Where quern waits, its clock is moved."""
import contextlib, http.client, os, pathlib, ssl, subprocess

import pytest

import gcp, support
import hub as fake_hub
import upstream as fake_upstream
from certificate import make_certificate

ECHO = ("--model", "smollm2=echo")
KEY = "sk-verysecret0123456789"
SECRET = "whsec_" + "c2VjcmV0" * 4


@pytest.fixture
def cloud():
    cloud = gcp.Cloud()
    cloud.secrets[gcp.NAME] = f"# keys\n{KEY}\n".encode()
    yield cloud
    cloud.close()


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def start(cloud, tmp_path, *arguments, environment=None, moves_clock=False):
    """A start that is expected to fail: its status and its standard error. With a clock that runs
    ahead, also answers that are not slow may come too late, and are asked for again."""
    clock = support.Clock(tmp_path)
    server = subprocess.Popen(
        [
            support.BINARY, "serve", "--port", "0", "--state-dir", tmp_path / "state", *ECHO,
            *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **cloud.environment, **clock.environment, **(environment or {})})
    try:
        while moves_clock and server.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(1)
            clock.move(4)
        said = server.communicate(timeout=600)[1]
        return server.returncode, said
    finally:
        server.kill()
        server.wait()


# --- where a secret may stand ---

@pytest.mark.parametrize("way", ["option", "file variable", "variable", "variables", "settings"])
def test_the_keys_of_clients(tmp_path, cloud, way):
    arguments, environment = [], dict(cloud.environment)
    if way == "option":
        arguments = ["--api-key-file", gcp.PLACE]
    elif way == "file variable":
        environment["QUERN_API_KEYS_FILE"] = gcp.PLACE
    elif way == "variable":
        environment["QUERN_API_KEYS"] = gcp.PLACE
    elif way == "variables":
        (tmp_path / "variables").write_text(f"QUERN_API_KEYS={gcp.PLACE}\n")
        (tmp_path / "variables").chmod(0o600)
        arguments = ["--env-file", tmp_path / "variables"]
    else:
        (tmp_path / "config").write_text(f"api-key-file = {gcp.PLACE}\n")
        arguments = ["--config", tmp_path / "config"]
    with support.serving(tmp_path / "state", *ECHO, *map(str, arguments),
                         environment=environment) as server:
        assert server.call("GET", "/v1/models")[0] == 401
        assert server.call("GET", "/v1/models", headers=bearer(KEY))[0] == 200
        shown = server.log_text() + pathlib.Path(f"/proc/{server.process.pid}/cmdline").read_text()
        assert KEY not in shown and "ya29" not in shown
    assert cloud.asked == [("token", 200), ("secret", 200)]


def test_the_secret_of_webhooks(tmp_path, cloud):
    cloud.secrets[gcp.NAME] = SECRET.encode()
    with support.webhook_receiver() as url:
        arguments = (*ECHO, "--webhook-allow-private", "--webhook-url", url,
                     "--webhook-secret-file", gcp.PLACE)
        with support.serving(tmp_path / "state", *arguments,
                             environment=cloud.environment) as server:
            server.wait(server.create(support.jsonl([support.request("a", "x")]))["id"])
            support.until(lambda: b'quern_webhook_deliveries_total{outcome="succeeded"} 1\n' in
                          server.call("GET", "/metrics")[1])
            assert SECRET not in server.log_text()


def test_the_key_of_an_upstream(tmp_path, cloud):
    cloud.secrets[gcp.NAME] = KEY.encode() + b"\n"
    upstream = fake_upstream.Upstream()
    try:
        with support.serving(tmp_path / "state",
                             "--upstream",
                             f"fake={upstream.url},key-file={gcp.PLACE}",
                             environment=cloud.environment) as server:
            assert server.wait(
                server.create(support.jsonl([support.request(
                    "a", "x", model="fake")]))["id"])["request_counts"]["completed"] == 1
        assert {head["authorization"] for head in upstream.behaviour.heads} == {f"Bearer {KEY}"}
    finally:
        upstream.stop()


@pytest.mark.parametrize("variable", ["HF_TOKEN", "HF_TOKEN_PATH"])
def test_the_token_of_the_hub(tmp_path, cloud, variable):
    cloud.secrets[gcp.NAME] = b"hf_good\n"
    hub = fake_hub.Hub()
    try:
        hub.repositories["org/gated"] = {"config.json": b"{}", "model.safetensors": b"x" * 100}
        hub.gated.add("org/gated")
        environment = {
            "HOME": str(tmp_path), "PATH": os.environ["PATH"], "HF_ENDPOINT": hub.url(),
            variable: gcp.PLACE, **cloud.environment}
        done = support.quern("pull", "org/gated", env=environment)
        assert "Bearer hf_good" in {seen[4] for seen in hub.seen}, done.stderr
        assert "hf_good" not in done.stdout + done.stderr
    finally:
        hub.close()


def test_the_certificate_and_its_key(tmp_path, cloud):
    certificate, key = make_certificate(tmp_path, "server")
    cloud.secrets[gcp.NAME] = key.read_bytes()
    cloud.secrets["projects/my-project/secrets/certificate/versions/3"] = certificate.read_bytes()
    files = ("--ssl-certfile", "gcp-secret://projects/my-project/secrets/certificate/versions/3",
             "--ssl-keyfile", gcp.PLACE)
    with support.serving(tmp_path / "state", *ECHO, *files,
                         environment=cloud.environment) as server:
        context = ssl.create_default_context(cafile=certificate)
        connection = http.client.HTTPSConnection("127.0.0.1",
                                                 server.port,
                                                 context=context,
                                                 timeout=300)
        connection.request("GET", "/health")
        assert connection.getresponse().status == 200
        connection.close()


# --- what goes wrong ---

# What goes wrong where, in every answer; the status of the start; what the sentence says; whether
# it is sure to be asked for again.
FAILURES = [
    ("secret", "wrong CRC", 3, "do not have the CRC", True),
    ("secret", "no CRC", 3, "no data with dataCrc32c", False),
    ("secret", "bad base64", 3, "is no base64", False),
    ("secret", "no data", 3, "no data with dataCrc32c", False),
    ("secret", "not JSON", 3, "no JSON object", False),
    ("secret", "half", 3, "no JSON object", False),
    ("secret", "a list", 3, "no JSON object", False),
    ("secret", "huge", 3, "an answer that is too long", False),
    ("secret", "redirect", 3, "a redirect (302), which is not followed", False),
    ("secret", 400, 3, "Secret Manager answers 400", False),
    ("secret", 403, 5, "Secret Accessor", False),
    ("secret", 404, 4, "it does not exist", False),
    ("secret", 401, 5, "refuses the token", True),
    ("secret", 429, 6, "Secret Manager answers 429", True),
    ("secret", 503, 6, "Secret Manager answers 503", True),
    ("token", "expired", 6, "its token has expired", True),
    ("token", "no flavor", 3, "Metadata-Flavor", False),
    ("token", "no token", 3, "no bearer token", False),
    ("token", "split token", 3, "no bearer token", False),
    ("token", "huge", 3, "an answer that is too long", False),
    ("token", "not JSON", 3, "no JSON object", False),
    ("token", "redirect", 3, "a redirect (302)", False),
    ("token", 404, 4, "it does not exist", False),
    ("token", 500, 6, "the metadata server answers 500", True),
]


@pytest.mark.parametrize("at, misdeed, status, why, comes_again",
                         FAILURES,
                         ids=[f"{at}-{misdeed}" for at, misdeed, *_ in FAILURES])
def test_a_failure_names_the_secret_and_its_reason_and_shows_nothing_else(
        tmp_path, cloud, at, misdeed, status, why, comes_again):
    cloud.misdeeds[at] = [misdeed] * 100
    got, said = start(cloud, tmp_path, "--api-key-file", gcp.PLACE)
    assert got == status and gcp.NAME in said and why in said, (got, said)
    assert cloud.count(at) <= 4 and (cloud.count(at) > 1 or not comes_again), cloud.asked
    assert KEY not in said and "ya29" not in said and "hidden-words" not in said and "QUFB" not in said


@pytest.mark.parametrize("at, misdeeds", [("secret", [429, 429]),
                                          ("secret", [503, "wrong CRC", 500]), ("secret", [401]),
                                          ("secret", ["CRC as number"]), ("token", [503]),
                                          ("token", ["expired"])])
def test_what_passes_is_waited_for(tmp_path, cloud, at, misdeeds):
    cloud.misdeeds[at] = list(misdeeds)
    with support.serving(tmp_path / "state",
                         *ECHO,
                         "--api-key-file",
                         gcp.PLACE,
                         environment=cloud.environment) as server:
        assert server.call("GET", "/v1/models", headers=bearer(KEY))[0] == 200
    assert not cloud.misdeeds[at]


@pytest.mark.parametrize("at, misdeed, why", [
    ("token", "slow", "did not begin its answer in time"),
    ("secret", "slow", "did not begin its answer in time"),
    ("secret", "slow body", "in the middle of its answer|did not end its answer in time")])
def test_slow_answers_end_the_start(tmp_path, cloud, at, misdeed, why):
    cloud.misdeeds[at] = [misdeed] * 100
    got, said = start(cloud, tmp_path, "--api-key-file", gcp.PLACE, moves_clock=True)
    assert got == 6 and gcp.NAME in said and any(part in said for part in why.split("|")), said


def test_a_server_that_does_not_listen(tmp_path, cloud):
    with support.reserved_port() as port:
        got, said = start(cloud,
                          tmp_path,
                          "--api-key-file",
                          gcp.PLACE,
                          environment={"GCE_METADATA_HOST": f"127.0.0.1:{port}"})
    assert got == 6 and gcp.NAME in said and "the metadata server cannot be reached" in said, said


@pytest.mark.parametrize("place, why",
                         [("projects/p/secrets/s/versions/1", "the project is an id"),
                          ("projects/my-project/secrets/s", "the form is"),
                          ("projects/my-project/secrets/s/versions/1/../2", "the version is")])
def test_a_name_against_googles_rules_is_not_asked_for(tmp_path, cloud, place, why):
    got, said = start(cloud, tmp_path, "--api-key-file", "gcp-secret://" + place)
    assert got == 3 and why in said and not cloud.asked, said


@pytest.mark.parametrize("name, value", [
    ("GCE_METADATA_HOST", "http://127.0.0.1/"), ("GCE_METADATA_HOST", "a@b"),
    ("CLOUDSDK_API_ENDPOINT_OVERRIDES_SECRETMANAGER", "http://192.0.2.1/"),
    ("CLOUDSDK_API_ENDPOINT_OVERRIDES_SECRETMANAGER", "http://localhost.example/"),
    ("CLOUDSDK_API_ENDPOINT_OVERRIDES_SECRETMANAGER", "ftp://127.0.0.1/"),
    ("CLOUDSDK_API_ENDPOINT_OVERRIDES_SECRETMANAGER", "https://u:p@127.0.0.1/")])
def test_a_wrong_variable_is_refused(tmp_path, cloud, name, value):
    got, said = start(cloud, tmp_path, "--api-key-file", gcp.PLACE, environment={name: value})
    assert got == 3 and name in said and cloud.count("secret") == 0, said


def test_a_proxy_of_the_environment_is_not_asked_for_a_token(tmp_path, cloud):
    away = {
        "http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9",
        "ALL_PROXY": "http://127.0.0.1:9", "no_proxy": ""}
    with support.serving(tmp_path / "state",
                         *ECHO,
                         "--api-key-file",
                         gcp.PLACE,
                         environment={**cloud.environment, **away}) as server:
        assert server.call("GET", "/v1/models", headers=bearer(KEY))[0] == 200


@pytest.mark.parametrize("is_trusted", [False, True])
def test_the_certificate_of_secret_manager_is_checked(tmp_path, cloud, is_trusted):
    """Two clouds: one gives tokens in plain HTTP, the other secrets over TLS."""
    certificate, key = make_certificate(tmp_path, "server")
    secure = gcp.Cloud()
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        secure.wrap(context)
        secure.secrets, secure.tokens = cloud.secrets, cloud.tokens
        environment = {
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_SECRETMANAGER": f"https://{secure.address}/"}
        if is_trusted:
            environment["SSL_CERT_FILE"] = str(certificate)
            with support.serving(tmp_path / "state",
                                 *ECHO,
                                 "--api-key-file",
                                 gcp.PLACE,
                                 environment={**cloud.environment, **environment}) as server:
                assert server.call("GET", "/v1/models", headers=bearer(KEY))[0] == 200
        else:
            got, said = start(cloud, tmp_path, "--api-key-file", gcp.PLACE, environment=environment)
            assert got == 5 and gcp.NAME in said and "cannot be reached" in said and not secure.asked, said
    finally:
        secure.close()


def test_config_show_shows_the_name_and_asks_for_nothing(tmp_path, cloud):
    done = support.quern(
        "config",
        "show",
        "serve",
        env={**cloud.environment, "HOME": "/h", "PATH": "/", "QUERN_API_KEY_FILE": gcp.PLACE})
    assert f"api-key-file = {gcp.PLACE}\n" in done.stdout and not cloud.asked
