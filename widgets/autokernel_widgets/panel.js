// Shows a tree of elements that Python sends, and reports what a person does with it.  Nothing is loaded from a network.

const OF_THE_PERSON = new Set(["open", "value"]); // set once; afterwards the person's
let widgets = 0;

function sameKind(dom, node) {
  if (typeof node === "string") return dom.nodeType === Node.TEXT_NODE;
  return dom.nodeType === Node.ELEMENT_NODE && dom.localName === node[0] &&
    (dom.getAttribute("data-id") ?? "") === (node[1]["data-id"] ?? "") &&
    (dom.getAttribute("data-draft") ?? "") === (node[1]["data-draft"] ?? "");
}

// Make `dom` show `node`, touching only what differs, so that open sections, scroll positions, focus and
// unsaved text survive.
function morph(dom, node, was) {
  if (typeof node === "string") {
    if (dom.nodeValue !== node) dom.nodeValue = node;
    return;
  }
  const [tag, attributes, ...children] = node;
  for (const [name, value] of Object.entries(attributes)) {
    if (!OF_THE_PERSON.has(name) && ATTRIBUTE.test(name) && dom.getAttribute(name) !== value) dom.setAttribute(name, value);
  }
  for (const { name } of [...dom.attributes]) {
    if (!(name in attributes) && !OF_THE_PERSON.has(name) && name !== "aria-busy") dom.removeAttribute(name);
  }
  if (tag === "textarea") return; // what stands in it is the person's
  const old = was && typeof was !== "string" ? was.slice(2) : [];
  children.forEach((child, index) => {
    const present = dom.childNodes[index];
    if (present && sameKind(present, child)) {
      if (!(old[index] !== undefined && sameTree(old[index], child))) morph(present, child, old[index]);
    } else {
      const made = create(child, dom.namespaceURI.endsWith("svg"), restoreDraft);
      if (present) dom.replaceChild(made, present);
      else dom.appendChild(made);
    }
  });
  while (dom.childNodes.length > children.length) dom.lastChild.remove();
  if (tag === "input" && attributes.type === "checkbox") dom.checked = "checked" in attributes;
  if (tag === "select" && "data-value" in attributes) dom.value = attributes["data-value"];
}

function sameTree(one, other) {
  return one === other || JSON.stringify(one) === JSON.stringify(other);
}

function draftKey(element) {
  const name = element.getAttribute("data-draft");
  return name ? `autokernel-draft:${name}` : null;
}

function restoreDraft(element) {
  const key = draftKey(element);
  if (!key) return;
  element.dataset.original = element.value;
  try {
    const draft = window.localStorage.getItem(key);
    if (draft !== null) element.value = draft;
  } catch { /* storage may be forbidden: then drafts live as long as the page */ }
}

function saveDraft(element) {
  const key = draftKey(element);
  if (!key) return;
  try {
    if (element.value === element.dataset.original) window.localStorage.removeItem(key);
    else window.localStorage.setItem(key, element.value);
  } catch { /* as above */ }
}

function dropDraft(element) {
  element.value = element.dataset.original ?? "";
  saveDraft(element);
}

function render({ model, el }) {
  const root = document.createElement("div");
  const body = document.createElement("div");
  const status = document.createElement("p");
  const stale = document.createElement("p");
  root.className = "ak-root";
  root.tabIndex = 0;
  root.setAttribute("role", "region");
  root.setAttribute("data-lm-suppress-shortcuts", "true"); // or JupyterLab would take our keys
  status.className = "ak-status";
  status.setAttribute("role", "status");
  status.setAttribute("aria-live", "polite");
  root.append(stale, status, body);
  el.appendChild(root);

  let shown = null;
  let sent = 0;
  const waiting = new Map();
  const view = ++widgets;

  function draw() {
    const focused = root.contains(document.activeElement);
    const tree = model.get("tree");
    root.setAttribute("aria-label", model.get("label") || "AutoKernel");
    if (!tree.length) body.replaceChildren();
    else if (body.firstChild && sameKind(body.firstChild, tree)) morph(body.firstChild, tree, shown);
    else body.replaceChildren(create(tree, false, restoreDraft));
    shown = tree;
    // A button that is gone or disabled has dropped the focus, and with it the shortcuts.
    if (focused && !root.contains(document.activeElement)) root.focus({ preventScroll: true });
  }

  function act(element) {
    const fields = {};
    const read = [];
    const scope = element.closest("[data-id]") ?? body;
    for (const name of (element.getAttribute("data-reads") ?? "").split(" ").filter(Boolean)) {
      const field = scope.querySelector(`[data-name="${name}"]`) ?? body.querySelector(`[data-name="${name}"]`);
      if (field) {
        fields[name] = field.type === "checkbox" ? String(field.checked) : field.value;
        read.push(field);
      }
    }
    if (!stale.hidden) {
      status.textContent = "Not sent: the notebook kernel does not answer. What you wrote is kept in this browser.";
      return;
    }
    const value = element.localName === "select" ? element.value
      : element.type === "checkbox" ? String(element.checked) : element.getAttribute("data-value") ?? "";
    const id = `${view}-${++sent}`;
    waiting.set(id, { element, read });
    if (element.localName === "button") element.setAttribute("aria-busy", "true");
    status.textContent = "";
    model.send({ action: element.getAttribute("data-action"), value, fields, id });
  }

  function answered(message) {
    const asked = waiting.get(message.answers);
    if (!asked) return;
    waiting.delete(message.answers);
    asked.element.removeAttribute("aria-busy");
    status.textContent = message.message;
    status.classList.toggle("ak-problem", !message.accepted);
    if (message.accepted) asked.read.filter(draftKey).forEach(dropDraft);
  }

  function onClick(event) {
    const element = event.target.closest("[data-action]");
    if (!element || element.localName === "select" || element.localName === "input") return;
    if (element.disabled || element.getAttribute("aria-busy") === "true") return;
    act(element);
  }

  function onChange(event) {
    if (event.target.matches("select[data-action], input[data-action]")) act(event.target);
  }

  function onKey(event) {
    const field = event.target.closest("input, textarea, select");
    if (event.key === "Escape" && field) {
      event.stopPropagation();
      root.focus({ preventScroll: true });
      return;
    }
    if (field || event.ctrlKey || event.altKey || event.metaKey) return;
    const target = [...body.querySelectorAll("[data-key]")].find((one) => one.getAttribute("data-key") === event.key);
    if (!target || target.disabled) return;
    event.preventDefault();
    event.stopPropagation();
    if (target.localName === "details") {
      target.open = true;
      target.querySelector("textarea, input")?.focus();
    } else if (target.getAttribute("aria-busy") !== "true") {
      act(target);
    }
  }

  function onInput(event) {
    saveDraft(event.target);
    if (!draftKey(event.target) || event.target === writing) return;
    writing = event.target;
    model.send({ action: "writing", value: "", fields: {}, id: `${view}-w` }); // so that nothing takes it away
  }

  let writing = null;
  const unwatch = watchAge(model, stale,
    "The notebook kernel does not answer: it is busy, was restarted or is gone. What you see may be old; run the cell again.",
    (old) => root.classList.toggle("ak-is-stale", old));
  root.addEventListener("click", onClick);
  root.addEventListener("change", onChange);
  root.addEventListener("keydown", onKey);
  root.addEventListener("input", onInput);
  model.on("change:tree", draw);
  model.on("msg:custom", answered);
  draw();
  return () => {
    unwatch();
    model.off("change:tree", draw);
    model.off("msg:custom", answered);
  };
}

export default { render };
