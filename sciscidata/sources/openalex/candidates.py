"""The works of OpenAlex that may be drawn: seeded samples of every year, filtered by the API."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, Any
from urllib.parse import parse_qs, quote, urlsplit

import msgspec
import polars as pl

from sciscidata.disruption.index import CDConfig
from sciscidata.eligibility import EligibilityConfig, first_open_year
from sciscidata.errors import ConfigError, EmptyInputError
from sciscidata.openalex_api.answer_checks import check_answer
from sciscidata.openalex_api.client import OpenAlexClient
from sciscidata.openalex_api.request import works_request
from sciscidata.options.checks import Configuration
from sciscidata.options.did_you_mean import suggest
from sciscidata.records.ids import TEXTS_FROM, number_ids
from sciscidata.records.last_year_of_data import describe_later_works, find_last_year, remark_on_later_works
from sciscidata.sources.openalex.citer_counts import ANY_OF, MOST_REFERENCES, PER_PAGE
from sciscidata.sources.openalex.works_by_id import ask_last_year, ask_works
from sciscidata.sources.openalex.works_of_answers import Work, works_frame, works_in
from sciscidata.terminal.messages import list_names

logger = logging.getLogger(__name__)

_SELECT = (
    "id,doi,title,publication_year,language,type,is_retracted,cited_by_count,primary_location,primary_topic,topics,"
    "concepts,abstract_inverted_index,referenced_works,updated_date,created_date"
)
_MAX_SAMPLE = 10_000
#: The fields of OpenAlex are those of the All Science Journal Classification. Their numbers begin at 11.
_FIELDS = (
    "Agricultural and Biological Sciences", "Arts and Humanities", "Biochemistry, Genetics and Molecular Biology",
    "Business, Management and Accounting", "Chemical Engineering", "Chemistry", "Computer Science",
    "Decision Sciences", "Earth and Planetary Sciences", "Economics, Econometrics and Finance", "Energy",
    "Engineering", "Environmental Science", "Immunology and Microbiology", "Materials Science", "Mathematics",
    "Medicine", "Neuroscience", "Nursing", "Pharmacology, Toxicology and Pharmaceutics", "Physics and Astronomy",
    "Psychology", "Social Sciences", "Veterinary", "Dentistry", "Health Professions",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class OpenAlexConfig(Configuration):
    """Which works of OpenAlex are candidates. ApiConfig says how to reach it.

    Attributes:
        from_year: first publication year to sample from.
        to_year: last publication year to sample from.
        seed: seed of the samples; not that of the draw.
        candidates_per_round: works sampled at a time, until every quota is full.
        max_candidates: most works sampled in all.
        max_references: most references of a candidate; more than 500 do not fit into a request.
        venues: fetch year and venue of references too, for novelty. False: novelty is null.
        filter: further filter of OpenAlex, such as ``"primary_topic.id:T10102,type:article"``, or an address with one,
            as ``Works().filter(...).url`` of pyalex writes it. None: no other filter.

    Raises:
        ConfigError: on construction, if a value is out of its range.
    """

    from_year: Annotated[int, msgspec.Meta(ge=1, le=9_999)] = 1990
    to_year: Annotated[int, msgspec.Meta(ge=1, le=9_999)] = 2018
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] = 0
    candidates_per_round: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 4_000
    max_candidates: Annotated[int, msgspec.Meta(ge=1, le=100_000_000)] = 100_000
    max_references: Annotated[int, msgspec.Meta(ge=1, le=MOST_REFERENCES)] = MOST_REFERENCES
    venues: bool = True
    filter: Annotated[str | None, msgspec.Meta(title="FILTER")] = None

    def _check(self) -> None:
        if self.filter is not None:
            object.__setattr__(self, "filter", _read_filter(self.filter))
        if self.from_year > self.to_year:
            raise ConfigError(
                f"OpenAlexConfig.from_year ({self.from_year}) lies after OpenAlexConfig.to_year ({self.to_year}). "
                "Swap them."
            )


def _read_filter(text: str) -> str:
    """Return the clauses of a filter, also of an address that holds one; a ConfigError for what is none."""
    text = text.strip()
    if re.match(r"https?://|/?works\?|filter=", text):
        given = parse_qs(urlsplit(text).query or text.rpartition("?")[2])
        others = given.keys() - {"filter", "per-page", "per_page", "page", "cursor", "select", "mailto", "api_key"}
        if len(given.get("filter", [])) != 1 or others:
            raise ConfigError(
                f"OpenAlexConfig.filter is {text!r}, needs an address with one filter"
                f"{f' and no {list_names(sorted(others))}' if others else ''}, for example "
                "https://api.openalex.org/works?filter=type:article."
            )
        (text,) = given["filter"]
    clauses = [clause.strip() for clause in text.split(",")]
    if wrong := [clause for clause in clauses if not re.fullmatch(r"[A-Za-z_.-]+:[^\0-\x1f]+", clause)]:
        raise ConfigError(
            f"OpenAlexConfig.filter has {wrong[0]!r}, needs name:value, several with commas between them, for example "
            "'primary_topic.id:T10102,type:article'."
        )
    return ",".join(clauses)


@dataclass(frozen=True)
class Candidates:
    """The works that pass the API's filters: how many there are in each year, and samples of them."""

    client: OpenAlexClient
    config: OpenAlexConfig
    eligibility: EligibilityConfig  # with the data's last year filled in
    per_year: dict[int, int] = field(default_factory=dict[int, int])  # of years with a complete citation window
    later_works: dict[str, Any] | None = None  # after the data's last year; None if that year was given
    listed: tuple[Work, ...] = ()  # those of a list, which are all candidates

    @classmethod
    def count(
        cls, client: OpenAlexClient, config: OpenAlexConfig, cd: CDConfig, eligibility: EligibilityConfig
    ) -> Candidates:
        """Count the works of each year that pass the filters; the counts also show the data's last year."""
        listed: tuple[Work, ...] = ()
        if (config.filter or eligibility.listed) and eligibility.last_year is None:
            eligibility = replace(eligibility, last_year=ask_last_year(client))  # not that of some works
        if eligibility.listed:
            if config.filter:
                msg = "BuildConfig.ids names the works, so OpenAlexConfig.filter has no effect. Leave one out."
                raise ConfigError(msg)
            found = ask_works(client, eligibility.listed, _SELECT).works
            listed = tuple(work for work in found if len(work.references) <= config.max_references)
            frame = works_frame(listed)
            eligibility = replace(eligibility, listed=eligibility.listed.of_works(frame["work_id"]))
            counts = dict(frame["publication_year"].drop_nulls().value_counts().iter_rows())
        else:
            request = cls(client, config, eligibility).request(group_by="publication_year:include_unknown")
            groups = client.fetch(request, check_answer)["group_by"]
            counts = {int(group["key"]): int(group["count"]) for group in groups if str(group["key"]).isdecimal()}
        later = None
        if eligibility.last_year is None and counts:
            eligibility = replace(eligibility, last_year=find_last_year(counts))
            later = describe_later_works(counts, eligibility.last_year)
            for remark in remark_on_later_works(later, eligibility.last_year):
                logger.warning("%s", remark)
        per_year = {year: counts[year] for year in sorted(counts)}
        all_years = cls(client, config, eligibility, per_year, later, listed)
        last_years = [config.to_year, 9_999 if eligibility.max_year is None else eligibility.max_year]
        open_from = first_open_year(eligibility, cd.window_years, eligibility.last_year)
        if open_from is not None:
            last_years.append(open_from - 1)
        first, last = max(config.from_year, eligibility.min_year or 1), min(last_years)
        chosen = {year: n for year, n in all_years.per_year.items() if first <= year <= last}
        if not chosen:
            raise EmptyInputError(
                f"OpenAlex has {sum(counts.values()):,} works that pass the filters ({all_years.filter_text()}), but 0 "
                f"from {first} to {last}, the requested years with a complete citation window. Widen the years "
                "(OpenAlexConfig.from_year, OpenAlexConfig.to_year, EligibilityConfig.min_year, "
                "EligibilityConfig.max_year), or relax the filters."
            )
        logger.info("%s candidates from %d to %d", f"{sum(chosen.values()):,}", min(chosen), max(chosen))
        return replace(all_years, per_year=chosen)

    @property
    def available(self) -> int:
        """Upper bound of the number of candidates."""
        return min(sum(self.per_year.values()), self.config.max_candidates)

    def filter_text(self) -> str:
        """Write the filters in OpenAlex's terms; the rest is left to the eligibility filters."""
        wanted = self.eligibility
        clauses = [f"referenced_works_count:{max(wanted.min_references, 1)}-{self.config.max_references}"]
        if wanted.min_citations:
            clauses.append(f"cited_by_count:>{wanted.min_citations - 1}")
        if wanted.require_abstract:
            clauses.append("has_abstract:true")
        if wanted.exclude_retracted:
            clauses.append("is_retracted:false")
        lists = (("languages", "language", wanted.languages), ("work_types", "type", wanted.work_types))
        for option, name, words in lists:
            if len(words) > ANY_OF or not all(re.fullmatch(r"[A-Za-z-]+", word) for word in words):
                raise ConfigError(
                    f"EligibilityConfig.{option} is {words!r}, needs at most {ANY_OF} of OpenAlex's words, with "
                    "letters and hyphens only."
                )
            if words:
                clauses.append(f"{name}:{'|'.join(words)}")
        clauses += self._name_fields() + self._name_venues()
        clauses += [clause for clause in (self.config.filter or "").split(",") if clause and clause not in clauses]
        return ",".join(clauses)

    def _name_fields(self) -> list[str]:
        """Write the fields as OpenAlex numbers them; a field that it does not have is an error, before it costs."""
        known = {name: 11 + place for place, name in enumerate(_FIELDS)}
        numbers: list[str] = []
        for name in self.eligibility.fields:
            if name not in known:
                raise ConfigError(
                    f"EligibilityConfig.fields has {name!r}, which is no field of OpenAlex.{suggest(name, known)} It "
                    f"has {'; '.join(known)}."
                )
            numbers.append(f"{known[name]}")
        return [f"primary_topic.field.id:{'|'.join(numbers)}"] if numbers else []

    def _name_venues(self) -> list[str]:
        """Write the venues as ids, the only form that the API takes."""
        venues = self.eligibility.venues
        if not venues:
            return []
        numbers = number_ids(pl.Series(venues, dtype=pl.String()), "S")
        for venue, number in zip(venues, numbers, strict=True):
            if not 0 < number < TEXTS_FROM:
                address = f"https://api.openalex.org/sources?search={quote(venue)}"
                raise ConfigError(
                    f"EligibilityConfig.venues has {venue!r}, and the OpenAlex API finds the works of a venue only by "
                    f"its id, for example S137773608. Look it up at {address} and name the id."
                )
        if len(venues) > ANY_OF:
            raise ConfigError(
                f"EligibilityConfig.venues has {len(venues):,} venues, and the OpenAlex API takes at most {ANY_OF}. "
                "Name fewer, or read a snapshot."
            )
        return [f"primary_location.source.id:{'|'.join(f'S{number}' for number in numbers)}"]

    def request(self, year: int | str | None = None, **params: str | int) -> str:
        """Make a request for the works that pass, of one year, of some ("1990-1999"), or of all."""
        text = self.filter_text() + (f",publication_year:{year}" if year is not None else "")
        return works_request(filter=text, corpus="core", **params)

    def look(self) -> Iterator[Work]:
        """Sample a page of works of all years, by one call: what candidates look like."""
        if self.listed:
            yield from self._listed_within()
            return
        years = f"{min(self.per_year)}-{max(self.per_year)}"
        sample = {"sample": PER_PAGE, "seed": self.config.seed, "per_page": PER_PAGE, "page": 1, "select": _SELECT}
        yield from works_in([self.client.fetch(self.request(years, **sample), check_answer)])

    def _listed_within(self) -> Iterator[Work]:
        return (work for work in self.listed if work.publication_year in self.per_year)

    def sizes_of(self, room: float) -> dict[int, int]:
        """Say how many works of each year a sample has, in proportion to its works."""
        total = sum(self.per_year.values())
        if self.listed:  # one look gives all of them
            return {0: total}
        return {year: min(n, _MAX_SAMPLE, math.ceil(room * n / total)) for year, n in self.per_year.items() if n}

    def sample(self, round_: int, room: int) -> Iterator[Work]:
        """Sample each year in proportion to its works, with another seed in every round."""
        if self.listed:
            yield from self._listed_within()
            return
        params = {"seed": self.config.seed * 1_000_003 + round_, "per_page": PER_PAGE, "page": 1, "select": _SELECT}
        requests = [self.request(year, sample=size, **params) for year, size in self.sizes_of(room).items()]
        works = works_in(self.client.fetch_all(requests, check_answer, n_listed=_MAX_SAMPLE))
        # OpenAlex counts them itself, and may count fewer than it lists.
        yield from (work for work in works if len(work.references) <= MOST_REFERENCES)
