/** What all pages share: the text, the model, the token, layer and head that are looked at; all of it in the address. */
import { readPlace, writePlace, type Place } from "./place";
import { events, get, post, Problem, send, type Pull, type Reading, type Status } from "./api";
import { directionOf } from "./directions";
import { isMusic } from "./music";
import type { Sampling } from "./numbers";
import { addressOf, tour } from "./recorded";
import bundled from "../bundled.json";

export const EXAMPLE = "A robot must obey the orders given it";
/** What a model begins with: a text in a language that it reads. */
const exampleOf = (model: string): string => directionOf(model)?.example ?? EXAMPLE;
const THEME = "glass-theme";
const LAST = "glass-last";
const PAUSE = 180; // ms after the last key until a text is read

type Theme = "light" | "dark";
const dark = matchMedia("(prefers-color-scheme: dark)");

class Studio {
  model = $state("");
  text = $state(EXAMPLE);
  view = $state("write");
  layer = $state(0);
  head = $state(0);
  token = $state<number | null>(null);
  /** Whether layer and head were chosen; else a page may choose those worth a look. */
  picked = $state(false);
  /** What pages keep in the address beside that, by name. */
  more = $state.raw<Record<string, string>>({});
  /** How many tokens there are to choose from, where that is not the number of the text's own. */
  rows = $state<number | null>(null);

  reading = $state.raw<Reading | null>(null);
  statuses = $state.raw<Status[]>([]);
  pulls = $state.raw<Pull[]>([]);
  /** How often the server came back after it was gone: what failed meanwhile is asked again. */
  returns = $state(0);
  first = $state("");
  busy = $state(false);
  writing = $state(false);
  problem = $state<Problem | null>(null);
  locked = $state(false);
  theme = $state<Theme>(dark.matches ? "dark" : "light");

  /** Ids of the text, when it was put together of tokens: typed, it is the server that finds them. */
  private ids: number[] | null = null;
  private reader: AbortController | null = null;
  private writer: AbortController | null = null;
  private timer = 0;
  private opened = ""; // the address that the page began with

  sampling = $derived<Sampling>({
    temperature: this.number("temperature", 0.8, 0, 2),
    topK: this.number("top_k", 40, 0, 100),
    topP: this.number("top_p", 0.95, 0.05, 1),
    minP: this.number("min_p", 0, 0, 0.5),
  });
  /** How many tokens are written at once. */
  length = $derived(Math.round(this.number("tokens", 24, 1, 500)));
  /** Whether the reading is the text's, and not an earlier one's. */
  fresh = $derived(this.reading !== null && this.reading.model === this.model && joined(this.reading) === this.text);
  /** Whether what is shown stays another text's or another model's: this one could not be read, or not yet. */
  stale = $derived(!this.fresh && (this.problem !== null || this.locked || this.reading?.model !== this.model));
  /** The token that is looked at. */
  at = $derived(Math.min(this.token ?? Infinity, (this.rows ?? this.reading?.ids.length ?? 1) - 1));
  status = $derived(this.statuses.find((one) => one.name === this.model) ?? null);
  /** Whether the model answers, and whether its insides can be looked at. */
  loaded = $derived(this.status?.stage === "preparing" || this.status?.stage === "ready");
  /** Whether the model can go on from what is shown. */
  usable = $derived(this.loaded && !this.stale && !this.locked);

  /** Whether it does one of the things that a page needs; while that is unknown, it may. */
  can(...needs: string[]): boolean {
    return !needs.length || !this.loaded || needs.some((what) => this.status!.can.includes(what));
  }

  // What pages keep

  /** An option of a page, as text; at first what the page says. */
  option(name: string, usual = ""): string {
    return this.more[name] ?? usual;
  }

  /** An option that is a number within limits. */
  number(name: string, usual: number, low: number, high: number): number {
    const given = this.more[name] === undefined || this.more[name] === "" ? NaN : Number(this.more[name]);
    return Number.isFinite(given) ? Math.min(high, Math.max(low, given)) : usual;
  }

  private later = 0;

  /** Keep options; those that are null are as usual again. Sliders move fast, and addresses are slow. */
  choose(given: Record<string, string | number | null>): void {
    const kept = { ...this.more };
    for (const [name, value] of Object.entries(given)) {
      if (value === null) delete kept[name];
      else kept[name] = String(value);
    }
    this.more = kept;
    clearTimeout(this.later);
    this.later = window.setTimeout(() => this.save(), 150);
  }

  // The address

  open(search: string): void {
    const place = readPlace(search);
    const before = `${this.model}\n${this.text}`;
    this.model = place.model || this.first || this.model;
    this.text = place.text ?? exampleOf(this.model);
    this.view = place.view || "write";
    this.more = place.more;
    this.picked = place.layer !== null || place.head !== null;
    [this.layer, this.head, this.token] = [place.layer ?? 0, place.head ?? 0, place.token];
    if (`${this.model}\n${this.text}` !== before) {
      this.ids = null;
      this.refresh();
    }
  }

