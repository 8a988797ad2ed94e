/** What the page computes by itself, so that sliders and hovering need no server. */

export interface Sampling {
  temperature: number;
  topK: number;
  topP: number;
  minP: number;
}

export interface Candidates {
  /** All token ids, the likeliest first. */
  order: Uint32Array;
  /** Probabilities at temperature 1, by id. */
  plain: Float64Array;
  /** From which a token is drawn, by id: 0 where it was cut off. */
  drawn: Float64Array;
  /** How many tokens may be drawn; they are the first of the order. */
  kept: number;
}

export function softmax(logits: Float32Array, temperature = 1): Float64Array {
  let most = -Infinity;
  for (const logit of logits) if (logit > most) most = logit;
  const made = new Float64Array(logits.length);
  let total = 0;
  for (let id = 0; id < logits.length; id++) total += made[id] = Math.exp((logits[id] - most) / temperature);
  for (let id = 0; id < made.length; id++) made[id] /= total;
  return made;
}

/** Token ids, the likeliest first; of equals, the lower id. */
export function ordered(logits: Float32Array): Uint32Array {
  return Uint32Array.from(logits.keys()).sort((a, b) => logits[b] - logits[a] || a - b);
}

/** Temperature, top-k, top-p, min-p, in the order in which generation/sampling.py applies them. */
export function sampled(logits: Float32Array, order: Uint32Array, { temperature, topK, topP, minP }: Sampling): Candidates {
  const plain = softmax(logits), drawn = new Float64Array(logits.length);
  if (temperature <= 0) {
    drawn[order[0]] = 1;
    return { order, plain, drawn, kept: 1 };
  }
  let kept = order.length;
  if (topK > 0 && topK < kept) {
    kept = topK;
    while (kept < order.length && logits[order[kept]] === logits[order[topK - 1]]) kept++; // ties stay
  }
  const weights = new Float64Array(kept), best = logits[order[0]] / temperature;
  let total = 0;
  for (let n = 0; n < kept; n++) total += weights[n] = Math.exp(logits[order[n]] / temperature - best);
  if (topP < 1) {
    let below = 0; // the share of what is less likely than the token at hand, itself included
    let n = kept - 1;
    while (n > 0 && (below + weights[n]) / total <= 1 - topP) below += weights[n--];
    kept = n + 1;
  }
  while (minP > 0 && kept > 1 && weights[kept - 1] < minP) kept--;
  let left = 0;
  for (let n = 0; n < kept; n++) left += weights[n];
  for (let n = 0; n < kept; n++) drawn[order[n]] = weights[n] / left;
  return { order, plain, drawn, kept };
}

/** Floats of 16 bits, which not every browser has. */
export function halves(bytes: ArrayBuffer): Float32Array {
  const bits = new Uint16Array(bytes), made = new Float32Array(bits.length);
  for (let n = 0; n < bits.length; n++) {
    const exponent = (bits[n] >> 10) & 31, fraction = bits[n] & 1023;
    const size = exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024);
    made[n] = bits[n] & 0x8000 ? -size : size;
  }
  return made;
}

/** How surprising a token was, in bits. */
export const bits = (logprob: number): number => -logprob / Math.LN2;
