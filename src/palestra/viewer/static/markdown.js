// Markdown, rendered on request. The parser builds elements whose content is text nodes only: HTML in a text stays text, a link
// shows its address and leads nowhere, and a picture is not loaded. All patterns have bounded lengths, so that the time stays
// linear for a text that was written to be slow.

const LONGEST_MARKDOWN = 20_000;
const DEEPEST_QUOTE = 5;
const BLOCKS = {
  fence: /^ {0,3}(```+|~~~+)\s*([^`\n]{0,60})$/u,
  heading: /^ {0,3}(#{1,6})\s+(.*)$/u,
  rule: /^ {0,3}([-*_])( ?\1){2,}\s*$/u,
  quote: /^ {0,3}> ?(.*)$/u,
  item: /^(\s{0,20})([-*+]|\d{1,4}[.)])\s+(.*)$/u,
  row: /^\s*\|.*\|\s*$/u,
  ruledRow: /^\s*\|[\s:|-]+\|\s*$/u,
};
const INLINE = /(`{1,3})([^`]{1,1000})\1|\*\*([^*\n]{1,1000})\*\*|\*([^*\s\n][^*\n]{0,500})\*|!?\[([^\]\n]{0,300})\]\(([^)\s]{1,500})\)/gu;

// The elements that show `text`; a text that is too long stays as it was written.
function markdownNodes(text) {
  return text.length > LONGEST_MARKDOWN ? [longText(text)] : [el("div", { class: "markdown" }, markdownBlocks(text.split("\n"), 0))];
}

function markdownBlocks(lines, depth) {
  const nodes = [];
  for (let at = 0; at < lines.length; ) {
    const [node, next] = markdownBlock(lines, at, depth);
    if (node) nodes.push(node);
    at = next;
  }
  return nodes;
}

// The block that begins at line `at`, and the line after it.
function markdownBlock(lines, at, depth) {
  const line = lines[at];
  if (!line.trim()) return [null, at + 1];
  const fence = BLOCKS.fence.exec(line);
  if (fence) return codeBlock(lines, at, fence[1]);
  if (BLOCKS.rule.test(line)) return [el("hr"), at + 1];
  const heading = BLOCKS.heading.exec(line);
  if (heading) return [el("div", { class: `heading level-${heading[1].length}` }, inlineNodes(heading[2])), at + 1];
  if (BLOCKS.row.test(line) && BLOCKS.ruledRow.test(lines[at + 1] ?? "")) return tableBlock(lines, at);
  const item = BLOCKS.item.exec(line);
  if (item) return [listItem(item), at + 1];
  if (depth < DEEPEST_QUOTE && BLOCKS.quote.test(line)) return quoteBlock(lines, at, depth);
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !beginsBlock(lines[end], depth)) end++;
  return [el("p", {}, inlineNodes(lines.slice(at, end).join("\n"))), end];
}

function beginsBlock(line, depth) {
  const kinds = [BLOCKS.fence, BLOCKS.heading, BLOCKS.rule, BLOCKS.item, BLOCKS.row, ...(depth < DEEPEST_QUOTE ? [BLOCKS.quote] : [])];
  return kinds.some((kind) => kind.test(line));
}

function codeBlock(lines, at, mark) {
  let end = at + 1;
  while (end < lines.length && !lines[end].trim().startsWith(mark)) end++;
  return [el("pre", {}, textNodes(lines.slice(at + 1, end).join("\n"))), end + 1];
}

function quoteBlock(lines, at, depth) {
  let end = at;
  while (end < lines.length && BLOCKS.quote.test(lines[end])) end++;
  return [el("blockquote", {}, markdownBlocks(lines.slice(at, end).map((line) => BLOCKS.quote.exec(line)[1]), depth + 1)), end];
}

function listItem([, indent, mark, text]) {
  const item = el("div", { class: "item" }, el("span", { class: "mark" }, /\d/u.test(mark) ? mark : "•"), el("span", {}, inlineNodes(text)));
  item.style.setProperty("--indent", String(Math.floor(indent.length / 2)));
  return item;
}

function tableBlock(lines, at) {
  const cells = (line) => line.trim().slice(1, -1).split("|").slice(0, 60);
  const row = (line, tag) => el("tr", {}, cells(line).map((cell) => el(tag, {}, inlineNodes(cell.trim()))));
  let end = at + 2;
  while (end < lines.length && BLOCKS.row.test(lines[end])) end++;
  return [el("table", {}, el("thead", {}, row(lines[at], "th")), el("tbody", {}, lines.slice(at + 2, end).map((line) => row(line, "td")))), end];
}

function inlineNodes(text) {
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(INLINE)) {
    if (match.index > end) nodes.push(...textNodes(text.slice(end, match.index)));
    nodes.push(inlineNode(match));
    end = match.index + match[0].length;
  }
  if (end < text.length) nodes.push(...textNodes(text.slice(end)));
  return nodes;
}

function inlineNode([, , code, bold, italic, label, address]) {
  if (code !== undefined) return el("code", {}, textNodes(code));
  if (bold !== undefined) return el("b", {}, textNodes(bold));
  if (italic !== undefined) return el("i", {}, textNodes(italic));
  return el("span", {}, textNodes(label), el("span", { class: "hint" }, ` (${plain(address)})`));
}
