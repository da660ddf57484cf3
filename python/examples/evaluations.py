"""Levels of a river from gauges: known levels are returned immediately, the others are awaited together."""

import asyncio

from thalweg.evaluations import Evaluation, TimedOut, await_fastest, concurrent_proc, on_forgotten, wait

# How long each gauge takes to answer, in seconds.
GAUGES = {"weir": 0.02, "bridge": 0.01, "mouth": 0.03}
known = {"source": 412.0}


@concurrent_proc
async def level(gauge: str) -> float:
    if gauge not in known:
        await wait(GAUGES[gauge])
        known[gauge] = 100.0 * GAUGES[gauge]
    return known[gauge]


async def main() -> None:
    # A known level costs a function call, and needs no running event loop.
    at_source = level.call_nonblock("source")
    assert not isinstance(at_source, Evaluation)
    print(f"the source is at {at_source} m")

    # Unknown levels come later. All three gauges are asked at once.
    asked = [level.call_detached(gauge) for gauge in GAUGES]
    first = await await_fastest(*asked)
    print(f"the first answer is {await first} m")
    print(f"all answers are {[await evaluation for evaluation in asked]}")

    # A wait can have a limit. The evaluation continues until it is concluded.
    known.clear()
    slow = level.call_detached("mouth")
    try:
        await slow.await_result(within=0.001)
    except TimedOut as late:
        print(late)
    slow.conclude_to(3.1)
    print(f"the mouth is at {await slow} m, it was decided")

    # No code awaits this evaluation, so its failure goes to a hook.
    on_forgotten(lambda failure: print(f"forgotten: {failure!r}"))
    level.call_and_forget("harbour")
    await wait(0)


asyncio.run(main())
