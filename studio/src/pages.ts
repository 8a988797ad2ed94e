/** The pages: one file and one line each. A page is loaded when it is opened. */
import type { Component } from "svelte";

export interface Page {
  id: string;
  name: string;
  /** The key after `g` that opens it. */
  key: string;
  group: "Write" | "Look inside" | "Use";
  /** What a model must offer for it, one of these verbs of the command line; none: nothing. */
  needs: ("generate" | "translate" | "compose")[];
  /** Whether the text is above it; a page that has none may bring its own. */
  text: boolean;
  /** Whether its layers are drawn from the bottom up, so that the arrow up leads to a later one. */
  rises?: boolean;
  load: () => Promise<{ default: Component }>;
}

export const PAGES: Page[] = [
  { id: "write", name: "Write", key: "w", group: "Write", needs: ["generate"], text: false, load: () => import("./pages/Write.svelte") },
  { id: "tokens", name: "Tokens", key: "t", group: "Look inside", needs: [], text: true, load: () => import("./pages/Tokens.svelte") },
  { id: "attention", name: "Attention", key: "a", group: "Look inside", needs: ["generate", "translate"], text: true, load: () => import("./pages/Attention.svelte") },
  { id: "lens", name: "Lens", key: "l", group: "Look inside", needs: ["generate"], text: true, rises: true, load: () => import("./pages/Lens.svelte") },
  { id: "saliency", name: "Saliency", key: "s", group: "Look inside", needs: ["generate"], text: true, load: () => import("./pages/Saliency.svelte") },
  { id: "neurons", name: "Neurons", key: "n", group: "Look inside", needs: ["generate"], text: true, load: () => import("./pages/Neurons.svelte") },
  { id: "edits", name: "Edits", key: "e", group: "Look inside", needs: ["generate"], text: true, load: () => import("./pages/Edits.svelte") },
  { id: "translate", name: "Translate", key: "r", group: "Use", needs: ["translate"], text: true, load: () => import("./pages/Translate.svelte") },
  { id: "music", name: "Music", key: "u", group: "Use", needs: ["compose"], text: false, load: () => import("./pages/Music.svelte") },
  { id: "tasks", name: "Tasks", key: "k", group: "Use", needs: [], text: true, load: () => import("./pages/Tasks.svelte") },
  { id: "models", name: "Models", key: "m", group: "Use", needs: [], text: false, load: () => import("./pages/Models.svelte") },
];

/** A page by its name in the address; an unknown one is the first. */
export const pageOf = (id: string): Page => PAGES.find((page) => page.id === id) ?? PAGES[0];
