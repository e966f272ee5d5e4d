// Lists: the runs, what is inside a run by environment, its tasks, its episodes.

const PAGE = 150;

// ------------------------------------------------------------------------------------------------------------- runs

function runsView(runs) {
  return el("div", { class: "cards" }, runs.map((run) => {
    const total = outcome(run, run.rows());
    return el("a", { class: "card", href: `#/r/${run.number}` }, el("h2", {}, plain(run.name), run.trained ? el("span", { class: "badge" }, "training") : null), facts(total));
  }));
}

function outcome(run, rows) {
  const scored = rows.filter((row) => run.columns.reward[row] !== null);
  const judged = rows.filter((row) => run.columns.success[row] !== null);
  return {
    episodes: rows.length,
    scored: scored.length,
    score: average(scored.map((row) => run.columns.reward[row])),
    judged: judged.length,
    solved: judged.filter((row) => run.columns.success[row]).length,
    turns: average(scored.map((row) => run.columns.turns[row])),
    sampled: rows.reduce((sum, row) => sum + run.columns.sampled[row], 0),
    dollars: rows.reduce((sum, row) => sum + run.columns.dollars[row], 0),
  };
}

function facts(total) {
  const list = [["episodes", number(total.episodes)], ["mean reward", decimal(total.score)]];
  if (total.judged) list.push(["solved", percent(total.solved, total.judged)]);
  list.push(["mean turns", decimal(total.turns, 1)]);
  if (total.sampled) list.push(["tokens written", number(total.sampled)]);
  if (total.dollars) list.push(["cost", `$${total.dollars.toFixed(2)}`]);
  if (total.scored < total.episodes) list.push(["without a score", number(total.episodes - total.scored)]);
  return el("dl", { class: "numbers" }, list.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

// --------------------------------------------------------------------------------------------------------------- run

const FILTERS = { step: "training step", env: "environment", policy: "policy", stop: "ending", boundary: "fault", outcome: "outcome" };

function runView(run, query, found, metrics) {
  const rows = filtered(run, query, found);
  const tabs = { ...(metrics ? { training: "Training" } : {}), episodes: "Episodes", tasks: "Tasks", envs: "Environments" };
  // A training run opens with its curves; whoever asks for a step or a text wants episodes.
  const first = metrics && !query.step && !query.text ? "training" : "episodes";
  const tab = Object.hasOwn(tabs, query.list ?? "") ? query.list : first;
  if (tab === "training") return el("div", { class: "run" }, trainingFacts(metrics), runBar(run, query, tabs, tab, null), trainingView(run, metrics, query));
  const list = { episodes: episodeTable, tasks: taskTable, envs: envTable }[tab];
  return el("div", { class: "run" }, facts(outcome(run, rows)), metrics && query.step ? stepHead(run, metrics, Number(query.step)) : null,
    run.read < 1 ? el("p", { class: "hint" }, `reading: ${Math.floor(100 * run.read)} % of the file so far`) : null,
    runBar(run, query, tabs, tab, rows.length),
    rows.length ? list(run, rows, query) : el("p", { class: "empty" }, "No episode fits these filters."));
}

function runBar(run, query, tabs, tab, count) {
  return el("div", { class: "bar" },
    el("div", { class: "tabs", role: "tablist" }, Object.entries(tabs).map(([key, label]) =>
      el("a", { href: Router.with({ list: key, sort: null, ...(key === "training" ? { step: null } : {}) }), role: "tab", "aria-selected": String(key === tab) }, label))),
    count === null ? null : filterBar(run, query, count));
}

function filtered(run, query, found) {
  const inFound = found && new Set(found);
  return run.rows().filter((row) =>
    (!inFound || inFound.has(row)) &&
    Object.keys(FILTERS).every((name) => !query[name] || filterValue(run, name, row) === query[name]));
}

function filterValue(run, name, row) {
  if (name === "step") return run.columns.step[row] < 0 ? "" : String(run.columns.step[row]);
  if (name !== "outcome") return run.get(name, row);
  if (run.columns.reward[row] === null) return "no score";
  const success = run.columns.success[row];
  return success === null ? "not judged" : success ? "solved" : "not solved";
}

function filterBar(run, query, count) {
  const selects = Object.entries(FILTERS).map(([name, label]) => {
    const values = [...new Set(run.rows().map((row) => filterValue(run, name, row)))].filter(Boolean).sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    if (values.length < 2 && !query[name]) return null;
    return el("select", { "aria-label": label, onchange: (event) => Router.go(Router.with({ [name]: event.target.value || null })) },
      el("option", { value: "" }, `any ${label}`),
      values.map((value) => el("option", { value, selected: value === query[name] }, name === "step" ? `${label} ${value}` : plain(value))));
  });
  const active = Object.keys(FILTERS).some((name) => query[name]) || query.text;
  return el("div", { class: "filters" }, selects, active
    ? el("a", { class: "chip", href: `#/r/${run.number}` }, `${number(count)} of ${number(run.count)} · clear`) : null);
}

// ------------------------------------------------------------------------------------------------------------- tables

// columns: [{key, label, of: item → sort value, show: item → node, right}]
function table(items, columns, query, link) {
  const [key, direction] = (query.sort ?? "").split(":");
  const by = columns.find((column) => column.key === key);
  const ordered = by ? [...items].sort((a, b) => compareValues(by.of(a), by.of(b), direction === "down" ? -1 : 1)) : items;
  const body = el("tbody");
  const heads = columns.map((column) => {
    const next = column.key === key && direction !== "down" ? `${column.key}:down` : `${column.key}:up`;
    const mark = column.key === key ? (direction === "down" ? " ↓" : " ↑") : "";
    return el("th", { class: column.right ? "right" : "" }, el("a", { href: Router.with({ sort: next }) }, column.label + mark));
  });
  const end = el("div", { class: "sentinel" });
  let shown = 0;
  const more = () => {
    body.append(...ordered.slice(shown, shown + PAGE).map((item) => tableRow(item, columns, link)));
    shown = Math.min(shown + PAGE, ordered.length);
    end.textContent = shown < ordered.length ? `${number(shown)} of ${number(ordered.length)}` : "";
  };
  more();
  new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && shown < ordered.length && more(), { rootMargin: "800px" }).observe(end);
  return el("div", { class: "table" }, el("table", {}, el("thead", {}, el("tr", {}, heads)), body), end);
}

function tableRow(item, columns, link) {
  const href = link(item);
  const open = (event) => { if (!event.target.closest("a")) Router.go(href); };
  return el("tr", { onclick: open }, columns.map((column, index) =>
    el("td", { class: column.right ? "right" : "" }, index === 0 ? el("a", { href }, column.show(item)) : column.show(item))));
}

// What is missing comes last, in either direction.
function compareValues(a, b, sign) {
  const missing = (value) => value === null || Number.isNaN(value);
  if (missing(a) || missing(b)) return missing(a) - missing(b);
  return a === b ? 0 : a < b ? -sign : sign;
}

const textColumn = (key, label, of) => ({ key, label, of, show: (item) => plain(of(item)) });
const numberColumn = (key, label, of, show = number) => ({ key, label, of, show: (item) => show(of(item)), right: true });

function varied(run, names) {
  return names.filter(([name]) => run.columns[name].values.length > 1);
}

function episodeTable(run, rows, query) {
  const get = (name) => (row) => run.get(name, row);
  const columns = [
    { key: "episode", label: "#", of: (row) => row, show: (row) => String(row) },
    ...(run.columns.step.some((step) => step >= 0) ? [numberColumn("step", "step", get("step"))] : []),
    textColumn("env", "environment", get("env")),
    textColumn("task", "task", get("task")),
    ...varied(run, [["policy", "policy"], ["player", "player"]]).map(([name, label]) => textColumn(name, label, get(name))),
    { key: "reward", label: "reward", of: get("reward"), show: (row) => rewardCell(run, row), right: true },
    { key: "stop", label: "ended by", of: get("stop"), show: (row) => stopCell(run, row) },
    numberColumn("turns", "turns", get("turns")),
    ...(run.columns.sampled.some(Boolean) ? [numberColumn("sampled", "tokens", get("sampled"))] : []),
    ...(run.columns.version.some((version) => version > 0) ? [numberColumn("version", "weights", get("version"))] : []),
    numberColumn("seconds", "time", get("seconds"), duration),
  ];
  const view = table(rows, columns, query, (row) => `#/r/${run.number}/e/${row}`);
  Router.playlist = { run: run.number, rows };
  return view;
}

function rewardCell(run, row) {
  const reward = run.columns.reward[row];
  const success = run.columns.success[row];
  if (reward === null) return el("span", { class: "badge bad" }, "no score");
  return el("span", { class: `badge ${success ?? reward > 0 ? "good" : ""}` }, decimal(reward));
}

function stopCell(run, row) {
  const stop = run.get("stop", row);
  const boundary = run.get("boundary", row);
  return el("span", { class: FAILED.has(stop) ? "bad" : "" }, stopLabel(stop) + (boundary ? ` (${plain(boundary)})` : ""));
}

function grouped(rows, keyOf) {
  const groups = new Map();
  for (const row of rows) {
    const key = keyOf(row);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(row);
  }
  return [...groups.values()];
}

function groupColumns(run) {
  const total = new Map();
  const of = (rows) => { if (!total.has(rows)) total.set(rows, outcome(run, rows)); return total.get(rows); };
  return [
    numberColumn("episodes", "episodes", (rows) => rows.length),
    numberColumn("score", "mean reward", (rows) => of(rows).score, decimal),
    { key: "solved", label: "solved", right: true, of: (rows) => (of(rows).judged ? of(rows).solved / of(rows).judged : null),
      show: (rows) => (of(rows).judged ? meter(of(rows).solved, of(rows).judged) : "–") },
    numberColumn("turns", "mean turns", (rows) => of(rows).turns, (value) => decimal(value, 1)),
    numberColumn("missing", "without a score", (rows) => rows.length - of(rows).scored),
  ];
}

function meter(part, whole) {
  const fill = el("i");
  fill.style.width = `${(100 * part) / whole}%`;
  return el("span", { class: "meter", title: `${part} of ${whole}` }, el("span", { class: "track" }, fill), `${part}/${whole}`);
}

function taskTable(run, rows, query) {
  const { env, task } = run.columns;
  const columns = [
    textColumn("task", "task", (group) => run.get("task", group[0])),
    textColumn("env", "environment", (group) => run.get("env", group[0])),
    ...groupColumns(run),
  ];
  const groups = grouped(rows, (row) => env.codes[row] * task.values.length + task.codes[row]);
  return table(groups, columns, query, (group) => `#/r/${run.number}/g/${group[0]}`);
}

function envTable(run, rows, query) {
  const columns = [textColumn("env", "environment", (group) => run.get("env", group[0])), ...groupColumns(run)];
  return table(grouped(rows, (row) => run.columns.env.codes[row]), columns, query,
    (group) => `#/r/${run.number}?env=${encodeURIComponent(run.get("env", group[0]))}`);
}
