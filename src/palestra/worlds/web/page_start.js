// Runs in every document before its own scripts: the page's clock and its random numbers are those of the episode.
// Time stands still until the environment advances it, so that what a page shows depends on the actions alone.
(() => {
  const RealDate = Date, start = 1767258000000;  // 2026-01-01 09:00 UTC
  let now = start, next = 1, timers = new Map(), state = 1;

  Math.random = () => {  // mulberry32
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };

  function EpisodeDate(...parts) {
    if (!new.target) return new RealDate(now).toString();
    return Reflect.construct(RealDate, parts.length ? parts : [now], new.target);
  }
  EpisodeDate.prototype = RealDate.prototype;
  Object.setPrototypeOf(EpisodeDate, RealDate);
  EpisodeDate.now = () => now;
  EpisodeDate.prototype.constructor = EpisodeDate;
  window.Date = EpisodeDate;
  performance.now = () => now - start;

  // All contexts of a browser share its clipboard. So that no episode reads what another one copied, a page has its own.
  let copied = "";
  const marked = () => {
    const field = document.activeElement;
    const inField = field && /^(TEXTAREA|INPUT)$/.test(field.tagName) && field.selectionStart !== null;
    return inField ? field.value.slice(field.selectionStart, field.selectionEnd) : String(getSelection());
  };
  const take = event => {
    copied = marked();
    event.preventDefault();
    if (event.type === "cut") document.execCommand("delete");
  };
  addEventListener("copy", take, true);
  addEventListener("cut", take, true);
  addEventListener("paste", event => {
    event.preventDefault();
    document.execCommand("insertText", false, copied);
  }, true);
  if (navigator.clipboard) {
    navigator.clipboard.readText = async () => copied;
    navigator.clipboard.writeText = async text => void (copied = String(text));
    navigator.clipboard.read = navigator.clipboard.write = async () => { throw new DOMException("not allowed", "NotAllowedError"); };
  }

  const add = (run, delay, args, repeat) => {
    const id = next++, wait = Math.max(Number(delay) || 0, repeat ? 1 : 0);
    timers.set(id, { at: now + wait, run, args, wait: repeat ? wait : 0 });
    return id;
  };
  const call = (timer, args) => {
    try {
      if (typeof timer.run === "function") timer.run.apply(window, args);
      else (0, eval)(String(timer.run));
    } catch (error) {
      console.error(error);
    }
  };
  window.setTimeout = (run, delay, ...args) => add(run, delay, args, false);
  window.setInterval = (run, delay, ...args) => add(run, delay, args, true);
  window.clearTimeout = window.clearInterval = window.cancelAnimationFrame = id => void timers.delete(id);
  window.requestAnimationFrame = run => add(() => run(now - start), 16 - ((now - start) % 16), [], false);
  window.requestIdleCallback = run => add(() => run({ didTimeout: false, timeRemaining: () => 10 }), 1, [], false);
  window.cancelIdleCallback = window.clearTimeout;

  Object.defineProperty(window, "__palestraAdvance", {
    value: async milliseconds => {
      const end = now + milliseconds;
      for (let count = 0; count < 20000; count++) {
        let due = null, id = 0;
        for (const [key, timer] of timers)
          if (timer.at <= end && (due === null || timer.at < due.at)) { due = timer; id = key; }
        if (due === null) break;
        now = Math.max(now, due.at);
        if (due.wait) due.at = now + due.wait;
        else timers.delete(id);
        call(due, due.args);
        await null;  // promises that the timer has settled run before the next timer
      }
      now = end;
    },
  });
})();
