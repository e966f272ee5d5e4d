// Lists: the runs, and the episodes, tasks and environments of a run.

// ------------------------------------------------------------------------------------------------------------- runs

// `note` is Markdown that stands above the runs.
function runsView(runs, note) {
  return el("div", {}, note ? el("section", { class: "note" }, markdownNodes(note)) : null, el("div", { class: "cards" }, runs.map((run) =>
    el("a", { class: "card", href: `#/r/${run.number}` },
      el("h2", {}, plain(run.name), run.about.kind || run.trained ? el("span", { class: "badge" }, plain(run.about.kind || "training")) : null),
      el("p", { class: "facts" }, aboutText(run)),
      facts(outcome(run, run.rows()), run.scores)))));
}

// The model and the date of a run, in one line.
function aboutText(run) {
  const models = run.about.model ? [run.about.model] : run.columns.policy.values.filter(Boolean);
  const named = models.length > 3 ? `${models.length} policies` : models.map(plain).join(", ");
  return [named, run.about.date ? `${run.about.date.slice(0, 16).replace("T", " ")} UTC` : ""].filter(Boolean).join(" · ");
}

// Above the lists of a run: what it is, the way to its report, and its settings.
function runHead(run) {
  const settings = Object.entries(run.about.settings);
  const report = run.about.report && !Source.embedded ? el("a", { class: "chip", href: `runs/${run.number}/report.html` }, "Report") : null;
  return [
    el("p", { class: "about" },
      run.about.kind ? el("span", { class: "badge" }, plain(run.about.kind)) : null,
      el("span", { class: "facts" }, aboutText(run)), report),
    settings.length ? fold("settings", plain(settings.map((pair) => pair.join(" ")).join(" · ").slice(0, 400)), pairs(settings)) : null,
  ];
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

// `scores` are means with intervals over all episodes of the run, or null. A run with fewer scores than were asked for has none.
function facts(total, scores) {
  const list = [["episodes", number(total.episodes)]];
  if (scores?.score) list.push(["score, 95 % interval", interval(scores.score)]);
  else if (scores?.asked) list.push([`mean reward of ${number(total.scored)} of ${number(scores.asked)} episodes asked for`, decimal(total.score)]);
  else list.push(["mean reward", decimal(total.score)]);
  if (scores?.success) list.push(["solved, 95 % interval", interval(scores.success, (share) => String(Math.round(100 * share)), " %")]);
  else if (total.judged) list.push(["solved", percent(total.solved, total.judged)]);
  list.push(["mean turns", decimal(total.turns, 1)]);
  if (total.sampled) list.push(["tokens written", number(total.sampled)]);
  if (total.dollars) list.push(["cost", `$${total.dollars.toFixed(2)}`]);
  if (total.scored < total.episodes) list.push(["without a score", number(total.episodes - total.scored)]);
  return el("dl", { class: "numbers" }, list.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

const interval = ({ mean, low, high }, show = decimal, unit = "") =>
  el("span", {}, show(mean) + unit, el("span", { class: "interval" }, ` [${show(low)}, ${show(high)}]`));

// The episodes of all runs that contain a text.
async function everywhereView(runs, query) {
  const found = await Promise.all(runs.map((run) => Source.search(run.number, query.text)));
  const hits = runs.flatMap((run) => found[run.number].filter((row) => row < run.count).map((row) => ({ run, row })));
  Router.playlist = null;
  const columns = [
    textColumn("run", "run", (hit) => hit.run.name),
    numberColumn("episode", "#", (hit) => hit.row),
    { key: "reward", label: "reward", of: (hit) => hit.run.get("reward", hit.row), show: (hit) => rewardCell(hit.run, hit.row), right: true },
    textColumn("env", "environment", (hit) => hit.run.get("env", hit.row)),
    textColumn("task", "task", (hit) => hit.run.get("task", hit.row), { minor: true }),
  ];
  const counted = `${number(hits.length)} episode${hits.length === 1 ? "" : "s"} in ${number(found.filter((rows) => rows.length).length)}`;
  return el("div", { class: "run" },
    el("p", { class: "lead" }, `“${plain(query.text)}”: ${counted} of ${number(runs.length)} runs. `, el("a", { class: "chip", href: "#/" }, "clear")),
    hits.length ? table(hits, columns, query, (hit) => `#/r/${hit.run.number}/e/${hit.row}${asking(query.text)}`) : null);
}

const asking = (text) => (text ? `?${new URLSearchParams({ text })}` : "");

// --------------------------------------------------------------------------------------------------------------- run

const FILTERS = { step: "training step", env: "environment", policy: "policy", stop: "ending", boundary: "fault", cause: "failure", outcome: "outcome" };

const MOST_OPTIONS = 300;

function runView(run, query, found, metrics) {
  const rows = filtered(run, query, found);
  const tabs = { ...(metrics ? { training: "Training" } : {}), episodes: "Episodes", tasks: "Tasks", envs: "Environments" };
  // A training run opens with its curves, unless the address names a step or a text: then with episodes.
  const first = metrics && !query.step && !query.text ? "training" : "episodes";
  const tab = Object.hasOwn(tabs, query.list ?? "") ? query.list : first;
  if (tab === "training") {
    return el("div", { class: "run" }, runHead(run), trainingFacts(metrics), runBar(run, query, tabs, tab, null), trainingView(run, metrics, query));
  }
  const list = { episodes: episodeTable, tasks: taskTable, envs: envTable }[tab];
  return el("div", { class: "run" }, runHead(run), facts(outcome(run, rows), scoresOf(run, rows, query)),
    metrics && query.step ? stepHead(run, metrics, Number(query.step)) : null,
    run.read < 1 ? el("p", { class: "hint" }, `reading: ${Math.floor(100 * run.read)} % of the file so far`) : null,
    runBar(run, query, tabs, tab, rows.length),
    rows.length ? list(run, rows, query) : el("p", { class: "empty" }, "No episode matches these filters."));
}

// The intervals of the episodes shown: of the whole run, of one environment, or none for any other choice.
function scoresOf(run, rows, query) {
  if (!run.scores || rows.length === run.count) return run.scores;
  const others = [...Object.keys(FILTERS), "text"].filter((name) => name !== "env" && query[name]);
  return query.env && !others.length ? { score: run.scores.envs[query.env] } : null;
}

// tabs: [[address, label, whether it is selected], …]
const tabList = (tabs) =>
  el("div", { class: "tabs", role: "tablist" }, tabs.map(([href, label, selected]) => el("a", { href, role: "tab", "aria-selected": String(selected) }, label)));

function runBar(run, query, tabs, tab, count) {
  return el("div", { class: "bar" },
    tabList(Object.entries(tabs).map(([key, label]) =>
      [Router.with({ list: key, sort: null, columns: null, ...(key === "training" ? { step: null } : {}) }), label, key === tab])),
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
    const found = new Set(run.rows().map((row) => filterValue(run, name, row)));
    const values = [...found].filter(Boolean).sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    if ((values.length < 2 || values.length > MOST_OPTIONS) && !query[name]) return null;
    return el("select", { "aria-label": label, onchange: (event) => Router.go(Router.with({ [name]: event.target.value || null })) },
      el("option", { value: "" }, `any ${label}`),
      values.map((value) => el("option", { value, selected: value === query[name] }, name === "step" ? `${label} ${value}` : plain(value))));
  });
  const kept = ["list", "columns"].filter((name) => query[name]).map((name) => [name, query[name]]);
  const active = Object.keys(FILTERS).some((name) => query[name]) || query.text;
  const cleared = `#/r/${run.number}${kept.length ? `?${new URLSearchParams(kept)}` : ""}`;
  return el("div", { class: "filters" }, selects,
    active ? el("a", { class: "chip", href: cleared }, `${number(count)} of ${number(run.count)} · clear`) : null);
}

// ------------------------------------------------------------------------------------------------------ lists of a run

// A step or a version; −1 where none is recorded.
const ifAny = (value) => (value < 0 ? "–" : number(value));

function episodeColumns(run) {
  const get = (name) => (row) => run.get(name, row);
  const any = (name, test = Boolean) => ({ minor: true, optional: !run.columns[name].some(test) });
  const several = (name) => ({ minor: true, optional: run.columns[name].values.length < 2 });
  return [
    { key: "episode", label: "#", of: (row) => row, show: (row) => String(row) },
    { key: "reward", label: "reward", of: get("reward"), show: (row) => rewardCell(run, row), right: true },
    numberColumn("step", "step", get("step"), ifAny, any("step", (step) => step >= 0)),
    textColumn("env", "environment", get("env")),
    textColumn("task", "task", get("task"), { minor: true }),
    textColumn("policy", "policy", get("policy"), several("policy")),
    textColumn("player", "player", get("player"), several("player")),
    { key: "stop", label: "ended by", of: get("stop"), show: (row) => stopCell(run, row), minor: true },
    { key: "cause", label: "failure", of: get("cause"), show: (row) => causeCell(run, row), ...several("cause"), minor: false },
    numberColumn("turns", "turns", get("turns"), number, { minor: true }),
    numberColumn("sampled", "tokens", get("sampled"), number, any("sampled")),
    numberColumn("context", "tokens recorded", get("context"), number, { minor: true, optional: true }),
    numberColumn("dollars", "cost", get("dollars"), (value) => (value ? `$${value.toFixed(4)}` : "–"), any("dollars")),
    numberColumn("version", "weights", get("version"), ifAny, any("version", (version) => version > 0)),
    numberColumn("group", "group", get("group"), number, { minor: true, optional: true }),
    numberColumn("member", "member", get("member"), number, { minor: true, optional: true }),
    numberColumn("attempt", "attempt", get("attempt"), (value) => number(value + 1), any("attempt")),
    numberColumn("seconds", "time", get("seconds"), duration, { minor: true }),
  ];
}

function episodeTable(run, rows, query) {
  const columns = episodeColumns(run);
  Router.playlist = { run: run.number, rows: sorted(rows, columns, query) };
  return table(rows, columns, query, (row) => `#/r/${run.number}/e/${row}${asking(query.text)}`);
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

function causeCell(run, row) {
  const cause = plain(run.get("cause", row));
  return el("span", { class: "bad", title: cause }, cause);
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

// `intervalOf` gives the interval of a group of rows, or null.
function groupColumns(run, intervalOf = () => null) {
  const total = new Map();
  const of = (rows) => { if (!total.has(rows)) total.set(rows, outcome(run, rows)); return total.get(rows); };
  return [
    numberColumn("episodes", "episodes", (rows) => rows.length, number, { minor: true }),
    { key: "score", label: "mean reward", right: true, of: (rows) => of(rows).score,
      show: (rows) => { const found = intervalOf(rows); return found ? interval(found) : decimal(of(rows).score); } },
    { key: "solved", label: "solved", right: true, minor: true, of: (rows) => (of(rows).judged ? of(rows).solved / of(rows).judged : null),
      show: (rows) => (of(rows).judged ? meter(of(rows).solved, of(rows).judged) : "–") },
    numberColumn("turns", "mean turns", (rows) => of(rows).turns, (value) => decimal(value, 1), { minor: true }),
    numberColumn("missing", "without a score", (rows) => rows.length - of(rows).scored, number, { minor: true }),
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
    textColumn("env", "environment", (group) => run.get("env", group[0]), { minor: true }),
    ...groupColumns(run),
  ];
  const groups = grouped(rows, (row) => env.codes[row] * task.values.length + task.codes[row]);
  return table(groups, columns, query, (group) => `#/r/${run.number}/g/${group[0]}`);
}

function envTable(run, rows, query) {
  const intervalOf = (group) => (run.scores && rows.length === run.count ? run.scores.envs[run.get("env", group[0])] : null);
  const columns = [textColumn("env", "environment", (group) => run.get("env", group[0])), ...groupColumns(run, intervalOf)];
  return table(grouped(rows, (row) => run.columns.env.codes[row]), columns, query,
    (group) => `#/r/${run.number}?env=${encodeURIComponent(run.get("env", group[0]))}`);
}
