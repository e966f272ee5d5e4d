// Untrusted text. All of it enters the document as text nodes.

// el("div", {class: "turn", onclick: f}, child, "text", …)
function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// Characters that control a terminal, reorder a line or are invisible. The page shows their names instead.
const STEERING = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;

function nameOf(character) {
  const code = character.codePointAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  if (code === 0x7f) return "\u2421";
  return `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
}
const plain = (text) => String(text).replace(STEERING, nameOf);

function textNodes(text) {
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(STEERING)) {
    if (match.index > end) nodes.push(text.slice(end, match.index));
    nodes.push(el("span", { class: "steering" }, nameOf(match[0])));
    end = match.index + match[0].length;
  }
  nodes.push(text.slice(end));
  return nodes;
}

const FIRST_PIECE = 20_000;
const NEXT_PIECE = 200_000;

// A long text is shown from its beginning; a button adds the next piece.
function longText(text) {
  const holder = el("span");
  let shown = 0;
  const more = (length) => {
    const stop = Math.min(shown + length, text.length);
    holder.append(...textNodes(text.slice(shown, stop)));
    shown = stop;
    if (shown < text.length) {
      const rest = number(text.length - shown);
      const button = el("button", { class: "more", type: "button", onclick: () => { button.remove(); more(NEXT_PIECE); } },
        `show more (${rest} characters left)`);
      holder.append(button);
    }
  };
  more(FIRST_PIECE);
  return holder;
}

// Reader's choice: Markdown rendered, or text as written. Found text is marked in text as written.
const Reading = {
  asWritten: false,
  get markdown() { return Kept.get("markdown") === "yes" && !Reading.asWritten; },
  switch() { Kept.set("markdown", Kept.get("markdown") === "yes" ? "no" : "yes"); },
};
const proseNodes = (text) => (Reading.markdown ? markdownNodes(text) : [longText(text)]);

// Thinking and tool traffic, folded. The search for each tag continues where it stopped, so a hostile text of a million tags
// takes linear time; after MOST_FOLDS the rest stays text.
const FOLDED = { think: "thinking", tool_call: "tool call", tool_response: "tool answer", tool_result: "tool answer" };
const MOST_FOLDS = 300;

function nextFold(text, tag, from, atLineStart) {
  let start = text.indexOf(`<${tag}>`, from);
  while (atLineStart && start >= 0 && !beginsLine(text, start)) start = text.indexOf(`<${tag}>`, start + 1);
  const stop = start < 0 ? -1 : text.indexOf(`</${tag}>`, start);
  return stop < 0 ? null : { tag, start, stop };
}

function beginsLine(text, at) {
  while (at > 0 && (text[at - 1] === " " || text[at - 1] === "\t")) at--;
  return at === 0 || text[at - 1] === "\n";
}

// Tags in a policy's text are folded everywhere. An environment also explains how to write a call in the middle of a sentence,
// so in its text only tags at the start of a line are folded.
function foldedText(text, { atLineStart = false } = {}) {
  const nodes = [];
  let ahead = Object.keys(FOLDED).map((tag) => nextFold(text, tag, 0, atLineStart)).filter(Boolean);
  let end = 0;
  for (let folds = 0; ahead.length && folds < MOST_FOLDS; folds++) {
    const first = ahead.reduce((a, b) => (a.start < b.start ? a : b));
    if (first.start > end) nodes.push(...proseNodes(text.slice(end, first.start)));
    const body = text.slice(first.start + first.tag.length + 2, first.stop).trim();
    nodes.push(fold(FOLDED[first.tag], firstLine(body), longText(body)));
    end = first.stop + first.tag.length + 3;
    ahead = ahead.map((found) => (found.start < end ? nextFold(text, found.tag, end, atLineStart) : found)).filter(Boolean);
  }
  if (end < text.length || !nodes.length) nodes.push(...proseNodes(text.slice(end)));
  return nodes;
}

const SHOWN = { atLineStart: true };

// Mark a text everywhere on the page, unfold what hides it, and return the first mark. A text that is not on the page is in a part
// of a long text that is not shown yet, or only in the recorded data: the page says so.
const MOST_MARKS = 500;

function markText(needle) {
  const marks = [];
  const walker = document.createTreeWalker(main, NodeFilter.SHOW_TEXT);
  const nodes = [];
  while (walker.nextNode()) nodes.push(walker.currentNode);
  for (const node of nodes) {
    if (node.parentElement.closest("mark, button, .rail")) continue;
    let rest = node;
    for (let at = rest.data.indexOf(needle); at >= 0 && marks.length < MOST_MARKS; at = rest.data.indexOf(needle)) {
      const hit = rest.splitText(at);
      rest = hit.splitText(needle.length);
      const mark = el("mark");
      hit.replaceWith(mark);
      mark.append(hit);
      marks.push(mark);
    }
  }
  for (const mark of marks) for (let box = mark.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
  main.querySelector(".unmarked")?.remove();
  if (!marks.length) main.prepend(el("p", { class: "hint unmarked" }, `“${plain(needle)}” is in the recorded data of this episode, not in the text shown here: see Raw.`));
  return marks[0] ?? null;
}

const firstLine = (text) => plain(text.slice(0, 200).split("\n", 1)[0].slice(0, 90));

function fold(label, hint, ...content) {
  return el("details", { class: "fold" }, el("summary", {}, el("b", {}, label), hint ? el("span", { class: "hint" }, hint) : null),
    el("div", { class: "folded" }, content));
}

// Names and values in two columns.
const pairs = (entries, show = plain) => el("dl", { class: "pairs" }, entries.map(([name, value]) => [el("dt", {}, plain(name)), el("dd", {}, show(value))]));

// Content is text, or texts and pictures in order.
const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

function contentNodes(content) {
  if (typeof content === "string") return boardNodes(content);
  return content.map((part) => {
    if (part.type === "text") return boardNodes(part.text);
    if (!PICTURES.includes(part.media_type)) return el("span", { class: "hint" }, `[picture of type ${plain(part.media_type)}]`);
    return el("img", { src: `data:${part.media_type};base64,${part.data}`, alt: "what the environment showed" });
  });
}
const contentText = (content) =>
  typeof content === "string" ? content : content.map((part) => (part.type === "text" ? part.text : "[image]")).join("");

// ------------------------------------------------------------------------------------------------------------- boards

// Consecutive lines with the same number of short words are drawn as a board. "|" and ruled lines become gaps.
const BOARD_LIMIT = 20_000;
const RULE = /^[-+|=─┼]{3,}$/u;
const DRAWN = /^[#@$.*+ ]*#[#@$.*+ ]*$/u;

function boardNodes(text) {
  if (text.length > BOARD_LIMIT) return foldedText(text, SHOWN);
  const nodes = [];
  let prose = [];
  let rows = [];
  // A board has margins of its own, so empty lines around it are removed.
  const pushProse = () => {
    const text = prose.join("\n").replace(/^\n+|\s+$/gu, "");
    if (text) nodes.push(...foldedText(text, SHOWN));
    prose = [];
  };
  const flush = () => {
    if (rows.length >= 2 && rows.at(-1).cells.length >= 2) {
      pushProse();
      nodes.push(board(rows));
    } else prose.push(...rows.map((row) => row.line));
    rows = [];
  };
  let ruled = false;
  for (const line of text.split("\n")) {
    if (rows.length && RULE.test(line.trim())) { ruled = true; continue; }
    const cells = cellsOf(line);
    if (cells === null || (rows.length && !fits(rows, cells))) flush();
    if (cells === null) prose.push(line);
    else rows.push({ line, cells, ruled: ruled && rows.length > 0 });
    ruled = false;
  }
  flush();
  if (!nodes.length) return foldedText(text, SHOWN);
  pushProse();
  return nodes;
}

// A first row with one cell less is a heading above numbered rows.
function fits(rows, cells) {
  const width = rows.at(-1).cells.length;
  return cells.length === width || (rows.length === 1 && cells.length === width + 1);
}

// The cells of a line of a board; null for any other line. A word with a colon, as in "B: -", is a label.
function cellsOf(line) {
  const bare = line.trim();
  if (!bare || line.length > 400) return null;
  if (bare.length >= 3 && DRAWN.test(bare)) return [...bare].map((text) => ({ text, gap: false }));
  const cells = [];
  let gap = false;
  for (const word of bare.split(/\s+|(?=\|)|(?<=\|)/u)) {
    if (word === "|") gap = cells.length > 0;
    else if (word) { cells.push({ text: word, gap }); gap = false; }
    if ([...word].length > 2 || word.endsWith(":")) return null;
  }
  return cells.length >= 2 && cells.length <= 60 ? cells : null;
}

const QUIET = new Set([".", "_", "-", "?", " ", "*"]);
const MARKS = { G: 130, Y: 45, X: null };

function board(rows) {
  const width = rows.at(-1).cells.length;
  return el("table", { class: "board" }, el("tbody", {}, rows.map(({ cells, ruled }) => {
    const short = cells.length < width;
    const marks = cells.every((cell) => cell.text in MARKS);
    const drawn = cells.map((cell, index) => boardCell(cell, ruled, {
      head: short || (rows[0].cells.length < width && index === 0),
      hue: marks ? MARKS[cell.text] : QUIET.has(cell.text) ? null : hueOf(cell.text),
    }));
    return el("tr", {}, short ? el("td", { class: "head" }) : null, drawn);
  })));
}

function boardCell({ text, gap }, ruled, { head, hue }) {
  const element = el("td", { class: [head ? "head" : hue === null ? "quiet" : "", gap ? "gap" : "", ruled ? "ruled" : ""].join(" ").trim() }, el("span", {}, plain(text)));
  if (!head && hue !== null) element.style.setProperty("--hue", String(hue));
  return element;
}

function hueOf(text) {
  let hash = 7;
  for (const character of text) hash = (hash * 31 + character.codePointAt(0)) % 3600;
  return (hash * 47) % 360;
}

// ------------------------------------------------------------------------------------------------------------ numbers

const number = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en-US"));
const decimal = (value, digits = 2) => (value === null || value === undefined || Number.isNaN(value) ? "–" : value.toFixed(digits).replace("-", "−"));
const percent = (part, whole) => (whole ? `${Math.round((100 * part) / whole)} %` : "–");

function duration(seconds) {
  if (!seconds) return "–";
  if (seconds < 0.001) return "< 1 ms";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  return seconds < 90 ? `${seconds.toFixed(1)} s` : `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}
const signed = (value) => (value > 0 ? `+${decimal(value)}` : decimal(value));
