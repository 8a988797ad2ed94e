// Notes that are played by Web Audio, and a canvas of them that moves with the time. A note is
// [start, end, pitch, voice]; times are seconds. Pages that are saved and the studio share this file.

// As in tasks/sound.py.
const OVERTONES = [0, 1, 0.5, 0.25, 0.16, 0.08, 0.05];
// Seconds that notes are handed to the browser before they sound, and the part of the canvas before the line.
const AHEAD = 0.3, BEFORE = 0.25;

export class Playing {
  /**
   * @param {number[][]} notes
   * @param {number[]} [velocities]
   * @param {(time: number) => void} [moved] called in every frame while it plays, and when it ends
   */
  constructor(notes, velocities, moved = () => {}) {
    this.notes = notes;
    this.velocities = velocities;
    this.moved = moved;
    this.end = Math.max(0.1, ...notes.map((note) => note[1]));
    this.playing = false;
    this.from = 0;
    this.began = 0;
    this.next = 0;
    /** @type {AudioContext | null} */
    this.audio = null;
    /** @type {PeriodicWave | null} */
    this.wave = null;
    /** @type {GainNode | null} */
    this.out = null;
  }

  /** Where it is, in seconds. */
  get time() {
    return this.playing && this.audio ? Math.max(0, Math.min(this.end, this.audio.currentTime - this.began)) : this.from;
  }

  start() {
    const audio = (this.audio ??= new AudioContext());
    this.wave ??= audio.createPeriodicWave(new Float32Array(OVERTONES.length), new Float32Array(OVERTONES));
    this.out = audio.createGain();
    this.out.gain.value = 0.35;
    this.out.connect(audio.destination);
    audio.resume();
    if (this.from >= this.end) this.from = 0;
    this.began = audio.currentTime + 0.05 - this.from;
    this.next = this.notes.findIndex((note) => note[1] > this.from);
    this.playing = true;
    requestAnimationFrame(() => this.step());
  }

  stop() {
    this.from = this.time;
    this.playing = false;
    this.out?.disconnect();
  }

  /** @param {number} time */
  seek(time) {
    const again = this.playing;
    if (again) this.stop();
    this.from = Math.max(0, Math.min(this.end, time));
    if (again) this.start();
  }

  /** Release the sound card. */
  close() {
    this.stop();
    this.audio?.close();
    this.audio = null;
  }

  step() {
    if (!this.playing) return;
    const time = this.time;
    while (this.next >= 0 && this.next < this.notes.length && this.notes[this.next][0] < time + AHEAD) {
      if (this.notes[this.next][1] > time) this.sound(this.notes[this.next], this.velocities?.[this.next] ?? 80);
      this.next += 1;
    }
    if (time >= this.end) {
      this.stop();
      this.from = 0;
    }
    this.moved(this.time);
    if (this.playing) requestAnimationFrame(() => this.step());
  }

  /**
   * @param {number[]} note
   * @param {number} velocity
   */
  sound([first, last, pitch], velocity) {
    if (!this.audio || !this.out || !this.wave) return;
    const at = Math.max(this.audio.currentTime, this.began + first), until = this.began + last;
    const tone = this.audio.createOscillator(), gain = this.audio.createGain();
    const fade = 0.9 * 2 ** ((pitch - 60) / 24);
    tone.setPeriodicWave(this.wave);
    tone.frequency.value = 440 * 2 ** ((pitch - 69) / 12);
    gain.gain.setValueAtTime(0, at);
    gain.gain.linearRampToValueAtTime((velocity / 127) * 0.5, at + 0.006);
    gain.gain.setTargetAtTime(0, at + 0.006, 1 / fade);
    gain.gain.setTargetAtTime(0, Math.max(at + 0.01, until), 0.03);
    tone.connect(gain).connect(this.out);
    tone.start(at);
    tone.stop(Math.max(at + 0.01, until) + 0.3);
  }
}

/**
 * How times and pitches become places on a canvas at a time.
 * @param {HTMLCanvasElement} canvas
 * @param {number[][]} notes
 * @param {number} time
 */
function places(canvas, notes, time) {
  const wide = canvas.clientWidth, tall = canvas.clientHeight;
  const pitches = notes.map((note) => note[2]);
  const low = Math.min(60, ...pitches) - 2, high = Math.max(60, ...pitches) + 2;
  const row = tall / (high - low + 1), second = Math.max(60, wide / 12);
  /** @param {number} at */
  const x = (at) => wide * BEFORE + (at - time) * second;
  /** @param {number} pitch */
  const y = (pitch) => (high - pitch) * row;
  return { wide, tall, low, high, row, second, x, y };
}

/**
 * Draw the notes around a time.
 * @param {HTMLCanvasElement} canvas
 * @param {number[][]} notes
 * @param {{time: number, colors: Record<string, string>, given?: number, chosen?: number}} how
 */
export function paint(canvas, notes, { time, colors, given = 0, chosen = -1 }) {
  const { wide, tall, low, high, row, second, x, y } = places(canvas, notes, time);
  const ratio = window.devicePixelRatio || 1, pen = canvas.getContext("2d");
  if (!pen) return;
  if (canvas.width !== Math.round(wide * ratio) || canvas.height !== Math.round(tall * ratio)) {
    canvas.width = Math.round(wide * ratio);
    canvas.height = Math.round(tall * ratio);
  }
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, wide, tall);
  pen.font = "11px sans-serif";
  for (let pitch = Math.ceil(low / 12) * 12; pitch <= high; pitch += 12) {
    pen.fillStyle = colors.line;
    pen.fillRect(0, y(pitch) + row, wide, 1);
    pen.fillStyle = colors.soft;
    pen.fillText(`C${pitch / 12 - 1}`, 2, y(pitch) + row - 2);
  }
  for (const [number, [first, last, pitch, voice]] of notes.entries()) {
    if (x(last) < 0 || x(first) > wide) continue;
    const sounds = first <= time && time < last;
    const color = first < given - 1e-9 ? colors.soft : colors[`s${voice % 8}`];
    pen.fillStyle = number === chosen ? colors.ink : sounds ? colors.mark : color;
    pen.fillRect(x(first), y(pitch) + 1, Math.max(2, (last - first) * second - 1), Math.max(2, row - 2));
  }
  pen.fillStyle = colors.mark;
  pen.fillRect(wide * BEFORE, 0, 1.5, tall);
}

/**
 * The note at a place of the canvas, and the time there.
 * @param {HTMLCanvasElement} canvas
 * @param {number[][]} notes
 * @param {number} time that the canvas shows
 * @param {{left: number, top: number}} place
 */
export function noteAt(canvas, notes, time, { left, top }) {
  const { wide, second, high, row } = places(canvas, notes, time);
  const at = time + (left - wide * BEFORE) / second, pitch = high - Math.floor(top / row);
  return { at, note: notes.findIndex((one) => one[0] <= at && at < one[1] && one[2] === pitch) };
}
