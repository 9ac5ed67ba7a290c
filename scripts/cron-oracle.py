"""Says when cron series come round, independently of the broker.

croniter lists the times of the wall clock that an expression names, and zoneinfo makes instants of
them by the two rules that docs/SCHEDULING.md states: a time that the clocks skip is the first
instant after the gap, and a time that they show twice is the first of the two.

Reads lines of tab-separated fields: zone, expression, then one window after the other as
`after:until:max`, in epoch seconds. Answers each line with the instants in every window, later than
`after` and not later than `until`, at most `max`, in epoch seconds; windows are separated by ` | `.
A line whose expression names no time is answered with `never`, one that is no expression with
`invalid`.
"""

import heapq
import multiprocessing
import re
import sys
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

from croniter import CroniterBadDateError, CroniterError, croniter

# Clocks are put back by an hour at most, so what is shown twice lies at most this far back.
LOOK_BACK = timedelta(minutes=61)


def epoch(moment):
    return int(moment.timestamp())


def offset_at(zone, seconds):
    return datetime.fromtimestamp(seconds, zone).utcoffset()


def instant(zone, wall):
    """The instant at which the clocks of the zone show `wall`, in epoch seconds."""
    first = wall.replace(tzinfo=zone, fold=0)
    shown = first.astimezone(timezone.utc).astimezone(zone).replace(tzinfo=None)
    if shown == wall:
        return epoch(first)
    # In a gap. Read with the offset of afterwards it lies before the change, with the other behind.
    low = epoch(wall.replace(tzinfo=zone, fold=1))
    high = epoch(first)
    new = offset_at(zone, high)
    while high - low > 1:
        middle = (low + high) // 2
        if offset_at(zone, middle) == new:
            high = middle
        else:
            low = middle
    return high


def listed(expression, start):
    """The times of the wall clock that an expression names after `start`."""
    *times, day, month, weekday = expression.split()
    if day != "*" and weekday != "*":
        # Either day field is enough. croniter is asked twice: with FRI#2 or 5L it wants both, and with
        # 31 February in one field it looks no further.
        by_day = " ".join([*times, day, month, "*"])
        by_weekday = " ".join([*times, "*", month, weekday])
        return heapq.merge(listed(by_day, start), listed(by_weekday, start))
    return named(expression, start)


def named(expression, start):
    walls = croniter(expression, start, second_at_beginning=True)
    try:
        while True:
            yield walls.get_next(datetime)
    except CroniterBadDateError:
        # It names none, as 30 February.
        return


def window(zone, expression, after, until, limit):
    start = datetime.fromtimestamp(after, zone).replace(tzinfo=None) - LOOK_BACK
    walls = listed(expression, start)
    found = []
    while len(found) < limit:
        wall = next(walls, None)
        if wall is None:
            return None
        time = instant(zone, wall)
        if time > until:
            break
        if time > after and (not found or found[-1] < time):
            found.append(time)
    return found


def translated(expression):
    """The last Friday of a month is 5L for the broker and L5 for croniter."""
    fields = expression.split()
    fields[-1] = re.sub(r"\b(\d)L\b", r"L\1", fields[-1])
    return " ".join(fields)


def answer(line):
    name, expression, *windows = line.rstrip("\n").split("\t")
    zone = ZoneInfo(name)
    parts = []
    try:
        for text in windows:
            after, until, limit = map(int, text.split(":"))
            found = window(zone, translated(expression), after, until, limit)
            if found is None:
                return "never"
            parts.append(" ".join(map(str, found)))
    except CroniterError:
        return "invalid"
    return " | ".join(parts)


def main():
    with multiprocessing.Pool() as pool:
        for text in pool.imap(answer, sys.stdin, chunksize=16):
            print(text)


if __name__ == "__main__":
    main()
