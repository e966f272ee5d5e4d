// The address after # names what is shown, so that every view can be linked to:
//   #/                       the runs              #/r/0?env=…&sort=reward:down   one run, filtered and sorted
//   #/r/0/e/17               an episode as chat    #/r/0/e/17/tokens?colour=…     as tokens
//   #/r/0/e/17?turn=3        at a turn             #/r/0/g/17                     beside the other tries at its task
//   #/r/0?list=training      learning curves       #/r/0?step=12                  the episodes behind a point of them

const Router = {
  playlist: null,
  read() {
    const [path, query] = location.hash.replace(/^#\/?/, "").split("?", 2);
    return { parts: path.split("/").filter(Boolean), query: Object.fromEntries(new URLSearchParams(query ?? "")) };
  },
  with(changes) {
    const { parts, query } = Router.read();
    const next = new URLSearchParams(query);
    for (const [name, value] of Object.entries(changes)) value === null ? next.delete(name) : next.set(name, value);
    const text = next.toString();
    return `#/${parts.join("/")}${text ? `?${text}` : ""}`;
  },
  turn: (index) => Router.with({ turn: String(index + 1) }),
  go(hash) {
    location.hash = hash;
  },
};

const main = document.getElementById("main");
const search = document.getElementById("search");
let runs = [];
let drawn = 0;
let current = null;

async function draw() {
  const mine = ++drawn;
  const { parts, query } = Router.read();
  // Only the turn changed: stay and scroll.
  const key = `${parts.join("/")}?${new URLSearchParams({ ...query, turn: "" })}`;
  if (current?.key === key) return showTurn(query.turn);
  search.value = query.text ?? "";
  try {
    const view = await viewOf(parts, query);
    if (mine !== drawn) return;
    current = { key };
    main.replaceChildren(view.node);
    document.getElementById("trail").replaceChildren(...view.trail);
    document.title = plain(view.title);
    if (query.turn) showTurn(query.turn);
    else window.scrollTo(0, 0);
  } catch (error) {
    if (mine === drawn) main.replaceChildren(el("p", { class: "empty bad" }, plain(error.message)));
  }
}

async function viewOf(parts, query) {
  const home = el("a", { href: "#/", class: "home" }, "palestra");
  if (parts[0] !== "r" && runs.length === 1) parts = ["r", "0"];
  if (parts[0] !== "r") return { node: runsView(runs), trail: [home], title: "palestra" };
  const run = runs[Number(parts[1])];
  if (!run) throw new Error(`There is no run number ${parts[1]} here.`);
  const trail = [home, el("a", { href: `#/r/${run.number}` }, plain(run.name))];
  if (parts.length < 4) {
    const found = query.text ? await Source.search(run.number, query.text) : null;
    const metrics = run.trained ? await Source.metrics(run.number) : null;
    return { node: runView(run, query, found, metrics), trail, title: run.name };
  }
  const row = Number(parts[3]);
  if (!(row >= 0 && row < run.count)) throw new Error(`Run "${run.name}" has no episode ${parts[3]}.`);
  trail.push(el("a", { href: `#/r/${run.number}/g/${row}` }, `${plain(run.get("env", row))} · ${plain(run.get("task", row))}`));
  if (parts[2] === "g") return { node: await groupView(runs, run, row, query), trail, title: `group of ${row}` };
  trail.push(el("a", { href: `#/r/${run.number}/e/${row}` }, `episode ${row}`));
  return { node: await episodeView(run, row, parts[4] ?? "chat", query), trail, title: `episode ${row}` };
}

async function episodeView(run, row, tab, query) {
  const episode = normalised(await Source.episode(run.number, row));
  const base = `#/r/${run.number}/e/${row}`;
  const tabs = { chat: [base, "Chat"], tokens: [`${base}/tokens`, "Tokens"], raw: [`${base}/raw`, "Raw"] };
  const views = {
    chat: () => withPictures(chatView(episode), episode, Source.pictures(run.number, row)),
    tokens: async () => tokensView(episode, { run, row, colour: Object.hasOwn(COLOURS, query.colour ?? "") ? query.colour : "mask", vocabulary: await Source.vocabulary(run.number) }),
    raw: () => el("pre", { class: "raw" }, longText(JSON.stringify(episode, null, 2))),
  };
  if (!Object.hasOwn(views, tab)) throw new Error(`An episode has no view called ${tab}.`);
  return el("div", { class: "episode" }, episodeHead(run, row, episode),
    el("div", { class: "bar" },
      el("div", { class: "tabs", role: "tablist" }, Object.entries(tabs).map(([name, [href, label]]) => el("a", { href, role: "tab", "aria-selected": String(name === tab) }, label)),
        el("a", { href: `#/r/${run.number}/g/${row}`, role: "tab", "aria-selected": "false" }, `Group (${run.siblings(row).length})`)),
      el("div", { class: "filters" }, neighbour(row, -1, "← previous"), neighbour(row, 1, "next →"))),
    await views[tab]());
}

// Fields at their defaults are left out of the file.
function normalised(episode) {
  return { segments: [], turns: [], failures: [], final_observation: "", info: {}, ...episode };
}

function episodeHead(run, row, episode) {
  const get = (name) => run.get(name, row);
  const list = [["reward", decimal(get("reward"))], ["turns", number(get("turns"))], ["ended by", stopLabel(get("stop"))]];
  if (get("success") !== null) list.push(["solved", get("success") ? "yes" : "no"]);
  if (get("policy")) list.push(["policy", plain(get("policy"))]);
  if (get("player")) list.push(["player", plain(get("player"))]);
  if (get("sampled")) list.push(["tokens written", number(get("sampled"))]);
  if (get("context")) list.push(["tokens recorded", `${number(get("context"))} in ${episode.segments.length} segment${episode.segments.length > 1 ? "s" : ""}`]);
  if (get("dollars")) list.push(["cost", `$${get("dollars").toFixed(4)}`]);
  list.push(["time", duration(get("seconds"))]);
  if (get("attempt")) list.push(["attempt", number(get("attempt") + 1)]);
  return el("dl", { class: "numbers" }, list.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

function neighbourOf(row, step) {
  const { parts } = Router.read();
  const run = runs[Number(parts[1] ?? 0)];
  const rows = Router.playlist?.run === run.number ? Router.playlist.rows : run.rows();
  const next = rows[rows.indexOf(row) + step];
  return next === undefined ? null : `#/r/${run.number}/e/${next}${parts[4] ? `/${parts[4]}` : ""}`;
}

function neighbour(row, step, label) {
  const href = neighbourOf(row, step);
  return href ? el("a", { class: "chip", href }, label) : null;
}

function showTurn(turn) {
  const index = Math.max(0, Number(turn) - 1 || 0);
  const target = document.getElementById(`turn-${index}`) ?? document.getElementById(`tokens-turn-${index}`);
  document.querySelectorAll(".here").forEach((element) => element.classList.remove("here"));
  document.querySelectorAll(`[data-turn="${index}"]`).forEach((element) => element.classList.add("here"));
  target?.classList.add("here");
  target?.scrollIntoView({ block: "start" });
}

// A large run comes in parts. Lists grow while it is read; an open episode is left alone.
async function readRuns() {
  try {
    do {
      const catalog = await Source.catalog();
      runs = catalog.runs.map((raw, index) => new Run(index, raw));
      if (Router.read().parts.length < 4) current = null;
      await draw();
    } while (runs.some((run) => run.read < 1));
  } catch (error) {
    main.replaceChildren(el("p", { class: "empty bad" }, plain(error.message)));
  }
}

// ------------------------------------------------------------------------------------------------------------- keyboard

const KEYS = {
  j: ["next episode", () => stepEpisode(1)],
  k: ["previous episode", () => stepEpisode(-1)],
  n: ["next turn", () => stepTurn(1)],
  p: ["previous turn", () => stepTurn(-1)],
  c: ["chat view", () => episodeTab("")],
  t: ["token view", () => episodeTab("/tokens")],
  g: ["group view", () => { const { parts } = Router.read(); if (parts[3]) Router.go(`#/r/${parts[1]}/g/${parts[3]}`); }],
  u: ["up", () => { const { parts } = Router.read(); Router.go(parts.length > 2 ? `#/r/${parts[1]}` : "#/"); }],
  r: ["read what was added", () => { Source.forget(); readRuns(); }],
  d: ["light or dark", () => switchTheme()],
  "/": ["search", () => search.focus()],
  "?": ["these keys", () => showKeys()],
};

function episodeTab(tab) {
  const { parts } = Router.read();
  if (parts[3]) Router.go(`#/r/${parts[1]}/e/${parts[3]}${tab}`);
}

function stepEpisode(step) {
  const { parts } = Router.read();
  const href = parts[2] === "e" ? neighbourOf(Number(parts[3]), step) : neighbourOf(Router.playlist?.rows[0] ?? 0, 0);
  if (href) Router.go(href);
}

function stepTurn(step) {
  const { query } = Router.read();
  const last = document.querySelectorAll("section.turn").length;
  if (last) Router.go(Router.turn(Math.min(last, Math.max(1, Number(query.turn ?? (step > 0 ? 0 : 2)) + step)) - 1));
}

function showKeys() {
  const dialog = document.getElementById("keys");
  dialog.replaceChildren(el("h2", {}, "Keys"), el("dl", {}, Object.entries(KEYS).map(([key, [label]]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, label)])),
    el("form", { method: "dialog" }, el("button", {}, "Close")));
  dialog.showModal();
}

function switchTheme() {
  const root = document.documentElement;
  const dark = (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("palestra-theme", root.dataset.theme); } catch { /* a page from a file may not keep anything */ }
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, select, textarea, dialog")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const found = KEYS[event.key];
  if (found) { event.preventDefault(); found[1](); }
});
search.addEventListener("change", () => {
  const { parts, query } = Router.read();
  const run = parts[1] ?? "0";
  const next = new URLSearchParams(parts.length < 4 ? query : {});
  search.value ? next.set("text", search.value) : next.delete("text");
  Router.go(`#/r/${run}?${next}`);
});
document.getElementById("theme").addEventListener("click", switchTheme);
document.getElementById("help").addEventListener("click", showKeys);
window.addEventListener("hashchange", draw);

(async () => {
  try { const kept = localStorage.getItem("palestra-theme"); if (kept) document.documentElement.dataset.theme = kept === "dark" ? "dark" : "light"; } catch { /* as above */ }
  await readRuns();
  document.body.dataset.ready = "yes";
})();
