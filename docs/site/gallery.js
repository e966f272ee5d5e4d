// The filters of the gallery. Without this script, the page shows every family and no filters.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
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
