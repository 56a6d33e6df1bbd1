"""How many samples of each class of each task the memory holds. Integers only.

The capacity is shared evenly over the tasks seen so far, and the share of each task evenly over its classes. Two tasks,
or two classes of one task, then differ by at most one sample, unless a limit forces more. Samples of old tasks are gone
once dropped, so an old class can keep or lose places, but never gain any.
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

    Args:
        capacity: places in the memory (B).
        classes_per_task: number of classes of each task.
        previous: the quotas of the previous stage (one task fewer); no old class exceeds them.
        available: number of samples that exist of each class of each task.

    Returns one list per task with one quota per class, in the order given; the first ones absorb a remainder. The sum
    is the capacity, or all that is available if that is less.

    >>> [sum(task) for task in balanced_quotas(500, [10, 10, 10])]
    [166, 167, 167]
    >>> balanced_quotas(5, [2, 2], previous=[[3, 2]])
    [[1, 2], [1, 1]]
    """
    tasks = len(classes_per_task)
    if capacity < 0:
        raise InputError(f"A memory holds 0 samples or more; got a capacity of {capacity}.")
    if any(classes < 1 for classes in classes_per_task):
        raise InputError(f"Every task must have one class or more; got {list(classes_per_task)}.")
    limits = [[capacity] * classes for classes in classes_per_task]
    for name, table in (("previous", previous), ("available", available)):
        for task, row in enumerate(table or []):
            if task >= tasks or len(row) != classes_per_task[task]:
                raise InputError(f"{name}[{task}] does not match classes_per_task={list(classes_per_task)}.")
            limits[task] = [min(limit, n) for limit, n in zip(limits[task], row, strict=True)]
    # Task quotas first, then the quota of each task over its classes, by the same rule.
    shares = share(capacity, [sum(row) for row in limits])
    return [share(total, row) for total, row in zip(shares, limits, strict=True)]


def share(total: int, limits: Sequence[int]) -> list[int]:
    """Split ``total`` evenly into one part per limit, none above its limit.

    Every part starts as q = total/n, rounded half to even. The difference δ = total − n·q is settled by adding or
    subtracting one unit per part, starting with the first. A part above its limit passes its surplus on, unit by unit,
    to the smallest part that is below its limit, the next one in a ring if several are equal.

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
