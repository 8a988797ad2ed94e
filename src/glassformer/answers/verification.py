"""A verification: every check with what it measured, its limit, and a mutant that must exceed the limit."""

from dataclasses import dataclass

from glassformer.answers.answer import Answer, Cell, Column, Table, answer
from glassformer.figures.color import magnitude
from glassformer.figures.marks import Spec
from glassformer.figures.specs import matrix


@dataclass(frozen=True, kw_only=True)
class Check:
    """One comparison, where smaller is better, and the same comparison with something broken on purpose."""

    name: str
    compared: str  # what with what
    unit: str  # of the three numbers
    measured: float
    limit: float  # the largest value that is right
    mutant: str  # what was broken
    mutant_measured: float
    other_weights: bool = False  # the figures belong to other weights than these, so a difference is no fault

    @property
    def holds(self) -> bool:
        """Whether the comparison is within its limit; nan is not."""
        return self.measured <= self.limit

    @property
    def bites(self) -> bool:
        """Whether the mutant is caught: a check that passes it too would prove nothing. Nan is caught."""
        return not self.mutant_measured <= self.limit

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return self.bites and (self.holds or self.other_weights)

    @property
    def verdict(self) -> str:
        """In a few words."""
        if not self.bites:
            return "fails: the mutant passes too"
        if self.holds:
            return "holds"
        return "differs: other weights" if self.other_weights else "fails"


@answer
class Verification(Answer):
    """All checks, and in `notes` what was not checked and why."""

    kind = "verification"

    model: str
    seconds: float
    passed: bool
    checks: list[Check]
    notes: list[str]

    @property
    def failed(self) -> list[Check]:
        """The checks that failed."""
        return [check for check in self.checks if not check.passed]

    def make_table(self) -> Table:
        """A row for every check."""
        columns = [
            Column("check", key=True),
            Column("compared"),
            Column("measured", "number", group=1),
            Column("limit", "number", group=1),
            Column("unit", group=1),
            Column("mutant", group=2),
            Column("mutant measured", "number", group=2),
            Column("verdict", group=2),
        ]
        rows: list[list[Cell]] = []
        for one in self.checks:
            row: list[Cell] = [one.name, one.compared, one.measured, one.limit, one.unit]
            rows.append([*row, one.mutant, one.mutant_measured, one.verdict])
        return Table(columns, rows)

    def draw(self) -> Spec:
        """Which side of the limit the model and its mutant are on."""
        return matrix(
            [check.name for check in self.checks],
            ["as it is", "mutant"],
            values=[[float(check.holds), float(not check.bites)] for check in self.checks],
            scale=magnitude("within the limit"),
            texts=[[_side(check.holds), _side(not check.bites)] for check in self.checks],
            numeric=True,
            legend=False,
            cell=[72.0, 18.0],
        )

    def finding(self) -> str:
        """How many checks passed, and which did not."""
        if self.failed:
            return f"{', '.join(check.name for check in self.failed)} failed"
        return f"all {len(self.checks)} checks passed, and each caught its mutant"


def _side(within: bool) -> str:
    """On which side of its limit a measure is."""
    return "within" if within else "exceeds"
