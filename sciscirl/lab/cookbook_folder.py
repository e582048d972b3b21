"""The folder of a run that the cookbook's own loop wrote, without ``train_preset``."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, cast

from sciscidata.release.release import MANIFEST
from sciscidata.storage.small_files import read_whole
from sciscidata.storage.sums import read_json
from sciscirl.runs.folder import COOKBOOK_FILE

#: Of our builder. A run that began before it had parts has their settings beside its own.
_PARTS = ("task", "order", "choice")


def read_cookbook(folder: Path) -> dict[str, Any] | None:
    """Read the facts of a run from the cookbook's ``config.json``, if any; ``target`` is None without our builder."""
    try:
        config = cast("dict[str, Any]", read_json(folder / COOKBOOK_FILE))
        papers: dict[str, Any] = config["dataset_builder"]
        papers = papers.get("papers", papers)  # of supervised training
        papers = papers | {name: value for part in _PARTS for name, value in papers.get(part, {}).items()}
        model = {"name": "cookbook", "model": config["model_name"], "learning_rate": config["learning_rate"]}
        target = papers.get("target")
        own = {name: target["label"][name] for name in ("name", "classes")} if isinstance(target, dict) else {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    manifest = Path(str(papers.get("release"))) / MANIFEST
    kept = ("lora_rank", "max_tokens", "temperature", "renderer_name")
    settings: dict[str, Any] = {name: config[name] for name in kept if config.get(name) is not None} | papers | model
    settings |= {"renderer": settings.get("renderer_name"), "load_checkpoint": config.get("load_checkpoint_path")}
    settings |= {"prompt": papers.get("own_prompt"), "reward_table": papers.get("own_reward")}
    settings |= {"backend": "tinker"} if "lr_schedule" in config else {}  # of supervised training
    settings |= {"target": own["name"], "own_label": own} if own else {}
    if "release" not in papers:
        return {"settings": settings | {"target": None}, "release": {}}
    release = {"manifest_sha256": hashlib.sha256(read_whole(manifest)).hexdigest()} if manifest.is_file() else {}
    return {"settings": settings, "release": release, "release_folder": manifest.parent.name}
