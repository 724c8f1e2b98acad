"""What the controller does about devices of different models: tests are collected for the first one, workers on another
one collect for themselves, and here the lists are compared.

A suite may collect by what its device can do, and skip by it. What a model does not have, or skips, runs on the others.
What only another model has is no item of this run: pytest reports what its own process has collected.
"""

from ondol.fleet import journal, messages
from ondol.fleet.controller.losses import Action
from ondol.fleet.schedule import Scheduler


def listed(event: messages.Listed, scheduler: Scheduler, *, chosen: bool) -> list[Action]:
    """Each worker tells; the first of its model is compared. All of them wait to hear that they may go on."""
    held = [scheduler.devices[name] for name in scheduler.devices_of(event.slot)]
    models = {(device.node, device.model, len(held) > 1) for device in held}
    if len(models) != 1 or models <= scheduler.compared:
        # With devices of several models at once, what it has not is an error when it is run.
        return [messages.Resume(event.slot)]
    scheduler.compared |= models
    ((node, model, several),) = models
    alike = [d.name for d in scheduler.devices.values() if (d.node, d.model) == (node, model)]
    works, there = scheduler.works.values(), set(event.ids)
    # What needs several devices may be collected only where there are several.
    ours = {work.nodeid: work.index for work in works if work.devices and (work.devices > 1) == several}
    missing = [nodeid for nodeid in ours if nodeid not in there]
    only = [] if chosen else sorted(there - {work.nodeid for work in works})
    told = {
        "of this run's items are not collected there and run on other devices only": missing,
        "items are collected only there and do not run (they do where its devices are named first)": only,
    }
    parts = [f"{len(found)} {what}, the first is {found[0]}" for what, found in told.items() if found]
    notes = [journal.Note(f"{model} ({', '.join(alike)}) collects other tests: {'; '.join(parts)}")] if parts else []
    skipped = [ours[nodeid] for nodeid in event.skipped if nodeid in ours]
    asked = scheduler.differs(frozenset(alike), [ours[nodeid] for nodeid in missing], skipped)
    return [*notes, *asked, messages.Resume(event.slot)]