  private get place(): Place {
    const { model, text, view, token, more } = this;
    const [layer, head] = this.picked ? [this.layer, this.head] : [null, null];
    return { model, text, view, layer, head, token, more };
  }

  link(): string {
    return location.origin + location.pathname + writePlace(this.place);
  }

  private save(push = false): void {
    const address = location.pathname + writePlace(this.place);
    if (address === location.pathname + location.search) return;
    if (push) history.pushState(null, "", address);
    else history.replaceState(null, "", address);
  }

  /** Go to an address of the same page, as a link in it would. */
  visit(search: string): void {
    history.pushState(null, "", location.pathname + search);
    this.problem = null;
    this.open(search);
  }

  go(view: string): void {
    if (view === this.view) return;
    this.view = view;
    this.save(true);
  }

  select(given: { token?: number | null; layer?: number; head?: number }): void {
    const last = (this.rows ?? this.reading?.ids.length ?? 1) - 1;
    if (given.token !== undefined) this.token = given.token === null ? null : Math.max(0, Math.min(given.token, last));
    this.picked ||= given.layer !== undefined || given.head !== undefined;
    if (given.layer !== undefined) this.layer = Math.max(0, given.layer);
    if (given.head !== undefined) this.head = Math.max(0, given.head);
    this.fit();
    this.save();
  }

  /** Layer and head are among those of the model, whatever a link or a key says. */
  private fit(): void {
    const { layers = Infinity, heads = Infinity } = this.status?.sizes ?? {};
    [this.layer, this.head] = [Math.min(this.layer, layers - 1), Math.min(this.head, heads - 1)];
  }

  // The text

