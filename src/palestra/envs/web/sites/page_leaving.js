// Runs in every document of a site before its own scripts: reports that a navigation to another document has begun.
(() => {
  const leave = () => { window.__palestraLeaving = true; };
  if (window.navigation)
    navigation.addEventListener("navigate", event => {
      if (!event.hashChange && event.downloadRequest === null && !event.destination.sameDocument) leave();
    });
  addEventListener("submit", event => {
    const target = event.target && event.target.target;
    queueMicrotask(() => { if (!event.defaultPrevented && (!target || target === "_self")) leave(); });
  });
})();
