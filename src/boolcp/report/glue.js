// Joins the table (DataTables), the charts (Plotly) and the cards: one selected atom, one filter, one order.
const root = document.documentElement;
const shown = { selected: null, atoms: null };
const options = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"] };
const isTouch = matchMedia("(pointer: coarse)").matches;
const scheme = matchMedia("(prefers-color-scheme: dark)");
const parsed = new Promise((resolve) => document.addEventListener("DOMContentLoaded", resolve));

function addressOf(id) {
  const { type, textContent } = document.getElementById(id);
  const source = type === "application/json" ? JSON.parse(textContent) : textContent;
  return URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
}

function loadScript(address) {
  return new Promise((resolve) => {
    const script = document.createElement("script");
    script.addEventListener("load", resolve);
    script.src = address;
    document.head.append(script);
  });
}

// a chart is drawn when it comes near the window, one at a time: the page answers in between; all are before printing
const waiting = [];
const observer = new IntersectionObserver((entries) => {
  const near = entries.filter((entry) => entry.isIntersecting).map((entry) => entry.target);
  near.forEach((figure) => observer.unobserve(figure));
  if (waiting.push(...near) === near.length && near.length) drawNext();
}, { rootMargin: "400px" });

function watch() {
  for (const figure of document.querySelectorAll("figure.chart:not(.watched)")) {
    figure.classList.add("watched");
    observer.observe(figure);
  }
}

async function draw(figure) {
  if (figure.classList.contains("live")) return;
  const { data, layout, has_tools: hasTools } = JSON.parse(figure.querySelector("script").textContent);
  const plot = figure.querySelector(".plot");
  figure.classList.add("live");
  const tools = { ...options, displayModeBar: hasTools && !isTouch ? "hover" : false };
  await Plotly.newPlot(plot, data, { ...layout, dragmode: isTouch || !hasTools ? false : "zoom" }, tools);
  plot.on("plotly_click", ({ points }) => points[0].data.meta && select(points[0].data.meta.atom));
  if (shown.selected !== null || shown.atoms !== null) paint(plot);
  figure.classList.add("drawn");
}

async function drawNext() {
  await draw(waiting[0]);
  waiting.shift();
  if (waiting.length) setTimeout(drawNext);
}
addEventListener("beforeprint", () => document.querySelectorAll("figure.watched").forEach(draw));

// in charts of several atoms, the filtered ones go and those that are not selected fade
function paint(plot) {
  const atoms = plot.data.map((trace) => trace.meta?.atom);
  if (atoms[0] === undefined) return;
  const opacity = atoms.map((k) => (shown.selected === null || shown.selected === k ? 1 : 0.15));
  const visible = atoms.map((k) => shown.atoms === null || shown.atoms.includes(k));
  Plotly.restyle(plot, { opacity, visible });
}

function paintAll() {
  document.querySelectorAll(".js-plotly-plot").forEach(paint);
}

function select(atom) {
  if (document.readyState === "loading") return; // its card may not be there yet
  shown.selected = shown.selected === atom ? null : atom;
  for (const element of document.querySelectorAll("[data-atom]")) {
    const isSelected = Number(element.dataset.atom) === shown.selected;
    element.classList.toggle("selected", isSelected);
    element.querySelectorAll("button.pick").forEach((button) => button.setAttribute("aria-pressed", isSelected));
  }
  const words = shown.selected === null ? "No atom is selected." : `Atom ${shown.selected} is selected.`;
  document.getElementById("status").textContent = words;
  paintAll();
}

function follow(grid) {
  shown.atoms = grid.rows({ search: "applied", order: "applied" }).nodes().toArray().map((row) => Number(row.dataset.atom));
  for (const element of document.querySelectorAll("[data-atom]:not(#table-of-atoms tr)")) {
    element.hidden = !shown.atoms.includes(Number(element.dataset.atom));
  }
  const cards = document.getElementById("cards");
  shown.atoms.forEach((k) => cards.append(document.getElementById(`atom-${k}`)));
  paintAll();
}

// labels that are the words, else those that begin with them, else those that contain them
function findLabels(labels, words) {
  const texts = labels.map((label) => label.toLowerCase());
  const rules = [(text) => text === words, (text) => text.startsWith(words), (text) => text.includes(words)];
  for (const rule of rules) {
    const found = texts.flatMap((text, i) => (rule(text) ? [i] : []));
    if (found.length) return found;
  }
  return [];
}

// the atoms that are on at a label, whatever the printed text says; "atom 3" finds that atom
function findAtoms(words, rows) {
  const wanted = words.trim().toLowerCase();
  if (!wanted) return null;
  const labels = JSON.parse(document.getElementById("labels").textContent);
  const places = Object.fromEntries(Object.entries(labels).map(([mode, names]) => [mode, findLabels(names, wanted)]));
  const found = rows.filter(({ dataset: { atom, mode, bits } }) => {
    const bytes = Uint8Array.from(atob(bits), (letter) => letter.charCodeAt(0));
    return wanted === `atom ${atom}` || (places[mode] ?? []).some((i) => (bytes[i >> 3] >> (i & 7)) & 1);
  });
  return new Set(found.map((row) => row.dataset.atom));
}

function joinTable(DataTable) {
  const layout = { topStart: null, topEnd: null, bottomStart: "info", bottomEnd: null };
  const language = { info: "_TOTAL_ of _MAX_ atoms", infoEmpty: "no atom of _MAX_", infoFiltered: "" };
  const grid = new DataTable("#table-of-atoms", { paging: false, order: [], layout, language, autoWidth: false });
  grid.on("draw", () => parsed.then(() => follow(grid)));
  const [modes, words] = ["boolean-mode", "find"].map((id) => document.getElementById(id));
  modes.addEventListener("change", () => {
    grid.column(1).search(modes.value, { exact: modes.value !== "" }).draw();
  });
  let found = null;
  grid.search.fixed("on", (text, data, index) => found === null || found.has(grid.row(index).node().dataset.atom));
  words.addEventListener("input", () => {
    found = findAtoms(words.value, grid.rows().nodes().toArray()); // all rows, those that are filtered out too
    grid.draw();
  });
}

document.addEventListener("click", ({ target }) => {
  if (target.closest("button.pick, tr[data-atom]") && !target.closest("a")) {
    select(Number(target.closest("[data-atom]").dataset.atom));
  }
});
document.addEventListener("keydown", ({ key }) => {
  if (key === "Escape" && shown.selected !== null) select(shown.selected);
});
// tables that are wider than the screen say so
const sizes = new ResizeObserver((entries) => entries.forEach(({ target }) => {
  target.previousElementSibling.classList.toggle("cut", target.scrollWidth > target.clientWidth + 1);
}));
const followScheme = () => root.classList.toggle("dark", scheme.matches);
scheme.addEventListener("change", followScheme);
followScheme();
root.classList.add("js");

// both libraries load while the cards are read; the table and the charts above the cards do not wait for them
const charts = loadScript(addressOf("plotly")).then(watch);
const tables = document.getElementById("table-of-atoms") && import(addressOf("datatables"));
const joined = tables?.then((library) => joinTable(library.default));
Promise.all([charts, joined, parsed]).then(() => {
  watch();
  document.querySelectorAll(".scroll").forEach((table) => sizes.observe(table));
  root.classList.add("ready");
});
