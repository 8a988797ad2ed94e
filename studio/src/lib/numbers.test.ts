import { expect, test } from "vitest";
import { halves, ordered, sampled, softmax } from "./numbers";

const OFF = { temperature: 1, topK: 0, topP: 1, minP: 0 };
// probabilities 0.5, 0.2, 0.2, 0.1
const LOGITS = Float32Array.from([0.1, 0.5, 0.2, 0.2].map(Math.log));
const ORDER = ordered(LOGITS);
const drawn = (how: Partial<typeof OFF>) => [...sampled(LOGITS, ORDER, { ...OFF, ...how }).drawn].map((one) => Math.round(one * 1000) / 1000);

test("the likeliest first, of equals the lower id", () => expect([...ORDER]).toEqual([1, 2, 3, 0]));
test("without filters, the model's own", () => expect(drawn({})).toEqual([0.1, 0.5, 0.2, 0.2]));
test("top-k keeps ties", () => expect(drawn({ topK: 2 })).toEqual([0, 0.556, 0.222, 0.222]));
test("top-p keeps the fewest that reach it", () => {
  expect(drawn({ topP: 0.45 })).toEqual([0, 1, 0, 0]);
  expect(drawn({ topP: 0.85 })).toEqual([0, 0.556, 0.222, 0.222]);
});
test("min-p is a share of the likeliest", () => expect(drawn({ minP: 0.3 })).toEqual([0, 0.556, 0.222, 0.222]));
test("temperature sharpens, and 0 takes the likeliest", () => {
  expect(drawn({ temperature: 0.5 })[1]).toBeCloseTo(0.25 / 0.34, 2);
  expect(drawn({ temperature: 0 })).toEqual([0, 1, 0, 0]);
});
test("large logits do not overflow", () => expect([...softmax(Float32Array.from([1e4, 0]))]).toEqual([1, 0]));
test("floats of 16 bits", () => {
  const bits = Uint16Array.from([0x3c00, 0xb800, 0x0001, 0x0000, 0x3555]);
  expect([...halves(bits.buffer)]).toEqual([1, -0.5, 2 ** -24, 0, Math.fround(0.333251953125)]);
});
