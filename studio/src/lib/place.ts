/** Where a person is: everything that a link holds. The start token is never part of it. */
export interface Place {
  model: string;
  text: string | null;
  view: string;
  /** The head that is looked at; null: whichever a page finds worth it. */
  layer: number | null;
  head: number | null;
  /** The token that is looked at; null: the last one. */
  token: number | null;
  /** What a page keeps beside that, by its name: a method, watched words, a slider. */
  more: Record<string, string>;
}

/** Longer texts would make an address that the server refuses when the page is loaded anew. */
export const LONGEST = 6000;
const LONGEST_OPTION = 6000; // the passages of the page Neurons are the longest
/** Names that have a place of their own; the start token is nowhere. */
const SHARED = new Set(["m", "text", "view", "l", "h", "t", "token"]);
const OPTION = /^[a-z_]{1,20}$/;

const whole = (value: string | null): number | null => (value !== null && /^\d{1,6}$/.test(value) ? Number(value) : null);

export function readPlace(search: string): Place {
  const given = new URLSearchParams(search), more: Record<string, string> = {};
  for (const [name, value] of given) {
    if (!SHARED.has(name) && OPTION.test(name) && value.length <= LONGEST_OPTION) more[name] = value;
  }
  return {
    model: given.get("m") ?? "",
    text: given.get("text"),
    view: given.get("view") ?? "",
    layer: whole(given.get("l")),
    head: whole(given.get("h")),
    token: whole(given.get("t")),
    more,
  };
}

export function writePlace(place: Place): string {
  const made = new URLSearchParams();
  if (place.model) made.set("m", place.model);
  if (place.text !== null && place.text.length <= LONGEST) made.set("text", place.text);
  if (place.view) made.set("view", place.view);
  if (place.layer !== null) made.set("l", String(place.layer));
  if (place.head !== null) made.set("h", String(place.head));
  if (place.token !== null) made.set("t", String(place.token));
  for (const [name, value] of Object.entries(place.more)) if (value.length <= LONGEST_OPTION) made.set(name, value);
  const search = made.toString();
  return search ? `?${search}` : "";
}
