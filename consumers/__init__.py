"""The worker's side: what a consumer of dispatch topics must do to be safe, and an example that does it.

The idempotence contract
------------------------
The scheduler puts each occurrence on its dispatch topic once, for a reader with `isolation.level=read_committed`. Kafka
hands a record to a consumer *at least* once: after a crash or a rebalance, what was handled but not yet committed as an
offset comes again. The business effect happens exactly once if, and only if, the consumer

1. reads with `isolation.level=read_committed` (most clients' default shows aborted copies) and
   `auto.offset.reset=earliest` (a new group starts with what already waits);
2. recognises a repeat by `occurrence_id`, which is the same after every retry, crash and replay;
3. commits the effect and the `occurrence_id` in **one** transaction of **one** database, shared by every worker of the
   group: two databases can disagree after a crash, two workers' private ledgers do after a rebalance;
4. lets the offset follow the effect, never the other way round;
5. remembers ids at least as long as the topic keeps records (the lane's retention), plus a margin.

An effect outside of that database (a mail, an HTTP call) cannot be part of the transaction: hand the `occurrence_id` on
as the other side's idempotency key.

`handler` says what a handler is, `ledger` does points 2, 3 and 5 with SQLite, `worker` points 1 and 4 with Kafka;
`python -m consumers --help` runs them. Nothing here imports `scheduler`: the topics are the whole interface.
"""

from consumers.handler import Handler
from consumers.ledger import Ledger
from consumers.worker import Handled, Worker

__all__ = ["Handled", "Handler", "Ledger", "Worker"]
