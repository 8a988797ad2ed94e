/** Files that the page makes by itself. */
export type Cell = string | number | null;

/** Offer a text as a file. */
export function save(name: string, text: string, type: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

const field = (value: Cell): string => {
  const text = String(value ?? "");
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

/** A table as .csv files have it. */
export const csv = (columns: string[], rows: Cell[][]): string => [columns, ...rows].map((row) => row.map(field).join(",") + "\n").join("");

/** The same as a list of objects. */
export const json = (columns: string[], rows: Cell[][]): string => JSON.stringify(rows.map((row) => Object.fromEntries(columns.map((name, at) => [name, row[at]]))), null, 1) + "\n";
