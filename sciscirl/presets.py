"""Presets: the published experiments and our own, each a named set of options.

``presets.toml`` holds those that come with the package, with their sources. A preset of your own is a TOML file of the
same form (``read_preset_file``) or a call of ``register_preset``. Values that the notes do not state are marked.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, cast

from sciscidata.options.checks import check_value
from sciscidata.options.did_you_mean import find_unknown, suggest
from sciscidata.storage.small_files import SETTINGS_BYTES, decode_text, read_whole
from sciscidata.terminal.messages import align_columns
from sciscirl.errors import SciSciRLError, with_own_names
from sciscirl.task.experiment import SETTINGS, AdversarialRules, Preset
from sciscirl.task.papers import PAIRS, NarrowTarget, OwnTarget, list_labels
from sciscirl.task.prompts import STYLES, PromptTemplate
from sciscirl.task.registry import add_entry
from sciscirl.task.rewards import ADJACENT, BUILT_IN, NUMBERS, REWARDS, RewardTable, change_reward, find_reward
from sciscirl.task.rules import Task, TaskRules
from sciscirl.task.targets import read_own_target

_PRESETS: Final[dict[str, Preset]] = {}
_ALIASES: Final[dict[str, str]] = {}
#: Every experiment by name: those of presets.toml in its order, then those of ``register_preset``.
PRESETS: Final[Mapping[str, Preset]] = MappingProxyType(_PRESETS)
#: What runs showed of papers before they stated it: all that the release had, and nothing that a paper built on.
UNSTATED: Final[Mapping[str, Any]] = MappingProxyType({"hide": [], "show": [], "as_of": "release"})
#: Names that say what an experiment is about.
ALIASES: Final[Mapping[str, str]] = MappingProxyType(_ALIASES)
#: The numbers of a reward, as options and flat settings name them.
REWARD_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        **{f"reward_{name}": name for name in NUMBERS if name not in {"class_weights", "is_balanced", "share_penalty"}},
        "class_weights": "class_weights",
        "balanced": "is_balanced",
        "share_penalty": "share_penalty",
    }
)
#: What ``lay_over`` can change, except for names and nested tables.
CHANGES: Final = (*SETTINGS, *REWARD_NAMES)


def find_preset(name: str) -> Preset:
    """Return the preset of a name, of an alias, or of a TOML file (``my.toml``).

    Raises:
        SciSciRLError: if no preset has that name, or the file does not describe one.

    Example:
        >>> find_preset("two_keys").name
        'exp4'
        >>> find_preset("exp44")
        Traceback (most recent call last):
        ...
        sciscirl.errors.SciSciRLError: no preset 'exp44'. Did you mean exp4? Presets are baseline, exp1, exp2, exp3, ...
    """
    if name.endswith(".toml"):
        return read_preset_file(Path(name))
    if name not in PRESETS and name not in ALIASES:
        near = suggest(name, (*PRESETS, *ALIASES))
        raise SciSciRLError(
            f"no preset {name!r}.{near} Presets are {', '.join(PRESETS)}. A file of your own ends in .toml."
        )
    return PRESETS[ALIASES.get(name, name)]


def read_preset_file(path: Path) -> Preset:
    """Read a preset of one's own: a TOML file with ``base`` and what differs from it.

    ``[reward]`` holds numbers of a reward, ``[prompt]`` the texts ``system`` and ``user``, ``[adversarial]``
    AdversarialRules.
    """
    content = _read_toml(path)
    try:
        return make_preset(content.pop("name", path.stem), **content)
    except SciSciRLError as error:
        error.args = (f"{path}: {error}",)
        raise


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(decode_text(read_whole(path, SETTINGS_BYTES)))
    except OSError as error:
        raise SciSciRLError(f"{path} cannot be read: {error.strerror}. Check the path.") from error
    except (ValueError, RecursionError) as error:
        raise SciSciRLError(
            f'{path} is no TOML file: {error}. Write names and values, such as base = "exp4".'
        ) from error


def register_preset(name: str, *, base: str = "baseline", **changes: Any) -> Preset:  # noqa: ANN401 (checked)
    """Add a preset of your own to PRESETS, for this process. Runs record it whole.

    Args:
        name: by which ``TrainOptions(preset=...)`` finds it.
        base: the preset that it changes.
        changes: as in a preset file: fields of Preset and TaskRules, and ``reward``, ``prompt`` and ``adversarial`` as
            dicts.

    Raises:
        SciSciRLError: the name is taken by another preset, or a change is unknown, impossible or has no effect.

    Example:
        >>> register_preset("exp4", base="exp3", style="plain")
        Traceback (most recent call last):
        ...
        sciscirl.errors.SciSciRLError: there is another preset 'exp4'. Choose another name.
    """
    preset = make_preset(name, base=base, **changes)
    if name in ALIASES:
        raise SciSciRLError(f"{name} is another name of {ALIASES[name]}. Choose another name.")
    add_entry(_PRESETS, name, preset, "preset", SciSciRLError)
    return preset


def make_preset(name: str, /, *, base: str = "baseline", **changes: Any) -> Preset:  # noqa: ANN401 (checked)
    """Return a preset of one's own, as ``register_preset`` without adding it."""
    base = check_value("the base of a preset", base, str, SciSciRLError)
    preset = replace(find_preset(base), name=check_value("the name of a preset", name, str, SciSciRLError), base=base)
    changes = with_own_names(changes)
    nested = {
        key: cast("Mapping[str, Any]", changes.pop(key))
        for key in ("reward", "prompt", "adversarial")
        if isinstance(changes.get(key), Mapping)
    }
    for key, allowed in {"": CHANGES, "prompt": ("system", "user"), "adversarial": _ADVERSARIAL_NAMES}.items():
        where = f"[{key}] of a preset" if key else "a preset"
        if msg := find_unknown(nested.get(key, {}) if key else changes, allowed, where=where):
            raise SciSciRLError(msg)
    if "prompt" in nested:
        texts = {text: str(nested["prompt"].get(text, "")) for text in ("system", "user")}
        preset = preset.with_settings(style=name, own_prompt=PromptTemplate(name=name, **texts))
    if "reward" in nested:
        _refuse_reward(preset, "reward")
        numbers = dict(nested["reward"])
        of = check_value("the base of a reward", numbers.pop("base", preset.rules.reward), str, SciSciRLError)
        table = preset.rules.table if of == preset.rules.reward else find_reward(of)
        own_name = check_value("the name of a reward", numbers.pop("name", name), str, SciSciRLError)
        preset = _with_reward(preset, change_reward(table, numbers, own_name))
    told = [f"own {key}" for key in nested] + [f"{key} {value}" for key, value in changes.items()]
    changed = lay_over(preset, {"change": ", ".join(told)} | changes)
    if "adversarial" in nested:
        rules = changed.adversarial or AdversarialRules()
        changed = replace(changed, adversarial=replace(rules, **nested["adversarial"]))
    return changed


