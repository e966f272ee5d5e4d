// The chat view: what the environment showed, what the policy wrote, and its reward, turn by turn.

function chatView(episode) {
  const rail = el("nav", { class: "rail", "aria-label": "Turns" });
  const flow = el("div", { class: "flow" });
  const scale = Math.max(1e-9, ...episode.turns.map((turn) => Math.abs(turn.reward ?? 0)));
  if (Object.keys(episode.info ?? {}).length) flow.append(fold("reset info", "", longText(JSON.stringify(episode.info, null, 2))));
  episode.turns.forEach((turn, index) => {
    flow.append(turnBlock(turn, index));
    rail.append(railMark(turn, index, scale));
  });
  flow.append(endBlock(episode));
  return el("div", { class: "chat" }, rail, flow);
}

function railMark(turn, index, scale) {
  const reward = turn.reward ?? 0;
  const bar = el("i", { class: reward < 0 ? "bad" : "good" });
  bar.style.width = `${Math.round((30 * Math.abs(reward)) / scale)}px`;
  return el("a", { href: Router.turn(index), title: `turn ${index + 1}: reward ${signed(reward)}`, "data-turn": index }, String(index + 1), reward ? bar : null);
}

// Pictures arrive later, because the server replays the episode to draw them: one before each turn and one after the last, or
// null. The text stays beside them.
function withPictures(view, episode, coming) {
  const shown = [...episode.turns.map((turn) => turn.observation), episode.final_observation];
  coming.then((pictures) => pictures?.forEach((picture, index) => {
    const body = view.querySelector(`#turn-${index} .said.env .body`);
    if (!body || !picture.length || typeof shown[index] !== "string") return;
    const drawn = el("div", { class: "picture", role: "img", "aria-label": "the board as its environment draws it" }, pictureNodes(picture));
    body.replaceChildren(el("div", { class: "beside" }, el("div", {}, foldedText(shown[index], SHOWN)), drawn));
    const { query } = Router.read();
    if (query.text && view.isConnected) markText(query.text);
  }), () => null); // the server has stopped: the text is complete without pictures
  return view;
}

// The server has reduced the HTML of an environment to a few kinds of elements with a few style properties.
function pictureNodes(nodes) {
  return nodes.map((node) => {
    if (typeof node === "string") return plain(node);
    const element = el(node.tag, {}, pictureNodes(node.children));
    for (const [name, value] of Object.entries(node.style)) element.style.setProperty(name, value);
    return element;
  });
}

function turnBlock(turn, index) {
  const completion = turn.completion;
  return el("section", { class: "turn", id: `turn-${index}` },
    el("h3", {}, el("a", { href: Router.turn(index) }, `Turn ${index + 1}`), rewardBadge(turn.reward ?? 0), turnFacts(turn)),
    el("div", { class: "said env" }, el("span", { class: "who" }, "environment"), outlined(el("div", { class: "body" }, contentNodes(turn.observation)), turn.info?.acted_on)),
    completion.reasoning ? fold("thinking", firstLine(completion.reasoning), longText(completion.reasoning)) : null,
    el("div", { class: "said policy" }, el("span", { class: "who" }, "policy"),
      el("div", { class: "body" }, completion.text ? foldedText(completion.text) : el("em", { class: "hint" }, "wrote nothing"))),
    turn.info && Object.keys(turn.info).length ? fold("info", firstLine(JSON.stringify(turn.info)), longText(JSON.stringify(turn.info, null, 2))) : null);
}

// The element on which a turn acts is outlined in the observation before it: its line, and its place on a screenshot.
function outlined(body, acted) {
  if (typeof acted?.element !== "string" || !/^e\d{1,6}$/u.test(acted.element)) return body;
  outlineLine(body, acted.element);
  const { box } = acted;
  if (Array.isArray(box) && box.length === 4 && box.every(Number.isFinite)) {
    for (const image of body.querySelectorAll("img")) image.addEventListener("load", () => outlinePlace(image, box), { once: true });
  }
  return body;
}

// A node after a steering character begins in the middle of a line, and so do many nodes of rendered Markdown: a text of the page
// there must not pass for the line of an element.
function outlineLine(body, element) {
  if (Reading.markdown) return;
  const line = new RegExp(`^ *\\[${element}\\] .*$`, "gmu");
  const walker = document.createTreeWalker(body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const inside = walker.currentNode.previousSibling?.className === "steering";
    const found = [...walker.currentNode.data.matchAll(line)].find((one) => one.index > 0 || !inside);
    if (!found) continue;
    const hit = walker.currentNode.splitText(found.index);
    hit.splitText(found[0].length);
    const mark = el("span", { class: "acted", title: "the element acted on" });
    hit.replaceWith(mark);
    mark.append(hit);
    return;
  }
}

function outlinePlace(image, [left, top, wide, high]) {
  const frame = el("span", { class: "acted", title: "the element acted on" });
  const shares = { left: left / image.naturalWidth, top: top / image.naturalHeight, width: wide / image.naturalWidth, height: high / image.naturalHeight };
  for (const [name, share] of Object.entries(shares)) frame.style.setProperty(name, `${100 * share}%`);
  const holder = el("span", { class: "shot" });
  image.replaceWith(holder);
  holder.append(image, frame);
}

function rewardBadge(reward) {
  return el("span", { class: `badge ${reward > 0 ? "good" : reward < 0 ? "bad" : ""}`, title: "reward of this turn" }, signed(reward));
}

function turnFacts(turn) {
  const facts = [];
  const { finish, usage } = turn.completion;
  if (finish && finish !== "stop") facts.push(`cut: ${plain(finish)}`);
  if (usage?.completion_tokens) facts.push(`${number(usage.completion_tokens)} tokens`);
  if (turn.act_seconds) facts.push(`policy ${duration(turn.act_seconds)}`);
  if (turn.env_seconds) facts.push(`environment ${duration(turn.env_seconds)}`);
  return el("span", { class: "facts" }, facts.join(" · "));
}

function endBlock(episode) {
  const final = contentText(episode.final_observation ?? "");
  return el("section", { class: "turn end", id: `turn-${episode.turns.length}` },
    el("h3", {}, "End", el("span", { class: `badge ${FAILED.has(episode.stop) ? "bad" : ""}` }, stopLabel(episode.stop))),
    final ? el("div", { class: "said env" }, el("span", { class: "who" }, "environment"), el("div", { class: "body" }, contentNodes(episode.final_observation))) : null,
    (episode.failures ?? []).map((failure) =>
      el("div", { class: "said failure" }, el("span", { class: "who" }, plain(failure.boundary)),
        el("div", { class: "body" }, el("b", {}, `${plain(failure.kind)} while in ${plain(failure.phase)}, attempt ${(failure.attempt ?? 0) + 1}`), "\n", longText(failure.message),
          failure.detail ? fold("traceback", "", longText(failure.detail)) : null))));
}

const FAILED = new Set(["error", "deadline"]);
const stopLabel = (stop) => plain(stop).replaceAll("_", " ");
