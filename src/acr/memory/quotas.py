"""How many samples of each class of each task the memory holds. Integers only.

The paper's section on buffer balance: the capacity is shared evenly over the tasks seen so far, and each task's share
evenly over its classes, so that two tasks, or two classes of one task, never differ by more than the unit that cannot
be split. Samples of old tasks are gone once dropped, so an old class can keep or lose places, never gain them.
"""

from __future__ import annotations

from collections.abc import Sequence

from acr.errors import InputError


def balanced_quotas(
    capacity: int,
    classes_per_task: Sequence[int],
    previous: Sequence[Sequence[int]] | None = None,
    available: Sequence[Sequence[int]] | None = None,
) -> list[list[int]]:
    """Quota of every class of every task seen so far; the last task is the new one.

    ``previous`` is the answer of the stage before (one list fewer): no old class exceeds it. ``available`` tells how
    many samples of each class there are at all. Remainders go to the classes in the order they are listed in. The sum
    is the capacity, or all that is available if that is less.

    >>> [sum(task) for task in balanced_quotas(500, [10, 10, 10])]
    [166, 167, 167]
    >>> balanced_quotas(5, [2, 2], previous=[[3, 2]])
    [[1, 1], [2, 1]]
    """
    tasks = len(classes_per_task)
    if capacity < 0:
        raise InputError(f"A memory holds 0 samples or more; got a capacity of {capacity}.")
    if any(classes < 1 for classes in classes_per_task):
        raise InputError(f"Every task has a class or more; got {list(classes_per_task)}.")
    limits = [[capacity] * classes for classes in classes_per_task]
    for name, table in (("previous", previous), ("available", available)):
        for task, row in enumerate(table or []):
            if task >= tasks or len(row) != classes_per_task[task]:
                raise InputError(f"{name}[{task}] does not match classes_per_task={list(classes_per_task)}.")
            limits[task] = [min(limit, n) for limit, n in zip(limits[task], row, strict=True)]
    shares = share(capacity, [sum(row) for row in limits])
    return [share(total, row) for total, row in zip(shares, limits, strict=True)]


def share(total: int, limits: Sequence[int]) -> list[int]:
    """Split ``total`` evenly into parts, none above its limit.

    Every part is total/n rounded half to even; what that is too little or too much is settled by one unit a part,
    first parts first. A part above its limit passes the surplus on, unit by unit, to the parts that follow it in a
    ring, the smallest first, so that the parts stay as equal as the limits allow.

    >>> share(500, [500] * 6)
    [84, 84, 83, 83, 83, 83]
    >>> share(10, [2, 9, 9])
    [2, 4, 4]
    """
    n = len(limits)
    parts = [round(total / n)] * n
    remainder = total - sum(parts)
    for index in range(abs(remainder)):
        parts[index] += 1 if remainder > 0 else -1
    for index in range(n):
        surplus = parts[index] - limits[index]
        parts[index] = min(parts[index], limits[index])
        followers = [*range(index + 1, n), *range(index)]
        for _ in range(surplus):
            below = [follower for follower in followers if parts[follower] < limits[follower]]
            if not below:
                break
            parts[min(below, key=parts.__getitem__)] += 1
    return parts
