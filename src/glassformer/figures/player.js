// Plays notes by Web Audio and draws them on a canvas that moves with the time.
const { notes, velocities, series, given = 0, palettes, theme } = JSON.parse(document.getElementById("data").textContent);
const OVERTONES = [0, 1, 0.5, 0.25, 0.16, 0.08, 0.05], AHEAD = 0.3, BEFORE = 0.25;
const end = Math.max(0.1, ...notes.map((note) => note[1]));
const low = Math.min(...notes.map((note) => note[2])) - 2, high = Math.max(...notes.map((note) => note[2])) + 2;
const canvas = document.getElementById("roll"), button = document.getElementById("play");
const place = document.getElementById("place"), shown = document.getElementById("time");
const dark = () => (theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
if (theme) document.documentElement.dataset.theme = theme;

let audio = null, wave = null, out = null, began = 0, from = 0, next = 0, playing = false;

const now = () => (playing ? Math.min(end, audio.currentTime - began) : from);

function start() {
  audio ??= new AudioContext();
  wave ??= audio.createPeriodicWave(new Float32Array(OVERTONES.length), new Float32Array(OVERTONES));
  out = audio.createGain();
  out.gain.value = 0.35;
  out.connect(audio.destination);
  audio.resume();
  if (from >= end) from = 0;
  began = audio.currentTime + 0.05 - from;
  next = notes.findIndex((note) => note[1] > from);
  playing = true;
  button.textContent = "Pause";
  requestAnimationFrame(step);
}

function stop() {
  from = now();
  playing = false;
  out?.disconnect();
  button.textContent = "Play";
}

function sound([first, last, pitch], velocity) {
  const at = Math.max(audio.currentTime, began + first), until = began + last, tone = audio.createOscillator(), gain = audio.createGain();
  const loud = velocity / 127, fade = 0.9 * 2 ** ((pitch - 60) / 24);
  tone.setPeriodicWave(wave);
  tone.frequency.value = 440 * 2 ** ((pitch - 69) / 12);
  gain.gain.setValueAtTime(0, at);
  gain.gain.linearRampToValueAtTime(loud * 0.5, at + 0.006);
  gain.gain.setTargetAtTime(0, at + 0.006, 1 / fade);
  gain.gain.setTargetAtTime(0, Math.max(at + 0.01, until), 0.03);
  tone.connect(gain).connect(out);
  tone.start(at);
  tone.stop(Math.max(at + 0.01, until) + 0.3);
}

function step() {
  if (!playing) return;
  const time = now();
  while (next >= 0 && next < notes.length && notes[next][0] < time + AHEAD) {
    if (notes[next][1] > time) sound(notes[next], velocities?.[next] ?? 80);
    next += 1;
  }
  if (time >= end) { stop(); from = 0; }
  paint();
  if (playing) requestAnimationFrame(step);
}

function paint() {
  const colors = palettes[dark() ? "dark" : "light"], ratio = window.devicePixelRatio || 1;
  const wide = canvas.clientWidth, tall = canvas.clientHeight, time = now();
  if (canvas.width !== Math.round(wide * ratio)) { canvas.width = Math.round(wide * ratio); canvas.height = Math.round(tall * ratio); }
  const pen = canvas.getContext("2d"), row = tall / (high - low + 1), second = Math.max(60, wide / 12);
  const x = (at) => wide * BEFORE + (at - time) * second, y = (pitch) => (high - pitch) * row;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, wide, tall);
  pen.font = "11px sans-serif";
  for (let pitch = Math.ceil(low / 12) * 12; pitch <= high; pitch += 12) {
    pen.fillStyle = colors.line;
    pen.fillRect(0, y(pitch) + row, wide, 1);
    pen.fillStyle = colors.soft;
    pen.fillText(`C${pitch / 12 - 1}`, 2, y(pitch) + row - 2);
  }
  for (const [first, last, pitch, voice] of notes) {
    if (x(last) < 0 || x(first) > wide) continue;
    const sounds = first <= time && time < last;
    pen.fillStyle = sounds ? colors.mark : first < given - 1e-9 ? colors.soft : colors[`s${voice % 8}`];
    pen.fillRect(x(first), y(pitch) + 1, Math.max(2, (last - first) * second - 1), Math.max(2, row - 2));
  }
  pen.fillStyle = colors.mark;
  pen.fillRect(wide * BEFORE, 0, 1.5, tall);
  if (document.activeElement !== place || playing) place.value = String(Math.round((1000 * time) / end));
  shown.textContent = `${time.toFixed(1)} of ${end.toFixed(1)} s`;
}

button.addEventListener("click", () => (playing ? stop() : start()));
place.addEventListener("input", () => {
  const again = playing;
  if (again) stop();
  from = (end * Number(place.value)) / 1000;
  if (again) start();
  paint();
});
document.addEventListener("keydown", (event) => {
  if (event.key === " " && event.target === document.body) { event.preventDefault(); button.click(); }
});
window.addEventListener("resize", paint);
const names = document.getElementById("names");
for (const [number, name] of (series ?? []).entries()) {
  const one = document.createElement("span"), box = document.createElement("i");
  box.style.background = palettes[dark() ? "dark" : "light"][`s${number % 8}`];
  one.append(box, name);
  names.append(one, " ");
}
paint();
