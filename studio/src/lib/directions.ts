/** Which languages the translators that ship know: their files do not say. */
interface Direction {
  said: string;
  /** A text to begin with, where the usual one is in another language. */
  example?: string;
}
const FRENCH: Direction = { said: "French → English", example: "je suis étudiant" };
const DIRECTIONS: Record<string, Direction> = {
  seq2seq: FRENCH,
  "seq2seq-bottleneck": FRENCH,
  translator: { said: "English ↔ French" },
  "translator-decoder": { said: "English ↔ French, by a decoder alone" },
};

export const directionOf = (model: string): Direction | null => (Object.hasOwn(DIRECTIONS, model) ? DIRECTIONS[model] : null);
