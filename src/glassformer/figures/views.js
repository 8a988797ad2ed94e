// @ts-check
/**
 * Draws views live: plays the marks that Python laid out, and adds what a still picture cannot do: hover, pin, keys,
 * a table, files. It lays nothing out: every place, every cut label and every color name comes with the marks.
 * `docs/views.md` describes the marks. No dependency, no build step, no network.
 *
 * @typedef {Record<string, any>} Spec   a view
 * @typedef {Record<string, any>} Mark
 * @typedef {{width: number, height: number, palettes: Record<Theme, Record<string, string>>, scales: Spec[], marks: Mark[]}} Layout
 * @typedef {{view: Spec, layouts: Layout[]}} Drawing   a view and its layouts, the widest first
 * @typedef {(number | null)[][]} Rows
 * @typedef {"light" | "dark"} Theme
 */

const TEXT = 11, SMALL = 10; // sizes of the texts of a grid, as in marks.py

// Numbers, as labels.py writes them

/** @param {string} digits */
const thousands = (digits) => digits.replace(/\B(?=(\d{3})+(?!\d))/g, ",");

/** Rounds halves up, also those that a float holds as a little less. */
const HALF = 0.5 + 1e-9;

/** @param {number} power */
const ten = (power) => (power >= 0 ? 10 ** power : 1 / 10 ** -power);

/** One digit and a power of ten. @param {number} size */
function powerOfTen(size) {
  const power = Math.floor(Math.log10(size));
  const digit = Math.floor(size / ten(power) + HALF);
  return (digit === 10 ? `1e${power + 1}` : `${digit}e${power}`).replace("-", "−"); // 9.6e−5 is 1e−4
}

/** About three digits. @param {number} value */
export function number(value) {
  const size = Math.abs(value), sign = value < 0 ? "−" : "";
  if (size < 1e-307) return "0";
  if (size === Infinity) return `${sign}∞`;
  if (size < 0.0005 || size >= 1e15) return sign + powerOfTen(size);
  const decimals = size >= 100 || Number.isInteger(value) ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  const rounded = Math.floor(size * 10 ** decimals + HALF) / 10 ** decimals;
  const [whole, part] = rounded.toFixed(decimals).split(".");
  return (rounded ? sign : "") + thousands(whole) + (part ? `.${part}` : "");
}

/** @param {number} value */
export function percent(value) {
  const tenths = Math.floor(Math.abs(value) * 1000 + HALF);
  if (!tenths && value) return number(value * 100) + " %";
  const whole = thousands(String(Math.floor(tenths / 10)));
  return (value < 0 ? "−" : "") + whole + (tenths % 10 ? `.${tenths % 10}` : "") + " %";
}

/** @param {number} value @param {string | undefined} unit */
const quantity = (value, unit) => (unit === "percent" ? percent(value) : number(value));

/** A coordinate, to a tenth; halves go up. @param {number} value */
const tenth = (value) => Math.floor(value * 10 + 0.5) / 10;

/** Rows of numbers, which are packed if they are many. @param {any} given @returns {Rows} */
function unpacked(given) {
  if (Array.isArray(given)) return given;
  const bytes = Uint8Array.from(atob(given.half ?? given.single), (char) => char.charCodeAt(0)), [rows, columns] = given.shape;
  const values = given.half ? Array.from(new Uint16Array(bytes.buffer), half) : Array.from(new Float32Array(bytes.buffer), finite);
  return Array.from({ length: rows }, (_, r) => values.slice(r * columns, (r + 1) * columns));
}

/** @param {number} value */
const finite = (value) => (Number.isNaN(value) ? null : value);

/** A float of 16 bits, which browsers cannot read themselves everywhere. @param {number} bits */
function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 31) return null;
  return exponent ? sign * 2 ** (exponent - 15) * (1 + fraction / 1024) : sign * 2 ** -14 * (fraction / 1024);
}

// Colors, as color.py finds them

/** @param {string} stop */
const channels = (stop) => [1, 3, 5].map((n) => parseInt(stop.slice(n, n + 2), 16));

/** The color of a value on a scale. @param {Spec} scale @param {number} value @param {Theme} theme */
function colorAt(scale, value, theme) {
  const stops = scale.stops[theme];
  const share = (value - scale.low) / (scale.high - scale.low);
  const place = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const left = Math.min(Math.floor(place), stops.length - 2);
  const [from, to] = [channels(stops[left]), channels(stops[left + 1])];
  const mixed = from.map((a, n) => Math.floor(a + (to[n] - a) * (place - left) + 0.5));
  return "#" + mixed.map((channel) => channel.toString(16).padStart(2, "0")).join("");
}

