"""Tables with a filter, an expiry or an LRU bound, simulated id by id over a whole log."""

import collections


def lru(ids, rows):
    """Share of occurrences that find their id in a table that keeps the `rows` used last."""
    kept = collections.OrderedDict()
    found = 0
    for key in ids:
        if key in kept:
            found += 1
            kept.move_to_end(key)
        else:
            kept[key] = None
            if len(kept) > rows:
                kept.popitem(last=False)
    return found / len(ids)


def admission(ids, threshold):
    """Ids get a row at their `threshold`-th occurrence.

    Returns rows and distinct ids at the end, share of occurrences whose id has a row once they are
    counted, and share of those whose id had one before.
    """
    counts = collections.Counter()
    trained = found = 0
    for key in ids:
        found += counts[key] >= threshold
        counts[key] += 1
        trained += counts[key] >= threshold
    rows = sum(count >= threshold for count in counts.values())
    return rows, len(counts), trained / len(ids), found / len(ids)


def time_to_live(ids, ids_per_step, steps):
    """Before each step of `ids_per_step` ids, rows not used for more than `steps` steps go.

    Returns the most rows after any step that would stay at that age, those left after the last
    step, and the share of occurrences that find their id.
    """
    used = collections.OrderedDict()
    found = most = 0
    for step in range(-(-len(ids) // ids_per_step)):
        while used and step - next(iter(used.values())) > steps:
            used.popitem(last=False)
        for key in ids[step * ids_per_step : (step + 1) * ids_per_step]:
            found += key in used
            used[key] = step
            used.move_to_end(key)
        most = max(most, len(used))
    return most, len(used), found / len(ids)
