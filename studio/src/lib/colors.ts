/** The scale of magnitudes, as figures/color.py has it; a test compares them. */
export const MAGNITUDE = {
  light: ["#ffffff", "#d3e6f4", "#86bfe2", "#2f84bf", "#0b4a7d", "#062b4c"],
  dark: ["#14171a", "#15324b", "#1a5d8e", "#3494d3", "#8ecbf2", "#eef8ff"],
};

const channels = (stop: string): number[] => [1, 3, 5].map((n) => parseInt(stop.slice(n, n + 2), 16));

/** 256 colors from nothing to much: red, green, blue. */
export function ramp(theme: "light" | "dark"): Uint8Array {
  const stops = MAGNITUDE[theme].map(channels), made = new Uint8Array(256 * 3);
  for (let n = 0; n < 256; n++) {
    const place = (n / 255) * (stops.length - 1), left = Math.min(Math.floor(place), stops.length - 2);
    for (let c = 0; c < 3; c++) made[n * 3 + c] = Math.round(stops[left][c] + (stops[left + 1][c] - stops[left][c]) * (place - left));
  }
  return made;
}
