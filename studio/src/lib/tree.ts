/** The branches of a text: every line that was written, with what they have in common written once. */

export interface Line {
  ids: number[];
  texts: string[];
  name?: string;
}

export interface Row {
  depth: number;
  text: string;
  /** The whole text up to the end of this row. */
  ids: number[];
  /** The line that ends here, where one does. */
  line: number | null;
}

const begins = (long: number[], short: number[]): boolean => short.every((id, at) => long[at] === id);

/** Add a line. One that it continues becomes it; one that already goes on from it stays as it is. */
export function grow(lines: Line[], line: Line): Line[] {
  if (!line.ids.length || lines.some((one) => one.ids.length >= line.ids.length && begins(one.ids, line.ids))) return lines;
  const at = lines.findIndex((one) => begins(line.ids, one.ids) && !one.name);
  if (at < 0) return [...lines, line];
  return lines.map((one, n) => (n === at ? line : one)).filter((one, n) => n === at || one.name || !begins(line.ids, one.ids));
}

/** The lines as a tree, read from top to bottom. */
export function rows(lines: Line[]): Row[] {
  const made: Row[] = [];
  walk(lines.map((_, n) => n), 0, 0);
  return made;

  function walk(group: number[], from: number, depth: number): void {
    const first = lines[group[0]];
    let to = from;
    const shared = (at: number) => group.every((n) => lines[n].ids.length > at && lines[n].ids[at] === first.ids[at]);
    while (to < first.ids.length && shared(to)) to++;
    const ends = group.find((n) => lines[n].ids.length === to) ?? null;
    if (to > from || ends !== null) {
      made.push({ depth, text: first.texts.slice(from, to).join(""), ids: first.ids.slice(0, to), line: ends });
    }
    const next = new Map<number, number[]>();
    for (const n of group) {
      if (lines[n].ids.length === to) continue;
      const id = lines[n].ids[to];
      next.set(id, [...(next.get(id) ?? []), n]);
    }
    for (const part of next.values()) walk(part, to, to > from || ends !== null ? depth + 1 : depth);
  }
}
