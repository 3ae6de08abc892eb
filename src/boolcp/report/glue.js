// Joins the table (DataTables), the charts (Plotly) and the cards: one selected atom, one filter, one order.
const root = document.documentElement;
const shown = { selected: null, atoms: null };
const options = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d"] };
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

// a chart takes the place of its still picture when it comes near the window, one at a time: the page answers in between
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

async function drawNext() {
  const figure = waiting[0];
  const { data, layout } = JSON.parse(figure.querySelector("script").textContent);
  const plot = figure.querySelector(".plot");
  figure.classList.add("live");
  await Plotly.newPlot(plot, data, { ...layout, dragmode: isTouch ? false : "zoom" }, options);
  plot.on("plotly_click", ({ points }) => points[0].data.meta && select(points[0].data.meta.atom));
  if (shown.selected !== null || shown.atoms !== null) paint(plot);
  figure.classList.add("drawn");
  waiting.shift();
  if (waiting.length) setTimeout(drawNext);
}

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

function joinTable(DataTable) {
  const layout = { topStart: null, topEnd: null, bottomStart: "info", bottomEnd: null };
  const language = { info: "_TOTAL_ of _MAX_ atoms", infoEmpty: "no atom of _MAX_", infoFiltered: "" };
  const grid = new DataTable("#table-of-atoms", { paging: false, order: [], layout, language, autoWidth: false });
  grid.on("draw", () => parsed.then(() => follow(grid)));
  const [modes, words] = ["boolean-mode", "find"].map((id) => document.getElementById(id));
  modes.addEventListener("change", () => {
    grid.column(1).search(modes.value, { exact: modes.value !== "" }).draw();
  });
  words.addEventListener("input", () => grid.column(0).search(words.value).draw());
}

document.addEventListener("click", ({ target }) => {
  if (target.closest("button.pick, tr[data-atom]") && !target.closest("a")) {
    select(Number(target.closest("[data-atom]").dataset.atom));
  }
});
document.addEventListener("keydown", ({ key }) => {
  if (key === "Escape" && shown.selected !== null) select(shown.selected);
});
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
  root.classList.add("ready");
});
