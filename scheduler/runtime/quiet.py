"""The Kafka client's own words, not all of them: without a broker each client says the same 20 times a second."""

from __future__ import annotations

import logging
import re

CLIENT_LOGGERS = ("kafka", "topics.kafka")
AGAIN_S = 10.0  # the same words are shown so often, with how many were left out
MOST_TEXTS = 500  # remembered at a time, so that memory is bounded whatever the client says

_number = re.compile(r"\d+").sub


class Repeats(logging.Filter):
    """Lets each message of the client through once in `AGAIN_S`, numbers in it apart; our own events always."""

    def __init__(self) -> None:
        super().__init__()
        self._shown: dict[str, tuple[float, int]] = {}  # text -> when it was last shown, how many were left out since

    def filter(self, record: logging.LogRecord) -> bool:
        """See `logging.Filter`. Time is the record's own."""
        if record.name not in CLIENT_LOGGERS:
            return True
        said = record.getMessage()
        text = _number("#", said)
        at, left_out = self._shown.get(text, (record.created - AGAIN_S, 0))
        if 0 <= record.created - at < AGAIN_S:
            self._shown[text] = (at, left_out + 1)
            return False
        if len(self._shown) >= MOST_TEXTS:
            self._shown.clear()
        self._shown[text] = (record.created, 0)
        if left_out:
            record.msg, record.args = "%s (%d like this were left out)", (said, left_out)
        return True
