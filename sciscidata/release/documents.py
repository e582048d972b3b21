"""What a release says of itself to people, hubs and citation tools: README.md (the card), croissant.json, CITATION.cff.

All three follow from the manifest alone: equal releases have equal documents. They describe and prove nothing, so
``verify`` lets a hub or an author change them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, cast

import polars as pl

from sciscidata.disruption.config import COMPAT, CDConfig
from sciscidata.eligibility import list_removed
from sciscidata.own_label import OwnLabel, stated_label, vocabularies
from sciscidata.release.context import AT_PUBLICATION, MOST_REFERENCES, has_context, released_schema
from sciscidata.release.findings import say_classes
from sciscidata.release.manifest import (
    CARD,
    CITATION,
    CROISSANT,
    MANIFEST,
    PICTURES,
    describe_ceiling,
    describe_coverage,
    describe_given_split,
    describe_judged,
    lacks_scores,
    list_left_out,
)
from sciscidata.release.read import SCORES_FILE, list_splits, read_settings
from sciscidata.release.remarks import Remark, find_limits, list_one_sided, list_remarks, read_texts, remark_on_labels
from sciscidata.sampling.manifest_entries import describe_unread, name_eligible
from sciscidata.schemas import AS_PUBLISHED, SCORES, has_own_scores
from sciscidata.terminal.messages import printable

#: What the documents say, whatever the works are: ``documents.toml``.
_SAID: Final[dict[str, Any]] = read_texts()
#: The repository of the code has no fixed address, so the name stands for it.
_MAKER: Final = "The sciscidata authors"
_SIZES: Final = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M"))
_HUB_TYPES: Final[Mapping[pl.DataType, str]] = {
    pl.String(): "string",
    pl.Int32(): "int32",
    pl.Int64(): "int64",
    pl.UInt32(): "uint32",
    pl.Float64(): "float64",
}
#: What may begin markup of Markdown, a formula or a link; at the beginning of a line, a list or a rule too.
_MARKUP: Final = re.compile(r"[\\`*<>\[\]&|$#~@]|(?<!\w)_|_(?!\w)|(?<=\b(?i:www))\.|:(?=//)|^[-+=]|(?<=^\d)[.)]")
#: BibTeX counts braces, also behind a backslash, so each is written as a command.
_TEX: Final = str.maketrans(
    {"\\": r"\textbackslash{}", "{": r"\textbraceleft{}", "}": r"\textbraceright{}", "~": r"\textasciitilde{}"}
    | {"^": r"\textasciicircum{}"}
    | {sign: f"\\{sign}" for sign in "%#$&_"}
)
_KEYWORDS: Final = ("science of science", "CD index", "disruption")
_TAGS: Final = ("science-of-science", "scientometrics", "bibliometrics", "cd-index", "disruption")


#: What a card shows of one work: names and values.
Record: TypeAlias = Sequence[tuple[str, str]]


class Publication(NamedTuple):
    """What is known of a release only when it is published: who made it, when, and where it lies."""

    creators: tuple[str, ...] = ()  # "Family name, Given name"
    date: str | None = None  # YYYY-MM-DD
    url: str | None = None
    repository: str | None = None  # of the Hugging Face Hub: OWNER/NAME


def name_source(source: Mapping[str, Any], unnamed: str = "the source that its manifest names") -> str:
    """Return what a source is called, by its provenance: by its kind, or as it says, without markup."""
    name = _SAID["source_names"].get(str(source.get("kind"))) or source.get("name")
    return " ".join(_MARKUP.sub("", name).split()) if isinstance(name, str) and name else unnamed


def remark_on_release(manifest: Mapping[str, Any]) -> list[Remark]:
    """List what to know of a release: faults of its data, how sure labels are, and what novelty sees."""
    return list_remarks(manifest, name_source(manifest.get("source", {})))


def name_release(manifest: Mapping[str, Any]) -> str:
    """Return the title of a release."""
    return _About(manifest, Publication()).title


def render_documents(
    manifest: Mapping[str, Any], publication: Publication | None = None, record: Record = ()
) -> dict[str, bytes]:
    """Write README.md, croissant.json and CITATION.cff of a release, by name; they repeat without ``publication``.

    ``record`` is a work of the release, for the card.
    """
    about = _About(manifest, publication or Publication())
    texts = {CARD: printable(about.card(record), lines=True), CROISSANT: about.croissant(), CITATION: about.citation()}
    return {name: f"{text.rstrip()}\n".encode() for name, text in texts.items()}


def find_changed_options(cd: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Find the options of a convention that are not the default, and the names of the conventions that have them."""
    usual, names = CDConfig().stated(), [name for name in COMPAT if CDConfig.compat(name).stated() == cd]
    return {name: value for name, value in cd.items() if name != "window_years" and value != usual.get(name)}, names


