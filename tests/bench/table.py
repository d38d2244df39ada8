"""Result lines of benches as a Markdown table. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

VERDICTS = ("ok", "slow")  # what a bench says that has measured something right

# What of a line the table shows; all of it is in the line. A name not among these shows every number of its own.
SHOWN = {
    "burst": ("append_p50_s", "append_p99_s", "append_max_s", "visible_p99_s", "ratio_to_bare_producer", "rss_mb"),
    "load": ("accepted_per_s", "node_cpu_us_per_command", "rss_mb"),
    "peer_nats": (
        "ours_append_p99_s", "nats_append_p99_s", "ours_load_per_s", "nats_load_per_s", "nats_skipped", "rss_mb_max",
    ),
    "restart": (
        "warm_first_dispatch_s", "killed_first_dispatch_s", "cold_first_dispatch_s", "cold_first_ready_s",
        "cold_all_ready_s", "cold_schedules_per_s_and_process", "cold_cpu_us_per_schedule",
        "store_bytes_per_schedule", "rss_mb_max",
    ),
    "costs": (
        "lateness_p99_s", "command.kafka_bytes", "command.node_cpu_us", "firing.kafka_bytes", "firing.node_cpu_us",
        "cores_at_rate", "broker_cores_at_rate", "idle_cores", "idle_transactions_per_s", "markers_per_firing",
    ),
    "bulk_load": (
        "accepted_per_s", "punctual_p99_s", "punctual_max_s", "rss_mb_max", "store_bytes_per_schedule",
    ),
    "fairness": (
        "small_alone_p99_s", "small_burst_p99_s", "small_times_alone", "small_later_s", "big_p99_s", "punctual_p99_s",
    ),
    "independence": (
        "few_append_p99_median_s", "many_append_p99_median_s", "ratio", "few_idle_cores", "many_idle_cores",
    ),
    "durability": (
        "one_append_p99_s", "three_append_p99_s", "three_append_p99_s_ratio", "three_load_per_s_ratio",
        "killed_in_load_append_p99_s", "killed_in_burst_append_p99_s", "lost", "duplicates",
    ),
}  # fmt: skip
NOT_FIGURES = {"bench", "verdict", "count", "processes", "shards", "kind"}


class Row(NamedTuple):
    """One bench: its module and arguments, its result line, the seconds it took."""

    module: str
    arguments: str
    result: dict[str, Any]
    seconds: float

    @property
    def failed(self) -> bool:
        """Whether it measured nothing, or something wrong."""
        return self.result.get("verdict", "ok") not in VERDICTS


def table(rows: Iterable[Row]) -> str:
    """The table, a line each, with a last newline."""
    lines = ["| bench | figures | verdict | took |", "|---|---|---|---|"]
    for row in rows:
        name = f"`{row.module} {row.arguments}`".replace(" `", "`")
        figures = "; ".join(f"{key} {value}" for key, value in figures_of(row.result))
        lines.append(f"| {name} | {figures} | {row.result.get('verdict', '')} | {row.seconds:.0f} s |")
    return "\n".join(lines) + "\n"


def figures_of(result: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What to show of a line: (name, text). `a.b` is b of the object a; what a line does not have is left out."""
    shown = SHOWN.get(str(result.get("bench")))
    if shown is None:
        shown = tuple(k for k, v in result.items() if k not in NOT_FIGURES and isinstance(v, (int, float)))
    for name in shown:
        value: Any = result
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            yield name, str(value)
