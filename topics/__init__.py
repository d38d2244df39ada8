"""The contracts: everything anybody needs to speak to the scheduler over Kafka. Imports neither of the other packages.

    scheduler.commands ──► shard ──► dispatch.<lane>.<priority>      what to run
      (anyone)               │  ├──► scheduler.replies              the answer to each command
                             │  ├──► scheduler.occurrences          what was not simply dispatched, and why
                             │  ├──► scheduler.schedule-history     every revision, with who and why
                             │  └──► scheduler.rejected             input that could not be taken
                             └─────► scheduler.schedules, .live, .shards    compacted: the state itself

`catalog` has every topic with its settings and their reasons, `messages` every value, `codec` the way from bytes to
values, `partition` the way from a key to a shard. Five modules need a broker: `client` (sends commands and waits for
the replies), `reading` and `since` (topics as values, whole or from an instant on), `tables` (rows of the small tables
that operators own), `admin` (plan and apply). `README.md` beside this file is the same for readers, printed from these
modules.
"""

from topics.catalog import Catalogue, TopicSpec
from topics.codec import Undecodable, decode, encode, split_command
from topics.partition import partition_for

__all__ = ["Catalogue", "TopicSpec", "Undecodable", "decode", "encode", "partition_for", "split_command"]
