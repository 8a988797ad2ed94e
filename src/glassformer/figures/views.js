// @ts-check
/**
 * Draws views live: the same marks as Python draws, and what a still picture cannot do: hover, pin, keys, a table.
 *
 * The first half lays a view out; its functions have their twins in layout.py, strips.py, curves.py and grids.py, and a
 * test holds both to the same marks. The second half puts the marks on a page. No dependency, no build step, no network.
 *
 * @typedef {Record<string, any>} Spec   a view; docs/views.md says what is in it
 * @typedef {Record<string, any>} Mark
 * @typedef {(number | null)[][]} Rows
 */

const THEMES = {
  light: { paper: "#ffffff", ink: "#1a1a1a", soft: "#595959", line: "#d0d0d0", hatch: "#6b6b6b", mark: "#b84a00" },
  dark: { paper: "#14171a", ink: "#ececec", soft: "#a9b0b6", line: "#3c4248", hatch: "#8d949b", mark: "#e69f00" },
};
const SERIES = {
  light: ["#0072b2", "#b84a00", "#8e3e73", "#007a5a", "#8a5a00", "#2a75a5", "#595959", "#a14a86"],
  dark: ["#56b4e9", "#e69f00", "#cc79a7", "#2fc79a", "#f0e442", "#8fb8ff", "#bbbbbb", "#ff9e5e"],
};
/** @type {Record<string, string>} */
const HUES = { q: "#cc79a7", k: "#e69f00", v: "#56b4e9" };
const ROOM = 960, MARGIN = 12, TITLE = 13, TEXT = 11, SMALL = 10, EM = 0.61, LABEL = 18, DETAIL = 40, MOST = 96;

/** @typedef {"light" | "dark"} Theme */

// Labels and numbers

const WIDE = [
  [0x1100, 0x115f], [0x2e80, 0x303e], [0x3041, 0xa4cf], [0xac00, 0xd7a3], [0xf900, 0xfaff], [0xfe30, 0xfe6f],
  [0xff00, 0xff60], [0xffe0, 0xffe6], [0x1f300, 0x1faff], [0x20000, 0x3fffd],
];

/** @param {string} char */
function charWidth(char) {
  if (/[\p{Mn}\p{Me}]/u.test(char)) return 0;
  const code = char.codePointAt(0) ?? 0;
  return WIDE.some(([low, high]) => low <= code && code <= high) ? 2 : 1;
}

/** @param {string} text */
const cells = (text) => [...text].reduce((sum, char) => sum + charWidth(char), 0);

/** @param {string} text @param {number} room */
function cut(text, room) {
  if (cells(text) <= room) return text;
  let taken = 0, shown = "";
  for (const char of text) {
    taken += charWidth(char);
    if (taken >= room) break;
    shown += char;
  }
  return shown + "…";
}

/** @param {string} text @param {number} room */
function wrap(text, room) {
  const lines = [""];
  for (const whole of text.split(/\s+/).filter(Boolean)) {
    const word = cut(whole, room), last = lines[lines.length - 1];
    if (last && cells(last) + 1 + cells(word) > room) lines.push(word);
    else lines[lines.length - 1] = last ? `${last} ${word}` : word;
  }
  return lines;
}

/** @param {string} digits */
const thousands = (digits) => digits.replace(/\B(?=(\d{3})+(?!\d))/g, ",");

/** @param {number} value */
function number(value) {
  const size = Math.abs(value), sign = value < 0 ? "−" : "";
  if (0 < size && size < 0.0005) {
    const power = Math.floor(Math.log10(size));
    return `${sign}${Math.floor(size * ten(-power) + 0.5)}e−${-power}`;
  }
  if (size >= 1e15) return size === Infinity ? `${sign}∞` : `${sign}1e${Math.floor(Math.log10(size))}`;
  const decimals = size >= 100 || Number.isInteger(value) ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  const power = 10 ** decimals;
  const rounded = Math.floor(size * power + 0.5) / power;
  const [whole, part] = rounded.toFixed(decimals).split(".");
  return (rounded ? sign : "") + thousands(whole) + (part ? `.${part}` : "");
}

/** @param {number} value */
function percent(value) {
  const tenths = Math.floor(Math.abs(value) * 1000 + 0.5);
  if (!tenths && value) return number(value * 100) + " %";
  const whole = thousands(String(Math.floor(tenths / 10)));
  return (value < 0 ? "−" : "") + whole + (tenths % 10 ? `.${tenths % 10}` : "") + " %";
}

/** @param {number} power */
const ten = (power) => (power >= 0 ? 10 ** power : 1 / 10 ** -power);

/** @param {number} value @param {number} step */
function tick(value, step) {
  const fits = (/** @type {number} */ n) => step * ten(n) > 0.5 && Math.abs(step * ten(n) - Math.floor(step * ten(n) + 0.5)) < 1e-6;
  const decimals = range(0, 15).find(fits) ?? 0;
  const rounded = Math.floor(Math.abs(value) * ten(decimals) + 0.5) / ten(decimals);
  const [whole, part] = rounded.toFixed(decimals).split(".");
  return (value < 0 && rounded ? "−" : "") + thousands(whole) + (part ? `.${part}` : "");
}

/** @param {number} value @param {string | undefined} unit */
const written = (value, unit) => (unit === "percent" ? percent(value) : number(value));

/** @param {string} text @param {number} size */
const widthOf = (text, size) => cells(text) * size * EM;

/** @param {number[]} values @param {number} [otherwise] */
const max = (values, otherwise = 0) => (values.length ? values.reduce((a, b) => (b > a ? b : a)) : otherwise);
/** @param {number[]} values @param {number} [otherwise] */
const min = (values, otherwise = 0) => (values.length ? values.reduce((a, b) => (b < a ? b : a)) : otherwise);
/** @param {number} start @param {number} stop @param {number} [step] */
function range(start, stop, step = 1) {
  const found = [];
  for (let at = start; at < stop; at += step) found.push(at);
  return found;
}

// Colors

