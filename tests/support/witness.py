"""The verifier as a process of its own: it reads committed records as a consumer does, counts, and answers questions.

    python -m tests.support.witness FILE    FILE says where to read and what to expect; questions come on its input

A test and its driver may hang, kill or be wrong; what is counted here comes from the brokers alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.support import verifier
from tests.support.ledger import Counts, Ledger
from tests.support.node import ROOT, Cluster
from tests.support.verifier import Beat, Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from tests.support.verifier import Seen


class Witness:
    """Asks the process. Steady and held schedules: see `tests/support/ledger.py`."""

    def __init__(self, cluster: Cluster, steady: Sequence[Beat], held: Sequence[Beat] = ()) -> None:
        what = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "namespace": cluster.namespace,
            "shards": cluster.shards,
            "lanes": cluster.lanes,
            "steady": [asdict(beat) for beat in steady],
            "held": [asdict(beat) for beat in held],
        }
        path = cluster.folder / f"witness-{id(self)}.json"
        path.write_text(json.dumps(what))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.witness", str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def await_more(self, count: int, words: Callable[[], str] = str, seconds: float = 60.0) -> None:
        """Until so many more dispatches were seen."""
        self._insist({"question": "more", "count": count, "seconds": seconds}, words)

    def await_all(self, words: Callable[[], str] = str, seconds: float = 60.0) -> None:
        """Until each nominal of the steady schedules was seen and each command answered, or nothing new has come for
        so many seconds.
        """
        self._insist({"question": "all", "seconds": seconds}, words)

    def settle(self, seconds: float) -> None:
        """As `await_all`, whatever comes of it: what is lost will be counted."""
        self._ask({"question": "all", "seconds": seconds})

    def count(self) -> Counts:
        """Read to the end, when nobody writes any more, and count."""
        counts = Counts(**self._ask({"question": "count"}))
        counts.silence_ms = {int(shard): ms for shard, ms in counts.silence_ms.items()}
        verifier.report(str(counts))
        return counts

    def _insist(self, question: dict[str, Any], words: Callable[[], str]) -> None:
        answer = self._ask(question)
        assert answer["done"], f"not within {question['seconds']} s: {question}; {answer}\n{words()}"

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the witness ended with {self._process.wait()}"
        return dict(json.loads(line))


class _Reading:
    """The process: one reader of all topics that tell something, one ledger."""

    def __init__(self, path: Path) -> None:
        what = json.loads(path.read_text())
        cluster = Cluster(
            what["bootstrap_servers"], what["namespace"], what["shards"], path.parent, tuple(what["lanes"])
        )
        catalogue = cluster.catalogue
        self._ledger = Ledger([Beat(**b) for b in what["steady"]], [Beat(**b) for b in what["held"]])
        self._takers: dict[str, Callable[[dict[str, Any], Seen], None]] = {
            topic: lambda fields, seen: self._ledger.dispatched(fields, seen.partition, seen.append_ms)
            for topic in catalogue.dispatch_topics()
        }
        self._takers[catalogue.replies] = lambda fields, seen: self._ledger.answered(fields)
        self._takers[catalogue.occurrences] = lambda fields, _: self._ledger.told(fields)
        self._takers[catalogue.commands] = lambda fields, _: self._ledger.commanded(fields)
        self._reader = Reader(cluster, list(self._takers))

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        match question["question"]:
            case "more":
                goal = self._ledger.seen + question["count"]
                done = self._until(lambda: self._ledger.seen >= goal, question["seconds"])
            case "all":
                done = self._until(
                    lambda: not self._ledger.to_come and not self._ledger.unanswered, question["seconds"]
                )
            case _:
                self._reader.read_to_end()
                self._take()
                return self._ledger.result().as_dict()
        still = {"seen": self._ledger.seen, "to_come": self._ledger.to_come, "unanswered": self._ledger.unanswered}
        return {"done": done, **still}

    def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Read until it holds, or nothing has come for so long."""
        end = time.monotonic() + seconds
        while not condition():
            self._reader.read()
            if self._take():
                end = time.monotonic() + seconds
            elif time.monotonic() > end:
                return False
        return True

    def _take(self) -> int:
        count = len(self._reader.seen)
        for seen in self._reader.seen:
            self._takers[seen.topic](seen.fields, seen)
        self._reader.seen.clear()
        return count


def run(path: Path) -> None:
    reading = _Reading(path)
    for line in sys.stdin:
        sys.stdout.write(json.dumps(reading.answer(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    run(Path(sys.argv[1]))
