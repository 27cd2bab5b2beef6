// Draws a figure with plotly.js, which the page gets once from Python and all charts share.
// Colours written as $ink, $grid and $paper are the theme's.  A click, or the arrow keys, select an experiment.

const SHARED = (window.__autokernel_charts ??= { plotly: null, loaded: null }); // one for all charts of the page

function wantPlotly(model) {
  if (SHARED.plotly) return SHARED.plotly;
  SHARED.plotly = new Promise((resolve, reject) => {
    const timer = window.setTimeout(() => fail(new Error("plotly.js did not come; run the cell again")), 30000);
    function fail(error) {
      window.clearTimeout(timer);
      model.off("msg:custom", take);
      SHARED.plotly = null;
      reject(error);
    }
    async function take(message, buffers) {
      if (message.gives !== "plotly") return;
      window.clearTimeout(timer);
      model.off("msg:custom", take);
      if (!buffers.length) return fail(new Error("plotly is not installed where the notebook runs: pip install plotly"));
      try {
        resolve(await load(buffers[0]));
      } catch (error) {
        fail(error);
      }
    }
    model.on("msg:custom", take);
    model.send({ wants: "plotly" });
  });
  return SHARED.plotly;
}

async function load(packed) {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const source = await new Response(stream).blob();
  const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  const before = window.Plotly;
  try {
    await import(/* webpackIgnore: true */ url);
    SHARED.loaded = window.Plotly;
    return window.Plotly;
  } finally {
    URL.revokeObjectURL(url);
    if (before) window.Plotly = before;
  }
}

function theme(element) {
  const style = window.getComputedStyle(element);
  const light = document.body.getAttribute("data-jp-theme-light") !== "false";
  return {
    $ink: style.color,
    $grid: light ? "rgba(0,0,0,0.12)" : "rgba(255,255,255,0.16)",
    $paper: style.getPropertyValue("--jp-layout-color1").trim() || (light ? "#fff" : "#111"),
  };
}

function coloured(value, colours) {
  if (typeof value === "string") return colours[value] ?? value;
  if (Array.isArray(value)) return value.length && typeof value[0] === "number" ? value : value.map((one) => coloured(one, colours));
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, coloured(one, colours)]));
  }
  return value;
}

