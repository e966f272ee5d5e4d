"use strict";
// Where the data comes from: blocks inside this file, or the server that sent the page. The page asks no other host.

const Source = (() => {
  const block = (id) => document.getElementById(id);
  const embedded = block("catalog") !== null;

  async function askText(path) {
    const answer = await fetch(path);
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${answer.status} ${text}`);
    return text;
  }
  const ask = async (path) => JSON.parse(await askText(path));
  const line = async (run, number) => (embedded ? block(`episode-${run}-${number}`).textContent : askText(`runs/${run}/episodes/${number}.json`));

  function searchBlocks(run, needle) {
    const found = [];
    for (let number = 0; ; number++) {
      const element = block(`episode-${run}-${number}`);
      if (!element) return found;
      if (element.textContent.includes(needle)) found.push(number);
    }
  }

  // Data of a run as a whole, fetched once. An exported page has it if the run had it at the time of the export.
  const kept = new Map();
  function ofRun(name, run) {
    const key = `${name}-${run}`;
    if (!kept.has(key)) kept.set(key, embedded ? Promise.resolve(JSON.parse(block(key)?.textContent ?? "null")) : ask(`runs/${run}/${name}.json`));
    return kept.get(key);
  }

  return {
    embedded,
    catalog: async () => (embedded ? JSON.parse(block("catalog").textContent) : ask("catalog.json")),
    episode: async (run, number) => JSON.parse(await line(run, number)),
    // The JSON of an episode as it is in the file: parsing would round whole numbers beyond 2^53, such as seeds.
    line,
    // Boards as their environment draws them, one for each turn and one for the end; null if it does not, and in exported pages.
    pictures: async (run, number) => (embedded ? null : ask(`runs/${run}/episodes/${number}/pictures.json`)),
    // The text is searched as it is written in JSON, so that quotes and line breaks are found too.
    search: async (run, text) =>
      embedded
        ? searchBlocks(run, JSON.stringify(text).slice(1, -1).replaceAll("<", "\\u003c"))
        : ask(`runs/${run}/search.json?text=${encodeURIComponent(text)}`),
    // The text of every token id; null if the run folder has no vocabulary.json.
    vocabulary: (run) => ofRun("vocabulary", run),
    // The metrics of every training step, oldest first; null for other runs.
    metrics: (run) => ofRun("metrics", run),
    // The bytes of every run's files: they change while a run is written.
    extents: async () => (embedded ? null : ask("extents.json")),
    forget: () => kept.clear(),
  };
})();

// Token ids and log-probs are base64 of little-endian four-byte items.
function bytesOf(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes.buffer;
}
const intsOf = (base64) => new Int32Array(bytesOf(base64));
const floatsOf = (base64) => new Float32Array(bytesOf(base64));

// One run's episodes. Columns arrive as {values, codes} or as plain lists.
class Run {
  constructor(number, raw) {
    this.number = number;
    this.name = raw.name;
    this.read = raw.read;
    this.trained = raw.trained;
    this.columns = raw.columns;
    this.count = raw.columns.reward.length;
    this.about = raw.about;
    this.scores = raw.scores;
  }
  get(column, row) {
    const found = this.columns[column];
    return found.codes ? found.values[found.codes[row]] : found[row];
  }
  rows() {
    return Array.from({ length: this.count }, (_, row) => row);
  }
  // Episodes of the same task, which the group view shows side by side.
  siblings(row) {
    const { env, task } = this.columns;
    return this.rows().filter((other) => env.codes[other] === env.codes[row] && task.codes[other] === task.codes[row]);
  }
  // The reward minus the mean of its group, in standard deviations (GRPO). Zero for a group of one or without spread, null if failed.
  advantage(row) {
    const { group, reward } = this.columns;
    if (reward[row] === null) return null;
    const rewards = this.siblings(row).filter((other) => group[other] === group[row] && reward[other] !== null).map((other) => reward[other]);
    const mean = average(rewards);
    const deviation = Math.sqrt(average(rewards.map((value) => (value - mean) ** 2)));
    return deviation > 0 ? (reward[row] - mean) / deviation : 0;
  }
}

const average = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : NaN);
