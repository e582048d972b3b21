"""The size of each split, and which classes get equal counts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final, Literal

import msgspec

from sciscidata.errors import ConfigError
from sciscidata.options.checks import Configuration

Balance = Literal[
    "disruption",
    "novelty",
    "joint",
    "pool",
    "none",
    "label",
    "disruption_within_field_year",
    "novelty_within_field_year",
    "label_within_field_year",
]
#: What stands for train and test where quotas are of both together.
BOTH: Final = "train and test"
WITHIN: Final = "_within_field_year"
#: Options that older releases know nothing of: a manifest states them only where they are set.
_ADDED: Final = ("labels", "test_fields")
_Name = Annotated[str, msgspec.Meta(min_length=1, title="NAME")]
_Size = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class SplitConfig(Configuration):
    """How many works each split gets, and which classes get equal counts.

    Attributes:
        n_train: works in the train split. One of the two sizes may be 0.
        n_test: works in the test split.
        seed: seed of the draw.
        balance: label whose classes get equal counts. ``"joint"``: the nine pairs of disruption and novelty label.
            ``"pool"``: equal disruption classes in train and test together, divided between the two without regard to
            class. ``"none"``: natural prevalence; all works in the order of their keys, the first ``n_train`` and the
            next ``n_test``. ``"label"``: the own label (OwnLabel). ``"disruption_within_field_year"``, and novelty and
            label alike: equal classes in each cell of primary field and five publication years.
        n_dev: works in a development split; 0: there is none. It changes neither train nor test. (Within cells it
            leaves fewer works to them, so the shares of the cells may differ.)
        labels: draw only works with these classes of the balanced label, such as disruptive and consolidating; empty:
            all. Of ``"joint"``, all classes of a label that has no class among them.
        test_fields: hold these primary fields out: all works of the test split are of them, those of train and dev are
            of others. A work without a field is in no split. Empty: the id of a work alone decides.

    Raises:
        ConfigError: on construction, if a value does not fit its type, ``n_train`` and ``n_test`` are both 0, or
            ``labels`` or ``test_fields`` do not suit the balance.

    Example:
        >>> SplitConfig(n_train=0, n_test=0)
        Traceback (most recent call last):
        ...
        sciscidata.errors.ConfigError: SplitConfig.n_train and SplitConfig.n_test are both 0, so there is nothing to
        draw. Raise one.
    """

    n_train: _Size = 5000
    n_test: _Size = 500
    seed: int = 0
    balance: Balance = "disruption"
    n_dev: _Size = 0
    labels: tuple[_Name, ...] = ()
    test_fields: tuple[_Name, ...] = ()

    def _check(self) -> None:
        if self.n_train + self.n_test == 0:
            raise ConfigError(
                "SplitConfig.n_train and SplitConfig.n_test are both 0, so there is nothing to draw. Raise one."
            )
        if self.labels or self.test_fields:
            from sciscidata.sampling.balance import check_choices

            check_choices(self.labels, self.balance, self.test_fields, n_test=self.n_test)

    def stated(self) -> dict[str, Any]:
        """Return the options as a manifest states them: all, but those of ``_ADDED`` only where they are set."""
        return {name: value for name, value in asdict(self).items() if name not in _ADDED or value}

    @property
    def sizes(self) -> dict[str, int]:
        """The number of works in each split, train first; dev only where it is asked for."""
        sizes = {"train": self.n_train, "test": self.n_test}
        return sizes | ({"dev": self.n_dev} if self.n_dev else {})

    @property
    def stated_sizes(self) -> dict[str, int]:
        """The sizes that are not the default ones: a build of own texts may lower the others."""
        usual = SplitConfig().sizes
        return {split: size for split, size in self.sizes.items() if size != usual.get(split)}

    @property
    def is_stratified(self) -> bool:
        """Whether train and test have quotas of their own, so that no other work decides between the two."""
        return self.balance not in ("pool", "none") or bool(self.test_fields)

    @property
    def cell_columns(self) -> tuple[str, ...]:
        """The columns of WORKS in whose cells classes get equal counts, if that is asked for."""
        return ("primary_field", "publication_year") if self.balance.endswith(WITHIN) else ()

    @property
    def columns_read(self) -> tuple[str, ...]:
        """The columns of WORKS that a draw reads besides the id."""
        return self.cell_columns or (("primary_field",) if self.test_fields else ())

    @property
    def groups(self) -> dict[str, int]:
        """The number of works that each set of quotas is of: of each split, or of BOTH, and of dev."""
        if self.is_stratified:
            return self.sizes
        return {BOTH: self.n_train + self.n_test} | ({"dev": self.n_dev} if self.n_dev else {})
