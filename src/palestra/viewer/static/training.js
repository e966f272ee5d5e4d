// The training view: a curve for each metric of the run. A point leads to the episodes of its step.

// The metrics shown at first, in this order; the reader can add others by name.
const USUAL = ["reward", "success", "evaluation/score", "evaluation/success", "turns", "entropy", "kl", "staleness", "tokens_per_second"];
const CHART = { width: 400, height: 190, left: 46, right: 12, top: 12, bottom: 24 };

function svg(tag, properties = {}, ...children) {
  const element = document.createElementNS(document.getElementById("pen").namespaceURI, tag);
  for (const [name, value] of Object.entries(properties)) element.setAttribute(name, String(value));
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

const metricNames = (metrics) => [...new Set(metrics.flatMap((line) => Object.keys(line)))].filter((name) => name !== "step").sort();

function usualMetrics(names) {
  return USUAL.filter((usual) => names.includes(usual));
}

function trainingFacts(metrics) {
  const last = metrics.at(-1) ?? {};
  const list = [["steps", number(metrics.length)]];
  for (const name of ["reward", "success", "turns"]) if (typeof last[name] === "number") list.push([`${name}, last step`, decimal(last[name])]);
  const tokens = metrics.reduce((sum, line) => sum + (line.tokens ?? 0), 0);
  if (tokens) list.push(["tokens learned from", number(tokens)]);
  const spent = metrics.flatMap((line) => Object.entries(line).filter(([name]) => name.startsWith("seconds/")));
  const seconds = spent.reduce((sum, [, value]) => sum + value, 0);
  if (seconds) list.push(["time", duration(seconds)]);
  return el("dl", { class: "numbers" }, list.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

function trainingView(run, metrics, query) {
  const names = metricNames(metrics);
  const added = (query.show ?? "").split(",").filter((name) => names.includes(name));
  const shown = [...new Set([...usualMetrics(names), ...added])];
  const add = (event) => event.target.value && Router.go(Router.with({ show: [...added, event.target.value].join(",") }));
  const choose = el("select", { "aria-label": "another number", onchange: add },
    el("option", { value: "" }, `add one of ${number(names.length)} numbers`),
    names.filter((name) => !shown.includes(name)).map((name) => el("option", { value: name }, plain(name))));
  const kept = new Set(run.columns.step);
  const steps = metrics.filter((line) => kept.has(line.step)).length;
  return el("div", { class: "training" },
    el("p", { class: "lead" }, `Click a point to see the episodes of its step. The run kept episodes of ${number(steps)} of ${number(metrics.length)} steps.`),
    el("div", { class: "charts" }, shown.map((name) => chart(name, metrics, kept, Number(query.at ?? -1)))),
    el("p", {}, choose));
}

function chart(name, metrics, kept, marked) {
  const points = pointsOf(name, metrics);
  const readout = el("span", { class: "facts" }, points.length ? `${shortNumber(points.at(-1).value)} at step ${points.at(-1).step}` : "");
  const head = el("h3", {}, plain(name), readout);
  if (!points.length) return el("section", { class: "chart" }, head);
  const x = scale(points.map((point) => point.step), CHART.left, CHART.width - CHART.right);
  const y = scale(points.flatMap((point) => [point.low, point.high]), CHART.height - CHART.bottom, CHART.top);
  const dot = svg("circle", { class: "dot", r: 4, cx: -9, cy: -9 });
  const drawing = svg("svg", { viewBox: `0 0 ${CHART.width} ${CHART.height}`, role: "img", "aria-label": `${plain(name)} by step` },
    gridOf(x, y), curveOf(points, x, y), pointMarks(points, x, y, { kept, marked }), dot);
  follow(drawing, points, x, (point) => {
    dot.setAttribute("cx", x.at(point.step));
    dot.setAttribute("cy", y.at(point.value));
    readout.textContent = `${shortNumber(point.value)} at step ${point.step}`;
  });
  return el("section", { class: "chart", "data-metric": name }, head, drawing);
}

// The values of a metric. A score has an interval in two other metrics.
function pointsOf(name, metrics) {
  const [low, high] = name.endsWith("/score") ? [name.replace(/score$/, "low"), name.replace(/score$/, "high")] : [name, name];
  return metrics.filter((line) => Number.isFinite(line[name]))
    .map((line) => ({ step: line.step, value: line[name], low: line[low] ?? line[name], high: line[high] ?? line[name] }));
}

function gridOf(x, y) {
  return [
    y.ticks.map((tick) => [svg("line", { class: "grid", x1: CHART.left, x2: CHART.width - CHART.right, y1: y.at(tick), y2: y.at(tick) }),
      svg("text", { class: "tick", x: CHART.left - 6, y: y.at(tick) + 4, "text-anchor": "end" }, shortNumber(tick))]),
    x.ticks.filter(Number.isInteger).map((tick) => svg("text", { class: "tick", x: x.at(tick), y: CHART.height - 6, "text-anchor": "middle" }, shortNumber(tick))),
  ];
}

function curveOf(points, x, y) {
  const places = (values) => values.map(([step, value]) => `${x.at(step).toFixed(1)},${y.at(value).toFixed(1)}`).join(" ");
  const outline = [...points.map((point) => [point.step, point.high]), ...points.toReversed().map((point) => [point.step, point.low])];
  return [
    points.some((point) => point.low !== point.high) ? svg("polygon", { class: "band", points: places(outline) }) : null,
    svg("polyline", { class: "curve", points: places(points.map((point) => [point.step, point.value])) }),
  ];
}

function pointMarks(points, x, y, { kept, marked }) {
  const mark = (point, properties) => svg("circle", { ...properties, cx: x.at(point.step), cy: y.at(point.value) });
  return [
    points.length <= 120 ? points.map((point) => mark(point, { class: kept.has(point.step) ? "point kept" : "point", r: 2.4 })) : null,
    points.filter((point) => point.step === marked).map((point) => mark(point, { class: "marked", r: 6 })),
  ];
}

// The point nearest to the pointer is shown; a click opens the episodes of its step.
function follow(drawing, points, x, show) {
  const nearest = (event) => {
    const box = drawing.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * CHART.width;
    return points.reduce((a, b) => (Math.abs(x.at(b.step) - at) < Math.abs(x.at(a.step) - at) ? b : a));
  };
  drawing.addEventListener("pointermove", (event) => show(nearest(event)));
  drawing.addEventListener("click", (event) => Router.go(stepHref(nearest(event).step)));
}

const stepHref = (step) => { const { parts } = Router.read(); return `#/r/${parts[1] ?? 0}?step=${step}`; };

// Maps values to places, and gives round numbers for the ticks.
function scale(values, from, to) {
  let low = Math.min(...values);
  let high = Math.max(...values);
  if (low === high) { low -= Math.abs(low) / 2 || 0.5; high += Math.abs(high) / 2 || 0.5; }
  const rough = (high - low) / 6;
  const size = 10 ** Math.floor(Math.log10(rough));
  const unit = size * [1, 2, 5, 10].find((factor) => factor * size >= rough);
  const ticks = [];
  for (let tick = Math.ceil(low / unit - 1e-9) * unit; tick <= high + 1e-9 * unit; tick += unit) ticks.push(Number(tick.toPrecision(12)));
  return { ticks, at: (value) => from + ((value - low) / (high - low)) * (to - from) };
}

function shortNumber(value) {
  const size = Math.abs(value);
  if (size && (size < 0.001 || size >= 1e7)) return value.toExponential(1).replace("-", "−");
  return (size >= 1000 ? Math.round(value).toLocaleString("en-US") : String(Number(value.toPrecision(3)))).replace("-", "−");
}

// Above the episodes of one step: its metrics, and links to the steps before and after it and to the curves.
function stepHead(run, metrics, step) {
  const line = metrics.find((found) => found.step === step);
  const steps = [...new Set(run.columns.step)].filter((found) => found >= 0).sort((a, b) => a - b);
  const before = steps.filter((found) => found < step).at(-1);
  const after = steps.find((found) => found > step);
  const link = (label, to) => (to === undefined ? null : el("a", { class: "chip", href: stepHref(to) }, label));
  const entries = Object.entries(line ?? {}).filter(([name]) => name !== "step");
  return el("div", { class: "step" },
    el("p", {}, el("a", { class: "chip", href: `#/r/${run.number}?list=training&at=${step}` }, "curves"), " ",
      link(`← step ${before}`, before), " ", link(`step ${after} →`, after)),
    steps.includes(step) ? null : el("p", { class: "hint" }, `The run kept no episode of step ${step}.`),
    entries.length ? fold(`all ${entries.length} numbers of step ${step}`, "", pairs(entries, shortNumber)) : null);
}