/** Black or white, whichever reads better on a color. @param {string} fill */
function inkOn(fill) {
  const linear = channels(fill).map((channel) => channel / 255).map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] > 0.179 ? "#000000" : "#ffffff";
}

/** The color that a mark names. @param {any} named @param {Layout} layout @param {Theme} theme */
function resolve(named, layout, theme) {
  if (typeof named === "string") return named === "none" ? named : layout.palettes[theme][named];
  const scale = typeof named.scale === "number" ? layout.scales[named.scale] : named.scale;
  const fill = colorAt(scale, named.value, theme);
  return named.ink ? inkOn(fill) : fill;
}

// Grids, as cells.py plays them

/** The matrix in a view that a grid shows. @param {Spec} view @param {number[]} path @returns {Spec} */
const matrixOf = (view, path) => path.reduce((/** @type {Spec} */ one, at) => one.panels[at], view);

/** A rectangle of a grid. @param {number[]} corner @param {number[]} size @param {Mark} more @returns {Mark} */
const rect = ([x, y], [w, h], more) => ({ mark: "rect", x: tenth(x), y: tenth(y), w: tenth(w), h: tenth(h), ...more });

/** A text of a grid. @param {number[]} place @param {string} text @param {Mark} more @returns {Mark} */
const lettering = ([x, y], text, more) => ({ mark: "text", x: tenth(x), y: tenth(y), text, size: TEXT, ...more });

/** A grid that can be walked through: what is visible are some rows and columns of its matrix. */
class Grid {
  /** @param {Mark} mark @param {Spec} view */
  constructor(mark, view) {
    this.mark = mark;
    this.view = view;
    this.values = unpacked(view.values);
    this.patches = mark.overview ? unpacked(mark.overview.values) : [];
    /** The first visible row and column, and how many are visible. */
    this.top = Number(mark.window[0]);
    this.first = Number(mark.window[1]);
    this.down = Number(mark.window[2]);
    this.across = Number(mark.window[3]);
    // Maps, since a text can have the name of what every object has ("constructor").
    this.labels = new Map(Object.entries(mark.labels));
    this.texts = new Map(Object.entries(mark.texts ?? {}));
  }

  /** Move the window around a row and a column, or as near as it can get. @param {number} row @param {number} column */
  move(row, column) {
    this.top = Math.max(0, Math.min(row - Math.floor(this.down / 2), this.view.rows.length - this.down));
    this.first = Math.max(0, Math.min(column - Math.floor(this.across / 2), this.view.columns.length - this.across));
  }

  /** All that is visible. @returns {Mark[]} */
  marks() {
    /** @type {Mark[]} */
    const made = [];
    if (this.mark.overview) this.overview(made);
    this.columns(made);
    for (let n = 0; n < this.down; n++) this.row(made, n);
    this.outlines(made);
    return made;
  }

  /** @param {number} c @param {number} value @param {boolean} [ink] */
  color(c, value, ink = false) {
    return { scale: this.view.scales ? this.view.scales[c] : this.view.scale, value, ink };
  }

  /** A text as the layout found room for it. @param {number[]} place @param {string} text @param {Map<string, any>} shown @param {Mark} more */
  text(place, text, shown, more) {
    const [short, press] = shown.get(text) ?? [text, 0];
    return lettering(place, short, press ? { ...more, press } : more);
  }

  /** @param {Mark[]} made */
  columns(made) {
    const { x: left, y, cell: [wide], columns, head } = this.mark;
    if (!columns) return;
    for (let m = 0; m < this.across; m++) {
      const c = this.first + m, x = left + m * wide, hue = this.view.column_hues?.[c];
      if (hue) made.push(rect([x, y - head], [wide, head - 2], { fill: hue }));
      const look = { mono: true, fill: hue ? "black" : "ink", keys: [`c${c}`] };
      if (columns === "flat") made.push(this.text([x + wide / 2, y - 5], this.view.columns[c], this.labels, { ...look, anchor: "middle" }));
      else made.push(this.text([x + wide / 2 + 4, y - 3], this.view.columns[c], this.labels, { ...look, turn: true }));
    }
  }

