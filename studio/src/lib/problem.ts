/** What went wrong, in a sentence for people. */
export class Problem extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly code: string | null = null,
  ) {
    super(message);
  }
}
