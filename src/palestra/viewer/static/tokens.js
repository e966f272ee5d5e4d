// The token view: every recorded token, colored by mask, probability, advantage or weight version.
//
// A segment is divided into stretches (sampled in one turn, or context in between), and a stretch into chunks. A chunk is filled
// when it comes near the screen, so the cost of 100,000 tokens is that of the visible ones. The strip above shows the whole segment.

const CHUNK = 400;
const COLOURS = {
  mask: "Mask: what is trained",
  logprob: "Probability when sampled",
  advantage: "Advantage of the turn",
  version: "Weight version",
};

function tokensView(episode, { run, row, colour, vocabulary }) {
  if (!episode.segments.length) {
    return el("p", { class: "empty" }, "This episode has no recorded tokens: its policy returned text only.");
  }
  const paint = painter(episode, run.advantage(row));
  const readout = el("output", { class: "readout" }, "Point at a token.");
  const body = el("div", { class: "segments" });
  const how = { paint, colour, vocabulary, readout };
  const blocks = episode.segments.map((raw, index) => segmentBlock(decoded(raw), index, how));
  body.append(...blocks.map(({ block }) => block));
  // Scrolling to a token moves others below a pointer that rests: they count only when it moves.
  body.addEventListener("pointermove", (event) => { if (event.movementX || event.movementY) how.held = false; });
  return el("div", { class: "tokens" }, colourBar(colour), legend(colour, paint), leastLikelyButton(blocks, how), readout, body);
}

const MOST_UNLIKELY = 100;

// Leads to the sampled token with the lowest probability, then to the next one.
function leastLikelyButton(blocks, how) {
  let places = null;
  let next = 0;
  return el("button", { type: "button", id: "least-likely", title: "The sampled token with the lowest probability, then the next (l)", onclick: () => {
    places ??= leastLikely(blocks);
    if (places.length) showToken(places[next++ % places.length], how);
  } }, "Least likely token");
}

function leastLikely(blocks) {
  const places = blocks.flatMap(({ segment, chunks }) => segment.stretches.filter(({ turn }) => turn >= 0).flatMap((stretch) =>
    Array.from({ length: stretch.stop - stretch.start }, (_, index) => stretch.start + index).map((at) =>
      ({ segment, chunks, stretch, at, logprob: segment.logprobs[at + stretch.offset] }))));
  return places.sort((a, b) => a.logprob - b.logprob).slice(0, MOST_UNLIKELY);
}

function showToken({ segment, chunks, stretch, at }, how) {
  const { start, element } = chunks.findLast((chunk) => chunk.start <= at);
  fillChunk(element, segment, how);
  document.querySelectorAll(".token.chosen").forEach((token) => token.classList.remove("chosen"));
  const token = element.children[at - start];
  token.classList.add("chosen");
  token.scrollIntoView({ block: "center" });
  how.held = true;
  how.readout.textContent = describe(segment, stretch, at, how);
}

function colourBar(colour) {
  return el("div", { class: "tabs small", role: "tablist" }, Object.entries(COLOURS).map(([key, label]) =>
    el("a", { href: Router.with({ colour: key }), role: "tab", "aria-selected": String(key === colour) }, label)));
}

function decoded(raw) {
  const ids = intsOf(raw.ids);
  const logprobs = floatsOf(raw.logprobs);
  const stretches = [];
  let end = 0;
  let sampled = 0;
  for (const [start, stop, turn, version] of raw.spans) {
    if (start > end) stretches.push({ start: end, stop: start, turn: -1, version: -1, offset: 0 });
    stretches.push({ start, stop, turn, version: version ?? 0, offset: sampled - start });
    sampled += stop - start;
    end = stop;
  }
  if (end < ids.length) stretches.push({ start: end, stop: ids.length, turn: -1, version: -1, offset: 0 });
  return { ids, logprobs, stretches };
}

// The recorded advantage (info.advantage of a turn), or else the episode's reward compared with its group.
function painter(episode, groupAdvantage) {
  const recorded = episode.turns.some((turn) => typeof turn.info?.advantage === "number");
  const advantageOf = (turn) => (recorded ? episode.turns[turn]?.info?.advantage ?? null : groupAdvantage);
  const versions = [...new Set(episode.segments.flatMap((segment) => segment.spans.map((span) => span[3] ?? 0)))].sort((a, b) => a - b);
  const largest = Math.max(1e-9, ...episode.turns.map((_, turn) => Math.abs(advantageOf(turn) ?? 0)));
  return {
    recorded, versions, advantageOf, largest,
    // Hue, saturation, and strength from 0 to 1; null for context.
    mask: () => [215, 75, 0.55],
    logprob: (stretch, logprob) => { const p = Math.exp(logprob); return [p * 130, 75, 0.25 + 0.6 * (1 - p)]; },
    advantage: (stretch) => { const a = advantageOf(stretch.turn); return a === null ? null : [a < 0 ? 8 : 145, 65, (0.75 * Math.abs(a)) / largest]; },
    version: (stretch) => [(versions.indexOf(stretch.version) * 67 + 200) % 360, 65, 0.5],
  };
}