def describe_pictures(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Say what the pictures of a release show, by file. A trend of novelty by year is no finding, so it is left out."""
    counts, label = manifest.get("counts", {}), stated_label(manifest)
    judged = counts.get("judged") or counts
    columns = {"disruption.png": (judged, "disruption_label"), "novelty.png": (counts, "novelty_label")}
    columns |= {"label.png": (counts, label.name)} if label else {}
    is_synthetic, words = manifest.get("source", {}).get("kind") == "synthetic", vocabularies(label)
    said = {"comparison.png": "CD indices as published, against those computed here"}
    said |= {
        name: say_classes({word: of["eligible"][column][word] for word in words[column]}, is_synthetic=is_synthetic)
        for name, (of, column) in columns.items()
        if "eligible" in of
    }
    known = {name: said.get(name) or name.removesuffix(".png") for name in PICTURES if name != "novelty_by_year.png"}
    return {name: _show_plain(text) for name, text in known.items() if name in manifest["files"]}


def list_references(manifest: Mapping[str, Any]) -> list[str]:
    """List what to cite besides a release, each in a line."""
    names = [
        (", ".join(author["family-names"] for author in work["authors"]), work)
        for work in _About(manifest, Publication()).references()
    ]
    return [f"{authors} ({work['year']}). {work['title']}. doi:{work['doi']}" for authors, work in names]


class _About:
    """What is said of one release, in each of the three documents."""

    def __init__(self, manifest: Mapping[str, Any], publication: Publication) -> None:
        self.manifest, self.publication = manifest, publication
        self.source: dict[str, Any] = manifest.get("source", {})
        self.kind = str(self.source.get("kind"))
        self.licence_name: str = _SAID["licence_of"].get(self.kind, "other")
        self.licence: dict[str, str] = _SAID["licences"][self.licence_name]
        self.rows: dict[str, int] = {split: manifest["sides"][split]["rows"] for split in list_splits(manifest)}
        self.label: OwnLabel | None = stated_label(manifest)
        self.is_novel = bool(manifest["novelty"]["available"])
        what = " and ".join(
            ["disruption", *(["novelty"] if self.is_novel else [])] if self.label is None else [self._own_name()]
        )
        self.is_scored = not lacks_scores(manifest)
        self.is_published = self.is_scored and has_own_scores(self.source)
        self.noun = "works" if self.is_scored else "texts"
        self.data = name_source(self.source) if self.is_scored else name_source(self.source, "labelled files")
        self.title = f"{what.capitalize()} labels of {sum(self.rows.values()):,} {self.noun} from {self.data}"
        self.said: dict[str, Any] = _SAID["scored" if self.is_scored else "texts"]
        self.uses, self.not_for, self.limits = (self.said[name] for name in ("uses", "not_for", "limits"))
        self.personal = str(self.said["personal"])
        self.keywords, self.tags = (_KEYWORDS, _TAGS) if self.is_scored else ((self._own_name(),),) * 2

    def _part(self, name: str) -> dict[str, Any]:
        """Return an entry of the manifest; an empty one if it is missing or null."""
        return self.manifest.get(name) or {}

    def _own_name(self) -> str:
        return "" if self.label is None else self.label.name.removesuffix("_label").replace("_", " ")

    # What was done.

    def summary(self) -> str:
        """Say in two sentences what the release is."""
        counts = ", ".join(f"{rows:,} {split}" for split, rows in self.rows.items())
        own = f", and {self._own_name()} labels" if self.label is not None else ""
        novelty = ", novelty by atypical combinations of venues" if self.is_novel else ""
        facts = {"own": own, "novelty": novelty, "counts": counts, "data": self.data, "name": self._own_name()}
        return self.said["summary_published" if self.is_published else "summary"].format(**facts)

    def made(self, show: Callable[[object], str] = str) -> list[str]:
        """Say how scores became labels; ``show`` writes what the manifest states in words."""
        lines: list[str] = []

        def say(sentence: str, **facts: object) -> None:
            lines.append(_SAID["made"][sentence].format(**facts))

        if not self.is_scored:
            lines.append(self._describe_own(show))
            if column := self._part("label").get("column"):
                say("labels_of_files", column=show(column))
            return lines
        cd = self._part("cd")
        if has_own_scores(self.source):
            words = {"data": self.data, "scores": AS_PUBLISHED} | self.source
            if words.get("labels") in (said := _SAID["taken"]["of_labels"]):
                words["labels"] = said[words["labels"]]
            taken = _SAID["taken"].get(self.kind, _SAID["taken"]["other"]) + _SAID["taken"]["labels"] * (
                "labels" in words
            )
            lines.append(taken.format(**{name: show(words.get(name)) for name in ("data", "scores", "labels")}))
        elif cd:
            first, years = 0 if cd.get("same_year") else 1, cd.get("window_years")
            say("cd_index", window=f"{first} or more" if years is None else f"{first} to {years}")
            changed, names = find_changed_options(cd)
            name = f"that of {' and of '.join(names)}, as" if names else "the default"
            options = ", ".join(f"{name} {json.dumps(value)}" for name, value in sorted(changed.items()))
            but = f", but {show(options)}" if options and not names else ""
            say("convention", name=name, version=show(f"sciscidata {self._version()}"), changed=but)
        thresholds, _ = read_settings(self.manifest)
        words = (
            {"above": "at least", "below": "at most"} if thresholds.inclusive else {"above": "above", "below": "below"}
        )
        settings = {name: getattr(thresholds, name) for name in thresholds.__slots__}
        say("ranks" if thresholds.cells else "thresholds", **words, **settings)
        if ceiling := describe_ceiling(self.manifest):
            say("ceiling", ceiling=ceiling)
        say(thresholds.novelty_rule if self.is_novel else "no_novelty", **settings)
        if self.is_novel:
            config = self._part("atypicality").get("config") or {}
            say("novelty_score", null=show(config.get("null", "as published")))
            lines += [coverage] if (coverage := describe_coverage(self.manifest)) else []
        if self.label is not None:
            lines.append(self._describe_own(show))
        say("end")
        return [" ".join(line.split()) for line in lines]

    def _describe_own(self, show: Callable[[object], str]) -> str:
        assert self.label is not None
        meanings = show("; ".join(f"{word}: {meaning}" for word, meaning in self.label.meanings.items()))
        words = f"{show(self.label.question or '')} {meanings}"
        return " ".join(f"Own label `{self.label.name}`: {', '.join(self.label.classes)}. {words}".split())

    def _languages(self) -> list[str]:
        """List the languages that were kept; none where labelled files do not say the language."""
        found = [] if "languages" in list_left_out(self.manifest) else self._part("eligibility").get("languages")
        return [str(code) for code in found or ()]

    def drawn(self) -> str:
        """Say how works came into the splits."""
        if given := describe_given_split(self.manifest):
            return given
        _, split = read_settings(self.manifest)
        said = _SAID["drawn"]
        labels, fields = (" and ".join(map(_show_plain, words)) for words in (split.labels, split.test_fields))
        text = said["text"].format(
            decides=said["by_field" if fields else "by_id"].format(names=fields, seed=split.seed),
            balance=self._describe_balance(split.balance, has_labels=bool(split.labels)),
            labels=said["labels"].format(names=labels) if labels else "",
            cells=said["cells"] if split.cell_columns else "",
        )
        return " ".join(filter(None, [text, describe_unread(self._part("counts"))]))

    def _describe_balance(self, balance: str, *, has_labels: bool) -> str:
        """Say which classes are equal, and their shares among the works that may be drawn."""
        said, kind = _SAID["drawn"], balance.partition("_within")[0]
        if kind == "none":
            return said["none"]
        names = {"disruption": "disruption", "pool": "disruption", "novelty": "novelty", "label": self._own_name()}
        one = f"{names[kind]} label" if kind in names else "pair of both labels"
        text = said["equal"].format(kind=one)
        column = self.label.name if kind == "label" and self.label else f"{names.get(kind)}_label"
        found: dict[str, int] = self._part("counts").get("eligible", {}).get(column, {})
        if not (n := sum(found.values())) or has_labels:
            return text
        shares = [
            f"{100 * count / n:.0f} % are {word}"
            for word, count in sorted(found.items(), key=lambda of: (-of[1], of[0]))
        ]
        return text + said["shares"].format(n=n, shares=", ".join(shares))

    def judged(self) -> str:
        """Say how many works are judged, or that this is not known; nothing of texts with another label."""
        unknown = _SAID["not_judged"]["text"] if self.is_scored else ""
        return describe_judged(self.manifest) or unknown

    def filters(self) -> list[tuple[str, int]]:
        """List what each filter removed, first what was read, last what was left."""
        counts = self._part("counts")
        if "filters" not in counts:
            return []
        removed = [(note, -n) for _, note, n in list_removed(self.manifest)]
        return [("read", counts["filters"]["works"]), *removed, (name_eligible(counts), counts["filters"]["eligible"])]

    def biases(self) -> list[str]:
        """List known biases: those of every release, and what this one was warned about."""
        said = _SAID["biases"]
        removed, lines = self._part("counts").get("filters", {}), list[str]()
        if self.licence_name in ("openalex", "sciscinet") and removed.get("no_abstract"):
            lines.append(said["abstracts"].format(n=removed["no_abstract"]))
        if languages := self._languages():
            others = said["other_languages"].format(n=n) if (n := removed.get("language")) else ""
            lines.append(said["languages"].format(languages=", ".join(languages)) + others)
        if self.kind == "synthetic":
            lines.append(said["invented"])
        told = remark_on_labels(self.manifest)  # in a place of their own
        remarks = [one.text for one in remark_on_release(self.manifest) if one not in told]
        remarks += list_one_sided(self.manifest)
        return lines + [f"{remark[:1].upper()}{remark[1:]}" for remark in remarks]

    def references(self) -> list[Mapping[str, Any]]:
        """List what to cite besides the release."""
        source = {"openalex": ["openalex"], "sciscinet": ["openalex", "sciscinet"]}
        names = [*source.get(self.licence_name, []), "cd", *(["novelty"] if self.is_novel else [])]
        names = names if self.is_scored else []
        return [_SAID["works_cited"][name] for name in names]

    # README.md

    def card(self, record: Record) -> str:
        """Write the dataset card, with the metadata that the Hugging Face hub reads."""
        files, counts, filters = self._part("files"), self._part("class_counts"), self.filters()
        contents = [(s, f"{n:,}", f"`{s}.parquet`, `{s}.jsonl`") for s, n in self.rows.items()]
        classes: list[str] = []
        for column, words in vocabularies(self.label).items():
            if any(any(counts[split][column].values()) for split in self.rows):
                rows = [(s, *(f"{counts[s][column][word]:,}" for word in words)) for s in self.rows]
                classes += [f"`{column}`", "", *_table(("split", *words), rows), ""]
        follows = f" (disruption{' and novelty' * self.is_novel})"
        works_cited = [*map(_name_work, self.references())]
        if self.is_published and self.licence_name != "sciscinet":
            works_cited.append(_SAID["cited"]["publisher"].format(data=_show_plain(self.data)))
        cited = [f"Cite what it follows from, too{follows}:", "", *_bullets(works_cited), "\n"]
        removed = ["", *_table((self.noun, "number"), [(name, f"{n:,}") for name, n in filters]), ""]
        parts = {
            "header": _render_yaml(self._header()),
            "record": [
                *_table((_SAID["record"]["head"], ""), [[*map(_show_cell, row)] for row in record], "---"),
                "",
                "",
            ]
            if record
            else [""],
            "before": [f"> {' '.join(before)}", "", ""] if (before := self.describe_before()) else [""],
            "code": [self._describe_code()],
            "pictures": [
                f"![{text}]({name})\n\n{text}.\n\n" for name, text in describe_pictures(self.manifest).items()
            ],
            "contents": _table(("split", self.noun, "file"), contents),
            "columns": _table(("column", "type", "what", "range", "null if"), self._columns(), "---"),
            "scores": [_SAID["scores_file"].format(file=SCORES_FILE) if SCORES_FILE in files else ""],
            "context": self._describe_context(),
            "classes": [*classes, *([judged, ""] if (judged := self.judged()) else []), ""],
            "made": _bullets(self.made(_show_plain)),
            "drawn": [self.drawn()],
            "filters": removed if filters else [""],
            "uses": _bullets((*self.uses, *self.not_for)),
            "limits": _bullets((*map(_show_plain, self.biases()), *self.limits, self.personal)),
            "bibtex": self._bibtex(),
            "unnamed": [""] if self.publication.creators else [_SAID["cited"]["unnamed"], "", ""],
            "cited": cited if self.references() else [""],
        }
        said = {
            "title": self.title,
            "summary": self.summary(),
            "manifest": MANIFEST,
            "licence": self.licence["text"],
        }
        joined = {name: "".join(lines) if name == "pictures" else "\n".join(lines) for name, lines in parts.items()}
        return _SAID["card"].format(**said, **joined, maintenance=_SAID["maintenance"])

    def describe_before(self) -> list[str]:
        """Say what to know before a model is trained: how sure labels are, and how far results can be trusted."""
        said, limits = _SAID["before"], find_limits(self.manifest)
        remarks = [remark.text for remark in remark_on_labels(self.manifest)]
        small = [said["small"]] if limits is not None and limits.is_small else []
        return [said["title"], *map(_show_plain, remarks), *small] if remarks else []

    def _describe_code(self) -> str:
        name = self.publication.repository
        return _SAID["code"]["hub"].format(name=name) if name else _SAID["code"]["folder"]

    def _date(self) -> str:
        return str(self.source.get("data_date") or "the day of the data")

    def _columns(self) -> list[tuple[str, ...]]:
        """List the columns: name, type, meaning, range, and when they are null."""
        said, rows = {**_SAID["columns"], **_SAID["context"]["columns"]}, list[tuple[str, ...]]()
        words = {name: _show_cell(", ".join(labels)) for name, labels in vocabularies(self.label).items()}
        words |= {"own": words[self.label.name] if self.label else "", "date": _show_cell(self._date())}
        for name, dtype in released_schema(self.manifest).items():
            row = said.get(name) or said["own"]
            what, span, null = [row, "", ""] if isinstance(row, str) else (part.format(**words) for part in row)
            rows.append((f"`{name}`", _name_type(dtype), what, span, null))
        return rows

    def _describe_context(self) -> list[str]:
        """Say what the columns of CONTEXT hold, and what was known of them when."""
        if not has_context(self.manifest):
            return [""]
        said = _SAID["context"]
        rows = [(f"`{name}`", str(dtype), said["at_publication"][name]) for name, dtype in AT_PUBLICATION.items()]
        return [
            "",
            "",
            said["text"].format(most=MOST_REFERENCES),
            *_table(("in `at_publication`", "type", "what"), rows),
            "",
        ]

    def _header(self) -> dict[str, Any]:
        n_rows = sum(self.rows.values())
        languages = self._languages()
        # By configuration: its columns, and the file and the rows of each of its splits.
        files = {split: (f"{split}.parquet", rows) for split, rows in self.rows.items()}
        configs = {"default": (released_schema(self.manifest), files)}
        if SCORES_FILE in self._part("files"):
            configs["scores"] = SCORES, {"works": (SCORES_FILE, n_rows)}
        return {
            "pretty_name": self.title,
            "license": self.licence["name"],
            **({"license_name": "see-the-section-licence"} if self.licence["name"] == "other" else {}),
            **({"language": languages} if languages else {}),
            "tags": [
                *self.tags,
                *(["novelty"] if self.is_novel else []),
                *(["synthetic"] if self.kind == "synthetic" else []),
            ],
            "task_categories": ["text-classification"],
            "size_categories": [next((name for limit, name in _SIZES if n_rows < limit), "n>10M")],
            "configs": [
                {
                    "config_name": name,
                    "data_files": [{"split": split, "path": file} for split, (file, _) in parts.items()],
                }
                for name, (_, parts) in configs.items()
            ],
            "dataset_info": [
                {"config_name": name, "features": _features(schema), **self._sizes(parts)}
                for name, (schema, parts) in configs.items()
            ],
        }

    def _sizes(self, parts: Mapping[str, tuple[str, int]]) -> dict[str, Any]:
        """Say how many rows each split has, and how many bytes to download and, as JSON lines, to read."""
        files = self._part("files")

        def n_bytes(name: str) -> int:
            return int(files[name if name in files else name.replace("jsonl", "parquet")]["bytes"])

        read = {split: n_bytes(file.replace("parquet", "jsonl")) for split, (file, _) in parts.items()}
        return {
            "splits": [
                {"name": split, "num_bytes": read[split], "num_examples": rows} for split, (_, rows) in parts.items()
            ],
            "download_size": sum(n_bytes(file) for file, _ in parts.values()),
            "dataset_size": sum(read.values()),
        }

    def _bibtex(self) -> list[str]:
        facts, year = self.publication, (self.publication.date or "")[:4]
        fields = {
            "title": f"{{{self.title.translate(_TEX)}}}",
            "author": " and ".join(facts.creators).translate(_TEX) or f"{{{_MAKER}}}",
            "year": year,
            "url": (facts.url or "").translate({ord(sign): f"%{ord(sign):X}" for sign in "{}\\"}),
            "note": f"made with sciscidata {self._version().translate(_TEX)}",
        }
        return [
            "@misc{sciscidata_release,",
            *(f"  {name} = {{{' '.join(value.split())}}}," for name, value in fields.items() if value),
            "}",
        ]

    def _version(self) -> str:
        return str(self._part("versions").get("sciscidata", ""))

    # CITATION.cff

    def citation(self) -> str:
        """Write how to cite the release, in the Citation File Format 1.2.0."""
        publication = self.publication
        names = [creator.partition(",") for creator in publication.creators]
        creators: list[dict[str, str]] = [
            {"family-names": family.strip(), "given-names": given.strip()} if comma else {"name": family.strip()}
            for family, comma, given in names
        ]
        known = {"url": publication.url, "date-released": publication.date}
        return "\n".join(
            _render_yaml(
                {
                    "cff-version": "1.2.0",
                    "message": "If you use this release, cite it, and the works below.",
                    "type": "dataset",
                    "title": self.title,
                    "abstract": self.summary(),
                    "authors": creators or [{"name": _MAKER}],
                    "version": self._version() or "1",
                    **({"license": "CC0-1.0"} if self.licence["name"] == "cc0-1.0" else {}),
                    **{name: value for name, value in known.items() if value},
                    "keywords": [*self.keywords],
                    **({"references": cited} if (cited := self.references()) else {}),
                }
            )
        )

    # croissant.json

    def croissant(self) -> str:
        """Write the metadata as Croissant 1.1, with the fields of its extension for responsible AI (RAI 1.0)."""
        files = self._part("files")
        tables = {f"{split}.parquet": released_schema(self.manifest) for split in self.rows}
        tables |= {SCORES_FILE: SCORES} if SCORES_FILE in files else {}
        publication, version = self.publication, self._version()
        known = {"datePublished": publication.date, "url": publication.url, "license": self.licence.get("url")}
        removed = ", ".join(f"{name}: {n:,}" for name, n in self.filters())
        return json.dumps(
            {
                "@context": _SAID["croissant_context"],
                "@type": "sc:Dataset",
                "conformsTo": ["http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0"],
                "name": self.title,
                "description": self.summary(),
                "version": f"{version}.0" if version.count(".") == 1 else version or "1.0.0",
                "creator": [{"@type": "sc:Person", "name": name} for name in publication.creators]
                or [{"@type": "sc:Organization", "name": _MAKER}],
                "citeAs": "\n".join(self._bibtex()),
                "keywords": [*self.keywords],
                "inLanguage": self._languages() or ["und"],
                **{name: value for name, value in known.items() if value},
                **({} if self.licence.get("url") else {"license": self.licence["text"]}),
                "rai:dataCollection": f"{'Works, texts and citations' if self.is_scored else 'Texts'} of {self.data}. "
                f"{self.drawn()}",
                "rai:dataCollectionType": ["Web API" if self.kind == "openalex" else "Others"],
                "rai:dataCollectionMissingData": "Null means undefined or not known; it is never 0.",
                "rai:dataPreprocessingProtocol": [
                    f"Works by filter, in this order: {removed}." if removed else self.drawn()
                ],
                "rai:dataAnnotationProtocol": self.made(),
                "rai:machineAnnotationTools": [f"sciscidata {version}".strip()],
                "rai:dataBiases": self.biases() or [self.limits[0]],
                "rai:dataLimitations": [
                    *(remark.text for remark in remark_on_labels(self.manifest)),
                    *self.limits,
                    *self.not_for,
                ],
                "rai:dataUseCases": [*self.uses],
                "rai:dataSocialImpact": self.not_for[0],
                "rai:personalSensitiveInformation": [self.personal],
                "rai:dataReleaseMaintenancePlan": _SAID["maintenance"],
                "distribution": [
                    {
                        "@type": "cr:FileObject",
                        "@id": name,
                        "name": name,
                        "contentUrl": name,
                        "contentSize": f"{files[name]['bytes']} B",
                        "encodingFormat": "application/x-parquet" if name in tables else "application/jsonlines",
                        "sha256": files[name]["sha256"],
                    }
                    for name in sorted(files)
                    if name in tables or name.endswith(".jsonl")
                ],
                "recordSet": [_record_set(name, schema) for name, schema in tables.items()],
            },
            indent=2,
        )


def _record_set(file: str, schema: Mapping[str, pl.DataType]) -> dict[str, Any]:
    name = file.removesuffix(".parquet")
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "key": {"@id": f"{name}/openalex_id"},
        "field": [_field(name, column, dtype, {"fileObject": {"@id": file}}) for column, dtype in schema.items()],
    }


def _field(parent: str, name: str, dtype: pl.DataType, file: Mapping[str, Any], column: str = "") -> dict[str, Any]:
    """Describe a column, or a part of ``column``, which then has structs."""
    inner = _inner_of(dtype)
    place = f"{parent}/{name}"
    source = {**file, "extract": {"column": column or name}, **({"transform": {"jsonPath": name}} if column else {})}
    said = _SAID["context"]["at_publication"].get(name) if column else _SAID["context"]["columns"].get(name)
    kind = "cr:Float64" if inner.is_float() else "sc:Integer" if inner.is_integer() else "sc:Text"
    parts = [_field(place, part, of, file, name) for part, of in _parts_of(inner).items()]
    return {
        "@type": "cr:Field",
        "@id": place,
        "name": name,
        **({"description": said} if said else {}),
        **({} if parts else {"dataType": kind}),
        **({"isArray": True, "arrayShape": "-1"} if isinstance(dtype, pl.List) else {}),
        **({"subField": parts} if parts else {}),
        "source": source,
    }


def _features(schema: Mapping[str, pl.DataType]) -> list[dict[str, Any]]:
    return [{"name": name, **_hub_type(dtype)} for name, dtype in schema.items()]


def _hub_type(dtype: pl.DataType) -> dict[str, Any]:
    if isinstance(dtype, pl.List):
        (inner,) = _hub_type(_inner_of(dtype)).values()
        return {"list": inner}
    parts = _parts_of(dtype)
    return {"struct": _features(parts)} if parts else {"dtype": _HUB_TYPES[dtype]}


def _inner_of(dtype: pl.DataType) -> pl.DataType:
    return cast("pl.DataType", dtype.inner) if isinstance(dtype, pl.List) else dtype


def _parts_of(dtype: pl.DataType) -> dict[str, pl.DataType]:
    return cast("dict[str, pl.DataType]", dict(dtype.to_schema())) if isinstance(dtype, pl.Struct) else {}


def _name_type(dtype: pl.DataType) -> str:
    """Name a type in words."""
    inner = _inner_of(dtype)
    one = "number" if inner.is_float() else "whole number" if inner.is_integer() else "text"
    one = "record" if _parts_of(inner) else one
    return f"list of {one}s" if isinstance(dtype, pl.List) else one


def _show_cell(words: object) -> str:
    """Write words of others for ``_table``, which marks the ends of cells."""
    return _show_plain(words).replace(r"\|", "|")


def _show_plain(words: object) -> str:
    r"""Write words of others as one line of Markdown that means nothing but these words."""
    return _MARKUP.sub(r"\\\g<0>", " ".join(str(words).split()))


def _bullets(lines: Any) -> list[str]:  # noqa: ANN401
    return [f"- {line}" for line in lines]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], right: str = "---:") -> list[str]:
    cells = [head, ["---", *[right] * (len(head) - 1)], *rows]
    return [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in cells]


def _name_work(work: Mapping[str, Any]) -> str:
    names = ", ".join(f"{author['family-names']}" for author in work["authors"])
    return f"{names} ({work['year']}). {work['title']}. [doi:{work['doi']}](https://doi.org/{work['doi']})"


def _render_yaml(value: Mapping[str, Any], indent: str = "") -> list[str]:
    r"""Write an object with lists of texts or objects as YAML; texts and numbers are JSON, which YAML reads."""
    lines: list[str] = []
    for key, inner in value.items():
        if not isinstance(inner, list):
            lines.append(f"{indent}{key}: {json.dumps(inner, ensure_ascii=False)}")
            continue
        lines.append(f"{indent}{key}:")
        for one in cast("list[Any]", inner):
            first, *rest = _render_yaml(one, f"{indent}  ") if isinstance(one, Mapping) else [json.dumps(one)]
            lines += [f"{indent}- {first.lstrip()}", *rest]
    return lines
