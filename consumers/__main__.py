"""`python -m consumers`: the example consumer. One JSON line for each occurrence it handled, repeats left out."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from consumers.handler import nothing
from consumers.ledger import Ledger
from consumers.worker import Handled, Worker
from topics.catalog import Catalogue

if TYPE_CHECKING:
    from collections.abc import Sequence

ADDRESS: Final = "SCHEDULER_KAFKA__BOOTSTRAP_SERVERS"

EPILOG: Final = """\
examples:
  python -m consumers --bootstrap 127.0.0.1:9092 --lane default --group demo
  python -m consumers --lane reports --group billing --ledger /var/lib/billing/ledger.sqlite \\
      --set security.protocol=SASL_SSL --set sasl.mechanism=SCRAM-SHA-512 ...

Ctrl-C or SIGTERM ends it after the occurrence in hand. Kill it and start it again: nothing is handled twice.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until stopped; 0 when stopped in order, 2 when called wrongly."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if not options.bootstrap:
        parser.error(f"no broker given: use --bootstrap HOST:PORT or set {ADDRESS}")
    try:
        topics = Catalogue(namespace=options.namespace, lanes=(options.lane,)).dispatch_topics()
        kafka = {"bootstrap.servers": options.bootstrap, **dict(_pair(text) for text in options.set)}
    except ValueError as error:
        parser.error(str(error))
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")

    ends: list[str] = []  # no event: setting one in a signal handler may wait for a lock for ever
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ends.append("signal"))
    count = repeats = 0
    with Ledger(options.ledger) as ledger:
        worker = Worker(kafka, group=options.group, handler=nothing, ledger=ledger)
        for handled in worker.run(topics, lambda: bool(ends)):
            if handled.repeat:
                repeats += 1
                continue
            sys.stdout.buffer.write(_line(handled) + b"\n")
            sys.stdout.buffer.flush()
            count += 1
            if options.max and count >= options.max:
                ends.append("max")
    print(f"{count} handled, {repeats} repeats recognised", file=sys.stderr)  # noqa: T201 - the summary
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m consumers",
        description="An example consumer of dispatch topics: read_committed, deduplicates on occurrence_id.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--bootstrap", default=os.environ.get(ADDRESS, ""), help=f"brokers (default: ${ADDRESS})")
    parser.add_argument("--lane", default="default", help="the lane whose four topics to read (default: default)")
    parser.add_argument("--group", default="demo", help="consumer group (default: demo)")
    parser.add_argument("--namespace", default="", help="prefix of the cluster's topic names (default: none)")
    parser.add_argument("--ledger", type=Path, default=Path("consumer-ledger.sqlite"), help="file of handled ids")
    parser.add_argument("--max", type=int, default=0, metavar="N", help="stop after N occurrences")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="any librdkafka setting")
    return parser


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"--set {text!r}: expected NAME=VALUE, as in --set security.protocol=SSL")
    return name, value


def _line(handled: Handled) -> bytes:
    dispatch = handled.dispatch
    line = {
        "occurrence_id": dispatch.occurrence_id,
        "scheduled_for": dispatch.scheduled_for,
        "lag_ms": _lag_ms(handled),
        "handler": dispatch.handler,
        "payload": dispatch.payload,
        "topic": handled.topic,
        "partition": handled.partition,
        "offset": handled.offset,
    }
    if isinstance(dispatch.payload, msgspec.UnsetType):
        del line["payload"]  # none was given, which is not the same as null
    # The payload is as its producer wrote it, line feeds between its parts included: here it has to fit one line.
    return msgspec.json.format(msgspec.json.encode(line), indent=-1)


def _lag_ms(handled: Handled) -> int | None:
    """None for an instant that is none: somebody else wrote to the topic, and that is no reason to stop."""
    try:
        scheduled = datetime.fromisoformat(handled.dispatch.scheduled_for)
        enqueued = datetime.fromtimestamp(handled.enqueued_ms / 1000, UTC)
        return round((enqueued - scheduled).total_seconds() * 1000)
    except (ValueError, TypeError):
        return None


if __name__ == "__main__":
    sys.exit(main())
