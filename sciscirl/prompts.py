"""From what may be seen of a paper to the messages that ask about it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Final, Literal, get_args

from sciscirl.contracts import CONTRACTS, ContractName, contract_keys, render_answer
from sciscirl.errors import PromptError
from sciscirl.mini_examples import MINI_EXAMPLES, MiniExample
from sciscirl.prompt_texts import (
    ANSWER,
    CHECKLIST,
    CLOSING,
    CONFIDENCE_RULE,
    EXAMPLES,
    MEANING,
    QUESTION,
    QUESTIONS,
    RECORD,
    SUBJECT,
    SUM_RULE,
    TASK,
    UNSEEN,
    WORDS_RULES,
)
from sciscirl.task import TARGETS, VOCABULARIES, PaperView, TargetName

PromptStyle = Literal["plain", "ontology", "checklist"]
STYLES: Final[tuple[PromptStyle, ...]] = get_args(PromptStyle)

# What may begin a special token of some tokenizer (<|im_start|>, </s>, <0x0A>, [INST]), what would end a line for
# someone, and halves of surrogate pairs. "p < 0.05", "p<0.05" and "[12]" stay as they are.
_ESCAPED: Final = re.compile(r"<(?!\s|=|\d+(?:\.\d+)?(?![\w>]))|\[(?=/?[A-Za-z_])|[\x7f-\x9f\u2028\u2029\ud800-\udfff]")
# A word, or a piece of one: text without spaces can be cut too.
_PIECE: Final = re.compile(r"\S{1,40}")
_CUT: Final = " …"


def render_prompt(
    view: PaperView, style: PromptStyle, contract: ContractName, target: TargetName = "disruption"
) -> list[dict[str, str]]:
    r"""Write the messages that ask for one paper's label, or for two.

    Args:
        view: what may be seen of the paper.
        style: ``"plain"`` names the labels, ``"ontology"`` also defines them, ``"checklist"`` adds questions to ask
            oneself and three invented examples.
        contract: which keys the answer must have.
        target: which labels are asked for.

    Returns:
        A system and a user message, each with ``role`` and ``content``. The system message is the same for every
        paper. The paper is one line of JSON in the user message, which no text of it can end or step out of.

    Raises:
        PromptError: if style, contract or target is unknown.

    Example:
        >>> view = PaperView("On <|im_end|> tokens", "p < 0.05", 2001, 3, None)
        >>> system, user = render_prompt(view, "plain", "two_keys")
        >>> system["role"], user["role"]
        ('system', 'user')
        >>> print(user["content"].splitlines()[1])
        {"title": "On \u003c|im_end|> tokens", "abstract": "p < 0.05", "publication_year": 2001, "cited_by_count": 3,
        "primary_field": null}
    """
    if style not in STYLES or contract not in CONTRACTS or target not in TARGETS:
        msg = (
            f"prompt style {style!r} with contract {contract!r} and target {target!r} does not exist. Styles: "
            f"{', '.join(STYLES)}; contracts: {', '.join(CONTRACTS)}; targets: {', '.join(TARGETS)}."
        )
        raise PromptError(msg)
    columns = TARGETS[target]
    parts = [_render_task(contract, target)]
    if style != "plain":
        parts += [MEANING[column] for column in columns]
    if style == "checklist":
        questions = [question for column in columns for question in QUESTIONS[column]] + [
            _choose(CLOSING, contract, target)
        ]
        parts.append("\n".join([CHECKLIST, *(f"{number}. {text}" for number, text in enumerate(questions, 1))]))
    parts.append(ANSWER.format(rules=_render_rules(contract, target)))
    if style == "checklist":
        parts += [EXAMPLES, *(_render_example(example, contract, target) for example in MINI_EXAMPLES)]
    question = RECORD.format(record=render_record(view), question=render_question(contract, target))
    return [{"role": "system", "content": "\n\n".join(parts)}, {"role": "user", "content": question}]


def render_question(contract: ContractName, target: TargetName) -> str:
    """Write what ends a prompt.

    Example:
        >>> render_question("four_keys", "joint")
        'Which labels fit this paper?'
    """
    return _choose(QUESTION, contract, target)


def _render_task(contract: ContractName, target: TargetName) -> str:
    names = [_either([*VOCABULARIES[column]]) for column in TARGETS[target]]
    ask = _choose(TASK, contract, target).format(labels="; and ".join(names))
    return f"{SUBJECT[target]} {UNSEEN[target]} {ask}"


def _render_rules(contract: ContractName, target: TargetName) -> str:
    rules = {column: _either([f'"{label}"' for label in VOCABULARIES[column]]) for column in TARGETS[target]}
    rules |= {**WORDS_RULES, "confidence": _choose(CONFIDENCE_RULE, contract, target)}
    lines = [f"- {key}: {rules.get(key, CONFIDENCE_RULE['one'])}" for key in contract_keys(contract, target)]
    return "\n".join([*lines, SUM_RULE[target]] if contract == "probabilities" else lines)


def _choose(texts: Mapping[str, str], contract: ContractName, target: TargetName) -> str:
    """Pick what fits the answer: probabilities, two labels, or one label."""
    if contract == "probabilities":
        return texts["probabilities"]
    return texts["two" if len(TARGETS[target]) > 1 else "one"]


def _either(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def render_record(view: PaperView) -> str:
    r"""Write what may be seen of a paper as one line of JSON that holds no tokenizer's special tokens.

    Reading the JSON gives the text back unchanged. What could be taken for markup by a tokenizer or a chat template
    is written as a JSON escape: line ends, ``<`` and ``[`` where letters or marks follow.

    Example:
        >>> print(render_record(PaperView("[INST] a\nb", None, 2001, 3, None)))
        {"title": "\u005bINST] a\nb", "abstract": null, "publication_year": 2001, "cited_by_count": 3,
        "primary_field": null}
    """
    return escape_markup(json.dumps(asdict(view), ensure_ascii=False))


def escape_markup(text: str) -> str:
    r"""Write what could be taken for markup as JSON escapes; in the strings of a JSON text they mean the same.

    Example:
        >>> print(escape_markup('{"a": "1 < 2 <|im_end|>"}'))
        {"a": "1 < 2 \u003c|im_end|>"}
    """
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def cap_view(view: PaperView, n_tokens: int, count_tokens: Callable[[str], int]) -> PaperView:
    """Shorten the abstract until the paper's record has no more than ``n_tokens`` tokens.

    The abstract loses whole words from its end and gains ``…``; words of more than 40 characters, and scripts without
    spaces, are cut every 40 characters. Everything else is kept.

    Args:
        view: what may be seen of the paper.
        n_tokens: for the record as the prompt shows it; the rest of a prompt has a length of its own.
        count_tokens: the number of tokens of a text, by the tokenizer of the model.

    Returns:
        The same view if it fits, else one with a shorter abstract.

    Raises:
        PromptError: if the record does not fit even without its abstract.

    Example:
        >>> view = PaperView("Title", "one two three four", 2001, 3, None)
        >>> cap_view(view, 13, count_tokens=lambda text: len(text.split())).abstract
        'one two three four'
        >>> cap_view(view, 12, count_tokens=lambda text: len(text.split())).abstract
        'one two …'
    """

    def fits(candidate: PaperView) -> bool:
        return count_tokens(render_record(candidate)) <= n_tokens

    if fits(view):
        return view
    abstract = view.abstract or ""
    ends = [match.end() for match in _PIECE.finditer(abstract)]
    # Of the cuts that fit, the last: found by halving, since a longer text has more tokens. The cut that was kept was
    # itself counted, so that a tokenizer that is not quite monotonous costs a word at worst, never the cap.
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high) // 2
        if fits(replace(view, abstract=abstract[: ends[middle]] + _CUT)):
            low = middle + 1
        else:
            high = middle
    capped = replace(view, abstract=abstract[: ends[low - 1]] + _CUT if low else "")
    if low == 0 and not fits(capped):
        needed = count_tokens(render_record(capped))
        msg = (
            f"a paper's record has {needed:,} tokens without its abstract, the cap is {n_tokens:,}. Raise the cap; "
            f"the title begins {(view.title or '')[:60]!r}."
        )
        raise PromptError(msg)
    return capped


def _render_example(example: MiniExample, contract: ContractName, target: TargetName) -> str:
    readings = {column: example.readings[column] for column in TARGETS[target]}
    is_forecast = contract == "probabilities"
    answer = render_answer(
        {column: reading.label for column, reading in readings.items()},
        contract,
        target,
        # One confidence for two labels is that both are right.
        confidence=example.confidence if is_forecast else round(example.confidence ** len(readings), 2),
        justification=" ".join(reading.justification for reading in readings.values()),
        signals=[signal for reading in readings.values() for signal in reading.signals],
    )
    return f"{render_record(example.view)}\n{answer}"
