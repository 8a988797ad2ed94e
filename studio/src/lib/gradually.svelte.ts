const FIRST = 120; // more than are in sight
const REST = 300; // milliseconds: who only passes by does not wait for what is out of sight

/** How many elements of a long list are there: some at once, so that the page opens quickly; a moment later all of them. */
export function gradually(): () => number {
  let shown = $state(FIRST);
  $effect(() => {
    const timer = setTimeout(() => (shown = Infinity), REST);
    return () => clearTimeout(timer);
  });
  return () => shown;
}
