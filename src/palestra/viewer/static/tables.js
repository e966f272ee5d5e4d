// Tables with a link in every row: sorted by any column, with a choice of columns, filled as the reader scrolls.

const PAGE = 150;

// What this browser remembers between pages. A page from a file may not be allowed to store anything; then it forgets.
const Kept = {
  values: new Map(),
  get(name) {
    try { return localStorage.getItem(`palestra-${name}`); } catch { return Kept.values.get(name) ?? null; }
  },
  set(name, value) {
    Kept.values.set(name, value);
    try { localStorage.setItem(`palestra-${name}`, value); } catch { /* see above */ }
  },
};

// columns: [{key, label, of: item → sort value, show: item → node, right, optional, minor}]. An optional column is shown if the
// reader chooses it; a minor one is left out on a phone unless the reader has chosen the columns.
function table(items, columns, query, link) {
  const chosen = chosenColumns(columns, query);
  const narrow = matchMedia("(max-width: 760px)").matches;
  const shown = columns.filter((column) => (chosen ? chosen.includes(column.key) : !column.optional && !(narrow && column.minor)));
  const ordered = sorted(items, columns, query);
  const body = el("tbody");
  const end = el("div", { class: "sentinel" });
  let count = 0;
  const more = () => {
    body.append(...ordered.slice(count, count + PAGE).map((item) => tableRow(item, shown, link)));
    count = Math.min(count + PAGE, ordered.length);
    end.textContent = count < ordered.length ? `${number(count)} of ${number(ordered.length)}` : "";
  };
  more();
  const nearEnd = (entries) => entries.some((entry) => entry.isIntersecting) && count < ordered.length && more();
  new IntersectionObserver(nearEnd, { rootMargin: "800px" }).observe(end);
  return el("div", {}, columnMenu(columns, shown),
    el("div", { class: "table" }, el("table", {}, el("thead", {}, el("tr", {}, shown.map((column) => columnHead(column, query)))), body), end));
}

function sorted(items, columns, query) {
  const [key, direction] = (query.sort ?? "").split(":");
  const by = columns.find((column) => column.key === key);
  return by ? [...items].sort((a, b) => compareValues(by.of(a), by.of(b), direction === "down" ? -1 : 1)) : items;
}

const cellClass = (column) => (column.right ? "right" : "");

function columnHead(column, query) {
  const [key, direction] = (query.sort ?? "").split(":");
  const next = column.key === key && direction !== "down" ? `${column.key}:down` : `${column.key}:up`;
  const mark = column.key === key ? (direction === "down" ? " ↓" : " ↑") : "";
  return el("th", { class: cellClass(column) }, el("a", { href: Router.with({ sort: next }) }, column.label + mark));
}

function tableRow(item, columns, link) {
  const href = link(item);
  const open = (event) => { if (!event.target.closest("a")) Router.go(href); };
  return el("tr", { onclick: open }, columns.map((column, index) =>
    el("td", { class: cellClass(column) }, index === 0 ? el("a", { href }, column.show(item)) : column.show(item))));
}

// Missing values come last, in either direction.
function compareValues(a, b, sign) {
  const missing = (value) => value === null || Number.isNaN(value);
  if (missing(a) || missing(b)) return missing(a) - missing(b);
  return a === b ? 0 : a < b ? -sign : sign;
}

const textColumn = (key, label, of, more = {}) => ({ key, label, of, show: (item) => plain(of(item)), ...more });
const numberColumn = (key, label, of, show = number, more = {}) => ({ key, label, of, show: (item) => show(of(item)), right: true, ...more });

// ------------------------------------------------------------------------------------------------------- choice of columns

// The keys that the address names, or else those that the reader chose last in a list of this kind; null without a choice. The
// first column, which has the link, is always shown.
function chosenColumns(columns, query) {
  const known = new Set(columns.map((column) => column.key));
  const named = (query.columns ?? Kept.get(`columns-${columns[0].key}`) ?? "").split(",").filter((key) => known.has(key));
  return named.length ? [...new Set([columns[0].key, ...named])] : null;
}

let menuIsOpen = false;

function columnMenu(columns, shown) {
  const choose = (keys) => {
    Kept.set(`columns-${columns[0].key}`, keys.join(","));
    history.replaceState(null, "", Router.with({ columns: keys.join(",") || null }));
    redraw();
  };
  const toggled = (key, on) => columns.map((column) => column.key).filter((other) => (other === key ? on : shown.some((column) => column.key === other)));
  const box = (column) => {
    const change = (event) => choose(toggled(column.key, event.target.checked));
    return el("label", {}, el("input", { type: "checkbox", value: column.key, checked: shown.includes(column), onchange: change }), ` ${column.label}`);
  };
  return el("details", { class: "menu", open: menuIsOpen, ontoggle: (event) => { menuIsOpen = event.target.open; } },
    el("summary", {}, "Columns"),
    el("div", { class: "choices" }, columns.slice(1).map(box), el("button", { type: "button", onclick: () => choose([]) }, "Default columns")));
}
