"""Every command line on a page has a command, flags and choices that its program knows, whether it runs here or not.

Also those within a sentence, which may leave out what a command needs.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path

from tests.conftest import REPOSITORY
from tests.docs.test_examples import PAGES
from tests.parse_only import ask

_TEXTS = [*PAGES, *(REPOSITORY / name for name in ("CONTRIBUTING.md", "SECURITY.md", "data/README.md", "justfile"))]
_TEXTS += [*sorted((REPOSITORY / "benchmarks").glob("*.md")), *sorted((REPOSITORY / "benchmarks/notes").glob("*.md"))]
_TEXTS += [*sorted((REPOSITORY / "notebooks").glob("*.ipynb"))]
#: What may stand before a program.
_BEFORE = r"(?:[A-Z_]+=\S*|time|nohup|accelerate|launch|--multi_gpu|--num_processes|\d|-P|-m|(?:\S*/)?python3?)"


def read_page(page: Path) -> str:
    """Return what a page says; of a notebook, what stands between its code."""
    text = page.read_text("utf-8")
    if page.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return f"```bash\n{text}```\n" if page.name == "justfile" else text


def find_commands(text: str) -> Iterator[tuple[list[str], bool]]:
    """Find the programs of this repository that a page starts, their words, and whether some may be left out."""
    code = "".join(re.findall(r"^ *```(?:bash|sh)\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)).replace("\\\n", " ")
    lines = [(line, False) for line in expand(code).splitlines()]
    sentences = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    lines += [(code.replace("\\|", "|"), True) for code in re.findall(r"`([^`]+)`", sentences)]
    for line, within in lines:
        words = shlex.shlex(line, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        try:
            parts = [[*part] for ends, part in groupby(words, lambda word: not word.strip("();<>|&")) if not ends]
        except ValueError:  # half a quotation
            continue
        for part in parts:
            while part and re.fullmatch(_BEFORE, part[0]):
                del part[0]
            program = find_program(part[0]) if part else None
            rest = [word for word in part[1:] if not word.startswith(("${", "{{"))]
            if program and (rest or not within):
                yield [program, *rest], within or len(rest) < len(part) - 1


def expand(code: str) -> str:
    """Put the values of variables in their places; a line is repeated for each value."""
    values: dict[str, list[str]] = {}
    for name, quoted, bare in re.findall(r"""(?<!\S)([A-Z_]+)=(?:"([^"]*)"|([^\s$]\S*))""", code):
        values.setdefault(name, []).append(quoted or bare)
    for name, known in values.items():
        place = re.compile(rf"\${name}\b")
        lines = (
            [place.sub(value, line) for value in known] if place.search(line) else [line] for line in code.splitlines()
        )
        code = "\n".join(line for same in lines for line in same)
    return code


def find_program(word: str) -> str | None:
    """Return what ``tests.parse_only`` starts by the first word of a command; None: no program of this repository."""
    if re.fullmatch(r"(\S*/)?(sciscidata|sciscirl)", word):
        return Path(word).name
    places = [word] if "/" in word else [f"benchmarks/{word}", f"benchmarks/judgement/{word}"]
    return next((place for place in places if word.endswith(".py") and (REPOSITORY / place).exists()), None)


def complaints(texts: Mapping[str, str]) -> dict[str, str]:
    """Return what programs say against command lines in texts, by text and line."""
    found = {(name, *words): (words, partly) for name, text in texts.items() for words, partly in find_commands(text)}
    answers = zip(found.items(), ask(words for words, _ in found.values()), strict=True)
    return {
        shlex.join(line): said
        for (line, (_, partly)), said in answers
        if said and not (partly and re.search("required|needs a value", said))
    }


def test_a_command_on_a_page_has_flags_and_choices_that_its_program_knows():
    texts = {page.relative_to(REPOSITORY).as_posix(): read_page(page) for page in _TEXTS}
    assert sum(len([*find_commands(text)]) for text in texts.values()) > 200
    assert not complaints(texts)


def test_a_command_with_a_flag_or_choice_that_is_gone_is_noticed_wherever_it_stands():
    page = """
    Type `sciscidata cd CORPUS --widow 3`, `sciscirl train` or `benchmarks/scale.py --size 1M`.

    | `cd_index.py --sizes S` | `sciscidata null-cd CORPUS --null rewird` |

```bash
MODEL="--modell tiny" && sciscidata verify slices/mine  # --strict
time python -m sciscidata build --source nowhere | tee log
sciscirl train preset=exp4 release=slices/mine \\
    $MODEL
.venv/bin/python scripts/train_rl.py --release slices/mine presett=exp4
sciscirl trai
```
"""
    wrong = ["nowhere", "--modell", "presett", "trai", "--widow", "--size", "--sizes", "rewird"]
    said = [f"{line} ".replace("=", " ") for line in complaints({"page": page})]
    assert [[word for word in wrong if f" {word} " in line] for line in said] == [[word] for word in wrong]
