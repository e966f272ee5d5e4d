// One episode: its numbers, the ways to look at it, and copying or saving it.

async function episodeView(run, row, tab, query) {
  const line = await Source.line(run.number, row);
  const episode = normalised(JSON.parse(line));
  Reading.asWritten = Boolean(query.text);
  const base = `#/r/${run.number}/e/${row}`;
  const called = callsOf(episode).length;
  const calls = called ? { calls: [`${base}/calls`, `Calls (${number(called)})`] } : {};
  const tabs = { chat: [base, "Chat"], ...calls, tokens: [`${base}/tokens`, "Tokens"], raw: [`${base}/raw`, "Raw"] };
  const colour = Object.hasOwn(COLOURS, query.colour ?? "") ? query.colour : "mask";
  const views = {
    chat: () => withPictures(chatView(episode), episode, Source.pictures(run.number, row)),
    tokens: async () => tokensView(episode, { run, row, colour, vocabulary: await Source.vocabulary(run.number) }),
    calls: () => callsView(episode),
    raw: () => el("pre", { class: "raw" }, longText(JSON.stringify(episode, null, 2))),
  };
  const actions = {
    Markdown: () => switchMarkdown(),
    Copy: (event) => copyText(transcript(run, row, episode), event.target),
    Download: () => download(line, `${fileName(run.name)}-episode-${row}.json`),
  };
  if (!Object.hasOwn(views, tab)) throw new Error(`An episode has no view called ${tab}.`);
  return el("div", { class: "episode" }, episodeHead(run, row, episode),
    el("div", { class: "bar" },
      tabList([...Object.entries(tabs).map(([name, [href, label]]) => [href, label, name === tab]),
        [`#/r/${run.number}/g/${row}`, `Group (${run.siblings(row).length})`, false]]),
      el("div", { class: "filters" }, actionButtons(actions, tab), neighbour(row, -1, "← previous"), neighbour(row, 1, "next →"))),
    await views[tab]());
}

const TITLES = { Markdown: "Rendered Markdown, or text as written (m)", Copy: "Copy the conversation as text", Download: "Save the episode as JSON" };

function actionButtons(actions, tab) {
  return Object.entries(actions).filter(([name]) => name !== "Markdown" || tab === "chat").map(([name, act]) =>
    el("button", { type: "button", title: TITLES[name], onclick: act, "aria-pressed": name === "Markdown" ? String(Reading.markdown) : undefined }, name));
}

function switchMarkdown() {
  Reading.switch();
  redraw();
}

// The conversation as text, for a bug report or a prompt.
function transcript(run, row, episode) {
  const get = (name) => run.get(name, row);
  const head = `${get("env")} · ${get("task")}\n${get("policy") || "policy"} · reward ${decimal(get("reward"))} · ended by ${stopLabel(get("stop"))}`;
  const turns = episode.turns.map((turn, index) => [
    `## Turn ${index + 1} (reward ${signed(turn.reward ?? 0)})`, `### Environment\n${contentText(turn.observation)}`,
    ...(turn.completion.reasoning ? [`### Thinking\n${turn.completion.reasoning}`] : []), `### Policy\n${turn.completion.text}`].join("\n\n"));
  const end = [contentText(episode.final_observation), ...episode.failures.map((failure) => `${failure.kind}: ${failure.message}`)].filter(Boolean);
  return [head, ...turns, ...(end.length ? [`## End\n\n${end.join("\n\n")}`] : [])].join("\n\n") + "\n";
}

async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Copying is not allowed here";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
}

const fileName = (name) => name.replace(/[^\w.-]+/gu, "-").slice(-80);

function download(text, name) {
  const address = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const link = el("a", { href: address, download: name });
  link.click();
  URL.revokeObjectURL(address);
}

// The file omits fields that have their default value.
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
  const segments = `${episode.segments.length} segment${episode.segments.length > 1 ? "s" : ""}`;
  if (get("context")) list.push(["tokens recorded", `${number(get("context"))} in ${segments}`]);
  if (get("dollars")) list.push(["cost", `$${get("dollars").toFixed(4)}`]);
  list.push(["time", duration(get("seconds"))]);
  if (get("attempt")) list.push(["attempt", number(get("attempt") + 1)]);
  return el("dl", { class: "numbers" }, list.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

function neighbourOf(row, step) {
  const { parts, query } = Router.read();
  const run = runs[Number(parts[1] ?? 0)];
  const rows = Router.playlist?.run === run.number ? Router.playlist.rows : run.rows();
  const next = rows[rows.indexOf(row) + step];
  return next === undefined ? null : `#/r/${run.number}/e/${next}${parts[4] ? `/${parts[4]}` : ""}${asking(query.text)}`;
}

function neighbour(row, step, label) {
  const href = neighbourOf(row, step);
  return href ? el("a", { class: "chip", href }, label) : null;
}
