"""Replies for people: one line when all is well, every mistake on a line of its own when not. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from typing import Any

    from topics.messages import Reply


def as_lines(reply: Reply) -> list[str]:
    """The reply as text: the verdict, then mistakes, warnings, counts and the preview, indented."""
    state = f", {reply.state}" if reply.state and reply.status == "accepted" else ""
    revision = f", version {reply.version}, revision {reply.revision}" if reply.version is not None else ""
    dry = " (dry run, nothing was changed)" if reply.dry_run else ""
    lines = [f"{reply.schedule_id}: {reply.code}{state}{revision}{dry}: {reply.message}"]
    lines += [f"  error    {problem.field or '(whole)'}: {problem.message}" for problem in reply.errors]
    lines += [f"  warning  {problem.field or '(whole)'}: {problem.message}" for problem in reply.warnings]
    if reply.counts:
        lines.append("  settled  " + ", ".join(f"{count} {what}" for what, count in sorted(reply.counts.items())))
    if reply.occurrence_id:
        lines.append(f"  occurrence  {reply.occurrence_id}")
    for planned in reply.preview:
        jitter = "" if planned.available_at == planned.scheduled_for else f"  available {planned.available_at}"
        lines.append(f"  next     {planned.scheduled_for}{jitter}")
    return lines


def as_json(reply: Reply, **place: object) -> dict[str, Any]:
    """The reply as it stands on the topic, with where its command was read from."""
    return {**msgspec.to_builtins(reply), **place}
