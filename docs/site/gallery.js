// Wide tables for the keyboard, and the filters of the gallery. Without this script, the gallery shows every family and no filters.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  // A wide table scrolls in a box of its own, which the keyboard has to reach.
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap")) box.tabIndex = 0;
  const form = document.querySelector("form.filters");
  if (!form) return;
  const cards = [...document.querySelectorAll("article.env")];
  const apply = () => {
    const wanted = [...new FormData(form)].filter(([, value]) => value !== "any");
    for (const card of cards) card.hidden = !wanted.every(([name, value]) => card.dataset[name] === value);
    const left = cards.filter((card) => !card.hidden).length;
    form.querySelector("output").textContent = `${left} of ${cards.length} families`;
    history.replaceState(null, "", wanted.length ? `#?${new URLSearchParams(wanted)}` : location.pathname + location.search);
  };
  for (const [name, value] of new URLSearchParams(location.hash.replace(/^#\??/, ""))) {
    const box = form.elements.namedItem(name);
    if (box) box.value = value;
  }
  form.hidden = false;
  form.addEventListener("change", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  if (location.hash.startsWith("#?") || !location.hash) apply();
});
