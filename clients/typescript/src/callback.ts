/** Runs callbacks of the application, and keeps their errors from affecting the call in progress. */
import type { Logger } from "./options.js";

/**
 * Runs a callback. If it throws or rejects, `failed` gets the name of the error's class, as its message may hold an
 * identifier.
 */
export function runCallback(callback: () => unknown, failed: (name: string) => void): void {
  const caught = (error: unknown) => failed(error instanceof Error ? error.name : typeof error);
  try {
    const result = callback();
    if (isThenable(result)) {
      result.then(undefined, caught);
    }
  } catch (error) {
    caught(error);
  }
}

/** Returns a logger that never throws. */
export function safeLogger(logger: Logger): Logger {
  const lost = () => {}; // there is no other place to report it
  return {
    info: (message) => runCallback(() => logger.info(message), lost),
    error: (message) => runCallback(() => logger.error(message), lost),
  };
}

/** Lets one line a second into a log. */
export class OncePerSecond {
  #openedAt = Number.NEGATIVE_INFINITY;

  /** Reports whether there was no line in the last second. */
  open(): boolean {
    const now = performance.now();
    if (now - this.#openedAt < 1000) {
      return false;
    }
    this.#openedAt = now;
    return true;
  }
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === "function";
}
