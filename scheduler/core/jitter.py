"""Jitter: spreading starts over a window, the same on every node because it is a hash and not a random number."""

from hashlib import blake2b


def available_at(occurrence_id: str, scheduled_for: int, window_ms: int, next_nominal: int | None) -> int:
    """When the occurrence may start: `scheduled_for` plus less than `window_ms`, and before `next_nominal` (ms).

    Staying before the next nominal keeps the order of one schedule's occurrences whatever the window.
    """
    if next_nominal is not None:
        window_ms = min(window_ms, next_nominal - scheduled_for)
    if window_ms <= 0:
        return scheduled_for
    digest = blake2b(occurrence_id.encode(), digest_size=8).digest()
    return scheduled_for + int.from_bytes(digest) % window_ms
