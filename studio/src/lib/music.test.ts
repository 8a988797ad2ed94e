import { expect, test } from "vitest";
import { base64, isMusic, noteOf, pitchName } from "./music";

test("music is told from text by its first word", () => {
  for (const music of ["", "  ", "S72 A67", "S- A-", "NOTE_ON<60> TIME_SHIFT<10>", "SET_VELOCITY<80>"]) expect(isMusic(music)).toBe(true);
  for (const text of ["A robot must obey", "S72x", "NOTE_ON", "Sing", "B"]) expect(isMusic(text)).toBe(false);
});

test("an event without a note has that of the one before", () => {
  const owners = [-1, 0, -1, 2, 1];
  expect([0, 1, 2, 3, 4, 99].map((at) => noteOf(owners, at))).toEqual([-1, 0, 0, 2, 1, 1]);
});

test("pitches have names", () => {
  expect([60, 61, 69, 21].map(pitchName)).toEqual(["C4", "C♯4", "A4", "A0"]);
});

test("a file becomes text", async () => {
  expect(await base64(new Blob([new Uint8Array([77, 84, 104, 100, 255])]))).toBe("TVRoZP8=");
});
