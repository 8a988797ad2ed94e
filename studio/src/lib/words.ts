/** Tokens as people read them. */

const MARKS: Record<string, string> = { " ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍" };
const UNSEEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]|[^\S ]/gu;

/** A token with its blanks and invisible characters made visible, as labels.py shows it. */
export function visible(text: string): string {
  const shown = text.replace(/[ \n\t\r]/g, (char) => MARKS[char]);
  const safe = shown.replace(UNSEEN, (char) => `‹U+${char.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}›`);
  return /^\p{M}/u.test(safe) ? "◌" + safe : safe;
}

/** A token within a sentence. */
export const quoted = (text: string): string => `“${visible(text)}”`;

/** A share of one. */
export function percent(share: number): string {
  if (share >= 0.0995) return `${Math.round(share * 100)} %`;
  if (share >= 0.001) return `${(share * 100).toFixed(1)} %`;
  return share > 0 ? `< 0.1 %` : "0 %";
}

/** A count with commas. */
export const counted = (value: number): string => value.toLocaleString("en-US");

/** Bytes as files have them. */
export function size(bytes: number): string {
  const units = ["B", "kB", "MB", "GB"];
  let at = 0;
  while (bytes >= 1000 && at < units.length - 1) [bytes, at] = [bytes / 1000, at + 1];
  return `${bytes >= 100 || at === 0 ? Math.round(bytes) : bytes.toFixed(1)} ${units[at]}`;
}
