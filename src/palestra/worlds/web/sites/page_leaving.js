// Runs in every document of a site before its own scripts: reports that a navigation to another document has begun, and how many
// windows the document has opened since it was last asked.
(() => {
  const leave = () => { window.__palestraLeaving = true; };
  const opened = () => { window.__palestraOpened = (window.__palestraOpened || 0) + 1; };
  const elsewhere = target => target && !/^_(self|parent|top)$/i.test(target);
  if (window.navigation)
    navigation.addEventListener("navigate", event => {
      if (!event.hashChange && event.downloadRequest === null && !event.destination.sameDocument) leave();
    });
  addEventListener("submit", event => {
    const target = event.submitter?.formTarget || event.target?.target;
    queueMicrotask(() => { if (!event.defaultPrevented) elsewhere(target) ? opened() : leave(); });
  });
  addEventListener("click", event => {
    const link = event.composedPath().find(one => one.matches?.("a[href], area[href]"));
    if (!link) return;
    const target = link.target?.baseVal ?? link.target;  // that of a link in SVG is an object
    const other = elsewhere(target) || event.ctrlKey || event.metaKey || event.shiftKey;
    queueMicrotask(() => { if (!event.defaultPrevented && other) opened(); });
  });
  const open = window.open;
  window.open = (...given) => {
    if (elsewhere(given[1] ?? "_blank")) opened();
    return open.apply(window, given);
  };
})();