/** @param {string} stop */
const parts = (stop) => [1, 3, 5].map((n) => parseInt(stop.slice(n, n + 2), 16));

/** @param {Spec} scale @param {number} value @param {Theme} theme */
function colorAt(scale, value, theme) {
  const stops = scale.stops[theme];
  const share = (value - scale.low) / (scale.high - scale.low);
  const place = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const left = Math.min(Math.floor(place), stops.length - 2);
  const [from, to] = [parts(stops[left]), parts(stops[left + 1])];
  const mixed = from.map((a, n) => Math.floor(a + (to[n] - a) * (place - left) + 0.5));
  return "#" + mixed.map((part) => part.toString(16).padStart(2, "0")).join("");
}

/** @param {string} fill */
function inkOn(fill) {
  const [red, green, blue] = parts(fill).map((part) => part / 255).map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000000" : "#ffffff";
}

// A sheet of marks

class Sheet {
  /** @param {Theme} theme */
  constructor(theme) {
    this.theme = theme;
    this.width = 0;
    this.height = 0;
    /** @type {Mark[]} */
    this.marks = [];
  }
  /** @param {keyof typeof THEMES.light} name */
  color(name) {
    return THEMES[this.theme][name];
  }
  /** @param {number} x @param {number} y */
  reach(x, y) {
    this.width = Math.max(this.width, x);
    this.height = Math.max(this.height, y);
  }
  /** @param {number} x @param {number} y @param {number} w @param {number} h @param {string} fill @param {Mark} [more] */
  rect(x, y, w, h, fill, more = {}) {
    this.marks.push({ mark: "rect", x, y, w, h, fill, ...more });
    this.reach(x + w, y + h);
  }
  /** @param {number} x @param {number} y @param {string} text @param {Mark} [more] */
  text(x, y, text, more = {}) {
    /** @type {Mark} */
    const mark = { mark: "text", x, y, text, size: 11, anchor: "start", fill: this.color("ink"), ...more };
    this.marks.push(mark);
    const long = widthOf(text, mark.size);
    if (!mark.turn) this.reach(x + { start: long, middle: long / 2, end: 0 }[/** @type {"start"} */ (mark.anchor)], y + mark.size * 0.25);
  }
  /** @param {number[][]} points @param {string} stroke @param {Mark} [more] */
  line(points, stroke, more = {}) {
    this.marks.push({ mark: "line", points, stroke, ...more });
    for (const [x, y] of points) this.reach(x, y);
  }
  /** @param {number[]} start @param {number[]} end @param {number} lift @param {string} stroke @param {Mark} more */
  arc(start, end, lift, stroke, more) {
    this.marks.push({ mark: "arc", points: [start, end], lift, stroke, ...more });
  }
  /** @param {Sheet} other @param {number} x @param {number} y */
  add(other, x, y) {
    for (const mark of other.marks) {
      const moved = mark.points
        ? { ...mark, points: mark.points.map((/** @type {number[]} */ [px, py]) => [px + x, py + y]) }
        : { ...mark, x: mark.x + x, y: mark.y + y };
      this.marks.push(moved);
    }
    this.reach(x + other.width, y + other.height);
  }
}

// The layout

/** The whole picture: title, drawing, legend, caption. @param {Spec} view @param {number} [room] @param {Theme} [theme] */
export function figure(view, room = ROOM, theme = "light") {
  const page = new Sheet(theme);
  const body = part(view, room - 2 * MARGIN, theme);
  const width = Math.max(body.width, Math.min(300, room - 2 * MARGIN));
  page.add(body, MARGIN, MARGIN);
  let y = MARGIN + body.height + 8;
  for (const line of wrap(view.caption, Math.floor(width / widthOf("x", SMALL)))) {
    y += SMALL + 4;
    page.text(MARGIN, y, line, { size: SMALL, fill: page.color("soft") });
  }
  page.width = width + 2 * MARGIN;
  page.height = y + MARGIN;
  return page;
}

/** @param {Spec} view @param {number} room @param {Theme} theme */
function part(view, room, theme) {
  const body = KINDS[view.kind](view, room, theme);
  const sheet = new Sheet(theme), title = view.title ?? "", size = view.small ? SMALL : TITLE;
  let y = 0;
  const wide = Math.min(room, Math.max(body.width, view.small ? 90 : 300));
  for (const line of title ? wrap(title, Math.floor(wide / widthOf("x", size))) : []) {
    y += size + 3;
    sheet.text(0, y, line, { size, bold: true });
  }
  y += !title ? 0 : view.small ? 4 : 8;
  sheet.add(body, 0, y);
  if (view.scale && (view.legend ?? true)) legend(sheet, view.scale, view.unit, sheet.height + 10, room);
  return sheet;
}

/** @param {Sheet} sheet @param {Spec} scale @param {string | undefined} unit @param {number} y @param {number} room */
function legend(sheet, scale, unit, y, room) {
  const low = written(scale.low, unit), high = written(scale.high, unit), x = widthOf(low, SMALL) + 4;
  sheet.text(0, y + 9, low, { size: SMALL, fill: sheet.color("soft") });
  for (const n of range(0, 24)) {
    sheet.rect(x + n * 4, y, 4, 10, colorAt(scale, scale.low + ((scale.high - scale.low) * n) / 23, sheet.theme));
  }
  sheet.rect(x, y, 96, 10, "none", { stroke: sheet.color("line") });
  const told = `${high}  ${scale.name}`, soft = { size: SMALL, fill: sheet.color("soft") };
  if (x + 100 + widthOf(told, SMALL) <= room) {
    sheet.text(x + 100, y + 9, told, soft);
    return;
  }
  sheet.text(x + 100, y + 9, high, soft);
  wrap(scale.name, Math.floor(room / widthOf("x", SMALL))).forEach((line, n) => sheet.text(0, y + 23 + n * 13, line, soft));
}

/** @param {any} given @returns {Rows} */
function numbers(given) {
  if (Array.isArray(given)) return given;
  const bytes = Uint8Array.from(atob(given.half ?? given.single), (char) => char.charCodeAt(0)), [rows, columns] = given.shape;
  const values = given.half ? Array.from(new Uint16Array(bytes.buffer), half) : Array.from(new Float32Array(bytes.buffer), finite);
  return range(0, rows).map((r) => values.slice(r * columns, (r + 1) * columns));
}