_ADVERSARIAL_NAMES: Final = tuple(one.name for one in fields(AdversarialRules))


def lay_over(preset: Preset, changes: Mapping[str, Any]) -> Preset:
    """Return a preset with changes by name, one of CHANGES each; one without effect is an error.

    Example:
        >>> changed = lay_over(find_preset("exp4"), {"reward": "soft", "reward_wrong": -0.1, "batch_size": 4})
        >>> changed.rules.reward, changed.order.batch_size
        ('soft(wrong=-0.1)', 4)
        >>> lay_over(find_preset("exp4"), {"class_weights": {"novel": 3}})
        Traceback (most recent call last):
        ...
        sciscirl.errors.SciSciRLError: class_weights of 'novel' has no effect: the labels are disruptive, ...
    """
    own = {name: changes[name] for name in SETTINGS if name in changes}
    numbers = {own: changes[name] for name, own in REWARD_NAMES.items() if name in changes}
    for name in ("reward", *REWARD_NAMES):
        if name in changes:
            _refuse_reward(preset, name)
    if own.get("target") == PAIRS:
        own["target"] = PAIRS  # of its name, as a file has it
    for name, whole in (("style", "own_prompt"), ("reward", "own_reward")):
        if own.get(name, getattr(preset.rules, name)) != getattr(preset.rules, name):
            own[whole] = None
    own |= {
        name: tuple(own[name].items())
        for name in ("loss_fn_config", "kl_reference_config")
        if isinstance(own.get(name), Mapping)
    }
    if own.get("learning_rate") == "auto":
        own["learning_rate"] = recommend_learning_rate(own.get("model", preset.model))
    if own.get("loss_fn", preset.optimiser.loss_fn) != preset.optimiser.loss_fn:
        own.setdefault("loss_fn_config", ())
    preset = preset.with_settings(**own)
    if numbers:
        preset = _with_reward(preset, change_reward(preset.rules.table, numbers, target=preset.rules.target))
        _check_effect(preset, numbers)
    return preset


