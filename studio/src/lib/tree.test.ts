import { expect, test } from "vitest";
import { grow, rows, type Line } from "./tree";

const line = (text: string, name?: string): Line => ({ ids: [...text].map((char) => char.charCodeAt(0)), texts: [...text], name });
const shown = (lines: Line[]) => rows(lines).map(({ depth, text, line }) => `${" ".repeat(depth)}${text}${line === null ? "" : "."}`);

test("a text that goes on is one line; backing up keeps it", () => {
  let lines = grow([], line("ab"));
  lines = grow(lines, line("abc"));
  expect(lines).toHaveLength(1);
  expect(grow(lines, line("a"))).toBe(lines);
  expect(grow(lines, line(""))).toBe(lines);
});
test("lines share their beginning", () => {
  const lines = ["abcd", "abxy", "abxz", "q"].reduce((lines, text) => grow(lines, line(text)), [] as Line[]);
  expect(shown(lines)).toEqual(["ab", " cd.", " x", "  y.", "  z.", "q."]);
  expect(String.fromCharCode(...rows(lines)[4].ids)).toBe("abxz");
});
test("a line with a name stays when another goes on from it", () => {
  const lines = grow([line("ab", "kept")], line("abc"));
  expect(shown(lines)).toEqual(["ab.", " c."]);
});
