import { expect, test } from "vitest";
import { LONGEST, readPlace, writePlace, type Place } from "./place";

const PLACE: Place = { model: "a/b@c", text: "<b>1 & 2 = ?\n#é 机 👩‍👩‍👧", view: "attention", layer: 5, head: 1, token: 0, more: { method: "occlusion", watch: " is\n are" } };

test("a place goes into an address and comes back", () => {
  expect(readPlace(writePlace(PLACE))).toEqual(PLACE);
  const bare: Place = { model: "", text: null, view: "", layer: null, head: null, token: null, more: {} };
  expect(writePlace(bare)).toBe("");
  expect(readPlace("")).toEqual(bare);
  expect(readPlace(writePlace({ ...bare, text: "" }))).toEqual({ ...bare, text: "" });
});

test("what is no number is not taken for one, and a long text stays out", () => {
  expect(readPlace("?l=-1&h=1e9&t=x")).toMatchObject({ layer: null, head: null, token: null });
  expect(writePlace({ ...PLACE, text: "a".repeat(LONGEST + 1) })).not.toContain("text=");
  expect(readPlace("?token=secret-Token&a-b=1&X=2&foil=%20is").more).toEqual({ foil: " is" });
});
