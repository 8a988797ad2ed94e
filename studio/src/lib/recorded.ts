/** A recorded tour: answers that a server gave beforehand, for a page with no server behind it. */
import { readPlace, writePlace, type Place } from "./place";
import { Problem } from "./problem";

export interface Stop {
  title: string;
  sentence: string;
  place: Partial<Place>;
}
interface Answer {
  /** JSON, the events of a stream, or bytes in base64 with the shape of the array that they are. */
  json?: unknown;
  events?: string[];
  bytes?: string;
  shape?: string;
}
interface Tour {
  stops: Stop[];
  /** Answers by their requests: JSON, compressed, in base64. */
  answers: string;
}
declare global {
  var glassTour: Tour | undefined;
}

export const tour = globalThis.glassTour;
const PACE = 45; // ms between the events of a stream: a pace that can be followed
const UNRECORDED = "This tour was recorded beforehand and does not have that. `glass studio` computes it for any text.";

/** What an answer depends on: neither the width of a picture nor a seed, of which the tour has one. */
export function keyOf(path: string, body: string | undefined): string {
  if (!body) return path;
  const { width: _, seed: __, ...rest } = JSON.parse(body);
  return `${path} ${JSON.stringify(rest)}`;
}

/** The address of what is looked at. */
export const addressOf = (stop: Stop): string => writePlace({ ...readPlace(""), ...stop.place });

const raw = (text: string): Uint8Array<ArrayBuffer> => Uint8Array.from(atob(text), (char) => char.charCodeAt(0));

let opened: Promise<Record<string, Answer>> | null = null;
function answers(): Promise<Record<string, Answer>> {
  opened ??= new Response(new Blob([raw(tour!.answers)]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  return opened;
}

/** Events one by one, as a model would write them, until the reader leaves. */
function played(events: string[], signal?: AbortSignal | null): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  let next = 0;
  return new ReadableStream({
    async pull(controller) {
      await new Promise((done) => setTimeout(done, PACE));
      if (signal?.aborted) controller.error(signal.reason);
      else if (next === events.length) controller.close();
      else controller.enqueue(encoder.encode(`${events[next++]}\n\n`));
    },
  });
}

/** The recorded answer to a request; a sentence where there is none. */
export async function replay(path: string, how: RequestInit): Promise<Response> {
  const found = (await answers())[keyOf(path, how.body as string | undefined)];
  how.signal?.throwIfAborted();
  if (!found) throw new Problem(UNRECORDED, 404, "unrecorded");
  if (found.events) return new Response(played(found.events, how.signal));
  if (found.bytes !== undefined) return new Response(raw(found.bytes), { headers: { "x-shape": found.shape ?? "" } });
  return Response.json(found.json);
}
