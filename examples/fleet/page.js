// The page: sliders change copies of the machine and the traffic, the formulas of model.js answer, Chart.js draws.
"use strict";

const machine = structuredClone(MACHINE);
const traffic = structuredClone(TRAFFIC);

// What a slider changes, between which values, and how its place (0 to 1000) becomes a value: evenly, or by powers.
const whole = (value) => Math.round(value).toLocaleString("en");
const percent = (value) => `${(100 * value).toFixed(1)}%`;
const SLIDERS = [
  {
    name: "messages_per_second", of: traffic, text: "messages a second, peak", low: 10, high: 200000, power: true, show: whole,
  },
  { name: "hit_rate", of: traffic, text: "prompt tokens found in caches", low: 0, high: 0.999, show: percent },
  { name: "turns", of: traffic, text: "messages of a conversation", low: 2, high: 300, power: true, show: whole },
  { name: "reply_tokens", of: traffic, text: "tokens of a reply", low: 10, high: 1000, power: true, show: whole },
  {
    name: "p99_ms", of: traffic, text: "limit for the first token, p99", low: 50, high: 10000, power: true,
    show: (v) => `${whole(v)} ms`,
  },
  { name: "lost_share", of: traffic, text: "machines lost that limits survive", low: 0, high: 0.5, show: percent },
  { name: "balance", of: traffic, text: "busiest machine's load / mean", low: 1, high: 4, show: (v) => v.toFixed(2) },
  {
    name: "price_per_hour", of: machine, text: "price of a machine an hour", low: 0.2, high: 20, power: true,
    show: (v) => `$${v.toFixed(2)}`,
  },
];
const COUNT = 1000;
const valueAt = (s, place) =>
  s.power ? s.low * (s.high / s.low) ** (place / COUNT) : s.low + ((s.high - s.low) * place) / COUNT;
const placeOf = (s, value) =>
  Math.round(
    COUNT * (s.power ? Math.log(value / s.low) / Math.log(s.high / s.low) : (value - s.low) / (s.high - s.low)),
  );

const dollars = (value, digits) =>
  `$${value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })}`;
const withChange = (change) => ({ ...traffic, ...change });

function addSlider(slider) {
  const label = document.createElement("label");
  const output = document.createElement("output");
  const input = document.createElement("input");
  Object.assign(input, { type: "range", min: 0, max: COUNT, step: 1, id: slider.name });
  input.value = placeOf(slider, slider.of[slider.name]);
  input.ariaLabel = slider.text;
  const show = () => {
    output.textContent = slider.show(slider.of[slider.name]);
    input.ariaValueText = output.textContent;
  };
  show();
  input.addEventListener("input", () => {
    slider.of[slider.name] = valueAt(slider, Number(input.value));
    show();
    update();
  });
  label.append(slider.text, " ", output, input);
  document.getElementById("sliders").append(label);
}

function resultRows() {
  const plan = fleet(machine, traffic);
  if (plan === null) return [["machines", "not one message fits"]];
  const { busiest } = plan;
  return [
    ["machines", plan.machines.toLocaleString("en")],
    ["limit of a machine", plan.limit],
    ["one machine, messages a second", plan.rate_of_a_machine.toFixed(1)],
    ["first token, p50 / p99", `${whole(busiest.p50_ms)} / ${whole(busiest.p99_ms)} ms`],
    ["speed of a reply", `${whole(busiest.tokens_per_second)} tokens/s`],
    ["a message, at the peak", dollars(plan.dollars_a_message, 7)],
    ["an hour of talk, at the peak", dollars(plan.dollars_an_hour_of_talk, 5)],
    ["an hour of talk, at the day's mean", dollars(plan.dollars_an_hour_of_talk_mean, 5)],
    ["a month", dollars(plan.dollars_a_month, 0)],
  ];
}

function showResults() {
  const body = document.getElementById("results");
  body.replaceChildren(
    ...resultRows().map((cells) => {
      const row = document.createElement("tr");
      row.append(...cells.map((text) => Object.assign(document.createElement("td"), { textContent: text })));
      return row;
    }),
  );
}

const steps = (low, high, count) => Array.from({ length: count }, (_, i) => low * (high / low) ** (i / (count - 1)));
const points = (xs, value) => xs.map((x) => ({ x, y: value(x) })).filter(({ y }) => Number.isFinite(y));
const hourOf = (changes) => fleet(machine, withChange(changes))?.dollars_an_hour_of_talk ?? NaN;

const PLOTS = {
  "by-hit-rate": {
    x: "prompt tokens computed, %", y: "$ an hour of talk, peak",
    lines: () => [["cost", points(steps(0.3, 90, 25), (miss) => hourOf({ hit_rate: 1 - miss / 100 }))]],
  },
  "by-session": {
    x: "messages of a conversation", y: "$ an hour of talk, peak",
    lines: () => [["cost", points(steps(2, 300, 25), (turns) => hourOf({ turns }))]],
  },
  "by-load": {
    x: "messages a second at one machine", y: "first token, ms",
    lines: () => {
      const [most] = capacity(machine, traffic);
      const rates = steps(Math.max(most / 50, 1e-3), Math.max(most, 1e-2) * 1.2, 30);
      const at = (rate, name) => oneMachine(machine, traffic, rate)[name] ?? NaN;
      return ["p50_ms", "p99_ms"].map((name) => [name.slice(0, 3), points(rates, (rate) => at(rate, name))]);
    },
  },
  "by-limit": {
    x: "limit for the first token, p99, ms", y: "machines",
    lines: () => {
      const at = (p99_ms) => fleet(machine, withChange({ p99_ms }))?.machines ?? NaN;
      return [["machines", points(steps(50, 10000, 20), at)]];
    },
  },
};
const COLOURS = ["#1f6feb", "#d1495b"];
const charts = {};

function axis(text) {
  const ticks = { maxTicksLimit: 8, callback: (v) => Number(v.toPrecision(3)) };
  return { type: "logarithmic", title: { display: true, text }, ticks };
}

function draw(name, plot) {
  const datasets = plot.lines().map(([label, data], i) => ({
    label, data, borderColor: COLOURS[i], backgroundColor: COLOURS[i], pointRadius: 0, borderWidth: 2,
  }));
  if (charts[name]) {
    charts[name].data.datasets = datasets;
    charts[name].update("none");
    return;
  }
  charts[name] = new Chart(document.getElementById(name), {
    type: "line",
    data: { datasets },
    options: {
      animation: false, parsing: false, maintainAspectRatio: false,
      scales: { x: axis(plot.x), y: axis(plot.y) },
      plugins: { legend: { display: datasets.length > 1 } },
    },
  });
}

function update() {
  showResults();
  for (const [name, plot] of Object.entries(PLOTS)) draw(name, plot);
}

document.getElementById("about").textContent =
  `${machine.name}; ${traffic.name}. The formulas and their sources are in examples/fleet/model.py.`;
SLIDERS.forEach(addSlider);
update();
