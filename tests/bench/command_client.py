"""Commands a second through `CommandClient.send_many`, against a stand-in for the shards in a process of its own.

`python -m tests.bench.command_client [N]` starts an embedded broker (or takes the one the environment names), sends N
commands (default 100,000) of about 400 bytes and prints one JSON line. `bare_per_s` is what a plain producer of the
same bytes reaches in the same run, its flush included and without any reply.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time

from confluent_kafka import Producer

from tests.bench.contracts import COMMAND
from tests.support.broker import given_or_embedded
from tests.support.responder import Responder
from topics.admin import apply, connect, observe, plan
from topics.catalog import Catalogue
from topics.client import CommandClient


def respond(bootstrap_servers: str, catalogue: Catalogue) -> None:
    """The other process."""
    Responder(bootstrap_servers, catalogue).run()


def bare(bootstrap_servers: str, topic: str, commands: list[dict[str, object]]) -> float:
    """Commands a second of a producer with the same settings and nothing to wait for."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
            "linger.ms": 5,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.list_topics(topic, 10)
    values = [(str(one["schedule_id"]), json.dumps(one, separators=(",", ":"))) for one in commands]
    start = time.perf_counter()
    for key, value in values:
        producer.produce(topic, value, key)
    producer.flush(60)
    return len(commands) / (time.perf_counter() - start)


def main(count: int) -> None:
    for broker in given_or_embedded():
        bootstrap = broker.bootstrap_servers
        catalogue = Catalogue(namespace=f"bench{os.getpid()}.", shards=8)
        topics = {catalogue.commands, catalogue.replies, catalogue.attempts}
        wanted = [spec for spec in catalogue.specs() if spec.name in topics]
        admin = connect({"bootstrap.servers": bootstrap})
        apply(admin, plan(wanted, observe(admin, wanted)))
        commands = [{**COMMAND, "schedule_id": f"acme/job-{n}", "command_id": f"load-{n}"} for n in range(count)]
        bare_rate = bare(bootstrap, catalogue.attempts, commands)

        other = multiprocessing.get_context("spawn").Process(target=respond, args=(bootstrap, catalogue), daemon=True)
        other.start()
        try:
            with CommandClient({"bootstrap.servers": bootstrap}, namespace=catalogue.namespace) as client:
                client.send({**COMMAND, "schedule_id": "acme/first", "command_id": "first"})  # both sides are warm
                one = time.perf_counter()
                client.send({**COMMAND, "schedule_id": "acme/second", "command_id": "second"})
                start, start_cpu = time.perf_counter(), time.process_time()
                answered = sum(reply.status == "accepted" for _, reply in client.send_many(commands))
                took, cpu = time.perf_counter() - start, time.process_time() - start_cpu
        finally:
            other.terminate()
            other.join()
        figures = {
            "bench": "command_client",
            "commands": count,
            "answered": answered,
            "per_s": round(count / took),
            "client_cpu_us_each": round(cpu / count * 1e6, 1),
            "bare_per_s": round(bare_rate),
            "one_round_trip_ms": round((start - one) * 1000, 1),
        }
        print(json.dumps(figures))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
