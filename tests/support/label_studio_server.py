# SPDX-License-Identifier: Apache-2.0
"""A small server of the calls of Label Studio that quern makes. A test changes its fields while it
runs: which answers are lost, which imports come late, at which call the client is killed."""
import base64, json, os, re, signal, urllib.parse, uuid, xml.etree.ElementTree

from small_server import SmallServer

LEGACY = "0123456789abcdef0123456789abcdef01234567"
TAGS = {"Choices", "Number", "Rating", "TextArea"}


def jwt(**claims):
    parts = [{"alg": "none", "typ": "JWT"}, claims]
    return ".".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
        for part in parts) + ".c2ln"


PERSONAL = jwt(token_type="refresh", exp=8102617425, iat=1795417425)


class LabelStudio(SmallServer):
    def __init__(self, token=LEGACY, enterprise=False):
        super().__init__()
        self.token, self.enterprise = token, enterprise
        self.projects, self.tasks, self.imports, self.seen = {}, {}, {}, []
        self.uniques = set()  # ids of annotations
        self.next_task, self.next_annotation = 1, 1
        # the token in force, and the calls that it is still good for
        self.access, self.access_calls = None, None
        self.calls_per_access = None
        self.refuse = []    # (part of a path, status): answered before anything is done, once each
        self.lose = []      # parts of paths whose next answer is lost after the effect, once each
        self.late = [
        ]  # per import: the number of calls after which it takes effect; its own answer is lost
        self.keeps_actions = True  # last_action of an annotation that a client makes
        self.redirect = None  # the address that every call is sent to instead
        self.waiting = []   # [calls left, project, tasks]
        self.victim, self.kills = None, []  # process; (call number, "before" or "after" its effect)
        self.calls = 0

    @property
    def url(self):
        return self.site

    def custom_ids(self):
        return [task["meta"]["custom_id"] for task in self.tasks.values()]

    def add_tasks(self, project, tasks):
        ids = []
        for task in tasks:
            controls = self.controls(self.projects[project]["label_config"])
            for prediction in task.get("predictions", []):
                for result in prediction["result"]:
                    assert controls[result["from_name"]]["type"].lower(
                    ) == result["type"] and result["to_name"] == "quern_text", result
            self.tasks[self.next_task] = {
                **task, "id": self.next_task, "project": project, "annotations": []}
            ids.append(self.next_task)
            self.next_task += 1
        return ids

    def annotate(self, task, result, user=1, cancelled=False):
        """Adds an annotation of a user, or changes the one that the user has."""
        found = [a for a in self.tasks[task]["annotations"] if a["completed_by"] == user]
        if not found:
            found = [{"id": self.next_annotation, "completed_by": user}]
            self.tasks[task]["annotations"] += found
            self.next_annotation += 1
        at = f"2026-11-23T07:00:00.{int(found[0].get('updated_at', '.0Z')[-7:-1].lstrip('.') or 0) + 1:06d}Z"
        found[0].update(result=result, was_cancelled=cancelled, updated_at=at, last_action=None,
                        updated_by=user)

    def review(self, annotation, action, user=2, reviews=None):
        """Somebody reviews an annotation: with `reviews` as the Enterprise edition does."""
        [found] = [a for task in self.tasks.values() for a in task["annotations"]
                   if a["id"] == annotation]
        at = f"2026-11-24T07:00:00.{int(found['updated_at'][-7:-1].lstrip('.') or 0) + 1:06d}Z"
        found.update(updated_at=at)
        found.update({"reviews": reviews} if reviews else {
            "last_action": action, "updated_by": user})

    @staticmethod
    def controls(config):
        root = xml.etree.ElementTree.fromstring(config)
        return {
            e.get("name"): {"type": e.tag, "to_name": [e.get("toName")]}
            for e in root.iter()
            if e.tag in TAGS}

    def call(self, method, path, query, body):
        if path == "/api/token/refresh/":
            if body["refresh"] != self.token:
                return 401, {"detail": "Token is invalid"}
            self.access, self.access_calls = jwt(exp=2000000300, iat=2000000000,
                                                 n=self.calls), self.calls_per_access
            return 200, {"access": self.access}
        if path == "/api/users/":
            return 200, [{"id": 1, "email": "ana@example.test"}, {"id": 2, "email": ""}]
        if path in ("/api/projects/validate/", "/api/projects/") and method == "POST":
            try:
                self.controls(body["label_config"])
            except xml.etree.ElementTree.ParseError as error:
                return 400, {"label_config": [str(error)]}
            if path.endswith("validate/"):
                return 204, None
            if len(body["title"]) < 3 or len(body["title"]) > 50:
                return 400, {
                    "detail": "Validation error", "validation_errors": {
                        "title": ["3 to 50 characters"]}}
            project = len(self.projects) + 1
            self.projects[project] = {**body, "id": project}
            return 201, self.projects[project]
        if path == "/api/projects/":
            page, size = int(query["page"]), int(query["page_size"])
            found = list(self.projects.values())
            return 200, {
                "results": found[(page - 1) * size:page * size],
                "next": "more" if page * size < len(found) else None}
        if path == "/api/tasks/":
            return self.list_tasks(query)
        if path == "/api/dm/actions":
            for task in body["selectedItems"]["included"]:
                self.tasks.pop(task, None)
            return 200, {"processed_items": len(body["selectedItems"]["included"])}
        found = re.fullmatch(r"/api/tasks/(\d+)/annotations/", path)
        if found:
            return self.add_annotation(int(found[1]), body)
        found = re.fullmatch(r"/api/projects/(\d+)/(import|imports/(\d+)/)?", path)
        project = int(found[1]) if found else 0
        if project not in self.projects:
            return 404, {"detail": "No Project matches the given query."}
        if found[2] == "import":
            return self.do_import(project, body)
        if found[2]:
            state = self.imports[int(found[3])]
            state["polls"] -= 1
            if state["polls"] > 0:
                return 200, {"status": "in_progress"}
            if state["polls"] == 0:
                self.add_tasks(project, state["tasks"])
            return 200, {"status": "completed"}
        return 200, {
            **self.projects[project], "parsed_label_config": self.controls(
                self.projects[project]["label_config"])}

    def add_annotation(self, task, body):
        if task not in self.tasks:
            return 404, {"detail": "No Task matches the given query."}
        unique = uuid.UUID(body["unique_id"])
        if unique in self.uniques:
            return 409, {"detail": "Annotation with this unique id already exists"}
        self.uniques.add(unique)
        made = {
            "id": self.next_annotation, "completed_by": 1, "result": body["result"],
            "was_cancelled": body["was_cancelled"], "updated_at": "2026-11-23T07:00:00.000001Z",
            "updated_by": 1, "last_action": body.get("last_action") if self.keeps_actions else None}
        self.next_annotation += 1
        self.tasks[task]["annotations"].append(made)
        return 201, made

    def do_import(self, project, tasks):
        late = self.late.pop(0) if self.late else 0
        if late:
            self.waiting.append([late, project, tasks])
            return None, None
        if self.enterprise:
            number = len(self.imports) + 1
            self.imports[number] = {"polls": 2, "tasks": tasks}
            return 201, {"import": number}
        ids = self.add_tasks(project, tasks)
        return 201, {"task_count": len(ids), "task_ids": ids}

    def list_tasks(self, query):
        wanted = json.loads(query["query"])
        tasks = [task for task in self.tasks.values() if task["project"] == int(query["project"])]
        for item in wanted["filters"]["items"]:
            name, least = item["filter"].split(":")[2], item["value"]
            count = {
                "id": lambda t: t["id"],
                "total_annotations": lambda t: sum(not a["was_cancelled"]
                                                   for a in t["annotations"]),
                "cancelled_annotations": lambda t: sum(a["was_cancelled"]
                                                       for a in t["annotations"])}[name]
            tasks = [task for task in tasks if count(task) > least]
        total, tasks = len(tasks), sorted(tasks,
                                          key=lambda task: task["id"])[:int(query["page_size"])]
        names = query["include"].split(",")
        def chosen(item):  # the real server's `include` chooses the members of annotations, too
            return {name: item[name] for name in names if name in item}

        return 200, {
            "total": total, "tasks": [{
                **chosen({
                    **task, "annotations": [chosen(a) for a in task["annotations"]]}), "total_annotations": len(
                    task["annotations"]), "cancelled_annotations": 0} for task in tasks]}

    def is_allowed(self, header, path):
        if path == "/api/token/refresh/":
            return True
        if self.token == LEGACY:
            return header == f"Token {LEGACY}"
        if header != f"Bearer {self.access}" or self.access_calls == 0:
            return False
        if self.access_calls:
            self.access_calls -= 1
        return True

    def kill(self, when):
        if self.victim and (self.calls, when) in self.kills:
            os.kill(self.victim.pid, signal.SIGKILL)
            self.victim.wait()
            self.victim = None

    def apply_late(self):
        for entry in self.waiting:
            entry[0] -= 1
            if entry[0] == 0:
                self.add_tasks(*entry[1:])
        self.waiting = [entry for entry in self.waiting if entry[0] > 0]

    def take(self, handler, body):
        url = urllib.parse.urlsplit(handler.path)
        self.calls += 1
        self.apply_late()
        self.seen.append(f"{handler.command} {url.path}")
        self.kill("before")
        if self.redirect:
            return handler.answer(302, headers=[("location", self.redirect)])
        if self.refuse and self.refuse[0][0] in url.path:
            return handler.answer(self.refuse.pop(0)[1], {"detail": "busy"}, [("retry-after", "0")])
        if not self.is_allowed(handler.headers["authorization"], url.path):
            return handler.answer(401, {"detail": "Invalid token."})
        status, value = self.call(handler.command,
                                  url.path, dict(urllib.parse.parse_qsl(url.query)),
                                  json.loads(body or "null"))
        self.kill("after")
        lost = next((part for part in self.lose if url.path.endswith(part)), None)
        if lost:
            self.lose.remove(lost)
        return handler.drop() if lost or status is None else handler.answer(status, value)
