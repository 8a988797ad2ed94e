/** The keyboard, the same on all pages. */
import { PAGES, pageOf } from "../pages";
import { studio } from "./state.svelte";

export const LIST: [string, string][] = [
  ["/", "go to the text"],
  ["Ctrl Enter", "continue the text"],
  ["→ at the end of the text", "accept the suggested token"],
  ["Esc", "stop writing; look at the last token again"],
  ["← →", "look at another token"],
  ["↑ ↓", "another layer"],
  ["[ ]", "another head"],
  [", .", "one token less, one more (Write); one step back, one on (Translate, of a recurrent network)"],
  ["1 … 9 0", "choose that candidate (Write); Alt and a digit while typing"],
  ["g, then a letter", `change the page: ${PAGES.map((page) => `${page.key} ${page.name}`).join(", ")}`],
  ["?", "these keys"],
];

/** What a page does with keys of its own; it is set by the page that is open. */
export const own: { press: ((event: KeyboardEvent) => boolean) | null } = { press: null };

let going = false;

const typing = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && (target.matches("textarea, input:not([type=range]), select") || target.isContentEditable);

/** Handle a key; whether it was one of ours. */
export function press(event: KeyboardEvent, help: () => void): boolean {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    studio.write();
    return true;
  }
  if (event.key === "Escape") {
    if (studio.writing) studio.stop();
    else if (typing(event.target)) (event.target as HTMLElement).blur();
    else studio.select({ token: null });
    return false; // dialogs and pictures have their own use for it
  }
  if (own.press?.(event)) return true;
  if (typing(event.target) || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return false;
  if (going) {
    going = false;
    const page = PAGES.find((one) => one.key === event.key);
    if (page) studio.go(page.id);
    return page !== undefined;
  }
  // A picture, a slider or a tree that has the focus moves by itself.
  if (event.target instanceof Element && event.target.closest("svg, input, [data-arrows]") && event.key.startsWith("Arrow")) return false;
  const up = pageOf(studio.view).rises ? 1 : -1;
  switch (event.key) {
    case "g":
      going = true;
      setTimeout(() => (going = false), 1500);
      return true;
    case "/":
      document.getElementById("text")?.focus();
      return true;
    case "?":
      help();
      return true;
    case "ArrowLeft":
      studio.select({ token: studio.at - 1 });
      return true;
    case "ArrowRight":
      studio.select({ token: studio.at + 1 });
      return true;
    case "ArrowUp":
      studio.select({ layer: studio.layer + up });
      return true;
    case "ArrowDown":
      studio.select({ layer: studio.layer - up });
      return true;
    case "[":
      studio.select({ head: studio.head - 1 });
      return true;
    case "]":
      studio.select({ head: studio.head + 1 });
      return true;
  }
  return false;
}
