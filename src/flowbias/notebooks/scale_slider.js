// The coefficients of a limit as stems, and a slider over the scale of its start.
// Colours of text and axes are the notebook's own. Nothing is fetched.
const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 640, HEIGHT = 260, LEFT = 60, RIGHT = 12, TOP = 12, BOTTOM = 34;
const COLOUR = "#3b6fb6";

function make(parent, name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

function axes(svg, low, high, y, dimension) {
  const ink = { stroke: "currentColor", "stroke-width": 1 };
  const words = { fill: "currentColor", "font-size": 12, "font-family": "sans-serif" };
  make(svg, "line", { x1: LEFT, x2: LEFT, y1: TOP, y2: HEIGHT - BOTTOM, ...ink });
  make(svg, "line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(0), y2: y(0), ...ink });
  for (const value of new Set([low, 0, high])) {
    const place = { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end", ...words };
    make(svg, "text", place, value === 0 ? "0" : value.toPrecision(3));
  }
  const middle = (LEFT + WIDTH - RIGHT) / 2;
  const below = { x: middle, y: HEIGHT - 8, "text-anchor": "middle", ...words };
  make(svg, "text", below, `coefficients w of features 0 to ${dimension - 1}`);
}

function render({ model, el }) {
  const rows = model.get("coefficients"), features = model.get("features");
  const dimension = model.get("dimension"), scales = model.get("scales");
  const all = rows.flat(), low = Math.min(0, ...all), high = Math.max(0, ...all);
  const span = high - low || 1;
  const y = (value) => TOP + ((high - value) / span) * (HEIGHT - TOP - BOTTOM);
  const x = (j) => LEFT + ((features[j] + 0.5) / dimension) * (WIDTH - LEFT - RIGHT);

  const label = document.createElement("label");
  label.append("scale of the start ");
  const slider = document.createElement("input");
  Object.assign(slider, { type: "range", min: 0, max: rows.length - 1, step: 1 });
  // JupyterLab takes arrow keys to move between cells, unless it is told not to.
  slider.setAttribute("data-lm-suppress-shortcuts", "true");
  slider.style.cssText = "width: min(24em, 60%); vertical-align: middle";
  label.append(slider);
  const said = document.createElement("output");
  said.style.cssText = "display: block; font-variant-numeric: tabular-nums";
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("role", "img");
  svg.style.cssText = `width: 100%; max-width: ${WIDTH}px; display: block`;
  const title = make(svg, "title", {});
  axes(svg, low, high, y, dimension);
  const stems = features.map((_, j) => [
    make(svg, "line", { x1: x(j), x2: x(j), y1: y(0), stroke: COLOUR, "stroke-width": 1.5 }),
    make(svg, "circle", { cx: x(j), r: features.length > 60 ? 2 : 3.5, fill: COLOUR }),
  ]);
  el.append(label, said, svg);

  const show = () => {
    const at = model.get("index"), scale = scales[at];
    slider.value = at;
    slider.setAttribute("aria-valuetext", scale);
    said.textContent = `scale ${scale}: ${model.get("notes")[at]}`;
    title.textContent = `Coefficients of the limit at scale ${scale}`;
    stems.forEach(([line, dot], j) => {
      line.setAttribute("y2", y(rows[at][j]));
      dot.setAttribute("cy", y(rows[at][j]));
    });
  };
  slider.addEventListener("input", () => {
    model.set("index", Number(slider.value));
    model.save_changes();
    show();
  });
  model.on("change:index", show);
  show();
  return () => model.off("change:index", show);
}

export default { render };
