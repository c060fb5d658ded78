// The formulas of model.py in JavaScript, for the page: names, arguments and results are the same. model.py has the
// formulas' sources. tests/fleet/javascript.py compares the two on random machines and traffic.
"use strict";

const HOURS_PER_MONTH = 730;
const LONGEST_STEP_S = 2.0;

function between(xs, ys, x) {
  if (x <= xs[0]) return ys[0];
  let i = 1;
  while (i < xs.length - 1 && x > xs[i]) i += 1;
  return ys[i - 1] + ((ys[i] - ys[i - 1]) * (x - xs[i - 1])) / (xs[i] - xs[i - 1]);
}

const keptBetween = (xs, ys, x) => between(xs, ys, Math.min(x, xs[xs.length - 1]));

function decodeS(machine, streams, context) {
  const { decode, kv } = machine;
  const window = kv.window_tokens * kv.window_read_bytes_per_token;
  const read = context * kv.read_bytes_per_token + window;
  const measured = decode.read_bytes ?? decode.context * kv.read_bytes_per_token + window;
  const more = (streams * (read - measured)) / kv.read_bytes_per_second;
  return machine.service_factor * (between(decode.streams, decode.ms, streams) / 1e3 + more);
}

function promptS(machine, streams, tokens) {
  const prompts = machine.prompts;
  const most = prompts.tokens[prompts.tokens.length - 1];
  const at = prompts.extra_ms.map((row) => between(prompts.tokens, row, Math.min(tokens, most)));
  const beyond = Math.max(0, tokens - most) * prompts.ms_per_token;
  return (machine.service_factor * (keptBetween(prompts.streams, at, streams) + beyond)) / 1e3;
}

const prefillS = (machine) => (machine.service_factor * machine.prompts.ms_per_token) / 1e3;

function lengths(traffic) {
  const history = (traffic.turns * (traffic.user_tokens + traffic.reply_tokens)) / 2;
  const prompt = traffic.card_tokens + history + traffic.user_tokens;
  return [history, prompt, Math.max(traffic.user_tokens, prompt * (1 - traffic.hit_rate))];
}

function steady(machine, traffic, rate) {
  const [, prompt, computed] = lengths(traffic);
  let t = 0;
  for (let i = 0; i < 2000; i += 1) {
    const streams = rate * traffic.reply_tokens * t;
    const some = 1 - Math.exp(-rate * t);
    const prompts = some <= 0 ? 0 : some * promptS(machine, streams, (rate * computed * t) / some);
    const next = decodeS(machine, streams, prompt) + prompts;
    if (next > LONGEST_STEP_S) return null;
    if (Math.abs(next - t) <= 1e-12 + 1e-9 * t) break;
    t = next;
  }
  return { step_s: t, streams: rate * traffic.reply_tokens * t };
}

function firstToken(machine, traffic, rate, state) {
  const [, prompt, computed] = lengths(traffic);
  const decode = (rate * traffic.reply_tokens * decodeS(machine, machine.slots, prompt)) / machine.slots;
  if (decode >= 1) return [null, 1];
  const perToken = prefillS(machine) / (1 - decode);
  const short = traffic.user_tokens * perToken;
  const whole = prompt * perToken;
  const missing = Math.min(1, (computed - traffic.user_tokens) / Math.max(1e-9, prompt - traffic.user_tokens));
  const use = rate * (missing * whole + (1 - missing) * short);
  if (use >= 1) return [null, use];
  const wait = (rate * (missing * whole ** 2 + (1 - missing) * short ** 2)) / (2 * (1 - use));
  const thoseWhoWait = wait / Math.max(use, 1e-12);
  const step = state.step_s;
  const waitsLonger = (y) => {
    if (y <= 0) return 1;
    const rest = Math.max(0, 1 - y / step);
    if (thoseWhoWait <= 0) return rest;
    const e = thoseWhoWait / step;
    const queued =
      y < step
        ? rest + e * (1 - Math.exp(-y / thoseWhoWait))
        : e * (Math.exp(-(y - step) / thoseWhoWait) - Math.exp(-y / thoseWhoWait));
    return (1 - use) * rest + use * queued;
  };
  const later = (x) => (1 - missing) * waitsLonger(x - step) + missing * waitsLonger(x - Math.max(step, whole));
  return [later, use];
}