function render({ model, el }) {
  const root = document.createElement("div");
  const stale = document.createElement("p");
  const problem = document.createElement("p");
  const plot = document.createElement("div");
  const said = document.createElement("p");
  root.className = "ak-root ak ak-chart";
  root.tabIndex = 0;
  root.setAttribute("role", "group");
  root.setAttribute("data-lm-suppress-shortcuts", "true");
  problem.className = "ak-problem";
  problem.setAttribute("role", "alert");
  said.className = "ak-small";
  said.setAttribute("role", "status");
  said.setAttribute("aria-live", "polite");
  plot.setAttribute("aria-hidden", "true"); // the status line and the arrow keys say it in words
  root.append(stale, problem, plot, said);
  el.appendChild(root);
  let plotly = SHARED.loaded;
  let drawing = Promise.resolve();
  let latest = 0;
  let gone = false;

  // Every selectable point, by experiment: traces carry the numbers in `customdata`, the words in `hovertext`.
  function points() {
    const found = new Map();
    for (const trace of model.get("figure").data ?? []) {
      (trace.customdata ?? []).forEach((number, index) => {
        found.set(number, { x: trace.x[index], y: trace.y[index], yaxis: trace.yaxis, text: trace.hovertext?.[index] ?? "" });
      });
    }
    return found;
  }

  // The figure's shapes and a ring around the selected point; a shape is moved without drawing the points again.
  function shapes() {
    const point = points().get(model.get("selected"));
    const own = model.get("figure").layout?.shapes ?? [];
    // On logarithmic axes plotly places shapes of a fixed size wrongly; there the figure has its own ring.
    return !point || model.get("figure").layout.xaxis.type === "log" ? own : [...own, {
      type: "circle", xref: "x", yref: point.yaxis ?? "y", xsizemode: "pixel", ysizemode: "pixel",
      xanchor: point.x, yanchor: point.y, x0: -9, x1: 9, y0: -9, y1: 9,
      line: { width: 2, color: "$ink" },
    }];
  }

  function say() {
    const point = points().get(model.get("selected"));
    const plain = document.createElement("div");
    plain.textContent = (point?.text ?? "").replaceAll("<br>", " · ").replaceAll(/<\/?b>/g, "");
    said.textContent = point ? plain.textContent.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&")
      : "Click a point, or use the arrow keys, to select an experiment.";
  }

  function draw() {
    const figure = model.get("figure");
    root.setAttribute("aria-label", model.get("label") || "chart");
    problem.textContent = model.get("problem");
    problem.hidden = !problem.textContent;
    plot.hidden = said.hidden = !problem.hidden;
    // plotly measures, and the theme's colours are known, only where the widget has been put into the page.
    if (!problem.hidden || !figure.data || !plotly || gone || !plot.offsetWidth) return;
    const colours = theme(root);
    const data = coloured(figure.data, colours);
    const layout = coloured({ ...figure.layout, shapes: shapes() }, colours);
    const config = { displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d"] };
    const turn = ++latest; // of figures that come faster than they are drawn, only the last is
    drawing = drawing.then(() => {
      if (gone || turn !== latest) return;
      if (!plot.data) plot.replaceChildren(); // the sketch
      return plotly.react(plot, data, layout, config);
    }).then(() => {
      if (gone || plot.__listens || !plot.on) return;
      plot.__listens = true;
      plot.on("plotly_click", (event) => {
        const number = event.points.map((one) => one.customdata).find((one) => Number.isInteger(one));
        if (number !== undefined) select(number);
      });
    }).catch((error) => {
      problem.hidden = false;
      problem.textContent = `The chart cannot be drawn: ${error.message}`;
    });
    say();
  }

  function select(number) {
    model.set("selected", number);
    model.save_changes();
  }

  function onSelected() {
    if (plotly && plot.data) plotly.relayout(plot, { shapes: coloured(shapes(), theme(root)) });
    say();
  }

  function onKey(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const numbers = [...points().keys()].sort((a, b) => a - b);
    if (!numbers.length) return;
    const at = numbers.indexOf(model.get("selected"));
    const to = { ArrowRight: Math.min(numbers.length - 1, at + 1), ArrowLeft: at < 0 ? numbers.length - 1 : Math.max(0, at - 1),
      Home: 0, End: numbers.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    select(numbers[to]);
  }

  const unwatch = watchAge(model, stale, "The notebook kernel does not answer; this chart may be old.");
  const watcher = new MutationObserver(draw);
  const sizes = new ResizeObserver(() => {
    if (!plotly || !plot.offsetWidth) return;
    if (plot.data) plotly.Plots.resize(plot);
    else draw();
  });
  sizes.observe(plot);
  watcher.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name"] });
  root.addEventListener("keydown", onKey);
  model.on("change:figure", draw);
  model.on("change:problem", draw);
  model.on("change:selected", onSelected);
  function onMessage(message) {
    if (message.gives === "sketch" && !plotly) plot.replaceChildren(create(message.tree, false));
  }

  model.on("msg:custom", onMessage);
  draw();
  if (!model.get("problem")) {
    if (SHARED.plotly && !SHARED.loaded) model.send({ wants: "sketch" });
    wantPlotly(model).then((loaded) => {
      plotly = loaded;
      draw();
    }).catch((error) => {
      problem.hidden = false;
      problem.textContent = error.message;
    });
  }
  return () => {
    gone = true;
    unwatch();
    watcher.disconnect();
    sizes.disconnect();
    model.off("change:figure", draw);
    model.off("change:problem", draw);
    model.off("change:selected", onSelected);
    model.off("msg:custom", onMessage);
    if (plotly) plotly.purge(plot);
  };
}

export default { render };
