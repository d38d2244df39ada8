"""A real Apache Kafka on this machine, without installing one: for the demo, for tests, for a first look.

`Broker.start()` brings up one node (or three) on the loopback address in about a second, from jars kept in the user's
cache and a Java installed with the package, and ends them with the program that asked. `scheduler broker start` leaves
one running. Nothing here knows the scheduler, and nothing here imports a Kafka client.

| module | holds |
|---|---|
| `broker` | `Broker`: start, stop, kill, restart, attach |
| `node` | one Java process and its folder |
| `settings` | the layout and the configuration files, as values |
| `jars`, `java`, `archive` | what a node runs on: pinned jars, a Java, a class archive for quick starts |
| `ports`, `probe` | free ones; is it ready? one request over a plain socket |
| `recovery` | what a killed broker leaves behind, and how it is forgotten |
| `guard` | the process that ends a cluster whose program is gone |
| `errors` | `BrokerUnavailable`: what, why, what next |
"""

from scheduler.local.broker import Broker, default_data_dir
from scheduler.local.errors import BrokerUnavailable

__all__ = ["Broker", "BrokerUnavailable", "default_data_dir"]
