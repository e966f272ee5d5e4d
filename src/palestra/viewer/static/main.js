// The part of the address after # names what the page shows, so every view has a link:
//   #/                       the runs              #/?text=…                      a text in all runs
//   #/r/0/e/17?text=…        a text in an episode  #/r/0?env=…&sort=reward:down   one run, filtered and sorted
//   #/r/0/e/17               an episode as chat    #/r/0/e/17/tokens?colour=…     as tokens
//   #/r/0/e/17?turn=3        at a turn             #/r/0/g/17                     beside the other tries at its task
//   #/r/0?list=training      learning curves       #/r/0?step=12                  the episodes behind a point of them

const Router = {
  // The episodes of the list shown last, in its order: what j and k step through.
  playlist: null,
  // The address of the list shown last, with its filters, and its run (null for a search in all runs): where "up" leads.
  list: null,
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
  // The same without a new entry in the history: after many turns, one step Back still leads to the list.
  replace(hash) {
    history.replaceState(null, "", hash);
    return draw();
  },
};

// The list that an episode of `run` belongs to: the one that the reader came from, or else all episodes of the run.
const listOf = (run) => (Router.list && (Router.list.run === null || Router.list.run === run) ? Router.list.address : `#/r/${run}`);

const main = document.getElementById("main");
const search = document.getElementById("search");
let runs = [];
let note = "";
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
    followTurns();
    const marked = query.text && parts.length > 3 ? markText(query.text) : null;
    if (query.turn) showTurn(query.turn);
    else if (marked) marked.scrollIntoView({ block: "center" });
    else window.scrollTo(0, 0);
  } catch (error) {
    if (mine === drawn) main.replaceChildren(el("p", { class: "empty bad" }, plain(error.message)));
  }
}

// Draw the same address again, after a choice that is not in it.
function redraw() {
  current = null;
  return draw();
}