/** @param {number} value */
const finite = (value) => (Number.isNaN(value) ? null : value);

/** A number of 16 bits. @param {number} bits */
function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 31) return null;
  return exponent ? sign * 2 ** (exponent - 15) * (1 + fraction / 1024) : sign * 2 ** -14 * (fraction / 1024);
}

/** @param {Spec} view @param {number} room @param {Theme} theme */
function tokens(view, room, theme) {
  const sheet = new Sheet(theme), size = 12, high = 22;
  let x = 0, y = 0;
  view.tokens.forEach((/** @type {string} */ token, /** @type {number} */ at) => {
    const value = view.values[at], shown = cut(token, Math.floor((room - 8) / widthOf("x", size)));
    const wide = widthOf(shown, size) + 6;
    if (x && x + wide > room) [x, y] = [0, y + high + 3];
    const fill = value === null ? "none" : colorAt(view.scale, value, theme);
    const tip = `${at} ${token}` + (value === null ? "" : `: ${written(value, view.unit)}`);
    const edge = value === null ? {} : { stroke: sheet.color("line") };
    sheet.rect(x, y, wide, high, fill, { ...edge, tip, keys: [`t${at}`] });
    sheet.text(x + 3, y + 15, shown, { size, mono: true, fill: fill === "none" ? sheet.color("soft") : inkOn(fill) });
    x += wide + 2;
    if (token.endsWith("⏎")) [x, y] = [0, y + high + 3];
  });
  return sheet;
}

/** @param {Spec} view @param {number} room @param {Theme} theme */
function bars(view, room, theme) {
  const sheet = new Sheet(theme), series = view.series;
  const labels = view.labels.map((/** @type {string} */ label) => cut(label, LABEL + 6));
  const every = [0, ...series.flatMap((/** @type {Spec} */ one) => one.values).filter((/** @type {any} */ value) => value !== null)];
  const low = min(every), high = max(every);
  const left = max(labels.map((/** @type {string} */ label) => widthOf(label, TEXT))) + 8;
  const long = Math.max(60, Math.min(room - left - 64, 320)), unit = long / (high - low || 1), zero = left + -low * unit;
  const thick = series.length === 1 ? 14 : 10, deep = series.length * thick + 5;
  let y = 0;
  if (series.length > 1) {
    let x = left;
    series.forEach((/** @type {Spec} */ one, /** @type {number} */ n) => {
      sheet.rect(x, 1, 10, 10, SERIES[theme][n]);
      sheet.text(x + 14, 10, one.name, { size: SMALL, fill: sheet.color("soft") });
      x += widthOf(one.name, SMALL) + 28;
    });
    y = 18;
  }
  const after = view.cut?.after ?? labels.length;
  labels.forEach((/** @type {string} */ label, /** @type {number} */ at) => {
    const faint = at >= after;
    if (at === after) {
      sheet.line([[0, y + 2], [left + long + 60, y + 2]], sheet.color("mark"), { dash: true });
      sheet.text(left, y + 13, view.cut.label, { size: SMALL, fill: sheet.color("mark") });
      y += 16;
    }
    const ink = sheet.color(faint ? "soft" : "ink");
    sheet.text(left - 6, y + deep / 2 + 2, label, { anchor: "end", mono: true, fill: ink });
    series.forEach((/** @type {Spec} */ one, /** @type {number} */ n) => {
      const value = one.values[at];
      if (value === null) return;
      const fill = faint ? sheet.color("line") : SERIES[theme][n];
      const tip = `${view.labels[at]}: ${written(value, view.unit)}` + (series.length > 1 ? ` ${one.name}` : "");
      const [x, w] = value >= 0 ? [zero, value * unit] : [zero + value * unit, -value * unit];
      const top = y + 2 + n * thick;
      sheet.rect(x, top, w, thick - 1, fill, { tip, keys: [`t${at}`] });
      const end = value >= 0 ? zero + value * unit + 4 : zero + 4;
      sheet.text(end, top + thick - 3, written(value, view.unit), { size: SMALL, fill: ink });
    });
    y += deep;
  });
  if (low < 0) sheet.line([[zero, 0], [zero, y]], sheet.color("ink"));
  sheet.reach(0, y);
  return sheet;
}

/** @param {Spec} view @param {number} room @param {Theme} theme */
function matrix(view, room, theme) {
  const values = numbers(view.values), { rows, columns } = view;
  const left = view.row_labels ?? true ? max(rows.map((/** @type {string} */ label) => widthOf(cut(label, LABEL), TEXT))) + 6 : 0;
  const cell = cellSize(view, room - left), fits = Math.floor((room - left) / cell[0] + 1e-6);
  if (columns.length <= fits && rows.length <= MOST) {
    return grid(view, values, range(0, rows.length), range(0, columns.length), left, cell, theme);
  }
  const [top, first] = view.window ?? [rows.length, columns.length];
  const down = span(top, Math.min(rows.length, DETAIL), rows.length);
  const across = span(first, Math.min(fits, DETAIL), columns.length);
  const sheet = new Sheet(theme);
  overview(sheet, view, values, down, across, Math.min(room, 420));
  sheet.add(grid(view, values, down, across, left, cell, theme), 0, sheet.height + 14);
  return sheet;
}

/** @param {number} start @param {number} count @param {number} size */
function span(start, count, size) {
  const first = Math.max(0, Math.min(start, size - count));
  return range(first, Math.min(size, first + count));
}

/** @param {Spec} view @param {number} room */
function cellSize(view, room) {
  if (view.cell) return [Math.min(view.cell[0], room / Math.max(1, view.columns.length)), view.cell[1]];
  const each = Math.floor(room / Math.max(1, view.columns.length));
  if (view.texts) {
    const longest = max(view.texts.flat().map(cells), 1);
    const wanted = Math.max(24, widthOf("x".repeat(Math.min(longest, 12)), SMALL) + 6);
    return [Math.min(wanted, Math.max(34, each)), 18];
  }
  const side = Math.min(24, Math.max(13, each));
  return [side, side];
}

