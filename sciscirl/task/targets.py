"""Find the task that a name means: in a release, which may have its own label or only some labels, or in a record."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from sciscidata.own_label import OwnLabel, stated_label
from sciscirl.errors import ReleaseError
from sciscirl.task.papers import (
    PAIRS,
    SEEN,
    TARGETS,
    NarrowTarget,
    OwnTarget,
    Target,
    TargetName,
    list_labels,
    short_name,
)
from sciscirl.task.release import open_release, read_rows


def choose_target(name: str, release_folder: str | Path) -> Target:
    """Return the task of a name; an own label is named in full, without its ending, or as ``"label"``."""
    if name in TARGETS:
        return cast("TargetName", name)
    if name == PAIRS:
        return PAIRS
    release = open_release(release_folder)
    label = stated_label(release.manifest)
    names = [*TARGETS, PAIRS, *([] if label is None else [short_name(label.name)])]
    if label is None or name not in ("label", label.name, short_name(label.name)):
        raise ReleaseError(
            f"target is {name!r}, and {release_folder} has {', '.join(names)}. Choose one of these, or build a release "
            "with a label of this name (OwnLabel)."
        )
    # By the training papers if there are some: who is judged by dev does not open test.
    split = next((one for one in release.splits if release.manifest["sides"][one]["rows"]), "train")
    rows = read_rows(release, split)
    return OwnTarget(label, [name for name in SEEN if rows[name].is_null().all()])


def narrow_target(target: Target, release_folder: str | Path) -> Target:
    """Return disruption or novelty with the labels that a release was drawn of; every other task as it is.

    In the joint task, and where there is no release to read, all labels stay.
    """
    if isinstance(target, OwnTarget | NarrowTarget) or len(TARGETS[target]) > 1:
        return target
    split: dict[str, Any] = {}
    with suppress(ReleaseError):  # reading its papers says so
        split = open_release(release_folder).manifest["split"]
    (every,) = list_labels(target).values()
    labels = [label for label in every if label in split.get("labels", ())]
    is_drawn = split.get("balance", "").startswith(("joint", target)) and 1 < len(labels) < len(every)
    return NarrowTarget(target, labels) if is_drawn else target


def read_own_target(facts: object) -> OwnTarget:
    """Make a task from what ``OwnTarget.to_json`` wrote, as text or read (ValueError: it is something else)."""
    known = json.loads(facts) if isinstance(facts, str) else facts
    if not isinstance(known, dict) or set(cast("dict[str, object]", known)) != {"name", "classes"}:
        raise ValueError("needs the name and the classes of a label")
    label = cast("dict[str, Any]", known)
    if (label["name"], tuple(label["classes"])) == (PAIRS.label.name, PAIRS.label.classes):
        return PAIRS
    return OwnTarget(OwnLabel(name=label["name"], classes=label["classes"], column=label["name"]))
