"""The prompts: how a paper becomes two messages. ``prompts.toml`` has every word that a model reads about the task.

A prompt is a template with ``$`` names: the built-in ones (``[styles]`` in ``prompts.toml``), and those of
``register_prompt``. Nothing in it is evaluated, and no score or label can be named. A name is replaced by its text,
once, so no text of a paper can ask for another. ``presets.toml`` says which prompt an experiment has: exp4 is
``checklist``, ``two_keys``, ``disruption``. A changed word is another experiment, so ``tests/golden/prompts.txt`` pins
every prompt (``UPDATE_GOLDEN=1 pytest tests/sciscirl/task/test_prompts.py``).
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, get_args

import msgspec

from sciscidata.options.checks import check_fields
from sciscidata.options.did_you_mean import suggest
from sciscirl.errors import PromptError
from sciscirl.task.contracts import ContractName, Reasons, contract_keys, render_answer
from sciscirl.task.papers import (
    CONTEXT,
    SEEN,
    VOCABULARIES,
    NarrowTarget,
    OwnTarget,
    PairTarget,
    PairView,
    PaperView,
    Target,
    TargetName,
    View,
    change_view,
    hide_fields,
    list_labels,
)
from sciscirl.task.registry import add_entry

PromptStyle = Literal["plain", "ontology", "checklist"]
STYLES: Final[tuple[PromptStyle, ...]] = get_args(PromptStyle)


@dataclass(frozen=True, slots=True)
class Reading:
    """One label of an invented paper, and the reasons for it."""

    label: str
    justification: str
    signals: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MiniExample:
    """An invented paper and its answer: a reading for each label column, and the confidence in each."""

    view: PaperView
    readings: Mapping[str, Reading]
    confidence: float


_TEXTS: Final[Mapping[str, Any]] = tomllib.loads(Path(__file__).with_name("prompts.toml").read_text("utf-8"))
#: What the labels of a column mean.
MEANING: Final[Mapping[str, str]] = _TEXTS["meaning"]
#: Invented papers, which show what an answer looks like.
MINI_EXAMPLES: Final = msgspec.convert(_TEXTS["examples"], tuple[MiniExample, ...])
_NUMBERS: Final = dict(enumerate(("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"), start=2))
_SHARES: Final = {2: "one half", 3: "one third", 4: "one quarter"}
# What may begin a special token of a tokenizer (<|im_start|>, </s>, <0x0A>, [INST]). Also what some readers take for
# the end of a line, and halves of surrogate pairs. "p < 0.05" and "[12]" stay as they are.
_ESCAPED: Final = re.compile(r"<(?!\s)|\[(?=/?[A-Za-z_])|[\x7f-\x9f\u2028\u2029\ud800-\udfff]")
# A word, or a piece of a long one: so text without spaces can be cut too.
_PIECE: Final = re.compile(r"\S{1,40}")
_CUT: Final = " …"
_AROUND_PAIR: Final = len('{"A": , "B": }')  # bytes, and so tokens at most


def render_parts(contract: ContractName, target: Target, hide: Sequence[str] = CONTEXT) -> dict[str, str]:
    """Write the parts of a system message, in their order; there are no examples of an own label."""
    frame, closing = _TEXTS["frame"], _choose("closing", contract, target)
    examples: list[str] = []
    words = list_labels(target)
    if not isinstance(target, OwnTarget):
        # One for each label: those of labels that are not asked for are left out.
        shown = [one for one in MINI_EXAMPLES if all(one.readings[name].label in words[name] for name in words)]
        examples = [frame["examples"], *(_render_example(one, contract, target, hide) for one in shown)]
    if isinstance(target, OwnTarget | NarrowTarget):
        n = len(next(iter(words.values())))
        closing = closing.format(even=_SHARES.get(n, f"1/{n}"))
    questions = [*_list_questions(target), closing]
    return {
        "task": _render_task(contract, target, hide),
        "definitions": "\n\n".join(_render_meanings(target)),
        "checklist": "\n".join([frame["checklist"], *(f"{n}. {text}" for n, text in enumerate(questions, 1))]),
        "answer": frame["answer"].format(rules=_render_rules(contract, target)),
        "examples": "\n\n".join(examples),
    }


def render_question(contract: ContractName, target: Target) -> str:
    """Write the question that ends a prompt."""
    is_choice = isinstance(target, PairTarget) and contract != "probabilities"
    return _TEXTS["question"]["pairs"] if is_choice else _choose("question", contract, target)


def _render_task(contract: ContractName, target: Target, hide: Sequence[str]) -> str:
    names = [_either([*labels]) for labels in list_labels(target).values()]
    ask = _choose("task", contract, target).format(labels="; and ".join(names))
    own = target.label if isinstance(target, OwnTarget) else None
    hidden = {*hide, *(target.hidden if isinstance(target, OwnTarget) else ())}
    seen = ", ".join(text for name, text in _TEXTS["fields"].items() if name not in hidden)
    unseen = ", ".join(text for name, text in _TEXTS["fields"].items() if name in hidden and name not in CONTEXT)
    record = {"seen": seen, "hidden": f" Not shown, and null there: {unseen}." if unseen else ""}
    question = f" It answers: {_escape_line(own.question)}" if own and own.question else ""
    kind = "pairs" if isinstance(target, PairTarget) else "own" if own else target
    subject, seeing = (_TEXTS[section][kind] for section in ("subject", "unseen"))
    if "references" not in hidden:
        seeing = _TEXTS["unseen_beside_references"].get(kind, seeing)
    return f"{subject.format(question=question)} {seeing.format(**record)} {ask}"


def _render_meanings(target: Target) -> list[str]:
    if isinstance(target, PairTarget):
        return [MEANING["pairs"]]
    if not isinstance(target, OwnTarget):
        return ["\n".join(_leave_out(MEANING[column].split("\n"), target)) for column in list_labels(target)]
    meanings = target.label.meanings
    lines = [f"- {word}: {_escape_line(meanings[word])}" for word in target.label.classes if word in meanings]
    return ["\n".join([MEANING["own"], *lines])] if lines else []


def _list_questions(target: Target) -> list[str]:
    questions = _TEXTS["checklist"]
    if isinstance(target, PairTarget):
        return questions["pairs"]
    if not isinstance(target, OwnTarget):
        return [one for column in list_labels(target) for one in _leave_out(questions[column], target)]
    meanings = {word: _escape_line(target.label.meanings.get(word, "")) for word in target.label.classes}
    asked = [
        questions["own"].format(label=word, meaning=f" ({meaning})" if meaning else "")
        for word, meaning in meanings.items()
    ]
    return [*asked, questions["own_last"]]


def _leave_out(texts: Sequence[str], target: TargetName | NarrowTarget) -> list[str]:
    """Leave out the texts that name a label which is not asked for."""
    others = {label for column, words in list_labels(target).items() for label in {*VOCABULARIES[column]} - {*words}}
    return [text for text in texts if others.isdisjoint(re.findall(r"\w+", text))]


def _render_rules(contract: ContractName, target: Target) -> str:
    rules = {column: _either([f'"{label}"' for label in labels]) for column, labels in list_labels(target).items()}
    rules |= {**_TEXTS["words"], "confidence": _choose("confidence", contract, target)}
    lines = [f"- {key}: {rules.get(key, _TEXTS['confidence']['one'])}" for key in contract_keys(contract, target)]
    if contract != "probabilities":
        return "\n".join(lines)
    if isinstance(target, OwnTarget | NarrowTarget):
        n = len(lines)
        return "\n".join([*lines, _TEXTS["sum"]["own"].format(n=_NUMBERS.get(n, n))])
    return "\n".join([*lines, _TEXTS["sum"][target]])


def _choose(section: str, contract: ContractName, target: Target) -> str:
    """Pick the text for an answer of probabilities, two labels, or one label; other labels may have their own."""
    texts = _TEXTS[section]
    kind = "probabilities" if contract == "probabilities" else "two" if len(list_labels(target)) > 1 else "one"
    return texts.get(f"own_{kind}", texts[kind]) if isinstance(target, OwnTarget | NarrowTarget) else texts[kind]


def _either(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def render_record(view: View) -> str:
    r"""Write what may be seen of a paper, or of two, as one line of JSON without the special tokens of any tokenizer.

    What a tokenizer or chat template could take for markup becomes a JSON escape: reading it gives the text back.

    Example:
        >>> print(render_record(PaperView("[INST] a\nb", None, 2001, 3, None)))
        {"title": "\u005bINST] a\nb", "abstract": null, "publication_year": 2001, "cited_by_count": 3,
        "primary_field": null}
    """
    return escape_markup(json.dumps(_list_shown(view), ensure_ascii=False))


def _list_shown(view: View) -> dict[str, Any]:
    """List by name what may be seen of a paper, or of two: in JSON types, what it built on in words."""
    if isinstance(view, PairView):
        return {"A": _list_shown(view.A), "B": _list_shown(view.B)}
    shown = {name: getattr(view, name) for name in SEEN}
    if view.references is not None or view.at_publication is not None:
        from sciscirl.task.context import describe_context  # which is only shown if asked for

        shown |= describe_context(view)
    return shown


def escape_markup(text: str) -> str:
    r"""Escape what could be taken for markup; inside the strings of a JSON text the escapes mean the same."""
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escape_line(text: str) -> str:
    return escape_markup(" ".join(text.split()))


def cap_view(view: View, n_tokens: int, count_tokens: Callable[[str], int]) -> View:
    """Shorten a paper until its record, as the prompt shows it, has at most ``n_tokens`` tokens.

    References leave from the end of their list. If that is too little, the abstract loses whole words from its end and
    gains ``…``. PromptError if the record does not fit without both. Each of two papers has half of the tokens.

    Example:
        >>> view = PaperView("Title", "one two three four", 2001, 3, None)
        >>> cap_view(view, 13, count_tokens=lambda text: len(text.split())).abstract
        'one two three four'
        >>> cap_view(view, 12, count_tokens=lambda text: len(text.split())).abstract
        'one two …'
    """
    n_each = (n_tokens - _AROUND_PAIR) // 2 if isinstance(view, PairView) else n_tokens

    def fits(candidate: PaperView) -> bool:
        return count_tokens(render_record(candidate)) <= n_each

    def cap(one: PaperView) -> PaperView:
        if fits(one):
            return one
        # Bisection finds the longest cut that fits, since a longer text has more tokens. That cut was itself counted,
        # so the cap always holds. A tokenizer that is not quite monotonous costs a word at worst.
        references = one.references or ()
        cuts = [replace(one, references=references[:n]) for n in range(len(references))]
        if n_fit := bisect_left(cuts, True, key=lambda cut: not fits(cut)):
            return cuts[n_fit - 1]
        one = replace(one, references=one.references and ())
        abstract = one.abstract or ""
        ends = [match.end() for match in _PIECE.finditer(abstract)]
        n_fit = bisect_left(ends, True, key=lambda end: not fits(replace(one, abstract=abstract[:end] + _CUT)))
        capped = replace(one, abstract=abstract[: ends[n_fit - 1]] + _CUT if n_fit else one.abstract and "")
        if n_fit == 0 and not fits(capped):
            needed = count_least(view, count_tokens)
            raise PromptError(
                f"max_paper_tokens={n_tokens} is too few: without its abstract, the record of a paper whose title "
                f"begins {(one.title or '')[:60]!r} needs {needed}. Set max_paper_tokens={needed}."
            )
        return capped

    return change_view(view, cap)


def count_least(view: View, count_tokens: Callable[[str], int]) -> int:
    """Return the lowest cap under which ``cap_view`` can show a paper, or two."""
    parts = [view.A, view.B] if isinstance(view, PairView) else [view]
    least = [replace(one, abstract=one.abstract and "", references=one.references and ()) for one in parts]
    records = map(render_record, least)
    return len(parts) * max(map(count_tokens, records)) + _AROUND_PAIR * (len(parts) - 1)


def _render_example(
    example: MiniExample, contract: ContractName, target: TargetName | NarrowTarget, hide: Sequence[str]
) -> str:
    readings = {column: example.readings[column] for column in list_labels(target)}
    is_forecast = contract == "probabilities"
    answer = render_answer(
        {column: reading.label for column, reading in readings.items()},
        contract,
        target,
        # The confidence in two labels is the probability that both are right.
        confidence=example.confidence if is_forecast else round(example.confidence ** len(readings), 2),
        reasons=Reasons(
            " ".join(reading.justification for reading in readings.values()),
            [signal for reading in readings.values() for signal in reading.signals],
        ),
    )
    return f"{render_record(hide_fields(example.view, hide))}\n{answer}"


#: What a user message may show of a paper: its record as one line of JSON, or single fields as JSON.
PAPER_NAMES: Final = ("record", *SEEN, *CONTEXT)
#: What both messages may say about the task, in the words of the built-in prompts.
TASK_NAMES: Final = ("task", "definitions", "checklist", "answer", "examples", "question")
_Text = Annotated[str, msgspec.Meta(min_length=1)]
_NAME: Final = re.compile(rf"(\s*)(?:{Template.pattern.pattern})", Template.pattern.flags)


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptTemplate:
    """A prompt of one's own: two texts with ``$`` names.

    The user message shows the paper: ``$record``, or some of ``$title``, ``$abstract``, ``$publication_year``,
    ``$cited_by_count``, ``$primary_field``, ``$references`` and ``$at_publication``, each as JSON. The last two need a
    release with context. Both messages may use ``$task``, ``$definitions``, ``$checklist``, ``$answer``, ``$examples``
    and ``$question``, which follow contract and target. ``$$`` is a dollar.

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
                f"{_list(PAPER_NAMES[1:])}."
            )

    @property
    def shown(self) -> list[str]:
        """What the user message shows of the paper, among PAPER_NAMES."""
        return [name for name in self._names("user", (*PAPER_NAMES, *TASK_NAMES)) if name in PAPER_NAMES]

    def _names(self, message: str, allowed: tuple[str, ...]) -> list[str]:
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

    def filled(self, contract: ContractName, target: Target, hide: Sequence[str] = CONTEXT) -> PromptTemplate:
        """Return this prompt with the words of the task in it, so that only names of the paper are left."""
        words = render_parts(contract, target, hide) | {"question": render_question(contract, target)}
        words = {name: text.replace("$", "$$") for name, text in words.items()}

        def fill(match: re.Match[str]) -> str:
            text = words.get(match["named"] or match["braced"])
            return match[0] if text is None else text and match[1] + text

        system, user = (_NAME.sub(fill, text) for text in (self.system, self.user))
        return PromptTemplate(name=self.name, system=system, user=user)

    def render(
        self, view: View, contract: ContractName, target: Target, hide: Sequence[str] = CONTEXT
    ) -> list[dict[str, str]]:
        """Write the messages about one paper, without the fields in ``hide``: system, then user."""
        hide = [name for name in hide if name not in CONTEXT or name not in self.shown]
        whole, view = self.filled(contract, target, hide), hide_fields(view, hide)
        shown = dict.fromkeys(CONTEXT) | _list_shown(view)
        single = {name: escape_markup(json.dumps(value, ensure_ascii=False)) for name, value in shown.items()}
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


_PROMPTS: Final = {
    style: PromptTemplate(name=style, system=system, user=_TEXTS["frame"]["record"])
    for style, system in _TEXTS["styles"].items()
}
#: Every prompt by name: the built-in ones, then those of ``register_prompt``.
PROMPTS: Final[Mapping[str, PromptTemplate]] = MappingProxyType(_PROMPTS)


def find_prompt(style: str) -> PromptTemplate:
    """Return the prompt of a name."""
    if style not in PROMPTS:
        raise PromptError(f"style is {style!r}, needs one of {', '.join(PROMPTS)}.{suggest(style, PROMPTS)}")
    return PROMPTS[style]


def render_prompt(
    view: View, style: str, contract: ContractName, target: Target = "disruption", hide: Sequence[str] = CONTEXT
) -> list[dict[str, str]]:
    """Write the messages that ask about one paper: system, which is the same for every paper, then user.

    Style ``"plain"`` names the labels, ``"ontology"`` also defines them. ``"checklist"`` adds questions that the model
    should ask itself and three invented examples. Fields in ``hide`` are null, in the examples too.
    """
    return find_prompt(style).render(view, contract, target, hide)


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
    add_entry(_PROMPTS, name, prompt, "prompt", PromptError)
    return prompt
