"""All options of a build in one configuration, and a check that each of them has an effect."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from sciscidata.disruption.index import CDConfig
from sciscidata.eligibility import EligibilityConfig
from sciscidata.errors import ConfigError
from sciscidata.label_thresholds import LabelThresholds
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.novelty.label_confidence import require_sigmoid
from sciscidata.openalex_api.config import ApiConfig
from sciscidata.options.checks import Configuration, field_hints
from sciscidata.own_label import OwnLabel
from sciscidata.remote.object_store import refuse_url
from sciscidata.sampling.config import SplitConfig
from sciscidata.sampling.demand import Demand
from sciscidata.sampling.split import balanced_columns
from sciscidata.schemas import WORKS, Corpus
from sciscidata.sources.kinds import Measures
from sciscidata.sources.registry import Reason, SourceConfig, find_source
from sciscidata.storage.user_cache import default_cache_dir

#: Fields that a manifest leaves out, or shows in another way.
_NOT_STATED: Final = ("out", "ids", "background", "scores_file", "cache_dir", "overwrite")
_SWITCHED_OFF: Final = Reason("novelty is switched off", "leave novelty on")
#: Stands for the sizes that suit the source.
_SPLIT: Final = SplitConfig()


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class BuildConfig(Configuration):
    """Everything that decides what a release holds, and where it goes.

    ``out``, ``api``, ``cache_dir`` and ``overwrite`` do not change what is released, so the manifest leaves them out.
    Of ``background`` and ``ids`` it names the SHA-256; ``scores_file`` shows in its list of files.

    Attributes:
        source: where works come from: a configuration, or a Corpus that a reader of your own has made.
        ids: file of DOIs or OpenAlex ids, the works that may be drawn: text, table, RIS or BibTeX. None: any.
        id_column: column of ``ids`` that holds them. None: the one with the most.
        out: folder of the release.
        cd: conventions of the CD index.
        novelty: conventions of novelty. None, or a pull without venues, leaves novelty out: its fields are null.
        background: saved null model to score novelty against. None: that of the source's own works.
        thresholds: where one label ends and the next begins.
        eligibility: which works may be drawn.
        label: a label of your own, beside disruption and novelty. None: there is none.
        split: how many works are drawn, and which classes get equal counts; by default fewer of the example.
        api: how to reach OpenAlex.
        context: add to each row references, the works that it cites, and at_publication, what earlier years said of
            these.
        scores_file: write scores.parquet too: counts, z and venue of each released work, so that verify can recompute
            the scores.
        cache_dir: folder for what later runs can use again.
        overwrite: replace what an earlier run left at ``out``.

    Raises:
        ConfigError: on construction, if a value does not fit its type, or novelty is left out and needed.
    """

    source: SourceConfig | Corpus
    out: Path
    ids: Path | None = None
    id_column: str | None = None
    cd: CDConfig = field(default_factory=CDConfig)
    novelty: NoveltyConfig | None = field(default_factory=NoveltyConfig)
    background: Path | None = None
    thresholds: LabelThresholds = field(default_factory=LabelThresholds)
    eligibility: EligibilityConfig = field(default_factory=EligibilityConfig)
    label: OwnLabel | None = None
    split: SplitConfig = _SPLIT
    api: ApiConfig = field(default_factory=ApiConfig)
    context: bool = False
    scores_file: bool = True
    cache_dir: Path = field(default_factory=default_cache_dir)
    overwrite: bool = False

    def __post_init__(self) -> None:
        refuse_url(self.out, "BuildConfig.out")
        Configuration.__post_init__(self)

    def _check(self) -> None:
        source = find_source(self.source)
        if self.split is _SPLIT:
            object.__setattr__(self, "split", SplitConfig(**source.sizes))
        for needs, reason, other in self._list_needs():
            if reason is not None:
                remedy = reason.remedy[0].upper() + reason.remedy[1:]
                raise ConfigError(f"{needs}, but {reason.reason}. {remedy}, or {other}.")
        if source.no_novelty(self.source):
            object.__setattr__(self, "novelty", None)

    def _list_needs(self) -> Iterator[tuple[str, Reason | None, str]]:
        """List which options need more than they may have: the need, why it is not met (None: it is), and a remedy."""
        source, balanced = find_source(self.source), balanced_columns(self.split, self.label)
        sample, published, without_novelty = source.sample, source.own_scores(self.source), _SWITCHED_OFF
        if self.novelty is not None:
            without_novelty = source.no_novelty(self.source)
        balance, by_disruption = f"SplitConfig.balance={self.split.balance!r}", "set SplitConfig.balance='disruption'"
        of_cells = "needs all works of a field and five years"
        if self.label is not None:
            yield "BuildConfig.label needs all works", sample, "leave the label out"
        if self.split.cell_columns:
            yield f"{balance} {of_cells}", sample, by_disruption
        if self.split.test_fields:
            yield "SplitConfig.test_fields needs all works of a field", sample, "leave the option out"
        if self.thresholds.cells:
            yield f"LabelThresholds.cells {of_cells}", sample, "set LabelThresholds.cells={}"
        if "novelty_label" in balanced:
            yield f"{balance} needs novelty labels", without_novelty, by_disruption
        if self.context:
            yield "BuildConfig.context needs the citations of all works", sample or published, "leave the option out"
        if self.background is not None:
            yield "BuildConfig.background is given", without_novelty or published, "give no background"
        if self.eligibility.min_label_confidence:
            counts = "n_i, n_j and n_k"
            if balanced == ("novelty_label",) and self.novelty is not None:
                require_sigmoid(self.novelty)
                counts = "the references"
            needs = f"EligibilityConfig.min_label_confidence needs {counts} of all works"
            yield needs, sample or published, "leave the option out"
        for name, expression in self.eligibility.where.items():
            beyond = [column for column in expression.meta.root_names() if column not in WORKS]
            if beyond:
                of_works = f"read columns of WORKS only: {', '.join(WORKS)}"
                yield f"EligibilityConfig.where[{name!r}] reads {beyond[0]!r} of all works", sample, of_works

    def stated(self) -> dict[str, Any]:
        """State how works are scored, labelled and filtered, and its own fields that differ from their defaults.

        The entries are those of a manifest.
        """
        hints = field_hints(type(self))
        own = [one for one in fields(self) if one.name not in _NOT_STATED and not hints[one.name].configurations]
        changed = {one.name: getattr(self, one.name) for one in own if getattr(self, one.name) != one.default}
        return {
            "cd": self.cd.stated(),
            "thresholds": asdict(self.thresholds),
            "eligibility": self.eligibility.stated(),
            **({"build": changed} if changed else {}),
        }

    @property
    def measures(self) -> Measures:
        """How works are scored."""
        return Measures(cd=self.cd, novelty=self.novelty, background=self.background, cache_dir=self.cache_dir)

    @property
    def demand(self) -> Demand:
        """Which works may be drawn, and how many of each class."""
        return Demand(self.thresholds, self.eligibility, self.split, self.cd.window_years, self.label)

    @property
    def has_published_scores(self) -> bool:
        """Whether the scores are the source's own, and not computed here."""
        return find_source(self.source).own_scores(self.source) is not None


