// What the scripts of all widgets share; one of them follows in the same module.
// `create` builds elements from a tree of markup.py.
// Text only ever goes through createTextNode, and tags and attributes through the two lists of markup.py,
// so nothing that an agent wrote can run here.

const SVG = new Set("svg g line rect text title polyline".split(" "));
const TAGS = new Set(
  ("div span p h3 h4 ul ol li table thead tbody tr th td details summary button input textarea select option label " +
    "pre strong section header br").split(" "));
const ATTRIBUTE = new RegExp(
  "^(class|role|title|type|value|disabled|open|selected|checked|placeholder|colspan|scope|rows|" +
  "tabindex|spellcheck|min|max|aria-[a-z]+|data-[a-z]+|" +
  "viewBox|width|height|x|y|x1|y1|x2|y2|points|text-anchor)$");

function create(node, inSvg, made) {
  if (typeof node === "string") return document.createTextNode(node);
  const [tag, attributes, ...children] = node;
  const svg = tag === "svg" || (inSvg && SVG.has(tag));
  if (!svg && !TAGS.has(tag)) return document.createTextNode("");
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (ATTRIBUTE.test(name)) element.setAttribute(name, value);
  }
  for (const child of children) element.appendChild(create(child, svg, made));
  made?.(element);
  if (tag === "select") element.value = attributes["data-value"] ?? element.value;
  return element;
}

const STALE_MS = 12000; // the notebook kernel gives a sign of life every 2 s

// Say in `stale` that the notebook kernel is silent; returns a function that ends the watch.
function watchAge(model, stale, words, changed = () => {}) {
  let heard = Date.now();
  function judge() {
    const old = model.get("beat") > 0 && Date.now() - heard > STALE_MS;
    if (old === !stale.hidden) return;
    stale.hidden = !old;
    stale.textContent = old ? words : "";
    changed(old);
  }
  function onBeat() {
    heard = Date.now();
    judge();
  }
  stale.className = "ak-stale";
  stale.setAttribute("role", "alert");
  stale.hidden = true;
  model.on("change:beat", onBeat);
  const timer = window.setInterval(judge, 2000);
  return () => {
    window.clearInterval(timer);
    model.off("change:beat", onBeat);
  };
}

// JupyterLab looks for its shortcuts at the element that has the focus before it looks at what surrounds it, so the
// mark on a widget's root does not keep it from taking `d d` or `x` from a focused button or box.  A listener of the
// window is asked before JupyterLab's, which is the document's.
if (!window.__autokernel_keys) {
  window.__autokernel_keys = true;
  window.addEventListener("keydown", ({ target }) => {
    if (target.closest?.(".ak-root")) target.setAttribute("data-lm-suppress-shortcuts", "true");
  }, true);
}
