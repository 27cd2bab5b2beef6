// A labelled slider for each row that Python sends; reports a move at most ten times a second.

const REPORT_MS = 100;

function render({ model, el }) {
  const root = document.createElement("div");
  root.className = "ak-root ak ak-sliders";
  root.setAttribute("role", "group");
  el.appendChild(root);
  const rows = new Map(); // by name: the elements
  let wanted = null;
  let timer = 0;

  function report() {
    timer = 0;
    if (!wanted) return;
    model.send(wanted);
    wanted = null;
    timer = window.setTimeout(report, REPORT_MS);
  }

  function moved(name, input, output) {
    output.textContent = `${Number(input.value).toFixed(2)}×`;
    if (wanted && wanted.slide !== name) model.send(wanted);
    wanted = { slide: name, value: Number(input.value) };
    if (!timer) report();
  }

  function make(name) {
    const label = document.createElement("label");
    const words = document.createElement("span");
    const input = document.createElement("input");
    const output = document.createElement("output");
    words.textContent = name;
    input.type = "range";
    input.setAttribute("data-lm-suppress-shortcuts", "true"); // JupyterLab takes arrow keys from what has the focus
    input.setAttribute("aria-label", `speedup of ${name} that is tried out`);
    input.addEventListener("input", () => moved(name, input, output));
    label.append(words, input, output);
    return { label, input, output };
  }

  function draw() {
    root.setAttribute("aria-label", model.get("label"));
    const shown = model.get("rows").map(([name, value, limit]) => {
      if (!rows.has(name)) rows.set(name, make(name));
      const { label, input, output } = rows.get(name);
      input.min = 1;
      input.max = limit;
      input.step = 0.05;
      if (document.activeElement !== input || !wanted) { // what a person moves is ahead of what Python knows
        if (Number(input.value) !== value && (document.activeElement !== input || !timer)) input.value = value;
        output.textContent = `${Number(input.value).toFixed(2)}×`;
      }
      return label;
    });
    const focused = document.activeElement;
    if (shown.length !== root.children.length || shown.some((one, index) => root.children[index] !== one)) {
      root.replaceChildren(...shown);
      if (root.contains(focused)) focused.focus({ preventScroll: true });
    }
  }

  model.on("change:rows", draw);
  draw();
  return () => {
    window.clearTimeout(timer);
    model.off("change:rows", draw);
  };
}

export default { render };
