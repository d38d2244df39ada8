"""Replies for people: one line when all is well, every mistake on a line of its own when not. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from typing import Any

    from topics.messages import Problem, Reply


def as_lines(reply: Reply) -> list[str]:
    """The reply as text: the verdict, then mistakes, warnings, counts and the preview, indented."""
    state = f", {reply.state}" if reply.state and reply.status == "accepted" else ""
    revision = f", version {reply.version}, revision {reply.revision}" if reply.version is not None else ""
    dry = " (dry run, nothing was changed)" if reply.dry_run else ""
    mistakes = f"{len(reply.errors)} mistake{'s' if len(reply.errors) > 1 else ''}"
    lines = [f"{reply.schedule_id}: {reply.code}{state}{revision}{dry}: {mistakes if reply.errors else reply.message}"]
    lines += [f"  error    {_sentence(problem)}" for problem in reply.errors]
    lines += [f"  warning  {_sentence(problem)}" for problem in reply.warnings]
    if reply.counts:
        lines.append("  settled  " + ", ".join(f"{count} {what}" for what, count in sorted(reply.counts.items())))
    if reply.occurrence_id:
        lines.append(f"  occurrence  {reply.occurrence_id}")
    for planned in reply.preview:
        jitter = "" if planned.available_at == planned.scheduled_for else f"  available {planned.available_at}"
        lines.append(f"  next     {planned.scheduled_for}{jitter}")
    return lines


def _sentence(problem: Problem) -> str:
    """The field and what is wrong with it; a parser's message may begin with the field already."""
    if problem.message.startswith(f"{problem.field}:"):
        return problem.message
    return f"{problem.field or '(whole)'}: {problem.message}"


def as_json(reply: Reply, **place: object) -> dict[str, Any]:
    """The reply as it stands on the topic, with where its command was read from."""
    return {**msgspec.to_builtins(reply), **place}
