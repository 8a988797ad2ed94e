import { expect, test } from "vitest";
import { addressOf, keyOf } from "./recorded";
import { readPlace } from "./place";

test("an answer depends on what was asked, not on the width or the seed", () => {
  const about = { model: "a", ids: [1, 2], question: "lens" };
  const key = '/studio/view {"model":"a","ids":[1,2],"question":"lens"}';
  expect(keyOf("/studio/view", JSON.stringify({ ...about, width: 400 }))).toBe(key);
  expect(keyOf("/studio/view", JSON.stringify({ ...about, seed: 3 }))).toBe(key);
  expect(keyOf("/studio/view", JSON.stringify({ ...about, question: "top" }))).not.toBe(key);
  expect(keyOf("/studio/status", undefined)).toBe("/studio/status");
});

test("a stop is an address like any other", () => {
  const at = addressOf({ title: "", sentence: "", place: { model: "a", text: "b & c", view: "lens", layer: 2 } });
  expect(readPlace(at)).toMatchObject({ model: "a", text: "b & c", view: "lens", layer: 2, head: null, token: null });
});
