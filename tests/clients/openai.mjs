// OpenAI's client for JavaScript against a server: what it reads, whole and streamed, raw and through its helpers, as JSON.
import OpenAI from "openai";

const client = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: "none", maxRetries: 0 });
const talk = {
  model: "storyteller",
  messages: [{ role: "user", content: "Tell me of Lily." }],
  seed: 5,
  max_tokens: 30,
  stop: [" "],
};
const extra = { ...talk, explain: { heads: true, top: 2 } };
const found = {};

const whole = await client.chat.completions.create(talk);
found.whole = whole.choices[0].message.content;

let raw = "";
let explained = 0;
let usage = null;
for await (const chunk of await client.chat.completions.create({
  ...extra,
  stream: true,
  stream_options: { include_usage: true },
})) {
  raw += chunk.choices[0]?.delta?.content ?? "";
  explained += chunk.choices[0]?.explain ? 1 : 0;
  usage = chunk.usage ?? usage;
}
found.raw = raw;
found.explained = explained;
found.usage = usage.total_tokens === whole.usage.total_tokens;

const helper = client.chat.completions.stream({ ...extra, n: 2, logprobs: true, top_logprobs: 2 });
found.helper = (await helper.finalChatCompletion()).choices.map((one) => one.message.content);

const completion = await client.completions.create({
  model: "storyteller",
  prompt: "Once upon a time",
  max_tokens: 4,
  seed: 1,
  logprobs: 2,
});
found.completion = completion.choices[0].text;

const events = client.responses.stream({ model: "storyteller", input: "Lily?", temperature: 0, stop: [" "], explain: { heads: true } });
const response = await events.finalResponse();
found.response = response.output_text;
found.status = response.status;

const vectors = await client.embeddings.create({ model: "storyteller", input: ["Lily"] });
found.width = vectors.data[0].embedding.length;

try {
  await client.chat.completions.create({ ...talk, model: "gpt-9" });
} catch (error) {
  found.error = { status: error.status, code: error.code, id: error.requestID, message: error.message };
}
try {
  for await (const _ of await client.completions.create({ model: "storyteller", prompt: "a", max_tokens: 30, stream: true, explain: { steps: { layer: 99, head: 0 } } })) {
    // the question fails behind the text
  }
} catch (error) {
  found.late = error.message;
}
console.log(JSON.stringify(found));