/**
 * @param {Spec} view @param {Rows} values @param {number[]} down @param {number[]} across
 * @param {number} left @param {number[]} cell @param {Theme} theme
 */
function grid(view, values, down, across, left, [wide, high], theme) {
  const sheet = new Sheet(theme), { texts, scales } = view, empty = view.void ?? "−∞";
  let head = view.column_labels ?? true ? columnsAbove(sheet, view, across, left, wide) : 0;
  if (view.banner) {
    const [hue, told] = view.banner;
    head = TEXT + 6;
    sheet.rect(left, 0, wide * across.length, head - 2, HUES[hue]);
    sheet.text(left + (wide * across.length) / 2, head - 5, told, { anchor: "middle", mono: true, fill: "#000000" });
  }
  down.forEach((r, n) => {
    const y = head + n * high;
    if (left) sheet.text(left - 6, y + high / 2 + 4, cut(view.rows[r], LABEL), { anchor: "end", mono: true, keys: [`r${r}`] });
    across.forEach((c, m) => {
      const value = values[r][c], x = left + m * wide, keys = [`r${r}`, `c${c}`], where = `${view.rows[r]} · ${view.columns[c]}: `;
      if (value === null) {
        if (!view.small) sheet.rect(x, y, wide, high, sheet.color("paper"), { hatch: true, tip: where + empty, keys });
        if (wide >= 20 && high >= 12) {
          sheet.text(x + wide / 2, y + high / 2 + 4, empty, { size: SMALL, anchor: "middle", fill: sheet.color("hatch"), keys });
        }
        return;
      }
      const text = texts ? texts[r][c] : "", fill = colorAt(scales ? scales[c] : view.scale, value, theme);
      const told = written(value, view.unit), tip = where + (view.numeric ? text : text ? `“${text}” ${told}` : told);
      const edge = wide >= 8 && high >= 8 ? { stroke: sheet.color("line") } : {};
      sheet.rect(x, y, wide, high, fill, { ...edge, tip, keys });
      if (text) {
        const shown = cut(text, Math.floor((wide - 2) / widthOf("x", SMALL)));
        sheet.text(x + wide / 2, y + high / 2 + 3.5, shown, { size: SMALL, anchor: "middle", mono: true, fill: inkOn(fill), keys });
      }
    });
  });
  for (const [r, c] of view.outlined ?? []) {
    if (down.includes(r) && across.includes(c)) {
      sheet.rect(left + (c - across[0]) * wide, head + (r - down[0]) * high, wide, high, "none", { stroke: sheet.color("mark") });
    }
  }
  return sheet;
}

/** @param {Sheet} sheet @param {Spec} view @param {number[]} across @param {number} left @param {number} wide */
function columnsAbove(sheet, view, across, left, wide) {
  const labels = across.map((c) => cut(view.columns[c], LABEL)), longest = max(labels.map((label) => widthOf(label, TEXT)));
  const flat = longest + 4 <= wide, head = flat ? TEXT + 6 : longest + 6;
  across.forEach((c, m) => {
    const middle = left + m * wide + wide / 2, hue = view.column_hues?.[c];
    if (hue) sheet.rect(left + m * wide, 0, wide, head - 2, HUES[hue]);
    const look = { mono: true, keys: [`c${c}`], fill: hue ? "#000000" : sheet.color("ink") };
    if (flat) sheet.text(middle, head - 5, labels[m], { anchor: "middle", ...look });
    else sheet.text(middle + 4, head - 3, labels[m], { turn: true, ...look });
  });
  sheet.reach(left, head);
  return head;
}

/** @param {Sheet} sheet @param {Spec} view @param {Rows} values @param {number[]} down @param {number[]} across @param {number} given */
function overview(sheet, view, values, down, across, given) {
  const rows = values.length, columns = values[0].length, most = Math.min(Math.floor(given / 4), 128);
  const by = [Math.max(1, Math.ceil(rows / most)), view.scales ? 1 : Math.max(1, Math.ceil(columns / most))];
  const wide = Math.min(12, given / Math.ceil(columns / by[1]));
  const high = rows < columns / 4 ? Math.max(wide, Math.min(12, 4 * wide)) : rows <= 4 * columns ? wide : Math.max(3, wide / 4);
  const room = wide * Math.ceil(columns / by[1]);
  for (const r of range(0, rows, by[0])) {
    for (const c of range(0, columns, by[1])) {
      /** @type {number | null} */
      let strongest = null;
      for (const row of values.slice(r, r + by[0])) {
        for (const value of row.slice(c, c + by[1])) {
          if (value !== null && (strongest === null || Math.abs(value) > Math.abs(strongest))) strongest = value;
        }
      }
      const keys = ["overview", `w${r}.${c}`], at = [(c / by[1]) * wide, (r / by[0]) * high];
      if (strongest === null) {
        sheet.rect(at[0], at[1], wide, high, sheet.color("paper"), { hatch: true, tip: view.void ?? "−∞", keys });
        continue;
      }
      const tip = `${r}–${Math.min(rows, r + by[0]) - 1} · ${c}–${Math.min(columns, c + by[1]) - 1}: ${written(strongest, view.unit)}`;
      const fill = colorAt(view.scales ? view.scales[c] : view.scale, strongest, sheet.theme);
      sheet.rect(at[0], at[1], wide, high, fill, { tip, keys });
    }
  }
  const tall = Math.ceil(rows / by[0]) * high, [top, first] = [down[0], across[0]];
  sheet.rect(0, 0, room, tall, "none", { stroke: sheet.color("line") });
  const frame = { stroke: sheet.color("mark") };
  sheet.rect((first / by[1]) * wide, (top / by[0]) * high, (across.length / by[1]) * wide, (down.length / by[0]) * high, "none", frame);
  const pooled = by[0] > 1 || by[1] > 1 ? `, the strongest of every ${by[0]} × ${by[1]}` : "";
  const told = `all ${rows} × ${columns}${pooled}; below: rows ${top}–${top + down.length - 1}, `;
  wrap(told + `columns ${first}–${first + across.length - 1}`, Math.floor(given / widthOf("x", SMALL))).forEach((line, n) => {
    sheet.text(0, tall + 14 + n * 13, line, { size: SMALL, fill: sheet.color("soft") });
  });
}