async function viewOf(parts, query) {
  const home = el("a", { href: "#/", class: "home" }, "palestra");
  if (parts[0] !== "r" && runs.length === 1) parts = ["r", "0"];
  if (parts[0] !== "r" && query.text) {
    Router.list = { run: null, address: location.hash };
    return { node: await everywhereView(runs, query), trail: [home], title: "palestra" };
  }
  if (parts[0] !== "r") return { node: runsView(runs, note), trail: [home], title: "palestra" };
  const run = runs[Number(parts[1])];
  if (!run) throw new Error(`There is no run number ${parts[1]} here.`);
  const trail = [home, el("a", { href: parts.length < 4 ? `#/r/${run.number}` : listOf(run.number) }, plain(run.name))];
  if (parts.length < 4) {
    Router.list = { run: run.number, address: location.hash || `#/r/${run.number}` };
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

function showTurn(turn) {
  const index = Math.max(0, Number(turn) - 1 || 0);
  const target = document.getElementById(`turn-${index}`) ?? document.getElementById(`tokens-turn-${index}`);
  document.querySelectorAll(".turn.here").forEach((element) => element.classList.remove("here"));
  target?.classList.add("here");
  target?.scrollIntoView({ block: "start" });
  markRail(index);
}

// The rail marks the turn at the top of the window and scrolls with the page.
let following = null;
function followTurns() {
  following?.disconnect();
  if (!main.querySelector(".rail")) return;
  const top = document.getElementById("top").offsetHeight;
  following = new IntersectionObserver((entries) => {
    const first = entries.filter((entry) => entry.isIntersecting).map((entry) => Number(entry.target.id.slice("turn-".length))).sort((a, b) => a - b)[0];
    if (first !== undefined) markRail(first);
  }, { rootMargin: `-${top + 20}px 0px -${Math.max(0, window.innerHeight - top - 60)}px 0px` });
  main.querySelectorAll("section.turn").forEach((section) => following.observe(section));
}

function markRail(index) {
  const rail = main.querySelector(".rail");
  const link = rail?.querySelector(`[data-turn="${index}"]`) ?? rail?.lastElementChild;
  if (!link) return;
  rail.querySelectorAll(".here").forEach((element) => element.classList.remove("here"));
  link.classList.add("here");
  const [mark, box] = [link.getBoundingClientRect(), rail.getBoundingClientRect()];
  rail.scrollTop += mark.top - box.top - rail.clientHeight / 2;
  rail.scrollLeft += mark.left - box.left - rail.clientWidth / 2; // on a phone the rail is a row
}

// A large run arrives in parts. Lists grow while the server reads it; an open episode stays as it is.
async function readRuns() {
  try {
    do {
      const catalog = await Source.catalog();
      note = catalog.note;
      runs = catalog.runs.map((raw, index) => new Run(index, raw));
      if (Router.read().parts.length < 4) await redraw();
      else if (!current) await draw();
    } while (runs.some((run) => run.read < 1));
  } catch (error) {
    main.replaceChildren(el("p", { class: "empty bad" }, plain(error.message)));
  }
}

// A run may still be written. The page asks for the sizes of the files, and reads what is new. Lists grow and keep their place;
// an open episode stays as it is. While the reader chooses something in a list, the list waits.
const LISTEN = 1500; // milliseconds
let extents = null;
let growing = null;
async function followRuns() {
  try {
    const found = JSON.stringify(await Source.extents());
    if (found !== extents && !main.querySelector("details[open], select:focus, input:focus")) {
      extents = found;
      await readNew();
    }
  } catch {
    // The server has stopped: what is on the page stays.
  }
  setTimeout(followRuns, LISTEN);
}

async function readNew() {
  const before = episodeCount();
  const place = window.scrollY;
  Source.forget();
  await readRuns();
  if (Router.read().parts.length < 4) window.scrollTo(0, place);
  const live = document.getElementById("live");
  live.textContent = `+${number(Math.max(0, episodeCount() - before))} episodes`;
  clearTimeout(growing);
  growing = setTimeout(() => { live.textContent = ""; }, 10 * LISTEN);
}

const episodeCount = () => runs.reduce((sum, run) => sum + run.count, 0);

// ------------------------------------------------------------------------------------------------------------- keyboard

const KEYS = {
  j: ["next episode", () => stepEpisode(1)],
  k: ["previous episode", () => stepEpisode(-1)],
  n: ["next turn", () => stepTurn(1)],
  p: ["previous turn", () => stepTurn(-1)],
  c: ["chat view", () => episodeTab("")],
  t: ["token view", () => episodeTab("/tokens")],
  l: ["in the token view: the least likely token, then the next", () => document.getElementById("least-likely")?.click()],
  g: ["group view", () => { const { parts } = Router.read(); if (parts[3]) Router.go(`#/r/${parts[1]}/g/${parts[3]}`); }],
  u: ["up, back to the list as it was filtered", () => { const { parts } = Router.read(); Router.go(parts.length > 2 ? listOf(Number(parts[1])) : "#/"); }],
  m: ["rendered Markdown, or text as written", () => switchMarkdown()],
  r: ["load new episodes", () => { Source.forget(); readRuns(); }],
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
  if (last) Router.replace(Router.turn(Math.min(last, Math.max(1, Number(query.turn ?? (step > 0 ? 0 : 2)) + step)) - 1));
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
  Kept.set("theme", root.dataset.theme);
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
// On the start page the search covers all runs, inside a run that run.
search.addEventListener("change", () => {
  const { parts, query } = Router.read();
  const next = new URLSearchParams(parts.length < 4 ? query : {});
  search.value ? next.set("text", search.value) : next.delete("text");
  Router.go(parts[0] === "r" ? `#/r/${parts[1]}?${next}` : `#/?${next}`);
});
search.addEventListener("keydown", (event) => { if (event.key === "Enter") search.blur(); }); // which is a change
document.getElementById("theme").addEventListener("click", switchTheme);
document.getElementById("help").addEventListener("click", showKeys);
window.addEventListener("hashchange", draw);

(async () => {
  const theme = Kept.get("theme");
  if (theme) document.documentElement.dataset.theme = theme === "dark" ? "dark" : "light";
  extents = JSON.stringify(await Source.extents());
  await readRuns();
  document.body.dataset.ready = "yes";
  if (!Source.embedded) setTimeout(followRuns, LISTEN);
})();
