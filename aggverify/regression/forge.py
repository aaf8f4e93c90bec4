"""The one comment of a pull request: found by its marker, and edited instead of repeated."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aggverify.errors import InputError
from aggverify.files import read_json
from aggverify.report.markdown import MARKER

SECONDS, PAGES, EACH = 30, 20, 100
MAX_BYTES = 1 << 24
"""Of an answer, and of the event that started a job."""


class Forbidden(InputError):
    """The token may not write: that of a pull request from a fork never may."""


@dataclass(frozen=True, slots=True)
class Forge:
    """Where comments of one pull request are: addresses, and how one of ours is told."""

    api: str
    headers: Mapping[str, str]
    listed: str
    """The address of all comments; a new one is posted there."""
    one: Callable[[int], str]
    edit: str
    """The method that edits one."""
    is_ours: Callable[[Mapping[str, Any]], bool]

    def put(self, text: str) -> str:
        """Edit our comment, or make one; in a word what was done."""
        for comment in self._comments():
            if str(comment.get("body", "")).startswith(MARKER) and self.is_ours(comment):
                if comment["body"] == text:
                    return "unchanged"
                self.call(self.edit, self.one(int(comment["id"])), {"body": text})
                return "edited"
        self.call("POST", self.listed, {"body": text})
        return "posted"

    def _comments(self) -> Iterator[Mapping[str, Any]]:
        for page in range(1, PAGES + 1):
            found = self.call("GET", f"{self.listed}?per_page={EACH}&page={page}")
            yield from found
            if len(found) < EACH:
                return

    def call(self, method: str, address: str, data: Mapping[str, Any] | None = None) -> Any:
        """The answer; raises InputError with what the forge says."""
        return _call(method, self.api + address, self.headers, data)


def _call(
    method: str, address: str, headers: Mapping[str, str], data: Mapping[str, Any] | None = None
) -> Any:
    if urllib.parse.urlsplit(address).scheme not in ("http", "https"):
        raise InputError(f"not an address: {address!r:.200}")
    sent = None if data is None else json.dumps(data).encode()
    request = urllib.request.Request(address, sent, dict(headers), method=method)
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return json.loads(answer.read(MAX_BYTES) or b"null")
    except urllib.error.HTTPError as error:
        kind = Forbidden if error.code in (401, 403) else InputError
        raise kind(f"{method} {address}: {error.code} {error.reason}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{method} {address}: {error}") from None


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise InputError(f"{name} is not set: it is where a comment would go")
    return value


def github() -> Forge:
    """The pull request that the running job is about, by GitHub's own variables and GITHUB_TOKEN.

    Nothing that a pull request can write is asked which one that is.
    """
    api = os.environ.get("GITHUB_API_URL", "https://api.github.com")
    repository = f"/repos/{_variable('GITHUB_REPOSITORY')}"
    headers = {
        "Authorization": f"Bearer {_variable('GITHUB_TOKEN')}",
        "Accept": "application/vnd.github+json",
        "Content-Type": "application/json",
        "User-Agent": "aggverify",
    }
    number = _number(api + repository, headers)
    return Forge(
        api + repository,
        headers,
        f"/issues/{number}/comments",
        lambda comment: f"/issues/comments/{comment}",
        "PATCH",
        _written_by(_login(api, headers)),
    )


def _login(api: str, headers: Mapping[str, str]) -> str | None:
    """Of whose token it is; None for a job's own, which may not ask."""
    try:
        user = _call("GET", f"{api}/user", headers)
    except InputError:
        return None
    return user.get("login") if isinstance(user, dict) else None


def _written_by(login: str | None) -> Callable[[Mapping[str, Any]], bool]:
    """Which comments are that one's, or a bot's: anybody may write one with our marker, which is
    left alone."""

    def is_ours(comment: Mapping[str, Any]) -> bool:
        user = comment.get("user")
        if not isinstance(user, dict):
            return False
        return user.get("type") == "Bot" if login is None else user.get("login") == login

    return is_ours


def _number(address: str, headers: Mapping[str, str]) -> int:
    """Of the pull request: in its own event; in the event of a workflow that followed one, the open
    pull request whose head is the commit that was checked."""
    event = read_json(Path(_variable("GITHUB_EVENT_PATH")), "an event", MAX_BYTES)
    if isinstance(event, dict) and isinstance(event.get("pull_request"), dict):
        return int(event["pull_request"]["number"])
    run = event.get("workflow_run") if isinstance(event, dict) else None
    if not isinstance(run, dict):
        raise InputError("the event is neither a pull request nor a workflow that followed one")
    if not isinstance(run.get("head_repository"), dict):  # null once a fork is deleted
        raise InputError("the fork that the pull request came from is gone: there is no comment")
    owner, branch = run["head_repository"]["owner"]["login"], run["head_branch"]
    head = urllib.parse.quote(f"{owner}:{branch}", safe="")
    for pull in _call("GET", f"{address}/pulls?state=open&head={head}", headers):
        if pull["head"]["sha"] == run["head_sha"]:
            return int(pull["number"])
    raise InputError(f"no open pull request has {run['head_sha']!r:.80} as its head")


def gitlab() -> Forge:
    """The merge request of the running job, by GitLab's variables and AGGVERIFY_GITLAB_TOKEN."""
    api, project = _variable("CI_API_V4_URL"), _variable("CI_PROJECT_ID")
    request = _variable("CI_MERGE_REQUEST_IID")
    headers = {
        "PRIVATE-TOKEN": _variable("AGGVERIFY_GITLAB_TOKEN"),
        "Content-Type": "application/json",
    }
    me = _call("GET", f"{api}/user", headers)["id"]
    notes = f"/merge_requests/{request}/notes"
    return Forge(
        f"{api}/projects/{project}",
        headers,
        notes,
        lambda note: f"{notes}/{note}",
        "PUT",
        lambda note: isinstance(note.get("author"), dict) and note["author"].get("id") == me,
    )


FORGES: Mapping[str, Callable[[], Forge]] = {"github": github, "gitlab": gitlab}
