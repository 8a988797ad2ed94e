"""A tree: what came of what, from left to right; in a narrow picture from top to bottom."""

from dataclasses import dataclass, field

from glassformer.figures.labels import cut, quantity
from glassformer.figures.marks import LABEL, SMALL, Point, Sheet, Spec, ink_over, shade, width_of

SIZE = 12.0  # of a label
HIGH = 18.0  # of a box
LINE = 34.0  # from one row of boxes to the next: below a box is its note
PITCH = 22.0  # the same from top to bottom: its note is beside it
GAP = 22.0  # between two columns
INDENT = 12.0  # of a child, from top to bottom


@dataclass
class Tree:
    """The nodes of a view, and which are the children of which."""

    nodes: list[Spec]
    roots: list[int] = field(default_factory=list)
    children: list[list[int]] = field(default_factory=list)
    depth: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.children = [[] for _ in self.nodes]
        for at, node in enumerate(self.nodes):  # a parent comes before its children
            parent = node["parent"]
            (self.roots if parent is None else self.children[parent]).append(at)
            self.depth.append(0 if parent is None else self.depth[parent] + 1)

    def lines(self) -> list[list[int]]:
        """Chains from a node through its first children to a leaf; each begins where another branches off."""
        found: list[list[int]] = []
        waiting = self.roots[::-1]
        while waiting:
            chain = [waiting.pop()]
            while self.children[chain[-1]]:
                chain.append(self.children[chain[-1]][0])
            for at in chain:  # what branches off late is near its branch
                waiting += self.children[at][:0:-1]
            found.append(chain)
        return found


def tree(view: Spec, room: float) -> Sheet:
    """Boxes with lines between them, the first child of a node in line with it."""
    sheet = Sheet()
    nodes = view["nodes"]
    grown = Tree(nodes)
    labels = [cut(node["label"], LABEL) for node in nodes]
    boxes = [width_of(label, SIZE) + 8 for label in labels]
    notes = [width_of(node["note"], SMALL) for node in nodes]
    widths = [max(pair) for pair in zip(boxes, notes, strict=True)]

    corners = _across(grown, widths)
    flat = all(corner[0] + wide <= room for corner, wide in zip(corners, widths, strict=True))
    if not flat:
        corners = _down(grown)

    children = [at for at, node in enumerate(nodes) if node["parent"] is not None]
    children.sort(key=lambda at: bool(nodes[at].get("marked")))  # marked ones on top
    for at in children:
        parent = nodes[at]["parent"]
        wide = boxes[parent] if flat else 0.0
        _line(sheet, nodes[at], ends=(corners[parent], corners[at]), wide=wide)

    for at, label in enumerate(labels):
        x, y = corners[at]
        _box(sheet, view, at, label=label, corner=corners[at])
        below = (x, y + HIGH + 10)
        beside = (x + boxes[at] + 5, y + 13)
        sheet.note(*(below if flat else beside), text=nodes[at]["note"])
    return sheet


def _across(grown: Tree, widths: list[float]) -> list[Point]:
    """A column for every generation."""
    columns: list[float] = [0.0]
    for level in range(max(grown.depth, default=-1) + 1):
        own = [widths[at] for at, depth in enumerate(grown.depth) if depth == level]
        columns.append(columns[-1] + max(own) + GAP)
    corners: list[Point] = [(0.0, 0.0)] * len(widths)
    for row, chain in enumerate(grown.lines()):
        for at in chain:
            corners[at] = (columns[grown.depth[at]], row * LINE)
    return corners


def _down(grown: Tree) -> list[Point]:
    """A row for every node, each a little more to the right than its parent."""
    corners: list[Point] = [(0.0, 0.0)] * len(grown.nodes)
    row, waiting = 0, grown.roots[::-1]
    while waiting:
        at = waiting.pop()
        corners[at] = (grown.depth[at] * INDENT, row * PITCH)
        waiting += grown.children[at][::-1]
        row += 1
    return corners


def _line(sheet: Sheet, node: Spec, *, ends: tuple[Point, Point], wide: float) -> None:
    """From a parent, a box of some width, to its child; thick on the marked way."""
    (x, y), (right, low) = ends
    middle = low + HIGH / 2
    if wide:
        start = [x + wide, y + HIGH / 2]
        bend = right - GAP / 2
    else:  # from top to bottom
        start = [x + 4, y + HIGH]
        bend = x + 4
    points = [
        start,
        [bend, start[1]],
        [bend, middle],
        [right, middle],
    ]
    marked = bool(node.get("marked"))
    sheet.line(points, "mark" if marked else "line", width=2.0 if marked else 1.0)


def _box(sheet: Sheet, view: Spec, at: int, *, label: str, corner: Point) -> None:
    """A node in the color of its value; one without a value has no color."""
    (x, y), node = corner, view["nodes"][at]
    value, scale = node["value"], view["scale"]
    size = (width_of(label, SIZE) + 8, HIGH)
    fill = "none" if value is None else shade(scale, value)
    shown = "" if value is None else f": {quantity(value, view.get('unit'))}"
    tip = " · ".join(filter(None, (f"{node['label']}{shown}", node["note"])))
    edge = "mark" if node.get("marked") else "line"
    sheet.rect(x, y, size=size, fill=fill, stroke=edge, tip=tip, keys=[f"t{at}"])
    ink = "soft" if value is None else ink_over(scale, value)
    sheet.text(x + 4, y + 13, text=label, size=SIZE, mono=True, fill=ink)
