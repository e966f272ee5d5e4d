// Gives a name to what has none in the accessibility tree of MiniWoB++: icons that a style sheet draws, and shapes.
(() => {
  const area = document.getElementById("area") || document.body;
  const named = (element, name) => {
    if (!element.hasAttribute("role")) element.setAttribute("role", "img");
    if (element.getAttribute("aria-label") !== name) element.setAttribute("aria-label", name);
  };
  for (const shape of area.querySelectorAll("circle, rect, polygon, ellipse, path, line, text")) {
    if (shape.closest("defs, .ui-icon")) continue;
    const fill = shape.getAttribute("fill") || shape.style.fill || "";
    const text = shape.tagName === "text" ? ` ${JSON.stringify(shape.textContent)}` : "";
    named(shape, [fill === "none" ? "" : fill, shape.tagName, shape.getAttribute("class") || ""].filter(Boolean).join(" ") + text);
  }
  for (const link of area.querySelectorAll("span.alink")) link.setAttribute("role", "link");
  for (const canvas of area.querySelectorAll("canvas")) named(canvas, "canvas");
  for (const element of area.querySelectorAll("span, div, i, a, td, li")) {
    if (element.textContent.trim() || element.children.length || element.hasAttribute("contenteditable")) continue;
    const box = element.getBoundingClientRect();
    const name = element.className || element.id;
    if (box.width < 4 || box.height < 4 || typeof name !== "string" || !name) continue;
    const style = getComputedStyle(element);
    const color = style.backgroundColor === "rgba(0, 0, 0, 0)" || /ui-/.test(name) ? "" : ` ${style.backgroundColor}`;
    named(element, name + color);
  }
})();
