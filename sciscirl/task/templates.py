"""Prompts of one's own: templates over what a prompt may show of a paper. No score and no label can be named in one.

A template has ``$`` names, as ``string.Template`` has them. Nothing in it is evaluated. A name is replaced by its text,
once, so no text of a paper can ask for another.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from string import Template
from types import MappingProxyType
from typing import Annotated, Final

from msgspec import Meta

from sciscidata.options.checks import check_fields
from sciscidata.terminal.messages import suggest
from sciscirl.errors import PromptError
from sciscirl.task.contracts import ContractName
from sciscirl.task.papers import SEEN, PaperView, Target, View, hide_fields
from sciscirl.task.prompts import (
    STYLES,
    escape_markup,
    render_parts,
    render_prompt,
    render_question,
    render_record,
)
from sciscirl.task.registry import add_entry

#: What a user message may show of a paper: its record as one line of JSON, or single fields as JSON.
PAPER_NAMES: Final = ("record", *SEEN)
#: What both messages may say about the task, in the words of the built-in prompts.
TASK_NAMES: Final = (*render_parts("two_keys", "disruption"), "question")
_Text = Annotated[str, Meta(min_length=1)]


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptTemplate:
    """A prompt of one's own: two texts with ``$`` names.

    The user message shows the paper: ``$record``, or some of ``$title``, ``$abstract``, ``$publication_year``,
    ``$cited_by_count`` and ``$primary_field``, each as JSON. Both messages may use ``$task``, ``$definitions``,
    ``$checklist``, ``$answer``, ``$examples`` and ``$question``, which follow contract and target. ``$$`` is a dollar.

    Raises:
        PromptError: on construction, if a message asks for anything else, or the system message shows a paper. Or the
            user message shows none, or the same twice.

    Example:
        >>> PromptTemplate(name="leak", system="$task", user="$record $cd_index")
        Traceback (most recent call last):
        ...
        sciscirl.errors.PromptError: prompt 'leak': its user message asks for $cd_index, which no prompt can show. ...
    """

    name: str
    system: _Text
    user: _Text

    def __post_init__(self) -> None:
        check_fields(self, PromptError)
        self._names("system", TASK_NAMES)
        shown = Counter(of_paper := self.shown)
        if not of_paper or len(of_paper) > len(set(of_paper)) or ("record" in shown and len(of_paper) > 1):
            found = " ".join(f"${name}" for name in of_paper) or "nothing of it"
            raise PromptError(
                f"prompt {self.name!r}: its user message shows {found}. Needs the paper once: $record, or some of "
                f"{_list(SEEN)}."
            )

    @property
    def shown(self) -> list[str]:
        """What the user message shows of the paper, among PAPER_NAMES."""
        return [name for name in self._names("user", (*PAPER_NAMES, *TASK_NAMES)) if name in PAPER_NAMES]

    def _names(self, message: str, allowed: tuple[str, ...]) -> list[str]:
        """Return the names that a message asks for, checked."""
        found: list[str] = []
        text: str = getattr(self, message)
        for match in Template.pattern.finditer(text):
            name = match["named"] or match["braced"]
            if name in allowed:
                found.append(name)
            elif name is not None or match["invalid"] is not None:
                said = f"${name}" if name else text[match.start() :][:20]
                why = "which no prompt can show" if name not in PAPER_NAMES else "which differs between papers"
                needed = f"Here are allowed {_list(allowed)}, and $$ for a dollar."
                near = suggest(name, allowed)
                raise PromptError(f"prompt {self.name!r}: its {message} message asks for {said}, {why}.{near} {needed}")
        return found

    def filled(self, contract: ContractName, target: Target, hide: Sequence[str] = ()) -> PromptTemplate:
        """Return this prompt with the words of the task in it, so that only names of the paper are left."""
        words = render_parts(contract, target, hide) | {"question": render_question(contract, target)}
        words = {name: text.replace("$", "$$") for name, text in words.items()}

        def fill(match: re.Match[str]) -> str:
            return words.get(match["named"] or match["braced"], match[0])

        system, user = (Template.pattern.sub(fill, text) for text in (self.system, self.user))
        return PromptTemplate(name=self.name, system=system, user=user)

    def render(
        self, view: View, contract: ContractName, target: Target, hide: Sequence[str] = ()
    ) -> list[dict[str, str]]:
        """Write the messages about one paper, without the fields in ``hide``: system, then user."""
        whole, view = self.filled(contract, target, hide), hide_fields(view, hide)
        single = {name: escape_markup(json.dumps(value, ensure_ascii=False)) for name, value in asdict(view).items()}
        user = Template(whole.user).substitute(single, record=render_record(view))
        return [
            {"role": "system", "content": Template(whole.system).substitute()},
            {"role": "user", "content": user},
        ]

    @property
    def sha256(self) -> str:
        """The SHA-256 of both texts."""
        return hashlib.sha256(json.dumps([self.system, self.user]).encode()).hexdigest()


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(f"${name}" for name in names)


_OWN: Final[dict[str, PromptTemplate]] = {}
#: The prompts of ``register_prompt``, by name.
OWN_PROMPTS: Final[Mapping[str, PromptTemplate]] = MappingProxyType(_OWN)


def list_styles() -> tuple[str, ...]:
    """List the names of all prompts: the built-in ones, then those of ``register_prompt``."""
    return (*STYLES, *OWN_PROMPTS)


def register_prompt(name: str, *, system: str, user: str) -> PromptTemplate:
    """Add a prompt of your own, for this process; presets and options name it as ``style``. Runs record it whole.

    Args:
        name: by which presets and options name it.
        system: the system message, the same for every paper.
        user: the user message, which shows the paper.

    Raises:
        PromptError: the name is taken by another prompt, or a text asks for what no prompt can show. That is scores,
            labels and everything else that is not in the record of a paper.

    Example:
        >>> prompt = register_prompt("brief", system="$task $answer", user="$title")
        >>> view = PaperView("On $cd_index", None, 2001, 3, None)
        >>> prompt.render(view, "two_keys", "disruption")[1]["content"]
        '"On $cd_index"'
    """
    prompt = PromptTemplate(name=name, system=system, user=user)
    if name in STYLES:
        raise PromptError(f"there is another prompt {name!r}. Choose another name.")
    add_entry(_OWN, name, prompt, "prompt", PromptError)
    return prompt


def describe_prompt(
    style: str, own: PromptTemplate | None, contract: ContractName, target: Target, hide: Sequence[str] = ()
) -> PromptTemplate:
    """Return any prompt as a template that needs nothing but the paper, for the record of a run.

    Example:
        >>> described = describe_prompt("plain", None, "two_keys", "disruption")
        >>> view = PaperView("On sleep", None, 2001, 3, None)
        >>> described.render(view, "two_keys", "disruption") == render_prompt(view, "plain", "two_keys")
        True
    """
    if own is not None:
        return own.filled(contract, target, hide)
    nothing = PaperView(None, None, None, None, None)
    system, user = (message["content"] for message in render_prompt(nothing, style, contract, target, hide))
    user = user.replace("$", "$$").replace(render_record(nothing), "$record")
    return PromptTemplate(name=style, system=system.replace("$", "$$"), user=user)