/** @param {Spec} view @param {number} room @param {Theme} theme */
function arcs(view, room, theme) {
  const sheet = new Sheet(theme), size = 12;
  const labels = view.tokens.map((/** @type {string} */ token) => cut(token, LABEL));
  /** @type {number[]} */
  const widths = labels.map((/** @type {string} */ label) => widthOf(label, size) + 6);
  const starts = widths.map((_, n) => widths.slice(0, n).reduce((a, b) => a + b, 0) + 4 * n);
  const flat = widths.reduce((a, b) => a + b, 0) + 4 * widths.length <= room, left = max(widths);
  /** @type {number[][]} */
  const edges = [...view.edges].sort((a, b) => a[2] - b[2]);
  const far = max(edges.map(([a, b]) => Math.abs(a - b)));
  const lifts = edges.map(([a, b]) => {
    if (a === b) return 16;
    const long = flat ? Math.abs(starts[a] + widths[a] / 2 - starts[b] - widths[b] / 2) : Math.abs(a - b) * 19;
    return Math.min(flat ? 200 : Math.min(200, room - left - 4), 14 + long * 0.5);
  });
  const base = flat && far ? max(lifts) * 0.76 + 8 : 0;
  edges.forEach(([source, target, weight], n) => {
    const tip = `${view.tokens[source]} → ${view.tokens[target]}: ${written(weight, view.unit)}`;
    const look = { width: 0.6 + 4 * Math.min(1, weight / view.scale.high), tip, keys: [`t${source}`, `t${target}`], right: !flat };
    const ends = [source, target].map((at) => (flat ? [starts[at] + widths[at] / 2, base] : [left + 2, at * 19 + 9]));
    if (source === target) {
      ends[0][flat ? 0 : 1] -= 5;
      ends[1][flat ? 0 : 1] += 5;
    }
    sheet.arc(ends[0], ends[1], lifts[n], colorAt(view.scale, weight, theme), look);
    sheet.reach(flat ? 0 : left + 2 + lifts[n], 0);
  });
  labels.forEach((/** @type {string} */ label, /** @type {number} */ at) => {
    const [x, y] = flat ? [starts[at], base] : [left - widths[at], at * 19];
    sheet.rect(x, y, widths[at], 18, sheet.color("paper"), { stroke: sheet.color("line"), tip: view.tokens[at], keys: [`t${at}`] });
    sheet.text(x + 3, y + 13, label, { size, mono: true });
  });
  return sheet;
}

/** @param {number} low @param {number} high @param {number} [count] @returns {[number[], number]} */
function ticks(low, high, count = 5) {
  const rough = (high - low) / count, base = ten(rough > 0 ? Math.floor(Math.log10(rough)) : 0);
  const step = [1, 2, 5, 10].map((n) => base * n).find((size) => size >= rough * 0.999) ?? base;
  return [range(Math.ceil(low / step - 1e-9), Math.floor(high / step + 1e-9) + 1).map((n) => n * step), step];
}

/** @param {Spec} view @param {number} room @param {Theme} theme */
function lines(view, room, theme) {
  const sheet = new Sheet(theme), { series, x: xs } = view, palette = SERIES[theme];
  const named = xs.every((/** @type {any} */ x) => typeof x === "string");
  /** @type {number[]} */
  const places = named ? range(0, xs.length) : xs;
  const ys = series.flatMap((/** @type {Spec} */ one) => one.values).filter((/** @type {any} */ y) => y !== null);
  const low = view.low ?? min(ys, 0), high = view.high ?? max(ys, 1);
  /** @param {number} value */
  const scaled = (value) => (view.log ? Math.log10(Math.max(value, 1e-12)) : value);
  let bottom = scaled(low), top = scaled(high);
  if (top - bottom < 1e-9) [bottom, top] = [bottom - 0.5, top + 0.5];
  const names = series.length > 1 ? max(series.map((/** @type {Spec} */ one) => widthOf(cut(one.name, LABEL), SMALL))) : 0;
  const left = 44, tall = view.height ?? 220, wide = Math.max(80, Math.min(room, view.width ?? 640) - left - names - 14);
  const first = min(places, 0), last = max(places, 1);
  /** @param {number} x @param {number} value */
  const place = (x, value) => {
    const share = (Math.min(Math.max(scaled(value), bottom), top) - bottom) / (top - bottom);
    return [left + ((x - first) / (last - first || 1)) * wide, (view.down ? share : 1 - share) * tall + 6];
  };
  const soft = { size: SMALL, fill: sheet.color("soft") };
  const [marks, step] = view.log ? [range(Math.floor(bottom), Math.ceil(top) + 1).map(ten), 1] : ticks(bottom, top);
  for (const value of marks.filter((mark) => bottom - 1e-9 <= scaled(mark) && scaled(mark) <= top + 1e-9)) {
    const y = place(first, value)[1];
    sheet.line([[left, y], [left + wide, y]], sheet.color("line"));
    const told = view.unit === "percent" ? percent(value) : view.log ? number(value) : tick(value, step);
    sheet.text(left - 5, y + 4, told, { anchor: "end", ...soft });
  }
  let foot = tall + 8;
  if (named) {
    const skip = Math.max(1, Math.ceil((xs.length * 13) / wide)), shown = range(0, xs.length).filter((n) => n % skip === 0);
    for (const n of shown) {
      sheet.text(place(places[n], low)[0] + 4, foot, cut(xs[n], LABEL), { size: SMALL, mono: true, turn: true, anchor: "end" });
    }
    foot += max(shown.map((n) => widthOf(cut(xs[n], LABEL), SMALL))) + 4;
  } else {
    const [shown, step] = ticks(first, last, 6);
    for (const x of shown) sheet.text(place(x, low)[0], foot + 10, tick(x, step), { anchor: "middle", ...soft });
    foot += 14;
  }
  series.forEach((/** @type {Spec} */ one, /** @type {number} */ n) => {
    const stroke = palette[n % palette.length], there = places.map((_, at) => at).filter((at) => one.values[at] !== null);
    const dash = n % 2 ? { dash: true } : {};
    sheet.line(there.map((at) => place(places[at], one.values[at])), stroke, { width: 2, keys: [`s${n}`], ...dash });
    for (const at of there.length <= 64 ? there : []) {
      const [x, y] = place(places[at], one.values[at]);
      const tip = `${one.name}, ${named ? xs[at] : number(places[at])}: ${written(one.values[at], view.unit)}`;
      sheet.rect(x - 2.5, y - 2.5, 5, 5, stroke, { tip, keys: [`s${n}`, `x${places.indexOf(places[at])}`] });
    }
  });
  if (series.length > 1) {
    const ends = series.map((/** @type {Spec} */ one, /** @type {number} */ n) => {
      const there = one.values.filter((/** @type {any} */ value) => value !== null);
      return [place(last, there.length ? there[there.length - 1] : low)[1], n];
    });
    ends.sort((/** @type {number[]} */ a, /** @type {number[]} */ b) => a[0] - b[0] || a[1] - b[1]);
    let y = -Infinity;
    for (const [wanted, n] of ends) {
      y = Math.max(wanted, y + SMALL + 2);
      const look = { size: SMALL, fill: palette[n % palette.length], bold: true, keys: [`s${n}`] };
      sheet.text(left + wide + 8, y + 4, cut(series[n].name, LABEL), look);
    }
  }
  if (view.x_title) sheet.text(left + wide, foot + SMALL + 4, view.x_title, { anchor: "end", ...soft });
  if (view.y_title) sheet.text(left + wide, 2, view.y_title, { anchor: "end", ...soft });
  sheet.reach(left + wide + 8, foot + 4);
  return sheet;
}

