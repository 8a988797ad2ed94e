import { expect, test } from "vitest";
import { percent, size, visible } from "./words";

test("what cannot be seen is marked, as in pictures", () => {
  expect(visible(" a\n\t\u200b")).toBe("␣a⏎⇥‹U+200B›");
  expect(visible("\u202eabc")).toBe("‹U+202E›abc");
  expect(visible("\u0301")).toBe("◌\u0301");
  expect(visible("机器 שלום 👩")).toBe("机器␣שלום␣👩");
});
test("shares and sizes", () => {
  expect([0.5, 0.0994, 0.0001, 0].map(percent)).toEqual(["50 %", "9.9 %", "< 0.1 %", "0 %"]);
  expect([999, 11990574, 548105171].map(size)).toEqual(["999 B", "12.0 MB", "548 MB"]);
});
