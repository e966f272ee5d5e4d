// The call graph of an agent's episode: its calls to the model in order, one lane per conversation.
//
// A call that continues the latest call of a lane stays in the lane. Any other call, such as a sub-agent's first one or a second answer to
// the same prompt, goes to a lane beside it. A lane can be taken over in a later turn, when its conversation has ended.

const FORKS = ["template", "edit", "compaction", "unknown"];
const LINKS = {
  start: "a new conversation",
  extended: "continues the recorded tokens",
  repeated: "the same prompt, sampled again",
  template: "rendered anew: the chat template rewrites earlier messages",
  edit: "rendered anew: the agent changed a reply, the system text or the tools",
  compaction: "rendered anew: the agent dropped or summarized messages",
  unknown: "rendered anew: the conversation has replies of another model",
};
const ROLES = { auxiliary: "an aside such as a title or a summary", discarded: "the agent did not use this reply" };
const EXCERPT = 160;

const callsOf = (episode) => (episode.agent?.calls ?? []).map((call) => ({ parent: null, prompt_tokens: 0, tokens: 0, version: 0, text: "", tools: [], finish: "stop", ...call }));

function callsView(episode) {
  const calls = callsOf(episode);
  if (!calls.length) return el("p", { class: "empty" }, "No agent of another framework made calls in this episode.");
  const lanes = laneOf(calls);
  const grid = el("div", { class: "calls" });
  grid.style.setProperty("--lanes", String(1 + Math.max(...lanes.values())));
  let turn = null;
  for (const call of calls) {
    if (call.turn !== turn) grid.append(turnLine(episode, turn = call.turn));
    const card = callCard(call);
    card.style.gridColumn = String(1 + lanes.get(call.number));
    grid.append(card);
  }
  return el("div", {}, el("p", { class: "lead" }, callsLead(episode.agent, calls)), grid);
}

// Number of a call → its lane.
function laneOf(calls) {
  const last = [];
  const lanes = new Map();
  for (const call of calls) {
    let lane = last.findIndex((one) => one.number === call.parent);
    if (lane < 0 && call.parent === null && FORKS.includes(call.link)) lane = last.length ? last.indexOf(last.reduce((one, other) => (other.number > one.number ? other : one))) : -1;
    if (lane < 0) lane = last.findIndex((one) => one.turn < call.turn && !calls.some((later) => later.number > call.number && later.parent === one.number));
    if (lane < 0) lane = last.length;
    last[lane] = call;
    lanes.set(call.number, lane);
  }
  return lanes;
}

function turnLine(episode, turn) {
  const taken = episode.turns[turn];
  const label = taken ? `turn ${turn + 1}` : "after the last turn";
  return el("div", { class: "call-turn" }, el("span", {}, label), taken ? el("span", { class: "facts" }, plain(taken.completion.text).slice(0, EXCERPT)) : null);
}

function callCard(call) {
  const fork = FORKS.includes(call.link);
  const from = call.parent === null ? null : el("span", { class: "facts" }, `${call.link === "repeated" ? "again" : "after"} #${call.parent + 1}`);
  const text = call.text.length > EXCERPT
    ? el("details", {}, el("summary", {}, textNodes(`${call.text.slice(0, EXCERPT)}…`)), el("pre", {}, longText(call.text)))
    : el("div", { class: "call-text" }, textNodes(call.text));
  return el("article", { class: `call ${plain(call.role)}`, "data-call": call.number, "data-link": call.link },
    el("header", {}, el("b", {}, `#${call.number + 1}`), el("span", { class: `badge ${fork ? "bad" : ""}`, title: LINKS[call.link] }, plain(call.link)), from,
      call.role === "agent" ? null : el("span", { class: "badge", title: ROLES[call.role] }, plain(call.role))),
    text,
    call.tools.length ? el("div", { class: "call-tools" }, call.tools.map((name) => el("span", { class: "chip" }, `⚒ ${plain(name)}`))) : null,
    el("footer", { class: "facts" }, `${number(call.prompt_tokens)} prompt + ${number(call.tokens)} sampled tokens · ${plain(call.dialect)}`,
      call.version ? ` · weights ${number(call.version)}` : null, call.finish === "length" ? " · cut by the token limit" : null));
}

function callsLead(record, calls) {
  const counted = (names) => Object.entries(names ?? {}).map(([name, count]) => `${plain(name)} ${number(count)}`).join(", ");
  const sampled = calls.reduce((sum, call) => sum + call.tokens, 0);
  const parts = [`${number(calls.length)} call${calls.length > 1 ? "s" : ""}, ${number(sampled)} tokens sampled`, counted(record.links)];
  if (record.replayed) parts.push(`${number(record.replayed)} retries answered from memory`);
  if (record.refused) parts.push(`${number(record.refused)} refused after the end or the budget`);
  if (Object.keys(record.overridden ?? {}).length) parts.push(`overridden: ${counted(record.overridden)}`);
  if (Object.keys(record.ignored ?? {}).length) parts.push(`ignored: ${counted(record.ignored)}`);
  return parts.filter(Boolean).join(" · ");
}