/** @param {Spec} view @param {number} room @param {Theme} theme */
function sparks(view, room, theme) {
  const sheet = new Sheet(theme), { series, tokens: labels } = view, palette = SERIES[theme], high = 30;
  const left = max(series.map((/** @type {Spec} */ one) => widthOf(cut(one.name, LABEL), TEXT))) + 10;
  const step = Math.min(22, (room - left) / Math.max(1, labels.length));
  let y = 0;
  series.forEach((/** @type {Spec} */ one, /** @type {number} */ n) => {
    const stroke = palette[n % palette.length], keys = [`s${n}`];
    /** @type {number[]} */
    const there = range(0, one.values.length).filter((at) => one.values[at] !== null);
    const most = max(there.map((at) => one.values[at])) || 1;
    const points = there.map((at) => [left + (at + 0.5) * step, y + high - (one.values[at] / most) * (high - 4)]);
    const area = points.length ? [[points[0][0], y + high], ...points, [points[points.length - 1][0], y + high]] : [];
    sheet.text(left - 8, y + high - 8, cut(one.name, LABEL), { anchor: "end", fill: stroke, bold: true, keys });
    sheet.line(area, stroke, { fill: stroke, width: 1.2, keys });
    for (const at of there) {
      const tip = `${one.name}, ${at} ${labels[at]}: ${number(one.values[at])}`;
      sheet.rect(left + at * step, y, step, high, "none", { tip, keys: [`s${n}`, `t${at}`] });
    }
    y += high + 8;
  });
  const skip = Math.max(1, Math.ceil(13 / step)), shown = range(0, labels.length).filter((at) => at % skip === 0);
  for (const at of shown) {
    sheet.text(left + (at + 0.5) * step + 4, y, cut(labels[at], LABEL), { mono: true, turn: true, anchor: "end", keys: [`t${at}`] });
  }
  sheet.reach(left + step * labels.length, y + max(shown.map((at) => widthOf(cut(labels[at], LABEL), TEXT))) + 4);
  return sheet;
}

/** @param {Spec} view @param {number} room @param {Theme} theme */
function boxes(view, room, theme) {
  const sheet = new Sheet(theme), size = 12;
  const left = max(view.rows.map((/** @type {Spec} */ row) => widthOf(row.note, SMALL))) + 12;
  let y = 0;
  view.rows.forEach((/** @type {Spec} */ row, /** @type {number} */ n) => {
    sheet.text(left - 8, y + 14, row.note, { size: SMALL, anchor: "end", fill: sheet.color("soft") });
    let x = left;
    row.pieces.forEach((/** @type {string} */ piece, /** @type {number} */ at) => {
      const shown = cut(piece, Math.floor((room - left) / widthOf("x", size)) - 1), wide = widthOf(shown, size) + 8;
      if (x > left && x + wide > room) [x, y] = [left, y + 23];
      const fill = at === row.made ? HUES.v : "none";
      sheet.rect(x, y, wide, 20, fill, { stroke: sheet.color("line"), tip: piece, keys: [`r${n}`, `p${at}`] });
      sheet.text(x + 4, y + 14, shown, { size, mono: true, fill: fill === "none" ? sheet.color("ink") : "#000000" });
      x += wide + 3;
    });
    y += 26;
  });
  sheet.reach(0, y);
  return sheet;
}

/** @param {Spec} view @param {number} room @param {Theme} theme */
function panels(view, room, theme) {
  const sheet = new Sheet(theme), gap = view.gap ?? 18;
  const made = view.panels.map((/** @type {Spec} */ one) => part(one, Math.min(room, one.room ?? room), theme));
  /** @type {Sheet[][]} */
  let lines = [];
  /** @type {number[]} */
  let widths = [];
  for (let count = view.across ?? 1; count > 0; count--) {
    lines = range(0, made.length, count).map((at) => made.slice(at, at + count));
    widths = range(0, count).map((at) => max(lines.filter((line) => at < line.length).map((line) => line[at].width)));
    if (widths.reduce((a, b) => a + b, 0) + gap * (count - 1) <= room) break;
  }
  let y = 0;
  for (const line of lines) {
    let x = 0;
    line.forEach((one, at) => {
      sheet.add(one, x, y);
      x += widths[at] + gap;
    });
    y += max(line.map((one) => one.height)) + gap;
  }
  return sheet;
}

