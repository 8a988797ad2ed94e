/** The server: every call goes to this page's own origin, or to a recording where there is no server. */
import { Problem } from "./problem";
import { replay, tour } from "./recorded";

export { Problem };

export interface Reading {
  model: string;
  engine: string;
  context: number | null;
  vocab: number;
  ids: number[];
  texts: string[];
  ends: number[];
  logprobs: (number | null)[];
  ranks: (number | null)[];
  entropies: number[];
  tops: [number, number][][];
  names: Record<string, string>;
}

export interface Status {
  name: string;
  can: string[];
  stage: "waiting" | "loading" | "preparing" | "ready" | "failed";
  error: string;
  seconds: number;
  /** How many there are, once that is known. */
  sizes: { layers?: number; heads?: number };
}

/** A model that is fetched from the hub. */
export interface Pull {
  id: string;
  name: string;
  stage: "queued" | "running" | "succeeded" | "failed" | "cancelled";
  done: number;
  total: number;
  error: string;
}

export interface Listing {
  models: { name: string; where: string; size: number; revision: string; can: string[] }[];
  pullable: { name: string; size: number }[];
  statuses: Status[];
  first: string[];
  pulls: Pull[];
  pulls_offered: boolean;
}

export interface Picture {
  view: Record<string, any>;
  layouts: any[];
  drawings: string[];
  code: Record<string, string>;
  texts: Record<string, string>;
  /** Of a table of parameters: stack, parameters of a block, and those of its feed-forward layer. */
  feed_forward?: [string, number, number][];
  /** Of tokens: how many there are. */
  count?: number;
}

const EVENTS = "text/event-stream";
export const GONE = "The studio's server does not answer. Is `glass studio` still running?";

async function call(path: string, how: RequestInit): Promise<Response> {
  if (tour) return replay(path, how);
  let answer: Response;
  try {
    answer = await fetch(path, { ...how, credentials: "same-origin" });
  } catch (error) {
    if ((error as Error).name === "AbortError") throw error;
    throw new Problem(GONE, 0, "gone");
  }
  if (answer.ok) return answer;
  const body = await answer.json().catch(() => null);
  throw new Problem(body?.error?.message ?? `The server answered ${answer.status}.`, answer.status, body?.error?.code ?? null);
}

export const get = async <T>(path: string, signal?: AbortSignal): Promise<T> => (await call(path, { signal })).json();

export function send(path: string, body: unknown, signal?: AbortSignal, accept = "*/*"): Promise<Response> {
  const headers = { "content-type": "application/json", accept };
  return call(path, { method: "POST", headers, body: JSON.stringify(body), signal });
}

export const post = async <T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> => (await send(path, body, signal)).json();

/** How far an answer is that takes long: whether its turn has come, and how much is done; a total of 0 is unknown. */
export interface Progress {
  begun: boolean;
  done: number;
  total: number;
}

/** An answer; of one that takes long, how far it is: it comes as events, the last of which has it. */
export async function follow<T>(path: string, body: unknown, onProgress: (now: Progress) => void, signal?: AbortSignal): Promise<T> {
  const answer = await send(path, body, signal, `${EVENTS}, application/json`);
  if (!answer.headers.get("content-type")?.startsWith(EVENTS)) return answer.json();
  for await (const one of events(answer)) {
    if (one.answer) return one.answer;
    onProgress(one.progress);
  }
  throw new Problem(GONE, 0, "gone");
}

/** The data of a stream of events, one by one. */
export async function* events(answer: Response): AsyncGenerator<any> {
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read().catch((error) => {
      throw error.name === "AbortError" ? error : new Problem(GONE, 0, "gone"); // the server ended in between
    });
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop()!;
    for (const part of parts) {
      if (!part.startsWith("data: ") || part === "data: [DONE]") continue;
      const found = JSON.parse(part.slice(6));
      if (found.error) throw new Problem(found.error.message, 500, found.error.code);
      yield found;
    }
  }
}
