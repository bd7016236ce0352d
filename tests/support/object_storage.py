# SPDX-License-Identifier: Apache-2.0
"""Object storage: moto's S3 in this process, which checks each signature, between a client and
whatever a test makes of its answers."""
import contextlib, hashlib, hmac, http.client, os, re, threading

import boto3
import botocore.config
import werkzeug.serving
from moto.iam.access_control import IAMRequestBase
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

BUCKET = "batches"
ALL = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}'


# moto decodes a query before it signs it, so it knows no "/" in the prefix of a list. Such a
# request was checked by signature() below, in the thread that handles it.
CHECKED = threading.local()
check_by_moto = IAMRequestBase.check_signature


def check_signature(request):
    if not getattr(CHECKED, "is_good", False):
        check_by_moto(request)


IAMRequestBase.check_signature = check_signature


def signature(environ, secret):
    """The signature of a request as it came, and the one that it has. moto reads a path before it
    signs it, so it knows neither '+' nor 'ä' in one."""
    path, _, query = environ["RAW_URI"].partition("?")
    scope, names, given = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=[^/]+/(.*), SignedHeaders="
                                       r"(.*), Signature=(.*)", environ["HTTP_AUTHORIZATION"]).groups()
    headers = "".join(f"{name}:{environ['HTTP_' + name.upper().replace('-', '_')]}\n"
                      for name in names.split(";"))
    request = "\n".join([environ["REQUEST_METHOD"], path, query, headers, names,
                         environ["HTTP_X_AMZ_CONTENT_SHA256"]])
    text = "\n".join(["AWS4-HMAC-SHA256", environ["HTTP_X_AMZ_DATE"], scope,
                      hashlib.sha256(request.encode()).hexdigest()])
    key = b"AWS4" + secret.encode()
    for word in scope.split("/"):
        key = hmac.new(key, word.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest(), given


class Breaks(Exception):
    """The connection ends here."""


class Storage:
    """`answers` has rules for the next requests that they fit: (method, word of the query, what).
    What is a status with an XML body, or a function of the request and the storage's own answer."""

    def __init__(self, certificate=None):
        self.app = DomainDispatcherApplication(create_backend_app)
        self.answers, self.seen, self.wrong, self.lock = [], [], 0, threading.Lock()
        self.ignores_conditions = False
        self.is_away = False  # every request gets 503
        self.server = werkzeug.serving.make_server("127.0.0.1",
                                                   0,
                                                   self.answer,
                                                   threaded=True,
                                                   ssl_context=certificate)
        kind = "https" if certificate else "http"
        self.url = f"{kind}://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()

    def answer(self, environ, start):
        seen = (environ["REQUEST_METHOD"], environ.get("QUERY_STRING", ""),
                {name: environ.get("HTTP_" + name.upper()) for name in ("range", "if_match", "x_amz_security_token")})
        CHECKED.is_good = False
        with self.lock:
            self.seen.append(seen)
            if environ.get("HTTP_USER_AGENT", "").startswith("quern/"):
                wanted, given = signature(environ, self.key[1])
                self.wrong += wanted != given
                CHECKED.is_good = wanted == given and "prefix=" in seen[1]
            rule = next((r for r in self.answers if r[0] == seen[0] and r[1] in seen[1]), None)
            if rule:
                self.answers.remove(rule)
        if self.ignores_conditions:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        if self.is_away:
            rule = (None, None, (503, "<Error><Code>ServiceUnavailable</Code></Error>"))
        if not rule:
            return self.app(environ, start)
        if callable(rule[2]):
            return rule[2](lambda: self.app(environ, start), start)
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        status, body = rule[2]
        start(f"{status} X", [("Content-Length", str(len(body))), ("Content-Type", "text/xml")])
        return [body.encode()]

    def client(self, service="s3", key=("test", "test")):
        return boto3.client(service,
                            endpoint_url=self.url,
                            region_name="us-east-1",
                            aws_access_key_id=key[0],
                            aws_secret_access_key=key[1],
                            config=botocore.config.Config(s3={"addressing_style": "path"},
                                                          proxies={}))

    def count(self, method, word=""):
        return sum(1 for seen in self.seen if seen[0] == method and word in seen[1])

    def get(self, key):
        return self.mine.get_object(Bucket=BUCKET, Key=key)["Body"].read()

    def put(self, key, data):
        self.mine.put_object(Bucket=BUCKET, Key=key, Body=data)

    def keys(self):
        return [o["Key"] for o in self.mine.list_objects_v2(Bucket=BUCKET).get("Contents", [])]

    def check_signatures(self, count):
        """moto checks them from the next request but `count` on."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.server_port)
        connection.request("POST", "/moto-api/reset-auth", body=str(count))
        assert connection.getresponse().status == 200

    @property
    def environment(self):
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
            "AWS_ENDPOINT_URL": self.url, "AWS_ACCESS_KEY_ID": self.key[0],
            "AWS_SECRET_ACCESS_KEY": self.key[1], "AWS_CONFIG_FILE": "/dev/null", "no_proxy": "*"}


def half(own, start):
    """Sends half of the answer, and breaks the connection."""
    body = b"".join(own())

    def pieces():
        yield body[:len(body) // 2]
        raise Breaks
    return pieces()


class Hold:
    """An answer that stops: before it, with no bytes of the request read, or in its middle."""

    def __init__(self, in_answer=False):
        self.in_answer = in_answer
        self.reached, self.released = threading.Event(), threading.Event()

    def __call__(self, own, start):
        if self.in_answer:
            body = b"".join(own())
            return self.pieces(body)
        self.reached.set()
        assert self.released.wait(300)
        raise Breaks

    def pieces(self, body):
        yield body[:len(body) // 2]
        self.reached.set()
        assert self.released.wait(300)
        raise Breaks


def lost(own, start):
    """The call is done, and its answer is lost."""
    b"".join(own())
    raise Breaks


@contextlib.contextmanager
def serving():
    with Storage() as storage:
        yield prepared(storage)


def prepared(storage):
    """With a user, who alone may do anything, and a bucket."""
    storage.check_signatures(1000)
    iam = storage.client("iam")
    iam.create_user(UserName="quern")
    iam.put_user_policy(UserName="quern", PolicyName="all", PolicyDocument=ALL)
    key = iam.create_access_key(UserName="quern")["AccessKey"]
    storage.key = (key["AccessKeyId"], key["SecretAccessKey"])
    storage.mine = storage.client(key=storage.key)
    storage.mine.create_bucket(Bucket=BUCKET)
    storage.check_signatures(0)
    return storage


def name(key):
    return f"s3://{BUCKET}/{key}"