function legend(colour, paint) {
  const swatch = (values, label) => {
    const box = el("i", { class: "swatch" });
    box.style.backgroundColor = colourCss(values);
    return el("span", {}, box, label);
  };
  const entries = {
    mask: () => [swatch(paint.mask(), "sampled by the policy: trained"), swatch(null, "context: not trained")],
    logprob: () => [1, 0.5, 0.1, 0.01].map((p) => swatch(paint.logprob(null, Math.log(p)), `p = ${p}`)),
    advantage: () => [
      swatch([145, 65, 0.75], `up to +${decimal(paint.largest)}`), swatch([8, 65, 0.75], `down to −${decimal(paint.largest)}`),
      el("span", { class: "hint" }, paint.recorded ? "as recorded in each turn's info" : "not recorded; computed here from the rewards of this group (GRPO)"),
    ],
    version: () => paint.versions.slice(0, 12).map((version) => swatch(paint.version({ version }), `version ${version}`)),
  };
  return el("div", { class: "legend" }, entries[colour]());
}

const colourCss = (values) => (values ? `hsl(${values[0].toFixed(0)} ${values[1]}% 50% / ${values[2].toFixed(3)})` : "transparent");

function segmentBlock(segment, index, view) {
  const sampled = segment.logprobs.length;
  const chunks = [];
  const blocks = segment.stretches.map((stretch) => stretchBlock(segment, stretch, view, chunks));
  const block = el("section", { class: "segment" },
    el("h3", {}, `Segment ${index + 1}`, el("span", { class: "facts" }, `${number(segment.ids.length)} tokens, ${number(sampled)} sampled`)),
    strip(segment, view, chunks), blocks);
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((found) => found.isIntersecting)) {
      observer.unobserve(entry.target);
      fillChunk(entry.target, segment, view);
    }
  }, { rootMargin: "600px" });
  chunks.forEach((chunk) => observer.observe(chunk.element));
  return { block, segment, chunks };
}

function stretchBlock(segment, stretch, view, chunks) {
  const length = stretch.stop - stretch.start;
  const label = stretch.turn < 0 ? `context · ${number(length)}` : `turn ${stretch.turn + 1} · sampled ${number(length)} · weights ${stretch.version}`;
  const block = el("div", { class: `stretch ${stretch.turn < 0 ? "context" : "sampled"}` }, el("div", { class: "label" }, label));
  if (stretch.turn >= 0) block.id = `tokens-turn-${stretch.turn}`;
  for (let start = stretch.start; start < stretch.stop; start += CHUNK) {
    const stop = Math.min(start + CHUNK, stretch.stop);
    const element = el("div", { class: "chunk" });
    element.style.minHeight = `${Math.ceil((stop - start) / 16) * 22}px`;
    element.chunk = { stretch, start, stop };
    chunks.push({ start, element });
    block.append(element);
  }
  return block;
}

function fillChunk(element, segment, view) {
  if (element.childElementCount) return;
  const { stretch, start, stop } = element.chunk;
  for (let at = start; at < stop; at++) {
    const token = el("span", { class: "token" }, tokenText(segment.ids[at], view.vocabulary));
    if (stretch.turn >= 0) token.style.backgroundColor = colourCss(view.paint[view.colour](stretch, segment.logprobs[at + stretch.offset]));
    element.append(token);
  }
  element.style.minHeight = "";
  element.addEventListener("pointerover", (event) => {
    const at = start + [...element.children].indexOf(event.target);
    if (at >= start && !view.held) view.readout.textContent = describe(segment, stretch, at, view);
  });
}

function tokenText(id, vocabulary) {
  const text = vocabulary?.[id];
  return text === undefined || text === null ? String(id) : plain(text.replaceAll("\n", "⏎").replaceAll("\t", "⇥").replaceAll(" ", "\u00a0"));
}

function describe(segment, stretch, at, view) {
  const parts = [`position ${number(at)}`, `id ${segment.ids[at]}`];
  if (view.vocabulary) parts.push(JSON.stringify(plain(view.vocabulary[segment.ids[at]] ?? "?")));
  if (stretch.turn < 0) return [...parts, "context, not trained"].join(" · ");
  const logprob = segment.logprobs[at + stretch.offset];
  const advantage = view.paint.advantageOf(stretch.turn);
  return [...parts, `turn ${stretch.turn + 1}`, `log-prob ${decimal(logprob, 3)} (p = ${Math.exp(logprob).toFixed(3)})`,
    `advantage ${decimal(advantage)}`, `weights ${stretch.version}`].join(" · ");
}

// The whole segment in one line of pixels. A click goes there.
function strip(segment, view, chunks) {
  const canvas = el("canvas", { class: "strip", width: 1200, height: 18, title: "the whole segment: click to go there" });
  const pen = canvas.getContext("2d");
  const perPixel = segment.ids.length / canvas.width;
  for (const stretch of segment.stretches.filter((found) => found.turn >= 0)) {
    const first = Math.floor(stretch.start / perPixel);
    const last = Math.max(first + 1, Math.ceil(stretch.stop / perPixel));
    for (let x = first; x < last; x++) {
      const at = Math.min(stretch.stop - 1, Math.max(stretch.start, Math.floor(x * perPixel)));
      pen.fillStyle = colourCss(view.paint[view.colour](stretch, segment.logprobs[at + stretch.offset]));
      pen.fillRect(x, 0, 1, canvas.height);
    }
  }
  canvas.addEventListener("click", (event) => {
    const at = Math.floor((event.offsetX / canvas.clientWidth) * segment.ids.length);
    const chunk = chunks.findLast((found) => found.start <= at);
    chunk?.element.scrollIntoView({ block: "center" });
  });
  return canvas;
}