def refuse_unread(given: Mapping[type, Collection[str]], config: BuildConfig) -> None:
    """Reject settings without effect; ``given`` names by class the options that somebody has set in ``config``."""
    for kind, names, reason, remedy in list_unread(config):
        unread = [name for name in given.get(kind, ()) if names is None or name in names]
        if unread:
            raise no_effect(kind, unread, reason, remedy)


def no_effect(kind: type, names: Iterable[str], reason: str, remedy: str) -> ConfigError:
    """Make the error for options of a class that have no effect."""
    options = [f"{kind.__name__}.{name}" for name in names]
    have, it = ("have", "them") if len(options) > 1 else ("has", "it")
    msg = f"{', '.join(options)} {have} no effect: {reason}. Leave {it} out, or {remedy}."
    return ConfigError(msg)


def refuse_windows(config: BuildConfig) -> None:
    """Raise a ConfigError for further windows and for dates: works are labelled by one window, of years."""
    unread = [name for name in ("windows", "time") if name in config.cd.stated()]
    if unread:
        reason = "works are labelled by one window of years, CDConfig.window_years"
        raise no_effect(CDConfig, unread, reason, "score a corpus with write_cd_index (`sciscidata cd`)")


def list_unread(config: BuildConfig) -> Iterator[tuple[type, tuple[str, ...] | None, str, str]]:
    """List what a configuration does not read: class, names (None: all), why, and what would read them."""
    rule, rules = config.thresholds.novelty_rule, config.eligibility
    if config.novelty is None:
        reason, remedy = "novelty is switched off", "leave novelty on"
        if without := find_source(config.source).no_novelty(config.source):
            reason, remedy = f"{without.reason}, so there is no novelty", without.remedy
        yield NoveltyConfig, None, reason, remedy
        of_novelty = ("novelty_rule", "novelty_margin", "uzzi_tail_max", "uzzi_median_share")
        yield LabelThresholds, of_novelty, reason, remedy
    elif config.novelty.null == "analytic":
        remedy = "set NoveltyConfig.null='permutation'"
        yield NoveltyConfig, ("n_shuffles", "seed"), "the closed form draws no shuffles", remedy
    # Either rule reads uzzi_median_share: the manifest states the cut.
    unread, other = ("novelty_margin", "margin") if rule == "uzzi" else ("uzzi_tail_max", "uzzi")
    remedy = f"set LabelThresholds.novelty_rule={other!r}, which does"
    yield LabelThresholds, (unread,), f"the novelty rule {rule} does not read it", remedy
    # False for complete_window, and True for keep_unknown_language, ask for what happens anyway.
    if not rules.languages and not rules.keep_unknown_language:
        remedy = "set EligibilityConfig.languages=('en',)"
        yield EligibilityConfig, ("keep_unknown_language",), "works of any language are kept", remedy
    if config.cd.window_years is None and rules.complete_window:
        reason = "a window without end is never complete"
        yield EligibilityConfig, ("complete_window",), reason, "set CDConfig.window_years=5"


def refuse_unread_of_published(config: BuildConfig, *read: str) -> None:
    """Raise a ConfigError for changed conventions, but ``read``, of measures whose scores are taken as published."""
    published = find_source(config.source).own_scores(config.source)
    if published is None:
        return
    for part, default, known in ((config.cd, CDConfig(), read), (config.novelty, NoveltyConfig(), ("score",))):
        changed = [
            option.name
            for option in (fields(part) if part is not None else ())
            if option.name not in known and getattr(part, option.name) != getattr(default, option.name)
        ]
        if changed:
            raise no_effect(type(default), changed, published.reason, published.remedy)
