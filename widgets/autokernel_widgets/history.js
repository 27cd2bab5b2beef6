// The table of experiments: sorts, filters, selects.  Text goes through textContent only.

const PAGE = 150; // rows that are drawn at once; the rest on request

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function render({ model, el }) {
  const root = make("div", "ak-root ak ak-history");
  const stale = make("p");
  const problem = make("p", "ak-problem");
  const notes = make("div");
  const bar = make("div", "ak-row");
  const label = make("label", "", "filter ");
  const filter = make("input");
  const count = make("span", "ak-small");
  const scroll = make("div", "ak-scroll");
  const table = make("table", "ak-table");
  const head = make("tr");
  const thead = make("thead");
  const body = make("tbody");
  const more = make("button", "", "");
  root.setAttribute("data-lm-suppress-shortcuts", "true");
  root.setAttribute("role", "region");
  problem.setAttribute("role", "alert");
  count.setAttribute("role", "status");
  filter.type = "search";
  filter.placeholder = "kept, LANES, ...";
  filter.setAttribute("aria-label", "show only experiments that contain this text");
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "group");
  scroll.setAttribute("aria-label", "experiments; arrow keys select");
  more.type = "button";
  label.append(filter);
  bar.append(label, count);
  thead.append(head);
  table.append(thead, body);
  scroll.append(table);
  root.append(stale, problem, notes, bar, scroll, more);
  el.append(root);

  let sort = { column: 0, down: true };
  let limit = PAGE;
  let drawn = new Map(); // number -> row element, to change only what is new
  const numeric = new Set(model.get("numeric"));

  function value(row, column) {
    const cell = row[column + 2];
    return numeric.has(model.get("columns")[column]) ? (cell === "" ? NaN : parseFloat(cell.replaceAll(",", ""))) : cell.toLowerCase();
  }

  function chosen() {
    const words = filter.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const rows = model.get("rows").filter((row) => {
      const text = row.slice(2).join(" ").toLowerCase();
      return words.every((word) => text.includes(word));
    });
    const sign = sort.down ? -1 : 1;
    return rows.sort((a, b) => {
      const one = value(a, sort.column), other = value(b, sort.column);
      const empty = Number(Number.isNaN(one)) - Number(Number.isNaN(other)); // what has no figure stands last
      return empty || (one < other ? -sign : one > other ? sign : b[0] - a[0]);
    });
  }

  function drawHead() {
    head.replaceChildren(...model.get("columns").map((name, index) => {
      const cell = make("th", numeric.has(name) ? "ak-num" : "");
      const button = make("button", "ak-sort", name + (sort.column === index ? (sort.down ? " ▾" : " ▴") : ""));
      cell.scope = "col";
      cell.setAttribute("aria-sort", sort.column !== index ? "none" : sort.down ? "descending" : "ascending");
      button.type = "button";
      button.addEventListener("click", () => {
        sort = { column: index, down: sort.column === index ? !sort.down : numeric.has(name) };
        drawHead();
        draw();
        head.children[index].firstChild.focus();
      });
      cell.append(button);
      return cell;
    }));
  }

  function rowElement(row) {
    const known = drawn.get(row[0]);
    const text = JSON.stringify(row);
    if (known && known.text === text) return known.element;
    const element = make("tr");
    element.dataset.number = row[0];
    row.slice(2).forEach((cell, index) => {
      const name = model.get("columns")[index];
      element.append(make("td", numeric.has(name) ? "ak-num" : index === 1 ? `ak-of-${row[1]}` : "", cell));
    });
    drawn.set(row[0], { text, element });
    return element;
  }

  function draw() {
    const rows = chosen();
    const all = model.get("rows").length;
    root.setAttribute("aria-label", model.get("label"));
    problem.textContent = model.get("problem");
    problem.hidden = !problem.textContent;
    bar.hidden = scroll.hidden = !problem.hidden;
    notes.replaceChildren(...model.get("notes").map((note) => make("p", "ak-problem", note)));
    count.textContent = rows.length === all ? `${all} experiments` : `${rows.length} of ${all} experiments`;
    const wanted = rows.slice(0, limit).map(rowElement);
    wanted.forEach((element, index) => {
      if (body.children[index] !== element) body.insertBefore(element, body.children[index] ?? null);
    });
    while (body.children.length > wanted.length) body.lastChild.remove();
    more.hidden = rows.length <= limit;
    more.textContent = `show all ${rows.length}`;
    mark(false);
  }

  function mark(reveal) {
    const selected = model.get("selected");
    for (const element of body.children) {
      const on = Number(element.dataset.number) === selected;
      element.classList.toggle("ak-selected", on);
      element.setAttribute("aria-selected", String(on));
      if (on && reveal) element.scrollIntoView({ block: "nearest" });
    }
  }

  function select(number) {
    model.set("selected", number);
    model.save_changes();
  }

  function onKey(event) {
    if (event.target === filter || event.ctrlKey || event.altKey || event.metaKey) return;
    const numbers = [...body.children].map((element) => Number(element.dataset.number));
    const at = numbers.indexOf(model.get("selected"));
    const to = { ArrowDown: Math.min(numbers.length - 1, at + 1), ArrowUp: Math.max(0, at - 1), Home: 0, End: numbers.length - 1 }[event.key];
    if (to === undefined || !numbers.length) return;
    event.preventDefault();
    event.stopPropagation();
    select(numbers[to]);
  }

  const onSelected = () => mark(true);
  const unwatch = watchAge(model, stale, "The notebook kernel does not answer; this table may be old.");
  filter.addEventListener("input", () => { limit = PAGE; draw(); });
  more.addEventListener("click", () => { limit = Infinity; draw(); });
  body.addEventListener("click", (event) => {
    const element = event.target.closest("tr");
    if (element) select(Number(element.dataset.number));
  });
  scroll.addEventListener("keydown", onKey);
  const events = { "change:rows": draw, "change:notes": draw, "change:problem": draw, "change:selected": onSelected };
  for (const [name, handler] of Object.entries(events)) model.on(name, handler);
  drawHead();
  draw();
  return () => {
    unwatch();
    for (const [name, handler] of Object.entries(events)) model.off(name, handler);
  };
}

export default { render };
