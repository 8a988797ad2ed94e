// The page of one piece: a button, a place in the piece, and the roll.
const { notes, velocities, series, given = 0, palettes, theme } = JSON.parse(document.getElementById("data").textContent);
const canvas = document.getElementById("roll"), button = document.getElementById("play");
const place = document.getElementById("place"), shown = document.getElementById("time");
const dark = () => (theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
if (theme) document.documentElement.dataset.theme = theme;
const player = new Playing(notes, velocities, show);

function show() {
  const { time, end } = player;
  paint(canvas, notes, { time, given, colors: palettes[dark() ? "dark" : "light"] });
  if (document.activeElement !== place || player.playing) place.value = String(Math.round((1000 * time) / end));
  shown.textContent = `${time.toFixed(1)} of ${end.toFixed(1)} s`;
  button.textContent = player.playing ? "Pause" : "Play";
}

button.addEventListener("click", () => {
  if (player.playing) player.stop();
  else player.start();
  show();
});
place.addEventListener("input", () => {
  player.seek((player.end * Number(place.value)) / 1000);
  show();
});
document.addEventListener("keydown", (event) => {
  if (event.key === " " && event.target === document.body) { event.preventDefault(); button.click(); }
});
window.addEventListener("resize", show);
const names = document.getElementById("names");
for (const [number, name] of (series ?? []).entries()) {
  const one = document.createElement("span"), box = document.createElement("i");
  box.style.background = palettes[dark() ? "dark" : "light"][`s${number % 8}`];
  one.append(box, name);
  names.append(one, " ");
}
show();