/** @type {Record<string, (view: Spec, room: number, theme: Theme) => Sheet>} */
const KINDS = { tokens, bars, matrix, arcs, lines, sparks, boxes, panels };

// On a page

const SVG = "http://www.w3.org/2000/svg";
const MONO = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', 'Noto Sans Mono', monospace";
const SANS = "Inter, 'Segoe UI', Roboto, Helvetica, Arial, 'DejaVu Sans', 'Noto Sans', sans-serif";
const ROWS = 2000; // of the table, at once
const MANY = 6000; // marks, of which those that are not meant no longer step back: it would take too long
const KEYS = "Arrow keys move, Enter pins, Escape clears, t shows the table, s saves the picture.";
const STYLE = `
.gf-view { margin: 0; position: relative; font: 13px/1.4 ${SANS}; color: var(--ink); background: var(--paper); }
.gf-view svg { display: block; max-width: none; } .gf-view .gf-scroll { overflow: auto; max-height: 85vh; }
.gf-view svg:focus-visible, .gf-view button:focus-visible, .gf-view summary:focus-visible { outline: 2px solid var(--mark); outline-offset: 1px; }
.gf-view .gf-tip { position: absolute; z-index: 2; pointer-events: none; max-width: 28em; padding: 2px 7px; border-radius: 3px;
  color: var(--paper); background: var(--ink); font: 12px/1.5 ${MONO}; white-space: pre-wrap; overflow-wrap: anywhere; }
.gf-view .gf-bar { display: flex; gap: 6px; padding: 4px 12px; flex-wrap: wrap; align-items: baseline; color: var(--soft); font-size: 12px; }
.gf-view button { font: inherit; color: var(--ink); background: none; border: 1px solid var(--line); border-radius: 3px; padding: 1px 8px; cursor: pointer; }
.gf-view table { border-collapse: collapse; margin: 6px 12px; font: 12px ${MONO}; } .gf-view caption { text-align: left; padding: 4px 0; }
.gf-view th, .gf-view td { border: 1px solid var(--line); padding: 1px 6px; text-align: left; white-space: pre; }
.gf-view .gf-hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }`;

/** @param {number} value */
const place = (value) => String(Math.round(value * 10) / 10);

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

/** @param {Mark} mark */
function element(mark) {
  if (mark.mark === "rect") {
    const made = shape("rect", { x: mark.x, y: mark.y, width: mark.w, height: mark.h, fill: mark.fill });
    if (mark.stroke) made.setAttribute("stroke", mark.stroke);
    if (mark.fill === "none") made.setAttribute("pointer-events", mark.tip ? "all" : "none");
    return made;
  }
  if (mark.mark === "text") {
    const look = { x: mark.x, y: mark.y, "font-size": mark.size, fill: mark.fill, "text-anchor": mark.anchor, "pointer-events": "none" };
    const made = shape("text", look, mark.text);
    if (mark.bold) made.setAttribute("font-weight", "600");
    if (mark.mono) made.setAttribute("font-family", MONO);
    if (mark.turn) made.setAttribute("transform", `rotate(-90 ${place(mark.x)} ${place(mark.y)})`);
    if (mark.mono && /[^ -~]/.test(mark.text)) {
      made.setAttribute("textLength", place(widthOf(mark.text, mark.size)));
      made.setAttribute("lengthAdjust", "spacingAndGlyphs");
    }
    return made;
  }
  const at = (/** @type {number[]} */ point) => point.map(place).join(" ");
  let path = mark.points.length ? `M${mark.points.map(at).join("L")}` : "";
  if (mark.mark === "arc") {
    const [start, end] = mark.points;
    const bow = mark.points.map((/** @type {number[]} */ [x, y]) => at(mark.right ? [x + mark.lift, y] : [x, y - mark.lift]));
    path = `M${at(start)}C${bow.join(" ")} ${at(end)}`;
  }
  const made = shape("path", { d: path, stroke: mark.stroke, "stroke-width": mark.width ?? 1, fill: mark.fill ?? "none" });
  if (mark.dash) made.setAttribute("stroke-dasharray", "5 3");
  if (mark.fill) made.setAttribute("fill-opacity", ".25");
  return made;
}

let count = 0;

