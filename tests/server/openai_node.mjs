// The OpenAI SDK for Node: node test.mjs URL; run by test_node.py, which has the answers scripted in this order.
import assert from "node:assert/strict";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0 });
const ask = (more) => ({ model: "any", messages: [{ role: "user", content: "x" }], ...more });
const tools = [{ type: "function", function: { name: "get_weather", parameters: { type: "object", properties: { city: { type: "string" }, days: { type: "integer" } } } } }];
let passed = 0, failed = 0;
async function test(name, f) {
  try { await f(); passed++; } catch (e) { failed++; console.log(`${name} failed: ${e.stack}`); }
}

await test("models", async () => {
  assert.deepEqual((await client.models.list()).data.map((m) => m.id), ["demo"]);
});
await test("whole", async () => {
  const r = await client.chat.completions.create(ask());
  assert.equal(r.choices[0].message.content, "Hello.");
  assert.equal(r.choices[0].message.reasoning_content, "why");
});
await test("stream", async () => {
  let text = "", last;
  for await (const chunk of await client.chat.completions.create(ask({ stream: true, stream_options: { include_usage: true } }))) {
    text += chunk.choices[0]?.delta?.content ?? "";
    last = chunk;
  }
  assert.equal(text, "Hello.");
  assert.equal(last.usage.total_tokens, last.usage.prompt_tokens + last.usage.completion_tokens);
});
await test("tools", async () => {
  const r = await client.chat.completions.create(ask({ tools }));
  assert.deepEqual(JSON.parse(r.choices[0].message.tool_calls[0].function.arguments), { city: "Rome", days: 3 });
  const stream = client.chat.completions.stream(ask({ tools }));
  const final = await stream.finalChatCompletion();
  assert.deepEqual(JSON.parse(final.choices[0].message.tool_calls[0].function.arguments), { city: "Rome", days: 3 });
  assert.equal(final.choices[0].finish_reason, "tool_calls");
});
await test("errors", async () => {
  await assert.rejects(client.chat.completions.create(ask({ temperature: -1 })), (e) => e instanceof OpenAI.BadRequestError && e.param === "temperature");
  await assert.rejects(client.models.retrieve("other"), (e) => e instanceof OpenAI.NotFoundError && e.code === "model_not_found");
});
await test("abort", async () => {
  const stream = await client.chat.completions.create(ask({ stream: true }));
  for await (const _ of stream) { stream.controller.abort(); break; }
});
console.log(`${passed} passed, ${failed} failed, 0 skipped`);
process.exit(failed ? 1 : 0);
