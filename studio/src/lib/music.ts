/** Music: a text whose words are events. */

export interface Piece {
  /** Start, end, pitch, velocity and voice. */
  notes: [number, number, number, number, number][];
  /** The note of every event; -1 where it has none. */
  owners: number[];
  seconds: number;
  /** Seconds at the beginning that the model did not write. */
  given: number;
  quarter: number;
  harmonizes: boolean;
  layers: number;
  palettes: Record<"light" | "dark", Record<string, string>>;
}

export interface Composed {
  ids: number[];
  texts: string[];
  given: number;
  quarter: number;
  seed: number;
  finish: string;
  cut: number;
}

const EVENT = /^\s*(?:[SATB](?:\d+|[-.])|(?:NOTE_ON|NOTE_OFF|TIME_SHIFT|SET_VELOCITY)<\d+>)(?:\s|$)/;

/** Whether a text is music: whether its first word is an event. An empty one may become it. */
export const isMusic = (text: string): boolean => !text.trim() || EVENT.test(text);

/** The note of an event, or of the nearest one before it that has one. */
export function noteOf(owners: number[], event: number): number {
  for (let at = Math.min(event, owners.length - 1); at >= 0; at--) if (owners[at] >= 0) return owners[at];
  return -1;
}

const NAMES = ["C", "C♯", "D", "E♭", "E", "F", "F♯", "G", "A♭", "A", "B♭", "B"];

/** A pitch as musicians write it; 60 is C4. */
export const pitchName = (pitch: number): string => `${NAMES[pitch % 12]}${Math.floor(pitch / 12) - 1}`;

/** A file as base64, as JSON can hold it. */
export async function base64(file: Blob): Promise<string> {
  const bytes = new Uint8Array(await file.arrayBuffer());
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text);
}
