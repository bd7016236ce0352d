# SPDX-License-Identifier: Apache-2.0
"""A small server of OpenAI's Files and Batches API that is not quern: no Uploads API, no
idempotency keys, results only at the end. A test changes its fields while it runs: which answers
are lost, where a download is cut, what is said instead."""
import email.parser, email.policy, json, re, time

from small_server import SmallServer


class OpenAIServer(SmallServer):
    def __init__(self, key=None, ranges=True, keeps_inputs=True):
        super().__init__()
        self.key, self.ranges, self.keeps_inputs = key, ranges, keeps_inputs
        self.files, self.batches, self.seen = {}, {}, []
        self.file_count = 0
        self.lose = []       # paths whose next answer is lost, once each
        self.refuse = []     # statuses to answer with, one per request, before anything is done
        self.cut = []        # bytes after which the next downloads break off
        self.instead = None  # function(handler, path): answers in place of the API
        self.running = False  # batches stay in progress

    @property
    def url(self):
        return f"{self.site}/v1"

    def add_file(self, content, purpose):
        self.file_count += 1
        file_id = f"file-{self.file_count}"
        self.files[file_id] = content
        return {
            "id": file_id, "object": "file", "bytes": len(content), "created_at": int(time.time()),
            "filename": "x.jsonl", "purpose": purpose, "status": "processed"}

    def create(self, body):
        batch_id = f"batch_{len(self.batches) + 1}"
        requests = [
            json.loads(line)
            for line in self.files[body["input_file_id"]].splitlines()
            if line.strip()]
        good, bad = [], []
        for request in requests:
            is_bad = "bad" in json.dumps(request["body"])
            (bad if is_bad else good).append({
                "id": f"batch_req_{request['custom_id']}", "custom_id": request["custom_id"],
                "error": None, "response": {
                    "status_code": 400 if is_bad else 200, "request_id": "r", "body": {
                        "said": request["body"]}}})
        batch = {
            "id": batch_id, "object": "batch", "endpoint": body["endpoint"],
            "input_file_id": body["input_file_id"], "completion_window": body["completion_window"],
            "status": "in_progress", "created_at": int(
                time.time()), "metadata": body.get("metadata"), "request_counts": {
                    "total": len(requests), "completed": 0,
                    "failed": 0}, "output_file_id": None, "error_file_id": None, "errors": None}
        self.batches[batch_id] = (batch, good, bad)
        return batch

    def finish(self, batch_id):
        batch, good, bad = self.batches[batch_id]
        if self.running or batch["status"] != "in_progress":
            return batch
        for name, lines in (("output_file_id", good), ("error_file_id", bad)):
            if lines:
                batch[name] = self.add_file(
                    "".join(json.dumps(line) + "\n" for line in lines).encode(),
                    "batch_output")["id"]
        if not self.keeps_inputs:
            self.files.pop(batch["input_file_id"])
        batch.update(status="completed",
                     completed_at=int(time.time()),
                     request_counts={
                         "total": len(good) + len(bad), "completed": len(good), "failed": len(bad)})
        return batch

    def take(self, handler, body):
        path = handler.path.split("?")[0]
        self.seen.append(f"{handler.command} {path}")
        if self.instead:
            return self.instead(handler, path)
        if self.refuse:
            return handler.answer(self.refuse.pop(0), {"error": {"message": "busy"}})
        if self.key and handler.headers["authorization"] != f"Bearer {self.key}":
            return handler.answer(401, {"error": {"message": "Incorrect API key provided"}})
        status, value = self.call(handler, path, body)
        if path in self.lose:
            self.lose.remove(path)
            return handler.drop()
        return self.download(handler, value) if isinstance(value, bytes) else handler.answer(
            status, value)

    def call(self, handler, path, body):
        if handler.command == "POST" and path == "/v1/files":
            head = f"Content-Type: {handler.headers['content-type']}\r\n\r\n".encode()
            parts = email.parser.BytesParser(
                policy=email.policy.HTTP).parsebytes(head + body).get_payload()
            names = {
                part.get_param("name", header="content-disposition"): part.get_payload(decode=True)
                for part in parts}
            return 200, self.add_file(names["file"], names["purpose"].decode().strip())
        if handler.command == "POST" and path == "/v1/batches":
            return 200, self.create(json.loads(body))
        if path == "/v1/batches":
            newest = [self.finish(batch_id) for batch_id in reversed(self.batches)]
            return 200, {"object": "list", "data": newest, "has_more": False}
        if found := re.fullmatch(r"/v1/batches/(\w+)", path):
            if found[1] in self.batches:
                return 200, self.finish(found[1])
            return 404, {"error": {"message": f"No batch found with id '{found[1]}'."}}
        if found := re.fullmatch(r"/v1/files/([\w-]+)(/content)?", path):
            content = self.files.get(found[1])
            if content is None:
                return 404, {"error": {"message": "No such File object"}}
            return 200, content if found[2] else {
                "id": found[1], "object": "file", "bytes": len(content)}
        return 404, {"error": {"message": "Unknown request URL"}}

    def download(self, handler, content):
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", handler.headers["range"] or "")
        part = content[int(wanted[1]):int(wanted[2]) + 1] if wanted and self.ranges else content
        cut = self.cut.pop(0) if self.cut else None
        handler.send_response(206 if wanted and self.ranges else 200)
        handler.send_header("content-length", str(len(part)))
        handler.end_headers()
        handler.wfile.write(part[:cut])
        handler.close_connection = cut is not None