  type(text: string): void {
    this.text = text;
    this.ids = null;
    this.token = null;
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.refresh(), PAUSE);
  }

  /** Set the text token by token: what was chosen is what is read, however its characters would be divided. */
  put(ids: number[], texts: string[], push = true): void {
    this.ids = ids;
    this.text = texts.join("");
    this.token = null;
    const known = this.reading;
    if (known) this.reading = extended(known, ids, texts);
    this.save(push);
    this.refresh();
  }

  /** Continue the first `place` tokens with another one. */
  follow(place: number, id: number): void {
    const known = this.reading;
    if (!known || this.writing || !this.usable) return;
    this.put([...known.ids.slice(0, place), id], [...known.texts.slice(0, place), known.names[id] ?? ""]);
  }

  /** What a request about the text holds. */
  about(): { model: string; ids?: number[]; text?: string } {
    if (this.fresh && this.text !== "") return { model: this.model, ids: this.reading!.ids };
    return { model: this.model, ...(this.ids ? { ids: this.ids } : { text: this.text }) };
  }

  async refresh(): Promise<void> {
    this.reader?.abort();
    if (!this.loaded || !this.can("generate")) return;
    if (this.view === "music" && !isMusic(this.text)) return; // the page makes room for music first
    const reader = (this.reader = new AbortController());
    this.busy = true;
    try {
      const body = { model: this.model, ...(this.ids ? { ids: this.ids } : { text: this.text }) };
      const reading = await post<Reading>("/studio/reading", body, reader.signal);
      this.reading = this.text === "" ? started(reading) : reading;
      this.problem = null;
      this.save();
    } catch (error) {
      this.fail(error);
    } finally {
      if (this.reader === reader) this.busy = false;
    }
  }

  // Writing on

  async write(count = this.length): Promise<void> {
    if (this.writing || !this.usable) return;
    if (!this.fresh) await this.refresh();
    const before = this.reading;
    if (!before || !this.fresh) return;
    const writer = (this.writer = new AbortController());
    this.writing = true;
    this.token = null;
    const ids = [...before.ids], texts = [...before.texts], logprobs = [...before.logprobs];
    let frame = 0;
    const show = () => {
      frame = 0;
      this.ids = [...ids];
      this.text = texts.join("");
      this.reading = { ...extended(before, this.ids, [...texts]), logprobs: [...logprobs] };
    };
    try {
      const { temperature, topK, topP, minP } = this.sampling;
      const how = { temperature, top_k: topK || -1, top_p: topP, min_p: minP, max_tokens: count };
      const seed = Math.floor(Math.random() * 2 ** 31);
      const form = { stream: true, return_token_ids: true, logprobs: 0, seed };
      const answer = await send("/v1/completions", { model: this.model, prompt: before.ids, ...how, ...form }, writer.signal);
      for await (const { choices: [part] } of events(answer)) {
        if (!part?.token_ids?.length) continue;
        const fresh: number[] = part.token_ids;
        ids.push(...fresh);
        texts.push(...fresh.map((_, n) => (n === fresh.length - 1 ? part.text : "")));
        logprobs.push(...fresh.map((_, n) => part.logprobs?.token_logprobs?.[n] ?? null));
        frame ||= requestAnimationFrame(show); // one picture a frame, however fast tokens come
      }
    } catch (error) {
      this.fail(error);
    } finally {
      cancelAnimationFrame(frame);
      show();
      this.writing = false;
      this.writer = null;
      this.save(true);
      this.refresh();
    }
  }

  stop(): void {
    this.writer?.abort();
  }

  // The server

  fail(error: unknown): void {
    if ((error as Error).name === "AbortError") return;
    this.problem = error instanceof Problem ? error : new Problem(String(error), 500);
    if (this.problem.status === 401) this.lock();
    if (this.problem.code === "gone") this.watch();
  }

  /** The server is another one, with a new token; what was here is opened with the new address. */
  private lock(): void {
    this.locked = true;
    if (this.first) localStorage.setItem(LAST, writePlace(this.place));
  }

  private watching = false;
  private again = false;

  /** Follow the models until none is on its way; after a lost connection, until it is back. */
  async watch(): Promise<void> {
    this.again = true;
    if (this.watching) return;
    this.watching = true;
    for (;;) {
      this.again = false; // what begins while an answer is on its way is not part of it
      const before = this.loaded;
      try {
        const { statuses, pulls } = await get<{ statuses: Status[]; pulls: Pull[] }>("/studio/status");
        this.statuses = statuses;
        this.pulls = pulls;
        this.fit();
        if (this.problem?.code === "gone") {
          this.problem = null;
          this.returns++;
        }
      } catch (error) {
        const problem = error as Problem;
        this.problem = problem;
        if (problem.status === 401) this.lock();
        if (problem.code !== "gone" && !this.again) break;
      }
      if (this.loaded && !(before && this.fresh)) this.refresh();
      const loading = this.statuses.some((one) => !["ready", "failed"].includes(one.stage));
      const pulling = this.pulls.some((one) => one.stage === "queued" || one.stage === "running");
      const gone = this.problem?.code === "gone";
      if (!loading && !pulling && !gone && !this.again) break;
      await new Promise((done) => setTimeout(done, gone ? 1500 : 300));
    }
    this.watching = false;
  }

  /** Another model; a text that was only an example becomes one that it reads. */
  private take(name: string): void {
    if (this.text === exampleOf(this.model)) this.text = exampleOf(name);
    this.model = name;
  }

  /** Look at another model; it is loaded if it is not yet. */
  async use(name: string): Promise<void> {
    if (name !== this.model) {
      this.take(name);
      this.ids = null;
      this.token = null; // of other tokens; a link that names a model also names its token
    }
    this.save(true);
    try {
      await post("/studio/models/load", { name });
    } catch (error) {
      this.fail(error);
      return;
    }
    this.problem = null;
    await this.watch();
  }

  /** Light or dark, as chosen here; else as the system has it. */
  toggleTheme(): void {
    this.theme = this.theme === "dark" ? "light" : "dark";
    localStorage.setItem(THEME, this.theme);
  }

  async start(): Promise<void> {
    const chosen = localStorage.getItem(THEME);
    if (chosen === "light" || chosen === "dark") this.theme = chosen;
    else dark.addEventListener("change", () => (this.theme = dark.matches ? "dark" : "light"));
    addEventListener("popstate", () => this.open(location.search));
    this.model = bundled.model;
    this.reading = bundled as unknown as Reading;
    this.open((this.opened = location.search || (tour ? addressOf(tour.stops[0]) : "")));
    try {
      const token = new URLSearchParams(location.hash.slice(1)).get("token");
      if (token) {
        await send("/studio/session", { token });
        const last = location.search || localStorage.getItem(LAST) || "";
        localStorage.removeItem(LAST);
        history.replaceState(null, "", location.pathname + last); // the token leaves the address
        if (last !== this.opened) this.open(last);
      }
      const { first } = await get<{ first: string[] }>("/studio/models");
      this.first = first[0];
      if (!readPlace(location.search).model) this.take(this.first);
      const known = this.model !== this.first;
      this.watch();
      if (known) await this.use(this.model);
    } catch (error) {
      this.fail(error);
    }
  }
}

const joined = (reading: Reading): string => reading.texts.join("");

/** The reading of an empty text: what begins a document is not shown as part of it. */
const started = (reading: Reading): Reading => ({ ...reading, texts: reading.texts.map(() => ""), ends: reading.ends.map(() => 0) });

/** What is known of a text from that of another with the same beginning, until the server has read it. */
function extended(known: Reading, ids: number[], texts: string[]): Reading {
  let same = 0;
  while (same < ids.length && known.ids[same] === ids[same]) same++;
  const names = { ...known.names };
  ids.forEach((id, at) => (names[id] ??= texts[at]));
  let end = 0;
  const logprobs = ids.map((id, at) => {
    if (at < same) return known.logprobs[at];
    return at === same && same > 0 ? (known.tops[same - 1]?.find(([one]) => one === id)?.[1] ?? null) : null;
  });
  return {
    ...known,
    ids,
    texts,
    names,
    logprobs,
    ends: texts.map((text) => (end += text.length)),
    ranks: ids.map((_, at) => (at < same ? known.ranks[at] : null)),
    entropies: known.entropies.slice(0, same),
    tops: known.tops.slice(0, same),
  };
}

export const studio = new Studio();
