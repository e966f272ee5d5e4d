// Showing text that nobody trusts. Everything reaches the document as a text node.

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

// Characters that steer a terminal, reorder a line or cannot be seen. They are shown by name instead of being obeyed.
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

// A long text begins short; the rest comes on demand, a piece at a time.
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

// Thinking and tool traffic, folded. Each tag is looked for once from where it was last seen, so a hostile text of a million
// tags takes linear time; after MOST_FOLDS the rest stays text.
const FOLDED = { think: "thinking", tool_call: "tool call", tool_response: "tool answer", tool_result: "tool answer" };
const MOST_FOLDS = 300;

function nextFold(text, tag, from) {
  const start = text.indexOf(`<${tag}>`, from);
  const stop = start < 0 ? -1 : text.indexOf(`</${tag}>`, start);
  return stop < 0 ? null : { tag, start, stop };
}

function foldedText(text) {
  const nodes = [];
  let ahead = Object.keys(FOLDED).map((tag) => nextFold(text, tag, 0)).filter(Boolean);
  let end = 0;
  for (let folds = 0; ahead.length && folds < MOST_FOLDS; folds++) {
    const first = ahead.reduce((a, b) => (a.start < b.start ? a : b));
    if (first.start > end) nodes.push(longText(text.slice(end, first.start)));
    const body = text.slice(first.start + first.tag.length + 2, first.stop).trim();
    nodes.push(fold(FOLDED[first.tag], firstLine(body), longText(body)));
    end = first.stop + first.tag.length + 3;
    ahead = ahead.map((found) => (found.start < end ? nextFold(text, found.tag, end) : found)).filter(Boolean);
  }
  if (end < text.length || !nodes.length) nodes.push(longText(text.slice(end)));
  return nodes;
}

const firstLine = (text) => plain(text.slice(0, 200).split("\n", 1)[0].slice(0, 90));

function fold(label, hint, ...content) {
  return el("details", { class: "fold" }, el("summary", {}, el("b", {}, label), hint ? el("span", { class: "hint" }, hint) : null),
    el("div", { class: "folded" }, content));
}

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

// Lines in a row with equally many short words are a board: they are drawn as one.
const BOARD_LIMIT = 20_000;

function boardNodes(text) {
  if (text.length > BOARD_LIMIT) return foldedText(text);
  const nodes = [];
  let prose = [];
  let rows = [];
  // The board brings its own space: empty lines around it go.
  const pushProse = () => {
    const text = prose.join("\n").replace(/^\n+|\s+$/gu, "");
    if (text) nodes.push(...foldedText(text));
    prose = [];
  };
  const flush = () => {
    if (rows.length >= 2 && (rows.length >= 3 || rows[0].cells.length >= 3)) {
      pushProse();
      nodes.push(board(rows.map((row) => row.cells)));
    } else prose.push(...rows.map((row) => row.line));
    rows = [];
  };
  for (const line of text.split("\n")) {
    const cells = cellsOf(line);
    if (cells === null || (rows.length && cells.length !== rows[0].cells.length)) flush();
    if (cells === null) prose.push(line);
    else if (cells.length) rows.push({ line, cells });
  }
  flush();
  if (!nodes.length) return foldedText(text);
  pushProse();
  return nodes;
}

// The cells of a board's line; [] for a ruled line between rows, null for anything else.
function cellsOf(line) {
  const bare = line.trim();
  if (!bare || line.length > 400) return null;
  const words = bare.replaceAll("|", " ").split(/\s+/u).filter(Boolean);
  if (words.length >= 2 && words.every((word) => [...word].length <= 2) && words.length <= 60 && /\s|\|/u.test(bare)) return words;
  if (/^[#@$.*+ ]{3,}$/u.test(bare) && /[#@$]/u.test(bare)) return [...bare];
  return null;
}

const QUIET = new Set([".", "_", "-", "?", "0", "*"]);

function board(rows) {
  return el("table", { class: "board" }, el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell) => {
    const element = el("td", { class: QUIET.has(cell) ? "quiet" : "" }, plain(cell));
    if (!QUIET.has(cell)) element.style.setProperty("--hue", String(hueOf(cell)));
    return element;
  })))));
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
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  return seconds < 90 ? `${seconds.toFixed(1)} s` : `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}
const signed = (value) => (value > 0 ? `+${decimal(value)}` : decimal(value));