  /** @param {Mark[]} made @param {number} n */
  row(made, n) {
    const [wide, high] = this.mark.cell, r = this.top + n, y = this.mark.y + n * high;
    if (this.mark.rows) {
      const look = { anchor: "end", mono: true, fill: "ink", keys: [`r${r}`] };
      made.push(this.text([this.mark.x - 6, y + high / 2 + 4], this.view.rows[r], this.labels, look));
    }
    for (let m = 0; m < this.across; m++) {
      const c = this.first + m, corner = [this.mark.x + m * wide, y], value = this.values[r][c];
      if (value === null) this.void(made, corner, r, c);
      else this.cell(made, corner, r, c, value);
    }
  }

  /** A masked cell. @param {Mark[]} made @param {number[]} corner @param {number} r @param {number} c */
  void(made, [x, y], r, c) {
    const [wide, high] = this.mark.cell, keys = [`r${r}`, `c${c}`], empty = this.mark.void;
    if (this.mark.hatch) made.push(rect([x, y], [wide, high], { fill: "none", hatch: true, tip: this.tip(r, c, empty), keys }));
    if (this.mark.void_text) made.push(lettering([x + wide / 2, y + high / 2 + 4], empty, { size: SMALL, anchor: "middle", fill: "hatch", keys }));
  }

  /** @param {Mark[]} made @param {number[]} corner @param {number} r @param {number} c @param {number} value */
  cell(made, [x, y], r, c, value) {
    const [wide, high] = this.mark.cell, keys = [`r${r}`, `c${c}`], text = this.view.texts ? this.view.texts[r][c] : "";
    const edge = this.mark.edge ? { stroke: "line" } : {};
    made.push(rect([x, y], [wide, high], { fill: this.color(c, value), ...edge, tip: this.tip(r, c, this.described(value, text)), keys }));
    if (!text) return;
    const look = { size: SMALL, anchor: "middle", mono: true, fill: this.color(c, value, true), keys };
    made.push(this.text([x + wide / 2, y + high / 2 + 3.5], text, this.texts, look));
  }

  /** @param {number} value @param {string} text */
  described(value, text) {
    if (this.view.numeric) return text;
    const shown = quantity(value, this.view.unit);
    return text ? `“${text}” ${shown}` : shown;
  }

  /** @param {number} r @param {number} c @param {string} described */
  tip(r, c, described) {
    return `${this.view.rows[r]} · ${this.view.columns[c]}: ${described}`;
  }

  /** Frames around some cells. @param {Mark[]} made */
  outlines(made) {
    const [wide, high] = this.mark.cell;
    for (const [r, c] of this.view.outlined ?? []) {
      const n = r - this.top, m = c - this.first;
      if (n < 0 || n >= this.down || m < 0 || m >= this.across) continue;
      made.push(rect([this.mark.x + m * wide, this.mark.y + n * high], [wide, high], { fill: "none", stroke: "mark" }));
    }
  }

  /** The pooled matrix, a frame around it, one around the window, and a line with its position. @param {Mark[]} made */
  overview(made) {
    const { x, y, cell: [wide, high], by: [byRows, byColumns], note } = this.mark.overview;
    this.patches.forEach((row, n) => row.forEach((value, m) => made.push(this.patch([x + m * wide, y + n * high], n, m, value))));
    made.push(rect([x, y], [this.patches[0].length * wide, this.patches.length * high], { fill: "none", stroke: "line" }));
    const corner = [x + (this.first / byColumns) * wide, y + (this.top / byRows) * high];
    made.push(rect(corner, [(this.across / byColumns) * wide, (this.down / byRows) * high], { fill: "none", stroke: "mark" }));
    const rows = `rows ${this.top}–${this.top + this.down - 1}`, columns = `columns ${this.first}–${this.first + this.across - 1}`;
    made.push(lettering([x, y + note], `below: ${rows}, ${columns}`, { size: SMALL, fill: "soft" }));
  }

  /** One patch of the overview; its keys are the target of a click. @param {number[]} corner @param {number} n @param {number} m @param {number | null} value */
  patch(corner, n, m, value) {
    const { cell, by } = this.mark.overview, r = n * by[0], c = m * by[1], keys = ["overview", `w${r}.${c}`];
    if (value === null) return rect(corner, cell, { fill: "none", hatch: true, tip: this.mark.void, keys });
    const last = [Math.min(this.view.rows.length, r + by[0]) - 1, Math.min(this.view.columns.length, c + by[1]) - 1];
    const tip = `${r}–${last[0]} · ${c}–${last[1]}: ${quantity(value, this.view.unit)}`;
    return rect(corner, cell, { fill: this.color(c, value), tip, keys });
  }
}

// On a page