/** @param {Sheet} sheet @param {string} sentence */
function picture(sheet, sentence) {
  const { width, height } = sheet, hatch = `hatch${++count}`;
  const svg = shape("svg", { width, height, viewBox: `0 0 ${place(width)} ${place(height)}`, role: "img", "aria-label": sentence, "font-family": SANS });
  svg.setAttribute("xmlns", SVG);
  const pattern = shape("pattern", { id: hatch, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
  pattern.append(shape("path", { d: "M0 0V5", stroke: sheet.color("hatch"), opacity: "0.55" }));
  const defs = shape("defs", {});
  defs.append(pattern);
  svg.append(defs, shape("rect", { width: "100%", height: "100%", fill: sheet.color("paper") }));
  const drawn = sheet.marks.map((mark) => {
    const made = element(mark);
    svg.append(made);
    if (mark.hatch) made.setAttribute("fill", `url(#${hatch})`);
    return made;
  });
  return { svg, drawn };
}

/** Where a mark is, in the middle. @param {Mark} mark */
function middle(mark) {
  if (!mark.points) return [mark.x + (mark.w ?? 0) / 2, mark.y + (mark.h ?? 0) / 2];
  const [[x1, y1], [x2, y2]] = mark.points;
  return mark.right ? [x1 + mark.lift * 0.75, (y1 + y2) / 2] : [(x1 + x2) / 2, y1 - mark.lift * 0.75];
}

/** @param {Spec} view @param {number[]} window */
function withWindow(view, window) {
  const changed = /** @type {Spec} */ ({ ...view });
  if (view.kind === "matrix") changed.window = window;
  if (view.panels) changed.panels = view.panels.map((/** @type {Spec} */ one) => withWindow(one, window));
  return changed;
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
 * @param {HTMLElement} host @param {Spec} view @param {{theme?: Theme}} [options] @returns {() => void} ends it
 */
export function draw(host, view, options = {}) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const frame = document.createElement("figure");
  frame.className = "gf-view";
  const style = document.createElement("style");
  style.textContent = STYLE;
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
  frame.append(style, scroll, tip, spoken, help, bar, twin);
  host.replaceChildren(frame);

  let shown = view, wide = 0, pinned = -1, current = -1;
  /** @type {Sheet} */
  let sheet;
  /** @type {SVGElement[]} */
  let drawn = [];
  /** @type {SVGElement} */
  let svg;
  /** Around the mark that is meant. @type {SVGElement | undefined} */
  let ring;

  const theme = () => options.theme ?? (dark.matches ? "dark" : "light");

  function redraw() {
    const look = theme();
    for (const [name, value] of Object.entries(THEMES[look])) frame.style.setProperty(`--${name}`, value);
    wide = Math.max(320, Math.min(1600, host.clientWidth || ROOM));
    sheet = figure(shown, wide, look);
    const made = picture(sheet, view.sentence);
    const focused = svg !== undefined && document.activeElement === svg;
    ({ svg, drawn } = made);
    svg.setAttribute("tabindex", "0");
    svg.setAttribute("aria-describedby", help.id);
    drawn.forEach((one, at) => {
      if (sheet.marks[at].tip) one.dataset.at = String(at);
    });
    svg.addEventListener("pointermove", (event) => pinned < 0 && point(at(event)));
    svg.addEventListener("pointerleave", () => pinned < 0 && point(-1));
    svg.addEventListener("click", (event) => pin(at(event)));
    svg.addEventListener("keydown", key);
    scroll.replaceChildren(svg);
    pinned = current = -1;
    tip.hidden = true;
    if (focused) svg.focus();
  }

  /** Which mark an event meets. @param {Event} event */
  const at = (event) => Number(/** @type {SVGElement} */ (event.target).dataset?.at ?? -1);

  /** Show what a mark says, and what belongs to it. @param {number} mark */
  function point(mark) {
    if (mark === current) return;
    current = mark;
    tip.hidden = mark < 0;
    if (drawn.length <= MANY) {
      const keys = new Set(mark < 0 ? [] : sheet.marks[mark].keys ?? []);
      const kin = sheet.marks.map((one) => (one.keys ?? []).some((/** @type {string} */ one) => keys.has(one)));
      const fade = !keys.has("overview") && kin.filter(Boolean).length > 1;
      drawn.forEach((one, n) => {
        const faint = fade && sheet.marks[n].keys && !kin[n];
        if (faint) one.setAttribute("opacity", "0.3");
        else one.removeAttribute("opacity");
      });
    }
    ring?.remove();
    if (mark < 0) return;
    if (sheet.marks[mark].mark === "rect") {
      const { x, y, w, h } = sheet.marks[mark];
      ring = shape("rect", { x, y, width: w, height: h, fill: "none", stroke: sheet.color("mark"), "stroke-width": 2, "pointer-events": "none" });
      svg.append(ring);
    }
    tip.textContent = spoken.textContent = sheet.marks[mark].tip;
    moveTip();
  }

  /** Beside the mark that is meant, wherever it has been scrolled to. */
  function moveTip() {
    if (current < 0) return;
    const [x, y] = middle(sheet.marks[current]);
    const left = x - scroll.scrollLeft, top = y - scroll.scrollTop;
    tip.style.left = `${Math.max(0, Math.min(left + 10, frame.clientWidth - tip.offsetWidth - 4))}px`;
    tip.style.top = `${top + 14}px`;
  }
  scroll.addEventListener("scroll", moveTip);

  /** Keep what a mark says; on the overview, go there. @param {number} mark */
  function pin(mark) {
    const where = mark < 0 ? null : (sheet.marks[mark].keys ?? []).join(" ").match(/^overview w(\d+)\.(\d+)$/);
    if (where) {
      shown = withWindow(shown, [Math.max(0, Number(where[1]) - DETAIL / 2), Math.max(0, Number(where[2]) - DETAIL / 2)]);
      redraw();
      return;
    }
    pinned = mark === pinned ? -1 : mark;
    current = -2;
    point(mark);
    frame.dataset.pinned = String(pinned >= 0);
  }

  /** The nearest mark that says something, in a direction. @param {number} dx @param {number} dy */
  function step(dx, dy) {
    const told = sheet.marks.map((mark, n) => ({ mark, n })).filter(({ mark }) => mark.tip);
    if (current < 0) return told.length ? told[0].n : -1;
    const [x, y] = middle(sheet.marks[current]);
    let best = current, cost = Infinity;
    for (const { mark, n } of told) {
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
      if (current >= 0) drawn[current].scrollIntoView({ block: "nearest", inline: "nearest" });
      moveTip();
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
    const { svg: copy } = picture(sheet, view.sentence);
    return new XMLSerializer().serializeToString(copy);
  }

  const name = (view.title || view.kind).replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60) || "view";
  const saveSvg = () => download(`${name}.svg`, new Blob([plainSvg()], { type: "image/svg+xml" }));
  function savePng() {
    const image = new Image(), canvas = document.createElement("canvas");
    image.onload = () => {
      [canvas.width, canvas.height] = [Math.ceil(sheet.width * 2), Math.ceil(sheet.height * 2)];
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

  const watcher = new ResizeObserver(() => Math.abs(Math.max(320, Math.min(1600, host.clientWidth || ROOM)) - wide) > 1 && redraw());
  watcher.observe(host);
  dark.addEventListener("change", redraw);
  redraw();
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
    let end = draw(el, model.get("view"));
    model.on("change:view", () => {
      end();
      end = draw(el, model.get("view"));
    });
    return () => end();
  },
};
