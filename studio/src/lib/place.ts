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
}

/** Longer texts would make an address that the server refuses when the page is loaded anew. */
export const LONGEST = 6000;

const whole = (value: string | null): number | null => (value !== null && /^\d{1,6}$/.test(value) ? Number(value) : null);

export function readPlace(search: string): Place {
  const given = new URLSearchParams(search);
  return {
    model: given.get("m") ?? "",
    text: given.get("text"),
    view: given.get("view") ?? "",
    layer: whole(given.get("l")),
    head: whole(given.get("h")),
    token: whole(given.get("t")),
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
  const search = made.toString();
  return search ? `?${search}` : "";
}