const SVG = "http://www.w3.org/2000/svg";
const MONO = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', 'Noto Sans Mono', monospace";
const SANS = "Inter, 'Segoe UI', Roboto, Helvetica, Arial, 'DejaVu Sans', 'Noto Sans', sans-serif";
const ROWS = 2000; // of the table, at once
const CELLS = 1200; // of heat maps; where there are more they are painted, since so many elements are slow
const PIXELS = 8e6; // of a canvas, at most
const MANY = 6000; // marks, of which those that are not meant no longer step back: it would take too long
const KEYS = "Arrow keys move, Enter pins, Escape clears, t shows the table, s saves the picture.";
export const STYLE = `
.gf-view { margin: 0; position: relative; font: 13px/1.4 ${SANS}; color: var(--ink); background: var(--paper); }
.gf-view svg { display: block; max-width: none; position: relative; } .gf-view .gf-scroll { overflow-x: auto; position: relative; }
.gf-view canvas { position: absolute; left: 0; top: 0; pointer-events: none; }
.gf-view svg:focus-visible, .gf-view button:focus-visible, .gf-view summary:focus-visible { outline: 2px solid var(--mark); outline-offset: 1px; }
.gf-view .gf-tip { position: absolute; z-index: 2; pointer-events: none; max-width: 28em; padding: 2px 7px; border-radius: 3px;
  color: var(--paper); background: var(--ink); font: 12px/1.5 ${MONO}; white-space: pre-wrap; overflow-wrap: anywhere; }
.gf-view .gf-bar { display: flex; gap: 6px; padding: 4px 12px; flex-wrap: wrap; align-items: baseline; color: var(--soft); font-size: 12px; }
.gf-view button { font: inherit; color: var(--ink); background: none; border: 1px solid var(--line); border-radius: 3px; padding: 1px 8px; cursor: pointer; }
/* A wide table scrolls by itself: the page around it stays as wide as the screen. */
.gf-view details { overflow-x: auto; }
.gf-view table { border-collapse: collapse; margin: 6px 12px; font: 12px ${MONO}; } .gf-view caption { text-align: left; padding: 4px 0; }
.gf-view th, .gf-view td { border: 1px solid var(--line); padding: 1px 6px; text-align: left; white-space: pre; }
.gf-view .gf-hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }`;

/** @param {number} value */
const place = (value) => String(tenth(value));

/**
 * @param {string} name @param {Record<string, string | number>} attributes @param {string} [text]
 * @returns {SVGElement}
 */
function shape(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, typeof value === "number" ? place(value) : value);
  if (text !== undefined) made.textContent = text;
  return /** @type {SVGElement} */ (made);
}

/** A mark in its colors, as an element. @param {Mark} mark @param {string} hatch */
function element(mark, hatch) {
  if (mark.mark === "rect") {
    const fill = mark.hatch ? `url(#${hatch})` : mark.fill;
    const made = shape("rect", { x: mark.x, y: mark.y, width: mark.w, height: mark.h, fill });
    if (mark.stroke) made.setAttribute("stroke", mark.stroke);
    if (fill === "none") made.setAttribute("pointer-events", mark.tip ? "all" : "none");
    return made;
  }
  if (mark.mark === "text") {
    const made = shape("text", { x: mark.x, y: mark.y, "font-size": mark.size, fill: mark.fill, "pointer-events": "none" }, mark.text);
    if ((mark.anchor ?? "start") !== "start") made.setAttribute("text-anchor", mark.anchor);
    if (mark.bold) made.setAttribute("font-weight", "600");
    if (mark.mono) made.setAttribute("font-family", MONO);
    if (mark.mono) made.setAttributeNS("http://www.w3.org/XML/1998/namespace", "xml:space", "preserve");
    if (mark.turn) made.setAttribute("transform", `rotate(-90 ${place(mark.x)} ${place(mark.y)})`);
    if (mark.press) made.setAttribute("textLength", place(mark.press));
    if (mark.press) made.setAttribute("lengthAdjust", "spacingAndGlyphs");
    return made;
  }
  const at = (/** @type {number[]} */ point) => point.map(place).join(" ");
  let path = mark.points.length ? `M${mark.points.map(at).join("L")}` : "";
  if (mark.mark === "arc") {
    const handles = mark.points.map((/** @type {number[]} */ [x, y]) => at(mark.right ? [x + mark.lift, y] : [x, y - mark.lift]));
    path = `M${at(mark.points[0])}C${handles.join(" ")} ${at(mark.points[1])}`;
  }
  const made = shape("path", { d: path, stroke: mark.stroke, "stroke-width": mark.width ?? 1, fill: mark.fill ?? "none" });
  if (mark.dash) made.setAttribute("stroke-dasharray", "5 3");
  if (mark.fill) made.setAttribute("fill-opacity", ".25");
  return made;
}

