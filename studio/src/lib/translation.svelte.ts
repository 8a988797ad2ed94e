/** The translation of the text, kept up to date: what the pages Translate and Attention look at. */
import { post, Problem } from "./api";
import { studio } from "./state.svelte";

/** One kind of attention: that of a stack, or from the decoder to the source. */
export interface Stack {
  name: string;
  stack: string;
  part: string;
  rows: string[];
  columns: string[];
}

export interface Translation {
  text: string;
  score: number;
  tokens: string[];
  languages: string[];
  to: string | null;
  questions: string[];
  stacks: Stack[];
}

interface About {
  model: string;
  text: string;
  to: string | null;
}
const PAUSE = 250; // ms after the last key until a text is translated

/** To be called where a component begins. */
export function followTranslation() {
  let found = $state.raw<Translation | null>(null);
  let about = $state.raw<About | null>(null);
  let problem = $state("");
  let waiting = $state(false);

  $effect(() => {
    const body = { model: studio.model, text: studio.text, to: studio.option("to") || null };
    void studio.returns;
    if (studio.status?.stage !== "ready" || !studio.can("translate")) {
      found = null;
      return;
    }
    if (!studio.text.trim()) return;
    const asking = new AbortController();
    waiting = true;
    const timer = setTimeout(async () => {
      try {
        const made = await post<Translation>("/studio/translation", body, asking.signal);
        [found, about, problem] = [made, { ...body, to: made.to }, ""];
      } catch (error) {
        if ((error as Error).name === "AbortError") return;
        problem = (error as Error).message;
        if (error instanceof Problem && error.code === "gone") studio.fail(error);
      }
      waiting = false;
    }, PAUSE);
    return () => {
      clearTimeout(timer);
      asking.abort();
    };
  });
  return {
    get found() {
      return found;
    },
    /** What requests about it hold. */
    get about() {
      return about;
    },
    get problem() {
      return problem;
    },
    get waiting() {
      return waiting;
    },
    asks: (question: string) => found?.questions.includes(question) ?? false,
    /** Where a picture about it comes from. */
    from: (question: string, options: Record<string, unknown> = {}) => ({ path: "/studio/translation/view", body: { ...about!, question, options } }),
  };
}
