import { expect, test } from "vitest";
import { csv, json } from "./files";

test("a table as a file", () => {
  const columns = ["name", "text"], rows = [["a", 'two\n"lines"'], [null, "x, y"]];
  expect(csv(columns, rows)).toBe('name,text\na,"two\n""lines"""\n,"x, y"\n');
  expect(JSON.parse(json(columns, rows))).toEqual([{ name: "a", text: 'two\n"lines"' }, { name: null, text: "x, y" }]);
});