let count = 0;

/**
 * The picture, and the element of every mark; those that are painted below it have none.
 * @param {Layout} layout @param {Mark[]} marks without grids @param {Theme} theme @param {string} sentence
 * @param {Set<Mark>} [painted]
 */
function picture(layout, marks, theme, sentence, painted) {
  const { width, height } = layout, hatch = `hatch${++count}`, palette = layout.palettes[theme];
  const svg = shape("svg", { width, height, viewBox: `0 0 ${place(width)} ${place(height)}`, role: "img", "aria-label": sentence, "font-family": SANS });
  svg.setAttribute("xmlns", SVG);
  const pattern = shape("pattern", { id: hatch, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
  pattern.append(shape("path", { d: "M0 0V5", stroke: palette.hatch, "stroke-width": 1, opacity: ".55" }));
  const defs = shape("defs", {});
  defs.append(pattern);
  svg.append(defs);
  if (!painted) svg.append(shape("rect", { width: "100%", height: "100%", fill: palette.paper }));
  const drawn = marks.map((mark) => {
    if (painted?.has(mark)) return null;
    /** @type {Mark} */
    const colors = {};
    if (mark.fill) colors.fill = resolve(mark.fill, layout, theme);
    if (mark.stroke) colors.stroke = resolve(mark.stroke, layout, theme);
    return element({ ...mark, ...colors }, hatch);
  });
  for (const one of drawn) if (one) svg.append(one);
  return { svg, drawn };
}

/** The cells of heat maps on a canvas, below the rest of the picture. */
class Painting {
  /** @param {Layout} layout @param {Mark[]} cells @param {Theme} theme */
  constructor(layout, cells, theme) {
    this.layout = layout;
    this.cells = cells;
    this.palette = layout.palettes[theme];
    this.fills = new Map(cells.map((cell) => [cell, cell.hatch ? "" : resolve(cell.fill, layout, theme)]));
    this.scale = 0;
    this.canvas = document.createElement("canvas");
    Object.assign(this.canvas.style, { width: `${place(layout.width)}px`, height: `${place(layout.height)}px` });
    this.canvas.setAttribute("aria-hidden", "true");
    /** All cells, so that to point at one does not take as long as to paint them. */
    this.whole = document.createElement("canvas");
  }

  /** Paint it as sharp as the screen is. @param {SVGElement} above */
  paint(above) {
    this.scale = this.fitting(above);
    for (const one of [this.whole, this.canvas]) [one.width, one.height] = [this.layout.width, this.layout.height].map((side) => Math.ceil(side * this.scale));
    this.fill(this.whole, this.cells);
    this.show();
  }

  /** Show it; if only some cells are meant, the others step back. @param {(cell: Mark) => boolean} [meant] */
  show(meant) {
    const context = this.canvas.getContext("2d");
    if (!context) return;
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.globalAlpha = meant ? 0.3 : 1;
    context.drawImage(this.whole, 0, 0);
    context.globalAlpha = 1;
    if (meant) this.fill(this.canvas, this.cells.filter(meant));
  }

  /** @param {HTMLCanvasElement} canvas @param {Mark[]} cells */
  fill(canvas, cells) {
    const context = canvas.getContext("2d");
    if (!context) return;
    const hatched = this.hatched(context);
    context.save();
    context.scale(this.scale, this.scale);
    for (const cell of cells) {
      context.fillStyle = this.fills.get(cell) || hatched;
      context.fillRect(cell.x, cell.y, cell.w, cell.h);
      if (!cell.stroke) continue;
      context.strokeStyle = this.palette[cell.stroke];
      context.strokeRect(cell.x, cell.y, cell.w, cell.h);
    }
    context.restore();
  }

  /** Pixels of the screen in one of the layout: the page may have enlarged the picture. @param {SVGElement} above */
  fitting(above) {
    const { width, height } = this.layout, shown = (above.getBoundingClientRect().width || width) / width;
    return Math.min(shown * devicePixelRatio, Math.sqrt(PIXELS / (width * height)));
  }

  /** Paint again if the page was enlarged meanwhile. @param {SVGElement} above */
  sharpen(above) {
    if (this.fitting(above) !== this.scale) this.paint(above);
  }

  /** What masked cells are filled with. @param {CanvasRenderingContext2D} context */
  hatched(context) {
    const tile = document.createElement("canvas"), side = Math.max(2, Math.round(5 * Math.SQRT2 * this.scale)), pen = tile.getContext("2d");
    tile.width = tile.height = side;
    if (!pen) return "";
    Object.assign(pen, { strokeStyle: this.palette.hatch, globalAlpha: 0.55, lineWidth: this.scale });
    for (const by of [-side, 0, side]) {
      pen.moveTo(by + side, 0);
      pen.lineTo(by, side);
    }
    pen.stroke();
    const pattern = context.createPattern(tile, "repeat");
    pattern?.setTransform(new DOMMatrix([1 / this.scale, 0, 0, 1 / this.scale, 0, 0])); // it is drawn in pixels of the screen
    return pattern ?? "";
  }

  /** The cell at a place of the screen. @param {SVGElement} above @param {MouseEvent} event */
  at(above, event) {
    const box = above.getBoundingClientRect(), by = this.layout.width / (box.width || 1);
    const x = (event.clientX - box.left) * by, y = (event.clientY - box.top) * by;
    return this.cells.find((cell) => x >= cell.x && x < cell.x + cell.w && y >= cell.y && y < cell.y + cell.h);
  }
}

/** Where a mark is, in the middle. @param {Mark} mark */
function middle(mark) {
  if (!mark.points) return [mark.x + (mark.w ?? 0) / 2, mark.y + (mark.h ?? 0) / 2];
  const [[x1, y1], [x2, y2]] = mark.points;
  return mark.right ? [x1 + mark.lift * 0.75, (y1 + y2) / 2] : [(x1 + x2) / 2, y1 - mark.lift * 0.75];
}

/** @param {string} name @param {Blob} blob */
function download(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** @param {any} value */
const field = (value) => (/[",\n\r]/.test(String(value ?? "")) ? `"${String(value).replaceAll('"', '""')}"` : String(value ?? ""));

/**
 * Draw a view into an element and keep it alive: it follows the element's width and the reader's colors.
 * `styled`: the page has `STYLE` already, as one must whose rules allow no style elements; `chosen` is called with the
 * keys of a mark that is pinned.
 * @param {HTMLElement} host @param {Drawing} drawing
 * @param {{theme?: Theme, styled?: boolean, chosen?: (keys: string[]) => void}} [options] @returns {() => void} ends it
 */
export function draw(host, { view, layouts }, options = {}) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const frame = document.createElement("figure");
  frame.className = "gf-view";
  const style = document.createElement("style");
  if (!options.styled) style.textContent = STYLE;
  const scroll = document.createElement("div"), tip = document.createElement("div"), spoken = document.createElement("p");
  const bar = document.createElement("div"), twin = document.createElement("details"), help = document.createElement("p");
  scroll.className = "gf-scroll";
  tip.className = "gf-tip";
  tip.hidden = true;
  spoken.className = help.className = "gf-hidden";
  spoken.setAttribute("aria-live", "polite");
  help.id = `gf-help${++count}`;
  help.textContent = KEYS;
  bar.className = "gf-bar";
  if (!options.styled) frame.append(style);
  frame.append(scroll, tip, spoken, help, bar, twin);
  host.replaceChildren(frame);

  let pinned = -1, current = -1;
  /** @type {Layout | undefined} */
  let layout;
  /** Those of the layout; their windows stay where they are while its colors change. @type {Grid[]} */
  let grids = [];
  /** The marks of the layout, those that are like others in full. @type {Mark[]} */
  let placed = [];
  /** The same, every grid as what it consists of. @type {Mark[]} */
  let marks = [];
  /** The element of every mark; those on the canvas have none. @type {(SVGElement | null)[]} */
  let drawn = [];
  /** @type {Painting | undefined} */
  let painting;
  /** @type {SVGElement} */
  let svg;
  /** Around the mark that is meant. @type {SVGElement | undefined} */
  let ring;
  /** The row and the column where the reader went, in every layout. @type {number[] | undefined} */
  let visited;

  const theme = () => options.theme ?? (dark.matches ? "dark" : "light");

  /** The widest layout that fits, else the narrowest. */
  const fitting = () => layouts.find((one) => one.width <= (host.clientWidth || layouts[0].width) + 1) ?? layouts[layouts.length - 1];

  /** Take the layout that fits now. */
  function choose() {
    layout = fitting();
    placed = layout.marks.map((mark) => ("like" in mark ? { ...layouts[0].marks[mark.like], ...mark } : mark));
    grids = placed.filter((mark) => mark.mark === "grid").map((mark) => new Grid(mark, matrixOf(view, mark.of)));
    if (visited) go(visited);
    redraw();
  }

  /** Move all windows: drawings beside each other show the same part. @param {number[]} place */
  function go([row, column]) {
    visited = [row, column];
    for (const grid of grids) if (grid.mark.overview) grid.move(row, column);
  }

  function redraw() {
    if (!layout) return;
    const palette = layout.palettes[theme()];
    for (const name of ["paper", "ink", "soft", "line", "mark"]) frame.style.setProperty(`--${name}`, palette[name]);
    const played = grids.map((grid) => grid.marks());
    const cells = played.flat().filter((mark) => mark.mark === "rect" && mark.tip);
    marks = placed.flatMap((mark) => (mark.mark === "grid" ? played.shift() ?? [] : [mark]));
    painting = cells.length > CELLS ? new Painting(layout, cells, theme()) : undefined;
    const made = picture(layout, marks, theme(), view.sentence, painting && new Set(cells));
    const focused = svg !== undefined && document.activeElement === svg;
    ({ svg, drawn } = made);
    svg.setAttribute("tabindex", "0");
    svg.setAttribute("aria-describedby", help.id);
    drawn.forEach((one, at) => {
      if (one && marks[at].tip) one.dataset.at = String(at);
    });
    svg.addEventListener("pointermove", (event) => pinned < 0 && point(at(event)));
    svg.addEventListener("pointerleave", () => pinned < 0 && point(-1));
    svg.addEventListener("click", (event) => pin(at(event)));
    svg.addEventListener("keydown", key);
    scroll.replaceChildren(...(painting ? [painting.canvas, svg] : [svg]));
    painting?.paint(svg);
    pinned = current = -1;
    tip.hidden = true;
    if (focused) svg.focus();
  }

  /** Which mark an event meets. @param {MouseEvent} event */
  function at(event) {
    const named = /** @type {SVGElement} */ (event.target).dataset?.at, cell = named === undefined ? painting?.at(svg, event) : undefined;
    return cell ? marks.indexOf(cell) : Number(named ?? -1);
  }

  /** Show the description of a mark, and the marks that belong to it. @param {number} mark */
  function point(mark) {
    if (mark === current) return;
    current = mark;
    tip.hidden = mark < 0;
    if (drawn.length <= MANY) {
      const keys = new Set(mark < 0 ? [] : marks[mark].keys ?? []);
      const kin = marks.map((one) => (one.keys ?? []).some((/** @type {string} */ one) => keys.has(one)));
      const fade = !keys.has("overview") && kin.filter(Boolean).length > 1;
      drawn.forEach((one, n) => {
        const faint = fade && marks[n].keys && !kin[n];
        if (faint) one?.setAttribute("opacity", "0.3");
        else one?.removeAttribute("opacity");
      });
      painting?.show(fade ? (cell) => cell.keys.some((/** @type {string} */ one) => keys.has(one)) : undefined);
    }
    ring?.remove();
    if (mark < 0) return;
    if (marks[mark].mark === "rect") {
      const { x, y, w, h } = marks[mark];
      ring = shape("rect", { x, y, width: w, height: h, fill: "none", stroke: "var(--mark)", "stroke-width": 2, "pointer-events": "none" });
      svg.append(ring);
    }
    tip.textContent = spoken.textContent = marks[mark].tip;
    moveTip();
  }

  /** Beside the mark that is meant, wherever it has been scrolled to. */
  function moveTip() {
    if (current < 0) return;
    const [x, y] = middle(marks[current]);
    const left = x - scroll.scrollLeft, top = y - scroll.scrollTop;
    tip.style.left = `${Math.max(0, Math.min(left + 10, frame.clientWidth - tip.offsetWidth - 4))}px`;
    tip.style.top = `${top + 14}px`;
  }
  scroll.addEventListener("scroll", moveTip);

  /** Pin the description of a mark; on the overview, go there. @param {number} mark */
  function pin(mark) {
    const where = mark < 0 ? null : (marks[mark].keys ?? []).join(" ").match(/^overview w(\d+)\.(\d+)$/);
    if (where) {
      go([Number(where[1]), Number(where[2])]);
      redraw();
      return;
    }
    pinned = mark === pinned ? -1 : mark;
    current = -2;
    point(mark);
    frame.dataset.pinned = String(pinned >= 0);
    if (pinned >= 0) options.chosen?.(marks[mark].keys ?? []);
  }

  /** The nearest mark with a description, in a direction. @param {number} dx @param {number} dy */
  function step(dx, dy) {
    const tipped = marks.map((mark, n) => ({ mark, n })).filter(({ mark }) => mark.tip);
    if (current < 0) return tipped.length ? tipped[0].n : -1;
    const [x, y] = middle(marks[current]);
    let best = current, cost = Infinity;
    for (const { mark, n } of tipped) {
      const [mx, my] = middle(mark), along = (mx - x) * dx + (my - y) * dy, aside = Math.abs((mx - x) * dy) + Math.abs((my - y) * dx);
      if (n !== current && along > 0.5 && along + 4 * aside < cost) [best, cost] = [n, along + 4 * aside];
    }
    return best;
  }

  /** @param {KeyboardEvent} event */
  function key(event) {
    const moves = /** @type {Record<string, number[]>} */ ({ ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] });
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (moves[event.key]) {
      pinned = -1;
      frame.dataset.pinned = "false";
      point(step(moves[event.key][0], moves[event.key][1]));
      if (current >= 0) (drawn[current] ?? ring)?.scrollIntoView({ block: "nearest", inline: "nearest" });
      moveTip();
      tip.scrollIntoView({ block: "nearest", inline: "nearest" });
    } else if (event.key === "Enter" || event.key === " ") pin(current);
    else if (event.key === "Escape") {
      pinned = -1;
      current = -2;
      point(-1);
      frame.dataset.pinned = "false";
    } else if (event.key === "t") twin.open = !twin.open;
    else if (event.key === "s") saveSvg();
    else return;
    event.preventDefault();
  }

  function plainSvg() {
    const { svg: copy } = picture(layout ?? fitting(), marks, theme(), view.sentence);
    return new XMLSerializer().serializeToString(copy);
  }

  const name = (view.title || view.kind).replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60) || "view";
  const saveSvg = () => download(`${name}.svg`, new Blob([plainSvg()], { type: "image/svg+xml" }));
  function savePng() {
    const image = new Image(), canvas = document.createElement("canvas");
    image.onload = () => {
      [canvas.width, canvas.height] = [image.width * 2, image.height * 2];
      const context = canvas.getContext("2d");
      if (!context) return;
      context.scale(2, 2);
      context.drawImage(image, 0, 0);
      canvas.toBlob((blob) => blob && download(`${name}.png`, blob));
    };
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(plainSvg())}`;
  }
  const saveCsv = () => download(`${name}.csv`, new Blob([[view.table.columns, ...view.table.rows].map((row) => row.map(field).join(",") + "\n").join("")], { type: "text/csv" }));
  const saveJson = () => download(`${name}.json`, new Blob([JSON.stringify(view)], { type: "application/json" }));
  const buttons = { SVG: saveSvg, PNG: savePng, CSV: saveCsv, JSON: saveJson };
  bar.append("Save as");
  for (const [label, action] of Object.entries(buttons)) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.addEventListener("click", action);
    bar.append(button);
  }

  const summary = document.createElement("summary");
  summary.textContent = "Table";
  summary.style.padding = "2px 12px";
  twin.append(summary);
  twin.addEventListener("toggle", () => twin.open && twin.children.length === 1 && twin.append(table(view)));

  const watcher = new ResizeObserver(() => (fitting() !== layout ? choose() : painting?.sharpen(svg)));
  watcher.observe(host);
  dark.addEventListener("change", redraw);
  choose();
  return () => {
    watcher.disconnect();
    dark.removeEventListener("change", redraw);
    host.replaceChildren();
  };
}

/** The numbers, for those who would rather read them. @param {Spec} view */
function table(view) {
  const made = document.createElement("table"), { columns, rows } = view.table;
  made.createCaption().textContent = rows.length > ROWS ? `${view.sentence} (the first ${ROWS} of ${rows.length} rows)` : view.sentence;
  const head = made.createTHead().insertRow();
  for (const column of columns) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = column;
    head.append(cell);
  }
  const body = made.createTBody();
  for (const row of rows.slice(0, ROWS)) {
    const line = body.insertRow();
    for (const value of row) line.insertCell().textContent = value === null ? "–" : typeof value === "number" ? number(value) : String(value);
  }
  return made;
}

/** As a widget in a notebook. */
export default {
  /** @param {{model: any, el: HTMLElement}} widget */
  render({ model, el }) {
    let end = draw(el, model.get("drawing"));
    model.on("change:drawing", () => {
      end();
      end = draw(el, model.get("drawing"));
    });
    return () => end();
  },
};