function quantile(later, part) {
  let low = 0;
  let high = 1e-3;
  while (later(high) > 1 - part && high < 1e6) high *= 2;
  for (let i = 0; i < 60; i += 1) {
    const middle = (low + high) / 2;
    if (later(middle) > 1 - part) low = middle;
    else high = middle;
  }
  return high;
}

function conversationBytes(machine, traffic) {
  return lengths(traffic)[0] * machine.kv.bytes_per_token + machine.kv.window_bytes;
}

function conversationsThatFit(machine, traffic) {
  const kv = machine.kv;
  const cards = traffic.characters_per_machine * (traffic.card_tokens * kv.bytes_per_token + kv.window_bytes);
  return Math.max(0, (kv.memory_bytes - cards) / conversationBytes(machine, traffic));
}

function oneMachine(machine, traffic, rate) {
  const out = { messages_per_second: rate, conversations: rate * traffic.every_seconds, limit: "" };
  if (out.conversations > conversationsThatFit(machine, traffic)) out.limit = "memory";
  const state = steady(machine, traffic, rate);
  const [later, use] = state ? firstToken(machine, traffic, rate, state) : [null, 1];
  if (later === null) {
    out.limit = "arithmetic";
    return out;
  }
  out.step_ms = state.step_s * 1e3;
  out.streams = state.streams;
  out.prompt_use = use;
  out.p50_ms = quantile(later, 0.5) * 1e3;
  out.p90_ms = quantile(later, 0.9) * 1e3;
  out.p99_ms = quantile(later, 0.99) * 1e3;
  out.tokens_per_second = 1 / state.step_s;
  if (out.limit === "") {
    if (state.streams + 3 * Math.sqrt(state.streams) > machine.slots) out.limit = "slots";
    else if (out.tokens_per_second < traffic.tokens_per_second) out.limit = "speed of replies";
    else if (out.p50_ms > traffic.p50_ms) out.limit = "first token, p50";
    else if (out.p99_ms > traffic.p99_ms) out.limit = "first token, p99";
  }
  return out;
}

function capacity(machine, traffic) {
  let low = 0;
  let high = 1;
  while (oneMachine(machine, traffic, high).limit === "" && high < 1e6) [low, high] = [high, high * 2];
  for (let i = 0; i < 50; i += 1) {
    const middle = (low + high) / 2;
    if (oneMachine(machine, traffic, middle).limit === "") low = middle;
    else high = middle;
  }
  return [low, oneMachine(machine, traffic, high).limit];
}

function atLeast(count, least, probability) {
  if (least <= 0 || (probability >= 1 && least <= count)) return 1;
  let log = count * Math.log(probability);
  let total = 0;
  for (let failures = 0; failures <= count - least; failures += 1) {
    if (failures > 0) log += Math.log((((count - failures + 1) / failures) * (1 - probability)) / probability);
    total += Math.exp(log);
  }
  return Math.min(1, total);
}

const uptime = (machine) =>
  machine.hours_between_failures / (machine.hours_between_failures + machine.hours_to_repair);

function fleet(machine, traffic) {
  const [rate, limit] = capacity(machine, traffic);
  if (rate <= 1e-9) return null;
  const needed = Math.max(1, Math.ceil((traffic.messages_per_second * traffic.balance) / rate - 1e-9));
  let machines = Math.ceil(needed / (1 - traffic.lost_share) - 1e-9);
  while (atLeast(machines, needed, uptime(machine)) < traffic.availability) machines += 1;
  const hour = machines * machine.price_per_hour;
  const message = hour / (traffic.messages_per_second * 3600);
  return {
    rate_of_a_machine: rate,
    limit,
    needed,
    machines,
    availability: atLeast(machines, needed, uptime(machine)),
    dollars_an_hour: hour,
    dollars_a_month: hour * HOURS_PER_MONTH,
    dollars_a_message: message,
    dollars_a_message_mean: message * traffic.peak_over_mean,
    dollars_an_hour_of_talk: message * traffic.messages_per_hour,
    dollars_an_hour_of_talk_mean: message * traffic.messages_per_hour * traffic.peak_over_mean,
    busiest: oneMachine(machine, traffic, (traffic.messages_per_second * traffic.balance) / machines),
  };
}

if (typeof module !== "undefined") module.exports = { oneMachine, capacity, atLeast, fleet };
