// The group view: the tries at one task side by side, with the first turn in which they differ.

const SIDE_BY_SIDE = 6;

async function groupView(runs, run, row, query) {
  const env = run.get("env", row);
  const task = run.get("task", row);
  const sameTask = (other, at) => other.get("env", at) === env && other.get("task", at) === task;
  const all = runs.flatMap((other) => other.rows().filter((at) => sameTask(other, at)).map((at) => ({ run: other, row: at })));
  const from = Math.min(Number(query.from ?? 0) || 0, Math.max(0, all.length - 1));
  const shown = all.slice(from, from + SIDE_BY_SIDE);
  const episodes = await Promise.all(shown.map((member) => Source.episode(member.run.number, member.row)));
  const parting = partingTurn(episodes);
  const grid = el("div", { class: "side-by-side" });
  grid.style.setProperty("--members", String(shown.length));
  grid.append(...shown.map((member, index) => memberHead(member, runs.length > 1)));
  const longest = Math.max(0, ...episodes.map((episode) => episode.turns.length));
  for (let turn = 0; turn < longest; turn++) {
    if (turn === parting) grid.append(el("div", { class: "parting", id: "parting" }, `first difference, in turn ${turn + 1}`));
    grid.append(...episodes.map((episode) => memberTurn(episode.turns[turn], turn)));
  }
  return el("div", {}, el("p", { class: "lead" }, groupLead(all.length, parting, longest)), pager(all.length, from), grid);
}

function groupLead(count, parting, longest) {
  if (count === 1) return "This task was tried once.";
  if (parting === null) return `${count} tries; those shown are the same in all ${longest} turns.`;
  if (parting === 0) return `${count} tries; they differ from the first turn on.`;
  return `${count} tries; the first ${parting > 1 ? `${parting} turns are` : "turn is"} the same in all.`;
}

function pager(count, from) {
  if (count <= SIDE_BY_SIDE) return null;
  const link = (label, start) => el("a", { class: "chip", href: Router.with({ from: String(start) }) }, label);
  return el("p", {}, from > 0 ? link("← earlier", Math.max(0, from - SIDE_BY_SIDE)) : null,
    ` ${from + 1}–${Math.min(count, from + SIDE_BY_SIDE)} of ${count} `,
    from + SIDE_BY_SIDE < count ? link("later →", from + SIDE_BY_SIDE) : null);
}

// The first turn at which the members do not all see and write the same; null if there is none.
function partingTurn(episodes) {
  if (episodes.length < 2) return null;
  const longest = Math.max(...episodes.map((episode) => episode.turns.length));
  for (let turn = 0; turn < longest; turn++) {
    const kinds = new Set(episodes.map((episode) => {
      const found = episode.turns[turn];
      return found ? JSON.stringify([found.observation, found.completion.text]) : "";
    }));
    if (kinds.size > 1) return turn;
  }
  return null;
}

function memberHead({ run, row }, several) {
  const turns = run.columns.turns[row];
  const facts = [plain(run.get("policy", row)) || `episode ${row}`, stopLabel(run.get("stop", row)), `${number(turns)} turn${turns === 1 ? "" : "s"}`];
  return el("a", { class: "member", href: `#/r/${run.number}/e/${row}` },
    el("b", {}, `${several ? `${plain(run.name)}, ` : ""}try ${run.columns.member[row] + 1}`), rewardCell(run, row),
    el("span", { class: "facts" }, facts.join(" · ")));
}

function memberTurn(turn, index) {
  if (!turn) return el("div", { class: "cell none" });
  return el("div", { class: "cell" },
    el("h4", {}, `Turn ${index + 1}`, turn.reward ? rewardBadge(turn.reward) : null),
    el("div", { class: "said env" }, el("div", { class: "body" }, contentNodes(turn.observation))),
    el("div", { class: "said policy" }, el("div", { class: "body" }, foldedText(turn.completion.text))));
}