def recommend_learning_rate(model: str) -> float:
    """Return the learning rate of an adapter by the cookbook's rule, from family and width of the model."""
    from tinker_cookbook.hyperparam_utils import get_lr  # loads Transformers

    try:
        return get_lr(model)
    except (ValueError, OSError, NotImplementedError, AssertionError) as error:
        raise SciSciRLError(
            f"learning_rate is auto, for which the cookbook has no rule for {model} ({' '.join(str(error).split())}). "
            "Give a number, such as 4e-05."
        ) from error


def _refuse_reward(preset: Preset, name: str) -> None:
    if preset.adversarial is not None:
        raise SciSciRLError(
            f"{name} has no effect: preset {preset.name!r} is adversarial, and pays by its rules. Leave it out."
        )


def _with_reward(preset: Preset, table: RewardTable) -> Preset:
    own = None if REWARDS.get(table.name) == table else table
    return preset.with_settings(reward=table.name, own_reward=own)


def _check_effect(preset: Preset, numbers: Mapping[str, Any]) -> None:
    """Refuse numbers of a reward that no paper of the task can meet."""
    labels = [label for words in list_labels(preset.rules.target).values() for label in words]
    table = preset.rules.table
    strange = [label for label, _ in table.class_weights if label not in labels]
    if "class_weights" in numbers and strange:
        raise SciSciRLError(
            f"class_weights of {strange[0]!r} has no effect: the labels are {', '.join(labels)}. Leave it out."
        )
    if numbers.get("adjacent") is not None and not any(said in labels for said, _ in ADJACENT):
        raise SciSciRLError(
            f"adjacent credit has no effect: none of {', '.join(labels)} lies next to another. Leave it out."
        )


def render_presets() -> str:
    """Write the presets as a table for a terminal, one line each."""
    head = ("name", "also", "from", "labels", "prompt", "contract", "reward", "max_tokens", "batch x group", "change")
    rows = [
        (
            preset.name,
            find_alias(preset.name),
            preset.base or "",
            preset.rules.target,
            preset.rules.style,
            preset.rules.contract,
            preset.rules.reward if preset.adversarial is None else "adversarial",
            str(preset.max_tokens),
            f"{preset.order.batch_size} x {preset.sampling.group_size}",
            preset.change,
        )
        for preset in PRESETS.values()
    ]
    return "\n".join(align_columns([head, *rows]))


def find_alias(name: str) -> str:
    """Return the other name of a preset, "" if it has none."""
    return next((alias for alias, known in ALIASES.items() if known == name), "")


def describe(preset: Preset) -> dict[str, object]:
    """Return a preset in JSON types, flat, for the record of a run; without class counts, which the release decides."""
    own = {"name": preset.name, "base": preset.base} | preset.list_settings()
    own["loss_fn_config"] = dict(preset.optimiser.loss_fn_config)
    own["kl_reference_config"] = dict(preset.optimiser.kl_reference_config) or None
    challenge = {} if preset.adversarial is None else {"adversarial": asdict(preset.adversarial)}
    return own | challenge | describe_rules(preset.rules)


def describe_rules(rules: TaskRules) -> dict[str, object]:
    """Return labels, contract, prompt and reward in JSON types, the two with their texts and numbers."""
    reward = replace(rules, class_counts=()).table
    table = {name: getattr(reward, name) for name in NUMBERS}
    if reward.function is not None:
        table["function"] = {"name": reward.function.name, "sha256": reward.function.sha256}
    prompt, target = rules.prompt, rules.target
    # So that a run is read without its release.
    own = {"own_label": json.loads(target.to_json())} if isinstance(target, OwnTarget) else {}
    own |= {"labels": [*target.labels]} if isinstance(target, NarrowTarget) else {}
    return {
        **{one.name: getattr(rules, one.name) for one in fields(Task)},
        "target": str(target),
        "hide": [*rules.hide],
        "show": [*rules.show],
        **own,
        "prompt_sha256": prompt.sha256,
        "reward_table": table | {"class_weights": dict(table["class_weights"])},
        "prompt": {"system": prompt.system, "user": prompt.user},
    }


def recall_rules(settings: Mapping[str, Any]) -> TaskRules:
    """Return the rules that ``describe_rules`` described, of a run or an evaluation. The others are the preset's."""
    preset = PRESETS.get(settings.get("name") or settings.get("preset") or "")
    base = preset.rules if preset else TaskRules()
    stated = {**UNSTATED, **settings}
    rules: dict[str, Any] = {one.name: stated[one.name] for one in fields(Task) if stated.get(one.name) is not None}
    if settings.get("own_label") is not None:
        rules["target"] = read_own_target(settings["own_label"])
    if settings.get("labels") is not None:  # of a release that was drawn of these
        rules["target"] = NarrowTarget(rules["target"], settings["labels"])
    style, reward = rules.get("style", base.style), rules.get("reward", base.reward)
    if style not in STYLES and isinstance(texts := settings.get("prompt"), Mapping):
        rules["own_prompt"] = PromptTemplate(name=style, **{key: texts[key] for key in ("system", "user")})
    if reward not in BUILT_IN and isinstance(table := settings.get("reward_table"), Mapping):
        numbers = dict(cast("Mapping[str, Any]", table))
        function = numbers.pop("function", None)
        known = REWARDS[reward] if function and reward in REWARDS else find_reward("strong")
        if function and (known.function is None or known.function.sha256 != function["sha256"]):
            raise SciSciRLError(
                f"the reward {reward!r} is the function {function['name']} (its source has SHA-256 "
                f"{function['sha256']}), which is not registered here. Register it, or name its plugin: plugin=FILE.py."
            )
        rules["own_reward"] = change_reward(known, numbers, reward, rules.get("target"))
    if counts := settings.get("class_counts"):
        rules["class_counts"] = tuple(counts.items())
    return replace(base, **rules)


def recall_preset(settings: Mapping[str, Any]) -> Preset:
    """Return the preset that ``describe`` described, for one of one's own too. What is not stated is the preset's."""
    name = check_value("name", settings.get("name"), str, SciSciRLError)
    preset = PRESETS.get(name) or Preset(name=name, change="")
    own = {key: value for key in (*SETTINGS, "base") if (value := settings.get(key)) is not None}
    own |= {
        name: tuple(own[name].items())
        for name in ("loss_fn_config", "kl_reference_config")
        if isinstance(own.get(name), Mapping)
    }
    rules = recall_rules(settings)
    own |= {one.name: getattr(rules, one.name) for one in fields(rules)}
    preset = preset.with_settings(**own)
    if isinstance(stated := settings.get("adversarial"), Mapping):
        known = {name: stated[name] for name in _ADVERSARIAL_NAMES if name in stated}
        preset = replace(preset, adversarial=AdversarialRules(**known))
    return preset


def _load_built_in() -> frozenset[str]:
    """Add the presets of presets.toml. Return the names of those that are published."""
    published: set[str] = set()
    for name, content in _read_toml(Path(__file__).with_name("presets.toml")).items():
        if content.pop("published", False):
            published.add(name)
        if (alias := content.pop("alias", None)) is not None:
            _ALIASES[alias] = name
        is_first = "base" not in content
        _PRESETS[name] = Preset(name=name, **content) if is_first else make_preset(name, **content)
    return frozenset(published)


#: The experiments of the notes, which were judged on the test split all along.
PUBLISHED: Final = _load_built_in()
